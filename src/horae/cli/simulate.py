"""`simulate`: what would run in the weeks to come, and what a night without power would cost."""

from __future__ import annotations

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
from horae.cli.plan_root import PlanView, When
from horae.cli.sources import plan_root
from horae.config import load
from horae.core import decide, gate
from horae.core.budget import DOLLAR, Unit, expected
from horae.core.entry import Entry, Origin, Unarmed
from horae.core.explain import stamp
from horae.core.ports import Listed
from horae.core.receipt import Filed, Status
from horae.core.text import clock_text, in_zone, moment_text, wall_text
from horae.extras.simulate import Outage, Simulation, count_times
from horae.sources.plans.arming import entries_of
from horae.store.ledger import SqlLedger
from horae.timing.duration import DurationError, format_duration, parse_duration
from horae.timing.zone import local

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


@dataclass(frozen=True, slots=True)
class PlanHistory:
    """What ledgers know that have taken over the plans at the start."""

    entries: list[Listed] = field(default_factory=list)
    filed: list[Filed] = field(default_factory=list)
    lengths: dict[Origin, timedelta] = field(default_factory=dict)
    costs: dict[Origin, float] = field(default_factory=dict)  # in US dollars, of one run

    @classmethod
    def of(cls, view: PlanView, *, now: datetime) -> PlanHistory:
        history = cls()
        for place, root in enumerate(view.roots):
            apart = place << 32  # two ledgers have the same numbers
            known: dict[int, Origin] = {}
            for each in view.listed(root):
                if isinstance(item := root.item(each), Entry):
                    if item.number:
                        known[item.number] = item.origin
                    item = _as_of(item, apart + each.number, now)
                    own = {"number": item.number, "item": item, "pause": item.pause}
                    history.entries.append(structs.replace(each, **own))
            # About known ones more is decided than in a simulation.
            for filed in (each for each in root.filed if each.entry > root.known_to):
                own = {"number": apart + filed.number, "entry": apart + filed.entry}
                history.filed.append(structs.replace(filed, **own))
            if known and root.place is not None:
                lengths, costs = connection.ask(root.place, partial(_runs_of, entries=known))
                history.lengths.update((known[each], length) for each, length in lengths.items())
                history.costs.update((known[each], cost) for each, cost in costs.items())
        return history


def _as_of(entry: Entry, number: int, now: datetime) -> Entry:
    """Return an entry as if an engine had decided about it up to *now*."""
    ended_at = entry.ended_at if entry.ended_at is None or entry.ended_at <= now else None
    pause = entry.pause if entry.pause is not None and entry.pause.covers(now) else None
    own = {"accounted_to": now, "ended_at": ended_at, "pause": pause, "number": number}
    return structs.replace(entry, **own)


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
    once. The agents, tasks and triggers of a DIR are simulated, too; each tick of an agent
    counts as done. At most 2,000,000 scheduled times are simulated, or any number with --jsonl.
    """
    now, place = moments.moment_and_zone(start, tz=tz, root=plan_root(paths))
    view = PlanView(paths, output, When(now, place.key), knows="ledger")
    history = PlanHistory.of(view, now=now.astimezone(UTC))
    if not view.plans and not history.entries:
        return view.exit_code
    settings = load(plan_root(paths))
    capacity = gate.Capacity(settings.gate_slots, settings.crew_max_concurrent)
    breaks = [_outage(each, place) for each in outages]
    start_at = now.astimezone(UTC)
    for text, gap in zip(outages, breaks, strict=True):
        if gap.at + gap.length <= start_at or gap.at >= start_at + timedelta(days=days):
            period = f"{days} days from {moment_text(start_at, place.key)}"
            raise click.UsageError(f"--outage {text} is outside the simulated {period}.")
    if output.form is not Form.JSONL:
        _refuse_too_many(count_times(history.entries, start_at, timedelta(days=days)), days)
    simulation = Simulation(
        history.entries,
        start_at,
        timedelta(days=days),
        capacity,
        filed=history.filed,
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
    # Of one that is known the last valid version is simulated.
    armed = {each.item.origin for each in history.entries}
    own = {"zone_name": place.key}
    found = (entries_of(each.plan, file=each.name, **own) for each in view.plans.values())
    items = chain.from_iterable(found)
    wrong = [e for e in items if isinstance(e, Unarmed) and e.is_error and e.origin not in armed]
    if wrong:
        count = "1 entry is" if len(wrong) == 1 else f"{len(wrong)} entries are"
        echo(f"horae: {count} not armed because of errors; see `horae check`", err=True)
    return view.exit_code


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
