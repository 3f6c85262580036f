"""What programs can read of Horae is as it was recorded; README.md says how to look at a change."""

from __future__ import annotations

from difflib import unified_diff
from typing import TYPE_CHECKING

import pytest

from golden.coverage import covered
from golden.product import can_kill_trees
from golden.record import RECORDS, tell
from golden.stories import STORIES

if TYPE_CHECKING:
    from pathlib import Path

SHOWN = 40  # lines of a diff
# Real processes run in a story. On a busy machine one that was just requested may still wait, or
# two may start the other way round; a change of behaviour differs in every telling.
TELLINGS = 3
HELP = "\nIf this was meant: make golden, then read tests/golden/README.md and git diff."


def test_every_story_has_its_records_and_every_record_its_story() -> None:
    assert {path.parent.name for path in RECORDS.glob("*/*")} == {*STORIES}


@pytest.mark.skipif(not can_kill_trees(), reason="needs pidfds")
@pytest.mark.parametrize("story", STORIES)
def test_what_programs_can_read_is_as_it_was_recorded(story: str, tmp_path: Path) -> None:
    differing = [""]
    for telling in range(TELLINGS):
        fresh = tmp_path / str(telling)
        tell([story], fresh)
        if not (differing := differences(story, fresh)):
            break
    assert not differing, "\n" + "\n".join(differing) + HELP


def differences(story: str, fresh: Path) -> list[str]:
    """Return how a story differs from its records, a short diff for each file."""
    names = {
        path.relative_to(top) for top in (fresh, RECORDS) for path in (top / story).rglob("*.json")
    }
    # Words last: what they stand for is more important.
    ordered = sorted(names, key=lambda name: (name.stem == "wording", name))
    return [text for name in ordered if (text := difference(name, fresh))]


def difference(name: Path, fresh: Path) -> str:
    """Return a short diff between a record and what is so now; nothing if they are equal."""
    was, now = (
        path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        for path in (RECORDS / name, fresh / name)
    )
    lines = [*unified_diff(was, now, f"recorded/{name}", f"now/{name}", n=2, lineterm="")]
    rest = [f"… and {len(lines) - SHOWN} more lines"] if len(lines) > SHOWN else []
    return "\n".join([*lines[:SHOWN], *rest])


@pytest.mark.parametrize("kind", ["commands", "routes", "routes with an error"])
def test_every_command_and_every_route_has_a_record(kind: str) -> None:
    missing = covered()[kind].missing
    assert not missing, (
        f"without a record ({kind}): {', '.join(missing)}; "
        "add a line to tests/golden/stories.py, then: make golden"
    )
