"""What will come, as the API tells it: any window, in pages that join, and as a calendar."""

from __future__ import annotations

from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import httpx

from core.world import story
from horae.core.engine import Engine
from horae.core.service import Service
from horae.core.views import EngineFacts
from horae.sources.plans.source import OrgSource
from horae.store.sqlite import SqliteLedger
from horae.testing import ManualClock, ScriptedRunner
from horae.web.api import asgi_app
from horae.web.front import Front
from horae.web.keys import Keys

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

NOW = datetime(2026, 4, 1, 12, 34, 56, 500_000, tzinfo=UTC)

MANY = """* Hourly :workflow:
:PROPERTIES:
:SCHEDULE: 0 * * * *
:COMMAND: true
:END:
* Also hourly :workflow:
:PROPERTIES:
:SCHEDULE: 0 * * * *
:COMMAND: true
:END:
* Daily :workflow:
SCHEDULED: <2026-04-02 Thu 09:00 +1d>
:PROPERTIES:
:COMMAND: true
:END:
* Asked for :workflow:
:PROPERTIES:
:COMMAND: true
:END:
"""


class Shown:
    """An engine that stands still, as the API shows it."""

    def __init__(self, client: httpx.AsyncClient, service: Service, keys: Keys) -> None:
        self.client = client
        self.service = service
        self.keys = keys

    async def agenda(self, **query: object) -> Any:
        answer = await self.client.get(
            "/api/v1/agenda", params={k: str(v) for k, v in query.items()}
        )
        assert answer.status_code == 200, answer.text
        return answer.json()


@asynccontextmanager
async def shown(root: Path, data: Path) -> AsyncIterator[Shown]:
    """Give what the API shows of the plans beneath a root, at a moment that stays."""
    clock = ManualClock(NOW)
    ledger = await SqliteLedger.in_memory()
    engine = Engine(
        clock=clock,
        ledger=ledger,
        runner=ScriptedRunner(clock=clock),
        sources=[OrgSource(root, zone_name="UTC")],
    )
    await engine.rescan("org")
    service = Service(ledger=ledger, clock=clock, ids=lambda: "x")
    front = Front(
        service=service,
        engine=engine,
        facts=lambda: EngineFacts(True, ""),
        log_of=lambda _: root,
        clock=clock,
        ledger=ledger,
        keys=Keys(data, clock=clock),
    )
    assert front.keys is not None
    wire = httpx.ASGITransport(asgi_app(front))
    async with httpx.AsyncClient(transport=wire, base_url="http://localhost") as client:
        yield Shown(client, service, front.keys)
    await ledger.close()


@story
async def test_an_agenda_comes_in_pages_that_join(tmp_path: Path) -> None:
    (tmp_path / "plan.org").write_text(MANY)
    async with shown(tmp_path, tmp_path) as here:
        window = {"from": NOW.isoformat(), "to": (NOW + timedelta(days=3)).isoformat()}
        whole = (await here.agenda(**window, limit=1000))["fires"]
        assert len(whole) == 3 * 24 * 2 + 3
        for size in (1, 2, 3, 7, 100):
            joined: list[Any] = []
            cursor: str | None = ""
            while cursor is not None:
                page = await here.agenda(
                    **window, limit=size, **({"cursor": cursor} if cursor else {})
                )
                joined += page["fires"]
                cursor = page["cursor"]
            assert joined == whole, size
        wrong = await here.client.get("/api/v1/agenda?cursor=tomorrow")
        assert wrong.status_code == 400


@story
async def test_an_agenda_has_any_window_and_one_entry_if_that_is_asked_for(tmp_path: Path) -> None:
    (tmp_path / "plan.org").write_text(MANY)
    async with shown(tmp_path, tmp_path) as here:
        past = {"from": "2026-04-03T09:00:00Z", "to": "2026-04-05T09:00:00Z", "entry": "Daily"}
        days = [each["at"] for each in (await here.agenda(**past))["fires"]]
        assert days == ["2026-04-03T09:00:00Z", "2026-04-04T09:00:00Z"], "the end is not in it"
        assert (await here.agenda(entry="Asked for"))["fires"] == []
        assert len((await here.agenda(entry="Hourly"))["fires"]) == 100
        for query in ("from=2026-01-02T00:00:00Z&to=2026-01-01T00:00:00Z", "from=x"):
            assert (await here.client.get(f"/api/v1/agenda?{query}")).status_code == 400
        assert (await here.client.get("/api/v1/agenda?entry=Nobody")).status_code == 404


@story
async def test_what_rests_is_not_shown_while_it_rests(tmp_path: Path) -> None:
    (tmp_path / "plan.org").write_text(MANY)
    async with shown(tmp_path, tmp_path) as here:
        await here.service.pause("Daily")
        assert (await here.agenda(entry="Daily"))["fires"] == []
        await here.service.pause("Hourly", until=NOW + timedelta(hours=5))
        found = (await here.agenda(entry="Hourly", limit=1))["fires"]
        assert [each["at"] for each in found] == ["2026-04-01T18:00:00Z"]


@story
async def test_a_rule_is_previewed_before_it_is_written_down(tmp_path: Path) -> None:
    async with shown(tmp_path, tmp_path) as here:

        async def preview(**query: str) -> httpx.Response:
            return await here.client.get("/api/v1/preview", params=query)

        said = (await preview(cron="0 9 * * MON", zone="Europe/Berlin")).json()
        assert said["next"][0] == "2026-04-06T09:00:00+02:00"
        assert len(said["next"]) == 5
        assert "Monday" in said["words"]
        assert (await preview(at="2026-05-01T00:00:00Z")).json()["next"] == ["2026-05-01T00:00:00Z"]
        for wrong in ({}, {"cron": "0 25 * * *"}, {"cron": "x", "at": "2026-05-01T00:00:00Z"}):
            assert (await preview(**wrong)).status_code == 400
        for when in ("weekdays at 9", "0 9 * * MON-FRI"):
            said = (await preview(when=when)).json()
            assert said["cron"] == "0 9 * * MON-FRI"
            assert said["next"][0] == "2026-04-02T09:00:00Z"
        asked = (await preview(when="every day at 5")).json()
        assert "5:00 in the morning or 17:00?" in asked["detail"]
        assert (await preview(cron="weekdays at 9")).status_code == 400
        assert (await preview(cron="* * * * *", zone="Moon/Base")).status_code == 400


@story
async def test_the_calendar_is_at_a_path_that_nobody_can_guess(tmp_path: Path) -> None:
    (tmp_path / "plan.org").write_text(MANY)
    async with shown(tmp_path, tmp_path) as here:
        path = (await here.client.get("/api/v1/calendar")).json()["path"]
        assert path == f"/calendar/{here.keys.calendar}.ics"
        assert len(here.keys.calendar) >= 40
        assert (await here.client.get(path)).content == (
            await here.client.get("/calendar.ics")
        ).content
        for wrong in ("x", here.keys.calendar[:-1], "%C3%A9"):
            assert (await here.client.get(f"/calendar/{wrong}.ics")).status_code == 404
