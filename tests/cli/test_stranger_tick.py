"""A tick without an engine leaves an agent's day on disk, as a tick with one does."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from calling import Call

CREW = "* wren\n:PROPERTIES:\n:DEF: wren.org\n:LIFECYCLE: day.org\n:INTERVAL: 10m\n:END:\n"
WREN = (
    "* Wren :agent:\n:PROPERTIES:\n:ID: wren\n:COMMAND: cat answer\n:END:\n** System prompt\nHi.\n"
)
DAY = """#+START: look
* look
:PROPERTIES:
:REPEAT: 2
:NEXT: sweep
:END:
* sweep
:PROPERTIES:
:NEXT: look
:END:
"""
PLACE = Path(".horae/lifecycle-pos-wren")


@pytest.fixture
def crew(call: Call) -> Call:
    Path("crew").mkdir()
    for name, text in {"crew": CREW, "wren": WREN, "day": DAY}.items():
        Path(f"crew/{name}.org").write_text(text)
    Path("horae.toml").write_text('[crew]\ndef = "crew/crew.org"\n')
    Path("answer").write_text("swept")
    return call


def test_the_place_in_the_day_is_on_disk_after_every_tick(crew: Call) -> None:
    places = []
    for _ in range(3):
        assert crew("agent", "tick", "wren").code == 0
        places.append(PLACE.read_text().strip())
    assert places == ["look 1", "sweep 0", "look 0"]


def test_a_tick_that_fails_leaves_the_place_as_it_is(crew: Call) -> None:
    assert crew("agent", "tick", "wren").code == 0
    Path("answer").unlink()
    assert crew("agent", "tick", "wren").code == 1
    assert PLACE.read_text().strip() == "look 1"


def test_what_a_person_writes_there_is_where_the_next_tick_goes_on(crew: Call) -> None:
    assert crew("agent", "tick", "wren").code == 0
    PLACE.write_text("sweep 0\n")
    assert crew("agent", "tick", "wren", "--json").data["runs"][0]["facts"]["state"] == "sweep"
    assert PLACE.read_text().strip() == "look 0"


def test_a_single_keeper_comes_from_the_file_that_defines_it(crew: Call) -> None:
    Path("horae.toml").write_text('[keeper]\ndef = "crew/wren.org"\n')
    ticked = crew("agent", "tick", "keeper", "--json").data
    assert (ticked["status"], ticked["title"]) == ("done", "wren")
    assert (ticked["file"], ticked["line"]) == ("crew/wren.org", 1)


def test_one_keeper_has_one_name_and_keeper_is_another_word_for_it(crew: Call) -> None:
    settings = 'keeper.def = "crew/wren.org"\nlifecycle.def = "crew/day.org"\n'
    Path("horae.toml").write_text(settings)
    for name in ("wren", "keeper"):
        assert crew("agent", "tick", name, "--json").data["title"] == "wren"
        assert crew("why", name, "--json").data["entry"]["title"] == "wren"
        assert [each["title"] for each in crew("history", name, "--json").data][:1] == ["wren"]
        assert crew("pause", name, "--json").data["pause"] is not None
        assert crew("resume", name, "--json").data["changed"]
        assert crew("agent", "show", name, "--json").data["agent"] == "wren"
    [agent] = crew("status", "--json").data["agents"]
    [row] = crew("agent", "list", "--json").data
    assert (agent["agent"], row["agent"]) == ("wren", "wren")
    assert len(crew("history", "--json").data) == 2
    assert Path(".horae/keeper-last-run").exists(), "its files carry no name, as before"


def test_a_workflow_of_the_keepers_name_takes_nothing_from_it(crew: Call) -> None:
    Path("horae.toml").write_text('[keeper]\ndef = "crew/wren.org"\n')
    Path("plan.org").write_text(
        "* wren :workflow:\n:PROPERTIES:\n:SCHEDULE: 0 9 * * *\n:COMMAND: true\n:END:\n"
    )
    assert crew("agent", "tick", "wren", "--json").data["key"] == "tick:1"
    assert crew("why", "keeper", "--json").data["entry"]["source"] == "crew"
