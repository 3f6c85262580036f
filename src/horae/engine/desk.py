"""The desk: where people ask what is, what was and why, and say what should be.

Everything that a face of the house shows or changes goes through here, so a command, the
socket and a page say the same. A question is answered with plain frozen data whose `data`
is its JSON; a request that cannot be honoured raises an error that says what would be right.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import TYPE_CHECKING, Final, Protocol

from horae.engine.ports import Step, Trait
from horae.engine.why import (
    answer_of,
    answers,
    late,
    length_text,
    nearest,
    rest_words,
    run_data,
    stamp,
)
from horae.errors import Exit, HoraeError
from horae.rules.entry import CadenceRule, CronRule, Entry, RepeaterRule, key_time
from horae.rules.gate import no_machine
from horae.rules.keeper import place_of, read_memory
from horae.rules.lifecycle import Rhythm
from horae.rules.misfire import GRACE, Decision, Receipt, Status
from horae.rules.project import Moment, decided, next_moment, project
from horae.rules.receipt import BAD, ENDS, OPEN, is_planned
from horae.rules.words import moment_text, words
from horae.timing.backoff import PATIENCE
from horae.timing.cron_count import count_any
from horae.timing.repeater import Kind
from horae.timing.zone import zone

if TYPE_CHECKING:
    from collections.abc import (
        Awaitable,
        Callable,
        Collection,
        Iterable,
        Iterator,
        Mapping,
        Sequence,
    )

    from horae.engine.ports import Event, Filed, Ledger, Listed, Pause, Pruned, Run
    from horae.engine.why import Answer, Ask, Window
    from horae.rules.entry import Origin
    from horae.rules.gate import Machine
    from horae.rules.lifecycle import PositionData

MOST: Final = 10_000  # moments of one backfill
DAY: Final = timedelta(hours=24)  # how far back a status looks
STUCK: Final = 3  # bad ends in a row that are worth a word
_BATCH: Final = 1000  # receipts in one commit, or on one page
_NEAR: Final = 20_000  # so many names are looked through for one that was meant
_TINY: Final = timedelta(microseconds=1)
_GOING: Final = frozenset({Status.STARTING, Status.RUNNING})
_TICK: Final = "tick:"
_TRIES: Final = 5  # at an entry that somebody else decides about at the same moment


class Dial(Protocol):
    """Whatever shows the time."""

    def now(self) -> datetime:
        """Return this moment, in UTC."""
        ...


class EntryNotFoundError(HoraeError):
    """A name that no entry goes by."""

    code = "entry_not_found"
    exit_code = Exit.NOT_FOUND

    def __init__(self, word: str, *, near: Sequence[str] = ()) -> None:
        self.word = word
        self.near = list(near)
        meant = " or ".join(repr(each) for each in near)
        hint = f"did you mean {meant}?" if near else "horae status lists what there is"
        super().__init__(
            f"no entry is called {word!r}; {hint} "
            "(an entry goes by its number, its :ID:, its title, or file:line)"
        )


class AmbiguousEntryError(HoraeError):
    """A name that several entries go by."""

    code = "entry_ambiguous"
    exit_code = Exit.USAGE

    def __init__(self, word: str, found: Sequence[Listed]) -> None:
        self.word = word
        self.candidates = [_candidate(each) for each in found]
        shown = [f"  {each.number}  {each.mark.title}  {each.item.origin}" for each in found[:20]]
        more = [f"  and {len(found) - 20} more"] if len(found) > 20 else []
        super().__init__(
            "\n".join(
                [
                    f"{len(found)} entries are called {word!r}; name one by its number:",
                    *shown,
                    *more,
                ]
            )
        )


class EntryStateError(HoraeError):
    """An entry that is gone, not armed or at rest, and so cannot do what was asked."""

    code = "entry_state"
    exit_code = Exit.CONFLICT

    def __init__(self, found: Listed, reason: str, *, remedy: str) -> None:
        self.entry = found.number
        self.title = found.mark.title
        self.reason = reason
        super().__init__(f"{found.mark.title} (entry {found.number}): {reason}; {remedy}")


class ReceiptNotFoundError(HoraeError):
    """A number that no receipt has."""

    code = "receipt_not_found"
    exit_code = Exit.NOT_FOUND

    def __init__(self, number: int) -> None:
        self.number = number
        super().__init__(f"there is no receipt {number}; horae history lists them")


class RunNotFoundError(HoraeError):
    """A run that is asked for and is not there, or an entry that has none."""

    code = "run_not_found"
    exit_code = Exit.NOT_FOUND

    def __init__(self, what: int | str) -> None:
        self.what = what
        who = f"there is no run {what}" if isinstance(what, int) else f"{what} has no run"
        super().__init__(f"{who}; horae history shows what ran")


class RunStateError(HoraeError):
    """A run that is over, or one of several, and so cannot do what was asked."""

    code = "run_state"
    exit_code = Exit.CONFLICT

    def __init__(self, title: str, reason: str, *, runs: Sequence[int] = ()) -> None:
        self.title = title
        self.reason = reason
        self.runs = list(runs)
        super().__init__(f"{title}: {reason}")


class RequestError(HoraeError):
    """A request that makes no sense."""

    code = "request"
    exit_code = Exit.USAGE

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(reason)


@dataclass(frozen=True, slots=True)
class EngineFacts:
    """Whether an engine keeps this ledger, where, since when, and what troubles it."""

    is_running: bool
    directory: str
    pid: int | None = None
    since: str = ""
    problems: tuple[str, ...] = ()

    def data(self) -> dict[str, object]:
        """Return it as plain data."""
        return {
            "running": self.is_running,
            "data": self.directory,
            "pid": self.pid,
            "since": self.since or None,
        }


@dataclass(frozen=True, slots=True)
class EntryLine:
    """An entry as people are told of it."""

    number: int
    source: str
    title: str
    address: str
    origin: Origin
    zone: str
    is_armed: bool
    rule: str  # in words; empty if it is not armed
    reason: str  # why it is not armed; empty if it is
    first_seen_at: datetime
    gone_at: datetime | None
    pause: Pause | None
    next_at: datetime | None
    failures: int

    def data(self) -> dict[str, object]:
        """Return it as plain data."""
        pause = self.pause and {
            "at": stamp(self.pause.at, self.zone),
            "until": stamp(self.pause.until, self.zone),
            "note": self.pause.note,
        }
        return {
            "entry": self.number,
            "source": self.source,
            "title": self.title,
            "address": self.address,
            "file": self.origin.file,
            "line": self.origin.line,
            "zone": self.zone,
            "armed": self.is_armed,
            "rule": self.rule or None,
            "reason": self.reason or None,
            "first_seen_at": stamp(self.first_seen_at, self.zone),
            "gone_at": stamp(self.gone_at, self.zone),
            "pause": pause,
            "next_at": stamp(self.next_at, self.zone),
            "failures": self.failures,
        }


@dataclass(frozen=True, slots=True)
class Line:
    """A receipt as people are told of it, with the zone of its entry.

    In a status it may be the newest of several of one entry: `times` is of how many moments.
    """

    filed: Filed
    title: str
    zone: str
    times: int = 1

    @property
    def late(self) -> timedelta:
        """How long after its moment it was decided; what somebody asked for is never late."""
        return late(self.filed)

    def data(self) -> dict[str, object]:
        """Return it as plain data."""
        filed, receipt, place = self.filed, self.filed.receipt, self.zone
        return {
            "receipt": filed.number,
            "entry": filed.entry,
            "title": self.title,
            "key": receipt.key,
            "status": receipt.status.value,
            "reason": receipt.reason,
            "planned_at": stamp(receipt.planned_at, place),
            "through_at": stamp(receipt.through_at, place),
            "count": receipt.count,
            "times": self.times,
            "start_at": stamp(receipt.start_at, place),
            "decided_at": stamp(filed.decided_at, place),
            "late_seconds": self.late.total_seconds(),
            "ended_at": stamp(filed.ended_at, place),
            "attempts": filed.attempts,
            "zone": place,
            "file": filed.origin.file,
            "line": filed.origin.line,
            "commit": filed.commit,
            "parent": filed.parent,
        }


@dataclass(frozen=True, slots=True)
class AgentLine:
    """An agent that ticks, as people are told of it.

    `place` is where it is in its day, as of its last tick; `troubles` are what of its work or
    its tree a person should look at.
    """

    entry: EntryLine
    is_running: bool
    last_run_at: datetime | None
    place: PositionData | None
    streak: int
    outcome: Status | None  # of its last tick that ended
    reason: str  # why that ended so
    held: str  # why its tick cannot start, if it cannot
    troubles: Mapping[str, str]

    @property
    def name(self) -> str:
        """What it is called."""
        return self.entry.title

    @property
    def is_stuck(self) -> bool:
        """Whether it failed so often in a row that it is tried less often."""
        return self.entry.failures > PATIENCE

    def data(self) -> dict[str, object]:
        """Return it as plain data."""
        entry, zone_name = self.entry, self.entry.zone
        return {
            "agent": self.name,
            "entry": entry.number,
            "file": entry.origin.file,
            "line": entry.origin.line,
            "zone": zone_name,
            "running": self.is_running,
            "last_run": stamp(self.last_run_at, zone_name),
            "next_run": stamp(entry.next_at, zone_name),
            "rule": entry.rule or None,
            "lifecycle": None if self.place is None else dict(self.place),
            "streak": self.streak,
            "failures": entry.failures,
            "stuck": self.is_stuck,
            "last_outcome": None if self.outcome is None else self.outcome.value,
            "last_reason": self.reason or None,
            "held": self.held or None,
            "paused": entry.pause is not None,
            "troubles": dict(self.troubles),
        }


@dataclass(frozen=True, slots=True)
class Standing:
    """How things stand: what runs, waits and comes, and what of the last day needs a look."""

    at: datetime
    zone: str
    engine: EngineFacts
    entries: int  # that may fire
    counts: Mapping[Status, int]  # of all receipts that are not final
    agents: tuple[AgentLine, ...] = ()
    running: tuple[Line, ...] = ()
    waiting: tuple[Line, ...] = ()
    coming: tuple[EntryLine, ...] = ()
    late: tuple[Line, ...] = ()
    missed: tuple[Line, ...] = ()
    failed: tuple[Line, ...] = ()
    paused: tuple[EntryLine, ...] = ()
    unarmed: tuple[EntryLine, ...] = ()
    problems: tuple[str, ...] = ()

    def data(self) -> dict[str, object]:
        """Return it as plain data."""
        receipts = ("running", "waiting", "late", "missed", "failed")
        entries = {"next": self.coming, "paused": self.paused, "unarmed": self.unarmed}
        return {
            "at": stamp(self.at, self.zone),
            "zone": self.zone,
            "engine": self.engine.data(),
            "entries": self.entries,
            "counts": {status.value: count for status, count in self.counts.items()},
            "agents": [each.data() for each in self.agents],
            **{name: [each.data() for each in getattr(self, name)] for name in receipts},
            **{name: [each.data() for each in lines] for name, lines in entries.items()},
            "problems": list(self.problems),
        }


@dataclass(frozen=True, slots=True)
class History:
    """Some receipts, newest first; `cursor` asks for those before them."""

    lines: tuple[Line, ...]
    cursor: int | None = None

    def data(self) -> dict[str, object]:
        """Return it as plain data."""
        return {"receipts": [each.data() for each in self.lines], "cursor": self.cursor}


@dataclass(frozen=True, slots=True)
class Account:
    """A receipt with every attempt of it, in order."""

    line: Line
    runs: tuple[Run, ...]

    def data(self) -> dict[str, object]:
        """Return it as plain data."""
        runs = [run_data(each, self.line.zone) for each in self.runs]
        return {**self.line.data(), "runs": runs}


@dataclass(frozen=True, slots=True)
class RunLine:
    """One attempt, and the receipt that it belongs to."""

    run: Run
    line: Line

    def data(self) -> dict[str, object]:
        """Return it as plain data."""
        line = self.line.data()
        about = {name: line[name] for name in ("receipt", "entry", "title", "key", "status")}
        return {**run_data(self.run, self.line.zone), **about, "zone": self.line.zone}


@dataclass(frozen=True, slots=True)
class Cancelled:
    """A run that somebody ended; it may have been asked to end already."""

    run: RunLine
    changed: bool

    def data(self) -> dict[str, object]:
        """Return it as plain data."""
        return {**self.run.data(), "changed": self.changed}


@dataclass(frozen=True, slots=True)
class Roll:
    """Some entries, the longest known first; `cursor` asks for those after them."""

    entries: tuple[EntryLine, ...]
    cursor: int | None = None

    def data(self) -> dict[str, object]:
        """Return it as plain data."""
        return {"entries": [each.data() for each in self.entries], "cursor": self.cursor}


@dataclass(frozen=True, slots=True)
class Happened:
    """What happened after an event, in order; `after` asks for what comes next."""

    events: tuple[Event, ...]
    after: int
    zone: str

    def data(self) -> dict[str, object]:
        """Return it as plain data."""
        told = [
            {
                "event": each.number,
                "at": stamp(each.at, self.zone),
                "kind": each.kind,
                "entry": each.entry,
                "receipt": each.receipt,
                "facts": dict(each.facts),
            }
            for each in self.events
        ]
        return {"events": told, "after": self.after}


@dataclass(frozen=True, slots=True)
class Why:
    """What was decided about some moments of an entry, or why nothing was.

    `before` and `after` are the moments of its rule nearest to the window that was asked for.
    """

    at: datetime
    entry: EntryLine
    answers: tuple[Answer, ...]
    window: Window | None = None
    before: datetime | None = None
    after: datetime | None = None
    is_cut: bool = False  # there are more than were asked for

    def data(self) -> dict[str, object]:
        """Return it as plain data."""
        place = self.entry.zone
        return {
            "at": stamp(self.at, place),
            "entry": self.entry.data(),
            "from": stamp(self.window.start, place) if self.window else None,
            "to": stamp(self.window.end, place) if self.window else None,
            "answers": [each.data(place) for each in self.answers],
            "before": stamp(self.before, place),
            "after": stamp(self.after, place),
            "more": self.is_cut,
        }


@dataclass(frozen=True, slots=True)
class Rest:
    """What became of a request to let an entry rest or go on; it may have been so already."""

    entry: EntryLine
    changed: bool

    def data(self) -> dict[str, object]:
        """Return it as plain data."""
        return {**self.entry.data(), "changed": self.changed}


@dataclass(frozen=True, slots=True)
class Backfill:
    """The moments of a window that are run after all; with `dry_run` that would be."""

    entry: EntryLine
    name: str
    start: datetime
    end: datetime
    moments: tuple[datetime, ...]
    lines: tuple[Line, ...] = ()
    dry_run: bool = False
    follows_ends: bool = False  # so that its past has no moments of its own

    def data(self) -> dict[str, object]:
        """Return it as plain data."""
        place = self.entry.zone
        return {
            "id": self.name,
            "entry": self.entry.number,
            "title": self.entry.title,
            "zone": place,
            "from": stamp(self.start, place),
            "to": stamp(self.end, place),
            "dry_run": self.dry_run,
            "count": len(self.moments),
            "moments": [stamp(each, place) for each in self.moments],
            "receipts": [each.filed.number for each in self.lines],
        }


def no_progress(done: int, total: int) -> None:
    """Tell nobody."""


class Desk:
    """Answers questions about one ledger, and files what people ask for."""

    def __init__(
        self,
        *,
        ledger: Ledger,
        clock: Dial,
        ids: Callable[[], str],
        term: int = 1,
        poke: Callable[[], None] = lambda: None,
        zone_name: str = "UTC",
        machines: Callable[[], Awaitable[Sequence[Machine]]] | None = None,
    ) -> None:
        self._machines = machines  # which of them are up, if several share the ledger
        self._ledger = ledger
        self._clock = clock
        self._ids = ids
        self._term = term
        self._poke = poke
        self._zone = zone_name  # of what has none of its own

    async def named(self, word: str) -> Listed:
        """Return the one entry that a person means by a word; those that are gone come last."""
        found = await self._ledger.find(word)
        entries = found or await self._ledger.entries()
        if not found:
            folded = word.casefold()
            found = [each for each in entries if each.mark.title.casefold() == folded]
        there = [each for each in found if each.gone_at is None] or found
        if len(there) == 1:
            return there[0]
        if there:
            raise AmbiguousEntryError(word, there)
        raise EntryNotFoundError(word, near=_near(word, entries))

    # Questions

    async def entry(self, word: str) -> EntryLine:
        """Return the one entry that a person means, as people are told of it."""
        return self._entry_line(await self.named(word))

    async def entries(
        self, *, limit: int = 100, cursor: int | None = None, with_gone: bool = False
    ) -> Roll:
        """Return the entries after a number, the longest known first."""
        found = [
            each
            for each in await self._ledger.entries()
            if each.number > (cursor or 0) and (with_gone or each.gone_at is None)
        ]
        page = found[:limit]
        more = page[-1].number if len(found) > limit else None
        return Roll(tuple(map(self._entry_line, page)), more)

    async def status(self, engine: EngineFacts, *, limit: int = 20) -> Standing:
        """Return how things stand, at most *limit* of each kind.

        Of what was late, missed or ended badly in the last day it is the newest of each entry.
        """
        now, ledger = self._clock.now(), self._ledger
        counts = await ledger.count_entries(due_before=now - GRACE)
        pending = await self._every(statuses=OPEN)
        recent = now - DAY
        late = await ledger.late(since=recent, by=GRACE, limit=_BATCH)
        failed = await self._some(since=recent, statuses=BAD, limit=_BATCH)
        missed = await self._some(since=recent, statuses={Status.MISSED}, limit=_BATCH)

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
        return Standing(
            now,
            self._zone,
            engine,
            counts.armed,
            _counts(pending),
            agents=tuple(agents),
            running=await lines(each for each in in_line if each.status in _GOING),
            waiting=await lines(each for each in in_line if each.status not in _GOING),
            coming=tuple(map(self._entry_line, await ledger.coming(limit=limit))),
            late=await newest(each for each in (*pending, *late) if _is_late(each)),
            missed=await newest(missed),
            failed=await newest(failed),
            paused=await shown(Trait.PAUSED),
            unarmed=await shown(Trait.UNARMED),
            problems=(
                *engine.problems,
                *_overdue(counts.overdue, engine),
                *await self._homeless(in_line),
                *_problems(await self._troubled()),
                *(each for agent in agents for each in _troubles(agent)),
            ),
        )

    async def history(
        self,
        word: str | None = None,
        *,
        since: datetime | None = None,
        until: datetime | None = None,
        statuses: Collection[Status] = (),
        limit: int = 50,
        cursor: int | None = None,
    ) -> History:
        """Return receipts, newest first, of one entry or of all, planned in a window."""
        if since is not None and until is not None and until < since:
            raise RequestError(f"there is no time from {key_time(since)} to {key_time(until)}")
        found = None if word is None else await self.named(word)
        page = await self._ledger.receipts(
            entry=None if found is None else found.number,
            since=since,
            until=until,
            statuses=statuses,
            cursor=cursor,
            limit=limit,
        )
        return History(await self._lines(page.receipts), page.cursor)

    async def receipt(self, number: int) -> Account:
        """Return a receipt with its runs."""
        filed = await self._ledger.receipt(number)
        if filed is None:
            raise ReceiptNotFoundError(number)
        [line] = await self._lines([filed])
        return Account(line, tuple(await self._ledger.runs_of(number)))

    async def run(self, number: int) -> RunLine:
        """Return a run with its receipt."""
        run = await self._ledger.run(number)
        if run is None:
            raise RunNotFoundError(number)
        return RunLine(run, (await self.receipt(run.receipt)).line)

    async def last_run(self, word: str) -> RunLine:
        """Return the run of an entry that was started last."""
        found = await self.named(word)
        page = await self._ledger.receipts(
            entry=found.number, statuses=ENDS | _GOING | {Status.WAITING}, limit=20
        )
        runs = [run for each in page.receipts for run in await self._ledger.runs_of(each.number)]
        if not runs:
            raise RunNotFoundError(found.mark.title)
        return await self.run(max(run.number for run in runs))

    async def going(self, word: str) -> RunLine:
        """Return the one run of an entry that goes on."""
        found = await self.named(word)
        page = await self._ledger.receipts(entry=found.number, statuses=_GOING)
        going = [(await self._ledger.runs_of(each.number))[-1].number for each in page.receipts]
        if len(going) == 1:
            return await self.run(going[0])
        title = found.mark.title
        if not going:
            raise RunStateError(title, "nothing of it runs; horae status shows what does")
        listed = ", ".join(map(str, sorted(going)))
        raise RunStateError(title, f"several runs of it go on; name one: {listed}", runs=going)

    async def events(self, *, after: int = 0, limit: int = 100) -> Happened:
        """Return what happened after an event."""
        found = tuple(await self._ledger.events_after(after, limit=limit))
        return Happened(found, found[-1].number if found else after, self._zone)

    async def why(self, ask: Ask, *, limit: int = 20) -> Why:
        """Return what was decided about the moments that are asked for, or why nothing was.

        Without a moment it is the last one and the next.
        """
        now = self._clock.now()
        found = await self.named(ask.word)
        about = self._entry_line(found)
        try:
            window = ask.window(about.zone)
        except OverflowError:
            raise _beyond() from None
        if window is None:
            last = [await self._told(each) for each in await self._last(found)]
            return Why(now, about, (*last, *answers(found, [], _coming(found, now=now), now=now)))
        _check_calendar(window.start, window.end)
        start, end = window.start - _TINY, window.end - _TINY
        page = await self._ledger.receipts(
            entry=found.number, since=window.start, until=end, limit=limit
        )
        told = [await self._told(each) for each in page.receipts]
        item = found.item
        if not isinstance(item, Entry):
            said = answers(found, told, [], now=now, window=window)
            return Why(now, about, said, window=window, is_cut=page.cursor is not None)
        moments = list(islice(project(item, start, end), limit + 1))
        said = answers(found, told, moments[:limit], now=now, window=window)
        before, after = nearest(item, window)
        is_cut = page.cursor is not None or len(moments) > limit
        return Why(now, about, said, window=window, before=before, after=after, is_cut=is_cut)

    # Requests

    async def pause(
        self, word: str, *, note: str = "", until: datetime | timedelta | None = None
    ) -> Rest:
        """Let an entry rest, for ever, until a moment, or for a while."""
        now = self._clock.now()
        found = await self.named(word)
        end = now + until if isinstance(until, timedelta) else until
        if end is not None and end <= now:
            raise RequestError(f"{moment_text(end, self._zone_of(found))} is over already")
        done = await self._ledger.pause(
            found.number, now=now, term=self._term, note=note, until=end
        )
        if done:
            self._poke()
            return Rest(await self._again(found), changed=True)
        _refuse_gone(found)
        if note or end is not None:
            reason = f"it rests already{rest_words(found)}"
            raise EntryStateError(found, reason, remedy="resume it first to pause it otherwise")
        return Rest(await self._again(found), changed=False)

    async def resume(self, word: str) -> Rest:
        """Let a resting entry go on from now."""
        found = await self.named(word)
        done = await self._ledger.resume(found.number, now=self._clock.now(), term=self._term)
        if done:
            self._poke()
        else:
            _refuse_gone(found)
        return Rest(await self._again(found), changed=done)

    async def run_now(
        self,
        word: str,
        *,
        note: str = "",
        parent: int | None = None,
        parent_run: int | None = None,
        idempotency_key: str | None = None,
    ) -> Line:
        """Ask for a run now, beside the plan; the same key gives the same receipt back.

        What is asked for inside a run rides in that run's slot as long as it goes on: *parent*
        is its receipt, or *parent_run* its number.
        """
        now = self._clock.now()
        found = await self.named(word)
        if parent_run is not None:
            inside = (await self.run(parent_run)).run
            parent = inside.receipt if inside.ended_at is None else None
        if idempotency_key is None:
            key = f"manual:{self._ids()}"
        else:
            key = f"idem:{_checked(idempotency_key, 'an Idempotency-Key')}"
        reason = f"somebody asked: {note}" if note else "somebody asked"
        asked = Receipt(key, Status.WAITING, reason, now, now)
        [line] = await self._file(found, [asked], now=now, parent=parent)
        return line

    async def tick(self, word: str, *, note: str = "") -> Line:
        """Let an agent tick now instead of at its next moment, which follows from this one's end.

        A tick that waits already is the one that was asked for; one that is held may start.
        """
        agents = await self._ledger.find(f"agent:{word}")  # before a workflow of that title
        found = agents[0] if agents else await self.named(word)
        for _ in range(_TRIES):
            now = self._clock.now()
            entry = _agent_of(found)
            going = await self._pending_tick(found)
            if going is not None:
                self._poke()
                return self._line(going, found)
            step = _tick_now(entry, now=now, note=note)
            filed = await self._ledger.decide([step], now=now, term=self._term)
            if filed:
                self._poke()
                return self._line(filed[0], found)
            found = await self._ledger.entry(found.number) or found
        raise EntryStateError(found, "its next tick is being decided", remedy="ask again")

    async def backfill(
        self,
        word: str,
        *,
        start: datetime,
        end: datetime | None = None,
        name: str | None = None,
        dry_run: bool = False,
        progress: Callable[[int, int], None] = no_progress,
    ) -> Backfill:
        """File a receipt for every moment of a past window, oldest first; *end* is not in it.

        The same *name* again gives the same receipts, so what was interrupted can be repeated.
        """
        now = self._clock.now()
        found = await self.named(word)
        entry = _armed(found)
        end = now if end is None else end
        _check_window(start, end, now=now, zone_name=entry.zone)
        moments = _moments(entry, start, end)
        name = self._ids() if name is None else _checked(name, "the name of a backfill")
        about = self._entry_line(found)
        plan = Backfill(
            about,
            name,
            start,
            end,
            tuple(each.at for each in moments),
            dry_run=dry_run,
            follows_ends=_follows_ends(entry),
        )
        if dry_run:
            return plan
        lines: list[Line] = []
        for first in range(0, len(moments), _BATCH):
            batch = moments[first : first + _BATCH]
            receipts = [_backfilled(each, name, now=now) for each in batch]
            lines += await self._file(found, receipts, now=now)
            progress(len(lines), len(moments))
        return replace(plan, lines=tuple(lines))

    async def cancel(
        self, number: int, *, end: Callable[[int, str], bool], reason: str = ""
    ) -> Cancelled:
        """Let a run end that goes on; *end* does so to a receipt's, and False is nothing new."""
        asked = await self.run(number)
        said = f"somebody cancelled it: {reason}" if reason else "somebody cancelled it"
        changed = asked.run.ended_at is None and end(asked.run.receipt, said)
        again = asked if changed else await self.run(number)
        if again.run.ended_at is not None:
            ended = moment_text(again.run.ended_at, again.line.zone)
            raise RunStateError(again.line.title, f"run {number} is over since {ended}")
        return Cancelled(again, changed)

    async def prune(self, *, before: datetime, dry_run: bool = False) -> Pruned:
        """Fold old receipts into ranges and drop what hangs on them."""
        now = self._clock.now()
        if before > now:
            raise RequestError(f"{key_time(before)} is still to come; only the past is pruned")
        return await self._ledger.prune(before=before, now=now, term=self._term, dry_run=dry_run)

    # What several of these share

    async def _file(
        self,
        found: Listed,
        receipts: Sequence[Receipt],
        *,
        now: datetime,
        parent: int | None = None,
    ) -> list[Line]:
        """File what was asked for, or say why the entry cannot do it."""
        filed = await self._ledger.add(
            found.number, receipts, now=now, term=self._term, parent=parent
        )
        if len(filed) < len(receipts):
            again = await self._ledger.entry(found.number) or found
            _armed(again)
            _refuse_rest(again, is_sure=True)
        self._poke()
        return [self._line(each, found) for each in filed]

    async def _pending_tick(self, found: Listed) -> Filed | None:
        """Return the tick of an agent that waits; one that runs is an error."""
        page = await self._ledger.receipts(entry=found.number, statuses=OPEN, limit=_BATCH)
        for each in page.receipts:
            if not each.receipt.key.startswith(_TICK):
                continue
            if each.status in _GOING:
                since = moment_text(each.receipt.start_at, self._zone_of(found))
                runs = [run.number for run in await self._ledger.runs_of(each.number)]
                reason = f"it ticks already, since {since}; `horae logs` shows it"
                raise RunStateError(found.mark.title, reason, runs=runs[-1:])
            if each.status is Status.HELD:
                now, reason = self._clock.now(), "somebody asked to try again"
                await self._ledger.release(each.number, reason=reason, now=now, term=self._term)
            return await self._ledger.receipt(each.number)
        return None

    async def _agent_line(self, found: Listed, pending: Sequence[Filed]) -> AgentLine:
        """Return an agent as people are told of it."""
        memory = read_memory(found.memory)
        own = [each for each in pending if each.entry == found.number]
        page = await self._ledger.receipts(entry=found.number, statuses=ENDS, limit=1)
        last = page.receipts[0] if page.receipts else None
        return AgentLine(
            self._entry_line(found),
            any(each.status in _GOING for each in own),
            memory.last_run_at,
            place_of(memory),
            found.streak,
            None if last is None else last.status,
            "" if last is None else last.receipt.reason,
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

    async def _troubled(self) -> list[Listed]:
        """Return the entries that somebody should look at, the longest known first."""
        found: dict[int, Listed] = {}
        for trait in (Trait.FAILING, Trait.MISSING):
            some = await self._ledger.entries_that_are(trait, limit=_BATCH)
            found.update((each.number, each) for each in some)
        return [found[number] for number in sorted(found)]

    async def _every(self, *, statuses: Collection[Status]) -> list[Filed]:
        """Return all receipts of some statuses."""
        found: list[Filed] = []
        cursor = None
        while True:
            page = await self._ledger.receipts(statuses=statuses, limit=_BATCH, cursor=cursor)
            found += page.receipts
            cursor = page.cursor
            if cursor is None:
                return found

    async def _some(
        self, *, since: datetime, statuses: Collection[Status], limit: int
    ) -> tuple[Filed, ...]:
        """Return the newest receipts of some statuses."""
        page = await self._ledger.receipts(since=since, statuses=statuses, limit=limit)
        return page.receipts

    async def _lines(self, receipts: Iterable[Filed]) -> tuple[Line, ...]:
        """Return receipts with the zones of their entries."""
        known: dict[int, Listed | None] = {}
        lines = []
        for each in receipts:
            if each.entry not in known:
                known[each.entry] = await self._ledger.entry(each.entry)
            lines.append(self._line(each, known[each.entry]))
        return tuple(lines)

    async def _last(self, found: Listed) -> list[Filed]:
        """Return the receipt of an entry's last moment, else the newest of any kind."""
        since = found.item.accounted_to if isinstance(found.item, Entry) else None
        page = await self._ledger.receipts(entry=found.number, since=since, limit=20)
        own = [each for each in page.receipts if is_planned(each.receipt.key)]
        if not own:
            page = await self._ledger.receipts(entry=found.number, limit=1)
        return [*own, *page.receipts][:1]

    async def _told(self, filed: Filed) -> Answer:
        """Return all that is known of a receipt."""
        return answer_of(filed, await self._ledger.runs_of(filed.number))

    async def _again(self, found: Listed) -> EntryLine:
        """Return an entry as it is known now."""
        return self._entry_line(await self._ledger.entry(found.number) or found)

    def _line(self, filed: Filed, found: Listed | None) -> Line:
        """Return a receipt with the title and zone of its entry."""
        title = filed.title or (found.mark.title if found else "")
        return Line(filed, title, self._zone_of(found))

    def _zone_of(self, found: Listed | None) -> str:
        """Return the zone of an entry, else that of the plan."""
        item = found.item if found else None
        return item.zone if isinstance(item, Entry) else self._zone

    def _entry_line(self, found: Listed) -> EntryLine:
        """Return an entry as people are told of it."""
        item, place = found.item, self._zone_of(found)
        return EntryLine(
            found.number,
            found.source,
            found.mark.title,
            found.mark.address,
            item.origin,
            place,
            found.is_armed,
            words(item.rule, zone_name=place) if isinstance(item, Entry) else "",
            "" if isinstance(item, Entry) else item.reason,
            found.first_seen_at,
            found.gone_at,
            found.pause,
            found.next_at,
            found.failures,
        )


def _agent_of(found: Listed) -> Entry:
    """Return the entry of an agent that can tick."""
    entry = _armed(found)
    if not isinstance(entry.rule, CadenceRule):
        remedy = f"ask for a run of it with `horae run {found.number}`"
        raise EntryStateError(found, "it is no agent that ticks", remedy=remedy)
    _refuse_rest(found)
    return entry


def _tick_now(entry: Entry, *, now: datetime, note: str) -> Step:
    """Return the decision that an agent's next tick is now.

    It is filed as if its time had come: nothing else is pending until it has ended.
    """
    rule = entry.rule
    assert isinstance(rule, CadenceRule), "only a cadence ticks"
    reason = f"somebody asked: {note}" if note else "somebody asked"
    asked = Receipt(f"{_TICK}{rule.ticks + 1}", Status.WAITING, reason, now, now)
    ended_at = now - Rhythm(rule.streak, rule.failures).delay(rule.base)
    if entry.ended_at is not None:
        ended_at = min(ended_at, entry.ended_at)
    since = now if entry.accounted_to is None else max(now, entry.accounted_to)
    due = replace(entry, rule=replace(rule, first_at=min(rule.first_at, now)))
    return Step(due, Decision((asked,), since, ended_at))


def _troubles(agent: AgentLine) -> Iterator[str]:
    """Yield what of an agent's work a person should look at, in words."""
    said = {
        "pull": "the plan root is not up to date with its origin",
        "tree": "its own tree is not up to date with the plan root",
        "delivery": "its work is not delivered and stays on its branch",
    }
    for name, why in agent.troubles.items():
        yield f"{agent.name} ({agent.entry.origin}): {said.get(name, name)} ({why})"
    if agent.held:
        yield f"{agent.name} ({agent.entry.origin}) cannot tick: {agent.held}"


def _candidate(found: Listed) -> dict[str, object]:
    """Return what tells an entry from others of its name."""
    return {
        "entry": found.number,
        "title": found.mark.title,
        "address": found.mark.address,
        "file": found.item.origin.file,
        "line": found.item.origin.line,
    }


def _near(word: str, entries: Sequence[Listed]) -> list[str]:
    """Return the names of entries that were perhaps meant, at most three."""
    from difflib import get_close_matches

    titles = dict.fromkeys(each.mark.title for each in entries[-_NEAR:] if each.gone_at is None)
    wanted = word.casefold()
    by_case = {title.casefold(): title for title in titles}
    near = get_close_matches(wanted, by_case, n=3, cutoff=0.6)
    inside = (folded for folded in by_case if wanted and wanted in folded)
    return [by_case[each] for each in dict.fromkeys([*near, *islice(inside, 3)])][:3]


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


def _overdue(count: int, engine: EngineFacts) -> Iterator[str]:
    """Yield that moments have come and nobody decides about them, if there are any."""
    if count:
        remedy = (
            "the engine does not keep up" if engine.is_running else "no engine runs; start horae up"
        )
        what = "moment has" if count == 1 else "moments have"
        yield f"{count} {what} come and nothing is decided about: {remedy}"


def _problems(troubled: Iterable[Listed]) -> Iterator[str]:
    """Yield what somebody should look at, in words."""
    for each in troubled:
        name = f"{each.mark.title} ({each.item.origin})"
        if each.failures >= STUCK:
            yield f"{name} ended badly {each.failures} times in a row; see horae history"
        if each.missing_at is not None:
            yield f"{name} is missing from its plan since {key_time(each.missing_at)}"


def _coming(found: Listed, *, now: datetime) -> list[Moment]:
    """Return the next moment of an entry, if it has one."""
    if not isinstance(found.item, Entry) or found.gone_at is not None:
        return []
    entry = found.item
    # What has come and is not decided yet is next, too.
    since = min(now, entry.accounted_to) if entry.accounted_to is not None else now
    coming = next_moment(entry, since)
    return [] if coming is None else [coming]


def _armed(found: Listed) -> Entry:
    """Return the entry if it can run at all."""
    _refuse_gone(found)
    if isinstance(found.item, Entry):
        return found.item
    raise EntryStateError(
        found,
        f"it is not armed ({found.item.reason})",
        remedy=f"see horae explain {found.item.origin}",
    )


def _refuse_gone(found: Listed) -> None:
    """Raise an error if an entry is no longer in its plan."""
    if found.gone_at is not None:
        raise EntryStateError(
            found,
            f"it is gone since {moment_text(found.gone_at, 'UTC')}",
            remedy=f"write it into {found.item.origin.file} again",
        )


def _refuse_rest(found: Listed, *, is_sure: bool = False) -> None:
    """Raise an error if an entry rests, or must do so since nothing was filed for it."""
    if is_sure or found.pause is not None:
        raise EntryStateError(
            found,
            f"it rests{rest_words(found)}",
            remedy=f"let it go on with `horae resume {found.number}` first",
        )


def _checked(name: str, what: str) -> str:
    """Return a name that can stand in a key."""
    if not 0 < len(name) <= 200 or not name.isprintable():
        raise RequestError(f"{what} has 1 to 200 printable characters")
    return name


def _check_window(start: datetime, end: datetime, *, now: datetime, zone_name: str) -> None:
    """Raise an error unless a window lies in the past and is not empty."""
    _check_calendar(start, end)
    first, last = moment_text(start, zone_name), moment_text(end, zone_name)
    if end > now:
        raise RequestError(f"{last} is still to come; a backfill makes good what is past")
    if start >= end:
        raise RequestError(f"there is no time from {first} to {last}")


def _check_calendar(*moments: datetime) -> None:
    """Raise an error if a moment has no neighbours in every zone: the calendar ends there."""
    if not all(1 < each.year < 9999 for each in moments):
        raise _beyond()


def _beyond() -> RequestError:
    return RequestError("the calendar ends there; a moment lies in the years 2 to 9998")


def _moments(entry: Entry, start: datetime, end: datetime) -> list[Moment]:
    """Return the moments of an entry in a window, or say that they are too many."""
    moments = decided(project(entry, start - _TINY, end - _TINY))
    found = list(islice(moments, MOST + 1))
    if len(found) > MOST:
        total = MOST + 1 + _count_after(entry, found[-1].at, end - _TINY)
        raise RequestError(
            f"that would be {total:,} runs, and a backfill has at most {MOST:,}; "
            "take a shorter window"
        )
    return found


def _count_after(entry: Entry, start: datetime, end: datetime) -> int:
    """Return how many moments a window has, without walking them where that can be."""
    until = entry.policy.until
    end = end if until is None else min(end, until.astimezone(UTC))
    match entry.rule:
        case CronRule(crons):
            return count_any(crons, start, end)
        case RepeaterRule(anchor, repeater) if repeater.kind is not Kind.RESTART:
            return repeater.how_many(anchor, start, end, zone=zone(entry.zone))
    return sum(1 for _ in decided(project(entry, start, end)))


def _follows_ends(entry: Entry) -> bool:
    """Tell whether an entry's moments follow from its own ends."""
    rule = entry.rule
    if isinstance(rule, RepeaterRule):
        return rule.repeater.kind is Kind.RESTART
    return not isinstance(rule, CronRule)


def _backfilled(moment: Moment, name: str, *, now: datetime) -> Receipt:
    """Return the receipt of a moment that is made good."""
    key = f"backfill:{name}:{key_time(moment.at)}"
    reason = f"somebody asked for it, {length_text(now - moment.at)} after its time"
    # Not before now: in the line it stands behind what is due on time.
    return Receipt(key, Status.WAITING, reason, moment.at, now)
