"""A name that no entry goes by is answered with those that it may stand for, ids included."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from calling import Call

PLAN = (
    "* Every morning\n:PROPERTIES:\n:ID: backup-home\n:SCHEDULE: 0 9 1 1 *\n:COMMAND: true\n:END:\n"
)


def test_a_mistyped_id_is_named(call: Call) -> None:
    Path("plan.org").write_text(PLAN)
    assert call("run", "backup-home").code == 0, "so that the ledger knows it"
    for word in ("Backup-Home", "backup-hom", "backup"):
        error = json.loads(call("why", word, "--json").err)["error"]
        assert (error["code"], error["facts"]["near"]) == ("entry_not_found", ["backup-home"])
