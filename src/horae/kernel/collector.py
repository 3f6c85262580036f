"""Keeping the cyclic collector out of the way while much is made that has no cycles."""

from __future__ import annotations

import gc
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

LARGE: Final = 1 << 18  # characters of text from which on it is worth it


@contextmanager
def collector_paused(*, when: bool) -> Iterator[None]:
    """Keep the collector from walking, again and again, what it will never free."""
    if not when or not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
