"""A budget binds: what runs may spend, in which period, and what becomes of those without room."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from random import Random
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, strategies as st
from msgspec import UNSET

from core.world import DAY, HOUR, MINUTE, NINE, SECOND, at, cron, stamped, story, world
from horae.core.budget import (
    DOLLAR,
    Balance,
    Drawn,
    Period,
    Purse,
    Unit,
    Usage,
    balance,
    expected,
    parse_budget,
)
from horae.core.entry import PolicyError, policy_of
from horae.core.explain import WhyQuestion
from horae.core.ports import Ended, Process, RunEnd
from horae.core.receipt import Reason, ReasonCode, Receipt, Status
from horae.core.service import Service
from horae.core.source import Scan
from horae.org.document import read
from horae.sources.plans.arming import entries, scan_plan
from horae.sources.plans.check import CheckClock, check_plans
from horae.store.sqlite import SqliteLedger
from horae.testing import Ending
from horae.timing.zone import local, zone
from scale import scaled

if TYPE_CHECKING:
    from horae.core.receipt import Filed

ZONES = (
    "UTC", "Europe/Berlin", "America/St_Johns", "Australia/Lord_Howe", "America/Havana",
    "Asia/Kathmandu", "Pacific/Apia", "Africa/Cairo",
)  # fmt: skip
MOMENTS = st.integers(0, 44 * 365 * 24 * 3600).map(
    lambda seconds: datetime(1987, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds)
)


def cost(dollars: float, after: timedelta = timedelta(0)) -> Ending:
    return Ending(after=after, facts={"cost": dollars})


# What is written


@pytest.mark.parametrize(
    "text",
    ["2/day", "$2", "$2 a day", "$0/day", "$2/year", "2 dollars/day", "", "$2/day;", "-1 runs/day"],
)
def test_a_budget_that_cannot_be_read_says_what_to_write(text: str) -> None:
    with pytest.raises(PolicyError, match=r"such as \$2/day; 200k tokens/week$"):
        policy_of({"BUDGET": text}, zone_name="UTC")


@given(st.integers(1, 10**8), st.sampled_from(Unit), st.sampled_from(Period))
def test_what_is_shown_of_a_whole_limit_is_read_as_the_same_limit(
    amount: int, unit: Unit, per: Period
) -> None:
    whole = amount * DOLLAR if unit is Unit.DOLLARS else amount
    if unit is Unit.TOKENS and amount >= 1000:  # shown in thousands
        whole = amount // 1000 * 1000 if amount < 10**6 else amount // 10**6 * 10**6
    purse = Purse(whole, unit, per)
    assert parse_budget(str(purse), "UTC") == (purse,)


def test_a_headline_has_its_purse_for_all_that_is_below_it() -> None:
    plan = (
        "* Reports\n:PROPERTIES:\n:BUDGET: $5/week\n:END:\n"
        "** Digest\n:PROPERTIES:\n:SCHEDULE: 0 9 * * *\n:COMMAND: true\n:BUDGET: 3 runs/day\n:END:\n"
        "* Other\n:PROPERTIES:\n:SCHEDULE: 0 9 * * *\n:COMMAND: true\n:END:\n"
    )
    digest, other = entries(plan, name="plan.org", zone="Europe/Berlin")
    assert list(map(str, digest.policy.budget)) == ["3 runs/day", "$5/week of plan.org::Reports"]
    assert {each.zone for each in digest.policy.budget} == {"Europe/Berlin"}
    assert other.policy.budget == ()


def test_a_budget_above_that_cannot_be_read_is_a_finding_and_arms_nothing_below_it() -> None:
    plan = (
        "* Reports\n:PROPERTIES:\n:BUDGET: lots\n:END:\n"
        "** Digest\n:PROPERTIES:\n:SCHEDULE: 0 9 * * *\n:COMMAND: true\n:END:\n"
    )
    assert entries(plan) == []
    (found,) = check_plans([("plan.org", read(plan))], CheckClock())
    assert (found.code, found.line, found.column) == ("policy", 3, 10)


def test_a_budget_in_dollars_of_a_command_is_a_finding() -> None:
    plan = "* A\n:PROPERTIES:\n:COMMAND: true\n:BUDGET: $2/day\n:END:\n"
    (found,) = check_plans([("plan.org", read(plan))], CheckClock())
    assert (found.code, found.fix) == (
        "budget-blind",
        "limit the number of runs, such as 20 runs/day",
    )
    assert not check_plans([("plan.org", read(plan.replace("$2", "2 runs")))], CheckClock())


# Periods


@given(MOMENTS, st.sampled_from(ZONES), st.sampled_from(Period))
def test_every_moment_is_in_one_period_and_the_next_begins_where_it_ends(
    now: datetime, name: str, per: Period
) -> None:
    purse = Purse(1, Unit.RUNS, per, name)
    start, end = purse.period(now)
    assert start <= now < end
    assert purse.period(start) == (start, end)
    assert purse.period(end)[0] == end
    longest = {"hour": 1, "day": 25, "week": 7 * 24 + 25, "month": 31 * 24 + 25}[per] * HOUR
    assert end - start <= longest


@given(MOMENTS, st.sampled_from(ZONES))
def test_a_day_begins_at_the_first_moment_of_its_date(now: datetime, name: str) -> None:
    start, _ = Purse(1, Unit.RUNS, Period.DAY, name).period(now)
    before, after = local(start - SECOND, zone(name)), local(start, zone(name))
    assert before.date() < after.date()


# Room


@given(
    st.integers(1, 10**7),
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 10**6), st.booleans()), max_size=12),
    st.lists(st.integers(0, 10**6), max_size=30),
)
def test_a_purse_has_room_if_what_is_spent_and_expected_is_within_it(
    amount: int, runs: list[tuple[int, int, bool]], last: list[int]
) -> None:
    purse = Purse(amount, Unit.DOLLARS, Period.DAY)
    medians = {0: [Usage(each) for each in last]}
    drawn = [
        Drawn(0, 1, used, 1, 0, 0, n * is_live) for n, (_, used, is_live) in enumerate(runs, 1)
    ]
    found = balance(purse, drawn, medians, entry=0, now=NINE)
    usual = expected(medians[0], Unit.DOLLARS)
    live = sum(max(used, usual) for _, used, is_live in runs if is_live)
    spent = sum(used for _, used, is_live in runs if not is_live)
    assert (found.spent, found.live, found.own) == (spent, live, usual)
    assert found.has_room == (spent + live < amount and spent + live + usual <= amount)


def test_a_run_that_does_not_say_what_it_cost_counts_as_the_median_and_as_nothing_without_one() -> (
    None
):
    purse = Purse(DOLLAR, Unit.DOLLARS, Period.DAY)
    silent = [Drawn(1, 3, 0, 0, 0, 0)]
    last = {1: [Usage(100), Usage(None), Usage(300), Usage(200)]}
    assert balance(purse, silent, last, entry=1, now=NINE).spent == 600
    assert balance(purse, silent, {}, entry=1, now=NINE).spent == 0


def test_the_reason_has_the_numbers() -> None:
    purse = Purse(2 * DOLLAR, Unit.DOLLARS, Period.DAY, of="all")
    words = Balance(purse, 1_500_000, 300_000, 250_000).words
    assert words == (
        "the budget $2/day of all entries has no room: $1.50 spent, $0.30 expected of runs in "
        "progress, $0.25 expected of this run"
    )


# The engine


@story
async def test_what_recurs_is_skipped_until_the_next_day_of_its_zone_with_the_numbers() -> None:
    poll = cron("Poll", "0 */6 * * *", ":TZ: Europe/Berlin", ":BUDGET: $1/day")
    async with world(poll, script=lambda _: cost(0.4)) as here:
        await here.until(at("2026-04-03T00:00Z"))
        # 08:00, 14:00, 20:00 and 02:00 in Berlin: the day begins at 22:00 UTC.
        assert await here.history() == [
            ("04-01 10:00", "done"), ("04-01 16:00", "done"), ("04-01 22:00", "done"),
            ("04-02 04:00", "done"), ("04-02 10:00", "skipped"), ("04-02 16:00", "skipped"),
            ("04-02 22:00", "done"),
        ]  # fmt: skip
        skipped = [e.receipt.reason for e in await here.receipts() if e.status is Status.SKIPPED]
        assert {each.code for each in skipped} == {ReasonCode.BUDGET}
        assert str(skipped[0]) == (
            "the budget $1/day has no room: $0.80 spent, $0.40 expected of this run"
        )


@story
async def test_what_runs_once_is_held_until_the_period_ends_also_across_a_restart() -> None:
    plan = cron("Poll", "0 9 * * *") + stamped("Once", "<2026-04-01 Wed 10:00>")
    async with world(plan, script=lambda _: cost(3), shared={"all": "$2/day"}) as here:
        await here.until(at("2026-04-01T10:01Z"))
        _, once = await here.receipts()
        assert once.status is Status.HELD
        assert once.receipt.reason.endswith("held until 2026-04-02T00:00:00Z")
        await here.outage(2 * HOUR)
        await here.until(at("2026-04-02T00:00Z"))
        assert here.runs() == ["04-01 09:00 at 04-01 09:00", "04-01 10:00 at 04-02 00:00"]


@story
async def test_why_a_budget_holds_a_request_does_not_propose_another_one() -> None:
    plan = "* Poll\n:PROPERTIES:\n:COMMAND: true\n:BUDGET: 1 run/day\n:END:\n"
    async with world(plan) as here:
        service = Service(
            ledger=here.ledger,
            clock=here.clock,
            ids=iter("abc").__next__,
            poke=here.engine.note_change,
        )
        for status, way in ((Status.DONE, "run it now with `horae run 1`"), (Status.HELD, UNSET)):
            await service.run_now("Poll")
            await here.advance(MINUTE)
            last, coming = (await service.why(WhyQuestion("Poll"))).answers
            assert (last.status, coming.way) == (status, way)


@story
async def test_every_purse_on_the_way_up_must_have_room() -> None:
    above = "* Reports\n:PROPERTIES:\n:BUDGET: 3 runs/day\n:END:\n"
    first, second = cron("First", "0 * * * *", ":BUDGET: 2 runs/day"), cron("Second", "30 * * * *")
    plan = above + first.replace("* ", "** ", 1) + second.replace("* ", "** ", 1)
    async with world(plan, shared={"all": "100 runs/day"}) as here:
        await here.until(at("2026-04-01T12:00Z"))
        ran = [each.title for _, each in here.started]
        assert ran == ["Second", "First", "Second"]
        reasons = [e.receipt.reason for e in await here.receipts() if e.status is Status.SKIPPED]
        assert reasons[0].startswith("the budget 3 runs/day of plan.org::Reports has no room")


@story
async def test_of_runs_that_come_together_as_many_start_as_the_purse_has_room_for() -> None:
    plan = "".join(cron(f"Poll {n}", "0 9 * * *") for n in range(4))
    async with world(plan, script=lambda _: cost(0.1, HOUR), shared={"all": "2 runs/day"}) as here:
        await here.until(NINE + MINUTE)
        states = sorted(each.status for each in await here.receipts())
        assert states == [Status.RUNNING, Status.RUNNING, Status.SKIPPED, Status.SKIPPED]


@story
async def test_a_run_in_progress_counts_as_the_median_of_such_runs() -> None:
    async with world(
        cron("Poll", "0 * * * *", ":OVERLAP: allow", ":BUDGET: $1/day"),
        script=lambda filed: cost(
            0.3, 0 * HOUR if filed.receipt.planned_at.hour < 10 else 8 * HOUR
        ),
    ) as here:
        await here.until(at("2026-04-01T13:01Z"))
        assert [state for _, state in await here.history()] == [
            "done", "running", "running", "skipped", "skipped",
        ]  # fmt: skip


# Alerts


@story
async def test_an_alert_follows_a_budget_that_is_nearly_spent_and_one_that_has_no_room() -> None:
    alert = "* Tell :workflow:\n:PROPERTIES:\n:AFTER: budget\n:END:\nTell it.\n"
    poll = cron("Poll", "0 * * * *", ":BUDGET: $1/day")
    async with world(
        poll + alert, script=lambda filed: cost(0.3 * (filed.title == "Poll"))
    ) as here:
        await here.until(at("2026-04-01T15:01Z"))
        told = [(now, e.receipt.reason) for now, e in here.started if e.title == "Tell"]
        assert [f"{now:%H:%M} {reason.partition(',')[0]}" for now, reason in told] == [
            "11:00 after Poll (budget): $0.90 of the budget $1/day is spent",
            "12:00 after Poll (budget): the budget $1/day has no room: $0.90 spent",
        ]


# What is seen


@story
async def test_costs_are_shown_by_entry_agent_and_day_and_budgets_by_their_period() -> None:
    plan = cron("Poll", "0 */6 * * *", ":BUDGET: $5/day") + cron("Report", "0 9 * * *")
    used = {"Poll": 0.4, "Report": 1.0}
    async with world(plan, script=lambda filed: cost(used[filed.title])) as here:
        await here.until(at("2026-04-02T12:01Z"))
        service = Service(
            ledger=here.ledger, clock=here.clock, ids=str, spending=lambda: here.spending
        )
        found = await service.costs(by="entry")
        assert [(row.name, row.runs, row.cost) for row in found.rows] == [
            ("Poll", 5, 2.0), ("Report", 2, 2.0),
        ]  # fmt: skip
        days = (await service.costs(by="day", days=2)).rows
        assert [(row.name, row.cost) for row in days] == [
            ("2026-04-01 Wed", 1.8), ("2026-04-02 Thu", 2.2),
        ]  # fmt: skip
        [agents] = (await service.costs(by="agent")).rows
        assert (agents.name, agents.cost) == ("no agent", 4.0)
        [budget] = found.budgets
        assert (budget.budget, budget.entry, budget.spent) == ("$5/day", "Poll", "$1.20")
        history = await service.history("Report")
        assert [line.cost for line in history.receipts] == [1.0, 1.0]


@pytest.mark.parametrize("seed", range(scaled(20, few=2)))
def test_a_forecast_is_within_a_tenth_of_what_then_happens(seed: int) -> None:
    dice = Random(seed)
    usual = {"Poll": 0.2, "Report": 1.5, "Audit": 0.05}

    def script(filed: Filed) -> Ending:
        return cost(usual[filed.title] * dice.gauss(1, 0.15))

    async def replayed() -> None:
        plan = cron("Poll", "0 */2 * * *", ":TZ: Europe/Berlin") + cron("Report", "0 9 * * MON-FRI")
        plan += stamped("Audit", "<2026-03-01 Sun 07:00 +1d>")
        async with world(plan, now=at("2026-03-01T00:00Z"), script=script) as here:
            # The days that were forecast have a clock change among them.
            await here.until(at("2026-03-22T12:00Z"))
            service = Service(ledger=here.ledger, clock=here.clock, ids=str)
            expected = await service.forecast(days=14)
            before = here.clock.now()
            await here.advance(14 * DAY)
            spent = await here.ledger.costs(since=before, until=here.clock.now() + SECOND)
            actual = sum(each.cost or 0 for each in spent) / DOLLAR
            assert sum(row.runs for row in expected.rows) == len(spent)
            assert abs(expected.cost - actual) <= 0.1 * actual

    asyncio.run(replayed())


# Random histories, against a count of our own


class History:
    """Runs of a few entries with one purse, driven by the dice, on the real ledger."""

    def __init__(self, dice: Random, ledger: SqliteLedger, *, streams: bool, most: int) -> None:
        self.dice, self.ledger, self.streams = dice, ledger, streams
        self.most = most  # runs at a time; one has messages of any cost
        self.message = 0.01 if most > 1 else dice.uniform(0.01, 0.2)
        self.purse = Purse(
            dice.choice((1, 3, 10)) * DOLLAR,
            Unit.DOLLARS,
            dice.choice(list(Period)),
            dice.choice(ZONES),
            "all",
        )
        years = dice.choice((2006, 2011, 2026))
        self.now = datetime(years, dice.choice((3, 10, 11)), dice.randrange(1, 28), tzinfo=UTC)
        self.live: dict[int, tuple[int, int, int]] = {}  # used so far, will use, period
        self.spent: dict[datetime, int] = {}  # by period, as it really was
        self.blind: dict[datetime, int] = {}  # what live runs still cost when a period was full
        self.number = 0

    async def begin(self) -> None:
        text = "".join(cron(f"Poll {n}", "0 0 1 1 *", ":OVERLAP: allow") for n in range(3))
        found = scan_plan(read(text), file="plan.org", zone_name="UTC")
        await self.ledger.scan("org", Scan(tuple(found)), now=self.now, term=1)

    async def start(self) -> bool:
        self.number += 1
        entry = self.dice.randrange(1, max(self.most, 2))  # of 1 run at a time always the same
        asked = Receipt(
            f"manual:{self.number}",
            Status.WAITING,
            Reason(ReasonCode.REQUESTED, "asked"),
            self.now,
            self.now,
        )
        [filed] = await self.ledger.add(entry, [asked], now=self.now, term=1)
        [job] = await self.ledger.start_many([filed], now=self.now, term=1)
        assert job is not None
        number = job.run.number
        found = await self.ledger.draw(number, [self.purse], now=self.now, term=1)
        if not all(each.has_room for each in found):
            await self.ledger.refuse(number, found[0], now=self.now, term=1)
            return False
        await self.ledger.running_many([(number, Process(1, 1))], now=self.now, term=1)
        wanted = round(self.dice.uniform(max(0.02, self.message), 0.3) * self.purse.amount)
        self.live[number] = (0, wanted, 0)
        self.spent.setdefault(self.purse.period(self.now)[0], 0)
        return True

    async def go_on(self) -> None:
        """Let a run use a little more, and end it if it is done or exceeds its purse."""
        number = self.dice.choice([*self.live])
        used, wanted, _ = self.live[number]
        step = round(self.purse.amount * self.message) if self.streams else wanted
        more = min(step, wanted - used)
        used += more
        self.live[number] = (used, wanted, 0)
        run = await self.ledger.run(number)
        assert run is not None
        period = self.purse.period(run.started_at)[0]
        self.spent[period] += more
        is_over, outcome = used >= wanted, Status.DONE
        if self.streams:
            ahead = Usage(0 if is_over else step)
            [found] = await self.ledger.use(number, [self.purse], Usage(used), now=self.now, term=1)
            if found.is_exceeded(ahead):
                is_over, outcome = True, Status.KILLED
        if is_over:
            del self.live[number]
            ended = Ended(outcome, Reason(ReasonCode.OTHER, "over"), facts={"cost": used / DOLLAR})
            await self.ledger.end_many([RunEnd(number, ended)], now=self.now, term=1)

    def most_live(self) -> int:
        return sum(wanted - used for used, wanted, _ in self.live.values())

    async def play(self, steps: int) -> None:
        await self.begin()
        for _ in range(steps):
            self.now += (
                self.dice.choice((MINUTE, 7 * MINUTE, HOUR, 5 * HOUR, DAY)) * self.dice.random()
            )
            room = self.most_live()
            if len(self.live) < self.most and self.dice.random() < 0.5:
                await self.start()
            elif self.live:
                await self.go_on()
            for period, spent in self.spent.items():
                if spent > self.purse.amount:
                    self.blind.setdefault(period, room)

    def check(self) -> None:
        for period, spent in self.spent.items():
            most = 0.05 * self.purse.amount if self.streams else self.blind.get(period, 0)
            assert spent <= self.purse.amount + most, (period, spent, self.purse)


@pytest.mark.parametrize(
    ("streams", "most"),
    [(True, 4), (True, 1), (False, 4)],
    ids=["with streams", "with a stream of costly messages", "without a stream"],
)
@story
async def test_no_history_spends_more_than_the_budget_and_what_runs_in_progress_cost(
    streams: bool, most: int
) -> None:
    full = 0
    for seed in range(scaled(1000, few=50)):
        ledger = await SqliteLedger.in_memory()
        history = History(Random(seed), ledger, streams=streams, most=most)
        await history.play(120 if streams else 40)
        history.check()
        full += any(each > 0.9 * history.purse.amount for each in history.spent.values())
        await ledger.close()
    assert full, "no purse was ever full"
