"""Calling a command as a person would, and keeping what it says."""

import json
from collections.abc import Callable
from typing import Any, NamedTuple


class Ending(NamedTuple):
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def data(self) -> Any:
        return json.loads(self.out)


Call = Callable[..., Ending]
