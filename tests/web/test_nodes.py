"""The machines that share a ledger, as a program, a person and a monitor see them."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import httpx
from msgspec import convert
from starlette.applications import Starlette

from horae.core.lease import Membership, NodeDescription, NodeLine
from horae.web.api import asgi_app
from horae.web.page.routes import routes
from store.ledger_suite import story
from web.stage import PLAN, engine

if TYPE_CHECKING:
    from pathlib import Path

NOW = datetime(2026, 11, 15, 12, 30, tzinfo=UTC)


def machine(name: str, *, is_alive: bool = True, is_draining: bool = False) -> Membership:
    card = NodeDescription(name, f"{name}:7117", ("gpu", "<b>"), "0.1.0", 4, name != "box3")
    until, term = NOW + timedelta(seconds=15), 7 if name == "box1" else None
    return Membership(card, 1, is_alive, is_draining, NOW, NOW, until, term=term, runs=2)


async def nodes() -> list[NodeLine]:
    found = [
        machine("box1"),
        machine("box2", is_draining=True),
        machine("box3", is_alive=False),
        replace(machine("box4"), left_at=NOW),
    ]
    return [each.line for each in found]


@story
async def test_a_machine_is_up_draining_lost_or_has_left_and_one_leads() -> None:
    rows = await nodes()
    assert [row.state for row in rows] == ["up", "draining", "lost", "left"]
    assert [row.leads for row in rows] == [True, False, False, False]
    assert [row.term for row in rows] == [7, None, None, None]
    assert [row.may_lead for row in rows] == [True, True, False, True]
    assert {row.since for row in rows} == {"2026-11-15T12:30:00+00:00"}
    assert {row.lease_until for row in rows} == {"2026-11-15T12:30:15+00:00"}


@story
async def test_every_face_tells_of_the_machines(tmp_path: Path) -> None:
    async with engine(tmp_path, PLAN) as here:
        front = replace(here.front, nodes=nodes)
        made = asgi_app(front, pages=lambda: routes(front))
        wire = httpx.ASGITransport(made)
        async with httpx.AsyncClient(transport=wire, base_url="http://localhost") as client:
            told = (await client.get("/api/v1/nodes")).json()
            page = (await client.get("/nodes")).text
            numbers = (await client.get("/metrics")).text
    assert convert(told["nodes"], list[NodeLine]) == await nodes()
    assert page.count("<tr id=") == 4
    assert "up, leads (term 7)" in page
    assert "lost, never leads" in page
    assert "2 of 4" in page
    assert "Lease until" in page
    assert "&lt;b&gt;" in page
    assert "<b>" not in page.partition("<main")[2].partition("</table>")[0]
    assert ">Nodes</a>" in page
    assert 'horae_node_up{leads="true",node="box1"} 1.0' in numbers
    assert 'horae_node_up{leads="false",node="box3"} 0.0' in numbers
    assert 'horae_node_runs{node="box2"} 2.0' in numbers


@story
async def test_one_machine_alone_has_no_page_of_machines(tmp_path: Path) -> None:
    async with engine(tmp_path, PLAN) as here:
        made = Starlette(routes=routes(here.front))
        wire = httpx.ASGITransport(made)
        async with httpx.AsyncClient(transport=wire, base_url="http://localhost") as client:
            assert (await client.get("/nodes")).status_code == 404
            assert ">Nodes</a>" not in (await client.get("/")).text
        assert await here.get("nodes") == {"nodes": []}
