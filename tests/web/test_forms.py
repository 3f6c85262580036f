"""What pages offer without a script: forms, posted to addresses of the page."""

from __future__ import annotations

import re
from html import unescape
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from core.world import story
from horae.web.api import asgi_app
from horae.web.page.routes import routes
from web.browser import CHROMIUM, DRIVER, MISSING, shoot
from web.person import complains_of, somebody, uncomplaining
from web.stage import Here, engine, logged_in

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from web.person import Person

KIND = {"Content-Type": "application/x-www-form-urlencoded"}


def pages_of(here: Here) -> None:
    """Let an engine answer with pages, too."""
    front = here.front
    here.serving.router.default = asgi_app(
        front, pages=lambda: routes(front, front.root)
    ).router.default


@story
async def test_a_form_counts_only_from_a_page_of_the_same_session(tmp_path: Path) -> None:
    async with engine(tmp_path) as here:
        pages_of(here)
        async with here.on_port() as near:
            url = f"{here.keys.page}"
            mine, others = await logged_in(here.keys), await logged_in(here.keys)
            page = await near.get(f"{url}/entries/digest-1", headers=mine)
            [token] = re.findall(r'name="token" value="([^"]+)"', page.text)
            [run] = [unescape(each) for each in re.findall(r'formaction="([^"]+/run)"', page.text)]
            good = {**mine, **KIND, "Origin": url, "Referer": f"{url}/entries/digest-1?cursor=9"}

            async def post(sent: dict[str, str], **fields: str) -> httpx.Response:
                return await near.post(f"{url}{run}", headers=sent, data={"token": token, **fields})

            for sent, status in (
                ({**good, **others}, 403),  # the token of another session
                ({**good, "Origin": "http://evil.example"}, 403),
                ({name: each for name, each in good.items() if name != "Origin"}, 403),
                ({**good, "Content-Type": "application/json"}, 415),
                ({**KIND, "Origin": url}, 401),
            ):
                assert (await post(sent)).status_code == status
            assert (await post(good, token="")).status_code == 403
            assert (await here.get("receipts"))["receipts"] == []
            done = await post(good)
            assert (done.status_code, done.headers["location"]) == (
                303,
                "/entries/digest-1?cursor=9",
            )
            assert len((await here.get("receipts"))["receipts"]) == 1
            away = await post({**good, "Referer": f"{url}//evil.example/x"})
            assert away.headers["location"] == "/evil.example/x", "it stays with us"


@story
async def test_a_form_may_do_no_more_than_the_scopes_of_its_session(tmp_path: Path) -> None:
    async with engine(tmp_path) as here:
        pages_of(here)
        await here.post("tokens", {"name": "looker", "scopes": "read"})
        async with here.on_port() as near:
            url, cookie = here.keys.page, await logged_in(here.keys, "looker")
            page = await near.get(f"{url}/", headers=cookie)
            [token] = re.findall(r'name="token" value="([^"]+)"', page.text)
            sent = {**cookie, **KIND, "Origin": url}
            for path in ("entries/digest-1/run", "entries/-/pause", "stop", "nothing"):
                answer = await near.post(
                    f"{url}/do/api/v1/{path}", headers=sent, data={"token": token, "of": "1"}
                )
                assert answer.status_code == 403, path


@pytest.fixture(scope="module")
def person(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Person]:
    with somebody(tmp_path_factory) as made:
        yield made


@pytest.fixture
def scriptless(person: Person, request: pytest.FixtureRequest) -> Iterator[Person]:
    """Give somebody whose browser runs no scripts of pages."""
    disable = "Emulation.setScriptExecutionDisabled"
    with uncomplaining(person, request):
        person.driver.execute_cdp_cmd(disable, {"value": True})
        yield person
        person.driver.execute_cdp_cmd(disable, {"value": False})


needs_browser = pytest.mark.skipif(CHROMIUM is None or DRIVER is None, reason=MISSING)


def api(person: Person, path: str) -> Any:
    """Return what the API says."""
    token = (person.app.root / ".horae" / "token").read_text().strip()
    headers = {"Authorization": f"Bearer {token}"}
    return httpx.get(f"{person.app.near}/api/v1/{path}", headers=headers).json()


@needs_browser
def test_without_scripts_an_entry_is_paused_with_a_note_resumed_and_run(scriptless: Person) -> None:
    person = scriptless
    person.go("/entries/mail")
    person.press("Pause…")
    person.says("Pause", "h1")
    person.type("until", "2h")
    person.type("note", "the server moves")
    shoot(person.driver, "form")
    person.press("Pause")
    person.says("Poll the mail", "h1")
    person.says("the server moves", "#resting")
    assert api(person, "entries/mail")["pause"]["until"] is not None
    person.press("Resume")
    person.until(lambda: person.one("#resting") is None or None)
    person.press("Run now")
    person.until(
        lambda: (
            api(person, "receipts?entry=mail&limit=1")["receipts"][0]["key"][:6] == "manual" or None
        )
    )
    assert person.driver.current_url.endswith("/entries/mail")


@needs_browser
def test_without_scripts_a_run_is_cancelled_after_a_question(scriptless: Person) -> None:
    person = scriptless
    person.go("/entries/ever")
    person.press("Run now")
    [receipt] = api(person, "receipts?entry=ever&limit=1")["receipts"]
    path = f"receipts/{receipt['receipt']}"
    person.until(lambda: api(person, path)["status"] == "running" or None)
    person.go(f"/{path}")
    person.press("Cancel run")
    person.says("Cancel run?", "h1")
    assert api(person, path)["status"] == "running", "it was only asked"
    person.press("Cancel run")
    person.until(lambda: api(person, path)["status"] == "killed" or None)


@needs_browser
def test_without_scripts_selected_entries_are_paused_together(scriptless: Person) -> None:
    person = scriptless
    person.go("/entries?q=Speak+s")
    for box in person.all("tbody input[type=checkbox]"):
        box.click()
    person.press("Pause…", inside="#bulk")
    person.type("note", "all of them")
    person.press("Pause")
    person.says("Speak slowly", "table")
    assert "q=Speak" in person.driver.current_url
    paused = api(person, "entry-list?search=Speak+s")["entries"]
    assert [each["pause"]["note"] for each in paused] == ["all of them"] * len(paused)
    for box in person.all("tbody input[type=checkbox]"):
        box.click()
    person.press("Resume", inside="#bulk")
    person.until(lambda: not person.all("tr .status.paused") or None)


@needs_browser
def test_without_scripts_a_task_is_added_moved_and_given_a_schedule(scriptless: Person) -> None:
    person = scriptless
    person.go("/board")
    person.press("Add task…")
    person.type("title", "Oil the hinges")
    person.press("Add task")
    person.says("Oil the hinges")
    [task] = [each for each in api(person, "board")["tasks"] if each["title"] == "Oil the hinges"]
    person.press("Move…", inside=f"#task{task['id']}")
    person.says(f"Move: #{task['id']}", "h1")
    person.press("Move")
    person.until(lambda: api(person, f"board/tasks/{task['id']}")["status"] == "todo" or None)
    person.press("Schedule…", inside=f"#task{task['id']}")
    person.type("cron", "0 7 * * MON")
    person.press("Preview")
    person.says("at 07:00 on Mondays")
    assert len(person.all("ol li")) == 10
    assert api(person, f"board/tasks/{task['id']}")["cron_schedule"] is None, "it was only shown"
    person.press("Schedule")
    person.says("at 07:00 on Mondays", f"#task{task['id']}")
    assert api(person, f"board/tasks/{task['id']}")["cron_schedule"] == "0 7 * * MON"
    person.press("Schedule…", inside=f"#task{task['id']}")
    person.press("Clear schedule")
    person.says("Board", "h1")
    assert api(person, f"board/tasks/{task['id']}")["cron_schedule"] is None


@needs_browser
@complains_of("400")
def test_without_scripts_a_schedule_is_changed_and_a_bad_one_is_refused(scriptless: Person) -> None:
    person = scriptless
    person.go("/entries/digest")
    person.press("Change schedule…")
    person.type("schedule", "at the end of time")
    person.press("Change schedule")
    person.says("Bad Request", "h1")
    person.go("/entries/digest")
    person.press("Change schedule…")
    person.type("schedule", "weekdays at 4:15")
    person.press("Preview")
    person.says("04:15", "section:last-of-type")
    assert [len(each.find_elements("tag name", "li")) for each in person.all("section")] == [10, 10]
    shoot(person.driver, "form-preview")
    person.press("Change schedule")
    person.says("04:15", ".lead")
    assert "weekdays at 4:15" in (person.app.root / "plan.org").read_text()


@needs_browser
def test_without_scripts_a_backfill_shows_its_times_before_it_is_made(scriptless: Person) -> None:
    person = scriptless
    person.go("/entries?q=Nightly")
    before = len(api(person, "receipts?entry=digest")["receipts"])
    for box in person.all("tbody input[type=checkbox]"):
        box.click()
    person.press("Backfill…", inside="#bulk")
    person.type("from", "2026-02-02T00:00:00Z")
    person.type("to", "2026-02-05T00:00:00Z")
    person.press("Preview")
    person.says("runs: 3", "section")
    days = [each.text for each in person.all("main ol li")]
    assert [each[:14] for each in days] == ["Mon 2026-02-02", "Tue 2026-02-03", "Wed 2026-02-04"]
    assert {each[-6:] for each in days} == {"+01:00"}
    assert len(api(person, "receipts?entry=digest")["receipts"]) == before
    person.press("Backfill")
    person.says("Entries", "h1")
    person.until(
        lambda: len(api(person, "receipts?entry=digest")["receipts"]) == before + 3 or None
    )


@needs_browser
def test_without_scripts_the_search_has_a_page_and_the_zone_is_a_link(scriptless: Person) -> None:
    person = scriptless
    person.go("/")
    person.press("Search", inside=".top")
    person.type("q", "nightly")
    person.press("Search")
    person.says("Nightly digest", "ul.rows")
    person.press("UTC", inside="#zones")
    person.says("All times are in UTC (the plan: Europe/Berlin)", "#foot")
    assert person.driver.current_url.endswith("/search?q=nightly"), "the same page"
    person.press("plan zone", inside="#zones")
    person.says("All times are in Europe/Berlin,", "#foot")


@needs_browser
@complains_of("401")
def test_without_scripts_one_logs_out(scriptless: Person) -> None:
    person = scriptless
    person.go("/")
    person.press("Log out", inside=".top")
    person.says("Not logged in", "h1")
    assert person.driver.get_cookies() == []
