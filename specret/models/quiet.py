"""Keeps transformers' own bars, notices and warnings off the terminal while a model loads.

What goes wrong still raises; what would only be printed is checked by `load` itself.
"""

import io
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr
from typing import Any

import transformers

_logging: Any = transformers.utils.logging


@contextmanager
def quiet() -> Iterator[None]:
    """Silence for the duration of the block; the former settings return afterwards."""
    verbosity, bars = _logging.get_verbosity(), _logging.is_progress_bar_enabled()
    _logging.set_verbosity_error()
    _logging.disable_progress_bar()
    try:
        # the bar of the GGUF reader knows no switch
        with warnings.catch_warnings(), redirect_stderr(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        _logging.set_verbosity(verbosity)
        if bars:
            _logging.enable_progress_bar()
