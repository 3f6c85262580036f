"""`simulate`: what would run in the weeks to come, and what a night without power would cost."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from functools import partial
from hashlib import sha256
from itertools import chain, groupby
from statistics import median
from time import monotonic
from typing import Final, NamedTuple, TextIO
from zoneinfo import ZoneInfo

import click
from msgspec import structs

from horae.cli import connection, moments, options, output as printing
from horae.cli.output import Form, Output, echo, print_json, print_line
from horae.cli.plan_root import KnownEntries, PlanView, When
from horae.cli.sources import Sources, plan_root
from horae.config import load
from horae.core import decide, gate
from horae.core.budget import DOLLAR, Unit, expected
from horae.core.entry import Entry, Origin, Unarmed
from horae.core.explain import stamp
from horae.core.ports import Listed, receipts_of
from horae.core.receipt import Filed, Status
from horae.core.source import Scan, Scanned
from horae.core.text import clock_text, in_zone, moment_text, wall_text
from horae.extras.simulate import Outage, Simulation, count_times
from horae.sources.plans.arming import doubles, scan_plan
from horae.store import arming, sqlite
from horae.store.ledger import SqlLedger
from horae.timing.duration import DurationError, format_duration, parse_duration
from horae.timing.zone import local

_ORG: Final = "org"  # the source that plans are of
_PATIENCE: Final = 1.0  # seconds without a bar
_PACE: Final = 0.1
_MOST: Final = 2_000_000  # scheduled times, 15 µs each; --jsonl has no limit
_ODD: Final = 10_000  # receipts in one JSON object
_SHOWN: Final = 6  # so many receipts of a day have a line each
_LAST: Final = 20  # runs of an entry that tell how long the next one takes
_TIMED: Final = frozenset({Status.DONE, Status.NO_WORK, Status.FAILED})
_RAN_WELL: Final = "ran"
_FIRST: Final = (_RAN_WELL, "late", "failed")  # of the totals
_RAN: Final = frozenset(
    {Status.DONE, Status.NO_WORK, Status.FAILED, Status.KILLED, Status.INTERRUPTED}
)


@dataclass(slots=True)
class PlanHistory:
    scanned: tuple[Scanned, ...] = ()
    entries: dict[str, Entry] = field(default_factory=dict)
    lengths: dict[Origin, timedelta] = field(default_factory=dict)
    costs: dict[Origin, float] = field(default_factory=dict)  # in US dollars, of one run

    @classmethod
    def of(cls, plans: Mapping[str, Sequence[Scanned]], view: PlanView) -> PlanHistory:
        history = cls()
        numbers: dict[KnownEntries, dict[int, Origin]] = {}
        for name, scanned in plans.items():
            known = view.of_file(name)
            if known is None:
                continue
            items = [known.joined(one.item, is_broken=bool(one.broken)) for one in scanned]
            # As they were while they were good: the simulated engine reads them broken.
            for one, item in zip(scanned, items, strict=True):
                history.scanned += (one._replace(item=item, broken="") if one.broken else one,)
                if isinstance(item, Entry) and item.number:
                    history.entries[item.address] = item
                    numbers.setdefault(known, {})[item.number] = item.origin
        for known, origins in numbers.items():
            lengths, costs = connection.ask(known.place, partial(_runs_of, entries=origins))
            history.lengths |= {origins[number]: length for number, length in lengths.items()}
            history.costs |= {origins[number]: cost for number, cost in costs.items()}
        return history

    async def ledger(self, now: datetime) -> sqlite.SqliteLedger:
        ledger = await sqlite.SqliteLedger.in_memory()
        if not self.entries:
            return ledger
        await ledger.scan(_ORG, Scan(self.scanned), now=now, term=1)
        for each in await ledger.entries():
            was, item = self.entries.get(each.mark.address), each.item
            if was is None or not isinstance(item, Entry):
                continue
            if was.ended_at is not None and was.ended_at <= now:
                begun = structs.replace(item, ended_at=was.ended_at)
                await ledger.write(1, partial(arming.begin_rule, entry=begun, now=now))
            if (pause := was.pause) is not None and pause.covers(now):
                own = {"note": pause.note, "until": pause.until}
                await ledger.pause(each.number, now=pause.at, term=1, **own)
        return ledger


async def _runs_of(
    ledger: SqlLedger, *, entries: Collection[int]
) -> tuple[dict[int, timedelta], dict[int, float]]:
    """Return how long the last runs of entries took, and what they cost if they say so."""
    found = {}
    usual = await ledger.usual([*entries])
    said = {number: last for number, last in usual.items() if any(each.cost for each in last)}
    costs = {number: expected(last, Unit.DOLLARS) / DOLLAR for number, last in said.items()}
    for number in entries:
        page = await ledger.receipts(entry=number, statuses=_TIMED, limit=_LAST)
        runs = [run for each in page.receipts for run in await ledger.runs_of(each.number)]
        ended = [(run.ended_at, run.started_at) for run in runs if run.outcome in _TIMED]
        took = [(end - start).total_seconds() for end, start in ended if end is not None]
        if took:
            found[number] = timedelta(seconds=max(0.0, median(took)))
    return found, costs


class SimulatedReceipt(NamedTuple):
    at: datetime
    what: str
    times: int
    filed: Filed

    @classmethod
    def of(cls, filed: Filed) -> SimulatedReceipt:
        what = filed.status.value
        if filed.status in _RAN:
            is_bad = filed.status not in {Status.DONE, Status.NO_WORK}
            what = "late" if filed.lateness > decide.GRACE else "failed" if is_bad else _RAN_WELL
        return cls(filed.receipt.planned_at, what, filed.receipt.count, filed)

    def data(self, zone_name: str) -> dict[str, object]:
        filed, receipt, reason = self.filed, self.filed.receipt, self.filed.receipt.reason
        late = format_duration(max(timedelta(0), filed.lateness))
        times = {"at": stamp(self.at, zone_name), "through": stamp(receipt.through_at, zone_name)}
        what = {"count": self.times, "what": self.what, "title": filed.title}
        where = {"file": filed.origin.file, "line": filed.origin.line, "key": receipt.key}
        end = {"status": filed.status.value, "late": late, "reason": reason}
        return {**times, **what, **where, **end, "reason_code": reason.code or None}


class SimulatedDay(NamedTuple):
    day: date
    counts: Mapping[str, int]
    odd: Sequence[SimulatedReceipt]  # all that did not run as planned


@dataclass(eq=False, slots=True)
class _Bill:
    """What simulated runs are expected to cost: each as the last ones of its entry."""

    costs: Mapping[Origin, float]
    cost: float = 0.0
    runs: int = 0

    def seen(self, receipt: SimulatedReceipt) -> SimulatedReceipt:
        cost = self.costs.get(receipt.filed.origin)
        if cost is not None and receipt.filed.status in _RAN:
            self.cost, self.runs = self.cost + cost, self.runs + 1
        return receipt

    @property
    def words(self) -> str:
        runs = "1 run" if self.runs == 1 else f"{self.runs} runs"
        return f"${self.cost:,.2f} for {runs}, each at the median of its entry's last runs"


def _by_day(receipts: Iterable[SimulatedReceipt], place: ZoneInfo) -> Iterator[SimulatedDay]:
    for day, group in groupby(receipts, lambda each: local(each.at, place).date()):
        counts, odd = Counter[str](), []
        for each in group:
            counts[each.what] += each.times
            if each.what != _RAN_WELL:
                odd.append(each)
        yield SimulatedDay(day, counts, odd)


async def _taken_over(
    history: PlanHistory, items: Sequence[Scanned], *, now: datetime
) -> tuple[list[Listed], list[Filed]]:
    """Return what a ledger knows that has taken over the plans."""
    async with connection.opened(history.ledger(now)) as ledger:
        await ledger.scan(_ORG, Scan(tuple(items)), now=now, term=1, patience=timedelta(0))
        entries = await ledger.entries()
        known = {each.number: history.entries.get(each.mark.address) for each in entries}
        filed = await receipts_of(ledger, ())
        return entries, [each for each in filed if not _has_receipt(known[each.entry], each)]


def _has_receipt(known: Entry | None, filed: Filed) -> bool:
    """Tell whether the ledger of the plans has decided what a new one decides again."""
    accounted_to = None if known is None else known.accounted_to
    return accounted_to is not None and filed.receipt.planned_at <= accounted_to


@click.command()
@options.paths_argument
@options.number_option("--days", default=90, most=3660, text="How many days.")
@click.option("--from", "start", metavar="TIME", help="The start; default: now.")
@options.option(
    "--outage TIME/LENGTH",
    "Simulate an outage, such as 2026-04-03T00:00/3d; repeat for several.",
    name="outages",
    multiple=True,
)
@options.tz_option
@click.option("--trace", type=click.File("w"), help="Write every event to this file.")
@printing.form_options
def simulate(
    paths: tuple[str, ...],
    *,
    days: int,
    start: str | None,
    outages: tuple[str, ...],
    tz: str | None,
    trace: TextIO | None,
    output: Output,
) -> int:
    """Simulate plans without running anything.

    Show day by day what would run, run late, be coalesced or missed. Times, policies and slots
    follow the rules of the engine. If the plan has a ledger, its pauses and last runs count, and
    each run takes as long and costs as much as recent runs of its entry; otherwise a run ends at
    once. At most 2,000,000 scheduled times are simulated, or any number with --jsonl.
    """
    now, place = moments.moment_and_zone(start, tz=tz, root=plan_root(paths))
    sources = Sources(paths, output)
    plans = {
        each.name: scan_plan(each.plan, file=each.name, zone_name=place.key) for each in sources
    }
    if not plans:
        return sources.exit_code
    settings = load(plan_root(paths))
    view = PlanView(paths, output, When(now, place.key), knows="ledger")
    history, items = PlanHistory.of(plans, view), [*chain.from_iterable(plans.values())]
    capacity = gate.Capacity(settings.gate_slots, settings.crew_max_concurrent)
    breaks = [_outage(each, place) for each in outages]
    start_at = now.astimezone(UTC)
    for text, gap in zip(outages, breaks, strict=True):
        if gap.at + gap.length <= start_at or gap.at >= start_at + timedelta(days=days):
            period = f"{days} days from {moment_text(start_at, place.key)}"
            raise click.UsageError(f"--outage {text} is outside the simulated {period}.")
    known, filed = asyncio.run(_taken_over(history, items, now=start_at))
    if output.form is not Form.JSONL:
        _refuse_too_many(count_times(known, start_at, timedelta(days=days)), days)
    simulation = Simulation(
        known,
        start_at,
        timedelta(days=days),
        capacity,
        filed=filed,
        outages=breaks,
        lengths=history.lengths,
    )
    if trace is not None:
        simulation.trace = lambda line: trace.write(f"{line}\n")
    bill = _Bill(history.costs)
    receipts = map(bill.seen, map(SimulatedReceipt.of, simulation.run()))
    match output.form:
        case Form.JSONL:
            for each in receipts:
                print_line(each.data(place.key))
        case Form.JSON:
            with _progress() as simulation.progress:
                data = _data(simulation, receipts, place)
            data |= {"cost": round(bill.cost, 6)} if history.costs else {}
            print_json(data)
        case Form.TABLE:
            with _progress() as simulation.progress:
                lines = [*_lines(simulation, receipts, place)]
            lines += [f"expected cost: {bill.words}"] if bill.runs else []
            echo("\n".join(lines))
    unarmed = [one.item for one in items if isinstance(one.item, Unarmed) and one.item.is_error]
    # Of one that is known the last valid version is simulated.
    wrong = {each.origin for each in unarmed if each.address not in history.entries}
    if wrong := wrong.union(each.origin for found in plans.values() for each in doubles(found)):
        count = "1 entry is" if len(wrong) == 1 else f"{len(wrong)} entries are"
        echo(f"horae: {count} not armed because of errors; see `horae check`", err=True)
    return sources.exit_code or view.ledger_code


def _refuse_too_many(times: int, days: int) -> None:
    if times > _MOST:
        fewer = days * _MOST // times
        remedy = f"use --days {fewer}" if fewer else "name fewer plan files"
        what = f"the plans have {times:,} scheduled times in {days} days"
        limit = f"at most {_MOST:,} are simulated"
        raise click.UsageError(f"{what}; {limit}: {remedy}, or --jsonl, which has no limit.")


@contextmanager
def _progress() -> Iterator[Callable[[float], None]]:
    """Show on a terminal how far a simulation is."""
    with printing.progress_bar("simulating") as bar:
        shown_at = monotonic() + _PATIENCE

        def show(part: float) -> None:
            nonlocal shown_at
            if bar is not None and monotonic() >= shown_at:  # there are thousands of events
                shown_at = monotonic() + _PACE
                bar(part)

        yield show


def _outage(text: str, place: ZoneInfo) -> Outage:
    at, slash, length = text.rpartition("/")
    if not slash:
        wanted = "write a time and a duration, as in 2026-04-03T00:00/3d."
        raise click.UsageError(f"--outage {text} has no duration; {wanted}")
    try:
        return Outage(moments.parse_moment(at, place), parse_duration(length))
    except DurationError as error:
        raise click.UsageError(f"--outage {text}: {error}") from None


def _lines(
    simulation: Simulation, receipts: Iterable[SimulatedReceipt], place: ZoneInfo
) -> Iterator[str]:
    end = simulation.start + simulation.length
    yield f"{moment_text(simulation.start, place.key)} to {moment_text(end, place.key)}"
    for outage in simulation.outages:
        at, length = moment_text(outage.at, place.key), format_duration(outage.length)
        yield f"no engine from {at} for {length}"
    totals = Counter[str]()
    for day, counts, odd in _by_day(receipts, place):
        totals.update(counts)
        shown = wall_text(datetime.combine(day, datetime.min.time())).rpartition(" ")[0]
        yield f"\n{shown}  {_totals(counts)}"
        groups: dict[tuple[object, ...], list[SimulatedReceipt]] = {}  # with one line each
        for each in odd:
            # Of those that ran late each was late by another length.
            own = each.filed.number if each.what == "late" else each.filed.receipt.reason
            groups.setdefault((each.what, each.filed.entry, own), []).append(each)
        for alike in [*groups.values()][:_SHOWN]:
            yield f"  {_line(alike, place)}"
        if len(groups) > _SHOWN:
            yield f"  and {len(groups) - _SHOWN} more"
    count = "1 day" if simulation.length.days == 1 else f"{simulation.length.days} days"
    yield f"\n{count}: {_totals(totals)}"


def _line(alike: Sequence[SimulatedReceipt], place: ZoneInfo) -> str:
    first, last = alike[0], alike[-1]
    filed, count = first.filed, sum(each.times for each in alike)
    times = f" ({count:,} times)" if count > 1 else ""
    lateness = timedelta(seconds=int(filed.lateness.total_seconds()))
    late = f" by {format_duration(lateness)}" if first.what == "late" else ""
    clock = clock_text(local(first.at, place))
    through = f"–{clock_text(local(last.at, place))}" if last is not first else ""
    why = f"  ({in_zone(filed.receipt.reason, place.key)})" if filed.status not in _RAN else ""
    return f"{clock}{through:<6}  {first.what}{late}: {filed.title}{times}  {filed.origin}{why}"


def _totals(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{n:,} {what}" for what, n in _in_order(counts).items()) or "nothing"


def _in_order(counts: Mapping[str, int]) -> dict[str, int]:
    names = dict.fromkeys((*_FIRST, *sorted(counts)))
    return {what: counts[what] for what in names if counts.get(what)}


def _data(
    simulation: Simulation, receipts: Iterable[SimulatedReceipt], place: ZoneInfo
) -> dict[str, object]:
    digest, totals, days, count = sha256(), Counter[str](), [], 0
    odd: list[dict[str, object]] = []

    def seen() -> Iterator[SimulatedReceipt]:
        for each in receipts:
            filed = each.filed
            digest.update(f"{filed.number} {filed.receipt.key} {each.what}\n".encode())
            yield each

    for day in _by_day(seen(), place):
        totals.update(day.counts)
        days.append({"day": day.day.isoformat(), **_in_order(day.counts)})
        odd += [each.data(place.key) for each in day.odd[: _ODD - len(odd)]]
        count += len(day.odd)
    start, length = stamp(simulation.start, place.key), simulation.length.days
    told = {"from": start, "days": length, "zone": place.key}
    return {
        **told,
        "totals": _in_order(totals),
        "by_day": days,
        "odd": odd,
        "odd_omitted": count - len(odd),
        "digest": digest.hexdigest(),
    }
