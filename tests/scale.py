"""How much of each large number a run goes through: all of it, or about a twentieth."""

import os
from collections.abc import Iterable
from itertools import islice
from typing import Final, TypeVar

_Each = TypeVar("_Each")

SCALE: Final = float(os.environ.get("HORAE_SCALE", "0.05"))


def scaled(full: int, *, few: int | None = None) -> int:
    """Return *full* under `make torture`, a twentieth of it or *few* under `make test`."""
    return few if few is not None and SCALE < 1 else max(1, round(full * SCALE))


def by_turns(every: Iterable[_Each], turn: int, *, step: int = 3) -> list[_Each]:
    """Return all under `make torture`, else every third, beginning elsewhere in each turn."""
    return [*every] if SCALE >= 1 else [*islice(every, turn % step, None, step)]
