"""A policy property is declared once; :FROM: shows that all else follows from the declaration."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from msgspec.structs import replace

from core.world import cron, story, world
from horae.core.decide import begin, decide
from horae.core.entry import PROPERTIES, Entry, OnceRule, Origin, Policy, PolicyError, policy_of
from horae.core.explain import policy_words
from horae.core.project import next_moment, project
from horae.extras.exporters.schedule import to_crontab
from horae.extras.importers.job import UnfitError
from horae.org.document import read
from horae.sources.board.recycle import Recycled, Stays, first_trigger, recycle, triggers_of
from horae.sources.board.task import parse as parse_task
from horae.sources.plans.arming import entries
from horae.sources.plans.check import CheckClock, check_plans
from horae.sources.triggers.files import parse_workflow
from horae.sources.triggers.rules import OPTIONS
from horae.store.codec import clock_of, read_policy, write_policy
from horae.web.ics import calendar

DOCS = Path(__file__).parents[2] / "docs" / "reference"
HOUR, DAY = timedelta(hours=1), timedelta(days=1)


def at(text: str) -> datetime:
    return datetime.fromisoformat(text)


def plan(rule: str, *properties: str) -> str:
    is_stamp = rule.startswith("<")
    planning, when = (f"SCHEDULED: {rule}\n", "") if is_stamp else ("", f":SCHEDULE: {rule}\n")
    drawer = "".join(f"{each}\n" for each in (":COMMAND: true", *properties))
    return f"* Digest\n{planning}:PROPERTIES:\n{when}{drawer}:END:\n"


def entry(rule: str, *properties: str, zone: str = "UTC") -> Entry:
    (found,) = entries(plan(rule, *properties), zone=zone)
    return found


# The table


def test_the_documentation_has_each_property_in_the_order_of_the_table() -> None:
    text = (DOCS / "time.md").read_text(encoding="utf-8").partition("## Policies")[2]
    table = text.partition("\n## ")[0]
    assert re.findall(r"^\| `:([A-Z-]+): ", table, re.MULTILINE) == [p.key for p in PROPERTIES]


def test_the_documentation_of_commands_names_each_option_of_a_trigger() -> None:
    text = (DOCS / "cli.md").read_text(encoding="utf-8")
    missing = [p for p in OPTIONS if p != "requires" and f"`--{p.replace('_', '-')}`" not in text]
    assert missing == []


def test_what_is_not_there_is_not_stored_and_all_else_comes_back() -> None:
    texts = {
        "CATCHUP": "none", "OVERLAP": "queue", "RETRY": "3 30s", "TIMEOUT": "15m", "JITTER": "5m",
        "PAUSE-AFTER": "5", "FROM": "2026-06-01", "UNTIL": "2026-12-31", "HOST": "gpu", "API": "run",
        "BUDGET": "$2/day; 20 runs/week",
        "ACCOUNT": "work", "ELSE": "codex exec", "IDLE-TIMEOUT": "10m", "SAME": "5",
    }  # fmt: skip
    assert texts.keys() == {each.key for each in PROPERTIES}
    assert write_policy(Policy()) == "{}"
    for each in PROPERTIES:
        kept = policy_of({each.key: texts[each.key]}, zone_name="Europe/Berlin")
        assert kept != Policy()
        assert read_policy(write_policy(kept)) == kept
        assert policy_words(kept, zone_name="UTC") != policy_words(Policy(), zone_name="UTC")


# :FROM:


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2026-06-01", "2026-06-01T00:00+02:00"),
        ("<2026-06-01 Mon 09:30>", "2026-06-01T09:30+02:00"),
        ("2026-06-01T09:30:00Z", "2026-06-01T09:30Z"),
        ("2026-03-29 02:30", "2026-03-29T03:00+02:00"),  # the clock skips that time
    ],
)
def test_from_is_a_day_or_a_time_in_the_zone_of_the_entry(text: str, moment: str) -> None:
    assert policy_of({"FROM": text}, zone_name="Europe/Berlin").from_at == at(moment)


def test_a_from_that_cannot_be_read_is_a_finding() -> None:
    with pytest.raises(PolicyError, match=r"^:FROM: soon: write a date such as 2026-06-01$"):
        policy_of({"FROM": "soon"}, zone_name="UTC")
    (found,) = check_plans([("plan.org", read(plan("0 9 * * *", ":FROM: soon")))], CheckClock())
    assert (found.code, found.line, found.column) == ("policy", 5, 8)


def test_a_start_date_of_another_scheduler_was_meant_as_from_and_a_form_was_not() -> None:
    text = plan("0 9 * * *", ":START_DATE: 2026-06-01", ":FORM: long")
    (found,) = check_plans([("plan.org", read(text))], CheckClock())
    assert (found.code, found.fix) == ("property-typo", "did you mean :FROM:?")


@pytest.mark.parametrize(
    "rule",
    ["0 9 * * *", "0 9 * * *; 0 9 * * MON", "<2026-01-01 09:00 +1d>", "<2020-01-01 09:00 .+1d>"],
)
def test_nothing_fires_before_from_and_the_first_time_may_be_from_itself(rule: str) -> None:
    start = at("2026-04-01T00:00Z")
    for first, text in (
        ("2026-06-01T09:00", "<2026-06-01 09:00>"),
        ("2026-06-02T09:00", "2026-06-01 09:01"),
    ):
        found = entry(rule, f":FROM: {text}")
        coming = next_moment(found, start)
        assert coming is not None
        assert (coming.at, coming.is_estimate) == (at(f"{first}Z"), False)
        assert next(project(found, start, at("2027-01-01T00:00Z"))) == coming


def test_a_rule_that_counts_from_its_end_goes_on_from_its_end_after_from() -> None:
    found = entry("<2020-01-01 00:00 .+6h>", ":FROM: 2026-06-01")
    first = next_moment(found, at("2026-04-01T00:00Z"))
    assert first is not None
    assert first.at == at("2026-06-01T00:00Z")
    assert not first.is_estimate
    ended = next_moment(replace(found, ended_at=at("2026-06-01T00:20Z")), first.at)
    assert ended is not None
    assert ended.at == at("2026-06-01T06:20Z")
    assert not ended.is_estimate


def test_a_time_before_from_has_no_receipt() -> None:
    now = at("2026-06-10T12:00Z")
    daily = replace(
        entry("0 9 * * *", ":FROM: 2026-06-09", ":CATCHUP: all"), accounted_to=now - 30 * DAY
    )
    days = [each.planned_at.day for each in decide(daily, now=now).receipts]
    assert days == [9, 10]
    minutely = replace(entry("* * * * *", ":FROM: 2026-06-09"), accounted_to=now - 30 * DAY)
    assert sum(each.count for each in decide(minutely, now=now).receipts) == 36 * 60 + 1
    vain = Entry("", Origin("", 1), "", OnceRule(now - DAY), policy=Policy(from_at=now + DAY))
    assert begin(vain, now=now).receipts == ()


def test_an_entry_with_another_from_has_other_times() -> None:
    assert clock_of(entry("0 9 * * *", ":FROM: 2026-06-09")) != clock_of(entry("0 9 * * *"))


@story
async def test_an_engine_fires_first_at_from_and_leaves_no_receipt_before() -> None:
    async with world(cron("Digest", "0 9 * * *", ":FROM: 2026-04-03")) as here:
        await here.advance(5 * DAY)
        assert await here.history() == [
            ("04-03 09:00", "done"),
            ("04-04 09:00", "done"),
            ("04-05 09:00", "done"),
        ]


@story
async def test_after_an_outage_only_times_since_from_are_missed() -> None:
    async with world(cron("Digest", "0 9 * * *", ":FROM: 2026-04-03", ":CATCHUP: none")) as here:
        await here.outage(3 * DAY)
        assert await here.history() == [("04-03 09:00", "missed")]


def test_other_schedulers_cannot_have_an_entry_with_a_start_date() -> None:
    with pytest.raises(UnfitError, match="the entry has a start date"):
        to_crontab(entry("0 9 * * *", ":FROM: 2026-06-09"), now=at("2026-04-01T00:00Z"))


def test_a_calendar_begins_at_from() -> None:
    found = entry("0 9 * * *", ":FROM: 2026-12-24", zone="Europe/Berlin")
    start, end = at("2026-11-01T00:00Z"), at("2027-02-01T00:00Z")
    text = "".join(calendar([found], start=start, end=end, now=start))
    event = text.partition("BEGIN:VEVENT")[2]
    assert "DTSTART;TZID=Europe/Berlin:20261224T090000\r\n" in event
    assert "RRULE:FREQ=DAILY\r\n" in event


def test_a_trigger_has_from_as_an_option_of_its_file() -> None:
    text = "name: w\nagent: a\nprompt_template: Go.\nfrom: 2026-06-01\n"
    found = parse_workflow(f"{text}source: {{type: cron, expression: 0 9 * * *}}\n", environ={})
    assert found.problems == ()
    assert found.item is not None
    assert {name: found.item.said[name] for name in OPTIONS if name in found.item.said} == {
        "from": "2026-06-01"
    }


def test_a_task_does_not_come_back_before_from() -> None:
    text = (
        "---\nid: 7\ntitle: Water\nstatus: done\ncron_schedule: 0 9 * * *\nfrom: 2026-06-09\n---\n"
    )
    task = parse_task(text).task
    assert task is not None
    early, late = at("2026-06-08T12:00Z"), at("2026-06-09T12:00Z")
    assert next(triggers_of(task, early)).at == at("2026-06-09T09:00Z")
    assert first_trigger(task, written_at=early) == at("2026-06-09T09:00Z")
    assert isinstance(recycle(task, now=early), Stays)
    back = recycle(task, now=late)
    assert isinstance(back, Recycled)
    assert back.trigger_at == at("2026-06-09T09:00Z")


def test_a_period_that_ends_before_it_begins_is_refused() -> None:
    with pytest.raises(PolicyError, match=r":FROM: 2027-01-01: is after the last day, 2026-12-01"):
        policy_of({"FROM": "2027-01-01", "UNTIL": "2026-12-01"}, zone_name="UTC")
    policy_of({"FROM": "2026-12-01", "UNTIL": "2026-12-01"}, zone_name="UTC")
