"""`simulate`: what would run in the weeks to come, and what a night without power would cost."""

from __future__ import annotations

import sys
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta
from functools import partial
from itertools import groupby
from time import monotonic
from typing import TYPE_CHECKING, Final, NamedTuple

import click

from horae.cli.desk import run_lengths
from horae.cli.known import Ledgers
from horae.cli.moments import moment_and_zone, parse_moment
from horae.cli.options import paths_argument, tz_option
from horae.cli.output import Form, Output, echo, form_options, print_json, print_line
from horae.cli.sources import Sources, plan_root
from horae.config import load
from horae.core.arming import scan_plan
from horae.core.decide import GRACE, Status
from horae.core.entry import Entry
from horae.core.source import Scan
from horae.core.text import clock_text, moment_text, wall_text
from horae.errors import Exit
from horae.extras.simulate import Fault, Level, Outage, Setting, World
from horae.store.arming import begin_rule
from horae.store.sqlite import SqliteLedger
from horae.timing.duration import DurationError, format_duration, parse_duration
from horae.timing.rfc3339 import format_with_offset
from horae.timing.zone import local, zone

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from typing import TextIO
    from zoneinfo import ZoneInfo

    from horae.cli.known import Known
    from horae.cli.sources import Source
    from horae.core.arming import Scanned
    from horae.core.entry import Origin
    from horae.core.ports import Filed, Ledger
    from horae.extras.simulate import Verdict

_ORG: Final = "org"  # the source that plans are of
_PATIENCE: Final = 1.0  # seconds without a bar
_PACE: Final = 0.1
_LINE_PACE: Final = 5.0  # seconds between two lines where there is no terminal
_SHOWN: Final = 6  # so many receipts of a day have a line each
_RAN: Final = frozenset(
    {Status.DONE, Status.NO_WORK, Status.FAILED, Status.KILLED, Status.INTERRUPTED}
)


class Memory:
    """Ledgers that are forgotten when the command ends; they begin with what is known of plans."""

    def __init__(self, past: Past, *, start: datetime) -> None:
        self._past = past
        self._start = start

    async def open(self) -> Ledger:
        """Return a ledger that knows which entries are paused, and when their last runs ended."""
        ledger = await SqliteLedger.in_memory()
        if not self._past.entries:
            return ledger
        now = self._start
        await ledger.scan(_ORG, Scan(self._past.scanned), now=now, term=1)
        for each in await ledger.entries():
            was, item = self._past.entries.get(each.mark.address), each.item
            if was is None or not isinstance(item, Entry):
                continue
            if was.ended_at is not None and was.ended_at <= now:
                begun = replace(item, ended_at=was.ended_at)
                await ledger.write(1, partial(begin_rule, entry=begun, now=now))
            pause = was.pause
            if pause is not None and pause.covers(now):
                until, note = pause.until, pause.note
                await ledger.pause(each.number, now=pause.at, term=1, note=note, until=until)
        return ledger

    async def close(self, ledger: Ledger) -> None:
        assert isinstance(ledger, SqliteLedger)
        await ledger.close()

    async def copy(self, ledger: Ledger) -> object:
        """Return nothing: no backup is brought back here."""
        return ledger

    async def restore(self, copy: object, *, now: datetime) -> Ledger:
        """Bring back no backup: the faults that ask for one are not simulated here."""
        raise AssertionError(f"a backup is requested at {now}: {copy}")


@dataclass(slots=True)
class Past:
    """What ledgers know of some plans: entries by their address, and how long their runs took."""

    scanned: tuple[Scanned, ...] = ()
    entries: dict[str, Entry] = field(default_factory=dict)
    lengths: dict[Origin, timedelta] = field(default_factory=dict)

    @classmethod
    def of(cls, plans: Sequence[Source], ledgers: Ledgers, *, zone_name: str) -> Past:
        """Return what is known of plans; nothing if there is no ledger."""
        past = cls()
        numbers: dict[Known, dict[int, Origin]] = {}
        for each in plans:
            known = ledgers.of_file(each.name)
            if known is None:
                continue
            scanned = scan_plan(each.plan, file=each.name, zone_name=zone_name)
            items = [known.joined(one.item, is_broken=bool(one.broken)) for one in scanned]
            # As they were while they were good: the simulated engine reads them broken.
            past.scanned += tuple(
                replace(one, item=item, broken="") if one.broken else one
                for one, item in zip(scanned, items, strict=True)
            )
            for item in items:
                if isinstance(item, Entry) and item.number:
                    past.entries[item.address] = item
                    numbers.setdefault(known, {})[item.number] = item.origin
        for known, origins in numbers.items():
            for number, length in run_lengths(known.place, origins).items():
                past.lengths[origins[number]] = length
        return past


class What(NamedTuple):
    """One receipt, as a rehearsal tells of it."""

    at: datetime
    what: str
    moments: int
    filed: Filed

    @classmethod
    def of(cls, filed: Filed) -> What:
        """Return what became of a receipt: it ran, or ran late, or did not run and how."""
        what = filed.status.value
        if filed.status in _RAN:
            is_bad = filed.status not in {Status.DONE, Status.NO_WORK}
            what = "late" if filed.lateness > GRACE else "failed" if is_bad else "ran"
        return cls(filed.receipt.planned_at, what, filed.receipt.count, filed)

    def data(self, place: ZoneInfo) -> dict[str, object]:
        receipt, through = self.filed.receipt, self.filed.receipt.through_at
        return {
            "at": format_with_offset(self.at.astimezone(place)),
            "through": through and format_with_offset(through.astimezone(place)),
            "count": self.moments,
            "what": self.what,
            "title": self.filed.title,
            "file": self.filed.origin.file,
            "line": self.filed.origin.line,
            "key": receipt.key,
            "status": self.filed.status.value,
            "late": format_duration(max(timedelta(0), self.filed.lateness)),
            "reason": receipt.reason,
            "reason_code": receipt.reason.code or None,
        }


@dataclass(slots=True)
class Rehearsal:
    """All that happened, gathered when it is over."""

    place: ZoneInfo
    receipts: list[What] = field(default_factory=list)

    async def gather(self, world: World) -> None:
        """Take over what the world's ledger holds."""
        cursor = None
        while True:
            page = await world.ledger.receipts(limit=1000, cursor=cursor)
            self.receipts += map(What.of, page.receipts)
            cursor = page.cursor
            if cursor is None:
                break
        self.receipts.sort(key=lambda each: (each.at, each.filed.number))

    def days(self) -> Iterator[tuple[date, list[What]]]:
        """Yield each day on which something came, with what came."""
        for day, group in groupby(self.receipts, key=lambda each: self._day(each.at)):
            yield day, list(group)

    def _day(self, at: datetime) -> date:
        return local(at, self.place).date()


@click.command()
@paths_argument
@click.option(
    "--days",
    default=90,
    show_default=True,
    type=click.IntRange(1, 3660),
    metavar="N",
    help="How many days.",
)
@click.option("--from", "start", metavar="T", help="The start; default: now.")
@click.option(
    "--outage",
    "outages",
    metavar="T/LENGTH",
    multiple=True,
    help="Simulate an outage, such as 2026-04-03T00:00/3d; repeat for several.",
)
@click.option(
    "--seed",
    type=click.IntRange(0),
    metavar="N",
    help="The seed of the simulated order and faults.",
)
@click.option(
    "--faults",
    type=click.Choice([level.value for level in Level]),
    default=Level.NONE.value,
    show_default=True,
    help="How many faults to inject: none, some of each kind, or as the seed decides.",
)
@tz_option
@click.option("--trace", type=click.File("w"), help="Write every event to this file.")
@form_options
def simulate(
    paths: tuple[str, ...],
    *,
    days: int,
    start: str | None,
    outages: tuple[str, ...],
    seed: int | None,
    faults: str,
    tz: str | None,
    trace: TextIO | None,
    form: str | None,
) -> int:
    """Simulate plans without running anything.

    Show day by day what would run, run late, be coalesced or missed. Engine, rules and ledger
    are the real ones with a simulated clock. If the plan has a ledger, pauses and last runs
    count, and a run takes as long as the last ones took; else it ends at once. With --seed and
    --faults faults are injected, and every guarantee of the engine is checked. With --seed and
    no paths the plans are generated too.

    An entry that runs every minute makes a simulation slow: shorten it with --days.
    """
    output = Output.of(form)
    if faults != Level.NONE and seed is None:
        raise click.UsageError("--faults needs --seed, so that the result can be reproduced.")
    now, place = moment_and_zone(start, tz=tz, root=plan_root(paths))
    sources = Sources(paths, output)
    is_made_up = seed is not None and not paths
    plans = [] if is_made_up else list(sources)
    files = None if is_made_up else {each.name: each.plan.text() for each in plans}
    if files is not None and not files:
        return sources.exit_code
    settings = load(plan_root(paths))
    ledgers = Ledgers(paths, output, zone_name=place.key, is_engine_asked=False)
    past = Past.of(plans, ledgers, zone_name=place.key)
    setting = Setting(
        timedelta(days=days),
        seed=seed,
        level=Level(faults),
        start=None if is_made_up and start is None else now,
        files=files,
        zone=place.key,
        outages=tuple(_outage(each, place) for each in outages),
        without=(Fault.RESTORE,),
        slots=settings.gate_slots,
        crew=settings.crew_max_concurrent,
        lengths=past.lengths,
    )
    rehearsal = Rehearsal(place)
    with _progress(days, says=output.form is Form.TABLE) as show:

        def tell(line: str) -> None:
            show((world.clock.now() - world.start) / setting.length)
            if trace is not None:
                trace.write(f"{line}\n")

        memory = Memory(past, start=now.astimezone(UTC))
        world = World(setting, memory, audit=rehearsal.gather, trace=tell)
        verdict = world.run()
    _print(rehearsal, verdict, world.start, output)
    if verdict.broken is not None:
        return Exit.FINDINGS
    return sources.exit_code or ledgers.exit_code


@contextmanager
def _progress(days: int, *, says: bool) -> Iterator[Callable[[float], None]]:
    """Show how far a simulation is: a bar on a terminal, else a line now and then if it *says* so.

    A program that reads JSON gets no lines among its errors.
    """
    if not sys.stderr.isatty():
        yield _lines(days) if says else lambda _: None
        return
    from rich.console import Console
    from rich.progress import Progress

    bar = Progress(console=Console(stderr=True), transient=True)
    task, shown_at = bar.add_task("simulating", total=1.0), monotonic() + _PATIENCE

    def show(part: float) -> None:
        nonlocal shown_at
        if monotonic() >= shown_at:  # rarely: there are thousands of events
            shown_at = monotonic() + _PACE
            bar.start()
            bar.update(task, completed=min(part, 1.0))

    try:
        yield show
    finally:
        if bar.live.is_started:  # or it would leave an empty line
            bar.stop()


def _lines(days: int) -> Callable[[float], None]:
    """Return what prints how many days are simulated, at most every five seconds."""
    shown_at = monotonic() + _LINE_PACE

    def show(part: float) -> None:
        nonlocal shown_at
        if monotonic() >= shown_at:
            shown_at = monotonic() + _LINE_PACE
            echo(f"horae: simulating, {int(days * min(part, 1.0))} of {days} days so far", err=True)

    return show


def _outage(text: str, place: ZoneInfo) -> Outage:
    at, slash, length = text.rpartition("/")
    try:
        if slash:
            return Outage(parse_moment(at, place), parse_duration(length))
    except DurationError as error:
        raise click.UsageError(f"--outage {text}: {error}") from None
    raise click.UsageError(
        f"--outage {text}: write a time and a duration, as in 2026-04-03T00:00/3d."
    )


def _print(rehearsal: Rehearsal, verdict: Verdict, start: datetime, output: Output) -> None:
    """Print what happened, for people or for programs."""
    place = rehearsal.place
    match output.form:
        case Form.TABLE:
            _print_days(rehearsal, verdict, start)
        case Form.JSON:
            print_json(_data(rehearsal, verdict, start))
        case Form.JSONL:
            for each in rehearsal.receipts:
                print_line(each.data(place))
    if verdict.broken is not None and output.form is not Form.JSON:
        echo(f"horae: {verdict}", err=True)


def _print_days(rehearsal: Rehearsal, verdict: Verdict, start: datetime) -> None:
    """Print each day, and under it what did not run in its time."""
    setting, place = verdict.setting, rehearsal.place
    end = start + setting.length
    name = place.key
    echo(f"{moment_text(start, name)} to {moment_text(end, name)}")
    for outage in setting.outages:
        length = format_duration(outage.length)
        echo(f"no engine from {moment_text(outage.at, name)} for {length}")
    for day, group in rehearsal.days():
        shown = wall_text(datetime.combine(day, datetime.min.time())).rpartition(" ")[0]
        echo(f"\n{shown}  {_totals(group)}")
        odd = list(_alike(each for each in group if each.what != "ran"))
        for alike in odd[:_SHOWN]:
            echo(f"  {_line(alike, place)}")
        if len(odd) > _SHOWN:
            echo(f"  and {len(odd) - _SHOWN} more")
    kept = "all guarantees were kept" if verdict.broken is None else "a guarantee was broken"
    days = "1 day" if setting.length.days == 1 else f"{setting.length.days} days"
    echo(f"\n{days}: {_totals(rehearsal.receipts)}; {kept}")


def _alike(receipts: Iterable[What]) -> Iterator[list[What]]:
    """Yield the receipts of a day of which one can be said what can be said of the other."""
    groups: dict[tuple[object, ...], list[What]] = {}
    for each in receipts:
        # Of those that ran late each was late by another length.
        own = each.filed.number if each.what == "late" else each.filed.receipt.reason
        groups.setdefault((each.what, each.filed.entry, own), []).append(each)
    yield from groups.values()


def _line(alike: Sequence[What], place: ZoneInfo) -> str:
    first, last = alike[0], alike[-1]
    filed, moments = first.filed, sum(each.moments for each in alike)
    times = f" ({moments} times)" if moments > 1 else ""
    late = f" by {format_duration(_whole(filed.lateness))}" if first.what == "late" else ""
    clock = clock_text(local(first.at, place))
    through = f"–{clock_text(local(last.at, place))}" if last is not first else ""
    why = f"  ({filed.receipt.reason})" if filed.status not in _RAN else ""
    return f"{clock}{through:<6}  {first.what}{late}: {filed.title}{times}  {filed.origin}{why}"


def _whole(length: timedelta) -> timedelta:
    """Return a length without the part of a second."""
    return timedelta(seconds=int(length.total_seconds()))


def _totals(receipts: Sequence[What]) -> str:
    counts = _counts(receipts)
    return ", ".join(f"{count} {what}" for what, count in counts.items()) or "nothing"


def _counts(receipts: Sequence[What]) -> dict[str, int]:
    """Return how many moments ran, ran late, or did not run and how."""
    counts: Counter[str] = Counter()
    for each in receipts:
        counts[each.what] += each.moments
    first = ("ran", "late", "failed")
    return {
        what: counts[what] for what in (*first, *sorted(set(counts) - {*first})) if counts[what]
    }


def _data(rehearsal: Rehearsal, verdict: Verdict, start: datetime) -> dict[str, object]:
    place, setting, broken = rehearsal.place, verdict.setting, verdict.broken
    return {
        "from": format_with_offset(start.astimezone(zone(place.key))),
        "days": setting.length.days,
        "zone": place.key,
        "seed": setting.seed,
        "faults": setting.level.value,
        "totals": _counts(rehearsal.receipts),
        "by_day": [{"day": day.isoformat(), **_counts(group)} for day, group in rehearsal.days()],
        "odd": [each.data(place) for each in rehearsal.receipts if each.what != "ran"],
        "digest": verdict.digest,
        "broken": broken and {"promise": broken.promise, "what": broken.what},
        "events": [] if broken is None else list(verdict.events),
    }
