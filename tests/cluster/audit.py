"""What must be true of a shared ledger and of the effects of its runs, whatever happened meanwhile.

It asks the tables and the file of effects alone, with no part of what it judges.
"""

from __future__ import annotations

from collections import Counter
from contextlib import closing
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

import psycopg

if TYPE_CHECKING:
    from collections.abc import Collection

    from cluster.stage import Effect, Stage

SECOND: Final = 1_000_000  # as the ledger counts


@dataclass(frozen=True, slots=True)
class Account:
    """What there is, counted."""

    moments: int
    receipts: Counter[str]
    runs: Counter[str]
    effects: int
    pauses: list[float]  # seconds between two decisions, the longest first


def audit(stage: Stage, *, is_over: bool = False, excused: Collection[str] = ()) -> Account:
    """Return what there is; raise an AssertionError if anything is lost, double or untrue.

    Every entry of the plan is one of every second, but those of a burst. When it *is over*,
    nothing is open. The *excused* runs may have begun beside another of their own.
    """
    effects = stage.happened()  # before the ledger: each of them has its row by then
    with closing(psycopg.connect(stage.url(), connect_timeout=10)) as connection:
        connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        connection.execute("SET search_path TO horae")
        rows = Rows(connection)
        moments = _moments(rows)
        receipts = _receipts(rows, effects, is_over=is_over)
        runs = _runs(rows, effects, is_over=is_over)
        pauses = _pauses(rows)
    crowded = [each for each in effects if each.company == "beside" and each.run not in excused]
    assert not crowded, f"beside another of its own: {crowded}"
    begun = sum(each.what == "begun" for each in effects)
    return Account(moments, receipts, runs, begun, pauses)


class Rows:
    """What a snapshot of the ledger answers."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self._connection = connection

    def __call__(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        return self._connection.execute(query.encode(), values or None).fetchall()


def _moments(rows: Rows) -> int:
    """Return how many moments there were, each of which has exactly one receipt."""
    total = 0
    for entry, first, last in rows(
        "SELECT number, first_seen_at, accounted_to FROM entry"
        " WHERE source = 'org' AND title NOT LIKE 'burst%'"
    ):
        planned = Counter(range(first // SECOND + 1, last // SECOND + 1))
        found: Counter[int] = Counter()
        for start, through, count in rows(
            "SELECT planned_at, through_at, count FROM receipt"
            " WHERE entry = %s AND key NOT LIKE 'manual:%%'",
            entry,
        ):
            covered = range(start // SECOND, (through or start) // SECOND + 1)
            assert len(covered) == count
            found.update(covered)
        assert found == planned, (
            f"entry {entry}: missing {planned - found}, double {found - planned}"
        )
        total += len(planned)
    return total


def _receipts(rows: Rows, effects: list[Effect], *, is_over: bool) -> Counter[str]:
    """Return the receipts by status; each agrees with what its runs have done."""
    begun = [each for each in effects if each.what == "begun"]
    per_attempt = Counter((each.entry, each.key, each.attempt) for each in begun)
    assert max(per_attempt.values(), default=0) <= 1, f"twice: {per_attempt.most_common(3)}"
    per_receipt = Counter((each.entry, each.key) for each in begun)
    statuses: Counter[str] = Counter()
    for entry, key, status, attempts in rows("SELECT entry, key, status, attempts FROM receipt"):
        statuses[status] += 1
        happened = per_receipt.pop((str(entry), key), 0)
        assert happened <= attempts, f"{key} of {entry}: {happened} effects, {attempts} attempts"
        if is_over:
            assert status not in {"starting", "running"}, f"{key} of {entry} is {status}"
            assert status != "done" or happened, f"{key} of {entry}: done, and nothing happened"
    assert not per_receipt, f"effects without a receipt: {per_receipt}"
    return statuses


def _runs(rows: Rows, effects: list[Effect], *, is_over: bool) -> Counter[str]:
    """Return the runs by outcome; one that was given back has done nothing."""
    where = {each.run: each.node for each in effects if each.what == "begun"}
    outcomes: Counter[str] = Counter()
    for run, outcome, ended_at, code, member in rows(
        "SELECT number, outcome, ended_at, exit_code, member FROM run"
    ):
        node = where.pop(str(run), None)
        if ended_at is None:
            assert not is_over, f"run {run} is open after the stop"
            continue
        outcomes[outcome or "given back"] += 1
        assert outcome is not None or node is None, f"run {run} was given back, and yet it ran"
        assert node in {None, member}, f"run {run} of {member} was made on {node}"
        if is_over and (outcome == "done" or code is not None):
            assert node is not None, f"run {run} ended by itself and did nothing"
    assert not where, f"effects of runs that the ledger does not know: {where}"
    return outcomes


def _pauses(rows: Rows) -> list[float]:
    """Return how long nothing was decided, though something is due every second."""
    moments = [row[0] for row in rows("SELECT DISTINCT decided_at FROM receipt ORDER BY 1")]
    return sorted(((b - a) / SECOND for a, b in pairwise(moments)), reverse=True)
