"""What is known of the agents of an entry: definition, cost, claims, kept work, last transcript."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from horae.core.entry import Entry
from horae.errors import HoraeError
from horae.files.git.repository import Git, is_repository
from horae.files.read import PlanFileError, read_plan
from horae.process.logs import RunLog
from horae.sources.agents.transcript import summary
from horae.sources.crew.rules import parse_crew
from horae.web.page.run import fact_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from horae.core.ports import Ledger, Listed
    from horae.core.service import Service
    from horae.sources.triggers.service import Triggers
    from horae.web.page.sheet import PageRequest

TURNS: Final = 40  # of a transcript
WORKS: Final = 5  # kept works that are shown with their diffs
_TRANSCRIPT: Final = 256 << 10  # bytes of an output in which they are looked for
_DIFF: Final = 20_000  # characters


async def agent_facts(asked: PageRequest, found: Listed, names: Sequence[str]) -> dict[str, object]:
    """Return what a page shows of the agents of an entry."""
    front, root = asked.front, asked.context.root
    spent = await front.service.costs(by="agent", days=30)
    own, limits = found.mark.title, await _limits(front.service, found)
    last = await asked.ledger.last_run(found.number)
    turns = []
    if last is not None:
        data = await asyncio.to_thread(lambda: RunLog(front.log_of(last)).last(_TRANSCRIPT)[0])
        said = (summary(line) for line in data.splitlines())
        turns = [each for each in said if each][-TURNS:]
    claims = []
    if front.tasks is not None:
        with suppress(HoraeError):  # a board that cannot be read has a page that says so
            tasks = (await front.tasks().board()).tasks
            mine = (task for task in tasks if {task.claimed_by, task.assignee} & {*names})
            claims = [task for task in mine if task.status not in {"done", "archived"}]
    works = []
    if root is not None and is_repository(root):
        git = Git(root)
        with suppress(HoraeError):  # git is busy, or not there
            kept = [each for each in await git.kept() if each.name.partition("/")[0] in names]
            works = [(each, (await git.diff(each.commit))[:_DIFF]) for each in kept[-WORKS:]]
    return {
        "names": names,
        "costs": [each for each in spent.rows if each.name in names],
        "budgets": [
            each
            for each in spent.budgets
            if each.entry == own or (each.entry is None and each.budget in limits)
        ],
        "definition": await _definition(asked.ledger, found, root, names, front.triggers),
        "last": last,
        "turns": turns,
        "claims": claims,
        "works": works,
    }


async def _limits(service: Service, found: Listed) -> set[str]:
    """Return the budgets that limit the runs of an entry, its own and those that it shares."""
    item, spending = found.item, service.spending
    if spending is None or not isinstance(item, Entry):
        return set()
    known = await asyncio.to_thread(spending)
    purses = known.purses(item.policy, item.work), await known.of_agents(item.agents)
    return {str(each) for found in purses for each in found}


async def _definition(
    ledger: Ledger,
    found: Listed,
    root: Path | None,
    names: Sequence[str],
    triggers: Triggers | None,
) -> tuple[str, str] | None:
    """Return where an agent is defined, and how."""
    item = found.item
    text = await ledger.text(item.digest) if isinstance(item, Entry) else None
    if found.source == "trigger" and triggers is not None:
        with suppress(HoraeError):  # the agent is not one of those that triggers made
            card = await triggers.agent(names[0])
            said = (f"{k}: {fact_text(v)}" for k, v in card.config.items() if k != "env" and v)
            text = "\n".join(said).replace(str(root), ".") if root else "\n".join(said)
            return card.file or f"trigger agent {card.name}", text
    members = () if text is None else parse_crew(text, item.origin.file).members
    if not members or found.source != "crew":
        return None
    path = Path(item.origin.file).parent / members[0].definition
    try:
        plan = await asyncio.to_thread(read_plan, (root or Path()) / path)
    except PlanFileError as error:
        return str(path), str(error)
    return str(path), plan.text
