"""Polls of GitHub for what starts triggers, through the program `gh`."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
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

log = logging.getLogger(__name__)

AGAIN: Final = timedelta(seconds=1)  # after a ledger that could not be written
AT_ONCE: Final = 4  # polls at the same time: one that hangs keeps no other waiting


class PollError(HoraeError, code="poll_failed", exit_code=Exit.TEMPORARY):
    def __init__(self, program: str, exit_code: int, said: str) -> None:
        self.program, self.said = program, said
        lines = [line.strip() for line in said.splitlines() if line.strip()]
        told = "; ".join(lines[:2])[:300] or "no error output"
        super().__init__(f"{program} exited with {exit_code}: {told}")


@dataclass(kw_only=True, eq=False)
class GithubPoller:
    """Dispatches what `gh` lists, each trigger at its own interval.

    The first of several failures in a row is an event, as is another reason, and the first success
    after them.
    """

    triggers: Triggers
    clock: Clock
    call: Callable[[Sequence[str]], Awaitable[str]]  # runs a program; raises PollError
    errors: dict[str, int] = field(default_factory=dict)  # in a row, by trigger

    def __post_init__(self) -> None:
        self._started_at = self.clock.now()
        self._at_once = asyncio.Semaphore(AT_ONCE)
        self._next_at: dict[str, datetime] = {}
        self._reasons: dict[str, str] = {}  # why the last poll failed, by trigger

    async def run(self, stop: asyncio.Event, *, longest: timedelta = timedelta(seconds=30)) -> None:
        while not stop.is_set():
            try:
                wake_at = await self.turn()
            except (LedgerBusyError, LedgerWriteError) as error:
                log.debug("polling again in %s: %s", AGAIN, error)
                wake_at = self.clock.now() + AGAIN
            latest = self.clock.now() + longest  # so that a new trigger is found
            await self.clock.wait(stop, until=min(wake_at or latest, latest))

    async def turn(self) -> datetime | None:
        """Poll for all triggers that are due; return when the next one is, if there is any."""
        types = sorted(name for name, kind in KINDS.items() if issubclass(kind, GithubKind))
        found = [each for kind in types for each in await self.triggers.store.of_kind(kind)]
        # First an interval after the start: an engine that starts often does not poll each time.
        self._next_at = {
            each.id: self._next_at.get(each.id)
            or max(self._started_at, each.created_at) + poll_wait(each.definition.poll_interval)
            for each in found
        }
        now = self.clock.now()
        due = [each for each in found if self._next_at[each.id] <= now]
        await asyncio.gather(*map(self._poll, due))
        return min(self._next_at.values(), default=None)

    async def _poll(self, trigger: Trigger) -> None:
        kind, name, reason = trigger.definition.kind, trigger.definition.name, ""
        assert isinstance(kind, GithubKind), "no other kind is polled"
        async with self._at_once:
            try:
                await self.triggers.polled(trigger, await self.call(kind.poll_command()))
            except TimeoutError:
                reason = "gh did not answer in time"
            except HoraeError as error:
                reason = str(error)
            except OSError as error:
                reason = f"gh cannot be started: {error}"
            except Exception as error:  # whatever is wrong elsewhere, it is polled again
                reason = unexpected(error)
        if reason:  # the event poll_failed has it
            self.errors[trigger.id] = self.errors.get(trigger.id, 0) + 1
            log.debug("polling for %s failed: %s", name, reason)
        else:
            self.errors.pop(trigger.id, None)
        wait = poll_wait(trigger.definition.poll_interval, self.errors.get(trigger.id, 0))
        self._next_at[trigger.id] = self.clock.now() + wait
        was, self._reasons[trigger.id] = self._reasons.get(trigger.id, ""), reason
        if reason == was:
            return
        facts = {"trigger": name}
        if reason:
            facts |= {"reason": reason, "again": key_time(self._next_at[trigger.id])}
        await self.triggers.note("poll_failed" if reason else "poll_recovered", trigger, facts)


def poll_wait(interval: int, errors: int = 0) -> timedelta:
    """Return how long to wait before the next poll, after some errors in a row."""
    return timedelta(seconds=interval + min(2 * errors, 30))
