"""The pages as text: what they say, what they never say, and what they cost."""

from __future__ import annotations

import asyncio
import gzip
import re
import sqlite3
import subprocess
import sys
from collections import defaultdict
from contextlib import asynccontextmanager, closing
from datetime import UTC, date, datetime, timedelta
from html.parser import HTMLParser
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
from hypothesis import given, settings, strategies as st
from msgspec import structs
from starlette.applications import Starlette

import horae.web.page as page_module
from horae.core.command import Unready
from horae.core.entry import Entry
from horae.core.ports import Listed, RunSpan
from horae.core.project import project
from horae.core.receipt import Receipt, Status
from horae.core.spending import Spending
from horae.core.text import in_zone
from horae.org.document import read
from horae.sources.crew.lifecycle import Lifecycle, parse_lifecycle
from horae.sources.crew.page import draw
from horae.sources.plans.arming import scan_plan
from horae.store.database import DATABASE
from horae.timing.zone import local, zone
from horae.web.page.routes import routes
from horae.web.page.run import gantt
from horae.web.page.sheet import PageTime, Static, plain
from horae.web.page.timeline import (
    FEW,
    Lane,
    Scale,
    count,
    day_lines,
    fill_slots,
)
from horae.web.page.window import ZOOMS, Window
from reasons import because
from scale import scaled
from store.ledger_suite import story
from waiting import until
from web.browser import DAY, EVIL, PLAN, TASKS
from web.stage import Here, engine

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable

NOW = datetime(2026, 11, 15, 12, 30, tzinfo=UTC)
BERLIN = "Europe/Berlin"
PAGES = (
    "/",
    "/entries",
    "/entries?state=armed&source=org&tag=news&agent=wren&q=plan&sort=next&page=2",
    "/timeline",
    "/timeline?span=1h&status=done&q=mail&agent=wren",
    "/timeline?from=2026-01-01T00:00:00Z&span=30d",
    "/timeline?at=2026",
    "/timeline?at=2027-02",
    "/timeline?at=2026-W47&lanes=slot",
    "/timeline?at=2026-12-24&lanes=agent&tag=news",
    "/timeline?at=2026-11-15T13&lanes=file",
    "/timeline?at=2026-11-15T13:20",
    "/calendar",
    "/calendar?view=week",
    "/crew",
    "/board",
    "/board/3",
    "/plan",
    "/plan/plan.org",
    "/entries/digest",
    "/entries/plan.org:3",
    "/entries/digest/why",
    "/entries/digest/why?at=2026-04-01",
)


class Open:
    """A client of the pages of an engine."""

    def __init__(self, here: Here, client: httpx.AsyncClient) -> None:
        self.here = here
        self.client = client

    async def page(self, path: str, status: int = 200) -> str:
        """Return a page."""
        answer = await self.client.get(path)
        assert answer.status_code == status, answer.text
        assert answer.headers["content-type"].startswith("text/html")
        return answer.text


@asynccontextmanager
async def opened(root: Path, plan: str = PLAN, *, slots: int = 4) -> AsyncIterator[Open]:
    """Give the pages of an engine that keeps a plan and a board."""
    tasks = root / "board" / "tasks"
    tasks.mkdir(parents=True)
    for name, text in TASKS.items():
        (tasks / name).write_text(text)
    async with engine(root, plan, slots=slots) as here:
        made = Starlette(routes=routes(here.front, root))
        wire = httpx.ASGITransport(made)
        async with httpx.AsyncClient(transport=wire, base_url="http://localhost") as client:
            yield Open(here, client)


class Markup(HTMLParser):
    """What of a page is markup: every tag with its attributes."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))


def listed(plan: str, title: str, *, zone_name: str = BERLIN) -> Listed:
    """Return an entry of a plan as a ledger would know it."""
    for number, each in enumerate(scan_plan(read(plan), file="plan.org", zone_name=zone_name), 1):
        if each.item.title == title:
            return Listed(number, "org", each.mark, each.item, NOW)
    raise AssertionError(title)


def cron(expression: str, zone_name: str = BERLIN) -> Listed:
    """Return an entry with one cron expression."""
    plan = f"* Beat :workflow:\n:PROPERTIES:\n:SCHEDULE: {expression}\n:END:\n"
    return listed(plan, "Beat", zone_name=zone_name)


# What every page is


@story
async def test_every_page_answers_and_holds_no_script_or_style_of_its_own(tmp_path: Path) -> None:
    async with opened(tmp_path) as open_:
        for path in PAGES:
            text = await open_.page(path)
            assert str(tmp_path) not in text, path
            for tag, attributes in Markup(text).tags:
                assert tag not in {"style", "iframe", "object", "embed", "base"}, path
                assert "style" not in attributes, (path, tag, attributes)
                assert not any(name.startswith("on") for name in attributes), (path, attributes)
                if tag == "script":
                    assert (attributes["src"] or "").startswith("/static/"), path
                for name in ("src", "href", "action"):
                    link = attributes.get(name)
                    assert link is None or link.startswith(("/", "#", "?")), (path, link)
                    assert link is None or not link.startswith("//"), (path, link)


@story
async def test_no_browser_runs_or_keeps_what_is_not_ours(tmp_path: Path) -> None:
    async with opened(tmp_path) as open_:
        headers = (await open_.client.get("/")).headers
        assert headers["cache-control"] == "no-store"
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert headers["x-content-type-options"] == "nosniff"


@story
async def test_markup_in_every_title_stays_text(tmp_path: Path) -> None:
    async with opened(tmp_path) as open_:
        asked = await open_.here.post("entries/evil/run")
        await open_.here.ended(asked["receipt"])
        await open_.here.post("entries/mail/pause", {"note": f"{EVIL}\x1b[2J"})
        number = asked["receipt"]
        seen = 0
        for path in (*PAGES, f"/receipts/{number}", "/entries/evil", "/entries/mail"):
            text = await open_.page(path)
            assert "<img src=x" not in text, path
            assert "<script>alert" not in text, path
            assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", text), path
            assert not any("onerror" in attributes for _, attributes in Markup(text).tags), path
            seen += "&lt;img src=x" in text
        assert seen >= 6


@story
async def test_an_error_is_a_page_that_says_what_would_be_right(tmp_path: Path) -> None:
    async with opened(tmp_path) as open_:
        assert "did you mean" in await open_.page("/entries/Nightly digst", 404)
        assert "follow a link" in await open_.page("/receipts/none", 404)
        assert "no receipt 999" in await open_.page("/receipts/999", 404)
        assert "no run 999" in await open_.page("/runs/999", 404)
        html = {"Accept": "text/html,*/*"}
        assert "there is no page" in (await open_.client.get("/nope", headers=html)).text
        assert "there is no page" not in (await open_.client.get("/nope")).text
        for at in ("2026-13", "2026-W54", "2026-11-31", "2026-11-15T24", "soon", "9950", "1"):
            assert "2026-11, 2026-W47," in await open_.page(f"/timeline?at={at}", 400), at
        assert "lanes must be one of entry" in await open_.page("/timeline?lanes=beds", 400)
        assert "at must be a year, month" in await open_.page("/calendar?month=2026-13", 400)
        assert "2026-06-06" in await open_.page("/calendar?day=yesterday", 400)
        await open_.page("/timeline?from=now", 400)
        await open_.page("/timeline?span=long", 400)
        await open_.page("/timeline?status=fine", 400)
        await open_.page("/timeline?q=" + "x" * 500, 400)
        await open_.page("/calendar?day=9999-12-31", 400)
        await open_.page("/timeline?from=9999-12-31T23:59:59Z", 400)
        await open_.page("/entries/digest/why?at=soon", 400)
        text = await open_.page(f"/entries/{EVIL}", 404)
        assert "<img src=x" not in text


@story
async def test_no_file_is_shown_that_is_no_plan(tmp_path: Path) -> None:
    async with opened(tmp_path) as open_:
        (tmp_path / ".horae" / "secret.org").write_text("* do not tell\n")
        for name in ("/etc/passwd", "../x.org", ".horae/secret.org", "board/tasks/1-sow.md"):
            assert "there is no plan" in await open_.page(
                f"/plan/{name.replace('..', '%2e%2e')}", 404
            )


def test_what_pages_load_has_an_address_that_changes_with_it(tmp_path: Path) -> None:
    (tmp_path / "a.js").write_text("one")
    first = Static.read(tmp_path)
    assert Static.read(tmp_path) == first
    (tmp_path / "a.js").write_text("two")
    second = Static.read(tmp_path)
    assert second.version != first.version
    assert second.answer(second.version, "a.js").headers["cache-control"].endswith("immutable")
    assert second.answer(first.version, "a.js").status_code == 404
    assert second.answer(second.version, "../page.py").status_code == 404


def test_no_module_of_ours_makes_markup_of_text_or_asks_another_host() -> None:
    files = Static.read(Path(page_module.__file__).parent / "static").files
    assert len(files) > 8
    for name, data in files.items():
        text = data.decode()
        for word in ("innerHTML", "outerHTML", "insertAdjacent", "document.write", "eval("):
            assert word not in text, (name, word)
        elsewhere = set(re.findall(r"https?://[^\s\"']+", text)) - {"http://www.w3.org/2000/svg"}
        assert not elsewhere, name
    assert "@import" not in files["page.css"].decode()


def test_every_template_is_escaped_whatever_its_name() -> None:
    for path in (Path(page_module.__file__).parent / "templates").iterdir():
        text = path.read_text()
        assert "|safe" not in text
        assert "autoescape" not in text


def test_every_word_can_be_read_in_light_and_in_dark() -> None:
    text = (Path(page_module.__file__).parent / "static" / "tokens.css").read_text()
    light, dark = (
        dict(re.findall(r"--([a-z-]+): (#[0-9a-f]{6})", part))
        for part in text.split("@media (prefers-color-scheme: dark)")
    )
    for tokens in (light, light | dark):
        assert _contrast(tokens["on-accent"], tokens["accent"]) >= 4.5
        for word in ("ink", "faint", "accent", "good", "bad", "late", "wait"):
            for ground in ("paper", "sheet", "wash", "bad-wash"):
                assert _contrast(tokens[word], tokens[ground]) >= 4.5, (word, ground)


def _contrast(one: str, other: str) -> float:
    """Return how well one colour stands out from another, as WCAG counts it."""

    def light_of(colour: str) -> float:
        parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
        red, green, blue = (
            part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
        )
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    dim, bright = sorted((light_of(one), light_of(other)))
    return (bright + 0.05) / (dim + 0.05)


# What pages say


@story
async def test_now_says_what_runs_what_comes_and_what_failed_and_why(tmp_path: Path) -> None:
    async with opened(tmp_path) as open_:
        await open_.here.running("ever")
        failed = await open_.here.post("entries/evil/run")
        await open_.here.ended(failed["receipt"])
        text = await open_.page("/")
        look, _, rest = text.partition('id="h-running"')
        running, _, coming = rest.partition('id="h-next"')
        assert "Wait for ever" in running
        assert "begun" in running, "the last lines of its log"
        assert "1 of 4 slots" in running
        assert "Poll the mail" in coming
        assert "every 20 minutes" in coming
        assert 'class="status failing"' in look
        assert "exit code 3" in look
        assert 'href="/plan/plan.org?line=' in look
        assert "hour 25 is outside 0-23" in look, "why something is not armed"


@story
async def test_an_empty_engine_shows_how_to_begin(tmp_path: Path) -> None:
    async with opened(tmp_path, "#+TITLE: Nothing yet\n") as open_:
        text = ""
        for path in ("/", "/entries"):
            text = await open_.page(path)
            assert ":SCHEDULE: every minute" in text
            assert "horae demo" in text
            assert str(tmp_path) not in text
        plan = re.findall(r"<pre[^>]*>(.*?)</pre>", text, re.DOTALL)[0]
        (tmp_path / "plan.org").write_text(plan)
        await open_.here.post("rescan")
        assert "Say hello" in await open_.page("/")
        assert 'id="begin"' not in await open_.page("/")
        assert 'id="begin"' not in await open_.page("/entries?q=nothing")


@story
async def test_what_waits_says_what_it_waits_for(tmp_path: Path) -> None:
    async with opened(tmp_path) as open_:
        for _ in range(5):
            await open_.here.post("entries/ever/run")

        async def page() -> str:
            text = await open_.page("/")
            return text if 'id="waiting' in text else ""

        waiting = (await until(page)).partition('id="waiting')[2].partition("</li>")[0]
        assert "the entry is busy with receipt" in waiting


@story
async def test_what_is_late_is_in_the_inbox_with_what_it_waits_for_and_not_listed_twice(
    tmp_path: Path,
) -> None:
    async with opened(tmp_path, slots=1) as open_:
        here = open_.here
        await here.running("ever")
        digest = await here.front.service.named("digest")
        now = here.front.clock.now()
        planned_at = now - timedelta(minutes=5)
        waits = Receipt("manual:late", Status.WAITING, because("it is due"), planned_at, planned_at)
        ledger = here.front.ledger
        assert ledger is not None
        [late] = await ledger.add(digest.number, [waits], now=now, term=1)
        here.front.engine.note_change()

        async def page() -> str:
            text = await open_.page("/")
            return text if "slot is free" in text else ""

        text = await until(page)
        line = text.partition(f'id="in{digest.number}"')[2].partition("</li>")[0]
        assert re.search(r'class="status late".*no slot is free', line, re.DOTALL), line
        assert f'id="waiting{late.number}"' not in text


@story
async def test_a_stall_stands_above_all_else(tmp_path: Path) -> None:
    async with opened(tmp_path) as there:
        here, engine = there.here, there.here.front.engine

        async def has_turned_once() -> bool:
            return (await here.client.get("/readyz")).status_code == 200

        await until(has_turned_once)
        assert here.front.ledger is not None
        ago = here.front.clock.now() - timedelta(minutes=1)
        asked = Receipt("manual:1", Status.WAITING, because("asked, and nobody heard"), ago, ago)
        number = (await here.get("entries/digest"))["entry"]
        [filed] = await here.front.ledger.add(number, [asked], now=ago, term=1)
        engine._moved_at -= timedelta(minutes=1)
        answer = await here.client.get("/readyz")
        stall = answer.json()["problems"][0]
        assert answer.status_code == 503
        assert stall.startswith("stalled since ")
        assert f"receipt {filed.number} (Nightly digest, plan.org:3) does not start" in stall
        assert (await here.get("status"))["stall"] == stall
        now = await there.page("/")
        shown = in_zone(stall, "UTC")
        assert now.index(shown) < now.index("<h1")
        call = [sys.executable, "-m", "horae.cli.main", "status", "--data", str(here.data)]
        told = await asyncio.to_thread(subprocess.check_output, call, text=True)
        assert told.splitlines()[0] == shown
        engine.note_change()
        assert (await here.ended(filed.number))["status"] == "done"
        assert (await here.client.get("/readyz")).status_code == 200


@story
async def test_a_timeline_draws_only_what_touches_its_window(tmp_path: Path) -> None:
    async with opened(tmp_path) as open_:
        asked = await open_.here.post("entries/slow/run")
        told = await open_.here.ended(asked["receipt"])
        ended_at = datetime.fromisoformat(told["ended_at"]).astimezone(UTC)
        link = f'href="/receipts/{asked["receipt"]}"'
        days = [ended_at + timedelta(days=days) for days in (-1, 0, 1)]
        texts = [await open_.page(f"/timeline?at={each:%Y-%m-%d}") for each in days]
        drawn = [each.partition('id="timeline"')[2].partition("<section")[0] for each in texts]
        assert [link in each for each in drawn] == [False, True, False]
        assert "Poll the mail" in drawn[2], "what is to come"


@story
async def test_a_timeline_has_lanes_of_entries_files_agents_or_slots(tmp_path: Path) -> None:
    async with opened(tmp_path) as open_:
        await open_.here.ended((await open_.here.post("entries/digest/run"))["receipt"])
        today = f"{datetime.now(UTC):%Y-%m-%d}"

        async def names(lanes: str) -> list[str]:
            text = await open_.page(f"/timeline?at={today}&lanes={lanes}")
            return re.findall(r'class="name title"[^>]*>([^<]*)', text)

        assert "Nightly digest" in await names("entry")
        assert "plan.org" in await names("file")
        assert "no agent" in await names("agent")
        assert await names("slot") == ["slot 1"]
        week = await open_.page(f"/timeline?at={datetime.now(UTC):%G-W%V}")
        days = re.findall(r'class="name title"[^>]*>([^<]*)', week)
        assert [each[:3] for each in days] == ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"]


def span(
    receipt: int, minute: float, took: float, late: float = 0, outcome: Status = Status.DONE
) -> RunSpan:
    """Return a receipt that was due some minutes after NOW, with a run that took some minutes."""
    at = NOW + timedelta(minutes=minute)
    begun = at + timedelta(minutes=late)
    about = 1, "Dig", "plan.org", (), None, Status.DONE, because("exit code 0"), at, None, at, at
    return RunSpan(receipt, *about, receipt, begun, begun + timedelta(minutes=took), outcome)


def test_a_run_is_drawn_to_scale_with_what_it_waited_for() -> None:
    hour = Scale(NOW, NOW + timedelta(hours=1))
    look = PageTime(NOW + timedelta(hours=2), "UTC")
    failed = span(1, 6, 6, 6, Status.FAILED)
    again = span(1, 6, 6, 18)
    drawn = [each[:3] for each in hour.past([failed, again], look)]
    assert drawn == [
        (10, 10, "late"),  # due after a tenth, begun after a fifth of the hour
        (20, 10, "bar failed"),
        (30, 10, "late"),
        (40, 10, "bar done"),
        (10, 0, "mark due"),
    ]
    assert [each[:3] for each in hour.past([span(2, -30, 45)], look)] == [(0, 25, "bar done")]
    assert list(hour.past([span(2, -30, 20)], look)) == []


def test_a_run_takes_the_first_free_slot_and_one_in_a_run_shares_its_slot() -> None:
    hour, look = Scale(NOW, NOW + timedelta(hours=1)), PageTime(NOW + timedelta(hours=2), "UTC")
    found: dict[str, Lane] = defaultdict(Lane)
    runs = [span(1, 0, 10), span(2, 1, 2), span(3, 4, 2), structs.replace(span(4, 5, 1), parent=1)]
    fill_slots(found, [*runs, span(5, 11, 5)], hour, look, edges=None)
    drawn = {key: [each.href for each in draft.marks] for key, draft in found.items()}
    assert drawn == {
        "slot 1": ["/receipts/1", "/receipts/4", "/receipts/5"],
        "slot 2": ["/receipts/2", "/receipts/3"],
    }


@settings(max_examples=scaled(400))
@given(
    at=st.datetimes(NOW.replace(year=1970, tzinfo=None), NOW.replace(year=2100, tzinfo=None)),
    zone_name=st.sampled_from(["UTC", BERLIN, "America/Santiago", "Australia/Lord_Howe"]),
)
def test_the_windows_of_a_zoom_follow_one_another_and_know_their_address(
    at: datetime, zone_name: str
) -> None:
    for zoom in ZOOMS:
        window = Window.around(zoom, at, zone(zone_name))
        assert window.first <= at < window.last
        assert Window.at(window.address, window.place) == window
        assert window.move(1).move(-1) == window
        assert window.move(1).first == window.last
        assert window.start < window.end
        edges = window.edges(ZOOMS[zoom].part)
        assert (edges[0], edges[-1]) == (window.start, window.end)
        assert edges == sorted(set(edges))


@story
async def test_a_timeline_shows_what_has_a_tag_an_agent_a_status_or_a_word(tmp_path: Path) -> None:
    async with opened(tmp_path) as open_:
        told = await open_.here.ended((await open_.here.post("entries/evil/run"))["receipt"])
        assert told["status"] == "failed"

        async def names(query: str) -> set[str]:
            text = await open_.page(f"/timeline?lanes=entry&at={datetime.now(UTC):%G-W%V}&{query}")
            return {
                each[:14] for each in re.findall(r'class="name title" href="[^"]*">([^<]*)', text)
            }

        everything = await names("")
        assert {"Nightly digest", "Poll the mail", "Water the beds", "Speak markup &"} <= everything
        assert await names("tag=news") == {"Nightly digest", "Poll the mail"}
        assert await names("tag=garden") == await names("tag=daily") == {"Water the beds"}
        assert await names("tag=new") == set(), "a tag is a whole word"
        assert await names("q=GARDEN") == {"Water the beds"}
        assert await names("q=mail&tag=news") == {"Poll the mail"}
        assert await names("status=failed") == {"Speak markup &"}
        assert await names("agent=nobody") == set()


@story
async def test_what_rests_is_shown_again_from_the_end_of_its_rest(tmp_path: Path) -> None:
    async with opened(tmp_path) as open_:
        later = (datetime.now(UTC) + timedelta(days=3)).replace(microsecond=0)
        until = later.isoformat()
        for body in ({"until": until}, {}):
            await open_.here.post("entries/mail/resume")
            await open_.here.post("entries/mail/pause", body)
            page = await open_.page("/entries/mail")
            shown = re.findall(r'<li><span class="when"><time datetime="([^"]*)"', page)
            assert len(shown) == (10 if body else 0)
            assert all(datetime.fromisoformat(each) > later for each in shown)
            days = [later + timedelta(days=days) for days in (-1, 1)]
            found = [await open_.page(f"/timeline?at={day.date()}") for day in days]
            has_mail = ["Poll the mail" in each.partition("Upcoming")[2] for each in found]
            assert has_mail == [False, bool(body)]
            timeline = await open_.page(f"/timeline?at={days[1]:%Y-%m-%d}&q=mail")
            lanes = timeline.partition('id="timeline"')[2].partition("<section")[0]
            assert ("Poll the mail" in lanes) is bool(body)


@story
async def test_what_ended_last_is_shown_with_what_runs_now(tmp_path: Path) -> None:
    async with opened(tmp_path) as open_:
        assert "Recently ended" not in await open_.page("/")
        long = await open_.here.running("ever")  # begins first, and ends last
        asked = await open_.here.post("entries/digest/run")
        await open_.here.ended(asked["receipt"])
        text = await open_.page("/")
        ended = text.partition(f'id="ended{asked["receipt"]}"')[2].partition("</li>")[0]
        assert "Nightly digest" in ended
        assert "done" in ended
        await open_.here.post(f"runs/{long}/cancel")

        async def both() -> list[str]:
            found = re.findall(r'id="ended(\d+)"', await open_.page("/"))
            return found if len(found) > 1 else []

        assert (await until(both))[1] == str(asked["receipt"])


@story
async def test_a_plan_shows_what_its_headlines_mean_and_what_is_odd(tmp_path: Path) -> None:
    async with opened(tmp_path) as open_:
        lines = re.split(r'<li id="L', await open_.page("/plan/plan.org"))
        [digest] = [each for each in lines if "* Nightly digest" in each]
        assert "at 02:00 every day" in digest
        assert 'href="/entries/plan.org%3A3"' in digest
        [never] = [each for each in lines if ":SCHEDULE: 0 25 * * *" in each]
        assert 'class="finding error"' in never
        [todo] = [each for each in lines if "Renew the insurance" in each]
        assert "overdue since" in todo


@story
async def test_a_place_leads_to_its_plan_and_what_is_no_plan_is_only_named(tmp_path: Path) -> None:
    async with opened(tmp_path) as open_:
        assert 'href="/plan/plan.org?line=3#L3"' in await open_.page("/entries/digest")
        links = [
            str(attributes["href"])
            for path in ("/", "/entries/digest")
            for tag, attributes in Markup(await open_.page(path)).tags
            if tag == "a" and str(attributes.get("href")).startswith("/plan/")
        ]
        for link in links:
            await open_.page(link)


async def deploy_page(open_: Open) -> str:
    """Add a manual trigger and its agent, and return its page."""
    await open_.here.ask("trigger-agents", {"name": "worker"})
    kept: dict[str, object] = {"name": "deploy", "agent": "worker", "prompt_template": "Go."}
    kept["trigger_config"] = {"type": "manual"}
    await open_.here.ask("triggers", kept)
    return await open_.page("/entries/deploy")


@story
async def test_a_trigger_that_no_file_has_has_no_line_in_one(tmp_path: Path) -> None:
    async with opened(tmp_path) as open_:
        text = await deploy_page(open_)
        assert '<span class="place">trigger deploy</span>' in text
        assert "triggers/deploy:1" not in text
        assert '<pre class="tail" tabindex="0">Go.</pre>' in text, "the prompt, not how it is kept"
        assert '<td class="place">trigger deploy</td>' in await open_.page("/entries")


@story
async def test_an_agent_has_no_budget_of_headlines_that_it_is_not_below(tmp_path: Path) -> None:
    budget = ":PROPERTIES:\n:BUDGET: 2 runs/day\n:END:\n"
    command = ":PROPERTIES:\n:COMMAND: true\n:END:\n"
    (tmp_path / "plan.org").write_text(f"* Reports\n{budget}** Digest\n{command}")
    async with opened(tmp_path) as open_:
        await open_.here.ask("trigger-agents", {"name": "worker"})
        kept: dict[str, object] = {"name": "deploy", "agent": "worker", "prompt_template": "Go."}
        kept |= {"trigger_config": {"type": "manual"}, "budget": "3 runs/day"}
        await open_.here.ask("triggers", kept)
        service = open_.here.front.service
        service.spending = lambda: Spending(service.ledger, service.clock)
        text = await open_.page("/entries/deploy")
        assert "<dt>budget</dt><dd>3 runs/day: 0 runs spent" in text
        assert "plan.org::Reports" not in text


@story
async def test_an_agent_shows_the_work_that_was_kept_with_its_diff(tmp_path: Path) -> None:
    def git(*words: str) -> None:
        own = ("-c", "user.name=Ada", "-c", "user.email=ada@example.org")
        subprocess.run(["git", "-C", str(tmp_path), *own, *words], check=True, capture_output=True)

    (tmp_path / "plan.org").write_text(PLAN)
    git("init", "-q", "-b", "main")
    git("add", "plan.org")
    git("commit", "-qm", "Begin")
    git("switch", "-qc", "horae-work/worker/7")
    (tmp_path / "letter.md").write_text("Dear <all>\n")
    git("add", "letter.md")
    git("commit", "-qm", "Write a letter")
    git("switch", "-q", "main")
    async with opened(tmp_path) as open_:
        text = await deploy_page(open_)
        assert "Kept work worker/7: 1 file<" in text
        assert "horae agent work take worker/7" in text
        assert "+Dear &lt;all&gt;" in text


@story
async def test_a_rule_in_another_zone_than_the_page_is_listed_with_its_zone(tmp_path: Path) -> None:
    rule = ":PROPERTIES:\n:SCHEDULE: 0 9 * * *\n:TZ: Asia/Tokyo\n:COMMAND: true\n:END:\n"
    (tmp_path / "plan.org").write_text(f"* There\n{rule}* Here\n{rule.replace(':TZ:', ':NO:')}")
    async with opened(tmp_path) as open_:
        text = await open_.page("/entries")
        assert ">at 09:00 every day (Asia/Tokyo)</td>" in text
        assert ">at 09:00 every day</td>" in text


@story
async def test_an_entry_names_a_zone_only_beside_a_time_that_has_none(tmp_path: Path) -> None:
    stamp = "* Once\nSCHEDULED: <2030-01-01 Tue 09:00>\n:PROPERTIES:\n:COMMAND: true\n:END:\n"
    after = "* Alert\n:PROPERTIES:\n:AFTER: failed of Once\n:COMMAND: true\n:END:\n"
    words = "* Words\n:PROPERTIES:\n:SCHEDULE: weekdays at 9\n:COMMAND: true\n:END:\n"
    async with opened(tmp_path, stamp + after + words) as open_:
        once, alert = await open_.page("/entries/Once"), await open_.page("/entries/Alert")
        assert '<p class="lead">once, 2030-01-01 Tue 09:00 UTC</p>' in once
        assert '<p class="lead">after Once (failed)</p>' in alert
        assert "<dt>schedule</dt>" not in once + alert, "a stamp and an alert are no words"
        said = "weekdays at 9 means 0 9 * * MON-FRI"
        text = await open_.page("/entries/Words")
        assert f"<dd>{said}</dd>" in text
        assert '<p class="lead">at 09:00 on Monday to Friday (UTC)</p>' in text
        assert "after Once (failed)</p>" in await open_.page("/entries/Alert/why")


@story
async def test_an_entry_that_cannot_run_says_why(tmp_path: Path) -> None:
    async with opened(tmp_path) as open_:
        cause = Unready("nosuch is not on the PATH", "install it")

        async def unready(entries: Iterable[Listed]) -> dict[int, Unready]:
            return {each.number: cause for each in entries}

        open_.here.front.service.unready = unready
        text = await open_.page("/entries/digest")
        assert "cannot run: nosuch is not on the PATH; install it</p>" in text


@story
async def test_a_plan_is_found_by_the_place_that_its_entry_names(tmp_path: Path) -> None:
    async with opened(tmp_path) as open_:
        assert "<h1>Nightly digest</h1>" in await open_.page("/entries/plan.org%3A3")


@story
async def test_a_long_plan_is_shown_in_parts(tmp_path: Path) -> None:
    plan = "* Nothing\n" + "text\n" * 4500 + "* Last :workflow:\n:PROPERTIES:\n:COMMAND: x\n:END:\n"
    async with opened(tmp_path, plan) as open_:
        first = await open_.page("/plan/plan.org")
        assert first.count('<li id="L') == 2000
        last = await open_.page("/plan/plan.org?line=4502")
        assert 'id="L4502" class="here head"' in last


@story
async def test_a_day_of_the_calendar_is_coloured_by_what_became_of_it(tmp_path: Path) -> None:
    async with opened(tmp_path) as open_:
        for name in ("evil", "mail", "mail", "mail"):
            await open_.here.ended((await open_.here.post(f"entries/{name}/run"))["receipt"])
        text = await open_.page("/calendar")
        cells = re.findall(r'<td class="[^"]*today[^"]*">.*?</td>', text)
        year = await open_.page(f"/timeline?at={datetime.now(UTC):%Y}")
        assert "3 done, 1 failed, " in year
        assert 'upcoming"' not in year, "not counted for a year"
        assert len(cells) == 1
        assert "3 done, 1 failed," in cells[0]
        assert '<em class="failed">1 failed</em>' in cells[0]
        bars = re.findall(r'<rect class="(\w+)" x="([\d.]+)%" width="([\d.]+)%"', cells[0])
        assert bars == [("done", "0", "75.0"), ("failed", "75.0", "25.0")]


@story
async def test_an_entry_shows_its_rule_in_words_its_next_fires_and_its_history(
    tmp_path: Path,
) -> None:
    async with opened(tmp_path) as open_:
        asked = await open_.here.post("entries/digest/run")
        await open_.here.ended(asked["receipt"])
        text = await open_.page("/entries/digest")
        assert "at 02:00 every day" in text
        fires = text.partition('class="rows fires"')[2].partition("</ol>")[0]
        assert fires.count("<li>") == 10
        assert f'id="r{asked["receipt"]}"' in text


@story
async def test_an_entry_shows_what_it_runs_who_wrote_its_rule_and_how_it_went(
    tmp_path: Path,
) -> None:
    (tmp_path / "plan.org").write_text(PLAN)
    for args in (
        ("init", "-q"),
        ("add", "plan.org"),
        ("-c", "user.name=Ana", "-c", "user.email=a@b.org", "commit", "-qm", "Begin <here>"),
    ):
        subprocess.run(["git", "-C", str(tmp_path), *args], check=True)
    async with opened(tmp_path) as open_:
        for name in ("mail", "evil", "evil", "mail"):
            await open_.here.ended((await open_.here.post(f"entries/{name}/run"))["receipt"])
        text = await open_.page("/entries/mail")
        assert "echo no mail" in text, "what it runs"
        assert "catch-up none <small>set here</small>" in text
        assert "by Ana in <code>" in text
        assert "Begin &lt;here&gt;" in text
        assert "100 % good" in text
        bad = await open_.page("/entries/evil?status=failed")
        assert "0 % good" in bad
        assert bad.count('class="status failed"') == 2
        none = await open_.page("/entries/evil?status=done")
        assert "No such receipts." in none


@story
async def test_a_rule_that_is_not_committed_has_no_author(tmp_path: Path) -> None:
    (tmp_path / "plan.org").write_text("* Other\n")
    for args in (("init", "-q"), ("add", "plan.org")):
        subprocess.run(["git", "-C", str(tmp_path), *args], check=True)
    (tmp_path / "plan.org").write_text(PLAN)
    async with opened(tmp_path) as open_:
        assert "rule last changed" not in await open_.page("/entries/mail")


@story
async def test_a_receipt_shows_its_record_and_the_end_of_its_log(tmp_path: Path) -> None:
    async with opened(tmp_path) as open_:
        asked = await open_.here.post("entries/evil/run")
        await open_.here.ended(asked["receipt"])
        text = await open_.page(f"/receipts/{asked['receipt']}")
        assert "exit code 3" in text
        assert "<li>&lt;b onclick=x&gt;bold&lt;/b&gt; &lt;script&gt;alert(2)" in text
        assert "\x1b" not in text
        assert "manual:" in text


@story
async def test_why_is_a_chain_of_what_happened_with_its_times(tmp_path: Path) -> None:
    plan = """* Long :workflow:
:PROPERTIES:
:ID: long
:COMMAND: sh -c 'echo begun; until test -e go; do sleep 0.05; done'
:END:
* Flaky :workflow:
:PROPERTIES:
:ID: flaky
:RETRY: 2 1s
:COMMAND: sh -c 'test -e again || { touch again; exit 3; }'
:END:
"""
    async with opened(tmp_path, plan, slots=1) as open_:
        await open_.here.running("long")
        clock, asked_at = open_.here.front.clock, open_.here.front.clock.now()
        number = (await open_.here.post("entries/flaky/run"))["receipt"]

        async def steps(path: str = f"/receipts/{number}") -> list[str]:
            [chain] = re.findall(r'<ol class="chain".*?</ol>', await open_.page(path), re.DOTALL)
            assert chain.count("<time datetime=") == chain.count("<li class=")
            said = re.findall(r'<span class="said">(.*?)</span>', chain, re.DOTALL)
            return [re.sub(r"<[^>]*>|[0-9]+m?s", "", each) for each in said]

        async def waits() -> str:
            return found if "slot" in (found := (await steps())[-1]) else ""

        assert await until(waits) == "no slot is free; gate.slots is 1, behind Long"
        await until(lambda: clock.now() > asked_at + timedelta(seconds=2))  # less is not told
        (tmp_path / "go").touch()
        await open_.here.ended(number)
        told = await steps()
        assert told[1:] == [
            "waited  for a slot behind Long",
            "attempt 1 failed after : exit code 3",
            "retry after ",
            "attempt 2 done after : exit code 0",
        ]
        assert await steps("/entries/flaky") == await steps("/entries/flaky/why") == told


@story
async def test_the_board_says_why_a_task_is_blocked_and_when_one_comes_back(tmp_path: Path) -> None:
    async with opened(tmp_path) as open_:
        text = await open_.page("/board")
        [pick] = [each for each in text.split("<article") if "Pick them" in each]
        assert "unmet dependency #1" in pick
        [sweep] = [each for each in text.split("<article") if "Sweep the paths" in each]
        assert "at 09:00 on Mondays (Europe/Berlin)" in sweep
        assert "recurs" in sweep


@story
async def test_the_board_names_the_files_that_have_one_id(tmp_path: Path) -> None:
    async with opened(tmp_path) as open_:
        tasks = tmp_path / "board" / "tasks"
        for name in ("one.md", "two.md"):
            (tasks / name).write_text("---\nid: 77\ntitle: Rake\n---\n")
        text = await open_.page("/board")
        assert "one.md, " in text
        assert "two.md; give all but one of them another id" in text
        assert text.count("2 files have the id 77") == 3, "above, and on both cards"


# A day, counted and in lines


@story
async def test_a_day_shows_one_of_a_moment_and_many_that_began_at_that_moment(
    tmp_path: Path,
) -> None:
    often = "* Beat\n:PROPERTIES:\n:ID: often\n:SCHEDULE: 0 0-9 * * *\n:COMMAND: true\n:END:\n"
    once = "* Beat\n:PROPERTIES:\n:ID: once\n:SCHEDULE: 0 0 * * *\n:COMMAND: true\n:END:\n"
    async with opened(tmp_path, once + often) as open_:
        for name in ("often", "once"):
            asked = {"from": "2026-04-01T00:00:00Z", "to": "2026-04-02T00:00:00Z"}
            filed = await open_.here.post(f"entries/{name}/backfill", asked)
            assert len(filed["receipts"]) == (10 if name == "often" else 1)
        page = await open_.page("/calendar?day=2026-04-01")
        lines = page.partition("<section")[2]
        assert lines.count(">Beat<") == 2
        assert "00:00–09:00</a>" in lines


@settings(deadline=None, max_examples=scaled(400))
@given(
    expression=st.sampled_from(
        [
            "0 9 * * *",
            "*/20 * * * *",
            "* * * * * *",
            "0 0,6,12,18 * * *",
            "30 2 * * *",
            "0 0 29 2 *",
        ]
    ),
    day=st.dates(date(2026, 1, 1), date(2027, 12, 31)),
    zone_name=st.sampled_from(["UTC", BERLIN, "America/New_York"]),
)
def test_a_day_of_the_calendar_has_what_the_projection_has(
    expression: str, day: date, zone_name: str
) -> None:
    found, look = cron(expression, zone_name), PageTime(NOW - timedelta(days=700), zone_name)
    assert isinstance(found.item, Entry)
    start, end = look.begin(day), look.begin(day + timedelta(days=1))
    tiny = timedelta(microseconds=1)
    moments = [each.at for each in project(found.item, start - tiny, end - tiny)]
    assert all(local(each, look.place).date() == day for each in moments)
    lines = list(day_lines(found, (start, end), after=look.now))
    assert sum(line.times for line in lines) == len(moments)
    if len(moments) > FEW:
        [line] = lines
        assert (line.at, line.through) == (moments[0], moments[-1])
    else:
        assert [line.at for line in lines] == moments


def test_a_month_of_every_second_is_counted_and_not_walked() -> None:
    found = cron("* * * * * *", "UTC")
    assert isinstance(found.item, Entry)
    assert count(found.item, NOW, NOW + timedelta(days=30)) == 30 * 86400


def test_a_look_says_a_moment_with_the_zone_of_its_entry_too() -> None:
    look = PageTime(NOW, BERLIN)
    assert look.full(NOW) == "2026-11-15 Sun 13:30 Europe/Berlin"
    assert look.full(NOW, "America/New_York").endswith("(2026-11-15 Sun 07:30 America/New_York)")


# What is drawn


def test_a_day_is_drawn_as_the_loop_that_it_is() -> None:
    day = parse_lifecycle(DAY).lifecycle
    assert day is not None
    ring = draw(day, here="rem")
    assert [node.name for node in ring.nodes] == ["wake_add", "wake_audit", "rem", "wake_plan"]
    assert [node.name for node in ring.nodes if node.is_here] == ["rem"]
    assert [node.name for node in ring.nodes if node.is_rest] == ["rem"]
    assert len(ring.ways) == 4
    assert ring.nodes[0].hits == "0/3"


@settings(deadline=None, max_examples=scaled(400))
@given(st.integers(1, 30), st.data())
def test_any_day_can_be_drawn(size: int, data: st.DataObject) -> None:
    names = [f"s{index}" for index in range(size)]
    text = "".join(
        f"* {name}\n:PROPERTIES:\n:NEXT: {data.draw(st.sampled_from(names))}\n:END:\n"
        for name in names
    )
    day = parse_lifecycle(text).lifecycle
    assert isinstance(day, Lifecycle)
    ring = draw(day, here=data.draw(st.sampled_from([*names, "gone", None])))
    assert len({(node.x, node.y) for node in ring.nodes}) == min(size, 24)
    assert all(0 < node.x < 360 and 0 < node.y < 240 for node in ring.nodes)


def test_the_steps_of_a_run_stand_where_their_times_are() -> None:
    at = "2026-04-01T09:00:0"
    steps = gantt(
        {
            "steps": [
                {"name": "beds", "status": "done", "started": f"{at}0Z", "finished": f"{at}4Z"},
                {"name": "dry", "status": "failed", "started": f"{at}4Z", "finished": f"{at}8Z"},
                {"name": "rest", "status": "skipped", "after": "dry"},
            ],
        },
        {"dry": 7},
    )
    assert steps is not None
    assert steps.length == timedelta(seconds=8)
    assert [(each.x, each.width, each.line) for each in steps.rows] == [
        (0, 50, None),
        (50, 50, 7),
        (0, 0, None),
    ]
    assert steps.rows[1].said == "failed, 4s"


def test_steps_without_times_follow_what_they_waited_for() -> None:
    steps = gantt(
        {
            "steps": [
                {"name": "beds", "status": "done", "seconds": 1.0},
                {"name": "dry", "status": "done", "seconds": 3.0, "after": "beds"},
            ],
            "sub_workflows": [{"steps": [{"name": "look", "status": "failed", "seconds": 2}]}],
        },
        {},
    )
    assert steps is not None
    assert [(each.x, each.width) for each in steps.rows] == [(0, 25), (25, 75), (0, 50)]


@settings(max_examples=scaled(400))
@given(
    st.recursive(
        st.none() | st.integers() | st.text(),
        lambda some: (
            st.lists(some)
            | st.dictionaries(
                st.sampled_from(["steps", "sub_workflows", "name", "after", "seconds", "started"]),
                some,
            )
        ),
    )
)
def test_no_record_is_too_odd_to_be_drawn(record: object) -> None:
    steps = gantt(record, {}) if isinstance(record, dict) else None
    assert steps is None or steps.rows


@given(st.binary())
def test_no_output_of_a_program_is_obeyed(data: bytes) -> None:
    text = plain(data)
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", text)


# What pages cost


@story
async def test_a_page_holds_at_most_the_rows_it_shows(tmp_path: Path) -> None:
    many = scaled(4000)
    plan = "".join(
        f"* Entry {n} :workflow:\n:PROPERTIES:\n:SCHEDULE: {n % 60} * * * *\n:COMMAND: true\n:END:\n"
        for n in range(many)
    )
    async with opened(tmp_path, plan) as open_:
        paths = (
            "/",
            "/entries",
            "/timeline",
            "/timeline?at=2027&lanes=entry",
            "/calendar?view=week",
        )
        for path in paths:
            text = await open_.page(path)
            assert len(text) < 500_000, path
            assert len(gzip.compress(text.encode(), 5)) <= 60_000, path
        tomorrow = f"{datetime.now(UTC) + timedelta(days=1):%Y-%m-%d}"
        text = await open_.page(f"/timeline?at={tomorrow}")
        assert text.count('<div class="row" id="lane') == 61
        assert f">{many - 60} others<" in text


@story
async def test_all_of_50000_receipts_is_drawn_in_60_kilobytes_at_every_zoom(tmp_path: Path) -> None:
    plan = "".join(
        f"* Entry {n} :workflow:\n:PROPERTIES:\n:SCHEDULE: {n % 60} 7 * * *\n:COMMAND: true\n:END:\n"
        for n in range(200)
    )
    async with opened(tmp_path, plan) as open_:
        assert open_.here.front.ledger is not None
        numbers = [each.number for each in await open_.here.front.ledger.entries()]
        _lived(tmp_path / ".horae" / DATABASE, numbers, 50_000)
        pictures = [("2025-06-04", lanes) for lanes in ("entry", "agent", "slot")]
        pictures += [
            ("2025", "entry"),
            ("2025-06", "entry"),
            ("2025-W23", ""),
            ("2025-06-04T10", ""),
        ]
        for at, lanes in pictures:
            answer = await open_.client.get(f"/timeline?at={at}&lanes={lanes}")
            assert answer.status_code == 200
            assert len(gzip.compress(answer.content)) <= 60_000, (at, lanes)
        text = await open_.page("/timeline?at=2025-06-04&lanes=file")
        label = re.search(r'aria-label="plan.org: ([^"]*)"', text)
        assert label is not None
        drawn = sum(
            int(each.replace(",", "")) for each in re.findall(r"([0-9][0-9,]*) \w", label[1])
        )
        assert drawn == 49_000, "all of that day"
        year = await open_.page("/timeline?at=2025")
        assert "4 June: 40,834 done, 8,166 failed" in year
        assert "5 June: 833 done, 167 failed" in year


@story
async def test_a_busy_entry_leaves_the_others_to_scale(tmp_path: Path) -> None:
    async with opened(tmp_path) as open_:
        busy, quiet = [(await open_.here.get(f"entries/{e}"))["entry"] for e in ("mail", "digest")]
        _lived(tmp_path / ".horae" / DATABASE, [busy] * 999 + [quiet], 2000)
        text = await open_.page("/timeline?at=2025-06-04")
        lanes = text.partition('id="timeline"')[2].partition("</p>")[0].split('class="row"')
        [counted] = (each for each in lanes if f'href="/entries/{busy}"' in each)
        [scaled_] = (each for each in lanes if f'href="/entries/{quiet}"' in each)
        assert "<path" in counted
        assert "/receipts/" not in counted
        assert "<path" not in scaled_
        assert 'href="/receipts/1000999"' in scaled_


def _lived(path: Path, entries: list[int], many: int) -> None:
    """Write receipts with runs into a ledger: most on one day, the last thousand a day later."""
    base = int(datetime(2025, 6, 4, tzinfo=UTC).timestamp()) * 1_000_000
    receipts, runs = [], []
    for n in range(many):
        at = base + n * 1_700_000 + (86_400_000_000 if n >= many - 1000 else 0)
        entry, status = entries[n % len(entries)], "failed" if n % 6 == 5 else "done"
        number, over = n + 1_000_000, at + 5_000_000
        receipts.append((number, entry, f"cron:{n}", status, at, at, at, over, over))
        runs.append((number, at + 1_000_000, over, status))
    with closing(sqlite3.connect(path)) as ledger, ledger:
        ledger.executemany(
            "INSERT INTO receipt (number, entry, key, status, reason, planned_at, count, start_at,"
            " decided_at, file, line, digest, policy, work, agents, attempts, ended_at, settled_at,"
            " note) VALUES (?, ?, ?, ?, '', ?, 1, ?, ?, 'plan.org', 1, '', '{}', 'workflow',"
            " '[]', 1, ?, ?, '')",
            receipts,
        )
        ledger.executemany(
            "INSERT INTO run (receipt, attempt, started_at, ended_at, outcome)"
            " VALUES (?, 1, ?, ?, ?)",
            runs,
        )


@story
async def test_no_problems_is_not_said_beside_a_problem(tmp_path: Path) -> None:
    async with opened(tmp_path) as there:
        problem = (await there.here.get("status"))["problems"][0]
        now = await there.page("/")
        title, _, place = problem.partition(" is not armed")[0].rstrip(")").partition(" (")
        assert title in now
        assert place in now
        assert "no problems" not in now.lower()
        assert "Nothing needs attention." not in now
