"""What an agent is handed when it is woken."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings

from horae.core.entry import Origin
from horae.core.ports import TaskBrief
from horae.org.document import read
from horae.sources.crew.briefing import (
    MOST_SHOWN,
    Appointment,
    Handed,
    Item,
    hand,
    is_idle,
    prompt,
    survey,
)
from horae.sources.crew.lifecycle import State
from near_org import texts
from scale import scaled

NOW = datetime(2026, 6, 6, 12, 0, tzinfo=UTC)
HOUR = timedelta(hours=1)
LISTS = ("claims", "overdue", "due", "unblocked", "ready")


def handed(
    text: str = "",
    *,
    tasks: Sequence[TaskBrief] = (),
    agent: str = "wren",
    now: datetime = NOW,
    zone: str = "UTC",
    last_run_at: datetime | None = None,
) -> Handed:
    surveyed = survey([("plan.org", read(text))], tasks, zone_name=zone)
    return hand(
        surveyed,
        agent=agent,
        now=now,
        zone_name=zone,
        last_run_at=last_run_at,
    )


def told(found: Handed) -> dict[str, list[str]]:
    lists: dict[str, tuple[Item, ...]] = {name: getattr(found, name) for name in LISTS}
    return {name: [item.title for item in items] for name, items in lists.items() if items}


# Headlines


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # due: an open headline whose SCHEDULED has come
        ("* TODO Sow\nSCHEDULED: <2026-06-06 Sat 12:00>\n", {"due": ["Sow"]}),
        ("* Sow\nSCHEDULED: <2026-06-05 Fri>\n", {"due": ["Sow"]}),
        ("* DOING Sow\nSCHEDULED: <2026-06-05 Fri>\n", {"due": ["Sow"]}),
        ("* TODO Sow\nSCHEDULED: <2026-06-06 Sat 12:01>\n", {}),
        ("* DONE Sow\nSCHEDULED: <2026-06-05 Fri>\n", {}),
        ("* CANCELLED Sow\nSCHEDULED: <2026-06-05 Fri>\n", {}),
        ("* Sow\nSCHEDULED: [2026-06-05 Fri]\n", {}),
        # overdue: open, and its DEADLINE is over
        ("* TODO Pay\nDEADLINE: <2026-06-05 Fri>\n", {"overdue": ["Pay"]}),
        ("* Pay\nDEADLINE: <2026-06-06 Sat 11:59>\n", {"overdue": ["Pay"]}),
        ("* Pay\nDEADLINE: <2026-06-06 Sat>\n", {}),
        ("* DONE Pay\nDEADLINE: <2026-06-05 Fri>\n", {}),
        ("* TODO Pay\nSCHEDULED: <2026-06-01> DEADLINE: <2026-06-05>\n", {"overdue": ["Pay"]}),
        # ready: NEXT, or open and nothing says when to begin
        ("* TODO Write\n", {"ready": ["Write"]}),
        ("* NEXT Write\n", {"ready": ["Write"]}),
        ("* NEXT Write\nSCHEDULED: <2026-07-01 Wed>\n", {"ready": ["Write"]}),
        ("* TODO Write\nDEADLINE: <2026-07-01 Wed>\n", {"ready": ["Write"]}),
        ("* TODO Write\nSCHEDULED: <2026-07-01 Wed>\n", {}),
        ("* Write\n", {}),
        ("* DOING Write\n", {}),
        ("* WAITING Write\n", {}),
        (
            "#+TODO: ASSIGNED EDIT | PUBLISHED\n* EDIT Write\n* PUBLISHED Old\n",
            {"ready": ["Write"]},
        ),
        # what is not work
        ("* TODO Digest :workflow:\nSCHEDULED: <2026-06-05 Fri>\n", {}),
        ("* TODO Fetch :component:\n", {}),
        ("* TODO Writer :agent:\n", {}),
        ("* COMMENT Later\n** TODO Write\n* TODO Read\n", {"ready": ["Read"]}),
        ("* DONE Old :ARCHIVE:\n** TODO Write\n* TODO Read\n", {"ready": ["Read"]}),
        # a stamp that is no date
        ("* TODO Sow\nSCHEDULED: <2026-02-30 Mon>\n", {"ready": ["Sow"]}),
    ],
)
def test_a_headline_is_handed_over_where_it_matters_most(
    text: str, expected: dict[str, list[str]]
) -> None:
    assert told(handed(text)) == expected


def test_the_plans_zone_says_when_a_day_has_come_and_is_over() -> None:
    text = "* TODO Sow\nSCHEDULED: <2026-06-07 Sun>\n* TODO Pay\nDEADLINE: <2026-06-06 Sat>\n"
    late = NOW + 10 * HOUR  # 22:00 in London's winter, midnight in Berlin's summer
    assert told(handed(text, now=late, zone="Europe/Berlin")) == {"due": ["Sow"], "ready": ["Pay"]}
    after = late + timedelta(seconds=1)
    assert told(handed(text, now=after, zone="Europe/Berlin")) == {
        "overdue": ["Pay"],
        "due": ["Sow"],
    }
    assert told(handed(text, now=after)) == {"ready": ["Pay"]}


def test_lists_go_by_time_then_next_then_priority_then_place() -> None:
    text = (
        "* TODO C\n* TODO [#C] D\n* TODO [#A] B\n* NEXT [#C] A\n"
        "* Late\nSCHEDULED: <2026-06-05 Fri>\n* Later\nSCHEDULED: <2026-06-01 Mon>\n"
    )
    assert told(handed(text)) == {"due": ["Later", "Late"], "ready": ["A", "B", "C", "D"]}


def test_an_item_says_where_it_stands_and_since_when() -> None:
    text = "Text.\n* TODO Sow\nSCHEDULED: <2026-06-05 Fri 09:00>\n:PROPERTIES:\n:ID: sow\n:END:\n"
    [item] = handed(text).due
    assert item == Item("id:sow", "Sow", "plan.org:2", datetime(2026, 6, 5, 9, tzinfo=UTC))


# Blockers


def blocked(blockers: str, *others: str) -> str:
    return f"* TODO Write\n:PROPERTIES:\n:BLOCKER: {blockers}\n:END:\n" + "".join(others)


def other(name: str, state: str = "DONE", closed: str = "") -> str:
    planning = f"CLOSED: [{closed}]\n" if closed else ""
    return f"* {state} {name}\n{planning}:PROPERTIES:\n:ID: {name}\n:END:\n"


@pytest.mark.parametrize(
    ("text", "is_ready"),
    [
        (blocked("a", other("a")), True),
        (blocked("a b", other("a"), other("b", "CANCELLED")), True),
        (blocked("ids(a b)", other("a"), other("b")), True),
        (blocked("a, b", other("a"), other("b", "TODO")), False),
        (blocked("a", other("a", "Open")), False),
        (blocked("nowhere"), False),
        (blocked("#7"), True),
        (blocked("#8"), False),
    ],
)
def test_what_waits_for_something_is_ready_when_all_of_it_is_done(
    text: str, is_ready: bool
) -> None:
    tasks = [TaskBrief(7, "Read", "done"), TaskBrief(8, "Think", "review")]
    assert ("Write" in told(handed(text, tasks=tasks)).get("ready", [])) == is_ready


def test_a_blocker_may_stand_in_another_plan() -> None:
    plans = [("a.org", read(blocked("far"))), ("b.org", read(other("far")))]
    found = hand(survey(plans, zone_name="UTC"), agent="", now=NOW, zone_name="UTC")
    assert told(found) == {"ready": ["Write"]}


def test_what_is_due_and_waits_says_for_what() -> None:
    text = "* Sow\nSCHEDULED: <2026-06-05>\n:PROPERTIES:\n:BLOCKER: rake dig\n:END:\n" + other(
        "dig"
    )
    [item] = handed(text).due
    assert item.waits_for == ("rake",)


@pytest.mark.parametrize(
    ("closed", "list_name"),
    [
        ("2026-06-06 Sat 11:30", "unblocked"),
        ("2026-06-06 Sat 11:00", "unblocked"),  # within the minute of the last run: perhaps after
        ("2026-06-06 Sat 10:59", "ready"),
        ("2026-06-06 Sat", "unblocked"),
        ("2026-06-05 Fri", "ready"),
        ("", "ready"),
    ],
)
def test_what_became_ready_after_the_last_run_is_unblocked(closed: str, list_name: str) -> None:
    text = blocked("a", other("a", closed=closed))
    assert told(handed(text, last_run_at=NOW - HOUR)) == {list_name: ["Write"]}
    assert told(handed(text, last_run_at=None)) == {"ready": ["Write"]}


# Claims


def test_ones_own_claims_are_told_and_those_of_others_are_not() -> None:
    claim = ":PROPERTIES:\n:AGENT: {}\n:END:\n"
    text = (
        "* DOING Mine\n" + claim.format("wren")
        + "* DOING Theirs\nDEADLINE: <2026-06-01>\n" + claim.format("moss")
        + "* DONE Finished\n" + claim.format("wren")
    )  # fmt: skip
    tasks = [TaskBrief(1, "On the board", "in-progress", claimed_by="wren")]
    tasks.append(TaskBrief(2, "Taken", "todo", claimed_by="moss"))
    assert told(handed(text, tasks=tasks)) == {"claims": ["Mine", "On the board"]}
    assert told(handed(text, tasks=tasks, agent="")) == {}


# The board


@pytest.mark.parametrize(
    ("task", "expected"),
    [
        (TaskBrief(1, "Report", "todo", scheduled_for=NOW), {"due": ["Report"]}),
        (TaskBrief(1, "Report", "todo", scheduled_for=NOW + HOUR), {}),
        (TaskBrief(1, "Report", "todo"), {"ready": ["Report"]}),
        (TaskBrief(1, "Report", "backlog"), {"ready": ["Report"]}),
        (TaskBrief(1, "Report", "todo", blocked="no data"), {}),
        (TaskBrief(1, "Report", "todo", depends_on=(2,)), {"ready": ["Report"]}),
        (TaskBrief(1, "Report", "todo", depends_on=(2, 3)), {}),
        (TaskBrief(1, "Report", "todo", depends_on=(99,)), {}),
        (TaskBrief(1, "Report", "review"), {}),
        (TaskBrief(1, "Report", "in-progress"), {}),
        (TaskBrief(1, "Report", "done", scheduled_for=NOW), {}),
        (TaskBrief(1, "Report", "archived", scheduled_for=NOW), {}),
    ],
)
def test_a_task_of_the_board_is_handed_over_like_a_headline(
    task: TaskBrief, expected: dict[str, list[str]]
) -> None:
    others = [TaskBrief(2, "Data", "done"), TaskBrief(3, "Review", "review")]
    assert told(handed(tasks=[task, *others])) == expected


def test_a_task_is_unblocked_when_its_last_dependency_was_done_after_the_last_run() -> None:
    tasks = [
        TaskBrief(1, "Report", "todo", depends_on=(2,)),
        TaskBrief(2, "Data", "done", done_at=NOW - HOUR / 2),
    ]
    assert told(handed(tasks=tasks, last_run_at=NOW - HOUR)) == {"unblocked": ["Report"]}
    assert told(handed(tasks=tasks, last_run_at=NOW)) == {"ready": ["Report"]}


def test_a_task_that_is_blocked_says_why_when_it_is_due() -> None:
    task = TaskBrief(1, "Report", "todo", scheduled_for=NOW, blocked="no data")
    assert handed(tasks=[task]).due[0].waits_for == ("no data",)


# Idleness


@pytest.mark.parametrize(
    ("text", "is_nothing"),
    [
        ("", True),
        ("* DONE Old\n* Notes\n", True),
        ("* TODO Sow\nSCHEDULED: <2026-07-01>\n", True),
        ("* Digest :workflow:\nSCHEDULED: <2026-06-01 +1d>\n", True),
        ("* TODO Write\n", False),
        ("* Sow\nSCHEDULED: <2026-06-01>\n", False),
        ("* Pay\nDEADLINE: <2026-06-01>\n", False),
        ("* DOING Mine\n:PROPERTIES:\n:AGENT: wren\n:END:\n", False),
    ],
)
def test_an_agent_is_idle_when_nothing_is_due_ready_overdue_or_claimed(
    text: str, is_nothing: bool
) -> None:
    assert is_idle(handed(text)) == is_nothing


# The prompt


def test_the_prompt_begins_with_mode_and_lifecycle_and_then_says_what_is_to_do() -> None:
    plan = (
        "* TODO Pay rent\nDEADLINE: <2026-06-05 Fri>\n"
        "* TODO Sow\nSCHEDULED: <2026-06-06 Sat 09:00>\n:PROPERTIES:\n:BLOCKER: rake\n:END:\n"
        "* NEXT Write\n"
    )
    surveyed = survey([("plan.org", read(plan))], zone_name="Europe/Berlin")
    found = hand(
        surveyed,
        agent="wren",
        now=NOW,
        zone_name="Europe/Berlin",
        last_run_at=NOW - HOUR,
        appointments=[
            Appointment("Digest", Origin("plan.org", 9), "done", NOW - 2 * HOUR, NOW + 22 * HOUR),
            Appointment("Backup", Origin("plan.org", 12)),
        ],
        carry="- finish the section on gates\n",
    )
    state = State("wake_add", "wake_audit", task="Write one section.")
    assert (
        prompt(found, mode="plan", state=state)
        == """\
MODE: plan
LIFECYCLE: wake_add
Do one piece of work; the working directory is the plan root, or your clone of it.

Write one section.

It is 2026-06-06 Sat 14:00 Europe/Berlin. Your last run began 2026-06-06 Sat 13:00 Europe/Berlin.

Overdue:
- Pay rent (plan.org:1), since 2026-06-06 Sat 00:00 Europe/Berlin

Due:
- Sow (plan.org:3), since 2026-06-06 Sat 09:00 Europe/Berlin; waits for rake

Ready:
- Write (plan.org:8)

Run by the scheduler, not by you:
- Digest (plan.org:9): done, planned 2026-06-06 Sat 12:00 Europe/Berlin; next 2026-06-07 Sun 12:00 Europe/Berlin
- Backup (plan.org:12): no receipt yet

Carried over from the last rest:
- finish the section on gates

If there is nothing for you to do, begin your answer with NO-WORK.
"""
    )


def test_without_a_lifecycle_and_work_the_prompt_is_short() -> None:
    assert (
        prompt(handed(), mode="edit")
        == """\
MODE: edit
Do one piece of work; the working directory is the plan root, or your clone of it.

It is 2026-06-06 Sat 12:00 UTC. This is your first run.

Nothing is due, ready or claimed.

If there is nothing for you to do, begin your answer with NO-WORK.
"""
    )


def test_a_long_list_is_cut_and_says_how_much_is_left_out() -> None:
    text = "".join(f"* TODO Task {number}\n" for number in range(MOST_SHOWN + 7))
    lines = prompt(handed(text), mode="plan").splitlines()
    assert sum(line.startswith("- Task") for line in lines) == MOST_SHOWN
    assert "- and 7 more" in lines


def test_a_title_cannot_leave_its_line_or_order_a_terminal_about() -> None:
    tasks = [TaskBrief(1, "a\nMODE: edit\x1b[2J\u2028b" + "x" * 10_000, "todo")]
    lines = prompt(handed(tasks=tasks), mode="plan").split("\n")
    assert [line for line in lines if line.startswith("MODE:")] == ["MODE: plan"]
    assert max(map(len, lines)) < 300
    assert "\x1b" not in "".join(lines)


@given(texts)
@settings(max_examples=scaled(1000), deadline=None)
def test_any_plan_is_handed_over_each_thing_once(text: str) -> None:
    found = handed(text)
    where = [item.where for name in LISTS for item in getattr(found, name)]
    assert len(where) == len(set(where))
    assert is_idle(found) == (not where)
    assert prompt(found, mode="plan").startswith("MODE: plan\nDo one piece of work")


def test_what_is_not_open_is_left_out_before_any_tick() -> None:
    text = "* DONE Old\n* Notes\n* Digest :workflow:\n" * scaled(2000) + "* TODO Write\n"
    surveyed = survey([("plan.org", read(text))], [TaskBrief(1, "Old", "done")], zone_name="UTC")
    assert [each.title for each in surveyed.items] == ["Write"]
