"""Looking at GitHub from time to time, through the program `gh`."""

from __future__ import annotations

import asyncio
import logging
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

from horae.core.entry import key_time
from horae.core.ports import LedgerBusyError, LedgerWriteError
from horae.core.source import unexpected
from horae.errors import HoraeError
from horae.sources.triggers.rules import GITHUB, Trigger, poll_command

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from horae.core.ports import Clock
    from horae.sources.triggers.ports import TriggerStore
    from horae.sources.triggers.service import Triggers

log = logging.getLogger(__name__)

AGAIN: Final = timedelta(seconds=1)  # after a ledger that could not be written
AT_ONCE: Final = 4  # looks that go on at the same time: one that hangs keeps no other waiting


class Polls:
    """Looks at what `gh` lists, each trigger at its own interval.

    *call* runs a program and returns what it prints; one that fails is a PollError. The first
    of some failures in a row is an event, as is another reason, and that it goes well again.
    """

    def __init__(
        self,
        triggers: Triggers,
        store: TriggerStore,
        *,
        clock: Clock,
        call: Callable[[Sequence[str]], Awaitable[str]],
    ) -> None:
        self._triggers = triggers
        self._store = store
        self._clock = clock
        self._call = call
        self._started_at = clock.now()
        self._at_once = asyncio.Semaphore(AT_ONCE)
        self._next_at: dict[str, datetime] = {}
        self._reasons: dict[str, str] = {}  # why the last look failed, by trigger
        self.errors: dict[str, int] = {}  # in a row, by trigger

    async def run(self, stop: asyncio.Event, *, longest: timedelta = timedelta(seconds=30)) -> None:
        """Look until *stop* is set."""
        while not stop.is_set():
            try:
                wake_at = await self.turn()
            except (LedgerBusyError, LedgerWriteError):
                wake_at = self._clock.now() + AGAIN
            latest = self._clock.now() + longest  # so that a new trigger is found
            await self._clock.wait(stop, until=min(wake_at or latest, latest))

    async def turn(self) -> datetime | None:
        """Look at all whose time has come; return when the next one's comes, if there is any."""
        found = [each for kind in sorted(GITHUB) for each in await self._store.of_kind(kind)]
        self._next_at = {each.id: self._next_at.get(each.id) or self._first(each) for each in found}
        now = self._clock.now()
        due = [each for each in found if self._next_at[each.id] <= now]
        await asyncio.gather(*map(self._look, due))
        return min(self._next_at.values(), default=None)

    def _first(self, trigger: Trigger) -> datetime:
        """Return when to look the first time: one interval after it came, or after the start.

        So an engine that is started again and again does not ask each time.
        """
        return max(self._started_at, trigger.created_at) + _every(trigger)

    async def _look(self, trigger: Trigger) -> None:
        async with self._at_once:
            try:
                text = await self._call(poll_command(trigger.definition.config))
                await self._triggers.polled(trigger, text)
            except Exception as error:  # whatever is wrong elsewhere, it is asked again
                self.errors[trigger.id] = self.errors.get(trigger.id, 0) + 1
                reason = _reason(error)  # the event poll_failed has it
                log.debug("polling for %s failed: %s", trigger.definition.name, reason)
            else:
                self.errors.pop(trigger.id, None)
                reason = ""
        wait = poll_wait(trigger.definition.poll_interval, self.errors.get(trigger.id, 0))
        self._next_at[trigger.id] = self._clock.now() + wait
        await self._tell(trigger, reason)

    async def _tell(self, trigger: Trigger, reason: str) -> None:
        """Write down what has become of the looks of a trigger, if that is another thing."""
        was = self._reasons.pop(trigger.id, "")
        if reason:
            self._reasons[trigger.id] = reason
        if reason == was:
            return
        facts = {"trigger": trigger.definition.name}
        if reason:
            facts |= {"reason": reason, "again": key_time(self._next_at[trigger.id])}
        await self._triggers.note("poll_failed" if reason else "poll_recovered", trigger, facts)


def poll_wait(interval: int, errors: int) -> timedelta:
    """Return how long to wait before the next look, after some errors in a row.

    >>> [poll_wait(10, errors).seconds for errors in (0, 1, 5, 20)]
    [10, 12, 20, 40]
    """
    return timedelta(seconds=interval + min(2 * errors, 30))


def _every(trigger: Trigger) -> timedelta:
    return timedelta(seconds=trigger.definition.poll_interval)


def _reason(error: Exception) -> str:
    """Return why a look failed, in words."""
    if isinstance(error, TimeoutError):
        return "gh did not answer in time"
    if isinstance(error, HoraeError):
        return str(error)
    if isinstance(error, OSError):
        return f"gh cannot be started: {error}"
    return unexpected(error)
