"""The inbox: one state per entry, the most urgent, until it has recovered or is acknowledged."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from horae.core.entry import Origin, Pause, Policy, Unarmed
from horae.core.inbox import Acknowledged, Attention, BadResult, InboxState, attention
from horae.core.ports import Listed
from horae.core.receipt import Filed, Reason, ReasonCode, Receipt, Status
from horae.core.source import Mark

NINE = datetime(2026, 4, 1, 9, tzinfo=UTC)
HOUR = timedelta(hours=1)
NOW = NINE + 2 * HOUR


def filed(status: Status, code: str = "", *, number: int = 1, at: datetime = NINE) -> Filed:
    receipt = Receipt(f"cron:{number}", status, Reason(code, "some words"), at, at)
    return Filed(number, 7, receipt, at, Origin("plan.org", 1), "", None, Policy())


def listed(**more: Any) -> Listed:
    mark, item = Mark("plan.org::Dig", "Dig", "", ""), Unarmed("", Origin("plan.org", 1), "Dig", "")
    return Listed(7, "org", mark, item, NINE, **more)


def states(found: list[Attention]) -> list[tuple[str, datetime, int]]:
    return [(each.state.value, each.since, each.times) for each in found]


@pytest.mark.parametrize(
    ("status", "code", "state"),
    [
        (Status.FAILED, ReasonCode.EXIT_CODE, InboxState.FAILING),
        (Status.KILLED, ReasonCode.TIME_LIMIT, InboxState.FAILING),
        (Status.INTERRUPTED, ReasonCode.ENGINE_EXITED, InboxState.FAILING),
        (Status.MISSED, ReasonCode.CATCHUP_NONE, InboxState.MISSED),
        (Status.SKIPPED, ReasonCode.APPROVAL_EXPIRED, InboxState.MISSED),
        (Status.SKIPPED, ReasonCode.BUDGET, InboxState.OVER_BUDGET),
        (Status.FAILED, ReasonCode.BUDGET, InboxState.OVER_BUDGET),
    ],
)
def test_a_bad_result_is_a_state_since_the_first_of_them(
    status: Status, code: str, state: InboxState
) -> None:
    [found] = attention([BadResult(filed(status, code), NINE - HOUR, 3)], [], [], now=NOW)
    assert (found.state, found.since, found.times) == (state, NINE - HOUR, 3)
    assert found.receipts == (1,)


@pytest.mark.parametrize(
    ("pending", "found"),
    [
        (filed(Status.WAITING), [("late", NINE, 1)]),
        (filed(Status.WAITING, at=NOW), []),
        (filed(Status.RUNNING), []),
        (filed(Status.HELD, ReasonCode.NOT_READY), [("held", NINE, 1)]),
        (filed(Status.HELD, ReasonCode.BUDGET), [("over_budget", NINE, 1)]),
        (filed(Status.HELD, ReasonCode.APPROVAL_REQUIRED), [("approval", NINE, 1)]),
    ],
)
def test_a_run_that_waits_is_a_state(
    pending: Filed, found: list[tuple[str, datetime, int]]
) -> None:
    assert states(attention([], [pending], [], now=NOW)) == found


@pytest.mark.parametrize(
    ("entry", "found"),
    [
        (listed(broken="no date"), [("broken", NINE, 1)]),
        (listed(broken="no date", broken_at=NOW), [("broken", NOW, 1)]),
        (listed(missing_at=NINE), [("missing", NINE, 1)]),
        (listed(missing_at=NOW - timedelta(seconds=3)), []),
        (listed(pause=Pause(NINE, by="engine")), [("stopped", NINE, 1)]),
        (listed(pause=Pause(NINE, by="session:ana")), []),
        (listed(broken="no date", pause=Pause(NINE, by="session:ana")), []),
    ],
)
def test_an_entry_that_cannot_run_is_a_state_unless_a_user_paused_it(
    entry: Listed, found: list[tuple[str, datetime, int]]
) -> None:
    assert states(attention([], [], [entry], now=NOW)) == found


def test_of_several_states_an_entry_has_the_most_urgent_and_all_approvals() -> None:
    bad = BadResult(filed(Status.FAILED), NINE, 1)
    asked = [filed(Status.HELD, ReasonCode.APPROVAL_REQUIRED, number=n) for n in (2, 3)]
    [found] = attention([bad], [*asked, filed(Status.WAITING)], [listed(broken="odd")], now=NOW)
    assert (found.state, found.receipts, found.times) == (InboxState.APPROVAL, (2, 3), 2)


@pytest.mark.parametrize(
    ("state", "since", "until", "is_hidden"),
    [
        (InboxState.FAILING, NINE, None, True),
        (InboxState.FAILING, NINE, NOW + HOUR, True),
        (InboxState.FAILING, NINE, NOW, False),
        (InboxState.FAILING, NINE - HOUR, None, False),  # it had recovered in between
        (InboxState.LATE, NINE, None, False),
    ],
)
def test_what_is_acknowledged_is_hidden_while_it_stays_as_it_was(
    state: InboxState, since: datetime, until: datetime | None, *, is_hidden: bool
) -> None:
    known = Acknowledged(7, state, since, NINE, until, "I know", "session:ana")
    bad = BadResult(filed(Status.FAILED), NINE, 1)
    [found] = attention([bad], [], [], [known], now=NOW)
    assert found.is_hidden(NOW) is is_hidden
