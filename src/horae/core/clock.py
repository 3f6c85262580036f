"""The clock and the zone of this machine."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final
from zoneinfo import ZoneInfo

from horae.timing.zone import ZoneError, zone

if TYPE_CHECKING:
    import asyncio

_UTC: Final = frozenset({"Etc/UTC", "Etc/UCT", "Etc/Universal", "Etc/Zulu", "UCT", "Zulu"})
_LOCALTIME: Final = Path("/etc/localtime")


class SystemClock:
    def now(self) -> datetime:
        return datetime.now(UTC)

    def elapsed(self) -> timedelta:
        """Return the uptime of the machine, including its sleep."""
        import time

        clock = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
        return timedelta(seconds=time.clock_gettime(clock))

    async def wait(self, event: asyncio.Event, *, until: datetime) -> None:
        import asyncio

        left = (until - self.now()).total_seconds()
        # Not wait_for: before Python 3.12 it swallows a cancellation if the event is set.
        with suppress(TimeoutError):  # the wait is over
            async with asyncio.timeout(max(0.0, left)):
                await event.wait()


class SharedClock(SystemClock):
    """The clock of the database that several nodes share, advanced by the local uptime."""

    def __init__(self) -> None:
        self._epoch: datetime | None = None

    def set(self, now: datetime, *, asked: timedelta) -> None:
        self._epoch = now - (asked + self.elapsed()) / 2

    def now(self) -> datetime:
        assert self._epoch is not None, "the database is asked for its time first"
        return self._epoch + self.elapsed()


def machine_zone(environ: Mapping[str, str] | None = None) -> ZoneInfo:
    """Return the zone of the machine: TZ, else /etc/localtime, else UTC."""
    named = (os.environ if environ is None else environ).get("TZ", "").removeprefix(":")
    target = os.path.realpath(_LOCALTIME)
    linked = target.partition("zoneinfo/")[2].removeprefix("posix/")
    for name in (named, linked):
        try:
            return zone("UTC" if name in _UTC else name)
        except ZoneError:
            continue
    return zone("UTC")
