"""What a headline is: an entry, hidden, or the home of a block for an agent."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from horae.core.entry import ARCHIVED, COMMENTED
from horae.org.plan import Headline, Plan
from horae.org.world import every, worlds

if TYPE_CHECKING:
    from horae.org.page import Heading

AGENT: Final = "agent"  # the language of a block that an agent answers to
_SHOWN: Final = 60


def is_entry(headline: Headline | Heading) -> bool:
    if "workflow" in headline.tags:
        return True
    calls = "COMMAND" in headline.props or "POST" in headline.props
    return calls and "agent" not in headline.tags


def hidden_by(path: Iterable[Headline]) -> str | None:
    for headline in path:
        title = headline.title
        if title.startswith("COMMENT") and title.split(None, 1)[0] == "COMMENT":
            return f"{headline.title[:_SHOWN]!r}{COMMENTED}"
        if "ARCHIVE" in headline.tags:
            return f"{headline.title[:_SHOWN]!r}{ARCHIVED}"
    return None


def agent_blocks(plan: Plan) -> Iterator[tuple[int, str | None]]:
    r"""Yield which headlines hold a block for an agent, and the name of each agent, if it has one.

    The block names it behind `:agent`, else the workflow that it belongs to, by `:AGENT:`.

    >>> from horae.org.document import read
    >>> block = "#+begin_src agent :agent wren\nBe brief.\n#+end_src\n"
    >>> list(agent_blocks(read(f"* Digest :workflow:\n** Sum up :component:\n{block}")))
    [(1, 'wren')]
    """
    components = (each for each in plan.headlines if "component" in each.tags)
    if not any(AGENT in each.text.lower() for each in components):
        return  # so that nearly all plans need not be looked at block by block
    for world in every(worlds(plan)):
        usual = plan.headlines[world.at].props.get("AGENT", "").strip()
        for component in world.components:
            block = component.block
            if block is not None and block.lang.lower() == AGENT:
                pairs = pairwise(block.args.split())
                named = (word for key, word in pairs if key == ":agent" and word[0] != ":")
                yield component.at, next(named, "") or usual or None
