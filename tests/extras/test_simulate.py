"""A simulation tells of each scheduled time what the engine does: held against the engine itself,
on the examples and on plans that nobody wrote.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, Final, TypeAlias

import pytest
from msgspec.structs import replace

from extras.engine_walk import run_engine
from horae.core.decide import parse_after
from horae.core.entry import (
    DEFAULT,
    CadenceRule,
    CatchUp,
    Entry,
    OnceRule,
    Origin,
    Overlap,
    Policy,
    RepeaterRule,
    Retry,
    Rule,
    Work,
    cron_rule,
)
from horae.core.gate import Capacity
from horae.core.ports import receipts_of
from horae.core.receipt import Filed, Reason, Status, followed_by
from horae.core.source import Mark, Scan, Scanned
from horae.extras.simulate import Outage, Simulation
from horae.org.document import read
from horae.sources.plans.arming import scan_plan
from horae.store.sqlite import SqliteLedger
from horae.timing.repeater import parse_repeater
from scale import scaled

Plant: TypeAlias = Callable[[pytest.MonkeyPatch], None]
EXAMPLES: Final = Path(__file__).parents[2] / "examples"
STARTS: Final = (
    datetime(2026, 3, 27, 5, 30, tzinfo=UTC),  # before clocks go forward in Europe
    datetime(2026, 10, 23, 23, 59, 30, tzinfo=UTC),  # and back
    datetime(2028, 2, 27, tzinfo=UTC),  # a leap day
)
ZONES: Final = ("UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe")
CRONS: Final = (
    "*/20 * * * *", "7 * * * *", "0 */3 * * *", "30 2 * * *", "30 1 * * *", "*/30 1-3 * * *",
    "0 9 * * MON-FRI", "15 2 * * *; 0 14 * * SUN", "0 0 29 2 *", "0,30 * * * *",
)  # fmt: skip
REPEATERS: Final = ("+1h", "++1h", ".+1h", "+1d", "++1d", ".+1d", "++6h", ".+5h", "+1w")
OUTAGES: Final = (2, 3, 4, 5, 7, 50, 400, 1500, 3000)  # minutes
AFTERS: Final = (
    "failed", "late missed of Entry 1", "stuck recovered", "missed", "failed of agent:wren",
    "broken late",
)  # fmt: skip


def invented_rule(rng: Random, start: datetime, zone: str) -> Rule:
    near = start + timedelta(minutes=rng.randrange(-3000, 6000))
    kind = rng.choice(("cron", "cron", "repeater", "repeater", "once", "cadence", "after"))
    match kind:
        case "cron":
            return cron_rule(rng.choice(CRONS), zone_name=zone)
        case "repeater":
            anchor = near.replace(tzinfo=None, second=0)
            return RepeaterRule(anchor, parse_repeater(rng.choice(REPEATERS)))
        case "once":
            return OnceRule(near)
        case "cadence":
            base = timedelta(minutes=rng.choice((45, 200, 600)))
            return CadenceRule(base, start + timedelta(minutes=rng.randrange(90)))
        case _:
            return parse_after(rng.choice(AFTERS))


def invented_policy(rng: Random, start: datetime) -> Policy:
    values: dict[str, tuple[Any, ...]] = {
        "retry": (Retry(1, timedelta(minutes=10)), Retry(3, timedelta(minutes=50))),
        "timeout": (timedelta(minutes=33, microseconds=rng.randrange(1, 10**6)),),
        "pause_after": (1, 2),
        "from_at": (start + timedelta(days=1, hours=3),),
        "until": (start + timedelta(days=3, hours=1),),
    }
    rare = {name: rng.choice((None, None, None, *some)) for name, some in values.items()}
    jitter = timedelta(minutes=rng.choice((0, 0, 0, 0, 7, 90)))
    catchup, overlap = rng.choice((None, *CatchUp)), rng.choice((*Overlap,))
    return Policy(catchup, overlap, jitter=jitter, **rare)


def invented_length(rng: Random) -> timedelta:
    # None ends just when a time is due: whether the engine sees the end before that is a race.
    minutes = rng.choice((0, 0, 0, 1, 20, 60, 70, 119))
    micros = rng.randrange(1, 10**6)
    return timedelta(minutes=minutes, microseconds=micros) if minutes else timedelta()


@dataclass(frozen=True, slots=True)
class Story:
    entries: Sequence[Scanned]
    start: datetime
    length: timedelta
    capacity: Capacity
    lengths: Mapping[Origin, timedelta]
    outages: Sequence[Outage] = ()
    pauses: Mapping[str, datetime | None] = field(default_factory=dict)  # by address

    async def ledger(self) -> SqliteLedger:
        """Return a ledger that has taken over the plans, when some were good that are broken."""
        ledger, now = await SqliteLedger.in_memory(), self.start
        whole = tuple(each._replace(broken="") for each in self.entries)
        await ledger.scan("org", Scan(whole), now=now, term=1)
        for each in await ledger.entries():
            if each.mark.address in self.pauses:
                at, until = now - timedelta(hours=1), self.pauses[each.mark.address]
                await ledger.pause(each.number, now=at, term=1, note="holidays", until=until)
        await ledger.scan("org", Scan(tuple(self.entries)), now=now, term=1, patience=timedelta(0))
        return ledger

    async def simulation(self, ledger: SqliteLedger) -> Simulation:
        return Simulation(
            await ledger.entries(),
            self.start,
            self.length,
            self.capacity,
            filed=await receipts_of(ledger, ()),
            outages=self.outages,
            lengths=self.lengths,
        )

    async def simulated(self) -> Simulation:
        ledger = await self.ledger()
        simulation = await self.simulation(ledger)
        await ledger.close()
        return simulation


def invented(seed: int) -> Story:
    rng = Random(seed)
    start, scanned, lengths = rng.choice(STARTS), [], {}
    for number in range(rng.randint(1, 7)):
        zone, title = rng.choice(ZONES), f"Entry {number}"
        rule, policy = invented_rule(rng, start, zone), invented_policy(rng, start)
        origin = Origin("plan.org", number + 1)
        agents = tuple(rng.sample(("wren", "moss"), rng.choice((0, 0, 1, 2))))
        work = Work.TICK if isinstance(rule, CadenceRule) else Work.WORKFLOW
        entry = Entry(title, origin, title, rule, work, agents, policy, zone)
        broken = "no such day" if rng.random() < 0.05 else ""
        scanned.append(Scanned(Mark(title, title, str(rule), title), entry, broken=broken))
        lengths[origin] = invented_length(rng)
    outages = [
        Outage(start + timedelta(seconds=rng.randrange(4 * 86400)), timedelta(minutes=each))
        for each in rng.sample(OUTAGES, rng.choice((0, 1, 1, 2, 3, 6)))
    ]
    ends = (None, start + timedelta(hours=30), start + timedelta(days=2, minutes=7))
    pauses = {each.mark.address: rng.choice(ends) for each in scanned if rng.random() < 0.1}
    capacity = Capacity(rng.randint(1, 4), rng.randint(1, 2))
    length = timedelta(days=rng.randint(3, 6))
    return Story(scanned, start, length, capacity, lengths, outages, pauses)


def told(filed: Iterable[Filed]) -> list[tuple[object, ...]]:
    """Return all that is known of receipts, in order; which of two alerts came first is not."""
    return [
        (
            each.receipt.planned_at,
            0 if followed_by(each.receipt.key) else each.number,
            each.entry,
            replace(each.receipt, reason=Reason("", "")),
            (each.receipt.reason.code, str(each.receipt.reason)),
            (each.decided_at, each.ended_at, each.attempts),
            (each.title, each.origin),
        )
        for each in filed
    ]


async def compare(story: Story) -> None:
    ledger = await story.ledger()
    simulation = await story.simulation(ledger)
    simulated = told(simulation.run())
    own = (story.entries, story.start, story.length, story.capacity)
    lived = told(await run_engine(ledger, *own, outages=story.outages, lengths=story.lengths))
    await ledger.close()
    assert [each[0] for each in simulated] == [each[0] for each in lived], "in order"
    by_place = partial(sorted, key=lambda each: each[:3])
    for one, other in zip(by_place(simulated), by_place(lived), strict=True):
        assert one == other


# Always: a pause that skips what waits (70), and runs that follow one another at one time (142).
@pytest.mark.parametrize("seed", sorted({*range(scaled(400)), 70, 142}))
def test_a_simulation_tells_what_the_engine_does(seed: int) -> None:
    asyncio.run(compare(invented(seed)))


@pytest.mark.parametrize("name", sorted(each.name for each in EXAMPLES.iterdir() if each.is_dir()))
@pytest.mark.parametrize("minutes", [0, 11])
def test_a_simulation_of_an_example_tells_what_the_engine_does(name: str, minutes: int) -> None:
    found = [
        each
        for path in sorted((EXAMPLES / name).rglob("*.org"))
        for each in scan_plan(read(path.read_text()), file=path.name, zone_name="Europe/Berlin")
    ]
    start, took = datetime(2026, 10, 22, 12, tzinfo=UTC), timedelta(minutes=minutes)
    outage = Outage(start + timedelta(days=2, hours=8), timedelta(hours=20))
    lengths = {each.item.origin: took for each in found}
    asyncio.run(compare(Story(found, start, timedelta(days=14), Capacity(2), lengths, [outage])))


def hourly(policy: Policy = DEFAULT, *, count: int = 1, days: int = 1) -> Story:
    found = []
    for number in range(count):
        title, rule = f"Entry {number}", cron_rule("0 * * * *", zone_name="UTC")
        entry = Entry(title, Origin("plan.org", number), title, rule, policy=policy)
        found.append(Scanned(Mark(title, title, "0 * * * *", title), entry))
    lengths = {each.item.origin: timedelta(minutes=90) for each in found}
    outages = [Outage(STARTS[2] + timedelta(hours=n, minutes=30), timedelta(0, 60)) for n in (5, 9)]
    return Story(found, STARTS[2], timedelta(days=days), Capacity(2), lengths, outages)


@pytest.mark.parametrize("seed", range(1000, 1000 + scaled(800)))
def test_a_trace_changes_nothing(seed: int) -> None:
    """With a trace each start and end is an event; without one what is undisturbed is none."""
    lines: list[str] = []
    simulation, traced = (asyncio.run(invented(seed).simulated()) for _ in range(2))
    traced.trace = lines.append
    assert told(simulation.run()) == told(traced.run())
    assert "an engine starts" in lines[0]


def test_a_run_ends_at_its_time_limit_and_before_what_is_due_then() -> None:
    story = hourly()
    lengths = {each.item.origin: timedelta(hours=5) for each in story.entries}
    story = Story(story.entries, story.start, story.length, story.capacity, lengths)
    receipts = [*asyncio.run(story.simulated()).run()]
    ran = [each for each in receipts if each.status is Status.DONE]
    assert {each.ended_at and each.ended_at - each.decided_at for each in ran} == {
        timedelta(hours=2)
    }
    assert [each.receipt.planned_at.hour for each in ran] == [*range(1, 23, 2)]


def test_receipts_come_in_order_while_the_simulation_goes_on() -> None:
    parts: list[float] = []
    story = hourly(count=3, days=80)
    simulation = asyncio.run(story.simulated())
    simulation.progress = parts.append
    receipts = simulation.run()
    times = [next(receipts).receipt.planned_at]
    assert 0 < parts[0] < parts[-1] < 0.9
    times += [each.receipt.planned_at for each in receipts]
    assert times == sorted(times)
    assert len(times) > 5000
    assert parts == sorted(parts)
    assert 0.99 < parts[-1] < 1
