"""Cron beside cronsim and croniter: where they agree with us, and each place they do not.

Each disagreement has a name, a reason and an example which shows that it is real. The
property tests leave out exactly what is named here, and nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

import pytest
from croniter import croniter
from cronsim import CronSim
from hypothesis import assume, given, settings, strategies as st

from horae.timing.cron import Cron
from horae.timing.zone import changes
from scale import scaled

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from horae.timing.zone import ClockChange

HORIZON = timedelta(days=800)
MOST = 12


@dataclass(frozen=True)
class Case:
    """A question to all three: the moments of a rule after a start."""

    expression: str
    zone: str
    start: datetime

    @property
    def end(self) -> datetime:
        return self.start + HORIZON

    @property
    def local(self) -> datetime:
        return self.start.astimezone(ZoneInfo(self.zone))

    @property
    def time(self) -> list[str]:
        return self.expression.split()[:-3]

    @property
    def days(self) -> tuple[str, str]:
        day, _, weekday = self.expression.split()[-3:]
        return day, weekday

    @property
    def has_star(self) -> bool:
        return any("*" in field for field in self.time)

    def ours(self) -> list[datetime]:
        found = Cron(self.expression, self.zone).between(self.start, self.end)
        return [moment.astimezone(UTC) for moment in islice(found, MOST)]

    def changes(self) -> Iterator[ClockChange]:
        """Yield the clock changes that can matter to the first moments."""
        found = self.ours()
        end = found[-1] if len(found) == MOST else self.end
        return changes(ZoneInfo(self.zone), self.start - timedelta(days=1), end + timedelta(days=1))


def by_cronsim(case: Case) -> list[datetime]:
    found: list[datetime] = []
    for moment in CronSim(case.expression, case.local):
        at = moment.astimezone(UTC)
        if at > case.end or len(found) == MOST:
            break
        # Of several times in one gap cronsim gives the moment after it once for each.
        if at not in found[-1:]:
            found.append(at)
    return found


def by_croniter(case: Case) -> list[datetime]:
    is_by_second = len(case.expression.split()) == 6
    iterator = croniter(case.expression, case.local, datetime, second_at_beginning=is_by_second)
    found: list[datetime] = []
    while len(found) < MOST:
        at = iterator.get_next(datetime).astimezone(UTC)
        if at > case.end:
            break
        found.append(at)
    return found


# What is left out: a name, and when it applies.


def a_date_that_never_comes(case: Case) -> bool:
    """Both refuse or give up on 30 February; we read it, and leave it to those who store a rule
    to refuse one that never comes.
    """
    return Cron(case.expression).never


def both_days_with_a_stepped_star(case: Case) -> bool:
    """Cronsim, as Debian, takes any field that begins with `*` for unrestricted, and then
    asks for both days; we take only the bare star so, as the manual page has it.
    """
    return "*" not in case.days and any(field.startswith("*/") for field in case.days)


def seconds_in_a_zone_with_changes(case: Case) -> bool:
    """Cronsim has no rule for clock changes with six fields; ours is the same for all."""
    return len(case.expression.split()) == 6 and any(case.changes())


def a_start_in_the_second_pass(case: Case) -> bool:
    """Cronsim forgets the fold of its start, and gives moments of the first pass, before it."""
    return bool(case.local.fold) and not case.has_star


def a_change_off_the_hour_for_a_starred_rule(case: Case) -> bool:
    """Cronsim steps by whole hours and by midnights: it loses what a change of half an hour
    or at a quarter to brings or moves, and fires at a midnight that does not exist.
    """
    return case.has_star and any(not is_plain(case.zone, change) for change in case.changes())


def is_plain(zone: str, change: ClockChange) -> bool:
    """Whether a change is of whole hours, at a full hour, and away from midnight."""
    hour = timedelta(hours=1)
    walls = [change.at.replace(tzinfo=None) + shift for shift in (change.before, change.after)]
    return all(wall.minute == 0 and wall.hour != 0 for wall in walls) and not (
        (change.after - change.before) % hour
    )


def a_second_pass(case: Case) -> bool:
    """Croniter runs a rule without a star in both passes of an autumn night."""
    return not case.has_star and any(not change.is_gap for change in case.changes())


def a_gap_for_a_rule_with_seconds(case: Case) -> bool:
    """Croniter goes through a gap by minutes, and ends some seconds after it."""
    return len(case.time) == 3 and not case.has_star and any(c.is_gap for c in case.changes())


def a_change_for_a_starred_rule(case: Case) -> bool:
    """Croniter runs a starred rule after a gap, for what the gap left out, and loses parts of
    a second pass.
    """
    return case.has_star and any(case.changes())


def a_counted_weekday_and_a_date(case: Case) -> bool:
    """Croniter cannot unite `d#n` with a day of month: it finds nothing, or asks for both."""
    return "#" in case.days[1] and case.days[0] != "*"


def a_whole_week_beside_a_stepped_star(case: Case) -> bool:
    """Croniter takes a day field that names all its values for a bare star, but only when the
    other has a star in it.
    """
    day, weekday = case.days
    return weekday == "0-6" and day.startswith("*/")


CRONSIM_DIFFERS = [
    a_date_that_never_comes,
    both_days_with_a_stepped_star,
    seconds_in_a_zone_with_changes,
    a_start_in_the_second_pass,
    a_change_off_the_hour_for_a_starred_rule,
]
CRONITER_DIFFERS = [
    a_date_that_never_comes,
    a_second_pass,
    a_gap_for_a_rule_with_seconds,
    a_change_for_a_starred_rule,
    a_counted_weekday_and_a_date,
    a_whole_week_beside_a_stepped_star,
]


# The dialect all three share


def values(low: int, high: int) -> st.SearchStrategy[str]:
    value = st.integers(low, high)
    # A range of one value, and one value with a step in a range, is another range to both.
    ends = st.tuples(value, value).filter(lambda pair: pair[0] < pair[1])
    step = st.integers(2, high)
    return st.one_of(
        st.just("*"),
        value.map(str),
        step.map("*/{}".format),
        ends.map(lambda pair: f"{pair[0]}-{pair[1]}"),
        st.builds(lambda pair, step: f"{pair[0]}-{pair[1]}/{step}", ends, step),
        st.lists(value.map(str), min_size=2, max_size=4).map(",".join),
    )


NIGHT = st.sampled_from(["0", "1", "2", "3", "0-4", "1,2", "23", "*/2"])
DAYS = st.one_of(st.just("*"), values(1, 28), st.sampled_from(["L", "1,L", "15,L", "29", "31"]))
WEEKDAYS = st.one_of(
    st.just("*"),
    values(0, 6),
    st.sampled_from(["MON-FRI", "2#1", "FRI#3", "1#5", "MON#1,FRI#3", "sat", "7", "5-7"]),
)
MONTHS = st.one_of(st.just("*"), values(1, 12), st.sampled_from(["JAN", "mar-may", "10,11"]))
FIVE = st.builds(
    "{} {} {} {} {}".format, values(0, 59), values(0, 23) | NIGHT, DAYS, MONTHS, WEEKDAYS
)
SIX = st.builds("{} {}".format, values(0, 59), FIVE)
ZONES = st.sampled_from(
    [
        "UTC",
        "Europe/Berlin",
        "America/New_York",
        "Australia/Lord_Howe",
        "Pacific/Chatham",
        "Pacific/Apia",
        "Asia/Kolkata",
        "Asia/Beirut",
        "Africa/Cairo",
        "Antarctica/Troll",
    ]
)
NIGHTS = st.sampled_from(
    [
        "2011-12-29",  # the day that Apia lost
        "2025-03-08",  # New York
        "2025-03-29",  # Berlin, Troll, Beirut
        "2025-04-05",  # Lord Howe, Chatham
        "2025-04-24",  # Cairo
        "2025-10-04",  # Lord Howe
        "2025-10-25",  # Berlin, Troll, Beirut
        "2025-11-01",  # New York
    ]
).map(lambda day: datetime.fromisoformat(day).replace(tzinfo=UTC))
STARTS = st.one_of(
    st.builds(lambda day, wait: day + wait, NIGHTS, st.timedeltas(timedelta(0), timedelta(days=2))),
    st.datetimes(datetime(2000, 1, 1), datetime(2035, 1, 1), timezones=st.just(UTC)),  # noqa: DTZ001 - bounds are naive
)
CASES = st.builds(Case, FIVE | FIVE | SIX, ZONES, STARTS)


@settings(max_examples=scaled(5_000), deadline=None)
@given(CASES)
def test_cronsim_agrees(case: Case) -> None:
    assume(not any(differs(case) for differs in CRONSIM_DIFFERS))
    assert by_cronsim(case) == case.ours()


@settings(max_examples=scaled(5_000), deadline=None)
@given(CASES)
def test_croniter_agrees(case: Case) -> None:
    assume(not any(differs(case) for differs in CRONITER_DIFFERS))
    assert by_croniter(case) == case.ours()


def case(expression: str, zone: str, start: str) -> Case:
    return Case(expression, zone, datetime.fromisoformat(start).replace(tzinfo=UTC))


@pytest.mark.parametrize(
    ("differs", "example"),
    [
        (both_days_with_a_stepped_star, case("0 0 */2 * MON", "UTC", "2026-01-01")),
        (seconds_in_a_zone_with_changes, case("0 30 2 * * *", "Europe/Berlin", "2026-03-28T12:00")),
        (a_start_in_the_second_pass, case("30 2 * * *", "Europe/Berlin", "2026-10-25T01:10")),
        (
            a_change_off_the_hour_for_a_starred_rule,
            case("17 */20 * * *", "Australia/Lord_Howe", "2026-10-03T12:00"),
        ),
        (
            a_change_off_the_hour_for_a_starred_rule,
            case("*/18 2 * * *", "Pacific/Chatham", "2026-04-04T00:00"),
        ),
        (
            a_change_off_the_hour_for_a_starred_rule,
            case("* * * * WED,FRI", "Pacific/Apia", "2011-12-29T16:00"),
        ),
    ],
)
def test_cronsim_differs_as_named(differs: Callable[[Case], bool], example: Case) -> None:
    assert [other for other in CRONSIM_DIFFERS if other(example)] == [differs]
    assert by_cronsim(example) != example.ours()


@pytest.mark.parametrize(
    ("differs", "example"),
    [
        (a_second_pass, case("30 1 * * *", "America/New_York", "2026-10-31T12:00")),
        (a_date_that_never_comes, case("0 0 31 2 *", "UTC", "2026-01-01")),
        (a_gap_for_a_rule_with_seconds, case("1 0 0 * * *", "Africa/Cairo", "2023-04-27T12:00")),
        (a_change_for_a_starred_rule, case("*/26 2 * * *", "America/New_York", "2026-03-07T12:00")),
        (a_counted_weekday_and_a_date, case("0 0 15,L * MON#1", "UTC", "2026-01-01")),
        (a_whole_week_beside_a_stepped_star, case("0 0 */16 * 0-6", "UTC", "2026-01-01")),
    ],
)
def test_croniter_differs_as_named(differs: Callable[[Case], bool], example: Case) -> None:
    assert [other for other in CRONITER_DIFFERS if other(example)] == [differs]
    try:
        theirs: list[datetime] | None = by_croniter(example)
    except ValueError:  # it gives up
        theirs = None
    assert theirs != example.ours()


def test_a_range_of_one_value_is_one_value() -> None:
    asked = case("10-10/20 0 * * *", "UTC", "2026-01-01")
    assert minutes(asked.ours()) == [10]
    assert minutes(by_cronsim(asked)) == [10, 30, 50]
    assert minutes(by_croniter(asked)) == [0, 20, 40]


def test_an_open_step_through_the_week_reaches_sunday() -> None:
    asked = case("0 0 * * 1/3", "UTC", "2026-01-01")
    assert weekdays(asked.ours()) == {"Mon", "Thu", "Sun"}
    assert weekdays(by_cronsim(asked)) == {"Mon", "Thu", "Sun"}
    assert weekdays(by_croniter(asked)) == {"Mon", "Thu"}


def test_the_nearest_weekday_to_a_day_that_a_month_lacks_does_not_come() -> None:
    asked = case("0 0 31W * *", "UTC", "2026-02-01")
    assert asked.ours()[0].isoformat() == "2026-03-31T00:00:00+00:00"
    assert by_croniter(asked)[0].isoformat() == "2026-02-27T00:00:00+00:00"


def minutes(moments: list[datetime]) -> list[int]:
    return sorted({moment.minute for moment in moments})


def weekdays(moments: list[datetime]) -> set[str]:
    return {moment.strftime("%a") for moment in moments}
