"""The routes of all views of the page, of its files and of its icon."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.routing import Match, Route

from horae.files.read import MOST
from horae.sources.board import page as board
from horae.sources.crew import page as agents
from horae.sources.plans import page as plan
from horae.web.answer import HEADERS
from horae.web.api import FORMS
from horae.web.front import Front, offered
from horae.web.page import entries, entry, forms, now, run, sheet, timeline

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.types import Scope

    from horae.web.page.sheet import PageRequest, Sheet

_HERE: Final = Path(__file__).parent
# The icon of a tab: how many entries need attention.
_COUNTED: Final = (
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 32 32"><circle cx="16" cy="16" r="15" '
    'fill="#a93526"/><text x="16" y="23" font-family="sans-serif" font-size="20" '
    'font-weight="700" text-anchor="middle" fill="#fff">{}</text></svg>'
)
_PAGES: Final = (now, entries, timeline, agents, board, plan, run, entry)
VIEWS: Final[tuple[sheet.PageView, ...]] = tuple(view for page in _PAGES for view in page.VIEWS)


def routes(front: Front, root: Path | None = None, *, most_plans: int = MOST) -> list[Route]:
    static = sheet.Static.read(_HERE / "static")
    ledger = offered(front.ledger, "ledger to read")
    views = VIEWS if front.nodes is None else (*VIEWS, now.NODES)
    context = sheet.PageContext(front, ledger, static, sheet.templates(views), root, most_plans)

    async def file(request: Request) -> Response:
        return static.answer(request.path_params["version"], request.path_params["name"])

    async def icon(_: Request) -> Response:
        return static.answer(static.version, "mark.svg")

    async def counted(request: Request) -> Response:
        count = request.path_params["count"]
        icon = _COUNTED.format("9+" if count > 9 else count)
        return Response(icon, media_type="image/svg+xml", headers=HEADERS)

    async def no_page(asked: PageRequest) -> Sheet:
        raise sheet.PageError(f"there is no page {asked.url_path[:200]!r}")

    shown = ((each.path, sheet.endpoint_of(context, each.show)) for each in views)
    return [
        Route("/static/{version}/{name}", file, methods=["GET"]),
        Route("/favicon.ico", icon, methods=["GET"]),
        Route("/zone", forms.choose_zone, methods=["GET"]),
        Route("/icon/{count:int}.svg", counted, methods=["GET"]),
        *(Route(*each, methods=["GET"]) for each in shown),
        Route(f"{FORMS}/{{path:path}}", forms.form_of(context), methods=["POST"]),
        BrowserRoute("/{path:path}", sheet.endpoint_of(context, no_page), methods=["GET"]),
    ]


class BrowserRoute(Route):
    """A route for browsers only: a program that asks for no HTML gets errors as JSON."""

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        accepted = Headers(scope=scope).get("accept", "")
        is_page = "text/html" in accepted or "text/event-stream" in accepted
        if not is_page or scope["path"].startswith("/api/"):
            return Match.NONE, {}
        return super().matches(scope)
