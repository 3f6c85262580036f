"""The pages in a real browser: what a person sees and does there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from datetime import timedelta
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from web.browser import (
    CHROMIUM,
    DRIVER,
    EVIL,
    MEBIBYTES,
    MISSING,
    SPOKEN,
    ZONE,
    moment,
    paint,
    resize,
    shoot,
    stranger,
)
from web.person import PAGES, complains_of, press_keys, somebody, uncomplaining

if TYPE_CHECKING:
    from collections.abc import Iterator

    from web.person import Person

pytestmark = pytest.mark.skipif(CHROMIUM is None or DRIVER is None, reason=MISSING)


@pytest.fixture(scope="module")
def person(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Person]:
    with somebody(tmp_path_factory) as made:
        yield made


@pytest.fixture(autouse=True)
def nothing_to_complain_of(person: Person, request: pytest.FixtureRequest) -> Iterator[None]:
    with uncomplaining(person, request):
        yield


def test_a_login_link_is_good_once_and_leaves_a_cookie_that_no_script_sees(person: Person) -> None:
    [cookie] = person.driver.get_cookies()
    assert cookie["httpOnly"]
    assert cookie["sameSite"] == "Strict"
    person.go("/")
    assert person.driver.execute_script("return document.cookie") == ""
    assert person.driver.title.endswith("Now · Horae")


@complains_of("401")
def test_no_page_is_for_whoever_is_not_logged_in(person: Person) -> None:
    person.go("/")
    style = person.one("link[rel=stylesheet]")
    assert style is not None
    for path in (*PAGES.values(), str(style.get_dom_attribute("href")), "/favicon.ico"):
        assert httpx.get(person.app.near + path).status_code == 401, path
    [cookie] = person.driver.get_cookies()
    refresh = "import(arguments[0]).then((live) => live.refresh()).then(arguments[1])"
    live = str(style.get_dom_attribute("href")).replace("tokens.css", "live.js")
    person.driver.delete_all_cookies()
    person.driver.execute_async_script(refresh, live)
    person.says("You are no longer logged in", "#gone")
    del cookie["domain"]  # with one it would be a cookie for other hosts, too
    person.driver.add_cookie(cookie)
    person.until(lambda: ((gone := person.one("#gone")) and not gone.is_displayed()) or None)


# What the page of a stranger tries with an address of ours; it answers with all that it could read.
ATTACK = """
const [targets, done] = arguments;
const read = [];
const attempt = async (url, init) => {
  try {
    const answer = await fetch(url, {credentials: "include", ...init});
    read.push(await answer.text());
  } catch {}
};
const embed = (name, url) => new Promise((over) => {
  const made = document.createElement(name);
  made.onload = made.onerror = () => {
    try { if (made.contentDocument?.body) read.push(made.contentDocument.body.textContent); } catch {}
    over();
  };
  made.src = url;
  document.body.append(made);
});
const post = (url) => {
  const form = document.createElement("form");
  Object.assign(form, {action: url, method: "post", enctype: "text/plain", target: "sink"});
  document.body.append(form);
  return new Promise((over) => {
    document.querySelector("[name=sink]").onload = over;
    form.submit();
  });
};
(async () => {
  const sink = document.createElement("iframe");
  sink.name = "sink";
  document.body.append(sink);
  for (const target of targets) {
    await attempt(`${target}/api/v1/status`);
    await attempt(`${target}/api/v1/status`, {mode: "no-cors"});
    await attempt(`${target}/api/v1/entries/mail/pause`, {method: "POST", mode: "no-cors", body: "{}"});
    for (const name of ["img", "script", "iframe"]) await embed(name, `${target}/`);
    await post(`${target}/api/v1/entries/mail/pause`);
  }
  done(read.filter((text) => text !== ""));
})();
"""


@complains_of("401", "403", "CORS", "frame", "Cross-Origin-Opener-Policy", "MIME", "ERR_")
def test_a_server_on_another_port_gets_nothing_that_it_can_replay(person: Person) -> None:
    driver, app = person.driver, person.app
    person.go("/")
    [cookie] = driver.get_cookies()
    before = person.ask("events", "GET")["after"]
    near = [app.near, app.near.replace("127.0.0.1", "localhost")]
    with stranger() as other:
        for host in ("127.0.0.1", "localhost", "other.localhost"):
            driver.get(f"http://{host}:{other.port}/")
            person.until(lambda: person.one("body"))
            assert driver.execute_async_script(ATTACK, near) == [], "it reads nothing"
        # A person follows a link from our page to there.
        person.go("/")
        driver.execute_script(
            """const link = document.createElement("a");
            link.href = arguments[0];
            document.body.append(link);
            link.click();""",
            f"http://127.0.0.1:{other.port}/followed",
        )
        person.until(lambda: driver.title == "A stranger" or None)
        assert driver.execute_script("return [document.referrer, window.opener]") == ["", None]
        heard = "".join(other.heard)
        assert "/followed" in heard
        assert cookie["value"] not in heard, "no cookie of ours was sent to it"
        assert app.url.partition("//")[2].partition(":")[0] not in heard, "nor told our name"
        # Even one that knows the name can only ask, and is not who is logged in there.
        for host in ("127.0.0.1", "localhost", "other.localhost"):
            driver.get(f"http://{host}:{other.port}/")
            person.until(lambda: person.one("body"))
            assert driver.execute_async_script(ATTACK, [app.url]) == []
        driver.execute_script("location = arguments[0]", app.url)
        person.says("Not logged in", "body")
        heard = "".join(other.heard)
        assert cookie["value"] not in heard
        # Whatever was sent to it opens nothing.
        sent = {line[8:] for line in heard.splitlines() if line.startswith("Cookie: ")}
        for each in sent:
            for url in (app.near, app.url):
                headers = {"Cookie": each, "Host": url.partition("//")[2]}
                answer = httpx.get(f"{app.near}/api/v1/status", headers=headers)
                assert answer.status_code == 401, each
    person.go("/")
    assert driver.title.endswith("Now · Horae"), "nor is anybody logged out by it"
    assert person.ask("events", "GET")["after"] == before, "and nothing happened"


def test_a_run_is_seen_to_start_to_speak_and_to_end_without_a_reload(person: Person) -> None:
    person.go("/")
    person.mark()
    receipt = person.ask("entries/slow/run")["receipt"]
    person.until(lambda: person.one(f"#going{receipt}"))
    person.says("line 3", f"#going{receipt}")
    person.until(lambda: person.one(f"#going{receipt}") is None or None)
    assert moment(
        person.driver.execute_script("return document.querySelector('[data-asof]').dateTime")
    )
    assert "as of 20" in person.text("#foot"), "what is sent of a page says as of when"
    assert person.is_marked


def test_the_log_of_a_run_is_followed_and_can_be_searched(person: Person) -> None:
    receipt = person.ask("entries/slow/run")["receipt"]
    person.go(f"/receipts/{receipt}")
    person.mark()
    person.says("line 1", "#log")
    person.until(lambda: "running" in person.text("h1") or None)
    person.until(lambda: person.lines() == [f"line {n}" for n in range(1, 7)] or None)
    person.says("done", "h1")
    field = person.one("#log-find")
    assert field is not None
    field.send_keys("LINE 4")
    person.says("1 line", "#log-hits")
    assert person.lines(".hit") == ["line 4"]
    assert person.is_marked


def test_a_log_of_gibibytes_keeps_flowing_until_one_scrolls_up(person: Person) -> None:
    seen = person.app.root / "seen"
    os.mkfifo(seen)
    receipt = person.ask("entries/much/run")["receipt"]
    person.go(f"/receipts/{receipt}")
    person.mark()

    def is_followed() -> bool:
        return bool(
            person.driver.execute_script("return document.getElementById('log-follow').checked")
        )

    def shows(line: str) -> bool | None:
        return line in person.lines() or None

    def scroll(to: str) -> None:
        person.driver.execute_script(
            f"const log = document.getElementById('log'); log.scrollTop = {to}"
        )

    for part in range(SPOKEN, MEBIBYTES + 1, SPOKEN):
        person.until(partial(shows, f"part {part}"), 600)
        seen.write_text("")
    person.until(partial(shows, "the very last"))
    person.says("running", "h1")  # the status of the run and its log arrive separately
    person.says("Beginning and end of the raw log", "#log-part .note")
    assert "Complete raw log" not in person.text("#log-part")
    assert len(person.lines()) < 100
    assert is_followed()
    scroll("log.scrollHeight / 2")
    person.until(lambda: not is_followed() or None)
    scroll("log.scrollHeight")
    person.until(lambda: is_followed() or None)
    [run] = person.ask(f"receipts/{receipt}", "GET")["runs"]
    person.ask(f"runs/{run['run']}/cancel")
    person.says("killed", "h1")
    person.says("in between are left out", "#log-part .note")
    assert person.is_marked


# Shows a line, and tells how often the log was asked for, and how many bytes were loaded.
_SHOWN = """
const [line, done] = arguments;
if (line !== null) {
  performance.clearResourceTimings();
  location.hash = `#L${line}`;
}
const wanted = location.hash.slice(2);
(function look() {
  const found = document.querySelector("#log li.at");
  if (found?.textContent !== wanted) return requestAnimationFrame(look);
  const asked = performance.getEntriesByType("resource").filter((each) => each.name.includes("/log?"));
  done([asked.length, asked.reduce((sum, each) => sum + each.decodedBodySize, 0)]);
})();
"""


def test_every_line_of_a_log_of_millions_is_found_at_once(person: Person) -> None:
    receipt = person.ask("entries/count/run")["receipt"]
    person.until(lambda: person.ask(f"receipts/{receipt}", "GET")["ended_at"], 60)
    person.go(f"/receipts/{receipt}#L11990000")
    asked, loaded = person.driver.execute_async_script(_SHOWN, None)
    assert (asked <= 4, loaded < 500_000) == (True, True), (asked, loaded)
    for line in (1, 77, 4_000_000, 9_000_123, 11_999_999):
        asked, loaded = person.driver.execute_async_script(_SHOWN, line)
        assert (asked <= 3, loaded < 500_000) == (True, True), (line, asked, loaded)
    for part in range(100):
        script = "const log = document.getElementById('log'); log.scrollTop = log.scrollHeight * arguments[0] / 100"
        person.driver.execute_script(script, part)
    person.driver.execute_script("document.getElementById('log').scrollTop = 1e9")
    person.until(lambda: person.lines()[-1:] == ["done"] or None)
    assert person.lines("li span.bold.fg1") == ["done"]
    assert len(person.lines()) < 100


def test_a_wheel_and_keys_move_a_log_of_millions_by_lines(person: Person) -> None:
    from selenium.webdriver import ActionChains, Keys
    from selenium.webdriver.common.actions.wheel_input import ScrollOrigin

    [receipt] = person.ask("receipts?entry=count&limit=1", "GET")["receipts"]
    person.go(f"/receipts/{receipt['receipt']}#L4000000")
    person.until(lambda: "4000000" in person.lines() or None)
    first = int(person.lines()[0])
    log = person.one("#log")
    assert log is not None
    ActionChains(person.driver).scroll_from_origin(ScrollOrigin.from_element(log), 0, 200).perform()
    person.until(lambda: first < int(person.lines()[0]) <= first + 20 or None)
    log.send_keys(Keys.HOME)
    person.until(lambda: person.lines()[:2] == ["1", "2"] or None)
    log.send_keys(Keys.ARROW_DOWN)
    person.until(lambda: person.lines()[:2] == ["2", "3"] or None)
    field = person.one("#log-find")
    assert field is not None
    field.send_keys("11999")
    person.until(lambda: person.text("#log-hits").endswith(" lines") or None, 30)
    field.send_keys(Keys.ENTER)
    person.until(lambda: person.lines("li.at") == ["11999"] or None)
    person.driver.execute_script("document.getElementById('log-times').click()")
    person.until(lambda: person.all("#log time[data-time]"))
    shoot(person.driver, "log")


def test_the_output_of_a_step_is_folded_and_unfolded(person: Person) -> None:
    receipt = person.ask("entries/steps/run")["receipt"]
    person.until(lambda: person.ask(f"receipts/{receipt}", "GET")["ended_at"])
    person.go(f"/receipts/{receipt}")
    person.until(lambda: len(person.lines()) == 10 or None)
    person.click("#log .fold")
    person.until(lambda: person.lines()[1:] == [*person.lines()[1:2], "1", "2", "3"] or None)
    person.click("#log-fold")
    person.until(
        lambda: [each.split(" (")[0] for each in person.lines()] == ["Fetch", "Sum up"] or None
    )
    person.go(f"/receipts/{receipt}#L3")
    person.until(lambda: person.lines("li.at") == ["2"] or None)


def test_run_now_asks_for_a_run_and_shows_how_it_ends(person: Person) -> None:
    person.go("/entries/digest")
    person.mark()
    before = len(person.all(".receipts li"))
    person.press("Run now")
    person.says("Run requested", "#said")
    person.until(lambda: len(person.all(".receipts li")) > before or None)
    person.says("done", ".receipts li:first-child .status")
    assert person.is_marked


def test_pause_lets_an_entry_rest_and_resume_lets_it_go_on(person: Person) -> None:
    person.go("/entries/mail")
    person.press("Pause…")
    until = person.until(lambda: person.one("#ask[open] [name=until]"))
    until.send_keys("2h")
    note = person.one("#ask [name=note]")
    assert note is not None
    note.send_keys("quiet, please")
    person.press("Pause", inside="#ask")
    person.says("quiet, please", "#resting")
    person.says("Paused by token operator, from the page, since", "#resting")
    person.press("Resume")
    person.until(lambda: person.one("#resting") is None or None)
    assert person.ask("entries/mail", "GET")["pause"] is None


def test_a_run_is_ended_only_after_a_second_word(person: Person) -> None:
    receipt = person.ask("entries/ever/run")["receipt"]
    person.go(f"/receipts/{receipt}")
    person.says("begun", "#log")
    person.press("Cancel run")
    assert person.ask(f"receipts/{receipt}", "GET")["ended_at"] is None
    person.press("Cancel run?")
    person.until(lambda: person.ask(f"receipts/{receipt}", "GET")["ended_at"])
    person.says("cancelled by token operator, from the page")


def test_the_why_panel_says_why_and_gives_the_page_back(person: Person) -> None:
    person.go("/entries/mail")
    person.click("a.why")
    person.until(lambda: person.driver.execute_script("return panel.open") or None)
    person.says("scheduled in", "#panel")
    shoot(person.driver, "panel")
    from selenium.webdriver import Keys

    person.driver.switch_to.active_element.send_keys(Keys.ESCAPE)
    person.until(lambda: not person.driver.execute_script("return panel.open") or None)
    assert person.driver.current_url.endswith("/entries/mail")


def test_an_agent_is_told_to_tick_and_its_day_goes_on(person: Person) -> None:
    person.go("/crew")
    [wren] = [each for each in person.all("article.agent") if "wren" in each.text]
    selector = f"#{wren.get_attribute('id')}"
    before = person.text(f"{selector} .here")
    person.press("Tick now", inside=selector)
    person.until(lambda: person.text(f"{selector} .here") != before or None)
    assert person.all(f"{selector} .strip li")


def test_an_agent_has_its_definition_its_claims_and_what_it_said(person: Person) -> None:
    person.go("/entries/wren")
    person.says("Agent: wren", "#agent")
    person.says("#5 Write it all down", "#agent")
    person.says("* The writer :agent:", "#definition")
    assert "Last transcript" in person.text("#agent")


def test_a_step_opens_its_output_by_keys(person: Person) -> None:
    from selenium.webdriver import Keys

    receipt = person.ask("entries/steps/run")["receipt"]
    person.until(lambda: person.ask(f"receipts/{receipt}", "GET")["ended_at"])
    person.go(f"/receipts/{receipt}")
    person.until(lambda: len(person.all(".gantt > li")) == 2 or None)
    press_keys(person, "j", "j", Keys.ENTER)
    person.until(lambda: person.lines("li.at") or None)
    person.says("Sum up", "#log li.at")


def test_the_calendar_says_what_the_agenda_says(person: Person) -> None:
    answer = subprocess.run(
        [sys.executable, "-m", "horae.cli.main", "agenda", "plan.org", "--days", "9", "--json"],
        cwd=person.app.root,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=True,
    )
    by_day: dict[str, list[tuple[Any, ...]]] = {}
    for line in json.loads(answer.stdout):
        if line["what"] == "fires":
            told = (line["at"], line["through"], line["count"], line["title"])
            by_day.setdefault(line["at"][:10], []).append(told)
    days = sorted(by_day)[1:8]  # whole days
    assert len(days) == 7
    for day in days:
        person.go(f"/calendar?day={day}")
        assert _rows(person, f'[data-day="{day}"]') == by_day[day]


def _rows(person: Person, inside: str) -> list[tuple[Any, ...]]:
    """Return what the plan has to come, as a part of a page shows it."""
    found = person.driver.execute_script(
        """return [...document.querySelectorAll(`${arguments[0]} .agenda:not(.past) li`)]
        .filter((each) => each.dataset.file === "plan.org")
        .map((each) => [each.dataset.at, each.dataset.through || null,
          Number(each.dataset.count), each.querySelector(".title").textContent])""",
        inside,
    )
    return [tuple(each) for each in found]


@complains_of("/api/v1/preview")
def test_a_task_gets_a_schedule_after_its_next_five_fires_were_seen(person: Person) -> None:
    person.go("/board")
    person.click("#task1 [data-schedule] button")
    save = person.one("#sched-save")
    assert save is not None
    assert not save.is_enabled()
    cron = person.one("#sched-form [name=cron]")
    assert cron is not None
    cron.send_keys("0 25 * * *")
    person.says("hour 25 is outside 0-23", "#sched-preview")
    assert not save.is_enabled()
    for words, answer in (
        ("every day at 5", "5:00 in the morning or 17:00?"),
        ("weekdays at 9", "saved as 0 9 * * MON-FRI"),
    ):
        cron.clear()
        cron.send_keys(words)
        person.says(answer, "#sched-preview")
    cron.clear()
    cron.send_keys("Mondays at 9")
    place = person.one("#sched-form [name=timezone]")
    assert place is not None
    place.send_keys(ZONE)
    person.says("at 09:00 on Mondays (Europe/Berlin)", "#sched-preview")
    lines = [each.text.partition(" ") for each in person.all("#sched-preview li")]
    shown = [moment(time) for _, _, time in lines]
    assert len(shown) == 5
    assert {day for day, _, _ in lines} == {"Mon"}
    assert {each.isoweekday() for each in shown} == {1}
    assert {b - a for a, b in pairwise(shown)} == {timedelta(days=7)}
    person.until(lambda: save.is_enabled() or None)
    shoot(person.driver, "schedule")
    save.click()
    person.says("at 09:00 on Mondays", "#task1")
    text = (person.app.root / "board" / "tasks" / "1-sow.md").read_text()
    assert "cron_schedule: " in text
    assert "0 9 * * MON" in text


@complains_of("412")
def test_two_who_schedule_one_task_see_both_versions_and_lose_neither(person: Person) -> None:
    file = person.app.root / "board" / "tasks" / "1-sow.md"
    person.go("/board")
    person.click("#task1 [data-schedule] button")
    person.until(lambda: person.one("#scheduling[open]"))
    person.ask("board/tasks/1/schedule", "PUT", {"cron": "0 7 * * TUE"})
    cron = person.one("#sched-form [name=cron]")
    save = person.one("#sched-save")
    assert cron is not None
    assert save is not None
    cron.clear()
    cron.send_keys("0 8 * * SUN")
    person.says("at 08:00 on Sundays", "#sched-preview")
    person.until(lambda: save.is_enabled() or None)
    save.click()
    person.says("This task has changed since you opened it", "#sched-conflict")
    person.says("0 8 * * SUN", "#sched-conflict tbody tr:first-child td:nth-child(2)")
    person.says("0 7 * * TUE", "#sched-conflict tbody tr:first-child td:nth-child(3)")
    shoot(person.driver, "conflict")
    assert "0 7 * * TUE" in file.read_text()
    person.click("#sched-theirs")
    person.says("at 07:00 on Tuesdays", "#sched-preview")
    cron.clear()
    cron.send_keys("0 8 * * SUN")
    person.says("at 08:00 on Sundays", "#sched-preview")
    person.ask("board/tasks/1/schedule", "PUT", {"cron": "0 6 * * WED"})
    person.until(lambda: save.is_enabled() or None)
    save.click()
    person.says("0 6 * * WED", "#sched-conflict tbody tr:first-child td:nth-child(3)")
    person.click("#sched-mine")
    person.says("at 08:00 on Sundays", "#task1")
    assert "0 8 * * SUN" in file.read_text()


@complains_of("412")
def test_a_change_elsewhere_in_a_task_is_no_conflict(person: Person) -> None:
    file = person.app.root / "board" / "tasks" / "1-sow.md"
    person.go("/board")
    person.click("#task1 [data-schedule] button")
    person.until(lambda: person.one("#scheduling[open]"))
    file.write_text(f"{file.read_text()}\nA line that somebody added.\n")
    cron = person.one("#sched-form [name=cron]")
    save = person.one("#sched-save")
    assert cron is not None
    assert save is not None
    cron.clear()
    cron.send_keys("0 5 * * FRI")
    person.says("at 05:00 on Fridays", "#sched-preview")
    person.until(lambda: save.is_enabled() or None)
    save.click()
    person.says("at 05:00 on Fridays", "#task1")
    assert "A line that somebody added." in file.read_text()


def test_a_schedule_is_changed_in_place_by_keys_and_undone(person: Person) -> None:
    from selenium.webdriver import Keys

    plan = person.app.root / "plan.org"
    before = plan.read_bytes()
    person.go("/entries/digest")
    person.mark()
    person.until(lambda: person.one("[data-rule]"))
    press_keys(person, "s")
    person.until(lambda: person.one("#rule[open]"))
    person.until(lambda: len(person.all("#rule-preview li")) == 10 or None)
    press_keys(person, "weekdays at 10")
    person.until(lambda: len(person.all("#rule-preview li")) == 20 or None)
    person.says("at 10:00 on Monday to Friday", "#rule-preview")
    person.says("'Nightly' does not match the schedule", "#rule-preview .finding")
    shoot(person.driver, "rule")
    person.until(lambda: person.one("#rule-save:not([disabled])"))
    press_keys(person, Keys.ENTER)
    person.says("Schedule saved: plan.org", "#said")
    person.says("at 10:00 on Monday to Friday", ".lead")
    assert plan.read_bytes() == before.replace(b"0 2 * * *", b"weekdays at 10")
    press_keys(person, "z")
    person.says("Undone", "#said")
    person.says("at 02:00 every day", ".lead")
    assert plan.read_bytes() == before
    assert person.is_marked


@complains_of("412")
def test_a_plan_that_was_edited_meanwhile_is_shown_before_it_is_changed(person: Person) -> None:
    plan = person.app.root / "plan.org"
    before = plan.read_bytes()
    person.go("/entries/mail")
    person.click("[data-rule] button")
    field = person.until(lambda: person.one("#rule[open] [name=to]"))
    field.clear()
    field.send_keys("*/30 * * * *")
    person.until(lambda: person.one("#rule-save:not([disabled])"))
    other = before.replace(b"Every night at two.", b"Every night, at two.")
    plan.write_bytes(other)
    person.click("#rule-save")
    person.says("The plan has changed since you opened it", "#rule-error")
    assert plan.read_bytes() == other
    person.until(lambda: person.one("#rule-save:not([disabled])"))
    person.click("#rule-save")
    person.says("Schedule saved", "#said")
    assert plan.read_bytes() == other.replace(b"*/20 * * * *", b"*/30 * * * *")
    person.press("Undo", inside="#said")
    person.says("Undone", "#said")
    assert plan.read_bytes() == other
    plan.write_bytes(before)


def test_a_card_is_added_opened_moved_and_assigned_by_keys_and_by_the_mouse(
    person: Person,
) -> None:
    from selenium.webdriver import ActionChains, Keys

    person.go("/board")
    person.mark()
    press_keys(person, "n")
    person.until(lambda: person.one("#ask[open]"))
    press_keys(person, "Mend the fence", Keys.ENTER)
    person.says("Added", "#said")
    script = """return [...document.querySelectorAll(".card")]
        .find((each) => each.textContent.includes("Mend the fence"))?.dataset.task"""
    number = str(person.until(lambda: person.driver.execute_script(script)))

    def task() -> Any:
        return person.ask(f"board/tasks/{number}", "GET")

    person.driver.execute_script("document.querySelector(arguments[0]).focus()", f"#task{number} a")
    press_keys(person, "a")
    person.until(lambda: person.one("#ask[open]"))
    press_keys(person, "wren", Keys.ENTER)
    person.says("assigned to wren", f"#task{number}")
    press_keys(person, "m")
    person.until(lambda: person.one("#ask[open] select"))
    press_keys(person, "t", Keys.ENTER)
    person.until(lambda: task()["status"] == "todo" or None)
    person.press("Undo", inside="#said")
    person.until(lambda: task()["status"] == "backlog" or None)

    def dragged() -> bool:
        """Drag the card; the page may just be written anew, and then it is tried again."""
        card = person.one(f"[data-status=backlog] #task{number} h3 .num")
        column = person.one("[data-status=todo]")
        if card is not None and column is not None:
            ActionChains(person.driver).drag_and_drop(card, column).perform()
        return person.one(f"[data-status=todo] #task{number}") is not None

    person.until(lambda: dragged() or None)
    assert task()["status"] == "todo"
    person.click(f"#task{number} .title")
    person.until(lambda: person.driver.execute_script("return panel.open") or None)
    person.says("title: Mend the fence", "#panel")
    shoot(person.driver, "task")
    press_keys(person, Keys.ESCAPE)
    assert person.is_marked


@complains_of("412")
def test_what_somebody_else_paused_meanwhile_is_not_paused_again(person: Person) -> None:
    person.go("/entries/mail")
    person.until(lambda: person.one("button[formaction*='/pause']"))
    person.driver.execute_async_script(
        """const done = arguments[0];
        const button = document.querySelector("button[formaction*='/pause']");
        const headers = {"Content-Type": "application/json"};
        const body = JSON.stringify({note: "theirs"});
        fetch(new URL(button.formAction).pathname.slice(3), {method: "POST", headers, body}).then(() => {
          button.click();
          done();
        });"""
    )
    person.press("Pause", inside="#ask")
    person.says(
        "Nothing was done: the entry has changed since the page was loaded. You saw: ", "#said"
    )
    person.says("not paused. Now: ", "#said")
    person.says(", paused since ", "#said")
    assert person.ask("entries/mail", "GET")["pause"]["note"] == "theirs"
    person.press("Resume")
    person.until(lambda: person.one("#resting") is None or None)


def test_a_button_that_changes_as_it_is_clicked_does_nothing(person: Person) -> None:
    person.go("/entries/mail")
    person.until(lambda: person.one("button[formaction*='/pause']"))
    person.driver.execute_script(
        """const button = document.querySelector("button[formaction*='/pause']");
        new MutationObserver((_, seeing) => {
          if (!button.formAction.includes("/resume")) return;
          seeing.disconnect();
          button.click();
        }).observe(button, {attributes: true});"""
    )
    person.ask("entries/mail/pause", body={"note": "theirs"})
    person.says("The button changed while you clicked it; nothing was done.", "#said")
    assert person.ask("entries/mail", "GET")["pause"]["note"] == "theirs"
    person.press("Resume")
    person.until(lambda: person.one("#resting") is None or None)


def shown_time(person: Person) -> str:
    """Return which part of time the timeline shows."""
    script = "return document.querySelector('.filters [name=at]')?.value ?? ''"
    return str(person.driver.execute_script(script))


def test_the_timeline_is_zoomed_and_moved_by_keys_and_keeps_the_focus(person: Person) -> None:
    from selenium.webdriver import Keys

    def press(key: str) -> str:
        before = shown_time(person)
        press_keys(person, key)
        return person.until(
            lambda: now if (now := shown_time(person)) not in {"", before} else None
        )

    person.go("/timeline?lanes=file")
    person.mark()
    day = shown_time(person)
    assert press("+").startswith(f"{day}T"), "the hour of now"
    assert len(press("+")) == len("2026-11-19T14:20")
    press("-")
    assert press("-") == day
    assert "-W" in press("3")
    assert press("2") == day[:7]
    assert press("1") == day[:4]
    assert press(Keys.ARROW_LEFT) == str(int(day[:4]) - 1)
    assert press("0") == day[:4]
    person.click(".ticks a:nth-of-type(3)")
    person.until(lambda: shown_time(person) == f"{day[:4]}-03" or None)
    assert "lanes=file" in person.driver.current_url
    press("0")
    press_keys(person, "j")
    focused = "return document.activeElement.textContent"
    lane = person.driver.execute_script(focused)
    assert lane.endswith((".org", ".md"))
    assert press(Keys.ARROW_RIGHT) > day[:7]
    assert person.driver.execute_script(focused) == lane
    person.driver.back()
    person.until(lambda: shown_time(person) == day[:7] or None)
    press_keys(person, "?")
    person.until(lambda: person.one("#keys[open]"))
    known = {each.text for each in person.all("#keys-list > div")}
    for key, does in (("←", "Previous month"), ("+", "Zoom in"), ("3", "Week"), ("0", "Now")):
        assert f"{key}\n{does}" in known
    press_keys(person, Keys.ESCAPE)
    assert person.is_marked, "no page was loaded"


def test_a_click_and_the_wheel_zoom_to_where_the_pointer_is(person: Person) -> None:
    from selenium.webdriver import ActionChains

    def shows(at: str) -> None:
        person.until(lambda: shown_time(person) == at or None)

    person.go("/timeline?at=2020")
    person.mark()
    person.click("#row2020-03 td:nth-of-type(14) a")
    shows("2020-03-14")
    person.driver.back()
    shows("2020")
    person.click("#row2020-03 a.title")
    shows("2020-03")
    person.click("#row2020-W10 a.title")
    shows("2020-W10")
    line = person.until(lambda: person.one("#lane4 svg.line"))
    ActionChains(person.driver).move_to_element(line).click().perform()
    shows("2020-03-05")
    assert person.is_marked, "no page was loaded"
    day = person.ask("status", "GET")["at"][:10]
    person.go(f"/timeline?at={day}&lanes=file")
    script = """const line = document.querySelector("#lane1 svg.line");
    const {left, width} = line.getBoundingClientRect();
    line.dispatchEvent(new WheelEvent("wheel", {deltaY: arguments[0], ctrlKey: true, bubbles: true,
      cancelable: true, clientX: left + width * 0.3}));"""
    person.driver.execute_script(script, -100)
    shows(f"{day}T07")
    person.until(
        lambda: person.driver.execute_script(script, 100) or shown_time(person) == day or None
    )


def test_the_timeline_shows_what_has_a_tag_and_a_tag_leads_there(person: Person) -> None:
    from selenium.webdriver.support.ui import Select

    def names() -> list[str]:
        return [each.text for each in person.all("#timeline a.name")]

    person.go("/timeline")
    assert {"Nightly digest", "Poll the mail", "Water the beds"} <= set(names())
    field = person.one("select[name=tag]")
    assert field is not None
    offered = [each.text for each in Select(field).options]
    assert offered[0] == "any"
    assert {"daily", "garden", "news"} <= set(offered)
    assert "workflow" not in offered, "what all have tells none from another"
    Select(field).select_by_visible_text("news")
    person.press("Show")
    person.until(lambda: "tag=news" in person.driver.current_url or None)
    assert names() == ["Nightly digest", "Poll the mail"]
    person.go("/timeline?tag=nowhere")
    person.says("No entries match")
    person.click("#timeline .none a")
    person.until(lambda: len(names()) > 2 or None)
    person.go("/entries/mail")
    person.click(".facts a.tag")
    person.until(lambda: names() == ["Nightly digest", "Poll the mail"] or None)


def test_markup_stays_text_in_titles_logs_and_errors(person: Person) -> None:
    receipt = person.ask("entries/evil/run")["receipt"]
    person.until(lambda: person.ask(f"receipts/{receipt}", "GET")["ended_at"])
    paths = [*PAGES.values(), f"/receipts/{receipt}", "/entries/evil"]
    seen = 0
    for path in paths:
        if path == PAGES["error"]:
            continue
        person.go(path)
        assert person.all("main img, main script, main b[onclick], main i[onclick]") == []
        assert person.driver.title != "owned"
        seen += EVIL in person.text("body")
    assert seen >= 6
    person.go(f"/receipts/{receipt}")
    person.until(lambda: person.one("#log .fg1"))
    assert person.lines()[0] == "<b onclick=x>bold</b> <script>alert(2)</script>"
    assert person.lines("li .fg1") == ["<b onclick=x>bold</b>"]


def test_forty_entries_fit_a_window_and_the_filter_is_in_the_address(person: Person) -> None:
    person.go("/entries")
    script = """const [first, second] = document.querySelectorAll("tr[data-entry]");
    const {top, height} = first.getBoundingClientRect();
    return [top, second.getBoundingClientRect().top - top]"""
    top, height = person.driver.execute_script(script)
    assert (900 - top) / height >= 40
    every = len(person.all("tr[data-entry]"))
    person.click("#state-broken")
    person.until(lambda: [each.text for each in person.all("tr .title")] == ["Never read"] or None)
    assert "state=broken" in person.driver.current_url
    person.go("/entries?tag=news&sort=next")
    known = [person.ask(f"entries/{name}", "GET") for name in ("digest", "mail")]
    known.sort(key=lambda each: (moment(each["next_at"]), each["title"]))
    assert [each.text for each in person.all("tr .title")] == [each["title"] for each in known]
    person.go("/entries?q=nothing+like+this")
    person.says("No entries match.")
    person.click(".filters a.act")
    person.until(lambda: len(person.all("tr[data-entry]")) == every or None)


def test_entries_are_selected_and_paused_and_resumed_by_keys_alone(person: Person) -> None:
    from selenium.webdriver import Keys

    person.go("/entries?q=Speak+s")
    person.mark()
    press_keys(person, "j", "x", "j", "x")
    person.says("2 selected", "#bulk")
    press_keys(person, "p")
    person.until(lambda: person.one("#ask[open]"))
    press_keys(person, "2h", Keys.ENTER)
    person.says("2 entries: paused", "#said")
    person.until(lambda: len(person.all("tr .status.paused")) == 2 or None)
    press_keys(person, "u")
    person.until(lambda: not person.all("tr .status.paused") or None)
    press_keys(person, Keys.ESCAPE)
    person.until(lambda: person.one("#bulk[hidden]"))
    assert person.is_marked


def test_selected_entries_run_and_the_table_shows_the_result(person: Person) -> None:
    person.go("/entries?q=digest")
    before = len(person.all("tr .ends rect"))
    person.click("tr input[type=checkbox]")
    person.press("Run now", inside="#bulk")
    person.says("1 entry: run requested", "#said")
    after = person.until(lambda: len(person.all("tr .ends rect")) - before or None)
    assert after == 1


def test_selected_entries_are_retried_for_their_last_scheduled_times(person: Person) -> None:
    person.go("/entries?q=Poll")
    [before] = person.ask("receipts?entry=mail&limit=1", "GET")["receipts"]
    press_keys(person, "j", "x", "t")
    person.says("1 entry: retry requested", "#said")
    [after] = person.ask("receipts?entry=mail&limit=1", "GET")["receipts"]
    assert after["receipt"] > before["receipt"]
    assert after["planned_at"] == before["planned_at"]
    heads = [each.text for each in person.all("#entries th")]
    assert heads[-4:] == ["last", "late", "cost", "next"]


def test_a_backfill_of_selected_entries_says_first_how_many_runs_it_has(person: Person) -> None:
    person.go("/entries?q=digest")
    person.click("tr input[type=checkbox]")
    person.press("Backfill…", inside="#bulk")
    start, end = person.until(lambda: person.all("#ask[open] input"))
    start.send_keys("2026-01-01T00:00:00Z")
    end.send_keys("2026-01-03T12:00:00Z")
    person.click("#ask h2")
    person.says("3 runs in this period", "#ask-note")
    person.press("Cancel", inside="#ask")
    assert person.text("#said") != "1 entry: backfilled"


def test_rows_stay_where_they_are_while_the_focus_is_on_them(person: Person) -> None:
    person.go("/entries?sort=last&q=Speak")
    titles = "return [...document.querySelectorAll('tr .title')].map((each) => each.textContent)"
    before = person.driver.execute_script(titles)
    assert before[0] != "Speak slowly"
    press_keys(person, "j")
    number = person.ask("entries/slow/run")["entry"]
    person.until(lambda: person.one(f"#e{number} .ends rect"))
    assert person.driver.execute_script(titles) == before
    person.driver.execute_script("document.activeElement.blur()")
    person.driver.refresh()
    assert person.driver.execute_script(titles)[0] == "Speak slowly"


def test_search_finds_entries_agents_tasks_files_and_receipts_by_keys(person: Person) -> None:
    from selenium.webdriver import Keys

    person.go("/")
    for words, found in (
        ("wren", "agent · crew/crew.org:1"),
        ("sweep the", "task · board/tasks"),
        ("plan.org", "file"),
        ("1", "receipt"),
    ):
        press_keys(person, "/")
        person.until(lambda: person.one("#search[open]"))
        press_keys(person, words)
        person.says(found, "#search-results")
        press_keys(person, Keys.ESCAPE)
        person.until(lambda: person.one("#search[open]") is None or None)
    press_keys(person, Keys.CONTROL + "k" + Keys.NULL)
    press_keys(person, "poll", Keys.NULL)
    person.says("Poll the mail", "#search-results")
    press_keys(person, Keys.ENTER)
    person.until(lambda: "/entries/" in person.driver.current_url or None)
    person.says("Poll the mail", "h1")
    press_keys(person, "g", "e")
    person.until(lambda: person.driver.current_url.endswith("/entries") or None)
    press_keys(person, "?")
    keys = person.until(lambda: person.one("#keys[open]"))
    for words in ("search, and all actions", "Backfill…", "Entries", "next and previous row"):
        assert words in keys.text


def inbox_lines(person: Person) -> list[str]:
    """Return the titles of what is in the inbox."""
    script = """return [...document.querySelectorAll("#inbox > .inbox > li:not(.left) .title")]
        .map((each) => each.textContent)"""
    found: list[str] = person.driver.execute_script(script)
    return found


def ended(person: Person, entry: str, *, cancel: bool = False) -> None:
    """Let an entry run, or cancel its run, and wait for the end."""
    receipt = person.ask(f"entries/{entry}/run")["receipt"]
    if cancel:
        runs = person.until(lambda: person.ask(f"receipts/{receipt}", "GET")["runs"])
        person.until(
            lambda: person.ask(f"receipts/{receipt}", "GET")["status"] == "running" or None
        )
        person.ask(f"runs/{runs[0]['run']}/cancel")
    person.until(lambda: person.ask(f"receipts/{receipt}", "GET")["ended_at"])


def test_what_fails_is_in_the_inbox_until_it_recovers_and_what_i_cancel_never(
    person: Person,
) -> None:
    flag = person.app.root / "broken"
    flag.write_text("")
    person.go("/")
    person.mark()
    ended(person, "flaky")
    ended(person, "ever", cancel=True)
    person.until(lambda: "Work or not" in inbox_lines(person) or None)
    assert "Wait for ever" not in inbox_lines(person)
    assert person.ask("entry-list?state=failing&search=ever", "GET")["entries"] == []
    count = person.ask("inbox?limit=0", "GET")["count"]
    person.until(lambda: person.driver.title == f"({count}) Now · Horae" or None)
    icon = person.one("#icon")
    assert icon is not None
    assert icon.get_dom_attribute("href") == f"/icon/{count}.svg"
    flag.unlink()
    ended(person, "flaky")
    person.until(lambda: "Work or not" not in inbox_lines(person) or None)
    person.until(lambda: person.driver.title != f"({count}) Now · Horae" or None)
    assert person.is_marked


def test_a_failure_is_acknowledged_snoozed_and_run_again_by_keys_alone(person: Person) -> None:
    from selenium.webdriver import Keys

    ended(person, "evil")
    number = person.ask("entries/evil", "GET")["entry"]
    person.go("/")
    person.until(lambda: person.one(f"#in{number}"))

    def reach() -> None:
        """Move to the failed entry."""
        press_keys(person, *["k"] * 10)
        for _ in range(10):
            here = person.driver.execute_script("return document.activeElement.closest('li')?.id")
            if here == f"in{number}":
                return
            press_keys(person, "j")
        raise AssertionError("it is not reached")

    reach()
    press_keys(person, "a")
    person.until(lambda: person.one("#ask[open]"))
    press_keys(person, "I know", Keys.ENTER)
    person.says("Acknowledged", "#said")
    person.until(lambda: person.one(f"#in{number}.left"))  # it stays in place under the focus
    [line] = [
        each for each in person.ask("inbox", "GET")["acknowledged"] if each["entry"] == number
    ]
    assert line["acknowledged"]["note"] == "I know"
    assert line["acknowledged"]["by"].startswith("session:")
    person.driver.execute_script("document.activeElement.blur()")
    person.click("#acknowledged summary")
    person.press("Put back", inside=f"#acknowledged #in{number}")
    person.driver.execute_script("document.activeElement.blur()")
    person.until(lambda: person.one(f"#inbox > .inbox #in{number}"))
    reach()
    press_keys(person, "z")
    person.until(lambda: person.one("#ask[open]"))
    press_keys(person, Keys.ENTER)
    person.says("Snoozed", "#said")
    [line] = [
        each for each in person.ask("inbox", "GET")["acknowledged"] if each["entry"] == number
    ]
    assert line["acknowledged"]["until"] is not None
    before = len(person.ask("receipts?entry=evil", "GET")["receipts"])
    press_keys(person, "r")
    person.until(lambda: len(person.ask("receipts?entry=evil", "GET")["receipts"]) > before or None)


def test_runs_are_approved_and_rejected_where_they_are_asked_for(person: Person) -> None:
    from selenium.webdriver import Keys

    person.ask("trigger-agents", body={"name": "deployer", "command": ["cat"]})
    asked: dict[str, Any] = {
        "name": "deploy",
        "agent_id": "deployer",
        "prompt_template": f"Deploy {EVIL}",
    }
    asked |= {"trigger_config": {"type": "manual"}}
    person.ask("triggers", body={**asked, "tool_policy": {"mode": "require_approval"}})

    def held() -> int:
        """Ask for a run, and return its receipt when it waits for approval."""
        before = {each["receipt"] for each in person.ask("approvals", "GET")["approvals"]}
        person.ask("triggers/deploy/run", body={})

        def more() -> set[int]:
            now = {each["receipt"] for each in person.ask("approvals", "GET")["approvals"]}
            return now - before

        return person.until(more).pop()

    person.go("/")
    first = held()
    person.says("deployer is asked: Deploy <img src=x", f"#ask{first}")
    shoot(person.driver, "approval")
    person.driver.execute_script("document.activeElement.blur()")
    press_keys(person, "j")
    assert person.driver.switch_to.active_element.text == "deploy", "the most urgent is first"
    press_keys(person, "y")
    person.says("Approved", "#said")
    person.until(lambda: person.ask(f"receipts/{first}", "GET")["status"] == "done" or None)
    person.driver.execute_script("document.activeElement.blur()")
    second = held()
    person.until(lambda: person.one(f"#ask{second}"))
    person.press("Reject…", inside=f"#ask{second}")
    person.until(lambda: person.one("#ask[open]"))
    press_keys(person, "not today", Keys.ENTER)
    person.says("Rejected", "#said")
    told = person.ask(f"receipts/{second}", "GET")
    assert (told["status"], told["reason_code"]) == ("skipped", "rejected")
    assert "not today" in told["reason"]
    third = held()
    person.go(f"/receipts/{third}")
    person.press("Approve")
    person.until(lambda: person.ask(f"receipts/{third}", "GET")["status"] == "done" or None)
    person.go("/entries/deploy")
    assert person.text("#text pre").startswith("Deploy <img"), "the prompt, and nothing of ours"
    person.says("command: cat", "#definition")


def test_all_actions_of_a_page_are_in_the_palette(person: Person) -> None:
    from selenium.webdriver import Keys

    person.go("/entries/mail")
    press_keys(person, Keys.CONTROL + "k" + Keys.NULL)
    person.until(lambda: person.one("#search[open]"))
    press_keys(person, "pause")
    person.says("Pause", "#search-results li:first-child")
    press_keys(person, Keys.ENTER)
    person.until(lambda: person.one("#ask[open]"))
    press_keys(person, Keys.ENTER)
    person.until(lambda: person.one("main button[data-key=u]:not([data-fresh])"))
    assert person.ask("entries/mail", "GET")["pause"] is not None
    press_keys(person, "u")
    person.until(lambda: person.one("#resting") is None or None)


def test_a_page_is_usable_by_keys_alone(person: Person) -> None:
    from selenium.webdriver import Keys

    person.go("/")
    person.driver.execute_script("document.activeElement.blur()")
    body = person.one("body")
    assert body is not None
    body.send_keys(Keys.TAB)
    assert person.driver.switch_to.active_element.text == "Skip to content"
    person.driver.switch_to.active_element.send_keys(Keys.ENTER)
    assert person.driver.execute_script("return document.activeElement.id") == "main"


def test_everything_that_can_be_clicked_has_a_name(person: Person) -> None:
    for path in PAGES.values():
        if path == PAGES["error"]:
            continue
        person.go(path)
        nameless = person.driver.execute_script(
            """return [...document.querySelectorAll("a, button, input:not([type=hidden]), select, svg[role=img]")]
            .filter((each) => !(each.textContent.trim() || each.getAttribute("aria-label")
              || each.labels?.length || each.title || each.querySelector("title")))
            .filter((each) => each.closest("[hidden]") === null).map((each) => each.outerHTML)"""
        )
        assert nameless == [], path


@complains_of("nobody")
@pytest.mark.parametrize("width", [390, 1100, 1440])
def test_every_page_fits_its_window_in_light_and_in_dark(person: Person, width: int) -> None:
    resize(person.driver, width, 800)
    digest = person.ask("receipts?entry=digest&limit=20", "GET")["receipts"]
    receipt = next(each["receipt"] for each in digest if each["key"].startswith("cron:"))
    going = person.ask("entries/ever/run")["receipt"]
    runs = person.until(lambda: person.ask(f"receipts/{going}", "GET")["runs"])
    more = {"run": f"/receipts/{receipt}", "running": f"/receipts/{going}"}
    try:
        for name, path in {**PAGES, **more}.items():
            person.go(path)
            person.until(lambda: person.text("h1"))  # the page may just be written anew
            for scheme in ("light", "dark"):
                paint(person.driver, scheme)
                wide = person.driver.execute_script(
                    "return document.documentElement.scrollWidth - innerWidth"
                )
                assert wide <= 0, f"{name} is {wide} px too wide"
                shoot(person.driver, f"{name}-{width}-{scheme}")
    finally:
        person.ask(f"runs/{runs[0]['run']}/cancel")
        resize(person.driver, 1400)
        paint(person.driver, "light")


@complains_of(
    "ERR_CONNECTION_REFUSED", "ERR_INCOMPLETE_CHUNKED", "ERR_CONNECTION_RESET", "ERR_EMPTY"
)
def test_a_page_says_so_when_the_engine_is_gone_and_when_it_is_back(person: Person) -> None:
    person.go("/")
    person.mark()
    person.app.end()
    try:
        person.until(lambda: ((gone := person.one("#gone")) and gone.is_displayed()) or None)
        person.says("The engine does not respond. This page shows the state at", "#gone")
        shoot(person.driver, "gone")
    finally:
        person.app.start()
    person.until(lambda: ((gone := person.one("#gone")) and not gone.is_displayed()) or None, 20)
    assert person.is_marked


def test_times_are_shown_in_the_zone_that_is_chosen_and_say_so(person: Person) -> None:
    person.go("/entries/digest")
    person.says("Europe/Berlin", "#foot")
    script = "return document.querySelector('.fires time').getAttribute('datetime')"
    before = moment(person.driver.execute_script(script))
    person.press("UTC", inside="#zones")
    person.until(lambda: "All times are in UTC" in person.text("#foot") or None)
    person.says("the plan: Europe/Berlin", "#foot")
    after = moment(person.driver.execute_script(script))
    assert after == before
    assert after.utcoffset() == timedelta(0)
    assert before.utcoffset() != timedelta(0)
    person.until(lambda: person.one("#zones [aria-current]"))
    assert "UTC" in [each.text for each in person.all("#zones [aria-current]")]
    person.press("plan zone", inside="#zones")
    person.until(lambda: "All times are in Europe/Berlin" in person.text("#foot") or None)


@complains_of("401", "404")
def test_a_page_for_who_is_not_logged_in_is_styled_and_loads_nothing(person: Person) -> None:
    person.go("/")
    [cookie] = [each for each in person.driver.get_cookies() if each["httpOnly"]]
    person.driver.delete_all_cookies()
    painted = "return getComputedStyle(document.body).backgroundColor"
    try:
        for path, words in (("/", "Not logged in"), ("/login/nothing", "This link is not valid")):
            person.go(path)
            person.says(words, "h1")
            assert person.driver.execute_script(painted) == "rgb(248, 245, 238)"
            assert person.all("link, script, [src]") == []
            for width, scheme in ((390, "light"), (1440, "dark")):
                resize(person.driver, width, 800)
                paint(person.driver, scheme)
                shoot(person.driver, f"{'locked' if path == '/' else 'spent'}-{width}-{scheme}")
            paint(person.driver, "light")
    finally:
        resize(person.driver, 1400)
        del cookie["domain"]
        person.driver.add_cookie(cookie)


@complains_of("401", "ERR_INCOMPLETE_CHUNKED")
def test_who_logs_out_is_out_on_every_page_that_is_open(person: Person) -> None:
    driver = person.driver
    person.go("/")
    paint(driver, "light")
    shoot(driver, "header")
    other = driver.current_window_handle
    driver.switch_to.new_window("tab")
    try:
        person.go("/timeline")
        for width in (1400, 390):
            resize(driver, width)
            out = person.until(lambda: person.one(".top .out"))
            assert out.is_displayed()
            assert out.rect["x"] + out.rect["width"] <= width
        resize(driver, 1400)
        cookies = driver.get_cookies()
        person.press("Log out", inside=".top")
        person.says("Not logged in", "body")
        assert driver.get_cookies() == []
        shoot(driver, "logged-out")
        sent = {"Cookie": f"{cookies[0]['name']}={cookies[0]['value']}"}
        host = {"Host": person.app.url.partition("//")[2]}
        old = httpx.get(f"{person.app.near}/api/v1/status", headers={**sent, **host})
        assert old.status_code == 401, "the cookie is of no use to whoever kept it"
    finally:
        driver.close()
        driver.switch_to.window(other)
    person.says("You are no longer logged in", "#gone")
