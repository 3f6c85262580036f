"""The board when a file is broken or a name is wrong: no number twice, and nobody waits unheard."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from horae.sources.board.source import BoardSource
from horae.sources.board.tasks import Board
from horae.store.sqlite import SqliteLedger

if TYPE_CHECKING:
    from calling import Call

CREW = "* wren\n:PROPERTIES:\n:DEF: wren.org\n:END:\n"
NOW = datetime.fromisoformat("2026-04-01T08:00Z")
WREN = "* Wren :agent:\n:PROPERTIES:\n:COMMAND: true\n:END:\nHi.\n"


def test_the_number_of_a_file_that_cannot_be_read_is_not_given_again(call: Call) -> None:
    assert call("task", "add", "First", "--json").data["id"] == 1
    broken = Path("board/tasks/001-first.md")
    broken.write_text(broken.read_text().replace("First", "First: of all"))
    second = call("task", "add", "Second", "--json").data
    assert (second["id"], second["file"]) == (2, "board/tasks/002-second.md")


def test_a_board_below_a_directory_that_is_missing_names_that_directory(call: Call) -> None:
    Path("horae.toml").write_text('[board]\ndir = "a/b"\n')
    ending = call("task", "add", "First")
    said = "horae: a: does not exist; create it, or correct board.dir in horae.toml\n"
    assert (ending.code, ending.err) == (4, said)
    Path("a").mkdir()
    assert call("task", "add", "First").code == 0


@pytest.fixture
def crew(call: Call) -> Call:
    Path("horae.toml").write_text('[crew]\ndef = "crew.org"\n')
    Path("crew.org").write_text(CREW)
    Path("wren.org").write_text(WREN)
    return call


def test_a_task_for_nobody_in_the_crew_is_not_well(crew: Call) -> None:
    for name, status in (("wren", "todo"), ("ghost", "todo"), ("ghost", "done")):
        assert crew("task", "add", "Sweep", "--assignee", name, "--status", status).code == 0
    wrong = "its assignee 'ghost' is not a member of the crew (wren)"
    ending = crew("task", "health", "--table")
    assert ending.code == 1
    assert ending.out == f"#2: {wrong}; write wren, or remove assignee\n"
    checked = crew("check", "--table").out
    assert f"board/tasks/002-sweep.md:5:1: warning task: {wrong}\n" in checked


def test_without_a_crew_an_assignee_may_be_anybody(call: Call) -> None:
    assert call("task", "add", "Sweep", "--assignee", "ghost", "--status", "todo").code == 0
    assert call("task", "health", "--table").out == "1 task checked, no problems\n"


def test_a_crew_that_cannot_be_read_accuses_nobody(crew: Call) -> None:
    assert crew("task", "add", "Sweep", "--assignee", "ghost", "--status", "todo").code == 0
    Path("crew.org").unlink()
    assert crew("task", "health", "--table").out == "1 task checked, no problems\n"


async def read_board(at: datetime = NOW) -> None:
    ledger = await SqliteLedger.open(Path(".horae"), now=at)
    scan = await BoardSource(Board.below(Path()), now=lambda: at).scan({})
    await ledger.scan("board", scan, now=at, term=1)
    await ledger.close()


def test_why_tells_why_a_task_is_not_assigned(crew: Call) -> None:
    for title, *options in (("Ghostly", "--assignee", "ghost"), ("Taken",), ("Later",)):
        assert crew("task", "add", title, "--status", "todo", *options).code == 0
    crew("task", "assign", "2", "--execution-owner", "bob")
    crew("task", "edit", "3", "--depends-on", "2")
    asyncio.run(read_board())
    said = {
        "Ghostly": "its assignee 'ghost' is not a member of the crew (wren)",
        "Taken": "it is claimed by bob",
        "Later": "unmet dependency #2",
    }
    for title, why in said.items():
        assert crew("why", title).out.endswith(f"\n\nnot assigned: {why}\n")
    Path("horae.toml").unlink()
    unset = "neither crew.def nor board.command is set"
    assert crew("why", "Taken").out.endswith(f"\n\nnot assigned: {unset}\n")


def test_the_entry_of_a_task_that_is_over_says_what_became_of_the_task(call: Call) -> None:
    for title, status in (("Done", "review"), ("Archived", "todo"), ("Removed", "todo")):
        assert call("task", "add", title, "--status", status).code == 0
    asyncio.run(read_board())
    assert call("task", "transition", "1", "done").code == 0
    assert call("task", "archive", "2").code == 0
    Path("board/tasks/003-removed.md").unlink()
    for minutes in (1, 2):  # what is missing twice is gone
        asyncio.run(read_board(NOW + timedelta(minutes=minutes)))
    removed = "the task was closed or removed at 2026-04-01 Wed 08:02 UTC"
    assert call("why", "task:1:work").out.endswith("\n\nnot assigned: the task is done\n")
    assert call("why", "task:2:work").out.endswith("\n\nnot assigned: the task is archived\n")
    assert call("why", "task:3:work").out.endswith(f"\n\nnothing scheduled: {removed}\n")
    refused = call("run", "task:1:work")
    assert refused.code == 6
    assert removed in refused.err


def test_the_address_of_a_task_that_does_not_recur_means_its_only_entry(call: Call) -> None:
    for title, *options in (("Once",), ("Weekly", "--cron", "0 9 * * 1")):
        assert call("task", "add", title, *options).code == 0
    asyncio.run(read_board())
    assert call("why", "task:1", "--json").data["entry"]["address"] == "task:1:work"
    assert call("why", "task:2", "--json").data["entry"]["address"] == "task:2"
    assert call("pause", "task:1").code == 0
    assert call("why", "task:3").code == 4
