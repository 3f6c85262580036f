"""How a page is made: a view says what is on it, and a template writes it down."""

from __future__ import annotations

import asyncio
import os
import re
from dataclasses import dataclass, field
from datetime import date, datetime, time, timedelta
from functools import partial
from hashlib import sha256
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias
from urllib.parse import quote

import jinja2
from markupsafe import Markup, escape
from starlette.responses import HTMLResponse, Response, StreamingResponse

from horae.core.actor import actor_words
from horae.core.budget import cost_text
from horae.core.entry import Entry
from horae.core.explain import length_text, requested_words, stamp
from horae.core.receipt import RECEIPT_STATUSES, Status
from horae.core.text import in_zone, is_number, moment_text, with_zone
from horae.core.views import RequestError
from horae.errors import Exit, HoraeError, ScheduleError
from horae.files.read import MOST, find_plans, read_plan
from horae.org.document import read
from horae.sources.board.task import parse
from horae.sources.plans.routes import Blame, rule_blame
from horae.timing.zone import instant, local, zone
from horae.web.answer import CONTROLS, HEADERS, STATUSES, harmless, shrunk, takes_gzip
from horae.web.fields import moment_of
from horae.web.keys import caller_of
from horae.web.page.actions import ACTIONS, fields
from horae.web.page.live import ShownPage, WrittenPage, changes, compressed, steady
from horae.web.router import HttpRequestError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
    from zoneinfo import ZoneInfo

    from starlette.requests import Request

    from horae.core.ports import Ledger, Listed
    from horae.core.views import EntryLine, Inbox
    from horae.web.front import Front
    from horae.web.stream import Feed


DAY: Final = timedelta(days=1)
FAR: Final = timedelta(days=366 * 50)  # a rule that names no moment so far on has none left
_ESCAPES: Final = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?"
    r"|[PX^_][^\x1b]*(?:\x1b\\)?|[@-Z\\-_])"
)


@dataclass(frozen=True, slots=True)
class PageTime:
    now: datetime
    zone: str

    @property
    def place(self) -> ZoneInfo:
        return zone(self.zone)

    @property
    def today(self) -> date:
        return local(self.now, self.place).date()

    def iso(self, moment: datetime) -> str:
        return stamp(moment, self.zone) or ""

    def full(self, moment: datetime, zone_name: str = "") -> str:
        own = moment_text(moment, zone_name) if zone_name not in {"", self.zone} else ""
        return moment_text(moment, self.zone) + (f" ({own})" if own else "")

    def short(self, moment: datetime) -> str:
        """Return a moment as short as it is clear today.

        >>> look = PageTime(datetime(2026, 6, 6, 8, tzinfo=zone("UTC")), "UTC")
        >>> [look.short(look.now + timedelta(days=days)) for days in (0, 1, 300)]
        ['08:00', 'Sun 7 Jun 08:00', '2027-04-02 08:00']
        """
        wall = local(moment, self.place)
        clock = f"{wall:%H:%M:%S}" if wall.second else f"{wall:%H:%M}"
        if wall.date() == self.today:
            return clock
        if abs(wall.date() - self.today) < timedelta(days=180):
            return f"{wall:%a} {wall.day} {wall:%b} {clock}"
        return f"{wall:%Y-%m-%d} {clock}"

    def text(self, text: str, code: str | None = None) -> str:
        return in_zone(text, self.zone, code)

    def rule(self, line: EntryLine) -> str:
        """Return the rule of an entry, with its zone if that is not the zone of the page."""
        if not line.rule or line.zone == self.zone:
            return line.rule or line.reason or ""
        return with_zone(line.rule, line.zone)

    def clock(self, moment: datetime) -> str:
        return f"{local(moment, self.place):%H:%M}"

    def away(self, moment: datetime) -> str:
        said = rough(abs(moment - self.now))
        return f"in {said}" if moment > self.now else f"{said} ago"

    def begin(self, day: date) -> datetime:
        return instant(datetime.combine(day, time.min), self.place)


def rough(length: timedelta) -> str:
    """Return a length of time with its two largest parts.

    >>> rough(timedelta(seconds=5)), rough(timedelta(hours=26, minutes=5, seconds=3))
    ('5s', '1d 2h')
    >>> rough(timedelta(milliseconds=340))
    '340ms'
    """
    if timedelta(0) < length < timedelta(seconds=1):
        return f"{length // timedelta(milliseconds=1)}ms"
    seconds = int(length.total_seconds())
    parts = []
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60), ("s", 1)):
        count, seconds = divmod(seconds, size)
        if count:
            parts.append(f"{count}{unit}")
        elif parts:
            break
    return " ".join(parts[:2]) or "0s"


def plain(data: bytes) -> str:
    r"""Return what a program put out as text that nothing obeys.

    >>> plain(b"\x1b[31mred\x1b[0m\r\n50%\r100%\x07")
    'red\n50%\n100%'
    """
    text = _ESCAPES.sub("", data.decode(errors="replace"))
    return CONTROLS.sub("", text.replace("\r\n", "\n").replace("\r", "\n"))


def moment(text: str) -> str:
    """Return a time of the API for people.

    >>> moment("2026-06-06T09:00:00+02:00")
    'Sat 2026-06-06 09:00 +02:00'
    """
    wall = datetime.fromisoformat(text)
    return f"{wall:%a %Y-%m-%d %H:%M:%S}".removesuffix(":00") + f" {str(wall)[19:]}"


def say(status: object) -> str:
    return str(status).replace("_", " ")


_KINDS: Final = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}


@dataclass(frozen=True, slots=True)
class Static:
    """What pages load, held in memory; its address changes when any of it does."""

    version: str
    files: Mapping[str, bytes]

    @classmethod
    def read(cls, directory: Path) -> Static:
        paths = sorted(path for path in directory.iterdir() if path.suffix in _KINDS)
        files = {path.name: path.read_bytes() for path in paths}
        digest = sha256()
        for name, data in files.items():
            digest.update(f"{name} {len(data)}\n".encode() + data)
        return cls(digest.hexdigest()[:16], files)

    def answer(self, version: str, name: str) -> Response:
        data = self.files.get(name)
        if data is None or version != self.version:
            return Response("there is no such file", HTTPStatus.NOT_FOUND, headers=HEADERS)
        kept = {"Cache-Control": "private, max-age=31536000, immutable"}
        kind = _KINDS[Path(name).suffix]
        return Response(data, media_type=kind, headers={**HEADERS, **kept})


class PageError(HoraeError, code="page", exit_code=Exit.NOT_FOUND):
    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(reason)


KEPT: Final = 20_000  # texts whose tags are remembered
_KIND: Final = "workflow"  # what every workflow is tagged with tells none from another


def tags_of(text: str) -> tuple[str, ...]:
    r"""Return the tags of what a text defines.

    >>> tags_of("* Water the beds :workflow:garden:daily:\n** Fetch :component:\n")
    ('garden', 'daily')
    >>> tags_of("---\nid: 1\ntitle: Sow\nstatus: todo\ntags: [garden]\n---\n")
    ('garden',)
    >>> tags_of("Report for {{fire_time}}.")
    ()
    """
    if text.startswith("---"):
        task = parse(text).task
        return () if task is None else task.tags
    if not text.startswith("*"):
        return ()
    headlines = read(text.partition("\n")[0]).headlines
    return tuple(tag for tag in headlines[0].tags if tag != _KIND) if headlines else ()


_HERE: Final = Path(__file__).parent
ZONE: Final = "horae-zone"  # the cookie with the zone in which a browser shows times
_TEXT: Final = 200  # characters of one field of a query
_INBOX: Final = timedelta(seconds=5)  # within which an inbox is not made anew without an event
_LINES: Final = 40  # of an inbox
_SHOWN: Final = 100  # pages of a view whose last look is remembered


@dataclass(frozen=True, slots=True)
class PageContext:
    """What every page is made from; without a root there are no plans to show."""

    front: Front
    ledger: Ledger
    static: Static
    templates: jinja2.Environment
    root: Path | None = None
    most_plans: int = MOST
    _tags: dict[str, tuple[str, ...]] = field(default_factory=dict)  # by the digest of a text
    _inbox: dict[int, tuple[timedelta, Inbox]] = field(default_factory=dict)  # by the last event

    _blames: dict[tuple[str, str, str], Blame | None] = field(default_factory=dict)

    async def blame(self, found: Listed) -> Blame | None:
        """Return the commit that last changed the rule of an entry, if its plan is under git."""
        if self.root is None:
            return None
        key = found.item.origin.file, found.mark.address, found.mark.rule
        if key not in self._blames:
            if len(self._blames) >= KEPT:
                self._blames.clear()
            self._blames[key] = await rule_blame(self.root, found)
        return self._blames[key]

    async def inbox(self) -> Inbox:
        """Return the inbox, which every page counts: as it is after the last event, or just was."""
        event, elapsed = await self.ledger.newest_event(), self.front.clock.elapsed()
        known = self._inbox.get(event)
        if known is None or elapsed - known[0] > _INBOX:
            self._inbox.clear()
            known = self._inbox[event] = elapsed, await self.front.service.inbox(limit=_LINES)
        return known[1]

    async def tags(self, found: Listed) -> tuple[str, ...]:
        digest = found.item.digest if isinstance(found.item, Entry) else ""
        if not digest:
            return ()
        if digest not in self._tags:
            if len(self._tags) >= KEPT:
                self._tags.clear()
            self._tags[digest] = tags_of(await self.ledger.text(digest) or "")
        return self._tags[digest]

    async def tagged(self, tag: str) -> frozenset[int]:
        """Return the numbers of the entries with a tag."""
        known = await self.ledger.entries()
        return frozenset({each.number for each in known if tag in await self.tags(each)})

    async def plans(self) -> list[str]:
        if self.root is None:
            return []
        found = await asyncio.to_thread(find_plans, self.root, most=self.most_plans)
        return [os.path.relpath(each, self.root) for each in found.plans]

    async def plan(self, file: str) -> str:
        """Return the text of one of the plans; of anything else nothing is ever read."""
        if self.root is None or file not in await self.plans():
            raise PageError(f"there is no plan {file[:200]!r}; /plan lists the plans")
        return (await asyncio.to_thread(read_plan, self.root / file, root=self.root)).text


class Sheet(NamedTuple):
    """A template and what it says; *every* is how many seconds it may go without a new look."""

    template: str
    title: str
    nav: str
    values: dict[str, object]
    every: int = 30


Show: TypeAlias = "Callable[[PageRequest], Awaitable[Sheet]]"


class PageView(NamedTuple):
    """A page: where it is, who says what is on it, and what leads to it from every other page."""

    path: str
    show: Show
    name: str = ""
    word: str = ""  # in the list of pages; nothing if it is not in it


def templates(views: Sequence[PageView]) -> jinja2.Environment:
    """Return what writes pages; those of *views* that have a word are on every one of them."""
    files, strict = jinja2.FileSystemLoader(_HERE / "templates"), jinja2.StrictUndefined
    made = jinja2.Environment(loader=files, autoescape=True, finalize=_shown, undefined=strict)
    made.trim_blocks = made.lstrip_blocks = True
    made.filters |= {"cost": cost_text, "linked": linked, "moment": moment}
    made.filters |= {"rough": rough, "long": length_text, "say": say, "actor": actor_words}
    made.filters["with_zone"] = with_zone
    made.globals |= {"requested": requested_words, "actions": ACTIONS, "fields": fields}
    made.filters["path"] = lambda text: quote(str(text), safe="/")
    made.globals["nav_items"] = [(each.name, each.path, each.word) for each in views if each.word]
    return made


_PLACE: Final = re.compile(r"\(([^():]+\.org):([0-9]+)\)")
_CODE: Final = re.compile(r"`([^`]+)`")


def linked(text: str) -> Markup:
    """Return a text in which a place in a plan leads there, and commands are code.

    >>> print(linked("Dig (a b.org:7) <late>: `horae why`"))
    Dig (<a href="/plan/a%20b.org?line=7#L7">a b.org:7</a>) &lt;late&gt;: <code>horae why</code>
    """
    parts = _PLACE.split(harmless(text))
    made = coded(parts[0])
    for file, line, rest in zip(parts[1::3], parts[2::3], parts[3::3], strict=True):
        way = f"/plan/{quote(file, safe='/')}?line={line}#L{line}"
        made += Markup('(<a href="{}">{}:{}</a>)').format(way, file, line) + coded(rest)
    return made


def coded(text: str) -> Markup:
    parts = _CODE.split(text)
    codes = (Markup("<code>{}</code>").format(each) for each in parts[1::2])
    return escape(parts[0]) + Markup().join(
        part + escape(rest) for part, rest in zip(codes, parts[2::2], strict=True)
    )


def _shown(value: object) -> object:
    """Return what is shown of a value: of a text what nothing obeys; markup stays markup."""
    if not isinstance(value, str) or not CONTROLS.search(value):
        return value
    return type(value)(harmless(value))


def written(
    templates: jinja2.Environment,
    sheet: Sheet,
    look: PageTime,
    version: str,
    common: Mapping[str, object],
) -> str:
    """Return a page; *common* is what every page says of the engine."""
    about = {"title": sheet.title, "nav": sheet.nav, "every": sheet.every, "look": look}
    about |= {"static": f"/static/{version}", "version": version}
    template = templates.get_template(sheet.template)
    return template.render({**sheet.values, **common, **about})


def endpoint_of(context: PageContext, show: Show) -> Callable[[Request], Awaitable[Response]]:
    async def page(request: Request) -> WrittenPage:
        asked, status = PageRequest(context, request), HTTPStatus.OK
        # First: what happens while the page is made is looked at again.
        event = await context.ledger.newest_event()
        try:
            sheet = await show(asked)
        except HoraeError as error:
            status = STATUSES.get(error.exit_code, HTTPStatus.INTERNAL_SERVER_ERROR)
            if isinstance(error, HttpRequestError):
                status = HTTPStatus(error.status)
            sheet = Sheet("error.html", status.phrase, "", {"error": str(error)})
        engine, look = context.front.engine, asked.look
        caller, keys = caller_of(request.scope), context.front.keys
        common = {
            "event": event,
            "trouble": None if engine.trouble is None else str(engine.trouble),
            "started_at": engine.started_at,
            "attention": (await context.inbox()).count,
            "plan_zone": context.front.zone_name,
            "token": keys.form(caller) if caller and keys else "",
        }
        # Not in the loop: a long page takes a while to write, and the engine must not wait.
        write, version = partial(written, context.templates, sheet), context.static.version
        text = await asyncio.to_thread(write, look, version, common)
        now, said = look.iso(look.now), look.full(look.now)
        return WrittenPage(text, status, sheet.every, event, now, said)

    # What browsers were given last: each asks at once what changes of it.
    shown: dict[tuple[str, str], ShownPage] = {}

    def of(request: Request) -> tuple[str, str]:
        return str(request.url), request.headers.get("cookie", "")

    async def endpoint(request: Request) -> Response:
        if "text/event-stream" not in request.headers.get("accept", ""):
            made = await page(request)
            shown[of(request)] = ShownPage(hash(steady(made.text)), made.event, made.every)
            if len(shown) > _SHOWN:
                del shown[next(iter(shown))]
            answer = HTMLResponse(made.text.encode(errors="replace"), made.status, headers=HEADERS)
            return await shrunk(request, answer)
        seen = request.headers.get("last-event-id", "")
        feed: Feed = request.app.state.feed
        after = int(seen) if is_number(seen) else -1
        known = shown.pop(of(request), None)
        parts: AsyncIterator[bytes] = changes(
            partial(page, request),
            feed,
            seen=after,
            shown=known if known is not None and known.event == after else None,
        )
        headers, kind = {**HEADERS, "Vary": "Accept"}, "text/event-stream"
        if takes_gzip(request):
            parts, headers = compressed(parts), {**headers, "Content-Encoding": "gzip"}
        return StreamingResponse(parts, media_type=kind, headers=headers)

    return endpoint


def _zone(wanted: str | None, plan: str) -> str:
    """Return the zone in which a browser wants its times; that of the plan if it says none."""
    try:
        return zone(wanted).key if wanted else plan
    except ScheduleError:
        return plan


class PageRequest:
    """A request for a page: its query field by field, and what the page is made from."""

    def __init__(self, context: PageContext, request: Request) -> None:
        self._query = request.query_params
        self.context, self.front, self.ledger = context, context.front, context.ledger
        plan = context.front.zone_name
        self.look = PageTime(context.front.clock.now(), _zone(request.cookies.get(ZONE), plan))
        self.url_path, self.path = request.url.path, request.path_params

    @property
    def path_number(self) -> int:
        if not is_number(text := self.path["number"]):
            raise PageError(f"{text[:50]!r} is not a number; follow a link from another page")
        return int(text)

    def text(self, name: str) -> str:
        text = self._query.get(name, "")
        if len(text) > _TEXT:
            raise RequestError(f"{name} must have at most {_TEXT:,} characters")
        return text.strip()

    def number(self, name: str) -> int | None:
        text = self._query.get(name)
        if text is not None and not is_number(text):
            raise RequestError(f"{name} must be a whole number, not {text[:100]!r}")
        return None if text is None else int(text)

    def moment(self, name: str) -> datetime | None:
        moment = moment_of(name, self.text(name))
        if moment is not None and not 100 < moment.year < 9900:
            raise RequestError(f"{name} must be in the years 101 to 9899")
        return moment

    def day(self, name: str) -> date | None:
        text = self.text(name)
        try:
            day = date.fromisoformat(text) if text else None
        except ValueError:
            raise RequestError(f"{name} must be a date like 2026-06-06, not {text!r}") from None
        if day is not None and not 100 < day.year < 9900:
            raise RequestError(f"{name} must be in the years 101 to 9899")
        return day

    def status(self, name: str) -> Status | None:
        text = self.text(name)
        if text and text not in RECEIPT_STATUSES:
            raise RequestError(f"{name} must be one of {', '.join(RECEIPT_STATUSES)}")
        return Status(text) if text else None
