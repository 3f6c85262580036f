"""Somebody who looks at the pages of an app in a real browser, and what they do there."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from web.browser import browsing, complaints, living, resize

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pytest
    from selenium.webdriver import Chrome
    from selenium.webdriver.remote.webelement import WebElement

    from web.browser import Living

T = TypeVar("T")
PAGES = {
    "now": "/",
    "entries": "/entries",
    "timeline": "/timeline",
    "month": "/calendar",
    "week": "/calendar?view=week",
    "slots": "/timeline?lanes=slot",
    "agents": "/crew",
    "board": "/board",
    "task": "/board/3",
    "plans": "/plan",
    "plan": "/plan/plan.org",
    "entry": "/entries/mail",
    "why": "/entries/mail/why",
    "error": "/entries/nobody",
}


class Person:
    """Somebody who is logged in and looks at an app."""

    def __init__(self, driver: Chrome, app: Living) -> None:
        self.driver = driver
        self.app = app
        driver.get(app.link)
        self.until(lambda: self.one("h1"))

    def go(self, path: str) -> None:
        """Open a page; under load the driver comes back while it is still being read."""
        self.driver.get(self.app.url + path)
        ready = "return document.readyState === 'complete' || null"
        self.until(lambda: self.driver.execute_script(ready))

    def all(self, selector: str) -> list[WebElement]:
        """Return every element that fits."""
        return self.driver.find_elements("css selector", selector)

    def one(self, selector: str) -> WebElement | None:
        """Return the first element that fits, if there is one."""
        return next(iter(self.all(selector)), None)

    def lines(self, selector: str = "li") -> list[str]:
        """Return the lines of a log that are in view, at one moment."""
        script = "return [...document.querySelectorAll('#log ' + arguments[0])].map((each) => each.textContent)"
        found: list[str] = self.driver.execute_script(script, selector)
        return found

    def click(self, selector: str) -> None:
        """Click on the first element that fits and can be seen."""

        def clicked() -> bool:
            found = next((each for each in self.all(selector) if each.is_displayed()), None)
            if found is not None:
                found.click()  # the page may just have written it anew: then it is looked for again
            return found is not None

        self.until(lambda: clicked() or None)

    def press(self, label: str, *, inside: str = "main") -> None:
        """Click on the button that says this, and has not just changed."""

        def found() -> WebElement | None:
            buttons = self.all(f"{inside} button:not([data-fresh]), {inside} a.act")
            return next((each for each in buttons if each.text == label), None)

        self.until(found).click()

    def type(self, name: str, text: str) -> None:
        """Fill in a field of a form."""
        field = self.until(lambda: self.one(f"main [name={name}]"))
        field.clear()
        field.send_keys(text)

    def text(self, selector: str = "main") -> str:
        """Return what an element says."""
        said = self.driver.execute_script(
            "return document.querySelector(arguments[0])?.textContent ?? ''", selector
        )
        return " ".join(str(said).split())

    def until(self, look: Callable[[], T | None], seconds: float = 10) -> T:
        """Return what a look finds, as soon as it finds something."""
        from selenium.common.exceptions import StaleElementReferenceException
        from selenium.webdriver.support.ui import WebDriverWait

        wait = WebDriverWait(
            self.driver, seconds, 0.05, ignored_exceptions=[StaleElementReferenceException]
        )
        found: Any = wait.until(lambda _: look())
        return found  # type: ignore[no-any-return]

    def says(self, words: str, selector: str = "main") -> None:
        """Wait until an element says some words."""
        try:
            self.until(lambda: words in self.text(selector) or None)
        except Exception as error:
            raise AssertionError(f"{words!r} not in {self.text(selector)!r}") from error

    def ask(self, path: str, method: str = "POST", body: object = None) -> Any:
        """Ask the API for something, as the page would."""
        told = self.driver.execute_async_script(
            """const [path, method, body, done] = arguments;
            const headers = {"Content-Type": "application/json"};
            const init = method === "GET" ? {} : {method, headers, body: JSON.stringify(body)};
            fetch(path, init).then((answer) => answer.json()).then(done);""",
            f"/api/v1/{path}",
            method,
            body or {},
        )
        assert told is not None
        return told

    def mark(self) -> None:
        """Remember this very page, to know later that nobody loaded another."""
        self.driver.execute_script("window.marked = true")

    @property
    def is_marked(self) -> bool:
        """Whether it is still the page that was marked."""
        return bool(self.driver.execute_script("return window.marked === true"))


def complains_of(*words: str) -> Callable[[T], T]:
    """Say which complaints of the browser belong to a test."""

    def marked(test: T) -> T:
        test.complains_of = words  # type: ignore[attr-defined]
        return test

    return marked


@contextmanager
def somebody(factory: pytest.TempPathFactory) -> Iterator[Person]:
    """Give somebody who looks at an app of their own."""
    with ExitStack() as stack:
        app = stack.enter_context(living(factory.mktemp("app")))
        driver = stack.enter_context(browsing(factory.mktemp("profile")))
        resize(driver, 1400)
        yield Person(driver, app)


@contextmanager
def uncomplaining(person: Person, request: pytest.FixtureRequest) -> Iterator[None]:
    """After a test: no error on the console, and nothing that the browser had to refuse."""
    complaints(person.driver)
    yield
    expected = getattr(request.function, "complains_of", ())
    found = complaints(person.driver)
    assert [each for each in found if not any(word in each for word in expected)] == []


def press_keys(person: Person, *keys: str) -> None:
    """Press keys where the focus is; a page that is just loaded has it on nothing for a moment."""
    from selenium.common.exceptions import ElementNotInteractableException

    def pressed(key: str) -> bool | None:
        try:
            person.driver.switch_to.active_element.send_keys(key)
        except ElementNotInteractableException:
            return None
        return True

    for key in keys:
        person.until(partial(pressed, key))
