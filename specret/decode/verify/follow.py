"""Follow the target: one draw per node, descend while a child carries it, else emit it.

In: a draft, the target's law of each row, a draw. Out: the accepted path and the next token.
Exact for every tree, however built, pruned or merged: each emitted token is one draw from the
target's own law given the text before it, and the draft only decides how many draws one forward
pass serves. Drawn lazily, so rows off the path cost nothing.
"""

from specret.protocols import Draw, RowLaw
from specret.types import Draft, Verdict


def follow(draft: Draft, law: RowLaw, draw: Draw, position: int) -> Verdict:
    """Walk down from the newest token; `position` is that of the first token to be drawn."""
    path: list[int] = []
    tokens: list[int] = []
    node = -1
    while True:
        token = draw(position + len(path), law(node + 1, tuple(tokens)))
        child = draft.child(node, token)
        if child is None:
            return Verdict(tuple(path), token)
        path.append(child)
        tokens.append(token)
        node = child
