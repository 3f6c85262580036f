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
HELP = "\nIf this was meant: make golden, then read tests/golden/README.md and git diff."


@pytest.mark.skipif(not can_kill_trees(), reason="needs pidfds")
def test_what_programs_can_read_is_as_it_was_recorded(tmp_path: Path) -> None:
    tell([*STORIES], tmp_path)
    assert {path.parent.name for path in RECORDS.glob("*/*")} == {*STORIES}
    names = sorted(
        {path.relative_to(top) for top in (tmp_path, RECORDS) for path in top.rglob("*.json")}
    )
    # Words last: what they stand for is more important.
    names.sort(key=lambda name: name.stem == "wording")
    differing = [text for name in names if (text := difference(name, tmp_path))]
    assert not differing, "\n" + "\n".join(differing) + HELP


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
