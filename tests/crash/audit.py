"""What must be true of the ledger of an engine, beside what must be of every ledger."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ledger_audit import Account, RunEffect, account

if TYPE_CHECKING:
    from crash.stage import Home


class Effect(NamedTuple):
    """The line that a run left."""

    entry: int
    key: str
    attempt: int
    run: int
    pid: int
    company: str


def audit(home: Home, *, alone: tuple[str, ...] = ()) -> Account:
    """Return what there is; raise an AssertionError if anything is lost, double or untrue.

    Every entry is one of every second. Those that are named are *alone*: no two runs of one
    are ever alive together.
    """
    effects = effects_of(home)
    found = account(home.rows, [RunEffect(*each[:4]) for each in effects], is_over=True)
    titles = dict(home.rows("SELECT number, title FROM entry"))
    crowded = [each for each in effects if each.company == "beside"]
    assert not [each for each in crowded if titles[each.entry] in alone]
    early = home.rows(
        "SELECT run.number FROM run JOIN receipt ON receipt.number = run.receipt"
        " WHERE run.started_at < receipt.planned_at"
    )
    assert not early
    return found


def effects_of(home: Home) -> list[Effect]:
    """Return what the runs left."""
    if not home.effects.exists():
        return []
    lines = [line.split() for line in home.effects.read_text().splitlines()]
    return [
        Effect(int(entry), key, int(attempt), int(run), int(pid), company)
        for entry, key, attempt, run, pid, company in lines
    ]
