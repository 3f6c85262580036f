"""The texts of `why`: an attempt in words."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pytest

from horae.core.explain import run_words
from horae.core.ports import Run
from horae.core.receipt import Reason, ReasonCode, Status
from horae.core.views import attempts

NINE = datetime(2026, 4, 1, 9, tzinfo=UTC)


@dataclass(frozen=True)
class Case:
    run: Run
    words: str


def made(**facts: object) -> Run:
    return Run(number=7, receipt=4, attempt=1, started_at=NINE, **facts)  # type: ignore[arg-type]


MISSING = Reason(ReasonCode.SECRET_UNREADABLE, "secret KEY cannot be read")
CASES = {
    "in progress": Case(made(), "started 2026-04-01 Wed 09:00 UTC, in progress"),
    "ended": Case(
        made(ended_at=NINE + timedelta(minutes=2), outcome=Status.DONE, exit_code=0),
        "started 2026-04-01 Wed 09:00 UTC, done after 2m, exit code 0",
    ),
    "given back": Case(
        made(ended_at=NINE, reason=MISSING),
        "not started at 2026-04-01 Wed 09:00 UTC (secret KEY cannot be read)",
    ),
    "given back by a node": Case(
        made(ended_at=NINE, member="box1"), "not started at 2026-04-01 Wed 09:00 UTC on box1"
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_an_attempt_is_either_started_or_not_started(case: Case) -> None:
    [run] = attempts([case.run], "UTC")
    assert run_words(run, "UTC") == f"attempt 1 (run 7): {case.words}"
