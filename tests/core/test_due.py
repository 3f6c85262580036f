"""What is due, overdue and coming, and what is not armed."""

from datetime import UTC, datetime, timedelta

from msgspec.structs import replace

import horae
from horae.core.due import DueStatus, due
from horae.org.document import read
from horae.sources.plans.arming import entries_of, tasks_of

NOW = datetime(2026, 6, 10, 12, tzinfo=UTC)
WEEK = timedelta(days=7)


def standings(text: str, *, horizon: timedelta = WEEK) -> list[tuple[str, str]]:
    plan = read(text)
    items = [
        *entries_of(plan, file="plan.org", zone_name="UTC"),
        *tasks_of(plan, file="plan.org", zone_name="UTC"),
    ]
    return [(line.standing, line.title) for line in due(items, now=NOW, horizon=horizon)]


def test_overdue_comes_before_due_and_due_before_upcoming() -> None:
    text = (
        "* TODO Later\nSCHEDULED: <2026-06-12 Fri>\n"
        "* TODO Now\nSCHEDULED: <2026-06-10 Wed>\n"
        "* TODO Late\nDEADLINE: <2026-06-09 Tue>\n"
        "* DONE Over\nDEADLINE: <2026-06-09 Tue>\n"
    )
    assert standings(text) == [("overdue", "Late"), ("due", "Now"), ("upcoming", "Later")]


def test_what_lies_beyond_the_horizon_is_not_shown() -> None:
    text = "* TODO Far\nSCHEDULED: <2026-06-20 Sat>\n"
    assert standings(text) == []
    assert standings(text, horizon=timedelta(days=30)) == [("upcoming", "Far")]


def test_a_deadline_that_comes_is_upcoming() -> None:
    assert standings("* TODO Pay\nDEADLINE: <2026-06-12 Fri>\n") == [("upcoming", "Pay")]


def test_a_workflow_may_be_overdue_and_upcoming_at_once() -> None:
    text = "* Digest :workflow:\nSCHEDULED: <2026-06-01 Mon +1d> DEADLINE: <2026-06-02 Tue>\n"
    assert standings(text) == [("overdue", "Digest"), ("upcoming", "Digest")]


def test_a_note_and_a_broken_date_are_not_due() -> None:
    assert standings("* Note\nSCHEDULED: [2026-06-01 Mon]\n* Odd\nSCHEDULED: <2026-13-99>\n") == []


def test_what_the_ledger_has_not_accounted_for_is_due() -> None:
    [entry] = horae.entries("* Digest :workflow:\nSCHEDULED: <2026-06-01 Mon 09:00 +1d>\n")
    kept = replace(entry, accounted_to=datetime(2026, 6, 10, 9, tzinfo=UTC))
    assert [line.standing for line in due([kept], now=NOW, horizon=WEEK)] == [DueStatus.UPCOMING]
    behind = replace(entry, accounted_to=datetime(2026, 6, 8, 9, tzinfo=UTC))
    waiting, coming = due([behind], now=NOW, horizon=WEEK)
    assert (waiting.standing, waiting.at) == (DueStatus.DUE, datetime(2026, 6, 9, 9, tzinfo=UTC))
    assert coming.standing is DueStatus.UPCOMING


def test_what_is_not_armed_comes_last_with_its_reason() -> None:
    text = "* DONE Old :workflow:\nSCHEDULED: <2026-06-01 Mon>\n"
    [line] = due(list(entries_of(read(text), file="p", zone_name="UTC")), now=NOW, horizon=WEEK)
    assert (line.standing, line.reason) == (DueStatus.UNARMED, "the state is DONE")


def test_what_is_commented_out_or_archived_is_not_shown() -> None:
    hidden = (
        "** TODO Task\nSCHEDULED: <2026-06-11 Thu> DEADLINE: <2026-06-09 Tue>\n"
        "** Digest :workflow:\nSCHEDULED: <2026-06-11 Thu +1d>\n"
    )
    text = f"* COMMENT Later\n{hidden}* Old :ARCHIVE:\n{hidden}* TODO COMMENT Pay\nDEADLINE: <2026-06-12>\n"
    assert standings(f"{text}* TODO Read\nSCHEDULED: <2026-06-11>\n") == [("upcoming", "Read")]
