"""What the end of a run means: done, nothing to do, failed, killed or interrupted.

The exit code decides first, then the very first words of the output. Whatever a command
printed comes from strangers: it is shown on one line, without control characters, and short.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import Final, NamedTuple

from horae.rules.misfire import Status
from horae.timing.duration import format_duration

SHOWN: Final = 200  # characters of a reason

_NO_WORK: Final = re.compile(r"\s*NO-WORK(?!\w)", re.ASCII | re.IGNORECASE)
_FAILED: Final = "FAILED:"
# Colours and other orders to a terminal; then whatever else is not a character to be read.
_ORDERS: Final = re.compile(r"\x1b\[[0-?]*+[ -/]*+[@-~]|\x1b\][^\x07\x1b]*+(?:\x07|\x1b\\)?|\x1b.")
_UNSEEN: Final = re.compile(
    r"[\x00-\x1f\x7f-\x9f\u00ad\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff]+"
)
_SIGNALS: Final = {
    1: "SIGHUP", 2: "SIGINT", 3: "SIGQUIT", 4: "SIGILL", 5: "SIGTRAP", 6: "SIGABRT",
    8: "SIGFPE", 9: "SIGKILL", 11: "SIGSEGV", 13: "SIGPIPE", 14: "SIGALRM", 15: "SIGTERM",
}  # fmt: skip


class Why(StrEnum):
    """What ended a run."""

    EXIT = "exit"  # its command did
    START = "start"  # its command could not be started
    TIMEOUT = "timeout"  # its wall clock
    CANCEL = "cancel"  # somebody asked for it
    ENGINE = "engine"  # the engine died
    LEASE = "lease"  # the engine's time was over


@dataclass(frozen=True, slots=True)
class Finish:
    """How a run ended; `first` is the first line of its output, `said` what was said about it."""

    why: Why
    code: int | None = None
    signal: int | None = None
    first: str = ""
    said: str = ""
    limit: timedelta | None = None


class Verdict(NamedTuple):
    """What an end means, and the reason in words."""

    status: Status
    reason: str


def verdict(finish: Finish) -> Verdict:
    """Return what the end of a run means.

    >>> verdict(Finish(Why.EXIT, code=0, first="no-work: all swept"))
    Verdict(status=<Status.NO_WORK: 'no_work'>, reason='no-work: all swept')
    >>> verdict(Finish(Why.EXIT, code=3)).reason
    'exit code 3'
    >>> verdict(Finish(Why.EXIT, code=3, first="FAILED: no disk")).reason
    'no disk (exit code 3)'
    >>> verdict(Finish(Why.TIMEOUT, limit=timedelta(minutes=15))).reason
    'it ran longer than 15m and was killed'
    """
    match finish.why:
        case Why.EXIT:
            return _after_exit(finish)
        case Why.START:
            return Verdict(Status.FAILED, shown(f"cannot be started: {finish.said}"))
        case Why.TIMEOUT:
            length = format_duration(finish.limit or timedelta())
            return Verdict(Status.KILLED, f"it ran longer than {length} and was killed")
        case Why.CANCEL:
            return Verdict(Status.KILLED, shown(finish.said) or "it was cancelled")
        case Why.ENGINE:
            return Verdict(Status.INTERRUPTED, "the engine ended while it ran")
        case Why.LEASE:
            return Verdict(Status.INTERRUPTED, "the engine could not say in time that it is alive")


def shown(text: str) -> str:
    r"""Return text from a stranger as it may be shown: one short line of characters to be read.

    >>> shown("\x1b[31mdisk\x1b[0m\tfull \x00 ")
    'disk full'
    """
    # A cut comes first: a line may be as long as it likes.
    plain = _UNSEEN.sub(" ", _ORDERS.sub("", text[: SHOWN * 8]))
    plain = " ".join(plain.split())
    return plain if len(plain) <= SHOWN else plain[: SHOWN - 1] + "…"


def _after_exit(finish: Finish) -> Verdict:
    if finish.signal:
        return Verdict(Status.FAILED, f"signal {_SIGNALS.get(finish.signal, finish.signal)}")
    words = shown(finish.first)
    if finish.code != 0:
        code = f"exit code {finish.code}"
        said = words.removeprefix(_FAILED).strip() if words.startswith(_FAILED) else ""
        return Verdict(Status.FAILED, f"{said} ({code})" if said else code)
    if _NO_WORK.match(finish.first):
        return Verdict(Status.NO_WORK, words)
    if finish.first.startswith(_FAILED):
        reason = words.removeprefix(_FAILED).strip()
        return Verdict(Status.FAILED, reason or "it said that it failed, and not why")
    return Verdict(Status.DONE, words or "exit code 0")
