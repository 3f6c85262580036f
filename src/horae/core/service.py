"""Queries and commands about entries, receipts, runs and events.

The command line, the API and the page use only these, so that they agree.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from itertools import islice
from typing import Any, Final, TypeVar
from urllib.parse import quote

from msgspec import UNSET, structs

from horae.core import entry as rules, explain, receipt as states, views
from horae.core.actor import by_words, one_line
from horae.core.budget import DOLLAR, Purse, Unit, Usage, expected
from horae.core.command import Unready
from horae.core.decide import GRACE, Decision
from horae.core.entry import Entry, key_time
from horae.core.gate import Machine, no_machine
from horae.core.inbox import (
    ALL,
    ENDS,
    Attention,
    EntryFilter,
    EntrySort,
    EntryState,
    EntrySummary,
    InboxState,
    attention,
    filtered,
    fold_parts,
    parts_of,
    whole_of,
    without_parts,
)
from horae.core.ports import (
    PATIENCE,
    Clock,
    EntryStep,
    Ledger,
    Listed,
    Pruned,
    ReceiptPage,
    Run,
    SpentRun,
    Trait,
    receipts_of,
)
from horae.core.project import (
    TINY,
    Moment,
    counted,
    decided,
    next_moment,
    project,
    tick_delay,
    unpaused,
)
from horae.core.receipt import GOING, WAITS, Filed, Reason, ReasonCode, Receipt, Status
from horae.core.spending import Spending
from horae.core.text import is_number, moment_text
from horae.errors import Exit, HoraeError
from horae.timing import duration
from horae.timing.zone import instant, local, zone

_Entry = TypeVar("_Entry", bound=views.EntryLine)
BATCH: Final = 1000  # receipts in one commit, or on one page
_NEAR: Final = 20_000  # names compared for a suggestion
_BESIDE: Final = 100  # extra receipts read besides those of planned times
DAY: Final = timedelta(hours=24)  # the period of a status
STUCK: Final = 3  # failures in a row that are reported
_TICK: Final = "tick:"
_KINDS: Final = {"crew": "agent", "board": "task", "trigger": "trigger"}
_OF_TASKS: Final = frozenset({rules.Work.DISPATCH, rules.Work.RECYCLE})
_TRIES: Final = 5  # when another process decides about the same entry
MOST: Final = 10_000  # times in a backfill
_TINY: Final = timedelta(microseconds=1)
_RECORDED: Final = "(recorded at the next `horae up`)"
_EXITED: Final = Reason(
    ReasonCode.ENGINE_EXITED, f"the engine or `horae run` exited during the run {_RECORDED}"
)
_EXITED_BEFORE: Final = Reason(
    ReasonCode.EXITED_BEFORE_START, f"the engine or `horae run` exited before the start {_RECORDED}"
)
TROUBLES: Final = {  # Problems with an agent's work that a user should know.
    "pull": "the plan root is not up to date with its origin",
    "tree": "the agent's tree is not up to date with the plan root",
    "edits": "the agent's tree does not have the uncommitted edits of the plan root",
    "delivery": "the agent's work is not delivered",
}


def _not_running(entry: EntrySummary) -> EntrySummary:
    is_going = entry.last_status in GOING
    return entry._replace(last_status=Status.INTERRUPTED) if is_going else entry


@dataclass(eq=False)
class Service:
    ledger: Ledger
    clock: Clock
    ids: Callable[[], str]
    term: int = 1
    poke: Callable[[], None] = lambda: None
    zone_name: str = "UTC"  # of entries without a zone
    # The nodes that are up, if several share the ledger.
    machines: Callable[[], Awaitable[Sequence[Machine]]] | None = None
    # Addresses that an entry at a line of a file may have in the ledger.
    places: Callable[[str, int], Iterable[str]] = lambda _file, _line: ()
    unready: Callable[[Iterable[Listed]], Awaitable[Mapping[int, Unready]]] | None = None
    # Why the board does not assign the task at an address.
    unassigned: Callable[[str], Awaitable[str]] | None = None
    refuse_start: Callable[[], None] = lambda: None  # raises an error while nothing can start
    is_over: bool = False  # no engine runs: what the ledger has as running has ended
    is_new: bool = False  # no engine has read these entries
    refuse_name: Callable[[str], None] | None = None  # raises an error for an ambiguous address
    agent_state: Callable[[str], views.AgentState] = lambda _: views.AgentState()
    spending: Callable[[], Spending] | None = None  # the budgets shared by several entries
    # Repeats the request of a receipt; None if it was not a request.
    again: Callable[[Filed, str], Awaitable[Filed | None]] | None = None

    async def named(self, word: views.EntryName) -> Listed:
        word = str(word)
        found = await self.ledger.find(word)
        file, _, line = word.rpartition(":")
        if not found and file and is_number(line):
            # A user may write `file:line` in another form than the ledger.
            for name in await asyncio.to_thread(lambda: [*self.places(file, int(line))]):
                found = found or await self.ledger.find(name)
        if not found and word.startswith("task:"):
            found = await self.ledger.find(f"{word}:work")  # its only entry unless it recurs
        entries = found or await self.ledger.entries()
        if not found:
            folded = word.casefold()
            found = [each for each in entries if each.mark.title.casefold() == folded]
        there = [each for each in found if each.gone_at is None] or found
        wholes = {each.number: await self._whole(each) for each in there}
        there = [*{each.number: each for each in wholes.values()}.values()]
        if len(there) == 1:
            if not word.isdecimal():  # a number is unique
                await self._refuse_double(there[0])
            return there[0]
        if there:
            raise views.AmbiguousEntryError(word, there)
        marks = (each.mark for each in entries[-_NEAR:] if each.gone_at is None)
        near = near_names(word, ((mark.address, mark.title) for mark in marks))
        raise views.EntryNotFoundError(word, near=near)

    async def _whole(self, found: Listed) -> Listed:
        if not (address := whole_of(found.mark.address)):
            return found
        known = [each for each in await self.ledger.find(address) if each.mark.address == address]
        fit = (each for each in known if each.gone_at is None or found.gone_at is not None)
        return next(fit, found)

    async def wholes(self, numbers: Iterable[int]) -> dict[int, int]:
        found = await self.ledger.entries_at([*dict.fromkeys(numbers)])
        parts = [each for each in found if whole_of(each.mark.address)]
        return {each.number: (await self._whole(each)).number for each in parts}

    async def _family(self, found: Listed) -> list[Listed]:
        family = [found]
        for address in parts_of(found.mark.address):
            known = await self.ledger.find(address)
            family += [each for each in known if each.mark.address == address]
        return family

    async def _receipts(self, found: Listed, **how: Any) -> ReceiptPage:
        return await self._page([each.number for each in await self._family(found)], **how)

    async def _page(self, entries: Sequence[int], *, limit: int = 100, **how: Any) -> ReceiptPage:
        pages = [await self.ledger.receipts(entry=each, limit=limit, **how) for each in entries]
        if len(pages) == 1:
            return pages[0]
        every = [each for page in pages for each in page.receipts]
        every.sort(key=lambda each: each.number, reverse=True)
        is_cut = len(every) > limit or any(page.cursor is not None for page in pages)
        receipts = tuple(every[:limit])
        return ReceiptPage(receipts, receipts[-1].number if is_cut and receipts else None)

    async def _refuse_double(self, found: Listed) -> None:
        if self.refuse_name is not None:
            await asyncio.to_thread(self.refuse_name, found.mark.address)

    async def _lines(self, receipts: Iterable[Filed]) -> tuple[views.ReceiptLine, ...]:
        known: dict[int, Listed | None] = {}
        lines, receipts = [], [*receipts]
        used = await self.ledger.costs_of([each.number for each in receipts]) if receipts else {}
        for each in receipts:
            if each.entry not in known:
                entry = await self.ledger.entry(each.entry)
                known[each.entry] = None if entry is None else await self._whole(entry)
            line, cost = self._line(each, known[each.entry]), used.get(each.number, Usage()).cost
            lines.append(line if cost is None else structs.replace(line, cost=cost / DOLLAR))
        return tuple(lines)

    def _midnight(self, now: datetime, days: int) -> datetime:
        place = zone(self.zone_name)
        day = local(now, place).replace(hour=0, minute=0, second=0, microsecond=0)
        return instant(day - timedelta(days=days), place)

    async def costs(self, *, by: str = "entry", days: int = 7) -> views.CostReport:
        now = self.clock.now()
        since, place = self._midnight(now, days - 1), zone(self.zone_name)
        spent = await self.ledger.costs(since=since, until=now + DAY)
        groups: dict[str, list[SpentRun]] = {}
        if by == "day":
            starts = (self._midnight(now, each) for each in range(days - 1, -1, -1))
            groups = {f"{local(each, place):%Y-%m-%d %a}": [] for each in starts}
        for run in spent:
            names = {
                "day": [f"{local(run.at, place):%Y-%m-%d %a}"],
                "agent": run.agents or ("no agent",),
            }.get(by, [run.title])
            for name in names:
                groups.setdefault(name, []).append(run)
        rows = [_cost_line(name, runs) for name, runs in groups.items()]
        if by != "day":
            rows.sort(key=lambda row: (-row.cost, -row.tokens, row.name))
        return views.CostReport(
            since=views.zoned(since, self.zone_name),
            until=views.zoned(now, self.zone_name),
            zone=self.zone_name,
            rows=tuple(rows),
            total=_cost_line("total", spent),
            budgets=tuple(await self.budgets(now)),
        )

    async def _spent_today(self, now: datetime) -> float | views.Maybe:
        spent = await self.ledger.costs(since=self._midnight(now, 0), until=now + DAY)
        known = [each.cost for each in spent if each.cost is not None]
        return sum(known) / DOLLAR if known else UNSET

    async def budgets(self, now: datetime) -> list[views.BudgetLine]:
        if self.spending is None:
            return []
        known: dict[tuple[int, Purse], str | None] = {}
        spending = await asyncio.to_thread(self.spending)
        for purse in await spending.all():
            known[0, purse] = None
        for each in await self.ledger.entries():
            for purse in each.item.policy.budget if isinstance(each.item, Entry) else ():
                if each.is_armed:
                    own = not purse.of
                    known[each.number if own else 0, purse] = each.mark.title if own else None
        lines = []
        for (entry, purse), title in known.items():
            [stands] = await self.ledger.balances([purse], now=now, entry=entry)
            line = views.BudgetLine(
                budget=str(purse),
                entry=title,
                spent=purse.words(stands.spent),
                expected=purse.words(stands.live) if stands.live else "",
                left=purse.words(stands.left),
                ratio=round(stands.spent / purse.amount, 4),
                until=views.zoned(stands.until or now, self.zone_name),
            )
            lines.append(line)
        return lines

    async def forecast(
        self, entry: views.EntryName | None = None, *, days: int = 7
    ) -> views.ForecastReport:
        now = self.clock.now()
        found = await self.ledger.entries() if entry is None else [await self.named(entry)]
        armed = [(each, each.item) for each in found if each.is_armed]
        usual = await self.ledger.usual([each.number for each, _ in armed])
        end, rows = now + timedelta(days=days), []
        for each, item in armed:
            runs = runs_until(item, now, end) if isinstance(item, Entry) else 0
            last = [used.cost for used in usual[each.number] if used.cost is not None]
            median = expected(usual[each.number], Unit.DOLLARS) / DOLLAR if last else None
            if runs and (median is not None or entry is not None):
                rows.append(
                    views.ForecastLine(
                        entry=each.number,
                        title=each.mark.title,
                        runs=runs,
                        each=median,
                        cost=round(runs * (median or 0.0), 6),
                    )
                )
        rows.sort(key=lambda row: (-row.cost, row.entry))
        since, until = (views.zoned(at, self.zone_name) for at in (now, end))
        cost = round(sum(row.cost for row in rows), 6)
        zone_name = self.zone_name
        return views.ForecastReport(
            since=since, until=until, zone=zone_name, rows=tuple(rows), cost=cost
        )

    def _current(self, filed: Filed) -> Filed:
        """Return a receipt; if the engine exited during its run, with the status that follows."""
        if not self.is_over or filed.status not in GOING:
            return filed
        status, reason = Status.WAITING, _EXITED_BEFORE
        if filed.status is Status.RUNNING:
            status, reason = Status.INTERRUPTED, _EXITED
        receipt = structs.replace(filed.receipt, status=status, reason=reason)
        return structs.replace(filed, receipt=receipt)

    def _line(self, filed: Filed, found: Listed | None) -> views.ReceiptLine:
        filed = self._current(filed)
        title = filed.title or (found.mark.title if found else "")
        line = views.receipt_line(filed, title, self._zone_of(found))
        return line if found is None else structs.replace(line, entry=found.number)

    def _entry_line(self, found: Listed) -> views.EntryLine:
        return views.entry_line(found, self._zone_of(found))

    async def _with_result(self, found: Listed, kind: type[_Entry], **more: Any) -> _Entry:
        line = self._entry_line(await self.ledger.entry(found.number) or found)
        return kind(**structs.asdict(line), **more)

    def _zone_of(self, found: Listed | None) -> str:
        item = found.item if found else None
        return item.zone if isinstance(item, Entry) else self.zone_name

    async def entry(self, entry: views.EntryName) -> views.EntryLine:
        return self._entry_line(await self.named(entry))

    async def entries(
        self, *, limit: int = 100, cursor: int | None = None, with_gone: bool = False
    ) -> views.EntryPage:
        found = [
            each
            for each in without_parts(await self.ledger.entries())
            if each.number > (cursor or 0) and (with_gone or each.gone_at is None)
        ]
        page = found[:limit]
        more = page[-1].number if len(found) > limit else None
        return views.EntryPage(entries=tuple(map(self._entry_line, page)), cursor=more)

    async def entry_list(
        self,
        entry_filter: EntryFilter = ALL,
        *,
        sort: EntrySort = EntrySort.TITLE,
        limit: int = 100,
        offset: int = 0,
        numbers: Collection[int] | None = None,
    ) -> views.EntryList:
        """Return a part of the list of entries, each with its state and its last ends.

        *numbers* restricts the list to these entries.
        """
        with_gone = EntryState.GONE in entry_filter.states
        known = await self.ledger.summaries(with_gone=with_gone or entry_filter.with_gone)
        if self.is_over:
            known = [_not_running(each)._replace(is_new=self.is_new) for each in known]
        known, wholes = fold_parts(known)
        if numbers is not None:
            known = [each for each in known if each.number in numbers]
        if agent := entry_filter.agent:
            listed = (each for each in await self.ledger.entries() if agent in each.agents)
            theirs = {wholes.get(each.number, each.number) for each in listed}
            known = [each for each in known if each.number in theirs]
        fitting, counts = await asyncio.to_thread(filtered, known, entry_filter, sort)
        page = fitting[offset : offset + limit]
        found = {
            each.number: each
            for each in await self.ledger.entries_at([each.number for each in page])
        }
        rows = [await self._entry_row(found[each.number], each.state) for each in page]
        used = await self.ledger.costs_of([each.last.receipt for each in rows if each.last])
        for place, row in enumerate(rows):
            cost = used[row.last.receipt].cost if row.last and row.last.receipt in used else None
            if row.last and cost is not None:
                last = structs.replace(row.last, cost=cost / DOLLAR)
                rows[place] = structs.replace(row, last=last)
        return views.EntryList(entries=tuple(rows), total=len(fitting), counts=dict(counts))

    async def attention(self) -> list[Attention]:
        ledger, troubled = self.ledger, []
        for trait in (Trait.BROKEN, Trait.MISSING, Trait.PAUSED):
            troubled += await ledger.entries_that_are(trait, limit=BATCH)
        bad, pending = await ledger.bad_results(), await self._open()
        filed = (*pending, *(each.filed for each in bad))
        tasks = {each.entry for each in filed if each.work in _OF_TASKS}
        wholes = await self.wholes(tasks.union(each.number for each in troubled))
        how: dict[str, Any] = {"now": self.clock.now(), "wholes": wholes}
        return attention(bad, pending, troubled, await ledger.acknowledged(), **how)

    async def inbox(self, *, limit: int = 100) -> views.Inbox:
        now, found = self.clock.now(), await self.attention()
        shown = [each for each in found if not each.is_hidden(now)]
        hidden = [each for each in found if each.is_hidden(now)]
        numbers = [each.entry for each in (*shown[:limit], *hidden[:limit])]
        known = {each.number: each for each in await self.ledger.entries_at(numbers)}

        def lines(some: Iterable[Attention]) -> tuple[views.InboxLine, ...]:
            listed = ((each, known.get(each.entry)) for each in islice(some, limit))
            return tuple(self._inbox_line(each, it) for each, it in listed if it is not None)

        return views.Inbox(count=len(shown), entries=lines(shown), acknowledged=lines(hidden))

    def _inbox_line(self, found: Attention, listed: Listed) -> views.InboxLine:
        about, place = found.known, self._zone_of(listed)
        is_known = about is not None and (about.state, about.since) == (found.state, found.since)
        own: dict[str, Any] = {"title": listed.mark.title, "reason_code": found.code or None}
        own["acknowledged"] = (
            views.shaped(views.AcknowledgementLine, place, about, by=about.actor)
            if about is not None and is_known
            else None
        )
        kind, origin = views.InboxLine, listed.item.origin
        return views.shaped(kind, place, found, listed, origin, zone=place, **own)

    async def acknowledge(
        self,
        word: str,
        *,
        state: InboxState | None = None,
        note: str = "",
        until: datetime | timedelta | None = None,
    ) -> views.InboxLine:
        """Remove an entry from the inbox until its state changes, or until a time.

        If a *state* is given, the entry must still be in that one.
        """
        now, listed = self.clock.now(), await self.named(word)
        about = next((e for e in await self.attention() if e.entry == listed.number), None)
        if about is None or state not in {None, about.state}:
            reason = "the entry needs no attention"
            if about is not None:
                reason = f"the entry is {about.state}, not {state}"
            raise views.EntryStateError(listed, reason, remedy="see the inbox")
        end = now + until if isinstance(until, timedelta) else until
        if end is not None and end <= now:
            raise views.RequestError(f"{key_time(end)} is in the past; name a later time")
        await self.ledger.acknowledge(
            listed.number,
            now=now,
            term=self.term,
            state=about.state,
            since=about.since,
            until=end,
            note=one_line(note),
        )
        return await self._inbox_again(listed)

    async def unacknowledge(self, word: str) -> views.InboxLine:
        now, listed = self.clock.now(), await self.named(word)
        known = {each.entry: each for each in await self.ledger.acknowledged()}
        if listed.number not in known:
            raise views.EntryStateError(listed, "it is not acknowledged", remedy="see the inbox")
        since = known[listed.number].since
        await self.ledger.acknowledge(
            listed.number, now=now, term=self.term, state=None, since=since
        )
        return await self._inbox_again(listed)

    async def _inbox_again(self, listed: Listed) -> views.InboxLine:
        found = next((e for e in await self.attention() if e.entry == listed.number), None)
        if found is None:
            raise views.EntryStateError(listed, "the entry has recovered", remedy="see the inbox")
        return self._inbox_line(found, listed)

    async def search(self, text: str, *, limit: int = 12) -> views.SearchResults:
        """Find entries, files and receipts; entries whose title begins with the text come first."""
        known, _ = fold_parts(await self.ledger.summaries())
        found, _ = await asyncio.to_thread(
            filtered, known, EntryFilter(search=text), EntrySort.TITLE
        )
        folded = text.casefold()
        found.sort(key=lambda each: not each.title.casefold().startswith(folded))
        results = [
            views.SearchResult(
                kind=_KINDS.get(each.source, "entry"),
                title=each.title,
                detail=f"{each.file}:{each.line}",
                href=f"/entries/{each.number}",
            )
            for each in found[:limit]
        ]
        if is_number(text) and (filed := await self.ledger.receipt(int(text))) is not None:
            detail = f"{filed.title}, {filed.status}"
            href = f"/receipts/{filed.number}"
            receipt = views.SearchResult(
                kind="receipt", title=f"receipt {text}", detail=detail, href=href
            )
            results.insert(0, receipt)
        files = sorted({each.file for each in known if folded and folded in each.file.casefold()})
        for file in files[:limit]:
            href = f"/entries?file={quote(file)}"
            results.append(views.SearchResult(kind="file", title=file, detail="", href=href))
        return views.SearchResults(results=tuple(results))

    async def _entry_row(self, found: Listed, state: EntryState) -> views.EntryRow:
        page = await self._receipts(found, statuses=GOING | states.FINAL, limit=ENDS)
        known = [
            self._current(each)
            for each in page.receipts
            if each.receipt.reason.code != ReasonCode.ENTRY_BROKEN
        ]
        return views.entry_row(found, self._zone_of(found), state, known)

    async def history(
        self,
        entry: views.EntryName | None = None,
        *,
        since: datetime | None = None,
        until: datetime | None = None,
        statuses: Collection[str] = (),
        limit: int = 50,
        cursor: int | None = None,
    ) -> views.History:
        if since is not None and until is not None and until < since:
            period = f"from {key_time(since)} to {key_time(until)}"
            raise views.RequestError(f"the period {period} is empty")
        found = None if entry is None else await self.named(entry)
        how: dict[str, Any] = {"since": since, "until": until, "cursor": cursor, "limit": limit}
        how["statuses"] = [*map(Status, statuses)]
        reading = self.ledger.receipts if found is None else partial(self._receipts, found)
        page = await reading(**how)
        receipts = await self._lines(page.receipts)
        return views.History(receipts=receipts, cursor=page.cursor)

    async def filed(self, number: int) -> Filed:
        filed = await self.ledger.receipt(number)
        if filed is None:
            words = f"there is no receipt {number}; `horae history` lists the receipts"
            code = "receipt_not_found"
            raise HoraeError(words, code=code, exit_code=Exit.NOT_FOUND, number=number)
        return self._current(filed)

    async def receipt(self, number: int) -> views.ReceiptDetail:
        [line] = await self._lines([await self.filed(number)])
        runs = views.attempts(await self.ledger.runs_of(number), line.zone)
        return views.ReceiptDetail(**structs.asdict(line), runs=runs)

    async def run_of(self, number: int) -> Run:
        run = await self.ledger.run(number)
        if run is None:
            raise views.RunNotFoundError(number)
        return run

    async def run(self, number: int) -> views.RunLine:
        run = await self.run_of(number)
        [line] = await self._lines([await self.filed(run.receipt)])
        runs = views.attempts(await self.ledger.runs_of(run.receipt), line.zone)
        return views.run_line(run, line, next(e.attempt for e in runs if e.run == number))

    async def last_run(
        self,
        entry: views.EntryName,
        *,
        going: bool = False,
        obstacle: Callable[[int], str] = lambda _: "",
    ) -> views.RunLine:
        """Return the last run of an entry, or the one in progress if *going*.

        *obstacle* returns what a waiting receipt waits for.
        """
        found = await self.named(entry)
        if not going:
            ran = [await self.ledger.last_run(each.number) for each in await self._family(found)]
            if last := max((each.number for each in ran if each is not None), default=0):
                return await self.run(last)
            raise views.RunNotFoundError(found.mark.title)
        page = await self._receipts(found, statuses=GOING)
        runs = [(await self.ledger.runs_of(each.number))[-1].number for each in page.receipts]
        if len(runs) == 1:
            return await self.run(runs[0])
        title = found.mark.title
        if not runs:
            waits = await self._waiting(found, self._zone_of(found), obstacle)
            hint = waits or "; see `horae status`"
            raise views.RunStateError(title, f"no run is in progress{hint}")
        several = f"several runs are in progress; name one: {', '.join(map(str, sorted(runs)))}"
        raise views.RunStateError(title, several, runs=runs)

    async def events(self, *, after: int = 0, limit: int = 100) -> views.EventPage:
        found = await self.ledger.events_after(after, limit=limit)
        place = self.zone_name
        shown = [views.shaped(views.EventLine, place, each, event=each.number) for each in found]
        return views.EventPage(events=tuple(shown), after=found[-1].number if found else after)

    def _obstacle(self) -> str:
        try:
            self.refuse_start()
        except HoraeError as error:
            return str(error)
        return ""

    async def _entry_of_question(self, ask: explain.WhyQuestion) -> Listed:
        try:
            return await self.named(ask.word)
        except views.EntryNotFoundError:
            word, _, when = ask.word.rpartition("@")
            if not word.strip() or ask.start is not None:
                raise
            with suppress(views.EntryNotFoundError):  # the first error is the one to report
                await self.named(word.strip())
                raise explain.AskedMomentError(when.strip()) from None
            raise

    async def cannot_run(self, found: Listed) -> str:
        """Return why a run of an entry could not start now; empty if it could."""
        asked = [found] if found.is_armed else []
        unready = {} if self.unready is None else await self.unready(asked)
        return self._obstacle() or str(unready.get(found.number, ""))

    async def why(self, ask: explain.WhyQuestion, *, limit: int = 20) -> views.WhyLines:
        now = self.clock.now()
        found = await self._entry_of_question(ask)
        about = self._entry_line(found)
        try:
            window = ask.window(about.zone)
        except OverflowError:
            raise beyond() from None
        obstacle = self._obstacle()
        how: dict[str, Any] = {"now": now, "window": window}
        how["cannot_run"] = await self.cannot_run(found)
        if window is None:
            last = [
                await self._line_of(each, about.zone) for each in await self._last_receipts(found)
            ]
            coming = explain.answers(found, [], _coming(found, now=now), now=now)
            idle = await self._why_unassigned(found, last)
            if not coming and (not last or isinstance(found.item, Entry)):
                coming = [explain.nothing_comes(found, last, idle)]
            elif idle:
                coming.append(explain.nothing_comes(found, last, idle))
            if lost := await self._follows_nothing(found):
                coming = [explain.bare_line(lost, is_moment=False)]
            return explain.why_lines(about, [*last, *(() if obstacle else coming)], **how)
        check_calendar(window.start, window.end)
        start, end = window.start - TINY, window.end - TINY
        item = found.item
        moments: list[Moment] = []
        if isinstance(item, Entry):
            moments = list(islice(project(unpaused(item), start, end), limit + 1))
        is_cut = len(moments) > limit
        if is_cut:
            end = moments.pop().at - TINY  # receipts end where the times do
        page = await self._receipts(found, since=window.start, until=end, limit=limit + _BESIDE)
        if page.cursor is not None:  # times before the oldest receipt of the page are left out
            receipts = [each.receipt for each in page.receipts]
            told_of = [each for each in receipts if states.is_planned(each.key)]
            since = min((each.planned_at for each in told_of), default=end)
            moments = [each for each in moments if told_of and each.at >= since]
        told = [await self._line_of(each, about.zone) for each in page.receipts]
        said = explain.answers(found, told, moments, now=now, window=window)
        is_cut = is_cut or page.cursor is not None or len(said) > limit
        if isinstance(item, Entry):
            how["nearest"] = explain.nearest(item, window)
        return explain.why_lines(about, said[:limit], is_cut=is_cut, **how)

    async def _follows_nothing(self, found: Listed) -> str:
        """Return that the entry which an alert follows does not exist; empty if it does."""
        rule = found.item.rule if isinstance(found.item, Entry) else None
        if not isinstance(rule, rules.AfterRule) or not rule.of or rule.of.startswith("agent:"):
            return ""
        with suppress(views.AmbiguousEntryError):  # several have the name, so it is one
            try:
                await self.named(rule.of)
            except views.EntryNotFoundError:
                way = "write the :ID: or the title of an entry, or all"
                return f"no entry is called {rule.of!r}, so this entry never runs; {way}"
        return ""

    async def _why_unassigned(self, found: Listed, last: Sequence[views.WhyLine]) -> str:
        task = await self._task(found)
        if self.unassigned is None or any(each.status in states.OPEN for each in last):
            return ""
        return "" if task is None else await self.unassigned(task.mark.address)

    async def _task(self, found: Listed) -> Listed | None:
        for each in await self._family(found):
            is_task = isinstance(each.item, Entry) and each.item.work is rules.Work.DISPATCH
            if is_task and (each.gone_at is None or each.number == found.number):
                return each
        return None

    async def last(self, entry: int, statuses: Collection[Status] = ()) -> views.ReceiptLine | None:
        family = await self._family(await self.named(str(entry)))
        newest = await self._newest([each.number for each in family], statuses)
        return None if newest is None else (await self._lines([newest]))[0]

    async def _newest(
        self, entries: Sequence[int], statuses: Collection[Status] = ()
    ) -> Filed | None:
        """Return the newest receipt of entries, other than of an unreadable edit."""
        cursor: int | None = None
        while True:
            page = await self._page(entries, statuses=statuses, cursor=cursor, limit=20)
            for each in page.receipts:
                if each.receipt.reason.code != ReasonCode.ENTRY_BROKEN:
                    return each
            if (cursor := page.cursor) is None:
                return None

    async def _last_receipts(self, found: Listed) -> list[Filed]:
        last = [filed for each in await self._family(found) for filed in await self._last_of(each)]
        return sorted(last, key=lambda each: each.number)

    async def _last_of(self, found: Listed) -> list[Filed]:
        entry = found.number
        since = found.item.accounted_to if isinstance(found.item, Entry) else None
        page = await self.ledger.receipts(entry=entry, since=since, limit=20)
        last = [each for each in page.receipts if states.is_planned(each.receipt.key)][:1]
        if not last:
            newest = await self._newest([entry])
            last = [] if newest is None else [newest]
        if not last or last[0].status is not Status.SKIPPED:
            return last
        page = await self.ledger.receipts(entry=entry, statuses=states.OPEN, limit=BATCH)
        return [*page.receipts[-1:], *last]

    async def _line_of(self, filed: Filed, zone_name: str) -> views.WhyLine:
        runs = await self.ledger.runs_of(filed.number)
        return explain.line_of(self._current(filed), runs, zone_name)

    async def status(self, engine: views.EngineFacts, *, limit: int = 20) -> views.StatusReport:
        """Return at most *limit* lines of each kind.

        Of late, missed and failed receipts of the last day, it has the newest per entry. A run that
        a user cancelled has not failed.
        """
        now, ledger = self.clock.now(), self.ledger
        counts = await ledger.count_entries(due_before=now - GRACE)
        pending = await self._open()
        late = await ledger.late(since=now - DAY, until=now, by=GRACE, limit=BATCH)

        async def recent(statuses: Collection[Status]) -> tuple[Filed, ...]:
            page = await ledger.receipts(since=now - DAY, until=now, statuses=statuses, limit=BATCH)
            return page.receipts

        async def lines(filed: Iterable[Filed]) -> tuple[views.ReceiptLine, ...]:
            return await self._lines(islice(filed, limit))

        async def newest(filed: Sequence[Filed]) -> tuple[views.ReceiptLine, ...]:
            first: dict[int, Filed] = {}
            times: Counter[int] = Counter()
            wholes = await self.wholes(each.entry for each in filed)
            for each in sorted(filed, key=lambda each: each.number, reverse=True):
                entry = wholes.get(each.entry, each.entry)
                first.setdefault(entry, each)
                times[entry] += each.receipt.count
            told = await lines(first.values())
            return tuple(structs.replace(each, times=times[each.entry]) for each in told)

        async def shown(trait: Trait) -> tuple[views.EntryLine, ...]:
            found = without_parts(await ledger.entries_that_are(trait, limit=limit))
            return tuple(map(self._entry_line, found))

        in_line = sorted(pending, key=lambda each: (each.receipt.start_at, each.number))
        agents = await self.agents(limit=limit, pending=in_line)
        coming = [] if self._obstacle() else without_parts(await ledger.coming(limit=limit))
        broken = await ledger.entries_that_are(Trait.BROKEN, limit=BATCH)
        problems = [*engine.problems, *map(broken_words, broken)]
        # In its first minute an engine still decides about times that came while it was down.
        is_starting = engine.is_running and engine.since > key_time(now - GRACE)
        if counts.overdue and not is_starting:
            who = "1 entry has" if counts.overdue == 1 else f"{counts.overdue} entries have"
            why = "the engine is falling behind"
            if not engine.is_running:
                why = "no engine is running; start one with `horae up`"
            problems.append(f"{who} scheduled times that passed without a decision: {why}")
        problems += await self._problems(in_line, agents, coming)
        by_status = Counter(each.status for each in pending)
        bad = (*await recent(states.BAD), *(each for each in pending if each.status in states.BAD))
        failed = [each for each in bad if each.receipt.reason.code != ReasonCode.CANCELLED]
        # A status of another time may list what is open now as planned later.
        planned = [
            each
            for each in (*pending, *late)
            if states.is_planned(each.receipt.key) and each.receipt.planned_at <= now
        ]
        return views.StatusReport(
            at=views.zoned(now, self.zone_name),
            zone=self.zone_name,
            stall=engine.stall or None,
            engine=engine.line,
            entries=counts.armed,
            spent_today=await self._spent_today(now),
            counts={status: by_status[status] for status in Status if status in states.OPEN},
            agents=tuple(agents),
            running=await lines(each for each in in_line if each.status in GOING),
            waiting=await lines(each for each in in_line if each.status in WAITS),
            next=tuple(map(self._entry_line, coming)),
            late=await newest([each for each in planned if each.lateness > GRACE]),
            missed=await newest(await recent({Status.MISSED})),
            failed=await newest(failed),
            paused=await shown(Trait.PAUSED),
            unarmed=await shown(Trait.UNARMED),
            problems=tuple(dict.fromkeys(problems)),  # the engine's facts have the broken ones, too
            disk=engine.disk,
        )

    async def _open(self) -> list[Filed]:
        return [self._current(each) for each in await receipts_of(self.ledger, states.OPEN)]

    async def agents(
        self, *, limit: int, pending: Sequence[Filed] | None = None
    ) -> list[views.AgentLine]:
        crew = await self.ledger.entries_that_are(Trait.AGENT, limit=limit)
        if pending is None:
            pending = await self._open() if crew else []
        return [await self._agent_line(each, pending) for each in crew]

    async def _agent_line(self, found: Listed, pending: Sequence[Filed]) -> views.AgentLine:
        state, entry = self.agent_state(found.memory), self._entry_line(found)
        own = [each for each in pending if each.entry == found.number]
        page = await self.ledger.receipts(entry=found.number, statuses=states.ENDS, limit=1)
        last = page.receipts[0] if page.receipts else None
        reason = states.NO_REASON if last is None else last.receipt.reason
        return views.shaped(
            views.AgentLine,
            entry.zone,
            entry,
            state,
            agent=entry.title,
            running=any(each.status in GOING for each in own),
            last_run=state.last_run_at,
            next_run=entry.next_at,
            lifecycle=state.position,
            streak=found.streak,
            stuck=found.failures > duration.STUCK_AFTER,
            last_outcome=None if last is None else last.status,
            last_reason=reason or None,
            last_reason_code=reason.code or None,
            held=next((each.receipt.reason for each in own if each.status is Status.HELD), None),
            paused=entry.pause is not None,
        )

    async def _problems(
        self, in_line: Sequence[Filed], agents: Sequence[views.AgentLine], coming: Sequence[Listed]
    ) -> list[str]:
        now, problems = self.clock.now(), []
        if self.machines is not None:
            machines, told = await self.machines(), set()
            for filed in in_line:
                requires = filed.policy.requires
                if filed.status is not Status.WAITING or filed.entry in told:
                    continue
                if not any(machine.suits(requires) for machine in machines):
                    told.add(filed.entry)
                    waits = f"waits: {no_machine(requires)}"
                    problems.append(f"{filed.title} ({filed.origin}) {waits}")
        troubled: dict[int, Listed] = {}
        for trait in (Trait.FAILING, Trait.MISSING):
            some = await self.ledger.entries_that_are(trait, limit=BATCH)
            troubled.update((each.number, each) for each in some)
        for _, each in sorted(troubled.items()):
            name = f"{each.mark.title} ({each.item.origin})"
            if each.failures >= STUCK:
                problems.append(
                    f"{name} failed {each.failures} times in a row; see `horae history`"
                )
            # The next scan removes a missing entry; only the lack of one is a problem.
            if each.missing_at is not None and now - each.missing_at > 5 * PATIENCE:
                since = key_time(each.missing_at)
                problems.append(f"{name} has been missing from its plan since {since}")
        for agent in agents:
            name = f"{agent.agent} ({agent.origin})"
            for trouble, why in agent.troubles.items():
                problems.append(f"{name}: {TROUBLES.get(trouble, trouble)} ({why})")
            problems += [f"{name} cannot tick: {agent.held}"] if agent.held else []
        held = {agent.entry for agent in agents if agent.held}
        listed = {each.number: each for each in coming if each.number not in held}
        unready = {} if self.unready is None else await self.unready(listed.values())
        for number, cause in unready.items():
            found = listed[number]
            problems.append(f"{found.mark.title} ({found.item.origin}) cannot run: {cause}")
        return problems

    async def pause(
        self, entry: views.EntryName, *, note: str = "", until: datetime | timedelta | None = None
    ) -> views.PauseResult:
        now, note = self.clock.now(), one_line(note)
        found = await self.named(entry)
        end = now + until if isinstance(until, timedelta) else until
        if end is not None and end <= now:
            shown = moment_text(end, self._zone_of(found))
            raise views.RequestError(f"{shown} is in the past; name a later time")
        how: dict[str, Any] = {"now": now, "term": self.term, "note": note, "until": end}
        family = await self._family(found)
        done = [await self.ledger.pause(each.number, **how) for each in family]
        if any(each is not None for each in done):
            self.poke()
            skipped = sum(filter(None, done))
            return await self._with_result(found, views.PauseResult, changed=True, skipped=skipped)
        refuse_gone(found)
        if note or end is not None:
            reason = f"the entry is already paused{explain.rest_words(found)}"
            raise views.EntryStateError(found, reason, remedy="resume it before you pause it again")
        return await self._with_result(found, views.PauseResult, changed=False, skipped=0)

    async def resume(self, entry: views.EntryName) -> views.ResumeResult:
        found = await self.named(entry)
        how: dict[str, Any] = {"now": self.clock.now(), "term": self.term}
        family = await self._family(found)
        done = any([await self.ledger.resume(each.number, **how) for each in family])
        if done:
            self.poke()
        else:
            refuse_gone(found)
        return await self._with_result(found, views.ResumeResult, changed=done)

    async def run_now(
        self,
        entry: views.EntryName,
        *,
        note: str = "",
        parent_run: int | None = None,
        idempotency_key: str | None = None,
    ) -> views.ReceiptLine:
        """Request a run now, in addition to the plan; a known key returns its receipt.

        A run inside *parent_run* uses the slot of that run.
        """
        now, parent = self.clock.now(), None
        found = await self.named(entry)
        found = await self._task(found) or found  # a request for an open task dispatches it
        if parent_run is not None:
            inside = await self.run_of(parent_run)
            parent = inside.receipt if inside.ended_at is None else None
        key = f"manual:{self.ids()}"
        if idempotency_key is not None:
            key = f"idem:{checked(idempotency_key, 'an Idempotency-Key')}"
        await self._refuse_unready(found)
        reason = Reason(ReasonCode.REQUESTED, by_words("requested", note))
        asked = Receipt(key, Status.WAITING, reason, now, now, note=one_line(note))
        [line] = await self._file(found, [asked], now, parent)
        return line

    async def retry(
        self, entry: views.EntryName, *, receipt: int | None = None, parent_run: int | None = None
    ) -> views.ReceiptLine:
        """Run an entry again as in a given receipt, or in its last one.

        The scheduled time is the same, if it is still part of the schedule, and so are the title,
        the body and the metadata of a trigger.
        """
        found = await self.named(entry)
        if receipt is None:
            page = await self.ledger.receipts(entry=found.number, limit=1)
            if not page.receipts:
                remedy = f"start a run with `horae run {found.number}`"
                raise views.EntryStateError(found, "the entry has no receipt", remedy=remedy)
            receipt = page.receipts[0].number
        filed = await self.filed(receipt)
        if filed.status in states.OPEN:
            reason = f"receipt {receipt} is {filed.status}; it can be retried after it has ended"
            raise views.RunStateError(filed.title, reason)
        note, key, at = f"retry of receipt {receipt}", filed.receipt.key, filed.receipt.planned_at
        if key.startswith(_TICK):
            return await self.tick(found.mark.title, note=note)
        has_time = states.is_planned(key) or key.startswith("backfill:")
        if has_time and filed.receipt.count == 1 and at + _TINY <= self.clock.now():
            end, name = at + _TINY, f"retry-{receipt}-{self.ids()}"
            if (await self.backfill(entry, start=at, end=end, dry_run=True)).count:
                done = await self.backfill(entry, start=at, end=end, name=name)
                return (await self._lines([await self.filed(done.receipts[0])]))[0]
        made = None if self.again is None else await self.again(filed, note)
        if made is not None:
            return (await self._lines([made]))[0]
        return await self.run_now(entry, note=note, parent_run=parent_run)

    async def tick(self, agent: str, *, note: str = "") -> views.ReceiptLine:
        crew = await self.ledger.entries_that_are(Trait.AGENT, limit=BATCH)
        address = f"agent:{agent}"
        agents = (each for each in crew if agent == each.mark.title or address == each.mark.address)
        # A workflow may have the same title.
        found = next(agents, None) or await self.named(agent)
        await self._refuse_unready(found)
        for _ in range(_TRIES):
            now, entry = self.clock.now(), armed(found)
            rule = entry.rule
            if not isinstance(rule, rules.CadenceRule):
                remedy = f"start a run with `horae run {found.number}`"
                reason = "the entry is not an agent that ticks"
                raise views.EntryStateError(found, reason, remedy=remedy)
            refuse_rest(found)
            going = await self._pending_tick(found)
            if going is not None:
                self.poke()
                return self._line(going, found)
            reason = Reason(ReasonCode.REQUESTED, by_words("requested", note))
            key = f"{_TICK}{rule.ticks + 1}"
            asked = Receipt(key, Status.WAITING, reason, now, now, note=one_line(note))
            # It is filed like a due tick: no other is open until it has ended.
            ended_at = min(now - tick_delay(rule), entry.ended_at or now)
            since = max(now, entry.accounted_to or now)
            rule = structs.replace(rule, first_at=min(rule.first_at, now))
            due = structs.replace(entry, rule=rule)
            step = EntryStep(due, Decision((asked,), since, ended_at))
            filed = await self.ledger.decide([step], now=now, term=self.term)
            if filed:
                self.poke()
                return self._line(filed[0], found)
            found = await self.ledger.entry(found.number) or found
        raise views.EntryStateError(found, "the next tick is being scheduled", remedy="try again")

    async def cancel(
        self, number: int, *, end: Callable[[int, Reason], bool], reason: str = ""
    ) -> views.CancelResult:
        asked = await self.run(number)
        said = Reason(ReasonCode.CANCELLED, by_words("cancelled", reason))
        changed = asked.ended_at is None and end(asked.receipt, said)
        again = asked if changed else await self.run(number)
        if again.ended_at is not None:
            ended, place = moment_text(again.ended_at, again.zone), again.zone
            found = await self.named(str(again.entry))
            waits = await self._waiting(found, place) if again.status in WAITS else ""
            ended = f"run {number} already ended at {ended}{waits}"
            raise views.RunStateError(again.title, ended)
        return views.CancelResult(**structs.asdict(again), changed=changed)

    async def _waiting(
        self, found: Listed, place: str, obstacle: Callable[[int], str] = lambda _: ""
    ) -> str:
        entry, page = found.number, await self._receipts(found, statuses=WAITS, limit=BATCH)
        if not page.receipts:
            return ""
        first = min(page.receipts, key=lambda each: (each.receipt.start_at, each.number))
        count = len(page.receipts)
        what, them = f"receipt {first.number} is waiting", "it"
        if count > 1:
            what, them = f"{count} receipts are waiting", "all of them"
        if first.receipt.start_at > self.clock.now():
            what += f" to start at {moment_text(first.receipt.start_at, place)}"
        elif why := first.receipt.reason if first.status is Status.HELD else obstacle(first.number):
            what += f" ({why})"
        skip = f"to skip {them}, run `horae pause {entry}` and then `horae resume {entry}`"
        return f"; {what}; {explain.approval_way(first) or skip}"

    async def note_edit(self, file: str, what: str) -> views.EditNote:
        facts = {"file": file, "what": what}
        await self.ledger.note("edited", now=self.clock.now(), term=self.term, facts=facts)
        return views.EditNote(file=file, what=what)

    async def prune(self, *, before: datetime, dry_run: bool = False) -> Pruned:
        """Replace old receipts by ranges and delete their details."""
        now = self.clock.now()
        if before > now:
            why = f"{key_time(before)} is in the future; prune needs a past time"
            raise views.RequestError(why)
        return await self.ledger.prune(before=before, now=now, term=self.term, dry_run=dry_run)

    async def _refuse_unready(self, found: Listed) -> None:
        self.refuse_start()
        why = {} if self.unready is None else await self.unready([found])
        if found.number in why and found.is_armed:
            raise views.CannotRunError(found.mark.title, why[found.number])

    async def _file(
        self, found: Listed, receipts: Sequence[Receipt], now: datetime, parent: int | None = None
    ) -> list[views.ReceiptLine]:
        await self._refuse_double(found)
        filed = await self.ledger.add(
            found.number, receipts, now=now, term=self.term, parent=parent
        )
        if len(filed) < len(receipts):
            again = await self.ledger.entry(found.number) or found
            armed(again)
            refuse_rest(again, is_sure=True)
        self.poke()
        return [self._line(each, found) for each in filed]

    async def _pending_tick(self, found: Listed) -> Filed | None:
        page = await self.ledger.receipts(entry=found.number, statuses=states.OPEN, limit=BATCH)
        for each in page.receipts:
            if not each.receipt.key.startswith(_TICK):
                continue
            if each.status in GOING:
                since = moment_text(each.receipt.start_at, self._zone_of(found))
                runs = [run.number for run in await self.ledger.runs_of(each.number)]
                reason = f"a tick has been running since {since}; see `horae logs`"
                raise views.RunStateError(found.mark.title, reason, runs=runs[-1:])
            if each.status is Status.HELD:
                now = self.clock.now()
                why = Reason(ReasonCode.RETRY_REQUESTED, by_words("retry requested"))
                await self.ledger.release(each.number, reason=why, now=now, term=self.term)
            return await self.ledger.receipt(each.number)
        return None

    async def backfill(
        self,
        entry: views.EntryName,
        *,
        start: datetime,
        end: datetime | None = None,
        name: str | None = None,
        dry_run: bool = False,
        progress: Callable[[int, int], None] = lambda *_: None,
    ) -> views.Backfill:
        """File a receipt for every time from *start* to before *end*, oldest first.

        The same *name* gives the same receipts, so an interrupted backfill can be repeated.
        """
        now = self.clock.now()
        found = await self.named(entry)
        item = unpaused(armed(found))  # filing it reports that it is paused
        end = now if end is None else end
        check_calendar(start, end)
        first, last = moment_text(start, item.zone), moment_text(end, item.zone)
        if end > now:
            raise views.RequestError(f"{last} is in the future; a backfill covers only past times")
        if start >= end:
            reason = f"the period is empty: its start ({first}) is not before its end ({last})"
            raise views.RequestError(reason)
        moments = _moments(item, start, end)
        name = self.ids() if name is None else checked(name, "the name of a backfill")
        plan = views.Backfill(
            id=name,
            entry=found.number,
            title=found.mark.title,
            zone=item.zone,
            start=views.zoned(start, item.zone),
            end=views.zoned(end, item.zone),
            dry_run=dry_run,
            count=len(moments),
            moments=tuple(views.zoned(each.at, item.zone) for each in moments),
        )
        if dry_run:
            return plan
        lines: list[views.ReceiptLine] = []
        for begin in range(0, len(moments), BATCH):
            receipts = []
            for each in moments[begin : begin + BATCH]:
                late = f"{explain.length_text(now - each.at)} after the scheduled time"
                why = Reason(ReasonCode.BACKFILL, f"{by_words('requested')}, {late}")
                key = f"backfill:{name}:{key_time(each.at)}"
                # Not before now, so that it does not precede what is due on time.
                receipts.append(Receipt(key, Status.WAITING, why, each.at, now))
            lines += await self._file(found, receipts, now)
            progress(len(lines), len(moments))
        return structs.replace(plan, receipts=tuple(each.receipt for each in lines))


def near_names(word: str, named: Iterable[tuple[str, str]]) -> list[str]:
    from difflib import get_close_matches

    wanted = word.casefold()
    by_case: dict[str, tuple[str, str]] = {}
    for address, title in named:
        ids = [address.removeprefix("id:")] if address.startswith("id:") else []
        for name in (*ids, title):
            by_case[name.casefold()] = name, address
    near = get_close_matches(wanted, by_case, n=6, cutoff=0.6)
    inside = islice((each for each in by_case if wanted and wanted in each), 6)
    meant: dict[str, str] = {}
    for each in (*near, *inside):
        name, address = by_case[each]
        meant.setdefault(address, name)
    return list(meant.values())[:3]


def _cost_line(name: str, runs: Sequence[SpentRun]) -> views.CostLine:
    costs = [each.cost for each in runs if each.cost is not None]
    return views.CostLine(
        name=name,
        runs=len(runs),
        cost=sum(costs) / DOLLAR,
        tokens=sum(each.tokens or 0 for each in runs),
        silent=len(runs) - len(costs),
    )


def runs_until(entry: Entry, start: datetime, end: datetime) -> int:
    """Return how often an entry fires in a period; of an interval, as if runs took no time."""
    if isinstance(entry.rule, rules.CadenceRule):
        return int((end - start) / entry.rule.base)
    many = counted(entry, start, end)
    return sum(1 for _ in project(unpaused(entry), start, end)) if many is None else many


def _coming(found: Listed, *, now: datetime) -> list[Moment]:
    if not isinstance(found.item, Entry) or found.gone_at is not None:
        return []
    entry = found.item
    # What is due and not decided yet comes first.
    since = min(now, entry.accounted_to) if entry.accounted_to is not None else now
    coming = [next_moment(unpaused(entry), since)]
    if entry.pause is not None:
        coming.append(next_moment(entry, now))
    return list(dict.fromkeys(each for each in coming if each is not None))


def check_calendar(*moments: datetime) -> None:
    """Raise an error for a time at either end of the calendar, where zones overflow."""
    if not all(1 < each.year < 9999 for each in moments):
        raise beyond()


def beyond() -> views.RequestError:
    return views.RequestError("the time is out of range; the year must be from 2 to 9998")


def broken_words(found: Listed) -> str:
    name = f"{found.mark.title} ({found.item.origin})"
    if found.broken_at is not None:
        since = key_time(found.broken_at)
        kept = "the last valid version stays armed"
        return f"{name} has been broken since {since}; {kept}: {found.broken}"
    if isinstance(found.item, Entry):
        what = "a part of its text cannot be read and is ignored"
        return f"{name} is armed, but {what}: {found.broken}"
    return f"{name} is not armed: {found.broken}"


def armed(found: Listed) -> Entry:
    refuse_gone(found)
    if isinstance(found.item, Entry):
        return found.item
    reason, origin = found.item.reason, found.item.origin
    shows = f"horae trigger show {origin.trigger}" if origin.trigger else f"horae explain {origin}"
    remedy = f"see `{shows}`"
    raise views.EntryStateError(found, f"the entry is not armed ({reason})", remedy=remedy)


def refuse_gone(found: Listed) -> None:
    if found.gone_at is not None:
        origin = found.item.origin
        remedy = f"add it to {origin.file} again"
        if origin.trigger:
            remedy = f"add it again with `horae trigger add {origin.trigger}`"
        elif isinstance(found.item, Entry) and found.item.work is rules.Work.DISPATCH:
            remedy = "add a new task with `horae task add`"
        raise views.EntryStateError(found, explain.gone_words(found), remedy=remedy)


def refuse_rest(found: Listed, *, is_sure: bool = False) -> None:
    if is_sure or found.pause is not None:
        remedy = f"resume it with `horae resume {found.number}` first"
        reason = f"the entry is paused{explain.rest_words(found)}"
        raise views.EntryStateError(found, reason, remedy=remedy)


def checked(name: str, what: str) -> str:
    if not 0 < len(name) <= 200 or not name.isprintable():
        raise views.RequestError(f"{what} must have 1 to 200 printable characters")
    return name


def _moments(entry: Entry, start: datetime, end: datetime) -> list[Moment]:
    moments = decided(project(entry, start - TINY, end - TINY))
    found = list(islice(moments, MOST + 1))
    if len(found) > MOST:
        rest = counted(entry, found[-1].at, end - TINY)
        if rest is None:
            rest = sum(1 for _ in moments)
        raise views.RequestError(
            f"the period has {len(found) + rest:,} scheduled times, and a backfill can have "
            f"at most {MOST:,}; choose a shorter period"
        )
    return found
