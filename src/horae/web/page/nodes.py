"""Machines: who leads, who is up, and what each of them runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from horae.timing.rfc3339 import parse_rfc3339
from horae.web.page.sheet import PageView, Sheet

if TYPE_CHECKING:
    from starlette.requests import Request

    from horae.web.page.look import PageTime
    from horae.web.page.sheet import PageContext


async def nodes(house: PageContext, look: PageTime, _: Request) -> Sheet:  # noqa: ARG001
    """Who leads, who is up, and what each machine runs."""
    asked = house.front.nodes
    rows: list[dict[str, Any]] = [] if asked is None else await asked()
    shown = [{**row, "seen_at": parse_rfc3339(row["seen_at"])} for row in rows]
    return Sheet("nodes.html", "Nodes", "nodes", {"nodes": shown}, every=5)


VIEWS: Final = (PageView("/nodes", nodes, "nodes", "Nodes"),)
