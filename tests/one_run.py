"""One run at a time, of a ledger that starts and ends many."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from horae.core.ports import Ended, RunEnd

if TYPE_CHECKING:
    from collections.abc import Mapping

    from horae.core.ports import Job, Process, Run
    from horae.core.receipt import Filed, Reason, Status


async def start(ledger: Any, receipt: int, **stamp: Any) -> Run | None:
    [run] = await ledger.start_many([receipt], **stamp)
    found: Run | None = run
    return found


async def job(ledger: Any, filed: Filed, run: Run) -> Job | None:
    [job] = await ledger.jobs([(filed, run)])
    found: Job | None = job
    return found


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
    ended = Ended(outcome, reason, exit_code, facts or {}, memory, is_counted)
    [filed] = await ledger.end_many([RunEnd(run, ended, is_last)], **stamp)
    found: Filed | None = filed
    return found
