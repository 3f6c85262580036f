"""Keeping the cyclic collector out of the way while much is made that has no cycles."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

LARGE: Final = 1 << 18  # characters of text from which on it is worth it
_NEW: Final = 20_000  # things made before the collector looks at them: a few megabytes


def calm_collector() -> None:
    """Let the collector pass over what is here by now, and look at the rest less often."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(_NEW, 20, 100)


@contextmanager
def collector_paused(*, when: bool) -> Iterator[None]:
    if not when or not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
