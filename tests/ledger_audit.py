"""What must be true of a ledger and of the effects of its runs, whatever happened in between.

It asks the tables and the effects alone, with no part of what it judges.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, TypeAlias

Rows: TypeAlias = Callable[[str], list[tuple[Any, ...]]]  # what a ledger answers

SECOND: Final = 1_000_000  # as the ledger counts
_RAN: Final = frozenset({"done", "failed", "killed", "interrupted", "waiting"})


@dataclass(frozen=True, slots=True)
class Account:
    """What there is, counted."""

    moments: int
    receipts: Counter[str]
    runs: Counter[str]
    effects: int
    pauses: list[float] = field(default_factory=list)  # seconds between two decisions


class RunEffect(NamedTuple):
    """What a run left when it began."""

    entry: int
    key: str
    attempt: int
    run: int
    node: str = ""


def account(
    rows: Rows, effects: list[RunEffect], *, is_over: bool, entries: str = "1 = 1"
) -> Account:
    """Return what there is; raise an AssertionError if anything is lost, double or untrue.

    Each of the *entries* is one of every second. When it *is over*, nothing is under way.
    """
    moments = _moments(rows, entries)
    receipts = _receipts(rows, effects, is_over=is_over)
    return Account(moments, receipts, _runs(rows, effects, is_over=is_over), len(effects))


def _moments(rows: Rows, entries: str) -> int:
    """Return how many moments there were, each of which has exactly one receipt."""
    total = 0
    for entry, first, last in rows(
        f"SELECT number, first_seen_at, accounted_to FROM entry WHERE {entries}"
    ):
        planned = Counter(range(first // SECOND + 1, last // SECOND + 1))
        found: Counter[int] = Counter()
        for start, through, count in rows(
            "SELECT planned_at, through_at, count FROM receipt"
            f" WHERE entry = {entry} AND key NOT LIKE 'manual:%'"
        ):
            covered = range(start // SECOND, (through or start) // SECOND + 1)
            assert len(covered) == count
            found.update(covered)
        assert found == planned, (
            f"entry {entry}: missing {planned - found}, double {found - planned}"
        )
        total += len(planned)
    return total


def _receipts(rows: Rows, effects: list[RunEffect], *, is_over: bool) -> Counter[str]:
    """Return the receipts by status; each agrees with what its runs have done."""
    per_attempt = Counter((each.entry, each.key, each.attempt) for each in effects)
    assert max(per_attempt.values(), default=0) <= 1, f"twice: {per_attempt.most_common(3)}"
    per_receipt = Counter((each.entry, each.key) for each in effects)
    statuses: Counter[str] = Counter()
    for entry, key, status, attempts in rows("SELECT entry, key, status, attempts FROM receipt"):
        statuses[status] += 1
        happened = per_receipt.pop((entry, key), 0)
        assert happened <= attempts, f"{key} of {entry}: {happened} effects, {attempts} attempts"
        if is_over:
            assert status not in {"starting", "running"}, f"{key} of {entry} is {status}"
            assert status != "done" or happened, f"{key} of {entry}: done, and nothing happened"
            assert not happened or status in _RAN, f"{key} of {entry} ran and is {status}"
    assert not per_receipt, f"effects without a receipt: {per_receipt}"
    return statuses


def _runs(rows: Rows, effects: list[RunEffect], *, is_over: bool) -> Counter[str]:
    """Return the runs by outcome; one that was given back has done nothing."""
    where = {each.run: each.node for each in effects}
    assert len(where) == len(effects), "a run has done something twice"
    outcomes: Counter[str] = Counter()
    for run, outcome, ended_at, code, member in rows(
        "SELECT number, outcome, ended_at, exit_code, member FROM run"
    ):
        node = where.pop(run, None)
        if ended_at is None:
            assert not is_over, f"run {run} is open after the stop"
            continue
        outcomes[outcome or "given back"] += 1
        assert outcome is not None or node is None, f"run {run} was given back, and yet it ran"
        assert node in {None, member or ""}, f"run {run} of {member} was made on {node}"
        if is_over and (outcome == "done" or code is not None):
            assert node is not None, f"run {run} ended by itself and did nothing"
    assert not where, f"effects of runs that the ledger does not know: {where}"
    return outcomes
