"""Whatever goes wrong, in whatever order, every promise is kept; and what is broken is found."""

from __future__ import annotations

import ast
import asyncio
import os
import subprocess
import sys
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import pytest

from horae.core.receipt import RECEIPT_STATUSES
from scale import SCALE, scaled
from simulate import oracle
from simulate.loop import SimLoop, Standstill
from simulate.planted import BUDGETS, LIMITS, PLANTED, Memory, Planted, write_in_any_term
from simulate.sources import SOURCES
from simulate.worlds import (
    Cluster,
    Fault,
    Level,
    Outage,
    Setting,
    Verdict,
    World,
    shrink,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

DAY = timedelta(days=1)
DAYS = scaled(365, few=16)  # in fewer, something of SOMETIMES does not happen
BATCH = 20
BATCHES = max(1, scaled(200) // BATCH)
SEEDS = Path(__file__).parent / "seeds.txt"
TESTS = Path(__file__).parents[1]
START = datetime(2026, 4, 1, tzinfo=UTC)
PLAN = """\
* Digest :workflow:
:PROPERTIES:
:SCHEDULE: 0 9 * * *
:END:
* Water :workflow:
SCHEDULED: <2026-04-01 Wed 07:00 +1d>
* Poll :workflow:
SCHEDULED: <2026-04-01 Wed 00:30 ++1h>
"""
OUTAGE = Outage(START + timedelta(hours=6), timedelta(hours=5))

# What has to happen at least once in a batch, or the batch has shown less than it should.
SOMETIMES = (
    *(fault.value for fault in Fault if fault not in World.unknown),
    *(f"status {status}" for status in RECEIPT_STATUSES),
    "catch-up of more than one",
    "queue of more than ten",
    "retried",
    "interrupted and retried",
    "event clock_step",
    "event set_back",
    "event paused",
    "passed over",
    "started beside an end",
    "released",
    "approved",
    "approval lapsed",
    "a run inside a run",
    "rode in its parent's slot",
    "rider refused",
    "alert",
    "stopped in good order",
    "ended by a stop",
)
# What is too rare for a small batch.
SELDOM = ("fired at the end of a gap", "fired in a fold", "set aside")


def told(seed: int, *, days: int = 60, **changes: object) -> Verdict:
    """Run the world of a seed, and hold it against the oracle."""
    setting = Setting(timedelta(days=days), seed=seed, level=Level.SWARM, **changes)  # type: ignore[arg-type]
    return World(setting, Memory(), audit=oracle.audit).run()


def filed() -> Iterable[tuple[int, int]]:
    for line in SEEDS.read_text().splitlines():
        words = line.partition("#")[0].split()
        if words and (SCALE >= 1 or int(words[1]) <= 100):  # the long ones have a test of their own
            yield int(words[0]), int(words[1])


# Promises


@pytest.mark.parametrize("batch", range(BATCHES))
def test_every_promise_is_kept_and_all_that_may_go_wrong_has_gone_wrong(batch: int) -> None:
    seen: Counter[str] = Counter()
    for seed in range(batch * BATCH, (batch + 1) * BATCH):
        verdict = told(seed, days=DAYS)
        assert verdict.broken is None, str(verdict)
        seen.update(verdict.seen)
    never = [what for what in SOMETIMES if not seen[what]]
    if SCALE >= 1 or not batch:  # in a few days it all happens to the first seeds alone
        assert not never, f"in batch {batch} this never happened: {never}"
    if SCALE >= 1:
        assert not [what for what in SELDOM if not seen[what]]


@pytest.mark.parametrize(("seed", "days"), [*filed()])
def test_what_was_broken_once_is_kept_for_ever(seed: int, days: int) -> None:
    verdict = told(seed, days=days)
    assert verdict.broken is None, str(verdict)


def test_an_engine_that_dies_again_and_again_over_one_receipt_sets_it_aside() -> None:
    seen: Counter[str] = Counter()
    for seed in range(170, 400):  # it happens in one seed of forty
        setting = Setting(
            10 * DAY, seed=seed, level=Level.SOME, without=NOT_CRASHES, crashes=100.0, most=3
        )
        verdict = World(setting, Memory(), audit=oracle.audit).run()
        assert verdict.broken is None, str(verdict)
        seen.update(verdict.seen)
        if seen["set aside"]:
            return
    pytest.fail(f"nothing was set aside: {seen}")


NOT_CRASHES = tuple(fault for fault in Fault if fault not in {Fault.CRASH, Fault.KILL})


# Several engines


def led(seed: int, *, days: int = 15) -> Verdict:
    """Run a world of two or three engines, and hold it against the oracle."""
    setting = Setting(timedelta(days=days), seed=seed, level=Level.SWARM)
    return Cluster(setting, Memory(), members=2 + seed % 2, audit=oracle.audit).run()


def test_of_several_engines_one_leads_and_one_that_led_changes_nothing() -> None:
    seen: Counter[str] = Counter()
    for seed in range(scaled(200, few=6)):
        verdict = led(seed)
        assert verdict.broken is None, str(verdict)
        seen.update(verdict.seen)
    never = [
        what
        for what in ("freeze", "partition", "led while another lived", "fenced write refused")
        if not seen[what]
    ]
    assert not never, f"this never happened: {never}"


def test_several_engines_give_the_same_trace_again() -> None:
    assert led(3, days=8).digest == led(3, days=8).digest


# Budgets


def budgeted(seed: int, *, days: int = 20) -> Verdict:
    """Run the world of a seed in which only some runs of a day may start."""
    return told(seed, days=days, runs_a_day=2 + seed % 5, zone_of_days=ZONES[seed % len(ZONES)])


ZONES = ("Europe/Berlin", "America/St_Johns", "Australia/Lord_Howe", "Pacific/Apia")


def test_a_budget_binds_whatever_goes_wrong() -> None:
    seen: Counter[str] = Counter()
    for seed in range(scaled(200, few=4)):
        verdict = budgeted(seed)
        assert verdict.broken is None, str(verdict)
        seen.update(verdict.seen)
    never = [what for what in ("skipped by a budget", "held by a budget") if not seen[what]]
    assert not never, f"this never happened: {never}"


# Usage limits


def limited(seed: int, *, days: int = 20) -> Verdict:
    """Run the world of a seed in which runs meet the limits of one account, or of three."""
    return told(seed, days=days, accounts=1 + seed % 2 * 2)


# In 21 the clock goes on by years, in 43 and 50 the ledger fails when it is asked of limits.
LIMITED = (3, 8, 21, 43, 50)


def test_a_limit_holds_whatever_goes_wrong() -> None:
    seen: Counter[str] = Counter()
    for seed in range(200) if SCALE >= 1 else LIMITED:
        verdict = limited(seed)
        assert verdict.broken is None, str(verdict)
        seen.update(verdict.seen)
    never = [what for what in ("limited", "went first after a limit") if not seen[what]]
    assert not never, f"this never happened: {never}"


# Bugs that were planted


@pytest.mark.parametrize(
    ("bug", "tell"),
    [
        *((bug, told) for bug in PLANTED),
        *((bug, budgeted) for bug in BUDGETS),
        *((bug, limited) for bug in LIMITS),
    ],
    ids=lambda each: each.plant.__name__ if isinstance(each, Planted) else each.__name__,
)
def test_a_planted_bug_is_found(
    bug: Planted, tell: Callable[..., Verdict], monkeypatch: pytest.MonkeyPatch
) -> None:
    bug.plant(monkeypatch)
    for seed in range(200) if SCALE >= 1 else bug.seeds:
        broken = tell(seed, days=bug.days).broken
        if broken is not None and broken.promise in bug.promises:
            return
    pytest.fail(f"nobody noticed: {bug.plant.__doc__}")


def test_an_engine_that_leads_no_more_and_writes_all_the_same_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    write_in_any_term(monkeypatch)
    for seed in range(200) if SCALE >= 1 else (4, 5, 8):
        broken = led(seed).broken
        if broken is not None and broken.promise == "I3":
            return
    pytest.fail(f"nobody noticed: {write_in_any_term.__doc__}")


def test_a_finding_is_made_smaller(monkeypatch: pytest.MonkeyPatch) -> None:
    bug = PLANTED[0]
    bug.plant(monkeypatch)
    least = shrink(
        Setting(20 * DAY, seed=bug.seeds[0], level=Level.SWARM),
        lambda setting: World(setting, Memory(), audit=oracle.audit).run(),
    )
    assert least.broken is not None
    assert least.broken.promise == "I3"
    # It needs nothing that goes wrong, so all that could be left out is left out.
    assert set(least.setting.without) == set(Fault)
    assert least.setting.most == 3
    assert f"seed {bug.seeds[0]}: I3: run" in str(least)
    assert len(least.events) <= 50
    assert least.events[-1] in str(least)


# One seed, one world

TRACED = """
from datetime import timedelta
from simulate.worlds import Level, Setting, World
from simulate.planted import Memory
World(Setting(timedelta(days=12), seed=12, level=Level.SWARM), Memory(), trace=print).run()
"""


def test_a_seed_gives_the_same_trace_byte_by_byte_whatever_python_hashes() -> None:
    traces = [
        subprocess.run(
            [sys.executable, "-c", TRACED],
            env={**os.environ, "PYTHONHASHSEED": hashing, "PYTHONPATH": str(TESTS)},
            check=True,
            stdout=subprocess.PIPE,
        ).stdout
        for hashing in ("1", "2")
    ]
    assert traces[0] == traces[1]
    assert len(traces[0].splitlines()) > 500


def test_another_seed_is_another_world() -> None:
    assert told(1, days=4).digest != told(2, days=4).digest


def test_the_turns_that_are_left_out_while_nothing_comes_change_nothing() -> None:
    setting = Setting(2 * DAY, files={"plan.org": PLAN}, start=START, outages=(OUTAGE,))
    quick = World(setting, Memory()).run()
    slow = World(setting, Memory())
    slow.clock._horizon = None
    assert slow.run().digest == quick.digest


def test_every_kind_of_source_is_in_the_world() -> None:
    assert [source.name for source in SOURCES] == ["org", "crew", "board", "trigger"]


# The loop


def test_time_jumps_to_the_next_timer() -> None:
    loop = SimLoop()  # type: ignore[abstract]

    async def sleep() -> float:
        await asyncio.sleep(86_400)
        return loop.time()

    assert loop.run(sleep()) == 86_400


async def in_some_order(order: list[str]) -> None:
    async def go(name: str) -> None:
        order.append(name)

    await asyncio.gather(*map(go, "abc"))


def test_another_seed_is_another_order_of_those_who_may_go_on() -> None:
    orders = set()
    for seed in range(60):
        order: list[str] = []
        SimLoop(Random(seed)).run(in_some_order(order))  # type: ignore[abstract]
        orders.add("".join(order))
    assert len(orders) == 6


def test_a_world_in_which_everybody_waits_for_nothing_is_told_so() -> None:
    async def wait() -> None:
        await asyncio.Event().wait()

    loop = SimLoop()  # type: ignore[abstract]
    with pytest.raises(Standstill, match="every task waits and no timer is set"):
        loop.run(wait())
    loop.drain()


def test_a_world_in_which_somebody_never_rests_is_told_so() -> None:
    async def spin() -> None:
        while True:
            await asyncio.sleep(0)

    loop = SimLoop()  # type: ignore[abstract]
    with pytest.raises(Standstill, match="the clock cannot advance"):
        loop.run(spin())
    loop.drain()


# The oracle


def test_the_oracle_shares_no_code_with_what_it_judges() -> None:
    tree = ast.parse(Path(oracle.__file__).read_text())
    names = {str(node.module) for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    # The type of a receipt as it is filed is all that it takes from Horae.
    assert {name for name in names if name.startswith("horae")} <= {"horae.core.receipt"}


@pytest.mark.parametrize(
    ("rule", "day", "expected"),
    [
        ("30 2 * * *", "2026-03-29", ["01:00"]),  # the gap: at its end
        ("30 2 * * *", "2026-10-25", ["00:30"]),  # the fold: the first pass
        ("*/30 1-3 * * *", "2026-03-29", ["00:00", "00:30", "01:00", "01:30"]),
        ("<2026-03-01 02:30 +1d>", "2026-03-29", ["01:00"]),
        ("<2026-01-31 02:30 +1m>", "2026-03-03", ["01:30"]),
        ("0 0 13 * FRI", "2026-11-13", []),
    ],
)
def test_the_oracle_reads_clock_changes_as_the_rules_say(
    rule: str, day: str, expected: list[str]
) -> None:
    start = datetime.fromisoformat(f"{day}T00:00:00+00:00") - timedelta(seconds=1)
    found = oracle.moments(rule, "Europe/Berlin", start, start + 4 * timedelta(hours=1))
    assert [f"{at:%H:%M}" for at in found] == expected
