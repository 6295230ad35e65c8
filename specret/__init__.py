"""Retrieval-based speculative decoding that keeps exactly the model's own output."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from specret.engine import Engine, load

__all__ = ["Engine", "load"]


def __getattr__(name: str) -> Any:
    """Load the engine (and with it torch) only when it is asked for."""
    if name in __all__:
        from specret import engine

        return getattr(engine, name)
    raise AttributeError(f"module 'specret' has no attribute {name!r}")
