"""What a rest leaves behind, without a model."""

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given, settings

from horae.core.ports import TaskBrief
from horae.core.receipt import ENDS, Status
from horae.files.git.repository import Logged
from horae.org.document import read
from horae.sources.crew.briefing import (
    MOST_LISTED,
    DiaryEntry,
    DiaryFacts,
    Ran,
    carry_of,
    hand,
    is_quiet,
    rest_file,
    rest_text,
    survey,
)
from horae.sources.plans.arming import entries, tasks_of
from near_org import texts
from scale import scaled

NOW = datetime(2026, 6, 6, 6, 5, tzinfo=UTC)
MINUTE = timedelta(minutes=1)

PLAN = """\
* TODO Pay rent
DEADLINE: <2026-06-05 Fri>
:PROPERTIES:
:BLOCKER: payday
:END:
* DOING Section on gates
:PROPERTIES:
:AGENT: wren
:END:
* TODO Index
:PROPERTIES:
:BLOCKER: toc
:END:
* DONE Table of contents
CLOSED: [2026-06-06 Sat 06:00]
:PROPERTIES:
:ID: toc
:END:
"""


def facts() -> DiaryFacts:
    surveyed = survey([("plan.org", read(PLAN))], [TaskBrief(7, "Read")], zone_name="UTC")
    handed = hand(surveyed, agent="wren", now=NOW, zone_name="UTC", last_run_at=NOW - 30 * MINUTE)
    return DiaryFacts(
        commits=[
            Logged("", NOW - 20 * MINUTE, "wren", "add: the section on gates"),
            Logged("", NOW - 50 * MINUTE, "moss", "audit: names"),
        ],
        runs=[
            Ran(NOW - 10 * MINUTE, "Deploy", Status.FAILED, "exit code 3"),
            Ran(NOW - 40 * MINUTE, "Deploy", Status.KILLED, "it ran longer than 15m"),
            Ran(NOW - 45 * MINUTE, "Lint", Status.FAILED, "exit code 1"),
            Ran(NOW - 5 * MINUTE, "Lint", Status.DONE),
            Ran(NOW - 6 * MINUTE, "wren", Status.NO_WORK),
        ],
        board={"todo": 3, "done": 12},
        coming=[DiaryEntry(NOW + 90 * MINUTE, "Digest"), DiaryEntry(NOW + MINUTE, "Sync")],
        handed=handed,
    )


def test_a_rest_says_what_was_done_what_is_stuck_what_is_due_and_what_to_carry() -> None:
    assert (
        rest_text(facts(), agent="wren", now=NOW)
        == """\
#+TITLE: Rest of wren, 2026-06-06 Sat 06:05 UTC

* Done
- 2026-06-06 Sat 05:15 UTC, moss: audit: names
- 2026-06-06 Sat 05:45 UTC, wren: add: the section on gates
- runs: 1 done, 1 no_work, 2 failed, 1 killed
- board: 3 todo, 12 done

* Stuck
- Deploy: failed 2 times in a row, last: exit code 3
- Pay rent: waits for payday

* Due next
- Pay rent (plan.org:1): overdue since 2026-06-06 Sat 00:00 UTC
- 2026-06-06 Sat 06:06 UTC: Sync
- 2026-06-06 Sat 07:35 UTC: Digest

* Carry
- finish Section on gates (plan.org:6), which you claimed
- look at Deploy: exit code 3
- start with Pay rent (plan.org:1), overdue since 2026-06-06 Sat 00:00 UTC
- start Index (plan.org:10): it is no longer blocked
"""
    )


def test_the_same_facts_in_another_order_make_the_same_page() -> None:
    one = facts()
    two = DiaryFacts(one.commits[::-1], one.runs[::-1], one.board, one.coming[::-1], one.handed)
    assert rest_text(two, agent="wren", now=NOW) == rest_text(one, agent="wren", now=NOW)


def test_the_carry_of_a_page_is_what_the_agent_is_handed() -> None:
    carry = carry_of(rest_text(facts(), agent="wren", now=NOW))
    assert carry.splitlines()[0] == "- finish Section on gates (plan.org:6), which you claimed"
    assert len(carry.splitlines()) == 4
    assert carry_of(rest_text(DiaryFacts(), agent="wren", now=NOW)) == ""
    assert carry_of("* Something else\n- no\n") == ""


def test_a_page_is_named_by_the_minute_in_utc() -> None:
    assert rest_file(NOW.astimezone(timezone(timedelta(hours=9)))) == "rem/2026-06-06-0605.org"


@pytest.mark.parametrize(
    ("found", "quiet"),
    [
        (DiaryFacts(), True),
        (DiaryFacts(runs=[Ran(NOW, "wren", Status.NO_WORK)], board={"todo": 9}), True),
        (DiaryFacts(commits=[Logged("", NOW, "wren", "add")]), False),
        *[(DiaryFacts(runs=[Ran(NOW, "x", status)]), False) for status in ENDS - {Status.NO_WORK}],
    ],
)
def test_a_rest_after_which_nothing_happened_is_quiet(found: DiaryFacts, quiet: bool) -> None:
    assert is_quiet(found) == quiet


def test_a_long_list_is_cut_and_says_how_much_is_left_out() -> None:
    many = [Logged("", NOW, "wren", f"add {number}") for number in range(MOST_LISTED + 3)]
    lines = rest_text(DiaryFacts(commits=many), agent="wren", now=NOW).splitlines()
    assert sum("add" in line for line in lines) == MOST_LISTED
    assert "- and 3 more" in lines


@given(texts, texts)
@settings(max_examples=scaled(1000), deadline=None)
def test_no_fact_can_become_a_heading_a_date_or_a_workflow_of_the_plan(
    subject: str, title: str
) -> None:
    found = DiaryFacts(
        commits=[Logged("", NOW, subject, subject)],
        runs=[Ran(NOW, title, Status.FAILED, subject)],
        coming=[DiaryEntry(NOW, title)],
        board={title: 1},
    )
    text = rest_text(found, agent="wren", now=NOW)
    plan = read(text)
    assert [each.title for each in plan.headlines] == ["Done", "Stuck", "Due next", "Carry"]
    assert entries(text) == []
    assert list(tasks_of(plan, file="rem.org", zone_name="UTC")) == []
    text.encode()
