"""A receipt as the chain of what happened to it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from horae.core.chain import chain
from horae.core.entry import Origin, Policy
from horae.core.ports import Run, RunSpan
from horae.core.receipt import Filed, Reason, Receipt, Status
from reasons import because

NINE = datetime(2026, 4, 1, 9, tzinfo=UTC)
SECOND = timedelta(seconds=1)
NOW = NINE + 600 * SECOND


def filed(
    status: Status,
    reason: Reason,
    *,
    late: int = 0,
    start: int = 0,
    key: str = "cron:x",
    attempts: int = 0,
    agents: tuple[str, ...] = (),
    actor: str = "engine",
) -> Filed:
    """Return receipt 7 of entry 3, due at nine."""
    receipt = Receipt(key, status, reason, NINE, NINE + start * SECOND)
    about = 7, 3, receipt, NINE + late * SECOND, Origin("plan.org", 1), "", None, Policy()
    return Filed(*about, agents=agents, attempts=attempts, actor=actor)


def run(attempt: int, begun: int, ended: int | None, outcome: Status | None, why: str = "") -> Run:
    """Return an attempt that began and ended so many seconds after nine."""
    over = None if ended is None else NINE + ended * SECOND
    return Run(attempt, 7, attempt, NINE + begun * SECOND, None, over, outcome, None, because(why))


def other(receipt: int, entry: int, over: int | None, agents: tuple[str, ...] = ()) -> RunSpan:
    """Return a run that began before nine and ended so many seconds after it."""
    ended = None if over is None else NINE + over * SECOND
    about = receipt, entry, f"Entry {entry}", "plan.org", agents, None, Status.DONE, because("")
    times = NINE - SECOND, None, NINE - SECOND, NINE - SECOND
    return RunSpan(*about, *times, receipt, NINE - SECOND, ended, Status.DONE)


def said(
    receipt: Filed, runs: list[Run], others: list[RunSpan] | None = None, obstacle: str = ""
) -> list[tuple[int, str, str]]:
    """Return the steps of a chain with their seconds after nine."""
    steps = chain(receipt, runs, now=NOW, others=others or [], obstacle=obstacle)
    told = [f"{each.said} {each.title or each.receipt or ''}".strip() for each in steps]
    return [((e.at - NINE) // SECOND, e.kind, text) for e, text in zip(steps, told, strict=True)]


def test_what_waited_failed_and_was_retried_is_told_in_order() -> None:
    done = filed(Status.DONE, because("exit code 0"), start=75, attempts=2)
    runs = [
        run(1, 40, 45, Status.FAILED, "exit code 1"),
        run(2, 75, 80, Status.DONE, "exit code 0"),
    ]
    assert said(done, runs, [other(4, 9, 20), other(5, 8, 40), other(6, 8, 90)]) == [
        (0, "due", "due"),
        (40, "late", "waited 40s for a slot behind Entry 8"),
        (45, "failed", "attempt 1 failed after 5s: exit code 1"),
        (75, "retry", "retry after 30s"),
        (80, "done", "attempt 2 done after 5s: exit code 0"),
    ]


def test_what_a_receipt_waited_for_is_its_entry_its_agent_or_a_slot() -> None:
    runs = [run(1, 40, 45, Status.DONE)]
    done = filed(Status.DONE, because(""), agents=("wren",))
    last, agent, entry = other(4, 9, 40), other(5, 8, 30, ("wren",)), other(6, 3, 20)
    assert said(done, runs, [last])[1][2] == "waited 40s for a slot behind Entry 9"
    assert said(done, runs, [last, agent])[1][2] == "waited 40s for its agent behind Entry 8"
    assert (
        said(done, runs, [last, agent, entry])[1][2] == "waited 40s for the previous run of Entry 3"
    )
    assert said(done, runs)[1][2] == "waited 40s to start"
    jitter = filed(Status.DONE, because(""), start=40, attempts=1)
    assert said(jitter, runs, [last])[1][2] == "waited 40s: its start was delayed"


@pytest.mark.parametrize("status", [Status.SKIPPED, Status.MISSED, Status.COALESCED])
def test_what_never_ran_says_when_and_why(status: Status) -> None:
    assert said(filed(status, because("the engine was down"), late=90), []) == [
        (0, "due", "due"),
        (90, "late", "decided 1m30s late"),
        (90, status, f"{status}: the engine was down"),
    ]


def test_what_waits_says_what_is_in_its_way_and_behind_whom() -> None:
    waiting = filed(Status.WAITING, because("due"))
    assert said(waiting, [], [other(4, 9, None)], "no slot is free; gate.slots is 1") == [
        (0, "due", "due"),
        (0, "waiting", "no slot is free; gate.slots is 1, behind Entry 9"),
    ]
    later = filed(Status.WAITING, because("exit code 1"), start=700, attempts=1)
    runs = [run(1, 0, 5, Status.FAILED, "exit code 1")]
    assert said(later, runs)[-1] == (700, "waiting", "retry scheduled")


def test_what_is_held_by_a_budget_waited_for_a_slot_before() -> None:
    held = filed(Status.HELD, because("no room"), key="manual:x", actor="cli:ada", start=700)
    runs = [run(1, 60, 60, None, "no room")]
    assert said(held, runs, [other(4, 9, 50)]) == [
        (0, "due", "requested by ada, on the command line"),
        (60, "late", "waited 1m for a slot behind Entry 9"),
        (60, "waiting", "attempt 1 not started: no room"),
        (700, "held", "its start is delayed"),
    ]


def test_a_tick_that_a_user_asked_for_was_requested() -> None:
    asked = filed(Status.DONE, because("Sown."), key="tick:1", actor="cli:ada")
    [(_, kind, words), *_] = said(asked, [run(1, 0, 5, Status.DONE, "Sown.")])
    assert (kind, words) == ("due", "requested by ada, on the command line")


def test_what_was_cancelled_given_back_or_given_up_says_so() -> None:
    killed = filed(Status.KILLED, because("cancelled"), key="manual:x", actor="cli:ada")
    runs = [
        run(1, 0, 1, None, "the engine exited before"),
        run(2, 4, 64, Status.KILLED, "cancelled by ada"),
    ]
    assert said(killed, runs) == [
        (0, "due", "requested by ada, on the command line"),
        (1, "waiting", "attempt 1 not started: the engine exited before"),
        (4, "retry", "started again after 3s"),
        (64, "killed", "attempt 2 killed after 1m: cancelled by ada"),
    ]
    over = filed(Status.FAILED, because("three engines exited"))
    assert said(over, runs[:1])[-1] == (600, "failed", "failed: three engines exited")


def test_a_retry_of_a_past_time_is_told_at_the_time_of_its_request() -> None:
    about: dict[str, Any] = {"late": 500, "actor": "cli:ada"}
    again = filed(Status.WAITING, because("requested"), key="backfill:retry-4-x:9", **about)
    asked = (500, "due", "retry requested by ada, on the command line")
    assert said(again, [])[0] == asked
    past = filed(Status.WAITING, because("requested"), key="backfill:x:9", **about)
    assert said(past, [])[0] == (500, "due", "backfill requested by ada, on the command line")


def test_what_runs_says_for_how_long_and_what_follows_says_what() -> None:
    running = filed(Status.RUNNING, because("started"), key="after:4")
    assert said(running, [run(1, 0, None, None)]) == [
        (0, "due", "follows 4"),
        (0, "running", "running for 10m"),
    ]
