"""The pages as axe-core judges them: for people who hear them, enlarge them or use only keys."""

from __future__ import annotations

from importlib.resources import files
from typing import TYPE_CHECKING, Any

import pytest

from web.browser import CHROMIUM, DRIVER, MISSING, paint, resize
from web.person import PAGES, complains_of, press_keys, somebody, uncomplaining

if TYPE_CHECKING:
    from collections.abc import Iterator

    from web.person import Person

pytestmark = pytest.mark.skipif(CHROMIUM is None or DRIVER is None, reason=MISSING)
AXE = files("selenium_axe_python").joinpath("axe-core", "axe.min.js").read_text("utf-8")
RUN = "axe.run(document, {resultTypes: ['violations']}).then(arguments[0])"


@pytest.fixture(scope="module")
def person(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Person]:
    with somebody(tmp_path_factory) as made:
        made.driver.set_script_timeout(60)
        yield made


@pytest.fixture(autouse=True)
def nothing_to_complain_of(person: Person, request: pytest.FixtureRequest) -> Iterator[None]:
    with uncomplaining(person, request):
        yield


def judged(person: Person) -> list[str]:
    """Return what is seriously wrong with the page that is open."""
    person.driver.execute_script(AXE)
    told: dict[str, Any] = person.driver.execute_async_script(RUN)
    return [
        f"{each['id']}: {node['html'][:160]} {node['any'][0]['message'] if node['any'] else ''}"
        for each in told["violations"]
        if each["impact"] in {"serious", "critical"}
        for node in each["nodes"][:3]
    ]


@complains_of("nobody", "401", "404")
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_no_view_has_a_serious_or_critical_fault(person: Person, scheme: str) -> None:
    resize(person.driver, 1400)
    paint(person.driver, scheme)
    [receipt] = person.ask("receipts?entry=digest&limit=1", "GET")["receipts"]
    going = person.ask("entries/ever/run")["receipt"]
    runs = person.until(lambda: person.ask(f"receipts/{going}", "GET")["runs"])
    more = {"run": f"/receipts/{receipt['receipt']}", "running": f"/receipts/{going}"}
    more |= {"agent": "/entries/wren", "day": "/timeline?span=30d", "docs": "/docs"}
    more |= {"spent": "/login/nothing"}
    found = {}
    for name, path in {**PAGES, **more}.items():
        person.go(path)
        person.until(lambda: person.text("h1"))
        found[name] = judged(person)
    person.go("/entries")
    person.ask(f"runs/{runs[0]['run']}/cancel")
    lines = [f"{name}: {each}" for name, some in found.items() for each in some]
    assert not lines, "\n".join(lines)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_no_dialog_has_a_serious_or_critical_fault(person: Person, scheme: str) -> None:
    paint(person.driver, scheme)
    found = {}
    for path, keys, dialog in (
        ("/", "/", "search"),
        ("/", "?", "keys"),
        ("/entries/mail", "p", "ask"),
        ("/entries/mail", "s", "rule"),
        ("/entries/mail", "w", "panel"),
        ("/board/3", "s", "scheduling"),
    ):
        person.go(path)
        press_keys(person, keys)
        person.until(lambda wanted=dialog: person.one(f"#{wanted}[open]"))  # type: ignore[misc]
        found[dialog] = judged(person)
    lines = [f"{name}: {each}" for name, some in found.items() for each in some]
    assert not lines, "\n".join(lines)
