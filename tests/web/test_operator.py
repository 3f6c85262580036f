"""What an operator does every morning, each in a few clicks; `pytest -s` prints clicks and seconds."""

from __future__ import annotations

import json
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from web.browser import CHROMIUM, DRIVER, MISSING
from web.person import complains_of, press_keys, somebody, uncomplaining

if TYPE_CHECKING:
    from collections.abc import Iterator

    from web.person import Person

pytestmark = pytest.mark.skipif(CHROMIUM is None or DRIVER is None, reason=MISSING)


class Task:
    """Something that an operator does on the pages, and how many clicks it takes."""

    def __init__(self, person: Person) -> None:
        self.person = person
        self.clicks = 0

    def click(self, selector: str) -> None:
        self.clicks += 1
        self.person.click(selector)

    def press(self, label: str, *, inside: str = "main") -> None:
        self.clicks += 1
        self.person.press(label, inside=inside)


@contextmanager
def task(person: Person, name: str) -> Iterator[Task]:
    """Give a task, which begins at the first page."""
    person.go("/")
    began, made = time.perf_counter(), Task(person)
    yield made
    print(f"\n{name}: {made.clicks} clicks, {time.perf_counter() - began:.1f} s", end="")


@pytest.fixture(scope="module")
def person(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Person]:
    with somebody(tmp_path_factory) as made:
        yield made


@pytest.fixture(autouse=True)
def nothing_to_complain_of(person: Person, request: pytest.FixtureRequest) -> Iterator[None]:
    with uncomplaining(person, request):
        yield


def ended(person: Person, entry: str) -> int:
    """Let an entry run, and return its receipt when it has ended."""
    receipt: int = person.ask(f"entries/{entry}/run")["receipt"]
    person.until(lambda: person.ask(f"receipts/{receipt}", "GET")["ended_at"])
    return receipt


def test_a_failure_is_found_explained_run_again_and_silenced(person: Person) -> None:
    receipt, entry = ended(person, "evil"), person.ask("entries/evil", "GET")["entry"]
    with task(person, "find what failed overnight, and why") as found:
        person.says("exit code 3", f"#in{entry}")
        found.click(f"#in{entry} a[href='/receipts/{receipt}']")
        person.says("FAILED: <i>no</i>", "#log")
        assert found.clicks == 1
    with task(person, "run it again") as again:
        again.press("Run again", inside=f"#in{entry}")
        person.until(lambda: len(person.ask("receipts?entry=evil", "GET")["receipts"]) > 1 or None)
        assert again.clicks == 1
    with task(person, "silence it") as silenced:
        silenced.press("Acknowledge…", inside=f"#in{entry}")
        person.until(lambda: person.one("#ask[open]"))
        silenced.press("Acknowledge", inside="#ask")
        person.says("Acknowledged", "#said")
        assert silenced.clicks == 2


def test_the_job_of_tomorrow_is_moved(person: Person) -> None:
    entry = person.ask("entries/digest", "GET")["entry"]
    with task(person, "move tomorrow's job") as moved:
        moved.click(f"#next{entry} .title, a[href='/entries']")
        if "/entries/" not in person.driver.current_url:
            moved.click(f"#e{entry} .title")
        moved.press("Change schedule…")
        field = person.until(lambda: person.one("#rule[open] [name=to]"))
        field.clear()
        field.send_keys("0 4 * * *")
        person.until(lambda: person.one("#rule-save:not([disabled])"))
        moved.press("Save", inside="#rule")
        person.says("Schedule saved", "#said")
        person.says("04:00", ".lead")
        assert moved.clicks <= 4
    assert ":SCHEDULE: 0 4 * * *" in (person.app.root / "plan.org").read_text()


def at_row(person: Person, row: str) -> None:
    """Move to a row of the page by keys."""
    person.until(lambda: person.one(f"#{row}"))
    press_keys(person, *["k"] * 40)
    script = "return document.activeElement.closest('[data-row]')?.id"
    for _ in range(40):
        if person.driver.execute_script(script) == row:
            return
        press_keys(person, "j")
    raise AssertionError(f"{row} is not reached")


def go_by_keys(person: Person, key: str, path: str) -> None:
    """Open another page by keys."""
    person.driver.execute_script("document.activeElement.blur()")
    press_keys(person, "g", key)
    person.until(lambda: person.driver.current_url.endswith(path) or None)
    person.until(lambda: person.driver.execute_script("return document.readyState === 'complete'"))


@complains_of("409")
def test_each_task_is_done_by_keys_alone(person: Person) -> None:
    from selenium.webdriver import ActionChains, Keys

    person.ask("entries/evil/unacknowledge")  # if another test has acknowledged it
    receipt, entry = ended(person, "evil"), person.ask("entries/evil", "GET")["entry"]
    person.go("/timeline")
    go_by_keys(person, "n", "/")
    at_row(person, f"in{entry}")
    press_keys(person, "l")  # what failed, and why
    person.says("FAILED: <i>no</i>", "#log")
    assert person.driver.current_url.endswith(f"/receipts/{receipt}")
    go_by_keys(person, "n", "/")
    at_row(person, f"in{entry}")
    press_keys(person, "r")
    newest = "receipts?entry=evil&limit=1"
    person.until(lambda: person.ask(newest, "GET")["receipts"][0]["receipt"] > receipt or None)
    press_keys(person, "a")
    person.until(lambda: person.one("#ask[open]"))
    press_keys(person, "I know", Keys.ENTER)
    person.says("Acknowledged", "#said")

    # the interval of an agent
    crew = person.app.root / "crew" / "crew.org"
    written = crew.read_text()
    go_by_keys(person, "a", "/crew")
    at_row(person, f"agent{person.ask('entries/agent:wren', 'GET')['entry']}")
    press_keys(person, Keys.ENTER)
    person.says("2h after the end of each tick", ".lead")
    press_keys(person, "s")
    person.until(lambda: len(person.all("#rule-preview li")) == 10 or None)
    person.driver.execute_script("document.activeElement.blur()")
    press_keys(person, "p")  # not an action of the page behind
    assert person.one("#ask[open]") is None
    person.click("#rule [name=to]")
    press_keys(person, Keys.END, *[Keys.BACKSPACE] * 2, "45m")
    person.says("45m after the end of each tick", "#rule-preview")
    person.until(lambda: person.one("#rule-save:not([disabled])"))
    press_keys(person, Keys.ENTER)
    person.says("Schedule saved", "#said")
    person.says("45m after the end of each tick", ".lead")
    assert crew.read_text() == written.replace(":INTERVAL: 2h", ":INTERVAL: 45m")
    press_keys(person, "z")
    person.says("2h after the end of each tick", ".lead")
    assert crew.read_text() == written

    # a run is followed and cancelled
    going = person.ask("entries/ever/run")["receipt"]
    go_by_keys(person, "n", "/")
    at_row(person, f"going{going}")
    press_keys(person, "l")
    person.says("begun", "#log")
    press_keys(person, "c")
    person.until(lambda: person.one("#actions .sure"))
    press_keys(person, "c")
    person.says("killed", "h1")

    # what has no key of its own is in the palette
    for words, found in (("times in utc", "UTC"), ("times in plan", "Europe/Berlin")):
        ActionChains(person.driver).key_down(Keys.CONTROL).send_keys("k").key_up(
            Keys.CONTROL
        ).perform()
        person.until(lambda: person.one("#search[open]"))
        press_keys(person, words)
        person.until(lambda: len(person.all("#search-results li")) == 1 or None)
        press_keys(person, Keys.ENTER)
        person.says(found, "#foot b")


STREAM = (
    {"type": "assistant", "message": {"content": [{"type": "text", "text": "The beans are in."}]}},
    {"type": "result", "result": "Sown.", "num_turns": 2, "total_cost_usd": 0.25}
    | {"usage": {"input_tokens": 1200, "output_tokens": 34}},
)


def test_what_an_agent_did_and_what_it_cost_is_seen(person: Person) -> None:
    program, written = person.app.root / "claude", person.app.root / "crew" / "writer.org"
    known = {"session_id": "s1", "uuid": "u1"}
    said = "".join(f"{json.dumps(each | known)}\n" for each in STREAM)
    program.write_text(f"#!/bin/sh\ncat >/dev/null\ncat <<'END'\n{said}END\n")
    program.chmod(0o755)
    written.write_text(written.read_text().replace(":COMMAND: cat", f":COMMAND: {program}"))
    receipt = person.ask("agents/wren/tick")["receipt"]
    person.until(lambda: person.ask(f"receipts/{receipt}", "GET")["ended_at"])
    with task(person, "see what an agent did and cost") as seen:
        seen.click("#pages a[href='/crew']")
        person.until(lambda: person.driver.current_url.endswith("/crew") or None)
        seen.click(".crew .title")
        person.says("Agent: wren", "#agent")
        person.says("The beans are in.", "#agent")
        person.says("$0.25", "#agent")
        assert seen.clicks == 2


def test_a_run_is_followed(person: Person) -> None:
    receipt = person.ask("entries/slow/run")["receipt"]
    with task(person, "follow a run") as followed:
        followed.click(f"#going{receipt} a[href^='/runs/']")
        person.says("line 6", "#log")
        assert followed.clicks == 1
