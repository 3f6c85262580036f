"""The life of a receipt: what it may become, and what follows when its run ends.

    waiting ⇄ held                   something that it needs is missing
    waiting, held → skipped          its entry was removed or paused
    waiting → starting → running → done | no_work | failed | killed | interrupted
    starting → waiting               nothing has run yet, so nothing is lost
    starting → failed                its run could not be made
    running → waiting                a bad end, and a retry is left; or it was never let go

What is skipped, coalesced or missed, and what has ended, never changes again.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final, NamedTuple

from horae.core.decide import Receipt, Status
from horae.core.entry import key_time
from horae.core.reason import Reason, ReasonCode

if TYPE_CHECKING:
    from horae.core.policy import Retry

BAD: Final = frozenset({Status.FAILED, Status.KILLED, Status.INTERRUPTED})
ENDS: Final = BAD | {Status.DONE, Status.NO_WORK}
FINAL: Final = ENDS | {Status.SKIPPED, Status.COALESCED, Status.MISSED}
OPEN: Final = frozenset(Status) - FINAL

RETRY_CAP: Final = timedelta(hours=1)  # doubling stops here; a longer first wait stays as it is

BROKEN: Final = "broken:"  # the key of an edit after which the text of an entry cannot be read

GONE: Final = "no longer in the plan"  # why something neither starts nor is armed any more

# Receipts of these keys account for moments that the entry itself names.
_PLANNED: Final = ("cron:", "at:", "delay:", "tick:")

_NEXT: Final[dict[Status, frozenset[Status]]] = {
    Status.WAITING: frozenset({Status.HELD, Status.STARTING, Status.SKIPPED}),
    Status.HELD: frozenset({Status.WAITING, Status.SKIPPED}),
    Status.STARTING: frozenset({Status.WAITING, Status.RUNNING, Status.FAILED}),
    Status.RUNNING: ENDS,
}


class Next(NamedTuple):
    """Where a receipt goes when its run ends; `start_at` is when it may be tried again."""

    status: Status
    start_at: datetime | None = None


def may_become(status: Status, then: Status, *, has_retry: bool = False) -> bool:
    """Tell whether a receipt may go from one status to another.

    >>> may_become(Status.WAITING, Status.STARTING)
    True
    >>> may_become(Status.DONE, Status.WAITING)
    False

    What ran may only wait again if a retry is left.

    >>> may_become(Status.RUNNING, Status.WAITING), may_become(
    ...     Status.RUNNING, Status.WAITING, has_retry=True
    ... )
    (False, True)
    """
    if status is Status.RUNNING and then is Status.WAITING:
        return has_retry
    return then in _NEXT.get(status, frozenset())


def after_end(outcome: Status, *, attempts: int, retry: Retry | None, now: datetime) -> Next:
    """Return what a receipt becomes when its run, the *attempts*-th, has ended.

    >>> from horae.core.policy import Retry
    >>> now, twice = datetime(2026, 4, 1), Retry(2, timedelta(seconds=30))
    >>> for attempts in (1, 2, 3):
    ...     then = after_end(Status.FAILED, attempts=attempts, retry=twice, now=now)
    ...     print(then.status, then.start_at)
    waiting 2026-04-01 00:00:30
    waiting 2026-04-01 00:01:00
    failed None
    """
    if outcome not in BAD or retry is None or attempts > retry.attempts:
        return Next(outcome)
    # Clamp before doubling: a hundred doublings would overflow timedelta.
    doubled = retry.wait * (1 << min(max(attempts - 1, 0), 12))
    return Next(Status.WAITING, now + max(retry.wait, min(doubled, RETRY_CAP)))


def broken_receipt(why: str, *, now: datetime) -> Receipt:
    """Return the receipt of an edit that an entry did not survive: alerts follow it.

    >>> from datetime import UTC
    >>> broken_receipt(":TIMEOUT: soon: write 15m", now=datetime(2026, 4, 1, 9, tzinfo=UTC)).key
    'broken:2026-04-01T09:00:00Z'
    """
    words = f"the edited entry cannot be read; its last valid version stays armed: {why}"
    reason = Reason(ReasonCode.ENTRY_BROKEN, words)
    return Receipt(f"{BROKEN}{key_time(now)}", Status.SKIPPED, reason, now, now)


def followed_by(key: str) -> int | None:
    """Return the number of the receipt that an alert's key names, if it is one.

    >>> followed_by("after:17"), followed_by("manual:7")
    (17, None)
    """
    kind, _, number = key.partition(":")
    return int(number) if kind == "after" and number.isdecimal() else None


def is_planned(key: str) -> bool:
    """Tell whether a key stands for a moment of the entry's own rule, not for a request.

    >>> is_planned("cron:2026-04-01T09:00:00Z"), is_planned("manual:7")
    (True, False)
    """
    return key.startswith(_PLANNED)
