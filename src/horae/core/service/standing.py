"""How things stand: what runs, waits and comes, and what of the last day needs a look."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import timedelta
from itertools import islice
from typing import TYPE_CHECKING, Final

from horae.core.decide import GRACE, Status
from horae.core.entry import Entry, key_time
from horae.core.gate import no_machine
from horae.core.ports import PATIENCE, Trait
from horae.core.reason import NO_REASON
from horae.core.receipt import BAD, ENDS, OPEN, is_planned
from horae.core.service.base import BATCH, GOING, Base
from horae.core.service.shapes import AgentLine, Standing
from horae.sources.crew.tick import place_of, read_memory

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence
    from datetime import datetime

    from horae.core.ports import Filed, Listed
    from horae.core.service.shapes import EngineFacts, EntryLine, Line

DAY: Final = timedelta(hours=24)  # how far back a status looks
STUCK: Final = 3  # bad ends in a row that are worth a word


class Standings(Base):
    """Tells how things stand."""

    async def status(self, engine: EngineFacts, *, limit: int = 20) -> Standing:
        """Return how things stand, at most *limit* of each kind.

        Of what was late, missed or ended badly in the last day it is the newest of each entry.
        """
        now, ledger = self._clock.now(), self._ledger
        counts = await ledger.count_entries(due_before=now - GRACE)
        pending = await self._every(statuses=OPEN)
        recent = now - DAY
        late = await ledger.late(since=recent, by=GRACE, limit=BATCH)
        failed = await self._some(since=recent, statuses=BAD, limit=BATCH)
        missed = await self._some(since=recent, statuses={Status.MISSED}, limit=BATCH)

        async def lines(filed: Iterable[Filed]) -> tuple[Line, ...]:
            return await self._lines(islice(filed, limit))

        async def newest(filed: Iterable[Filed]) -> tuple[Line, ...]:
            first, times = _newest_of_each(filed)
            return tuple(
                replace(each, times=times[each.filed.entry]) for each in await lines(first)
            )

        async def shown(trait: Trait) -> tuple[EntryLine, ...]:
            return tuple(map(self._entry_line, await ledger.entries_that_are(trait, limit=limit)))

        in_line = sorted(pending, key=lambda each: (each.receipt.start_at, each.number))
        crew = await ledger.entries_that_are(Trait.AGENT, limit=limit)
        agents = [await self._agent_line(each, in_line) for each in crew]
        coming = await ledger.coming(limit=limit)
        problems = (
            *engine.problems,
            *map(broken_words, await ledger.entries_that_are(Trait.BROKEN, limit=BATCH)),
            *_overdue(counts.overdue, engine, now),
            *await self._homeless(in_line),
            *_problems(await self._troubled(), now),
            *(each for agent in agents for each in _troubles(agent)),
            *await self._cannot_run(coming, {each.entry.number for each in agents if each.held}),
        )
        return Standing(
            now,
            self._zone,
            engine,
            counts.armed,
            _counts(pending),
            agents=tuple(agents),
            running=await lines(each for each in in_line if each.status in GOING),
            waiting=await lines(each for each in in_line if each.status not in GOING),
            coming=tuple(map(self._entry_line, coming)),
            late=await newest(each for each in (*pending, *late) if _is_late(each)),
            missed=await newest(missed),
            failed=await newest(failed),
            paused=await shown(Trait.PAUSED),
            unarmed=await shown(Trait.UNARMED),
            problems=tuple(dict.fromkeys(problems)),  # an engine knows the broken ones, too
        )

    async def _agent_line(self, found: Listed, pending: Sequence[Filed]) -> AgentLine:
        memory = read_memory(found.memory)
        own = [each for each in pending if each.entry == found.number]
        page = await self._ledger.receipts(entry=found.number, statuses=ENDS, limit=1)
        last = page.receipts[0] if page.receipts else None
        return AgentLine(
            self._entry_line(found),
            any(each.status in GOING for each in own),
            memory.last_run_at,
            place_of(memory),
            found.streak,
            None if last is None else last.status,
            NO_REASON if last is None else last.receipt.reason,
            next((each.receipt.reason for each in own if each.status is Status.HELD), ""),
            memory.troubles,
        )

    async def _homeless(self, waiting: Iterable[Filed]) -> list[str]:
        """Return what waits for a machine that is not up, the first of each entry."""
        machines = None if self._machines is None else await self._machines()
        if machines is None:
            return []
        first: dict[int, str] = {}
        for each in waiting:
            requires = each.policy.requires
            if each.status is Status.WAITING and not any(it.suits(requires) for it in machines):
                about = f"{each.title} ({each.origin}) waits: {no_machine(requires)}"
                first.setdefault(each.entry, about)
        return [*first.values()]

    async def _cannot_run(self, coming: Iterable[Listed], said: Collection[int]) -> list[str]:
        """Return what comes next and could not start, but for what is said already."""
        listed = {each.number: each for each in coming if each.number not in said}
        why = {} if self._unready is None else await self._unready(listed.values())
        return [
            f"{listed[number].mark.title} ({listed[number].item.origin}) cannot run: {each}"
            for number, each in why.items()
        ]

    async def _troubled(self) -> list[Listed]:
        """Return the entries that somebody should look at, the longest known first."""
        found: dict[int, Listed] = {}
        for trait in (Trait.FAILING, Trait.MISSING):
            some = await self._ledger.entries_that_are(trait, limit=BATCH)
            found.update((each.number, each) for each in some)
        return [found[number] for number in sorted(found)]

    async def _every(self, *, statuses: Collection[Status]) -> list[Filed]:
        found: list[Filed] = []
        cursor = None
        while True:
            page = await self._ledger.receipts(statuses=statuses, limit=BATCH, cursor=cursor)
            found += page.receipts
            cursor = page.cursor
            if cursor is None:
                return found

    async def _some(
        self, *, since: datetime, statuses: Collection[Status], limit: int
    ) -> tuple[Filed, ...]:
        page = await self._ledger.receipts(since=since, statuses=statuses, limit=limit)
        return page.receipts


def broken_words(found: Listed) -> str:
    """Return what is said of an entry whose text cannot be read."""
    name = f"{found.mark.title} ({found.item.origin})"
    if found.broken_at is not None:
        since = key_time(found.broken_at)
        kept = "the last valid version stays armed"
        return f"{name} has been broken since {since}; {kept}: {found.broken}"
    if isinstance(found.item, Entry):
        return (
            f"{name} is armed, but a part of its text cannot be read and is ignored: {found.broken}"
        )
    return f"{name} is not armed: {found.broken}"


def _troubles(agent: AgentLine) -> Iterator[str]:
    """Yield what of an agent's work a person should look at, in words."""
    said = {
        "pull": "the plan root is not up to date with its origin",
        "tree": "the agent's clone is not up to date with the plan root",
        "delivery": "the agent's work is not delivered and stays on its branch",
    }
    for name, why in agent.troubles.items():
        yield f"{agent.name} ({agent.entry.origin}): {said.get(name, name)} ({why})"
    if agent.held:
        yield f"{agent.name} ({agent.entry.origin}) cannot tick: {agent.held}"


def _counts(filed: Iterable[Filed]) -> dict[Status, int]:
    """Return how many receipts stand where, in the order of a receipt's life."""
    counted = Counter(each.status for each in filed)
    return {status: counted[status] for status in Status if status in OPEN}


def _newest_of_each(filed: Iterable[Filed]) -> tuple[list[Filed], Counter[int]]:
    """Return the newest receipt of each entry, and how many moments there are of it in all."""
    newest: dict[int, Filed] = {}
    times: Counter[int] = Counter()
    for each in sorted(filed, key=lambda each: each.number, reverse=True):
        newest.setdefault(each.entry, each)
        times[each.entry] += each.receipt.count
    return list(newest.values()), times


def _is_late(filed: Filed) -> bool:
    """Tell whether a moment of a plan was found later than could be called on time."""
    return is_planned(filed.receipt.key) and filed.lateness > GRACE


def _overdue(count: int, engine: EngineFacts, now: datetime) -> Iterator[str]:
    """Yield that moments have come and nobody decides about them, if there are any."""
    # In its first minute an engine still decides about what came while none ran.
    is_starting = engine.is_running and engine.since > key_time(now - GRACE)
    if count and not is_starting:
        remedy = (
            "the engine is falling behind"
            if engine.is_running
            else "no engine is running; start one with `horae up`"
        )
        what = "scheduled time has" if count == 1 else "scheduled times have"
        yield f"{count} {what} passed without a decision: {remedy}"


def _problems(troubled: Iterable[Listed], now: datetime) -> Iterator[str]:
    """Yield what somebody should look at, in words."""
    for each in troubled:
        name = f"{each.mark.title} ({each.item.origin})"
        if each.failures >= STUCK:
            yield f"{name} failed {each.failures} times in a row; see `horae history`"
        # The next scan tells whether it is gone; only one that does not come is a problem.
        if each.missing_at is not None and now - each.missing_at > 5 * PATIENCE:
            yield f"{name} has been missing from its plan since {key_time(each.missing_at)}"
