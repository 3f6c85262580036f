"""What must be true of a ledger and of the effects of its runs, whatever happened in between.

It asks the files alone, with no part of what it judges.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from crash.stage import Home

SECOND: Final = 1_000_000  # as the ledger counts


class Effect(NamedTuple):
    """The line that a run left."""

    entry: int
    key: str
    attempt: int
    run: int
    pid: int
    company: str


@dataclass(frozen=True, slots=True)
class Account:
    """What there is, counted."""

    moments: int
    receipts: Counter[str]
    runs: Counter[str]
    effects: int


def audit(home: Home, *, alone: tuple[str, ...] = ()) -> Account:
    """Return what there is; raise an AssertionError if anything is lost, double or untrue.

    Every entry is one of every second. Those that are named are *alone*: no two runs of one
    are ever alive together.
    """
    effects = effects_of(home)
    moments = _moments(home)
    receipts = _receipts(home, effects)
    runs = _runs(home, effects)
    titles = dict(home.rows("SELECT number, title FROM entry"))
    crowded = [each for each in effects if each.company == "beside"]
    assert not [each for each in crowded if titles[each.entry] in alone]
    early = home.rows(
        "SELECT run.number FROM run JOIN receipt ON receipt.number = run.receipt"
        " WHERE run.started_at < receipt.planned_at"
    )
    assert not early
    return Account(moments, receipts, runs, len(effects))


def effects_of(home: Home) -> list[Effect]:
    """Return what the runs left."""
    if not home.effects.exists():
        return []
    lines = [line.split() for line in home.effects.read_text().splitlines()]
    return [
        Effect(int(entry), key, int(attempt), int(run), int(pid), company)
        for entry, key, attempt, run, pid, company in lines
    ]


def _moments(home: Home) -> int:
    """Return how many moments there were, each of which has exactly one receipt."""
    total = 0
    for entry, first, last in home.rows("SELECT number, first_seen_at, accounted_to FROM entry"):
        planned = Counter(range(first // SECOND + 1, last // SECOND + 1))
        found: Counter[int] = Counter()
        for start, through, count in home.rows(
            "SELECT planned_at, through_at, count FROM receipt WHERE entry = ?", entry
        ):
            covered = range(start // SECOND, (through or start) // SECOND + 1)
            assert len(covered) == count
            found.update(covered)
        assert found == planned, (
            f"entry {entry}: missing {planned - found}, double {found - planned}"
        )
        total += len(planned)
    return total


def _receipts(home: Home, effects: list[Effect]) -> Counter[str]:
    """Return the receipts by status; each agrees with what its runs have done."""
    per_attempt = Counter((each.entry, each.key, each.attempt) for each in effects)
    assert max(per_attempt.values(), default=0) <= 1, f"twice: {per_attempt.most_common(3)}"
    per_receipt = Counter((each.entry, each.key) for each in effects)
    statuses: Counter[str] = Counter()
    for entry, key, status, attempts in home.rows(
        "SELECT entry, key, status, attempts FROM receipt"
    ):
        statuses[status] += 1
        happened = per_receipt.pop((entry, key), 0)
        assert happened <= attempts, f"{key} of {entry}: {happened} effects, {attempts} attempts"
        assert status not in {"starting", "running"}, f"{key} of {entry}: {status} after the stop"
        if status == "done":
            assert happened, f"{key} of {entry}: done, and nothing has happened"
        if happened:
            assert status in {"done", "failed", "killed", "interrupted", "waiting"}
    assert not per_receipt, f"effects without a receipt: {per_receipt}"
    return statuses


def _runs(home: Home, effects: list[Effect]) -> Counter[str]:
    """Return the runs by outcome; one that was given back has done nothing."""
    per_run = Counter(each.run for each in effects)
    outcomes: Counter[str] = Counter()
    for run, outcome, ended_at, code in home.rows(
        "SELECT number, outcome, ended_at, exit_code FROM run"
    ):
        assert ended_at is not None, f"run {run} is open after the stop"
        outcomes[outcome or "given back"] += 1
        happened = per_run.pop(run, 0)
        if outcome is None:
            assert not happened, f"run {run} was given back, and yet it ran"
        if outcome == "done" or code is not None:
            assert happened == 1, f"run {run} ended by itself with {happened} effects"
    assert not per_run, f"effects of runs that the ledger does not know: {per_run}"
    return outcomes
