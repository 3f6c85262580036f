"""Polls of GitHub for what starts triggers, through the program `gh`."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

from horae.core.entry import key_time
from horae.core.ports import Clock, LedgerBusyError, LedgerWriteError
from horae.core.source import unexpected
from horae.errors import Exit, HoraeError
from horae.sources.triggers.kinds import KINDS, GithubKind

if TYPE_CHECKING:
    from horae.sources.triggers.rules import Trigger
    from horae.sources.triggers.service import Triggers
    from horae.sources.triggers.store import TriggerStore

log = logging.getLogger(__name__)

AGAIN: Final = timedelta(seconds=1)  # after a ledger that could not be written
AT_ONCE: Final = 4  # polls at the same time: one that hangs keeps no other waiting


class PollError(HoraeError, code="poll_failed", exit_code=Exit.TEMPORARY):
    def __init__(self, program: str, exit_code: int, said: str) -> None:
        self.program = program
        self.said = said
        lines = [line.strip() for line in said.splitlines() if line.strip()]
        told = "; ".join(lines[:2])[:300] or "no error output"
        super().__init__(f"{program} exited with {exit_code}: {told}")


class GithubPoller:
    """Dispatches what `gh` lists, each trigger at its own interval.

    *call* runs a program and returns its output, or raises a PollError. The first of several
    failures in a row is an event, as is another reason, and the first success after them.
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
        self._reasons: dict[str, str] = {}  # why the last poll failed, by trigger
        self.errors: dict[str, int] = {}  # in a row, by trigger

    async def run(self, stop: asyncio.Event, *, longest: timedelta = timedelta(seconds=30)) -> None:
        while not stop.is_set():
            try:
                wake_at = await self.turn()
            except (LedgerBusyError, LedgerWriteError) as error:
                log.debug("polling again in %s: %s", AGAIN, error)
                wake_at = self._clock.now() + AGAIN
            latest = self._clock.now() + longest  # so that a new trigger is found
            await self._clock.wait(stop, until=min(wake_at or latest, latest))

    async def turn(self) -> datetime | None:
        """Poll for all triggers that are due; return when the next one is, if there is any."""
        types = sorted(kind.type for kind in KINDS.values() if kind.is_polled)
        found = [each for kind in types for each in await self._store.of_kind(kind)]
        self._next_at = {each.id: self._next_at.get(each.id) or self._first(each) for each in found}
        now = self._clock.now()
        due = [each for each in found if self._next_at[each.id] <= now]
        await asyncio.gather(*map(self._poll, due))
        return min(self._next_at.values(), default=None)

    def _first(self, trigger: Trigger) -> datetime:
        """Return when to poll first: an interval after the trigger was created, or after the start.

        So an engine that is started again and again does not poll each time.
        """
        interval = timedelta(seconds=trigger.definition.poll_interval)
        return max(self._started_at, trigger.created_at) + interval

    async def _poll(self, trigger: Trigger) -> None:
        async with self._at_once:
            try:
                kind = trigger.definition.kind
                assert isinstance(kind, GithubKind), "no other kind is polled"
                await self._triggers.polled(trigger, await self._call(kind.poll_command()))
            except Exception as error:  # whatever is wrong elsewhere, it is polled again
                self.errors[trigger.id] = self.errors.get(trigger.id, 0) + 1
                reason = _poll_reason(error)  # the event poll_failed has it
                log.debug("polling for %s failed: %s", trigger.definition.name, reason)
            else:
                self.errors.pop(trigger.id, None)
                reason = ""
        wait = poll_wait(trigger.definition.poll_interval, self.errors.get(trigger.id, 0))
        self._next_at[trigger.id] = self._clock.now() + wait
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
    """Return how long to wait before the next poll, after some errors in a row.

    >>> [poll_wait(10, errors).seconds for errors in (0, 1, 5, 20)]
    [10, 12, 20, 40]
    """
    return timedelta(seconds=interval + min(2 * errors, 30))


def _poll_reason(error: Exception) -> str:
    match error:
        case TimeoutError():
            return "gh did not answer in time"
        case HoraeError():
            return str(error)
        case OSError():
            return f"gh cannot be started: {error}"
    return unexpected(error)
