"""The list of entries: the state of each, and what is left by a filter, in which order."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from horae.core.inbox import EntryFilter, EntrySort, EntryState, EntrySummary, filtered
from horae.core.receipt import Status

NINE = datetime(2026, 4, 1, 9, tzinfo=UTC)
TEN = datetime(2026, 4, 1, 10, tzinfo=UTC)


def summary(number: int = 1, title: str = "Digest", **more: Any) -> EntrySummary:
    known: dict[str, Any] = {
        "source": "org", "address": f"plan.org::{title}", "file": "plan.org", "line": number,
        "is_unarmed": False, "is_paused": False, "is_gone": False, "is_broken": False,
        "failures": 0, "next_at": None, "last_at": None, "last_status": None,
    }  # fmt: skip
    return EntrySummary(number=number, title=title, **{**known, **more})


@pytest.mark.parametrize(
    ("more", "state"),
    [
        ({}, EntryState.ARMED),
        ({"last_status": Status.FAILED, "failures": 1}, EntryState.FAILING),
        ({"last_status": Status.RUNNING, "failures": 2}, EntryState.RUNNING),
        ({"last_status": Status.STARTING, "is_paused": True}, EntryState.RUNNING),
        ({"is_paused": True, "failures": 3}, EntryState.PAUSED),
        ({"is_unarmed": True, "is_broken": True}, EntryState.BROKEN),
        ({"is_broken": True, "failures": 1}, EntryState.BROKEN),
        ({"is_gone": True, "is_paused": True}, EntryState.GONE),
        ({"is_new": True}, EntryState.NEW),
    ],
)
def test_an_entry_has_one_state(more: dict[str, Any], state: EntryState) -> None:
    assert summary(**more).state is state


@pytest.mark.parametrize(
    ("entry_filter", "titles"),
    [
        (EntryFilter(), ["Backup", "Digest", "Mail"]),
        (EntryFilter(states=["failing"]), ["Mail"]),
        (EntryFilter(sources=["crew", "board"]), ["Mail"]),
        (EntryFilter(file="deep/plan.org"), ["Backup"]),
        (EntryFilter(search="PLAN dig"), ["Digest"]),
        (EntryFilter(search="digest mail"), []),
    ],
)
def test_a_filter_leaves_the_entries_that_fit_all_of_it(
    entry_filter: EntryFilter, titles: list[str]
) -> None:
    known = [
        summary(1),
        summary(2, "Mail", source="crew", failures=1),
        summary(3, "Backup", file="deep/plan.org"),
    ]
    found, _ = filtered(known, entry_filter, EntrySort.TITLE)
    assert [each.title for each in found] == titles


def test_states_are_counted_as_if_no_state_were_chosen() -> None:
    known = [summary(1), summary(2, failures=1), summary(3, "Mail", is_paused=True)]
    found, counts = filtered(known, EntryFilter(["paused"], search="digest"), EntrySort.TITLE)
    assert not found
    assert counts == {EntryState.ARMED: 1, EntryState.FAILING: 1}


def test_a_list_is_sorted_by_title_state_file_next_or_last_time() -> None:
    known = [
        summary(1, "b", file="2.org", next_at=TEN, last_at=NINE),
        summary(2, "A", file="3.org", failures=1),
        summary(3, "c", file="1.org", next_at=NINE, last_at=TEN, is_paused=True),
    ]
    orders = {sort: filtered(known, EntryFilter(), sort)[0] for sort in EntrySort}
    assert {sort.value: [each.number for each in found] for sort, found in orders.items()} == {
        "title": [2, 1, 3],
        "state": [2, 1, 3],
        "file": [3, 1, 2],
        "next": [3, 1, 2],
        "last": [3, 1, 2],
    }
