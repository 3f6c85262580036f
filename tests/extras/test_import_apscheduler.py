"""Jobs of APScheduler, read from a program that never runs, with equal moments."""

import ast
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

import horae
from extras.foreign import of_apscheduler, prove, times_of
from horae.extras.importers.apscheduler import read_program
from horae.extras.importers.job import import_job, next_times
from horae.timing.zone import changes, zone
from scale import scaled

pytest.importorskip("apscheduler")
from apscheduler.triggers.cron import CronTrigger
from apscheduler.triggers.date import DateTrigger
from apscheduler.triggers.interval import IntervalTrigger

NOW = datetime(2026, 11, 14, 12, 0, tzinfo=UTC)
KINDS = {"cron": CronTrigger, "interval": IntervalTrigger, "date": DateTrigger}
TRIGGERS = [
    "'cron', hour=9",
    "'cron', hour=2, minute=30",
    "'cron', day_of_week='mon-fri', hour='9-17', minute='*/20'",
    "'cron', day_of_week=0",
    "'cron', day='last', hour=23, minute=59",
    "'cron', day='2nd fri', hour=8",
    "'cron', day='last sun,1', hour=8",
    "'cron', month='jan,jul', day=1",
    "'cron', second='*/30'",
    "'cron', minute='5/10'",
    "'cron', day='8-14', day_of_week='tue', hour=3",
    "'cron', year='2027-2030'",
    "'cron', day='*/3', hour='*/6'",
    "'cron', hour=9, timezone='Asia/Tokyo'",
    "'interval', minutes=15, start_date='2026-01-01 00:00:00'",
    "'interval', hours=6, start_date='2026-01-01 00:00:00'",
    "'interval', days=3, start_date='2026-01-01 06:00:00'",
    "'interval', seconds=10, start_date='2026-01-01 00:00:05'",
    "'interval', weeks=2, start_date='2026-01-05 09:00:00', end_date='2027-06-01 00:00:00'",
    "'date', run_date='2026-12-24 18:00:00'",
    "'date', run_date='2026-12-24 18:00:30'",
]


def taken(trigger: str, zone_name: str = "Europe/Berlin") -> Any:
    reading = read_program(
        f"scheduler.add_job(tick, {trigger})\n", name="jobs.py", zone_name=zone_name, now=NOW
    )
    assert [str(each) for each in reading.remarks if not each.is_taken] == []
    return reading.jobs[0]


def of_the_library(trigger: str, count: int, zone_name: str = "Europe/Berlin") -> list[datetime]:
    """Return when APScheduler itself would fire."""
    call = ast.parse(f"f({trigger})", mode="eval").body
    assert isinstance(call, ast.Call)
    given = {str(each.arg): ast.literal_eval(each.value) for each in call.keywords}
    given.setdefault("timezone", zone_name)
    made = KINDS[ast.literal_eval(call.args[0])](**given)
    return next_fires(made, count)


def next_fires(made: Any, count: int) -> list[datetime]:
    found: list[datetime] = []
    at, now = None, NOW + timedelta(seconds=1)  # it takes now itself for the next
    while len(found) < count:
        at = made.get_next_fire_time(at, now)
        if at is None:
            break
        found.append(at.astimezone(UTC))
        now = at
    return found


def quiet(moments: list[datetime]) -> list[datetime]:
    """Return the moments that no clock change is near.

    Beside one the library's own arithmetic goes astray: the Monday after the change in spring
    is left out of `day_of_week=0`, and in autumn one moment may come twice.
    """
    year = timedelta(days=366 * 60)
    near = [each.at for each in changes(zone("Europe/Berlin"), NOW, NOW + year)]
    days = {(each + timedelta(days=n)).date() for each in near for n in (-1, 0, 1, 2)}
    return [at for at in moments if at.date() not in days]


@pytest.mark.parametrize("trigger", TRIGGERS)
def test_a_call_fires_as_the_library_itself_would(trigger: str) -> None:
    job = taken(trigger)
    adopted = import_job(job, now=NOW)
    assert adopted.is_taken, adopted.reason
    assert adopted.entry is not None
    proof = prove(adopted.entry, [of_apscheduler(rule) for rule in job.rules], now=NOW)
    theirs, walked = of_the_library(trigger, 60), proof.moments
    end = min(theirs[-1], walked[-1])
    assert quiet([at for at in walked if at <= end]) == quiet([at for at in theirs if at <= end])
    odd = [each for each in proof.seams if each.at <= proof.moments[-1]]
    missing = sum(not each.is_ours for each in odd)
    assert proof.equal == proof.asked - missing
    assert adopted.fires == next_times(adopted.entry, NOW, 3)
    assert [str(each) for each in horae.check(adopted.text) if each.code == "drift"] == []


def test_there_are_at_least_a_dozen_calls() -> None:
    assert len(TRIGGERS) >= 12


FIELDS = {
    "minute": st.one_of(st.just("*/20"), st.integers(0, 59).map(str), st.just("10-30/7")),
    "hour": st.one_of(st.just("*"), st.integers(0, 23).map(str), st.just("1-3"), st.just("*/5")),
    "day": st.sampled_from(["*", "1", "last", "2nd sat", "last fri", "10-20/3", "31", "5,25"]),
    "month": st.sampled_from(["*", "mar,oct", "1-6", "*/4"]),
}


@given(st.fixed_dictionaries({}, optional=FIELDS))
@settings(max_examples=scaled(500), deadline=None)
def test_any_cron_trigger_is_walked_as_the_library_walks_it(fields: dict[str, str]) -> None:
    given = ", ".join(f"{key}={value!r}" for key, value in fields.items())
    trigger = f"'cron', {given}" if given else "'cron', minute='*'"
    # In UTC: where a clock jumps forward, the library loses the next midnight it looks for.
    rules = taken(trigger, "UTC").rules
    assert times_of([*map(of_apscheduler, rules)], "UTC", NOW, 25) == of_the_library(
        trigger, 25, "UTC"
    )


def test_from_crontab_counts_weekdays_from_monday_and_says_so() -> None:
    text = "s.add_job(f, CronTrigger.from_crontab('0 9 * * 1', timezone='UTC'))"
    reading = read_program(text, name="jobs.py", zone_name="UTC", now=NOW)
    made = CronTrigger.from_crontab("0 9 * * 1", timezone="UTC")
    assert reading.jobs[0].schedule == "0 9 * * TUE"
    rules = [*map(of_apscheduler, reading.jobs[0].rules)]
    assert times_of(rules, reading.jobs[0].zone, NOW, 50) == next_fires(made, 50)
    assert "counts from 0 = Monday in APScheduler" in reading.remarks[0].what


def test_decorators_objects_and_zones_of_the_program_are_read() -> None:
    text = """
from zoneinfo import ZoneInfo
scheduler = AsyncIOScheduler(timezone=ZoneInfo("Asia/Tokyo"))
@scheduler.scheduled_job("cron", hour=7, id="morning", max_instances=3, misfire_grace_time=None)
async def wake(): ...
scheduler.add_job(func="pack.mod:run", trigger=CronTrigger(hour=8), args=[1], kwargs={"a": "b"})
scheduler.add_job(obj.method, IntervalTrigger(hours=1), name="Each hour", jitter=5)
"""
    reading = read_program(text, name="app/jobs.py", zone_name="UTC", now=NOW)
    first, second, third = reading.jobs
    assert (first.title, first.zone) == ("morning", "Asia/Tokyo")
    assert dict(first.props) == {"CATCHUP": "latest", "OVERLAP": "allow"}
    assert first.command == "python3 -c 'from jobs import wake; wake()'"
    assert second.command == (
        """python3 -c 'from pack.mod import run; run(*[1], **{'"'"'a'"'"': '"'"'b'"'"'})'"""
    )
    assert third.stamp == "<2026-11-14 Sat 13:00 ++1h>"
    assert third.command == "python3 -c 'from jobs import obj; obj.method()'"


@pytest.mark.parametrize(
    ("call", "what"),
    [
        ("s.add_job(f, 'cron', hour=HOUR)", "hour=HOUR is not a literal"),
        ("s.add_job(f, 'cron', **options)", "passed with **"),
        ("s.add_job(f, trigger)", "is not a literal"),
        ("s.add_job(f)", "the job runs once, immediately"),
        ("s.add_job(lambda: 1, 'cron', hour=1)", "has no name"),
        ("s.add_job(f, 'interval', minutes=7)", "does not divide an hour evenly"),
        ("s.add_job(f, 'cron', week=5)", "weeks of the year"),
        ("s.add_job(f, 'cron', day=13, day_of_week='fri')", "must both match"),
        ("s.add_job(f, 'date', run_date='2020-01-01 00:00:00')", "is in the past"),
        ("s.add_job(f, 'cron', hour=25)", "outside 0-23"),
        ("s.add_job(f, 'cron', hour=1, args=[x])", "the args are not literals"),
        ("s.add_job(f, 'cron', hour=1, timezone='Mars/Base')", "no such time zone"),
        ("s.add_job(f, OrTrigger([a, b]))", "is not supported"),
        ("s.add_job(f, 'cron', hour=1, start_date='2030-01-01')", "is in the future"),
        ("s.add_job(f, 'weekly')", "is not supported"),
        ("s.add_job(f, 'cron', hour=1, next_run_time=None)", "is added paused"),
        ("s.add_job(f, 'cron', hour=1, next_run_time=soon)", "sets the first run time"),
        ("x = 1", "does not add a job"),
        ("def (", "is not valid Python"),
        ("\0", "is not valid Python"),
    ],
)
def test_what_is_not_taken_is_said(call: str, what: str) -> None:
    reading = read_program(call, name="jobs.py", zone_name="UTC", now=NOW)
    assert reading.jobs == []
    assert what in reading.remarks[-1].what
    assert reading.remarks[-1].remedy


def test_policies_for_all_jobs_are_named() -> None:
    text = "s = Scheduler(job_defaults={'coalesce': True})\ns.add_job(f, 'cron', hour=1)\n"
    reading = read_program(text, name="x.py", zone_name="UTC", now=NOW)
    assert "job_defaults" in reading.remarks[0].what
    assert len(reading.jobs) == 1


def test_nothing_of_the_program_is_run() -> None:
    text = "raise SystemExit(1)\ns.add_job(f, 'cron', hour=__import__('os').abort())\n"
    assert read_program(text, name="x.py", zone_name="UTC", now=NOW).jobs == []


def test_a_deep_program_is_refused_and_does_not_crash() -> None:
    deep = "s.add_job(f, 'cron', hour=" + "(" * 5_000 + ")" * 5_000 + ")"
    assert read_program(deep, name="x.py", zone_name="UTC", now=NOW).jobs == []


@given(st.text(max_size=200))
@settings(max_examples=scaled(1_000), deadline=None)
def test_no_text_breaks_the_reader(text: str) -> None:
    reading = read_program(text, name="x.py", zone_name="UTC", now=NOW)
    assert all(each.line <= len(text.splitlines()) + 1 for each in reading.remarks)
    call = f"s.add_job(f, 'cron', day={text!r}, hour={text!r})"
    reading = read_program(call, name="x.py", zone_name="UTC", now=NOW)
    assert reading.jobs or reading.remarks, "it is taken, or named"
