"""How long a keeper waits before its next tick."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

IDLE_FLOOR: Final = timedelta(minutes=1)
IDLE_CAP: Final = timedelta(minutes=30)

# So many failures in a row are bad luck; one more, and the member is stuck.
PATIENCE: Final = 3

# A restart loop must stay cheap: no first tick comes sooner than this.
GRACE: Final = timedelta(minutes=1)


def delay_after(base: timedelta, streak: int) -> timedelta:
    """Return the wait before the next tick, after *streak* idle ones.

    >>> breather = timedelta(seconds=45)
    >>> [delay_after(breather, n).seconds for n in range(8)]
    [45, 60, 120, 240, 480, 960, 1800, 1800]
    """
    if streak <= 0:
        return base
    # Clamp before doubling: one idle day would overflow timedelta. The cap is on the backoff,
    # so an hourly keeper stays hourly.
    doublings = min(streak - 1, 5)
    return max(base, min(IDLE_FLOOR * (1 << doublings), IDLE_CAP))


def delay_after_failures(base: timedelta, failures: int) -> timedelta:
    return delay_after(base, failures - PATIENCE)


def first_delay(interval: timedelta, elapsed: timedelta | None) -> timedelta:
    """Return the wait after a restart, *elapsed* after the last tick; None: never ticked."""
    if elapsed is None:
        return GRACE
    # A last tick in the future is a clock that was set back, and waits one interval at most.
    passed = min(max(elapsed, timedelta()), interval)
    return max(GRACE, interval - passed)
