"""A plan root that lost its plans while an engine runs: nothing starts, and every face says so."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from walks.stage import engine, story, type_

if TYPE_CHECKING:
    from walks.stage import Ground

SAID = "nothing starts now: the plan root contains no plan; nothing is scheduled until one appears"


@story
async def test_times_are_shown_with_a_word_that_nothing_starts(ground: Ground) -> None:
    ground.write("horae.toml", 'listen = "127.0.0.1:0"\n')
    plan = ground.write("plan.org", "* A\n:PROPERTIES:\n:SCHEDULE: @daily\n:COMMAND: true\n:END:\n")
    async with engine(ground) as here:
        assert SAID not in (await type_("horae", "next", at=ground.root)).err
        plan.rename(ground.side / "plan.org")
        await here.reread()
        for command in ("next", "agenda", "due"):
            shown = await type_("horae", command, at=ground.root)
            assert "A  plan.org:1" in shown.out
            assert f"horae: {SAID}\n" in shown.err
        told = json.loads((await type_("horae", "next", "--json", at=ground.root)).err)
        assert (told["error"]["code"], told["error"]["message"]) == ("engine_idle", SAID)
