"""The board when a file is broken or a name is wrong: no number twice, and nobody waits unheard."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from calling import Call

CREW = "* wren\n:PROPERTIES:\n:DEF: wren.org\n:END:\n"
WREN = "* Wren :agent:\n:PROPERTIES:\n:COMMAND: true\n:END:\nHi.\n"


def test_the_number_of_a_file_that_cannot_be_read_is_not_given_again(call: Call) -> None:
    assert call("task", "add", "First", "--json").data["id"] == 1
    broken = Path("board/tasks/001-first.md")
    broken.write_text(broken.read_text().replace("First", "First: of all"))
    second = call("task", "add", "Second", "--json").data
    assert (second["id"], second["file"]) == (2, "board/tasks/002-second.md")


@pytest.fixture
def crew(call: Call) -> Call:
    Path("horae.toml").write_text('[crew]\ndef = "crew.org"\n')
    Path("crew.org").write_text(CREW)
    Path("wren.org").write_text(WREN)
    return call


def test_a_task_for_nobody_in_the_crew_is_not_well(crew: Call) -> None:
    for name, status in (("wren", "todo"), ("ghost", "todo"), ("ghost", "done")):
        assert crew("task", "add", "Sweep", "--assignee", name, "--status", status).code == 0
    wrong = "is assigned to 'ghost', who is not a member of the crew"
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
