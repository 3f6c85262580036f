"""What the end of a run means: done, nothing to do, failed, killed or interrupted.

The exit code decides first, then the very first words of the output. A bad end also says the
last lines of the output. Whatever a command printed comes from strangers: it is shown on one
line, without control characters, and short.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import Final, NamedTuple

from horae.core.decide import Status
from horae.core.reason import Reason, ReasonCode
from horae.timing.duration import format_duration

SHOWN: Final = 200  # characters of a reason, and of a line of output
LINES: Final = 3  # of the end of the output, in a reason
LAST: Final = 300  # characters of them
TAIL_LINES: Final = 10  # of the end of the output, for whoever is told of a bad end
TAIL: Final = 1000  # characters of them

ENGINE_EXITED: Final = Reason(ReasonCode.ENGINE_EXITED, "the engine exited during the run")
NEVER_STARTED: Final = Reason(ReasonCode.NEVER_STARTED, "the run was never started")

_NO_WORK: Final = re.compile(r"\s*NO-WORK(?!\w)", re.ASCII | re.IGNORECASE)
_FAILED: Final = "FAILED:"
# Colours and other orders to a terminal; then whatever else is not a character to be read.
_ORDERS: Final = re.compile(r"\x1b\[[0-?]*+[ -/]*+[@-~]|\x1b\][^\x07\x1b]*+(?:\x07|\x1b\\)?|\x1b.")
_UNSEEN: Final = re.compile(
    r"[\x00-\x1f\x7f-\x9f\u00ad\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff]+"
)
_LINE_ENDS: Final = re.compile(r"[\r\n]+")
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
    """How a run ended; `first` is the first line of its output, `said` what was said about it.

    `last` is the end of what it printed on stderr, or on stdout if that is empty.
    """

    why: Why
    code: int | None = None
    signal: int | None = None
    first: str = ""
    said: str = ""
    last: str = ""
    limit: timedelta | None = None


class Verdict(NamedTuple):
    """What an end means, and the reason."""

    status: Status
    reason: Reason


def verdict(finish: Finish) -> Verdict:
    """Return what the end of a run means.

    >>> verdict(Finish(Why.EXIT, code=0, first="no-work: all swept"))
    Verdict(status=<Status.NO_WORK: 'no_work'>, reason='no-work: all swept')
    >>> verdict(Finish(Why.EXIT, code=3)).reason
    'exit code 3'
    >>> verdict(Finish(Why.EXIT, code=3, last="tar: /srv: not found")).reason
    'exit code 3: tar: /srv: not found'
    >>> verdict(Finish(Why.EXIT, code=3, first="FAILED: no disk")).reason
    'no disk (exit code 3)'
    >>> verdict(Finish(Why.TIMEOUT, limit=timedelta(minutes=15))).reason
    'exceeded the time limit of 15m'
    """
    match finish.why:
        case Why.EXIT:
            return _after_exit(finish)
        case Why.START:
            words = shown(f"cannot be started: {finish.said}")
            return Verdict(Status.FAILED, Reason(ReasonCode.CANNOT_START, words))
        case Why.TIMEOUT:
            return Verdict(Status.KILLED, timed_out(finish.limit or timedelta(), finish.last))
        case Why.CANCEL:
            words = shown(finish.said) or "cancelled"
            return Verdict(Status.KILLED, Reason(ReasonCode.CANCELLED, words))
        case Why.ENGINE:
            return Verdict(Status.INTERRUPTED, ENGINE_EXITED)
        case Why.LEASE:
            words = "the engine did not renew its lease in time"
            return Verdict(Status.INTERRUPTED, Reason(ReasonCode.LEASE_EXPIRED, words))


def timed_out(limit: timedelta, last: str = "") -> Reason:
    """Return why a run was killed that took longer than it may, and what it had printed last."""
    words = with_output(f"exceeded the time limit of {format_duration(limit)}", last)
    return Reason(ReasonCode.TIME_LIMIT, words)


def with_output(reason: str, last: str) -> str:
    """Return why a run was ended, with the last lines that it had printed.

    >>> with_output("exceeded the time limit of 5s", "waiting for the lock")
    'exceeded the time limit of 5s; last output: waiting for the lock'
    """
    words = last_words(last)
    return f"{reason}; last output: {words}" if words else reason


def with_last_words(reason: str, last: str) -> str:
    """Return why a run failed, with the last lines that it printed."""
    words = last_words(last)
    return f"{reason}: {words}" if words else reason


def last_words(text: str) -> str:
    r"""Return the last lines of some output as one short line.

    >>> last_words("copying\ntar: /srv: not found\n\n\x1b[31mgiving up\x1b[0m\n")
    'copying / tar: /srv: not found / giving up'
    """
    return " / ".join(last_lines(text, LINES, LAST))


def last_lines(text: str, lines: int = TAIL_LINES, most: int = TAIL) -> list[str]:
    """Return the last lines of some output that say anything, as they may be shown."""
    found: list[str] = []
    for line in reversed(_LINE_ENDS.split(text)):
        plain = shown(line)
        if not any(map(str.isalnum, plain)):  # blank, or a rule, or carets under a line
            continue
        most -= len(plain) + 3  # and what stands between two of them
        if len(found) == lines or (most < 0 and found):
            break
        found.append(plain)
    return found[::-1]


def shown(text: str, most: int = SHOWN) -> str:
    r"""Return text from a stranger as it may be shown: one short line of characters to be read.

    >>> shown("\x1b[31mdisk\x1b[0m\tfull \x00 ")
    'disk full'
    """
    # A cut comes first: a line may be as long as it likes.
    plain = _UNSEEN.sub(" ", _ORDERS.sub("", text[: most * 8]))
    plain = " ".join(plain.split())
    return plain if len(plain) <= most else plain[: most - 1] + "…"


def _after_exit(finish: Finish) -> Verdict:
    if finish.signal:
        signal = f"signal {_SIGNALS.get(finish.signal, finish.signal)}"
        words = with_last_words(signal, finish.last)
        return Verdict(Status.FAILED, Reason(ReasonCode.SIGNAL, words))
    words = shown(finish.first)
    if finish.code != 0:
        code = f"exit code {finish.code}"
        said = words.removeprefix(_FAILED).strip() if words.startswith(_FAILED) else ""
        if said:
            return Verdict(Status.FAILED, Reason(ReasonCode.REPORTED, f"{said} ({code})"))
        words = with_last_words(code, finish.last)
        return Verdict(Status.FAILED, Reason(ReasonCode.EXIT_CODE, words))
    if _NO_WORK.match(finish.first):
        return Verdict(Status.NO_WORK, Reason(ReasonCode.NO_WORK, words))
    if finish.first.startswith(_FAILED):
        words = words.removeprefix(_FAILED).strip() or "the run reported FAILED without a reason"
        return Verdict(Status.FAILED, Reason(ReasonCode.REPORTED, words))
    return Verdict(Status.DONE, Reason(ReasonCode.COMPLETED, words or "exit code 0"))
