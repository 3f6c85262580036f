"""Why as a chain: the history of a receipt, step by step, each with its time."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final, NamedTuple

from horae.core.actor import ENGINE, by_words
from horae.core.explain import length_text
from horae.core.receipt import ENDS, FINAL, WAITS, Filed, Status, followed_by, is_planned

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from horae.core.ports import Run, RunSpan

_NOTABLE: Final = timedelta(seconds=1)
_REQUESTS: Final = {
    "backfill": "backfill requested",
    "broken": "the entry was edited",
    "dispatch": "assigned by the board",
    "webhook": "a message arrived",
}


class ChainStep(NamedTuple):
    at: datetime
    kind: str  # a status, or due, late, retry
    said: str
    receipt: int | None = None  # the other receipt that a step is about
    title: str = ""  # the title of its entry


def chain(
    filed: Filed, runs: Sequence[Run], *, now: datetime, others: Sequence[RunSpan], obstacle: str
) -> list[ChainStep]:
    """Return the history of a receipt; *others* ran while it waited, *obstacle* blocks it now."""
    receipt, status = filed.receipt, filed.status
    steps = [_first(filed)]
    if filed.late >= _NOTABLE:
        steps.append(ChainStep(filed.decided_at, "late", f"decided {_length(filed.late)} late"))
    if status in FINAL - ENDS:
        return [*steps, ChainStep(filed.decided_at, status, _about(filed))]
    ready, word = max(filed.decided_at, receipt.planned_at), ""
    is_one = len(runs) == 1 and status not in WAITS
    for run in runs:
        waited = run.started_at - ready
        if word:
            steps.append(ChainStep(run.started_at, "retry", f"{word} after {_length(waited)}"))
        elif waited >= _NOTABLE:
            steps.append(_wait(filed, ready, run.started_at, others))
        steps.append(_attempt(run, "" if is_one else f"attempt {run.attempt} ", now))
        ready, word = run.ended_at or now, "retry" if run.outcome is not None else "started again"
    if status in WAITS and receipt.start_at > now:
        said = "retry scheduled" if filed.attempts else "its start is delayed"
        steps.append(ChainStep(receipt.start_at, status, said))
    elif status in WAITS:
        said = obstacle or _about(filed)
        other = _behind(filed, [each for each in others if each.over_at is None])
        at = (other.receipt, other.title) if other is not None and obstacle else ()
        steps.append(ChainStep(ready, status, f"{said}, behind" if at else said, *at))
    elif status in ENDS and (not runs or runs[-1].outcome is not status):
        steps.append(ChainStep(filed.ended_at or now, status, _about(filed)))
    return steps


def _length(length: timedelta) -> str:
    if length < _NOTABLE:
        return f"{max(0, length // timedelta(milliseconds=1))}ms"
    return length_text(length)


def _about(filed: Filed) -> str:
    word, reason = filed.status.replace("_", " "), filed.receipt.reason
    return f"{word}: {reason}" if reason else word


def _behind(filed: Filed, others: Iterable[RunSpan]) -> RunSpan | None:
    def need(each: RunSpan) -> tuple[bool, bool, datetime, int]:
        shares = bool(set(each.agents).intersection(filed.agents))
        return each.entry == filed.entry, shares, each.over_at or filed.decided_at, each.receipt

    known = (each for each in others if each.receipt != filed.number and each.run is not None)
    return max(known, key=need, default=None)


def _first(filed: Filed) -> ChainStep:
    receipt, about = filed.receipt, followed_by(filed.receipt.key)
    if is_planned(receipt.key) and filed.actor == ENGINE:
        said = "due" if receipt.count == 1 else f"the first of {receipt.count:,} times was due"
        return ChainStep(receipt.planned_at, "due", said)
    if about is not None:
        return ChainStep(receipt.planned_at, "due", "follows", about)
    kind, _, name = receipt.key.partition(":")
    done, at = _REQUESTS.get(kind, "requested"), receipt.planned_at
    if kind == "backfill":  # of a time long past
        done = "retry requested" if name.startswith("retry-") else done
        at = filed.decided_at
    return ChainStep(at, "due", by_words(done, receipt.note, actor=filed.actor))


def _wait(filed: Filed, ready: datetime, begun: datetime, others: Sequence[RunSpan]) -> ChainStep:
    waited = f"waited {_length(begun - ready)}"
    if ready < filed.receipt.start_at <= begun and filed.attempts <= 1:
        return ChainStep(begun, "late", f"{waited}: its start was delayed")
    over = [each for each in others if each.over_at is not None and ready < each.over_at <= begun]
    if (other := _behind(filed, over)) is None:
        return ChainStep(begun, "late", f"{waited} to start")
    what = "a slot behind"
    if other.entry == filed.entry:
        what = "the previous run of"
    elif set(other.agents).intersection(filed.agents):
        what = "its agent behind"
    return ChainStep(begun, "late", f"{waited} for {what}", other.receipt, other.title)


def _attempt(run: Run, name: str, now: datetime) -> ChainStep:
    reason = f": {run.reason}" if run.reason else ""
    if run.ended_at is None:
        said = f"{name}running for {_length(now - run.started_at)}"
        return ChainStep(run.started_at, Status.RUNNING, said)
    if run.outcome is None:
        return ChainStep(run.ended_at, Status.WAITING, f"{name}not started{reason}")
    took, word = _length(run.ended_at - run.started_at), run.outcome.replace("_", " ")
    return ChainStep(run.ended_at, run.outcome, f"{name}{word} after {took}{reason}")
