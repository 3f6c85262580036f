"""Usage limits of accounts: how long they hold, and what is said of them.

An account is a program and its login. While it is under a limit, its receipts are held; when the
limit ends one of them goes first, and the others when that one has ended well.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from horae.core.entry import key_time
from horae.core.receipt import Reason, ReasonCode
from horae.timing.duration import format_duration

SHORTEST: Final = timedelta(minutes=1)
LONGEST: Final = timedelta(days=8)  # of a limit that is met again and again, too
_DOUBLINGS: Final = 6  # without a time 1, 2, 4 … 60 minutes
_CAP: Final = timedelta(minutes=60)
_FORGOTTEN: Final = timedelta(days=1)  # after its end, if nothing has tried since: it was another


class AccountLimit(Struct, frozen=True):
    account: str
    reason_code: str
    since_at: datetime  # when it was met, and not ended since
    until_at: datetime  # when it is tried again
    tries: int = 0  # how often it was met again
    probe: int | None = None  # the receipt that goes first, while that waits or runs

    def reason(self) -> Reason:
        until = f"until {key_time(self.until_at)}"
        if self.reason_code == ReasonCode.OVERLOADED:
            words = f"{until}: the provider of {self.account} is overloaded"
            return Reason(ReasonCode.OVERLOADED, words)
        return Reason(ReasonCode.USAGE_LIMIT, f"{until}: usage limit of {self.account}")

    def is_too_long(self, now: datetime) -> bool:
        return now - self.since_at >= LONGEST

    def failure(self, now: datetime) -> Reason:
        held = timedelta(seconds=int((now - self.since_at).total_seconds()))
        words = f"usage limit of {self.account} since {key_time(self.since_at)}"
        return Reason(ReasonCode.USAGE_LIMIT, f"{words} ({format_duration(held)})")


def met(
    known: AccountLimit | None,
    account: str,
    *,
    code: str,
    until: datetime | None,
    receipt: int,
    now: datetime,
) -> AccountLimit:
    """Return the limit of an account that the run of a receipt has just met.

    *until* is what the program said; *known* is what was known of the account.
    """
    if known is not None and now - known.until_at > _FORGOTTEN:
        known = None
    if known is None or known.probe == receipt:
        tries = 0 if known is None else known.tries + 1
        wait = min(_CAP, SHORTEST * (1 << min(tries, _DOUBLINGS)))
    else:  # its run began before the limit was met
        tries, wait = known.tries, max(SHORTEST, known.until_at - now)
    until_at = now + wait if until is None else min(max(until, now + SHORTEST), now + LONGEST)
    if known is None:
        return AccountLimit(account, code, now, until_at)
    return replace(known, reason_code=code, until_at=until_at, tries=tries, probe=None)
