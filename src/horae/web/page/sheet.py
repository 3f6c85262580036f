"""How a page is made: somebody says what is on it, and a template writes it down."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import date
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias
from urllib.parse import quote

import jinja2
from starlette.responses import HTMLResponse, Response

from horae.core.actor import actor_words
from horae.core.explain import length_text
from horae.core.receipt import Status
from horae.core.views import RequestError
from horae.errors import HoraeError
from horae.web.answer import CONTROLS, HEADERS, STATUSES, harmless
from horae.web.page.look import PageTime, rough, say
from horae.web.page.papers import PageError
from horae.web.request import RequestFields, is_number

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence
    from datetime import datetime

    from starlette.requests import Request

    from horae.core.ports import Ledger
    from horae.web.front import Front
    from horae.web.page.papers import Papers
    from horae.web.page.static import Static
    from horae.web.page.tags import Tags

_HERE: Final = Path(__file__).parent
_TEXT: Final = 200  # characters of one field of a query


@dataclass(frozen=True, slots=True)
class PageContext:
    """What every page is made from."""

    front: Front
    ledger: Ledger
    papers: Papers
    static: Static
    templates: jinja2.Environment
    tags: Tags

    def look(self) -> PageTime:
        """Look from now."""
        return PageTime(self.front.clock.now(), self.front.zone_name)


class Sheet(NamedTuple):
    """A template and what it says; *every* is how many seconds it may go without a new look."""

    template: str
    title: str
    nav: str
    values: dict[str, object]
    every: int = 30


Show: TypeAlias = "Callable[[PageContext, PageTime, Request], Awaitable[Sheet]]"


class PageView(NamedTuple):
    """A page: where it is, who says what is on it, and what leads to it from every other page."""

    path: str
    show: Show
    name: str = ""
    word: str = ""  # in the list of pages; nothing if it is not in it


def templates(views: Sequence[PageView]) -> jinja2.Environment:
    """Return what writes pages; those of *views* that have a word are on every one of them."""
    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_HERE / "templates"),
        autoescape=True,
        finalize=_shown,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {"rough": rough, "long": length_text, "path": _path, "say": say}
    made.filters["actor"] = actor_words
    made.globals["nav_items"] = [(each.name, each.path, each.word) for each in views if each.word]
    return made


def _shown(value: object) -> object:
    """Return what is shown of a value: of a text what nothing obeys; markup stays markup."""
    if not isinstance(value, str) or not CONTROLS.search(value):
        return value
    return type(value)(harmless(value))


def _path(text: object) -> str:
    """Return a text as a part of an address."""
    return quote(str(text), safe="/")


def endpoint_of(house: PageContext, show: Show) -> Callable[[Request], Awaitable[Response]]:
    """Return what starlette calls for a page."""

    async def endpoint(request: Request) -> Response:
        look, status = house.look(), HTTPStatus.OK
        try:
            sheet = await show(house, look, request)
        except HoraeError as error:
            status = STATUSES.get(error.exit_code, HTTPStatus.INTERNAL_SERVER_ERROR)
            sheet = Sheet("error.html", status.phrase, "", {"error": str(error)})
        trouble = house.front.engine.trouble
        common = {
            "look": look,
            "title": sheet.title,
            "nav": sheet.nav,
            "every": sheet.every,
            "event": await house.ledger.newest_event(),
            "static": f"/static/{house.static.version}",
            "version": house.static.version,
            "trouble": None if trouble is None else str(trouble),
            "started_at": house.front.engine.started_at,
        }
        template = house.templates.get_template(sheet.template)
        # Not in the loop: a long page takes a while to write, and the engine must not wait.
        text = await asyncio.to_thread(template.render, {**sheet.values, **common})
        # A name of a file may hold what cannot be written in UTF-8.
        return HTMLResponse(text.encode(errors="replace"), status, headers=HEADERS)

    return endpoint


class PageRequest(RequestFields):
    """The query of a page, field by field; what makes no sense is an error that says so."""

    def __init__(self, request: Request) -> None:
        super().__init__(request.query_params)

    def text(self, name: str) -> str:
        """Return a text; nothing if it is not there."""
        return self._text(name, _TEXT).strip()

    def moment(self, name: str) -> datetime | None:
        """Return a moment in RFC 3339, with room around it for the widest picture."""
        moment = super().moment(name)
        if moment is not None and not 100 < moment.year < 9900:
            raise RequestError(f"{name} must be in the years 101 to 9899")
        return moment

    def day(self, name: str) -> date | None:
        """Return a day such as 2026-06-06."""
        text = self.text(name)
        try:
            day = date.fromisoformat(text) if text else None
        except ValueError:
            raise RequestError(f"{name} must be a date like 2026-06-06, not {text!r}") from None
        if day is not None and not 100 < day.year < 9900:
            raise RequestError(f"{name} must be in the years 101 to 9899")
        return day

    def status(self, name: str) -> Status | None:
        """Return a status by its name."""
        text = self.text(name)
        if text and text not in set(Status):
            raise RequestError(f"{name} must be one of {', '.join(Status)}")
        return Status(text) if text else None


def path_number(request: Request) -> int:
    """Return the number in the path of a page."""
    text = request.path_params["number"]
    if not is_number(text):
        raise PageError(f"{text[:50]!r} is not a number; follow a link from another page")
    return int(text)
