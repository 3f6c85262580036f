"""What must be true of a shared ledger, beside what must be of every ledger."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import psycopg

from ledger_audit import SECOND, Account, RunEffect, account

if TYPE_CHECKING:
    from collections.abc import Collection

    from cluster.stage import Stage


def audit(stage: Stage, *, is_over: bool = False, excused: Collection[str] = ()) -> Account:
    """Return what there is; raise an AssertionError if anything is lost, double or untrue.

    Every entry of the plan is one of every second, but those of a burst. When it *is over*,
    nothing is open. The *excused* runs may have begun beside another of their own.
    """
    effects = stage.happened()  # before the ledger: each of them has its row by then
    begun = [
        RunEffect(int(each.entry), each.key, int(each.attempt), int(each.run), each.node)
        for each in effects
        if each.what == "begun"
    ]
    with closing(psycopg.connect(stage.url(), connect_timeout=10)) as connection:
        connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        connection.execute("SET search_path TO horae")

        def rows(query: str) -> list[tuple[Any, ...]]:
            return connection.execute(query.encode()).fetchall()

        entries = "source = 'org' AND title NOT LIKE 'burst%'"
        found = account(rows, begun, is_over=is_over, entries=entries)
        moments = [row[0] for row in rows("SELECT DISTINCT decided_at FROM receipt ORDER BY 1")]
    crowded = [each for each in effects if each.company == "beside" and each.run not in excused]
    assert not crowded, f"beside another of its own: {crowded}"
    # How long nothing was decided, though something is due every second, the longest first.
    pauses = sorted(((b - a) / SECOND for a, b in pairwise(moments)), reverse=True)
    return replace(found, pauses=pauses)
