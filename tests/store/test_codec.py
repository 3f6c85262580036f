"""How entries and policies are written down."""

from __future__ import annotations

import sqlite3
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace

from horae.core.entry import DEFAULT, AfterRule, CadenceRule, Occasion, Policy, cron_rule
from horae.core.ports import LedgerDamagedError
from horae.store import recode
from horae.store.codec import entry_of, read_policy, read_rule, write_entry, write_policy
from store.ledger_0_1 import ENTRIES

if TYPE_CHECKING:
    from horae.core.entry import Entry

ROW = "1 AS number, 'a' AS address, 'A' AS title, 'f' AS file, 1 AS line, 'd' AS digest"
COUNTS = "0 AS accounted_to, NULL AS ended_at, 0 AS ticks, 0 AS streak, 0 AS failures"


def reread(text: str) -> Entry:
    """Return the entry of a row with this text."""
    connection = sqlite3.connect(":memory:")
    connection.row_factory = sqlite3.Row
    return entry_of(connection.execute(f"SELECT {ROW}, {COUNTS}, ? AS spec", (text,)).fetchone())


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda each: each.title)
def test_what_is_written_of_an_entry_is_read_back(entry: Entry) -> None:
    found = reread(write_entry(entry))
    rule = entry.rule
    if isinstance(rule, CadenceRule):  # what it has counted is in columns of its own
        rule = CadenceRule(rule.base, rule.first_at)
    assert found.rule == rule == read_rule(write_entry(entry))
    assert (found.work, found.agents, found.zone) == (entry.work, entry.agents, entry.zone)
    assert (found.policy, found.deadline) == (entry.policy, entry.deadline)
    assert read_policy(write_policy(entry.policy)) == entry.policy


def test_only_what_differs_from_the_default_is_written() -> None:
    entry = replace(ENTRIES[0], rule=cron_rule("@daily", zone_name="UTC"), policy=Policy())
    assert entry.policy is not DEFAULT
    assert write_entry(entry) == (
        '{"rule":{"kind":"cron","crons":[["@daily","UTC"]]},"zone":"Europe/Berlin","work":"command"}'
    )
    assert write_policy(Policy(timeout=timedelta(minutes=15))) == '{"timeout":"PT900S"}'


def test_half_a_surrogate_pair_is_spelled_out() -> None:
    entry = replace(ENTRIES[0], rule=AfterRule((Occasion.FAILED,), 'Say "\ud800\n"'))
    assert reread(write_entry(entry)).rule == AfterRule((Occasion.FAILED,), 'Say "\\ud800\n"')
    old = r'{"rule":{"after":["failed"],"of":"Say \"\ud800\n\""},"work":"command","zone":"Europe/Berlin"}'
    assert recode.entry(old) == write_entry(entry)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "null",
        "{}",
        '{"rule":{"moon":1},"zone":"UTC"}',
        '{"rule":{"kind":"on_demand"},"zone":"UTC","policy":{"timeout":"PT900S"}}',
        '{"rule":{},"zone":"UTC","policy":{"until":253402300800000000}}',
    ],
)
def test_an_old_text_that_cannot_be_understood_stays_as_it_is(text: str) -> None:
    assert recode.entry(text) == text
    assert recode.policy('{"timeout":"PT900S"}') == '{"timeout":"PT900S"}'


@pytest.mark.parametrize("text", ["", "{}", '{"rule":{"kind":"moon"},"zone":"UTC"}'])
def test_a_text_that_cannot_be_read_names_its_row(text: str) -> None:
    with pytest.raises(LedgerDamagedError, match="the row of entry 1 is damaged"):
        reread(text)
