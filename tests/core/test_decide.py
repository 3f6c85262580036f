"""What becomes of the moments that have come: each has one receipt, and nothing comes twice."""

from __future__ import annotations

import sys
from collections import Counter
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings, strategies as st
from msgspec.structs import replace

from horae.core.decide import (
    APART,
    CAP,
    GRACE,
    WINDOW,
    Decision,
    begin,
    behind_words,
    close,
    decide,
    jitter,
)
from horae.core.entry import (
    CadenceRule,
    CatchUp,
    CronRule,
    Entry,
    OnceRule,
    OnDemandRule,
    Origin,
    Overlap,
    Policy,
    RepeaterRule,
)
from horae.core.project import decided, next_moment, project
from horae.core.receipt import Receipt, Status
from horae.timing.cron import Cron, count_any
from horae.timing.repeater import parse_repeater
from reasons import because
from scale import scaled

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from horae.core.entry import Rule

TINY, SECOND, MINUTE, HOUR, DAY = (
    timedelta(microseconds=1),
    timedelta(seconds=1),
    timedelta(minutes=1),
    timedelta(hours=1),
    timedelta(days=1),
)


def at(text: str) -> datetime:
    return datetime.fromisoformat(text)


def entry(rule: Rule, since: datetime | None = None, *, zone: str = "UTC") -> Entry:
    made = Entry("plan.org::Digest", Origin("plan.org", 3), "Digest", rule, zone=zone, number=7)
    return replace(made, accounted_to=since)


def crons(*expressions: str, zone: str = "UTC") -> CronRule:
    return CronRule(tuple(Cron(each, zone=zone) for each in expressions))


def stamp(anchor: str, repeater: str) -> RepeaterRule:
    return RepeaterRule(at(anchor), parse_repeater(repeater))


def asking(found: Entry, **asked: object) -> Entry:
    return replace(found, policy=replace(found.policy, **asked))


def after(found: Entry, decision: Decision) -> Entry:
    """Return the entry as the ledger has it once a decision is written."""
    return replace(found, accounted_to=decision.accounted_to, ended_at=decision.ended_at)


def covered(found: Entry, receipts: tuple[Receipt, ...]) -> Iterator[tuple[datetime, str]]:
    """Yield moment and key of all that receipts stand for, ranges one by one."""
    for receipt in receipts:
        end = receipt.through_at or receipt.planned_at
        inside = list(decided(project(found, receipt.planned_at - TINY, end)))
        assert len(inside) == receipt.count
        assert inside[0].key == receipt.key
        yield from ((moment.at, moment.key) for moment in inside)


def came(found: Entry, since: datetime, now: datetime) -> list[tuple[datetime, str]]:
    """Return moment and key of all that came due, as the projection shows it."""
    return [(moment.at, moment.key) for moment in decided(project(found, since, now))]


def statuses(decision: Decision) -> str:
    """Return what became of the moments, such as `2 coalesced, 1 waiting`."""
    counts = Counter[str]()
    for receipt in decision.receipts:
        counts[receipt.status] += receipt.count
    return ", ".join(f"{number} {status}" for status, number in counts.items())


# The laws, for every rule, in a spring and in an autumn night of Berlin

BERLIN = "Europe/Berlin"
NIGHTS = (at("2026-03-29T01:00Z"), at("2026-10-25T01:00Z"))
BY_THE_CLOCK = {
    "a time of day": entry(crons("30 2 * * *", zone=BERLIN)),
    "every 20 minutes": entry(crons("*/20 * * * *", zone=BERLIN)),
    "seconds": entry(crons("*/30 */20 * * * *", zone=BERLIN)),
    "several expressions": entry(crons("30 2 * * *", "*/20 * * * *", "0 2 * * *", zone=BERLIN)),
    "+1d": entry(stamp("2026-01-01T02:30", "+1d"), zone=BERLIN),
    "+1h": entry(stamp("2026-01-01T02:30", "+1h"), zone=BERLIN),
    "++1d": entry(stamp("2026-01-01T02:30", "++1d"), zone=BERLIN),
    "++1h": entry(stamp("2026-01-01T02:30", "++1h"), zone=BERLIN),
    "once": entry(OnceRule(NIGHTS[0] + HOUR)),
    "delay": entry(OnceRule(NIGHTS[0] + HOUR, "550e8400")),
    "on demand": entry(OnDemandRule()),
}
BY_THE_END = {
    ".+1d": entry(stamp("2026-01-01T02:30", ".+1d"), zone=BERLIN),
    ".+1h": entry(stamp("2026-01-01T02:30", ".+1h"), zone=BERLIN),
    "cadence": entry(CadenceRule(10 * MINUTE, NIGHTS[0] - DAY, ticks=4)),
}
EVERY_RULE = BY_THE_CLOCK | BY_THE_END
every_rule = pytest.mark.parametrize("found", EVERY_RULE.values(), ids=EVERY_RULE.keys())
clock_rule = pytest.mark.parametrize("found", BY_THE_CLOCK.values(), ids=BY_THE_CLOCK.keys())

NEARBY = st.timedeltas(-3 * DAY, 3 * DAY)
BY_MINUTES = NEARBY.map(lambda off: off // (10 * MINUTE) * (10 * MINUTE))
BOUNDS = st.none() | st.builds(lambda night, off: night + off, st.sampled_from(NIGHTS), NEARBY)
POLICIES = st.builds(
    Policy,
    catchup=st.none() | st.sampled_from(CatchUp),
    overlap=st.sampled_from(Overlap),
    jitter=st.sampled_from([timedelta(), 90 * SECOND]),
    from_at=BOUNDS,
    until=BOUNDS,
)


@st.composite
def situations(draw: st.DrawFn) -> tuple[Policy, datetime, datetime, datetime, bool]:
    """Draw a policy, a watermark, a last end, a now, and whether a run is still going on."""
    night = draw(st.sampled_from(NIGHTS))
    since = night + draw(st.one_of(NEARBY, BY_MINUTES))
    ended_at = since - draw(st.timedeltas(timedelta(), DAY))
    now = since + draw(st.timedeltas(-HOUR, 3 * DAY))
    return draw(POLICIES), since, ended_at, now, draw(st.booleans())


Situation = tuple[Policy, datetime, datetime, datetime, bool]
EXAMPLES = settings(max_examples=scaled(240), deadline=None)


@every_rule
@given(drawn=situations())
@EXAMPLES
def test_receipts_cover_what_came_since_the_watermark_each_once_and_in_order(
    found: Entry, drawn: Situation
) -> None:
    policy, since, ended_at, now, is_busy = drawn
    found = replace(found, policy=policy, accounted_to=since, ended_at=ended_at)
    decision = decide(found, now=now, is_busy=is_busy)
    assert list(covered(found, decision.receipts)) == came(found, since, now)
    if decision.receipts:
        assert decision.accounted_to is not None
        assert since < decision.accounted_to <= now
    else:
        assert decision == Decision((), since, ended_at)


@every_rule
@given(drawn=situations())
@EXAMPLES
def test_the_same_moment_again_and_a_clock_set_back_give_nothing(
    found: Entry, drawn: Situation
) -> None:
    policy, since, ended_at, now, is_busy = drawn
    found = replace(found, policy=policy, accounted_to=since, ended_at=ended_at)
    found = after(found, decide(found, now=now, is_busy=is_busy))
    unchanged = Decision((), found.accounted_to, found.ended_at)
    for back in (timedelta(), SECOND, HOUR, 3_650 * DAY):
        assert decide(found, now=now - back, is_busy=is_busy) == unchanged


@every_rule
@given(drawn=situations())
@EXAMPLES
def test_no_more_than_ten_run_and_none_early(found: Entry, drawn: Situation) -> None:
    policy, since, ended_at, now, is_busy = drawn
    found = replace(found, policy=policy, accounted_to=since, ended_at=ended_at)
    receipts = decide(found, now=now, is_busy=is_busy).receipts
    runs = [receipt for receipt in receipts if receipt.status is Status.WAITING]
    assert len(runs) <= CAP
    assert runs == list(receipts[len(receipts) - len(runs) :])  # the newest, oldest first
    assert len(receipts) <= APART
    for receipt in receipts:
        assert receipt.count == 1 or receipt.status is not Status.WAITING
        assert receipt.planned_at <= receipt.start_at <= receipt.planned_at + policy.jitter


@clock_rule
@given(drawn=situations(), steps=st.lists(st.timedeltas(-3 * HOUR, 8 * HOUR), max_size=12))
@EXAMPLES
def test_many_small_steps_cover_what_one_large_step_covers(
    found: Entry, drawn: Situation, steps: list[timedelta]
) -> None:
    policy, since, _, now, is_busy = drawn
    found = replace(found, policy=policy, accounted_to=since)
    whole = list(covered(found, decide(found, now=now, is_busy=is_busy).receipts))

    walked: list[tuple[datetime, str]] = []
    here = since
    for step in steps:
        here = min(here + step, now)  # the clock may be set back in between
        decision = decide(found, now=here, is_busy=is_busy)
        walked += covered(found, decision.receipts)
        found = after(found, decision)
    walked += covered(found, decide(found, now=now, is_busy=is_busy).receipts)
    assert walked == whole


@clock_rule
@given(drawn=situations(), cut=st.floats(0, 1))
@EXAMPLES
def test_a_rule_that_is_closed_has_one_receipt_and_nothing_past_fires(
    found: Entry, drawn: Situation, cut: float
) -> None:
    policy, since, _, now, _ = drawn
    found = replace(found, policy=policy, accounted_to=since)
    closed_at = since + (now - since) * cut
    decision = close(found, now=closed_at, reason=because("it was paused"))
    assert len(decision.receipts) <= 1
    assert list(covered(found, decision.receipts)) == came(found, since, closed_at)
    assert all(receipt.status is Status.SKIPPED for receipt in decision.receipts)
    assert all(receipt.reason == "it was paused" for receipt in decision.receipts)
    assert decision.accounted_to == max(since, closed_at)

    found = after(found, decision)
    assert close(found, now=closed_at, reason=because("again")).receipts == ()
    later = decide(found, now=now).receipts
    assert list(covered(found, later)) == came(found, max(since, closed_at), now)


@given(
    st.sampled_from(list(BY_THE_CLOCK.values())),
    st.sampled_from(list(EVERY_RULE.values())),
    situations(),
)
@settings(max_examples=scaled(4_000), deadline=None)
def test_an_entry_with_a_new_rule_fires_nothing_past(
    old: Entry, new: Entry, drawn: Situation
) -> None:
    policy, since, _, now, _ = drawn
    old = replace(old, accounted_to=since)
    now = max(now, since)
    closed = close(old, now=now, reason=because("its rule was changed"))
    edited = replace(new, policy=replace(policy, until=None), accounted_to=closed.accounted_to)
    begun = begin(edited, now=now)
    edited = after(edited, begun)

    assert [receipt.status for receipt in begun.receipts] in ([], [Status.MISSED])
    is_delay = isinstance(new.rule, OnceRule) and new.rule.delay is not None
    if not is_delay:
        assert decide(edited, now=now).receipts == ()
    for receipt in decide(edited, now=now + DAY).receipts:
        assert receipt.planned_at > now or is_delay


# What repeaters and catch-up mean

NINE = at("2026-06-06T09:00Z")  # the last moment before the outage
BACK = NINE + 3 * DAY + HOUR  # three more have passed, the last an hour ago
DAILY: dict[str, Entry] = {
    "cron": entry(crons("0 9 * * *"), NINE),
    "+": entry(stamp("2026-06-01T09:00", "+1d"), NINE),
    "++": entry(stamp("2026-06-01T09:00", "++1d"), NINE),
    ".+": replace(entry(stamp("2026-06-01T09:00", ".+1d"), NINE), ended_at=NINE + HOUR),
    "once": entry(OnceRule(NINE + DAY), NINE),
    "delay": entry(OnceRule(NINE + DAY, "550e8400"), NINE),
    "cadence": entry(CadenceRule(DAY, NINE + DAY, ticks=4), NINE),
    "on demand": entry(OnDemandRule(), NINE),
}


@pytest.mark.parametrize(
    ("rule", "catchup", "outcome"),
    [
        ("cron", None, "2 coalesced, 1 waiting"),
        ("cron", CatchUp.ALL, "3 waiting"),
        ("cron", CatchUp.LATEST, "2 coalesced, 1 waiting"),
        ("cron", CatchUp.NONE, "3 missed"),
        ("+", None, "3 waiting"),
        ("+", CatchUp.ALL, "3 waiting"),
        ("+", CatchUp.LATEST, "2 coalesced, 1 waiting"),
        ("+", CatchUp.NONE, "3 missed"),
        ("++", None, "2 coalesced, 1 waiting"),
        ("++", CatchUp.ALL, "3 waiting"),
        ("++", CatchUp.LATEST, "2 coalesced, 1 waiting"),
        ("++", CatchUp.NONE, "3 missed"),
        (".+", None, "1 waiting"),
        (".+", CatchUp.ALL, "1 waiting"),
        (".+", CatchUp.LATEST, "1 waiting"),
        (".+", CatchUp.NONE, "1 missed"),
        ("once", None, "1 waiting"),
        ("once", CatchUp.ALL, "1 waiting"),
        ("once", CatchUp.LATEST, "1 waiting"),
        ("once", CatchUp.NONE, "1 missed"),
        ("delay", None, "1 waiting"),
        ("delay", CatchUp.ALL, "1 waiting"),
        ("delay", CatchUp.LATEST, "1 waiting"),
        ("delay", CatchUp.NONE, "1 waiting"),
        ("cadence", None, "1 waiting"),
        ("cadence", CatchUp.ALL, "1 waiting"),
        ("cadence", CatchUp.LATEST, "1 waiting"),
        ("cadence", CatchUp.NONE, "1 missed"),
        ("on demand", CatchUp.ALL, ""),
    ],
)
def test_after_three_days_without_anybody_looking(
    rule: str, catchup: CatchUp | None, outcome: str
) -> None:
    assert statuses(decide(asking(DAILY[rule], catchup=catchup), now=BACK)) == outcome


@pytest.mark.parametrize("rule", ["cron", "+", "++"])
def test_after_an_outage_the_next_moment_is_the_next_on_the_grid(rule: str) -> None:
    found = after(DAILY[rule], decide(DAILY[rule], now=BACK))
    assert found.accounted_to == NINE + 3 * DAY
    assert [moment.at for moment in project(found, found.accounted_to, BACK + DAY)] == [
        NINE + 4 * DAY
    ]


def test_after_an_outage_a_rule_that_counts_from_its_end_waits_for_the_end() -> None:
    found = after(DAILY[".+"], decide(DAILY[".+"], now=BACK))
    assert decide(found, now=BACK + 9 * DAY).receipts == ()

    done = replace(found, ended_at=BACK + 10 * MINUTE)
    (receipt,) = decide(done, now=BACK + DAY).receipts
    assert receipt.planned_at == NINE + 4 * DAY  # the day after the end, at nine


def test_six_hourly_slots_missed_give_six_receipts_one_late_and_five_coalesced() -> None:
    hourly = entry(stamp("2026-06-01T09:00", "++1h"), NINE)
    receipts = decide(hourly, now=NINE + 6 * HOUR + 20 * MINUTE).receipts
    assert [f"{receipt.planned_at:%H} {receipt.status}" for receipt in receipts] == [
        "10 coalesced",
        "11 coalesced",
        "12 coalesced",
        "13 coalesced",
        "14 coalesced",
        "15 waiting",
    ]
    assert (
        receipts[0].reason == "replaced by the run of 2026-06-06T15:00:00Z, as catch-up is latest"
    )
    assert receipts[5].reason.startswith("the scheduled time was 20m ago")


def test_of_many_missed_moments_the_newest_ten_run_oldest_first() -> None:
    decision = decide(DAILY["+"], now=NINE + 12 * DAY)
    assert statuses(decision) == "2 missed, 10 waiting"
    planned = [receipt.planned_at for receipt in decision.receipts]
    assert planned == [NINE + n * DAY for n in range(1, 13)]


def test_up_to_a_hundred_moments_have_a_receipt_each_and_more_are_a_range() -> None:
    minutely = entry(crons("* * * * *"), NINE)
    apart = decide(minutely, now=NINE + APART * MINUTE)
    assert (len(apart.receipts), statuses(apart)) == (APART, "99 coalesced, 1 waiting")

    together = decide(minutely, now=NINE + (APART + 1) * MINUTE)
    assert (len(together.receipts), statuses(together)) == (2, "100 coalesced, 1 waiting")
    assert together.receipts[0].planned_at == NINE + MINUTE
    assert together.receipts[0].through_at == NINE + APART * MINUTE
    assert together.receipts[0].key == "cron:2026-06-06T09:01:00Z"


@pytest.mark.parametrize("number", [99, 100, 101, 102, 110, 111, 112, 200, 201, 202, 211, 2_000])
@pytest.mark.parametrize("catchup", CatchUp)
def test_ranges_and_receipts_meet_without_a_hole(number: int, catchup: CatchUp) -> None:
    rules: list[Rule] = [crons("* * * * *"), crons("* * * * *", "*/2 * * * *")]
    for found in (asking(entry(rule, NINE), catchup=catchup) for rule in rules):
        now = NINE + number * MINUTE
        decision = decide(found, now=now)
        assert list(covered(found, decision.receipts)) == came(found, NINE, now)
        assert sum(receipt.count for receipt in decision.receipts) == number
        assert decision.accounted_to == now


# How late is late


def test_a_cron_moment_is_made_good_for_a_day() -> None:
    weekly = entry(crons("0 9 * * SAT"), NINE - DAY)
    assert statuses(decide(weekly, now=NINE + WINDOW)) == "1 waiting"
    decision = decide(weekly, now=NINE + WINDOW + TINY)
    assert statuses(decision) == "1 missed"
    assert after(weekly, decision).accounted_to == NINE
    assert next_moment(after(weekly, decision), NINE) is not None


def test_only_the_latest_of_a_cron_is_held_against_the_window() -> None:
    weekly = entry(crons("0 9 * * SAT"), NINE - DAY)
    assert statuses(decide(weekly, now=NINE + 7 * DAY)) == "1 coalesced, 1 waiting"
    assert statuses(decide(weekly, now=NINE + 9 * DAY)) == "2 missed"


@pytest.mark.parametrize("rule", ["++", ".+", "once", "delay", "cadence"])
def test_what_is_no_cron_is_made_good_however_late(rule: str) -> None:
    assert statuses(decide(DAILY[rule], now=BACK + 300 * DAY)).endswith("1 waiting")


def test_all_is_not_held_against_the_window() -> None:
    weekly = asking(entry(crons("0 9 * * SAT"), NINE - DAY), catchup=CatchUp.ALL)
    assert statuses(decide(weekly, now=NINE + 13 * DAY)) == "2 waiting"


@pytest.mark.parametrize("rule", ["cron", "+", "++", ".+", "once", "cadence"])
def test_a_minute_is_no_delay(rule: str) -> None:
    found = asking(DAILY[rule], catchup=CatchUp.NONE)
    on_time = decide(found, now=NINE + DAY + GRACE)
    assert statuses(on_time) == "1 waiting"
    assert on_time.receipts[0].reason.startswith("the scheduled time was reached")
    assert " ago" not in on_time.receipts[0].reason
    assert statuses(decide(found, now=NINE + DAY + GRACE + TINY)) == "1 missed"


def test_a_moment_is_decided_at_its_very_instant_and_not_before() -> None:
    daily = DAILY["cron"]
    assert decide(daily, now=NINE + DAY - TINY).receipts == ()
    (receipt,) = decide(daily, now=NINE + DAY).receipts
    assert (receipt.status, receipt.start_at) == (Status.WAITING, NINE + DAY)


def test_a_watermark_on_a_moment_has_that_moment_behind_it() -> None:
    assert statuses(decide(entry(crons("0 9 * * *"), NINE), now=NINE + HOUR)) == ""
    assert statuses(decide(entry(crons("0 9 * * *"), NINE - TINY), now=NINE + HOUR)) == "1 waiting"


def test_an_entry_that_nobody_has_begun_decides_nothing() -> None:
    assert decide(entry(crons("* * * * *")), now=NINE) == Decision((), None, None)
    assert close(entry(crons("* * * * *")), now=NINE, reason=because("")) == Decision(
        (), None, None
    )


def test_both_passes_of_an_autumn_night_have_a_receipt_each() -> None:
    twice = entry(crons("30 2-2/1 * * *", "30 * 25 10 *", zone=BERLIN), at("2026-10-25T00:00Z"))
    decision = decide(asking(twice, catchup=CatchUp.ALL), now=at("2026-10-25T01:59Z"))
    assert [receipt.key for receipt in decision.receipts] == [
        "cron:2026-10-25T00:30:00Z",
        "cron:2026-10-25T01:30:00Z",
    ]


def test_until_is_the_last_moment_that_is_decided() -> None:
    ending = asking(DAILY["+"], until=NINE + 2 * DAY)
    decision = decide(ending, now=BACK)
    assert [receipt.planned_at for receipt in decision.receipts] == [NINE + DAY, NINE + 2 * DAY]
    assert decide(after(ending, decision), now=BACK + 900 * DAY).receipts == ()
    minutely = asking(entry(crons("* * * * *"), NINE), until=NINE + 500 * MINUTE)
    assert decide(minutely, now=BACK + 900 * DAY).accounted_to == NINE + 500 * MINUTE


def test_a_now_without_a_zone_is_refused() -> None:
    with pytest.raises((TypeError, ValueError)):
        decide(DAILY["cron"], now=at("2026-06-09T10:00"))


# What an outage of years costs


def within(calls: int, act: Callable[[], Decision]) -> Decision:
    """Return what *act* gives, if it calls no more than so many functions."""
    left = calls

    def count(*_: object) -> None:
        nonlocal left
        left -= 1
        if left < 0:
            raise AssertionError(f"it takes more than {calls} calls")

    sys.setprofile(count)
    try:
        return act()
    finally:
        sys.setprofile(None)


@pytest.mark.parametrize("zone", ["UTC", BERLIN, "Australia/Lord_Howe"])
@pytest.mark.parametrize("expression", ["* * * * *", "* * * * * *", "*/7 3-5 * * MON-FRI"])
@pytest.mark.parametrize("catchup", CatchUp)
def test_ten_years_of_downtime_are_a_few_rows_and_little_work(
    zone: str, expression: str, catchup: CatchUp
) -> None:
    busy = asking(entry(crons(expression, zone=zone), NINE), catchup=catchup)
    now = NINE + 3_652 * DAY
    decision = within(50_000, lambda: decide(busy, now=now))
    assert len(decision.receipts) <= CAP + 1
    assert sum(each.status is Status.WAITING for each in decision.receipts) <= CAP
    total = sum(receipt.count for receipt in decision.receipts)
    assert total == count_any([Cron(expression, zone=zone)], NINE, now)
    skipped = within(50_000, lambda: close(busy, now=now, reason=because("it was paused")))
    assert (len(skipped.receipts), skipped.receipts[0].count) == (1, total)
    assert next_moment(after(busy, decision), now) is not None  # it is still armed


def test_several_expressions_cost_no_more_than_one() -> None:
    busy = entry(crons("* * * * *", "*/2 9 * * *"), NINE)
    decision = within(50_000, lambda: decide(busy, now=NINE + 60 * DAY))
    assert statuses(decision) == f"{60 * 24 * 60 - 1} coalesced, 1 waiting"


@pytest.mark.parametrize("repeater", ["+1h", "++1h"])
def test_ten_years_of_an_hourly_stamp_are_little_work(repeater: str) -> None:
    hourly = entry(stamp("2016-06-01T09:00", repeater), NINE)
    decision = within(50_000, lambda: decide(hourly, now=NINE + 3_652 * DAY))
    assert sum(receipt.count for receipt in decision.receipts) == 3_652 * 24


# Overlap

EIGHT = NINE - HOUR


@pytest.mark.parametrize(
    ("overlap", "is_busy", "outcome"),
    [
        (Overlap.SKIP, False, "1 waiting"),
        (Overlap.SKIP, True, "1 skipped"),
        (Overlap.QUEUE, False, "1 waiting"),
        (Overlap.QUEUE, True, "1 waiting"),
        (Overlap.ALLOW, False, "1 waiting"),
        (Overlap.ALLOW, True, "1 waiting"),
    ],
)
@pytest.mark.parametrize(
    "rule",
    [
        crons("0 9 * * *"),
        stamp("2026-06-01T09:00", "+1d"),
        stamp("2026-06-01T09:00", "++1d"),
        stamp("2026-06-06T09:00", ".+1d"),
        OnceRule(NINE),
        CadenceRule(DAY, NINE),
    ],
)
def test_a_moment_that_comes_during_a_run(
    rule: Rule, overlap: Overlap, is_busy: bool, outcome: str
) -> None:
    found = asking(entry(rule, EIGHT), overlap=overlap)
    decision = decide(found, now=NINE, is_busy=is_busy)
    assert statuses(decision) == outcome
    assert decision.accounted_to == NINE


def test_a_skipped_moment_says_so() -> None:
    (receipt,) = decide(entry(crons("0 9 * * *"), EIGHT), now=NINE, is_busy=True).receipts
    assert receipt.reason == "the previous run was still running, and overlap is skip"


def test_a_moment_behind_one_that_does_not_run_says_why_that_is_so() -> None:
    before = behind_words(Status.HELD, "its agent has no command")
    found = entry(crons("0 9 * * *"), EIGHT)
    (receipt,) = decide(found, now=NINE, is_busy=True, behind=before).receipts
    assert receipt.status is Status.SKIPPED
    assert receipt.reason == (
        "the previous run is held (its agent has no command), and overlap is skip"
    )


def test_moments_made_good_together_wait_for_one_another_whatever_the_overlap() -> None:
    for overlap in Overlap:
        late = asking(DAILY["+"], overlap=overlap)
        assert statuses(decide(late, now=BACK, is_busy=True)) == "3 waiting"


def test_one_moment_made_good_waits_for_the_run_before_it_too() -> None:
    late = DAILY["+"]
    assert statuses(decide(late, now=NINE + DAY + HOUR, is_busy=True)) == "1 waiting"


@pytest.mark.parametrize("rule", ["cron", "++"])
def test_nothing_is_coalesced_into_a_moment_that_is_skipped(rule: str) -> None:
    decision = decide(DAILY[rule], now=BACK, is_busy=True)
    assert "coalesced" not in statuses(decision)


# Never stuck


@given(
    st.sampled_from([".+1d", ".+1h", ".+2w", ".+1m", ".+3d/5d"]),
    st.sampled_from(["UTC", BERLIN, "Australia/Lord_Howe"]),
    st.none() | st.sampled_from(CatchUp),
    st.lists(st.tuples(st.timedeltas(SECOND, 40 * DAY), st.booleans(), st.booleans())),
)
@settings(max_examples=scaled(2_000), deadline=None)
def test_a_rule_that_counts_from_its_end_always_has_a_next_moment(
    repeater: str,
    zone: str,
    catchup: CatchUp | None,
    steps: list[tuple[timedelta, bool, bool]],
) -> None:
    now = at("2026-03-20T12:00Z")
    found = asking(entry(stamp("2026-03-01T02:30", repeater), zone=zone), catchup=catchup)
    found = after(found, begin(found, now=now))
    for step, is_busy, ends in steps:
        now += step
        decision = decide(found, now=now, is_busy=is_busy)
        found = after(found, decision)
        if any(receipt.status is Status.WAITING for receipt in decision.receipts):
            assert decide(found, now=now + 400 * DAY).receipts == ()
            now += MINUTE if ends else 3 * DAY
            found = replace(found, ended_at=now)
        assert found.accounted_to is not None
        coming = next(decided(project(found, found.accounted_to, now + 60 * DAY)), None)
        assert coming is not None
        assert decide(found, now=max(now, coming.at)).receipts


def test_a_rule_that_counts_from_its_end_goes_on_after_a_pause() -> None:
    paused = DAILY[".+"]
    resumed = after(paused, close(paused, now=BACK, reason=because("it was paused")))
    assert decide(resumed, now=BACK + 2 * DAY).receipts


def test_the_closed_moment_of_a_rule_that_counts_from_its_end_has_one_receipt() -> None:
    decision = close(DAILY[".+"], now=BACK, reason=because("it was paused"))
    assert list(covered(DAILY[".+"], decision.receipts)) == [
        (NINE + DAY, "at:2026-06-07T09:00:00Z")
    ]
    assert decision.accounted_to == BACK


@pytest.mark.parametrize(
    ("policy", "is_busy"), [(Policy(), True), (Policy(catchup=CatchUp.NONE), False)]
)
def test_a_keeper_whose_tick_was_skipped_or_missed_ticks_again(
    policy: Policy, is_busy: bool
) -> None:
    keeper = replace(DAILY["cadence"], policy=policy)
    decision = decide(keeper, now=BACK, is_busy=is_busy)
    assert "waiting" not in statuses(decision)
    keeper = replace(after(keeper, decision), rule=CadenceRule(DAY, NINE + DAY, ticks=5))
    assert decide(keeper, now=BACK + 2 * DAY).receipts


def test_a_tick_that_goes_on_is_not_followed_by_another() -> None:
    keeper = after(DAILY["cadence"], decide(DAILY["cadence"], now=BACK))
    assert decide(keeper, now=BACK + 90 * DAY).receipts == ()
    ended = replace(keeper, rule=CadenceRule(DAY, NINE + DAY, ticks=5), ended_at=BACK + 10 * MINUTE)
    (receipt,) = decide(ended, now=BACK + 2 * DAY).receipts
    assert (receipt.key, receipt.planned_at) == ("tick:6", BACK + DAY + 10 * MINUTE)


# Seen for the first time


@pytest.mark.parametrize("rule", ["cron", "+", "++", ".+", "cadence", "on demand"])
def test_nothing_that_was_before_an_entry_was_seen_fires(rule: str) -> None:
    fresh = replace(DAILY[rule], accounted_to=None, ended_at=None)
    begun = begin(fresh, now=BACK)
    assert (begun.receipts, begun.accounted_to) == ((), BACK)
    found = after(fresh, begun)
    assert decide(found, now=BACK).receipts == ()
    assert all(each.planned_at > BACK for each in decide(found, now=BACK + 3 * DAY).receipts)


def test_a_stamp_that_counts_from_its_end_counts_from_when_it_was_seen() -> None:
    late = entry(stamp("2026-06-01T09:00", ".+2d"))
    found = after(late, begin(late, now=BACK))
    (receipt,) = decide(found, now=BACK + 2 * DAY).receipts
    assert receipt.planned_at == NINE + 5 * DAY

    early = entry(stamp("2026-06-20T09:00", ".+2d"))
    found = after(early, begin(early, now=BACK))
    (receipt,) = decide(found, now=BACK + 90 * DAY).receipts
    assert receipt.planned_at == at("2026-06-20T09:00Z")


def test_a_single_moment_seen_too_late_is_missed_once_and_says_so() -> None:
    late = entry(OnceRule(NINE))
    begun = begin(late, now=NINE + 3 * DAY)
    (receipt,) = begun.receipts
    assert (receipt.key, receipt.status) == ("at:2026-06-06T09:00:00Z", Status.MISSED)
    assert receipt.reason == "the entry was added 3d after its scheduled time"
    assert decide(after(late, begun), now=NINE + 9 * DAY).receipts == ()


def test_a_single_moment_seen_in_time_runs_late_once_and_says_so() -> None:
    once = entry(OnceRule(NINE))
    once = after(once, begin(once, now=NINE - DAY))
    decision = decide(once, now=NINE + 3 * DAY)
    (receipt,) = decision.receipts
    assert receipt.status is Status.WAITING
    assert receipt.reason.startswith("the scheduled time was 3d ago")
    assert decide(after(once, decision), now=NINE + 9 * DAY).receipts == ()


@pytest.mark.parametrize("catchup", [None, *CatchUp])
@pytest.mark.parametrize("late", [timedelta(), SECOND, DAY, 3_650 * DAY])
def test_a_delay_in_the_past_runs_at_once_and_once(
    catchup: CatchUp | None, late: timedelta
) -> None:
    past = asking(entry(OnceRule(NINE, "550e8400")), catchup=catchup)
    now = NINE + late
    found = after(past, begin(past, now=now))
    decision = decide(found, now=now)
    (receipt,) = decision.receipts
    assert (receipt.key, receipt.status) == ("delay:550e8400", Status.WAITING)
    for later in (timedelta(), DAY, 900 * DAY):
        assert decide(after(found, decision), now=now + later).receipts == ()


def test_a_delay_in_the_future_runs_in_its_time() -> None:
    delay = entry(OnceRule(NINE, "550e8400"))
    delay = after(delay, begin(delay, now=NINE - DAY))
    assert decide(delay, now=NINE - TINY).receipts == ()
    assert statuses(decide(delay, now=NINE)) == "1 waiting"


def test_a_delay_that_is_set_again_has_a_key_of_its_own() -> None:
    first = entry(OnceRule(NINE, "550e8400"), NINE)
    again = replace(first, rule=OnceRule(NINE, "550e8400:2"))
    again = after(again, begin(again, now=BACK))
    (receipt,) = decide(again, now=BACK).receipts
    assert receipt.key == "delay:550e8400:2"


def test_a_single_moment_after_its_until_is_seen_without_a_receipt() -> None:
    vain = asking(entry(OnceRule(NINE)), until=NINE - DAY)
    assert begin(vain, now=BACK) == Decision((), BACK, None)


@pytest.mark.parametrize("delay", [None, "550e8400"])
def test_a_single_moment_may_be_the_first_of_the_calendar(delay: str | None) -> None:
    first = entry(OnceRule(at("0001-01-01T00:00Z"), delay))
    begun = begin(first, now=BACK)
    assert statuses(begun) == ("1 missed" if delay is None else "")


def test_a_watermark_never_goes_back_when_an_entry_is_seen_again() -> None:
    ahead = entry(crons("0 9 * * *"), BACK)
    begun = begin(ahead, now=NINE)  # the clock was set back in between
    assert begun.accounted_to == BACK


def test_a_rule_that_counts_from_its_end_keeps_its_rhythm_when_it_is_seen_again() -> None:
    weekly = replace(entry(stamp("2026-06-01T09:00", ".+1w"), NINE), ended_at=NINE)
    again = after(weekly, begin(weekly, now=NINE + 5 * DAY))
    (receipt,) = decide(again, now=NINE + 7 * DAY).receipts
    assert receipt.planned_at == NINE + 7 * DAY


def test_a_single_moment_that_has_its_receipt_gets_no_other_when_it_is_seen_again() -> None:
    done = entry(OnceRule(NINE), NINE)
    assert begin(done, now=BACK).receipts == ()


# Reasons


def reasons() -> dict[str, str]:
    """Return a reason of each kind."""
    weekly = entry(crons("0 9 * * SAT"), NINE - DAY)
    none = asking(DAILY["cron"], catchup=CatchUp.NONE)
    found = {
        "on time": decide(DAILY["cron"], now=NINE + DAY).receipts[0],
        "late": decide(DAILY["cron"], now=BACK).receipts[-1],
        "coalesced": decide(DAILY["cron"], now=BACK).receipts[0],
        "none": decide(none, now=BACK).receipts[0],
        "over the cap": decide(DAILY["+"], now=NINE + 12 * DAY).receipts[0],
        "out of the window": decide(weekly, now=NINE + 2 * DAY).receipts[0],
        "overlap": decide(DAILY["cron"], now=NINE + DAY, is_busy=True).receipts[0],
        "seen too late": begin(entry(OnceRule(NINE)), now=BACK).receipts[0],
    }
    return {kind: receipt.reason for kind, receipt in found.items()}


def test_every_reason_is_a_plain_sentence() -> None:
    for reason in reasons().values():
        assert reason == reason.strip()
        assert len(reason.split()) >= 4
        assert not reason.endswith(".")
        assert not any(word in reason for word in ("timedelta", "datetime", "None", "Status"))


@pytest.mark.parametrize(
    ("kind", "policy"),
    [
        ("coalesced", "catch-up is latest"),
        ("none", "catch-up is none"),
        ("overlap", "overlap is skip"),
        pytest.param("late", "catch-up is latest"),
        pytest.param("over the cap", "catch-up is all"),
        pytest.param("out of the window", "catch-up is latest"),
    ],
)
def test_a_reason_names_the_policy_that_decided(kind: str, policy: str) -> None:
    assert policy in reasons()[kind]


def test_a_coalesced_moment_names_the_one_that_runs_for_it() -> None:
    *others, runs = decide(DAILY["cron"], now=BACK).receipts
    assert all(runs.key.removeprefix("cron:") in other.reason for other in others)


# Jitter

SPREAD = timedelta(minutes=5)


def test_without_jitter_a_run_starts_at_its_moment() -> None:
    assert jitter(DAILY["cron"], "cron:2026-06-07T09:00:00Z") == timedelta(0)


def test_jitter_is_the_same_after_a_restart() -> None:
    spread = asking(DAILY["cron"], jitter=SPREAD)
    # Numbers from another process: nothing here depends on when or where it is asked.
    assert [jitter(spread, f"cron:2026-06-0{day}T09:00:00Z").seconds for day in (7, 8, 9)] == [
        263,
        115,
        83,
    ]


def test_jitter_differs_between_entries_and_between_moments() -> None:
    spread = asking(DAILY["cron"], jitter=SPREAD)
    by_entry = {jitter(replace(spread, number=n), "cron:2026-06-07T09:00:00Z") for n in range(200)}
    by_moment = {jitter(spread, f"tick:{n}") for n in range(200)}
    assert len(by_entry) > 100
    assert len(by_moment) > 100


@given(st.integers(0, 10**9), st.text(max_size=30), st.timedeltas(timedelta(), 100 * DAY))
@settings(max_examples=scaled(4_000))
def test_jitter_is_never_early_and_never_more_than_asked(
    number: int, key: str, most: timedelta
) -> None:
    spread = asking(replace(DAILY["cron"], number=number), jitter=most)
    assert timedelta(0) <= jitter(spread, key) <= most
    assert jitter(spread, key) == jitter(spread, key)


def test_jitter_fills_its_length_evenly() -> None:
    spread = asking(DAILY["cron"], jitter=10 * SECOND)
    rolls = Counter(jitter(spread, f"tick:{n}").seconds for n in range(2_000))
    assert set(rolls) == set(range(10))
    assert all(120 < number < 280 for number in rolls.values())


def test_an_entry_that_moved_keeps_its_jitter() -> None:
    here = asking(DAILY["cron"], jitter=SPREAD)
    there = replace(here, address="other.org::Digest", title="Digest!", origin=Origin("o.org", 9))
    assert jitter(here, "tick:1") == jitter(there, "tick:1")


def test_a_receipt_starts_after_its_moment_by_its_jitter() -> None:
    spread = asking(DAILY["cron"], jitter=SPREAD)
    (receipt,) = decide(spread, now=NINE + DAY).receipts
    assert receipt.start_at == receipt.planned_at + jitter(spread, receipt.key)
    assert receipt.reason == "the scheduled time was reached"
