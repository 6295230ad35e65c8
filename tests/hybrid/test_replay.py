"""Replay: steps counted from trees and the true text equal walking them one by one."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from specret import tree
from specret.hybrid.replay import count_steps, nodes_needed, tokens_per_step, true_path

CHAIN = np.array([-1, 0, 1], np.int32)


def test_the_true_path_ends_where_the_draft_errs():
    tokens = np.array([5, 6, 7])
    assert true_path(tokens, CHAIN, np.array([5, 6, 7, 8])) == (0, 1, 2)
    assert true_path(tokens, CHAIN, np.array([5, 9, 7])) == (0,)
    assert true_path(tokens, CHAIN, np.array([9])) == ()
    assert true_path(tokens, CHAIN, np.array([], np.int64)) == ()


def test_the_true_path_takes_the_branch_that_agrees():
    parents = np.array([-1, -1, 0, 1], np.int32)
    assert true_path(np.array([1, 2, 3, 3]), parents, np.array([2, 3])) == (1, 3)


def test_steps_jump_over_what_was_accepted():
    always, never = np.array([1, 2]), np.array([], np.int64)
    assert count_steps([always] * 6, 2) == 2  # 3 + 3 tokens
    assert count_steps([always] * 6, 1) == 3  # the budget holds one node
    assert count_steps([always] * 6, 0) == 6
    assert count_steps([never] * 6, 2) == 6
    assert count_steps([], 2) == 0


def test_tokens_per_step_pool_the_answers():
    always, never = np.array([1]), np.array([], np.int64)
    assert tokens_per_step([[always] * 2, [never] * 4], 1) == 6 / 5


trees = st.integers(0, 12).flatmap(
    lambda n: st.tuples(
        st.tuples(*(st.integers(-1, i - 1) for i in range(n))),
        st.lists(st.sampled_from([0.2, 0.5, 0.5, 1.0]), min_size=n, max_size=n),
        st.lists(st.integers(0, 1), max_size=6),
    )
)


@given(trees, st.integers(0, 13))
def test_nodes_needed_agrees_with_cutting_the_tree(case, max_nodes):
    parents, prob = np.array(case[0], np.int32), np.array(case[1], np.float32)
    # each node's token is its rank among its siblings, so that siblings differ
    tokens = np.array([case[0][:i].count(p) for i, p in enumerate(case[0])], np.int64)
    truth = np.array(case[2], np.int64)
    needed = nodes_needed(parents, prob, true_path(tokens, parents, truth))
    keep = tree.best_nodes(parents, prob, max_nodes, max_depth=99)
    cut = true_path(tokens[keep], tree.reindex(parents, keep), truth)
    assert (np.diff(needed) > 0).all()
    assert np.searchsorted(needed, max_nodes, side="right") == len(cut)
