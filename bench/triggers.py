"""Triggers: requests per second with 100 and with 10,000 workflows, and how soon each is armed.

    python bench/triggers.py [MANY]     about 2 minutes

Every request goes through the whole application (routes, checks, answers); only the socket
between is left out, on both sides. The peer beside it is what one would write instead: the same
routes on plain Starlette and SQLite, one table, `synchronous=FULL`, which checks nothing, arms
nothing and has no history. For arming the peer is APScheduler's `add_job` into SQLite.

Growth is measured in memory where there is a file system in it: how long a disk takes to sync
has nothing to do with how many workflows there are, and is most of the time of a request. How
many are made in a second is measured on the disk.

A request may get slower by log n at most: from 100 to 10,000 workflows that is twice.
"""

from __future__ import annotations

import asyncio
import json
import math
import sqlite3
import sys
import tempfile
import time
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import httpx
from apscheduler.jobstores.sqlalchemy import SQLAlchemyJobStore
from apscheduler.schedulers.background import BackgroundScheduler
from starlette.applications import Starlette
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from horae.app import App, build
from horae.config import load
from horae.core.decide import decide
from horae.core.ports import EntryStep
from horae.web.api import asgi_app
from horae.web.front import Front

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from starlette.requests import Request

    from horae.core.ports import Ledger
    from horae.sources.triggers.service import Triggers

FEW, MANY = 100, 10_000
ROUNDS = 40  # of each request, with few and with many
AT_ONCE = 50  # requests that make workflows
ON_DISK = 1_000  # made there
MEMORY = "/dev/shm" if Path("/dev/shm").is_dir() else None
JOBS = 1_000  # of APScheduler: each takes longer than the one before
CRON = {"type": "cron", "expression": "0 9 * * MON-FRI"}


def flow(number: int, **changes: Any) -> dict[str, Any]:
    """Return the body that makes a workflow."""
    about = {"name": f"report-{number}", "agent_id": "worker", "trigger_config": CRON}
    return {**about, "prompt_template": "Report for {{fire_time}}.", **changes}


# Whom to ask


@asynccontextmanager
async def ours(place: Path) -> AsyncIterator[tuple[httpx.AsyncClient, App]]:
    """Give a client of the whole application, on an app that keeps its ledger on disk."""
    place.mkdir()
    (place / "horae.toml").write_text('[agent]\ncommand = "true"\n')
    async with build(load(str(place))) as app:
        front = Front(
            service=app.service,
            engine=app.engine,
            facts=app.facts,
            log_of=app.log_of,
            clock=app.clock,
            ledger=app.ledger,
            triggers=app.triggers,
        )
        await app.triggers.create_agent({"name": "worker"})
        transport = httpx.ASGITransport(asgi_app(front))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            yield client, app


@asynccontextmanager
async def peer(place: Path) -> AsyncIterator[httpx.AsyncClient]:
    """Give a client of the same routes on one table, as one would write them by hand."""
    place.mkdir()
    table = sqlite3.connect(place / "peer.db", isolation_level=None)
    table.execute("PRAGMA journal_mode=WAL")
    table.execute("PRAGMA synchronous=FULL")
    table.execute("CREATE TABLE flow (id TEXT PRIMARY KEY, name TEXT UNIQUE, body TEXT)")

    async def page(request: Request) -> Response:
        asked = request.query_params
        part = (int(asked.get("limit", 50)), int(asked.get("offset", 0)))
        query = "SELECT id, body FROM flow ORDER BY rowid DESC LIMIT ? OFFSET ?"
        rows = [{"id": name, **json.loads(body)} for name, body in table.execute(query, part)]
        [(total,)] = table.execute("SELECT count(*) FROM flow")
        return JSONResponse({"items": rows, "total": total})

    async def make(request: Request) -> Response:
        said, name = await request.json(), str(uuid4())
        table.execute("INSERT INTO flow VALUES (?, ?, ?)", (name, said["name"], json.dumps(said)))
        return JSONResponse({"id": name, **said}, 201)

    async def get(request: Request) -> Response:
        query = "SELECT body FROM flow WHERE id = ?"
        [(body,)] = table.execute(query, (request.path_params["id"],))
        return JSONResponse(json.loads(body))

    async def change(request: Request) -> Response:
        name = request.path_params["id"]
        [(body,)] = table.execute("SELECT body FROM flow WHERE id = ?", (name,))
        said = {**json.loads(body), **await request.json()}
        table.execute("UPDATE flow SET body = ? WHERE id = ?", (json.dumps(said), name))
        return JSONResponse(said)

    async def drop(request: Request) -> Response:
        table.execute("DELETE FROM flow WHERE id = ?", (request.path_params["id"],))
        return Response(status_code=204)

    routes = [
        Route("/workflows", page),
        Route("/workflows", make, methods=["POST"]),
        Route("/workflows/{id}", get),
        Route("/workflows/{id}", change, methods=["PUT"]),
        Route("/workflows/{id}", drop, methods=["DELETE"]),
    ]
    transport = httpx.ASGITransport(Starlette(routes=routes))
    async with httpx.AsyncClient(transport=transport, base_url="http://peer") as client:
        yield client
    table.close()


# What is asked


async def fill(client: httpx.AsyncClient, count: int) -> float:
    """Make workflows, some of them at the same time; return how many were made in a second."""

    async def make(number: int) -> None:
        answer = await client.post("/workflows", json=flow(number))
        assert answer.status_code == 201, answer.text

    began = time.perf_counter()
    for start in range(0, count, AT_ONCE):
        await asyncio.gather(*map(make, range(start, min(start + AT_ONCE, count))))
    return count / (time.perf_counter() - began)


async def requests(
    few: httpx.AsyncClient, many: httpx.AsyncClient, *, is_ours: bool
) -> tuple[dict[str, float], dict[str, float]]:
    """Return how long each request takes, by turns, so that a busy machine harms both alike."""
    took: tuple[dict[str, list[float]], dict[str, list[float]]] = ({}, {})
    for number in range(10**6, 10**6 + ROUNDS):
        for client, times in zip((few, many), took, strict=True):
            await _round(client, number, times, is_ours=is_ours)
    less, more = ({name: _low(each) for name, each in times.items()} for times in took)
    return less, more


def _low(times: list[float]) -> float:
    """Return what a request takes when little else is in its way: a fifth takes less."""
    return sorted(times)[len(times) // 5]


async def _round(
    client: httpx.AsyncClient, number: int, took: dict[str, list[float]], *, is_ours: bool
) -> None:
    """Ask for each thing once."""

    async def ask(name: str, method: str, path: str, body: Any = None) -> Any:
        began = time.perf_counter()
        answer = await client.request(method, path, json=body)
        took.setdefault(name, []).append(time.perf_counter() - began)
        assert answer.is_success, answer.text
        return answer.json() if answer.content else None

    where = f"/workflows/{(await ask('create', 'POST', '/workflows', flow(number)))['id']}"
    await ask("list 50", "GET", "/workflows?limit=50")
    await ask("get", "GET", where)
    await ask("update", "PUT", where, {"prompt_template": "Other words."})
    await ask("disable", "PUT", where, {"enabled": False})
    await ask("enable", "PUT", where, {"enabled": True})
    if is_ours:
        await ask("trigger", "POST", f"{where}/trigger", {})
        await ask("history", "GET", f"{where}/history")
    await ask("delete", "DELETE", where)


async def armed(triggers: Triggers) -> float:
    """Return how long it takes from the request until the ledger would fire a new workflow."""
    took = []
    for each in range(ROUNDS):
        began = time.perf_counter()
        made = await triggers.create({**flow(10**9 + each), "agent": "worker"})
        why_not = await triggers.unarmed([made.id])
        took.append(time.perf_counter() - began)
        assert not why_not
    return _low(took)


async def fired(ledger: Ledger) -> tuple[int, float]:
    """Let every workflow fire once; return how many did, and how many in a second."""
    now = datetime.now(UTC)
    nine = (now + timedelta(days=7 - now.weekday())).replace(hour=9, minute=0, second=0)
    # What came before is closed first, so that each has this one moment.
    began, total = 0.0, 0
    for moment in (nine - timedelta(minutes=1), nine):
        began, total = time.perf_counter(), 0
        while due := await ledger.due(now=moment):
            steps = [EntryStep(each.entry, decide(each.entry, now=moment)) for each in due]
            total += len(await ledger.decide(steps, now=moment, term=1))
    return total, total / (time.perf_counter() - began)


def scheduled(place: Path, few: int, many: int) -> list[float]:
    """Return how long APScheduler takes to add a job beside some others, in SQLite."""
    place.mkdir()
    scheduler = BackgroundScheduler(
        jobstores={"default": SQLAlchemyJobStore(f"sqlite:///{place}/jobs.db")}, timezone=UTC
    )
    scheduler.start(paused=True)
    times, made = [], 0
    for until in (few, many):
        for number in range(made, until):
            scheduler.add_job(print, "cron", hour=9, id=str(number))
        made, took = until, []
        for each in range(5):
            began = time.perf_counter()
            scheduler.add_job(print, "cron", hour=9, id=f"{until}-{each}")
            took.append(time.perf_counter() - began)
        times.append(median(took))
    scheduler.shutdown(wait=False)
    return times


def show(
    title: str, few: dict[str, float], many: dict[str, float], counts: tuple[int, int]
) -> None:
    """Print what each request took, and how much more it is with many."""
    print(f"\n{title:<28}{counts[0]:>8,} workflows {counts[1]:>9,} workflows   ratio")
    for name, less in few.items():
        more = many[name]
        rates = (
            f"{1 / less:>10,.0f}/s {less * 1e3:>6.2f} ms {1 / more:>10,.0f}/s {more * 1e3:>6.2f} ms"
        )
        print(f"  {name:<22}{rates}   {more / less:.2f}")


def _directory(where: str | None) -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="horae-bench-", dir=where)


async def main(many: int) -> int:
    """Measure, print, and say whether anything grew more than it may."""
    allowed = math.log(many) / math.log(FEW)
    with _directory(MEMORY) as name, _directory(None) as disk:
        place = Path(name)
        async with ours(place / "few") as (one, small), ours(place / "many") as (other, large):
            await fill(one, FEW)
            await fill(other, many)
            less, more = await requests(one, other, is_ours=True)
            show("horae", less, more, (FEW, many))
            arming = [await armed(each.triggers) for each in (small, large)]
            count, per_second = await fired(large.ledger)
        async with peer(place / "peer") as one, peer(place / "peers") as other:
            await fill(one, FEW)
            await fill(other, many)
            theirs = await requests(one, other, is_ours=False)
            show("Starlette and SQLite", *theirs, (FEW, many))
        async with ours(Path(disk) / "ours") as (one, _), peer(Path(disk) / "peer") as other:
            rate, their_rate = await fill(one, ON_DISK), await fill(other, ON_DISK)
        jobs = scheduled(place / "jobs", FEW, min(many, JOBS))
    print(f"\ncreated on disk, {AT_ONCE} at a time: horae {rate:,.0f}/s, peer {their_rate:,.0f}/s")
    times = [f"{each * 1e3:.2f} ms" for each in (*arming, *jobs)]
    print(f"create to armed: {times[0]} with {FEW}, {times[1]} with {many:,}")
    print(f"APScheduler add_job: {times[2]} with {FEW}, {times[3]} with {min(many, JOBS):,}")
    print(f"fired: {count:,} receipts decided and committed, {per_second:,.0f}/s")
    worst = max((more[name] / less[name], name) for name in less)
    print(f"\nslowest growth: {worst[1]} {worst[0]:.2f} (log n allows {allowed:.2f})")
    return 0 if worst[0] <= allowed else 1


if __name__ == "__main__":
    sys.exit(asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else MANY)))
