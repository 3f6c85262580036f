"""An engine of today goes on with the ledger of an engine of version 0.1 that was killed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from commands import is_healthy
from crash.stage import entry
from horae.store import database
from ledger_audit import SECOND
from store.ledger_0_1 import VERSION, put_into

if TYPE_CHECKING:
    from crash.stage import Home

RECEIPTS = "SELECT number, status, reason_code, count FROM receipt ORDER BY number"


def test_what_version_0_1_had_begun_gets_its_end_and_each_time_since_its_receipt(
    home: Home,
) -> None:
    put_into(home.data)
    home.write(entry("Seconds", home.effect()))
    life = home.up()
    life.until(lambda: is_healthy(home.data))
    life.until(lambda: home.count("status = 'done'") > 2)
    assert life.stop() == 0
    database.verify(home.data / f"backups/ledger-schema-{VERSION}.db")
    assert [row[1:3] for row in home.rows(RECEIPTS)[:5]] == [
        ("skipped", "entry_removed"),  # it waited
        ("done", "completed"),
        ("interrupted", "engine_exited"),  # its run went on
        ("skipped", "entry_removed"),  # it was being started, and had no run yet
        ("skipped", "entry_removed"),  # it was held
    ]
    [(first, through, count)] = home.rows(
        "SELECT planned_at, through_at, count FROM receipt WHERE reason_code = 'rule_changed'"
    )
    assert count == (through - first) // (10 * SECOND) + 1  # by the rule of version 0.1
    seconds = home.rows(
        "SELECT planned_at, coalesce(through_at, planned_at), count FROM receipt JOIN entry"
        " ON entry.number = receipt.entry WHERE title = 'Seconds' AND planned_at > ? ORDER BY 1",
        through,
    )
    times = [at for start, end, _ in seconds for at in range(start, end + 1, SECOND)]
    [(accounted,)] = home.rows("SELECT accounted_to FROM entry WHERE title = 'Seconds'")
    assert times == [*range(times[0], accounted + 1, SECOND)]
    assert sum(row[2] for row in seconds) == len(times)
    assert not home.count("status IN ('waiting', 'starting', 'running')")
