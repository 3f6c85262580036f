"""The base of all errors, and what the command line returns for each.

Each error lives beside its thing, keeps its facts as fields and builds its own message: what is
wrong, where, and what would be right. `code` is the stable word for machines, `exit_code` what
the command line returns.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final, TypedDict


class Exit(IntEnum):
    OK = 0
    FINDINGS = 1  # errors were found, or a run failed
    USAGE = 2
    UNREACHABLE = 3  # no engine answers
    NOT_FOUND = 4
    VERIFICATION = 5
    CONFLICT = 6  # somebody else was first, or holds the lock
    UNAUTHORISED = 7
    TEMPORARY = 75
    TIMED_OUT = 124
    INTERRUPTED = 130


_NO_FACTS: Final = frozenset({"code", "exit_code"})


class ErrorData(TypedDict):
    code: str
    message: str
    facts: dict[str, object]


class HoraeError(Exception):
    """A request we cannot honour; its text is meant for the person who asked."""

    code: str = "error"
    exit_code: int = Exit.FINDINGS

    def __init_subclass__(cls, *, code: str = "", exit_code: int | None = None) -> None:
        super().__init_subclass__()
        cls.code = code or cls.code
        cls.exit_code = cls.exit_code if exit_code is None else exit_code

    def __init__(
        self, message: str = "", /, *, code: str = "", exit_code: int | None = None, **facts: object
    ) -> None:
        """Make an error; one that has no class of its own names its code and its facts."""
        super().__init__(message)
        self.code = code or self.code
        self.exit_code = self.exit_code if exit_code is None else exit_code
        vars(self).update(facts)

    def data(self) -> ErrorData:
        told = ((name, value) for name, value in vars(self).items() if not name.startswith("_"))
        facts = {name: each for name, each in told if each is not None and name not in _NO_FACTS}
        return {"code": self.code, "message": str(self), "facts": facts}


class ScheduleError(HoraeError, code="schedule", exit_code=Exit.USAGE):
    """A time rule that cannot be read."""
