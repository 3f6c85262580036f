"""One run at a time, of a ledger that starts and ends many."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from horae.core.entry import Origin, Policy
from horae.core.ports import Ended, RunEnd
from horae.core.receipt import NO_REASON, Filed, Receipt, Status

if TYPE_CHECKING:
    from collections.abc import Mapping

    from horae.core.ports import Process, Run
    from horae.core.receipt import Reason


_NO_TIME = datetime(2026, 1, 1, tzinfo=UTC)
_RECEIPT = Receipt("", Status.WAITING, NO_REASON, _NO_TIME, _NO_TIME)


def stub(receipt: int) -> Filed:
    """Return a receipt of which nothing but the number is known."""
    return Filed(receipt, 0, _RECEIPT, _NO_TIME, Origin("", 0), "", None, Policy())


async def start(ledger: Any, receipt: int, **stamp: Any) -> Run | None:
    [job] = await ledger.start_many([stub(receipt)], **stamp)
    run: Run | None = None if job is None else job.run
    return run


async def running(ledger: Any, run: int, process: Process, **stamp: Any) -> bool:
    [is_noted] = await ledger.running_many([(run, process)], **stamp)
    return bool(is_noted)


async def end(
    ledger: Any,
    run: int,
    outcome: Status,
    *,
    reason: Reason,
    exit_code: int | None = None,
    facts: Mapping[str, object] | None = None,
    is_last: bool = False,
    memory: str | None = None,
    is_counted: bool = True,
    **stamp: Any,
) -> Filed | None:
    """End a run; return its receipt as that leaves it."""
    ended = Ended(outcome, reason, exit_code, facts or {}, memory, is_counted)
    [over] = await ledger.end_many([RunEnd(run, ended, is_last)], **stamp)
    if over is None:
        return None
    filed: Filed | None = await ledger.receipt((await ledger.run(run)).receipt)
    assert filed is not None
    assert filed.status is over.status
    return filed
