"""The page: now, next, late and why, for people who would rather look than read.

Every page is written here, on the server, from what the desk and the ledger say, and holds
only the rows that it shows. Small modules of our own then keep it true: they ask for the same
page again when something has happened and change what differs. What a person does on a page is
a call of the API. Nothing is fetched from elsewhere; every text is escaped.
"""

from __future__ import annotations

import asyncio
import math
import os
import re
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from functools import lru_cache
from hashlib import sha256
from http import HTTPStatus
from itertools import islice
from pathlib import Path
from stat import S_ISREG
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias
from urllib.parse import quote

import jinja2
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from horae.engine.desk import RequestError
from horae.engine.why import Window, length_text, nearest, parse_ask, policy_words, stamp
from horae.errors import Exit, HoraeError
from horae.kernel.org.document import read
from horae.rules.armed import cron_rule, scan_plan, tasks_of
from horae.rules.board import STATUSES
from horae.rules.check import check
from horae.rules.entry import CronRule, Entry, OnceRule, RepeaterRule, Work
from horae.rules.keeper import read_memory
from horae.rules.misfire import Status
from horae.rules.project import project
from horae.rules.receipt import BAD, ENDS, OPEN
from horae.rules.seams import seams
from horae.rules.words import moment_text, words
from horae.server.answer import HEADERS
from horae.server.front import offered
from horae.timing.cron_count import count_any
from horae.timing.duration import format_duration, parse_duration
from horae.timing.repeater import Kind
from horae.timing.rfc3339 import parse_rfc3339
from horae.timing.zone import instant, local, zone

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
    from zoneinfo import ZoneInfo

    from starlette.requests import Request

    from horae.engine.desk import AgentLine, EntryLine, Line
    from horae.engine.ports import Filed, Ledger, Listed, Run
    from horae.rules.lifecycle import Lifecycle
    from horae.server.front import Front
    from horae.timing.cron import Cron

ROWS: Final = 60  # entries in a timeline
MARKS: Final = 200  # of one of them; what is more is drawn as one band
RECEIPTS: Final = 1000  # in one picture
ENTRIES: Final = 1000  # that a picture of the time to come looks at
DAYS: Final = 300  # entries that a calendar looks at
LINES: Final = 2000  # of a plan on one page
STEPS: Final = 60  # of a run
CARDS: Final = 50  # of one column of the board
TAIL: Final = 256 << 10  # bytes of a log that a page begins with
FEW: Final = 4  # so many fires of one entry on one day have a line each, as in an agenda
LOGGED: Final = 6  # lines of what runs now

_HERE: Final = Path(__file__).parent
_KINDS: Final = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
_TINY: Final = timedelta(microseconds=1)
_DAY: Final = timedelta(days=1)
_FAR: Final = timedelta(days=366 * 50)
_LONGEST_SPAN: Final = timedelta(days=366)
_SHORTEST_SPAN: Final = timedelta(minutes=1)
_TEXT: Final = 200  # characters of one field of a query
_WALKED: Final = 100  # moments of one entry in a month that are walked before they are counted
_GOING: Final = frozenset({Status.STARTING, Status.RUNNING})
_MONTH: Final = re.compile(r"(\d{4})-(\d\d)", re.ASCII)
_ESCAPES: Final = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?"
    r"|[PX^_][^\x1b]*(?:\x1b\\)?|[@-Z\\-_])"
)
_CONTROLS: Final = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]"
)
_STATUSES: Final[Mapping[int, HTTPStatus]] = {
    Exit.USAGE: HTTPStatus.BAD_REQUEST,
    Exit.NOT_FOUND: HTTPStatus.NOT_FOUND,
    Exit.CONFLICT: HTTPStatus.CONFLICT,
    Exit.UNAUTHORISED: HTTPStatus.FORBIDDEN,
    Exit.TEMPORARY: HTTPStatus.SERVICE_UNAVAILABLE,
    Exit.UNREACHABLE: HTTPStatus.SERVICE_UNAVAILABLE,
}
_NAV: Final = (
    ("now", "/", "Now"),
    ("timeline", "/timeline", "Timeline"),
    ("calendar", "/calendar", "Calendar"),
    ("agents", "/crew", "Agents"),
    ("board", "/board", "Board"),
    ("plan", "/plan", "Plan"),
)


class PageError(HoraeError):
    """A page that is not there."""

    code = "page"
    exit_code = Exit.NOT_FOUND

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(reason)


async def _no_day(_: Listed) -> Lifecycle | None:
    return None


async def _no_plans() -> Sequence[str]:
    return ()


async def _no_plan(file: str) -> str:
    raise PageError(f"{file} cannot be read from here")


@dataclass(frozen=True, slots=True)
class Papers:
    """What pages show that stands in files; whoever wires the house hands it in.

    `plans` names the plans beneath the root, `plan` gives the text of one of them, and `day`
    the lifecycle of an agent, if it has one.
    """

    plans: Callable[[], Awaitable[Sequence[str]]] = _no_plans
    plan: Callable[[str], Awaitable[str]] = _no_plan
    day: Callable[[Listed], Awaitable[Lifecycle | None]] = _no_day


def routes(front: Front, papers: Papers | None = None) -> list[Route]:
    """Return the pages of an engine, and what they load."""
    static = Static.read(_HERE / "static")
    ledger = offered(front.ledger, "ledger to read")
    house = _House(front, ledger, papers or Papers(), static, _templates())
    pages: tuple[tuple[str, _Show], ...] = (
        ("/", _now),
        ("/timeline", _timeline),
        ("/calendar", _calendar),
        ("/crew", _crew),
        ("/board", _board),
        ("/plan", _plans),
        ("/plan/{file:path}", _plan),
        ("/receipts/{number}", _receipt),
        ("/runs/{number}", _run),
        ("/entries/{entry:path}/why", _why),
        ("/entries/{entry:path}", _entry),
    )

    async def file(request: Request) -> Response:
        return static.answer(request.path_params["version"], request.path_params["name"])

    async def icon(_: Request) -> Response:
        return static.answer(static.version, "mark.svg")

    return [
        Route("/static/{version}/{name}", file, methods=["GET"]),
        Route("/favicon.ico", icon, methods=["GET"]),
        *(Route(path, _endpoint(house, show), methods=["GET"]) for path, show in pages),
    ]


@dataclass(frozen=True, slots=True)
class Static:
    """What pages load, held in memory; its address changes when any of it does."""

    version: str
    files: Mapping[str, bytes]

    @classmethod
    def read(cls, directory: Path) -> Static:
        """Return the files of a directory."""
        paths = sorted(path for path in directory.iterdir() if path.suffix in _KINDS)
        files = {path.name: path.read_bytes() for path in paths}
        digest = sha256()
        for name, data in files.items():
            digest.update(f"{name} {len(data)}\n".encode() + data)
        return cls(digest.hexdigest()[:16], files)

    def answer(self, version: str, name: str) -> Response:
        """Return one file; what is asked for by its right version may be kept for ever."""
        data = self.files.get(name)
        if data is None or version != self.version:
            return Response("there is no such file", HTTPStatus.NOT_FOUND, headers=HEADERS)
        kept = {"Cache-Control": "private, max-age=31536000, immutable"}
        kind = _KINDS[Path(name).suffix]
        return Response(data, media_type=kind, headers={**HEADERS, **kept})


@dataclass(frozen=True, slots=True)
class Look:
    """From when and where a page is looked at: all its times are in one zone."""

    now: datetime
    zone: str

    @property
    def place(self) -> ZoneInfo:
        """The zone itself."""
        return zone(self.zone)

    @property
    def today(self) -> date:
        """The day that it is there."""
        return local(self.now, self.place).date()

    def iso(self, moment: datetime) -> str:
        """Return a moment for machines."""
        return stamp(moment, self.zone) or ""

    def full(self, moment: datetime, zone_name: str = "") -> str:
        """Return a moment in full, also in the zone of its entry if that is another."""
        own = moment_text(moment, zone_name) if zone_name not in {"", self.zone} else ""
        return moment_text(moment, self.zone) + (f" ({own})" if own else "")

    def short(self, moment: datetime) -> str:
        """Return a moment as short as it is clear today.

        >>> look = Look(datetime(2026, 6, 6, 8, tzinfo=UTC), "UTC")
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

    def clock(self, moment: datetime) -> str:
        """Return the time of day."""
        return f"{local(moment, self.place):%H:%M}"

    def away(self, moment: datetime) -> str:
        """Return how far away a moment is."""
        far = abs(moment - self.now)
        said = rough(far)
        return f"in {said}" if moment > self.now else f"{said} ago"

    def begin(self, day: date) -> datetime:
        """Return when a day begins."""
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
    return _CONTROLS.sub("", text.replace("\r\n", "\n").replace("\r", "\n"))


# How a page is made


@dataclass(frozen=True, slots=True)
class _House:
    """What every page is made from."""

    front: Front
    ledger: Ledger
    papers: Papers
    static: Static
    templates: jinja2.Environment

    def look(self) -> Look:
        """Look from now."""
        return Look(self.front.clock.now(), self.front.zone_name)


class _Sheet(NamedTuple):
    """A template and what it says; *every* is how many seconds it may go without a new look."""

    template: str
    title: str
    nav: str
    values: dict[str, object]
    every: int = 30


_Show: TypeAlias = "Callable[[_House, Look, Request], Awaitable[_Sheet]]"


def _templates() -> jinja2.Environment:
    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_HERE / "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {"rough": rough, "long": length_text, "path": _path, "say": _say}
    made.globals["nav_items"] = _NAV
    return made


def _path(text: object) -> str:
    """Return a text as a part of an address."""
    return quote(str(text), safe="/")


def _say(status: object) -> str:
    """Return a status as people read it."""
    return str(status).replace("_", " ")


def _endpoint(house: _House, show: _Show) -> Callable[[Request], Awaitable[Response]]:
    """Return what starlette calls for a page."""

    async def endpoint(request: Request) -> Response:
        look, status = house.look(), HTTPStatus.OK
        try:
            sheet = await show(house, look, request)
        except HoraeError as error:
            status = _STATUSES.get(error.exit_code, HTTPStatus.INTERNAL_SERVER_ERROR)
            sheet = _Sheet("error.html", status.phrase, "", {"error": str(error)})
        trouble = house.front.almanac.trouble
        common = {
            "look": look,
            "title": sheet.title,
            "nav": sheet.nav,
            "every": sheet.every,
            "event": await house.ledger.newest_event(),
            "static": f"/static/{house.static.version}",
            "version": house.static.version,
            "trouble": None if trouble is None else str(trouble),
            "started_at": house.front.almanac.started_at,
        }
        template = house.templates.get_template(sheet.template)
        # Not in the loop: a long page takes a while to write, and the engine must not wait.
        text = await asyncio.to_thread(template.render, {**sheet.values, **common})
        # A name of a file may hold what cannot be written in UTF-8.
        return HTMLResponse(text.encode(errors="replace"), status, headers=HEADERS)

    return endpoint


class _Asked:
    """The query of a request, field by field; what makes no sense is an error that says so."""

    def __init__(self, request: Request) -> None:
        self._given = request.query_params

    def text(self, name: str) -> str:
        """Return a text; nothing if it is not there."""
        text = self._given.get(name, "").strip()
        if len(text) > _TEXT:
            raise RequestError(f"{name} has at most {_TEXT} characters")
        return text

    def number(self, name: str) -> int | None:
        """Return a whole number."""
        text = self.text(name)
        return None if not text else _number(text)

    def moment(self, name: str) -> datetime | None:
        """Return a moment in RFC 3339."""
        text = self.text(name)
        if not text:
            return None
        moment = parse_rfc3339(text)
        if not 100 < moment.year < 9900:
            raise RequestError(f"{name} lies in the years 101 to 9899")
        return moment.astimezone(UTC)

    def day(self, name: str) -> date | None:
        """Return a day such as 2026-06-06."""
        text = self.text(name)
        try:
            day = date.fromisoformat(text) if text else None
        except ValueError:
            raise RequestError(f"{name} is a day such as 2026-06-06, not {text!r}") from None
        if day is not None and not 100 < day.year < 9900:
            raise RequestError(f"{name} lies in the years 101 to 9899")
        return day

    def status(self, name: str) -> Status | None:
        """Return a status by its name."""
        text = self.text(name)
        if text and text not in set(Status):
            raise RequestError(f"{name} is one of {', '.join(Status)}")
        return Status(text) if text else None


def _number(text: str) -> int:
    """Return a number that the ledger may have given."""
    if not (text.isascii() and text.isdecimal() and len(text) <= 18):
        raise PageError(f"{text[:50]!r} is not a number; follow a link from another page")
    return int(text)


# Now


class _Going(NamedTuple):
    """Something that runs, and the last lines it has put out."""

    line: Line
    run: Run | None
    lines: Sequence[str]


async def _now(house: _House, look: Look, _: Request) -> _Sheet:
    """What runs, waits and comes, and what is late, missed or failed, and why."""
    front = house.front
    stands = await front.desk.status(front.facts(), limit=12)
    going = [await _going(front, line) for line in stands.running]
    obstacles = islice(front.almanac.gate.obstacles(now=look.now), 100)
    values: dict[str, object] = {
        "stands": stands,
        "going": going,
        "reasons": {each.ask.number: each.reason for each in obstacles},
        "slots": front.almanac.gate.capacity.slots,
        "held": len(front.almanac.gate.holders),
        "band": await _band(house, look),
        "Status": Status,
    }
    return _Sheet("now.html", "Now", "now", values, every=1 if going else 15)


async def _going(front: Front, line: Line) -> _Going:
    runs = (await front.desk.receipt(line.filed.number)).runs
    if not runs:
        return _Going(line, None, ())
    text, _ = await asyncio.to_thread(_tail, front.log_of(runs[-1]), 4096)
    return _Going(line, runs[-1], text.rstrip("\n").split("\n")[-LOGGED:] if text else ())


def _tail(path: Path, most: int) -> tuple[str, int]:
    """Return the end of a log, from the beginning of a line on, and how long all of it is."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return "", 0
    try:
        found = os.fstat(descriptor)
        if not S_ISREG(found.st_mode):
            return "", 0
        start = max(0, found.st_size - most)
        data = os.pread(descriptor, most, start)
    finally:
        os.close(descriptor)
    end = start + len(data)
    if start:
        data = data.partition(b"\n")[2]
    return plain(data), end


class Mark(NamedTuple):
    """Something drawn on a line of time: where in percent, how wide, what, and what it says."""

    x: float
    width: float
    kind: str
    said: str
    href: str = ""


async def _band(house: _House, look: Look) -> list[Mark]:
    """Return the day that it is as marks on one line: what was, and what is to come."""
    start, end = look.begin(look.today), look.begin(look.today + _DAY)
    scale = _Scale(start, end)
    page = await house.ledger.receipts(since=start, until=look.now, limit=RECEIPTS)
    known = await house.ledger.coming(limit=100)

    def drawn() -> list[Mark]:
        was = [scale.tick(each, look) for each in reversed(page.receipts)]
        return [*was, *(mark for each in known for mark in scale.coming(each, look))]

    return await asyncio.to_thread(drawn)


class _Scale(NamedTuple):
    """A stretch of time laid out from 0 to 100."""

    start: datetime
    end: datetime

    def x(self, moment: datetime) -> float:
        """Return where a moment is; what lies outside is at the edge."""
        part = (moment - self.start) / (self.end - self.start)
        return round(100 * min(1.0, max(0.0, part)), 3)

    def tick(self, filed: Filed, look: Look) -> Mark:
        """Return a receipt as one mark at its planned moment."""
        at = filed.receipt.planned_at
        said = f"{filed.title}: {_say(filed.status)}, {look.short(at)}"
        return Mark(self.x(at), 0, filed.status, said, f"/receipts/{filed.number}")

    def coming(self, found: Listed, look: Look) -> Iterator[Mark]:
        """Yield the next moments of an entry from now on."""
        if isinstance(found.item, Entry) and look.now < self.end:
            for each in islice(project(found.item, look.now, self.end - _TINY), 48):
                yield self.future(found, each.at, is_estimate=each.is_estimate, look=look)

    def future(self, found: Listed, at: datetime, *, is_estimate: bool, look: Look) -> Mark:
        """Return a moment that is still to come."""
        kind = "estimate" if is_estimate else "coming"
        said = f"{found.mark.title}: {look.short(at)}{', an estimate' if is_estimate else ''}"
        return Mark(self.x(at), 0, kind, said, f"/entries/{found.number}")

    def bar(self, filed: Filed, look: Look) -> Iterator[Mark]:
        """Yield what became of a receipt: its moment, how late it was, and how long it took."""
        receipt, href = filed.receipt, f"/receipts/{filed.number}"
        at, has_run = receipt.planned_at, bool(filed.attempts or filed.status in _GOING)
        over = (filed.ended_at or look.now) if has_run else receipt.through_at or at
        if over < self.start:
            return
        said = f"{filed.title}: {_say(filed.status)}. Planned {look.short(at)}. {receipt.reason}"
        if receipt.through_at is not None:
            width = self.x(receipt.through_at) - self.x(at)
            yield Mark(self.x(at), width, f"range {filed.status}", said, href)
            return
        begun = max(filed.decided_at, receipt.start_at)
        if begun > at + timedelta(seconds=1):
            yield Mark(self.x(at), self.x(begun) - self.x(at), "late", said)
        if has_run:
            width = max(0.0, self.x(over) - self.x(begun))
            yield Mark(self.x(begun), width, f"bar {filed.status}", said, href)
        else:
            yield Mark(self.x(at), 0, f"mark {filed.status}", said, href)

    def ticks(self, look: Look) -> list[tuple[float, str]]:
        """Return the labels under a stretch of time: at most nine round moments."""
        step = next((each for each in _STEPS if (self.end - self.start) / each <= 8), _STEPS[-1])
        wall = local(self.start, look.place)
        midnight = datetime.combine(wall.date(), time.min)
        first = midnight + math.ceil((wall - midnight) / step) * step
        found = []
        for index in range(9):
            at = instant(first + index * step, look.place)
            if at <= self.end:
                shown = local(at, look.place)
                form = f"{shown:%a} {shown.day} {shown:%b}" if step >= _DAY else f"{shown:%H:%M}"
                if step < _DAY and shown.hour == shown.minute == 0:
                    form = f"{shown:%a} {shown.day}"
                found.append((self.x(at), form))
        return found


_STEPS: Final = tuple(
    timedelta(minutes=each)
    for each in (
        1,
        2,
        5,
        10,
        15,
        30,
        60,
        120,
        180,
        360,
        720,
        1440,
        2880,
        10080,
        20160,
        43200,
        86400,
    )
)


# Timeline


@dataclass(frozen=True, slots=True)
class _Row:
    """One entry on the timeline."""

    number: int
    title: str
    said: str  # the whole row in words
    marks: list[Mark] = field(default_factory=list)


async def _timeline(house: _House, look: Look, request: Request) -> _Sheet:
    """What was planned and what became of it, past and to come in one picture."""
    asked = _Asked(request)
    span = _span(asked.text("span"))
    start = (asked.moment("from") or look.now - span * 0.4).replace(second=0, microsecond=0)
    scale = _Scale(start, start + span)
    wanted, agent = asked.text("q").casefold(), asked.text("agent")
    status = asked.status("status")
    ledger = house.ledger
    page = await ledger.receipts(
        since=start - span / 8,
        until=scale.end,
        statuses=() if status is None else [status],
        limit=RECEIPTS,
    )
    by_entry: dict[int, list[Filed]] = defaultdict(list)
    for filed in reversed(page.receipts):
        by_entry[filed.entry].append(filed)
    shown: dict[int, Listed] = {}
    if status is None:
        for each in await ledger.coming(limit=ENTRIES):
            if each.next_at is not None and each.next_at <= scale.end:
                shown[each.number] = each
    for number in by_entry.keys() - shown.keys():
        found = await ledger.entry(number)
        if found is not None:
            shown[number] = found
    fitting = [each for each in shown.values() if _fits(each, wanted, agent)]
    fitting.sort(key=lambda each: (each.mark.title.casefold(), each.number))
    rows = await asyncio.to_thread(
        lambda: [_row(each, by_entry[each.number], scale, look) for each in fitting[:ROWS]]
    )
    values: dict[str, object] = {
        "rows": rows,
        "more": len(fitting) - len(rows),
        "is_cut": page.cursor is not None,
        "ticks": scale.ticks(look),
        "now_x": scale.x(look.now) if scale.start < look.now < scale.end else None,
        "start": scale.start,
        "end": scale.end,
        "span": format_duration(span),
        "spans": ("1h", "6h", "1d", "1w", "30d"),
        "is_fixed": bool(asked.text("from")),
        "q": asked.text("q"),
        "agent": agent,
        "agents": sorted({name for each in shown.values() for name in _agents(each)}),
        "status": status,
        "statuses": list(Status),
    }
    return _Sheet("timeline.html", "Timeline", "timeline", values)


def _span(text: str) -> timedelta:
    """Return how much time a timeline shows."""
    span = parse_duration(text) if text else _DAY
    return min(_LONGEST_SPAN, max(_SHORTEST_SPAN, span))


def _agents(found: Listed) -> tuple[str, ...]:
    return found.item.agents if isinstance(found.item, Entry) else ()


def _fits(found: Listed, wanted: str, agent: str) -> bool:
    """Tell whether an entry is one of those that were asked for."""
    if agent and agent not in _agents(found):
        return False
    about = f"{found.mark.title} {found.item.origin} {found.source}".casefold()
    return not wanted or wanted in about


def _row(found: Listed, filed: Sequence[Filed], scale: _Scale, look: Look) -> _Row:
    """Return an entry on the timeline."""
    marks = [mark for each in filed for mark in scale.bar(each, look)]
    item, coming = found.item, 0
    if isinstance(item, Entry) and found.is_armed and scale.end > look.now:
        since = max(look.now, scale.start)
        moments = list(islice(project(item, since, scale.end), MARKS + 1))
        coming = len(moments)
        if coming > MARKS:
            coming = count(item, since, scale.end)
            left = scale.x(moments[0].at)
            said = f"{found.mark.title}: {coming:,} moments to come"
            marks.append(Mark(left, 100 - left, "dense", said, f"/entries/{found.number}"))
        else:
            marks += [
                scale.future(found, each.at, is_estimate=each.is_estimate, look=look)
                for each in moments
            ]
    was = Counter(_say(each.status) for each in filed)
    told = [f"{number} {word}" for word, number in was.items()]
    told.append(f"{coming:,} to come")
    return _Row(found.number, found.mark.title, f"{found.mark.title}: {', '.join(told)}", marks)


def count(entry: Entry, start: datetime, end: datetime) -> int:
    """Return how many moments an entry has after *start*, up to *end*, mostly without a walk."""
    until = entry.policy.until
    end = end if until is None else min(end, until.astimezone(UTC))
    if start >= end:
        return 0
    match entry.rule:
        case CronRule(crons):
            return _count_crons(crons, start, end)
        case RepeaterRule(anchor, repeater) if repeater.kind is not Kind.RESTART:
            return repeater.how_many(anchor, start, end, zone=zone(entry.zone))
    return sum(1 for _ in islice(project(entry, start, end), 10_000))


@lru_cache(maxsize=1 << 16)
def _count_crons(crons: tuple[Cron, ...], start: datetime, end: datetime) -> int:
    # A rule names the same moments whenever it is asked, and a calendar asks for the same days.
    return count_any(crons, start, end)


# Calendar


class DayLine(NamedTuple):
    """One thing on one day, or many fires of one entry on that day."""

    at: datetime
    file: str
    line: int
    title: str
    entry: int
    what: str
    through: datetime | None = None
    times: int = 1


def day_lines(
    found: Listed, day: tuple[datetime, datetime], *, after: datetime
) -> Iterator[DayLine]:
    """Yield the fires of an entry on a day after a moment; those of a busy day as one line."""
    entry = found.item
    if not isinstance(entry, Entry):
        return
    start, end = max(day[0] - _TINY, after), day[1] - _TINY
    first = list(islice(project(entry, start, end), FEW + 1))

    def line(index: int) -> DayLine:
        what = "estimate" if first[index].is_estimate else "fires"
        origin = entry.origin
        at = first[index].at
        return DayLine(at, origin.file, origin.line, entry.title, found.number, what)

    if len(first) <= FEW:
        yield from map(line, range(len(first)))
        return
    through, times = _last(entry, first[-1].at, end), count(entry, start, end)
    yield line(0)._replace(through=through, times=times)


def _last(entry: Entry, known: datetime, end: datetime) -> datetime:
    """Return the last moment of an entry up to *end*, of which one is known."""
    until = entry.policy.until
    edge = end if until is None else min(end, until.astimezone(UTC))
    before, _ = nearest(entry, Window(edge + _TINY, edge + _TINY))
    if before is not None:
        return before
    return max((each.at for each in islice(project(entry, known, end), 10_000)), default=known)


class _Cell(NamedTuple):
    """A day in a month."""

    day: date
    times: int
    heat: int
    is_here: bool  # in this month


async def _calendar(house: _House, look: Look, request: Request) -> _Sheet:
    """The days as today's rules have them: a month, a week, and one day in full."""
    asked = _Asked(request)
    is_week = asked.text("view") == "week"
    day = asked.day("day")
    month = _month(asked.text("month"), day or look.today)
    known = await house.ledger.coming(limit=DAYS)
    values: dict[str, object] = {"is_week": is_week, "today": look.today, "month": month}
    values |= {"is_cut": len(known) == DAYS, "day": day}
    if is_week:
        monday = (day or look.today) - timedelta(days=(day or look.today).weekday())
        days = [monday + timedelta(days=index) for index in range(7)]
        lines = await asyncio.to_thread(_lines_by_day, known, days, look)
        week = [(each, await _happened(house, each, look), lines[each]) for each in days]
        values |= {"week": week, "monday": monday}
        values |= {"before": monday - timedelta(days=7), "after": monday + timedelta(days=7)}
    else:
        values["weeks"] = await asyncio.to_thread(_weeks, known, month, look)
        values["before"] = (month - timedelta(days=1)).replace(day=1)
        values["after"] = (month + timedelta(days=32)).replace(day=1)
        shown = day or (look.today if month == look.today.replace(day=1) else month)
        lines = await asyncio.to_thread(_lines_by_day, known, [shown], look)
        values |= {"day": shown, "lines": lines[shown]}
        values["happened"] = await _happened(house, shown, look)
    return _Sheet("calendar.html", "Calendar", "calendar", values)


def _month(text: str, day: date) -> date:
    """Return the first day of the month that is asked for."""
    if not text:
        return day.replace(day=1)
    found = _MONTH.fullmatch(text)
    if found is None or not 1 <= int(found[2]) <= 12 or not 100 < int(found[1]) < 9900:
        raise RequestError(f"month is one such as 2026-06, not {text!r}")
    return date(int(found[1]), int(found[2]), 1)


def _weeks(known: Sequence[Listed], month: date, look: Look) -> list[list[_Cell]]:
    """Return the weeks of a month, each day with how much of it there is."""
    first = month - timedelta(days=month.weekday())
    days = [first + timedelta(days=index) for index in range(42)]
    times = _times_by_day(known, days, look)
    top = max(times.values(), default=0)

    def heat(number: int) -> int:
        # By the logarithm: a day with ten thousand fires leaves the others their shades.
        return 0 if not number else 1 + round(3 * math.log1p(number) / math.log1p(top))

    cells = [
        _Cell(each, times[each], heat(times[each]), each.month == month.month) for each in days
    ]
    weeks = [cells[index : index + 7] for index in range(0, 42, 7)]
    return [week for week in weeks if any(cell.is_here for cell in week)]


def _times_by_day(known: Sequence[Listed], days: Sequence[date], look: Look) -> Counter[date]:
    """Return how often anything fires on each of some days in a row."""
    times: Counter[date] = Counter()
    start, end = look.begin(days[0]) - _TINY, look.begin(days[-1] + _DAY) - _TINY
    for found in known:
        entry = found.item
        if not isinstance(entry, Entry):
            continue
        since = max(start, found.first_seen_at)
        few = list(islice(project(entry, since, end), _WALKED + 1))
        if len(few) <= _WALKED:
            times.update(local(each.at, look.place).date() for each in few)
            continue
        for day in days:
            begin = max(since, look.begin(day) - _TINY)
            times[day] += count(entry, begin, look.begin(day + _DAY) - _TINY)
    return times


def _lines_by_day(
    known: Sequence[Listed], days: Sequence[date], look: Look
) -> dict[date, list[DayLine]]:
    """Return what comes on each of some days, from now on, in order."""
    found = {}
    for day in days:
        ends = look.begin(day), look.begin(day + _DAY)
        lines = [line for each in known for line in day_lines(each, ends, after=look.now)]
        found[day] = sorted(lines, key=lambda line: (line.at, line.file, line.line))
    return found


class Past(NamedTuple):
    """What became of some moments of an entry on one day: one, or many with how they ended."""

    at: datetime
    through: datetime | None
    title: str
    entry: int
    receipt: int
    ends: Sequence[tuple[Status, int]]


async def _happened(house: _House, day: date, look: Look) -> list[Past]:
    """Return what became of the moments of a day, oldest first."""
    start, end = look.begin(day), look.begin(day + _DAY) - _TINY
    if start > look.now:
        return []
    page = await house.ledger.receipts(since=start, until=min(end, look.now), limit=RECEIPTS)
    by_entry: dict[int, list[Filed]] = defaultdict(list)
    for filed in reversed(page.receipts):
        by_entry[filed.entry].append(filed)
    return sorted(past for some in by_entry.values() for past in _pasts(some))


def _pasts(filed: Sequence[Filed]) -> Iterator[Past]:
    """Yield the receipts of an entry on one day; those of a busy day as one line."""
    groups = [[each] for each in filed] if len(filed) <= FEW else [filed]
    for group in groups:
        ends = Counter[Status]()
        for each in group:
            ends[each.status] += each.receipt.count
        first, last = group[0], group[-1]
        through = last.receipt.planned_at if last is not first else first.receipt.through_at
        at = first.receipt.planned_at
        yield Past(at, through, first.title, first.entry, last.number, ends.most_common())


# Agents


class Node(NamedTuple):
    """A state of an agent's day, drawn."""

    name: str
    x: float
    y: float
    label_x: float
    label_y: float
    anchor: str
    is_here: bool
    is_rest: bool
    said: str
    hits: str


class Ring(NamedTuple):
    """An agent's day, drawn as the loop that it is; *ways* lead from state to state."""

    nodes: list[Node]
    ways: list[str]
    said: str


class _Agent(NamedTuple):
    """An agent, its day or why that is not known, how its last ticks ended, what it carries."""

    line: AgentLine
    ring: Ring | None
    trouble: str
    ends: Sequence[Filed]
    carry: str


async def _crew(house: _House, look: Look, _: Request) -> _Sheet:  # noqa: ARG001
    """Who ticks, where each is in its day, and how its last ticks ended."""
    front, ledger = house.front, house.ledger
    stands = await front.desk.status(front.facts(), limit=40)
    agents = []
    for line in stands.agents:
        found = await ledger.entry(line.entry.number)
        if found is None:
            continue
        page = await ledger.receipts(entry=found.number, statuses=ENDS, limit=24)
        ring, trouble = await _ring(house, found, line)
        carry = read_memory(found.memory).carry
        agents.append(_Agent(line, ring, trouble, page.receipts[::-1], carry))
    busy = any(each.line.is_running for each in agents)
    return _Sheet("crew.html", "Agents", "agents", {"agents": agents}, every=2 if busy else 15)


async def _ring(house: _House, found: Listed, line: AgentLine) -> tuple[Ring | None, str]:
    """Return an agent's day as it is written now, or why it cannot be read."""
    try:
        day = await house.papers.day(found)
    except HoraeError as error:
        return None, str(error)
    if day is None:
        return None, ""
    if line.place is None:
        return draw(day, here=None), ""
    return draw(day, here=line.place["state"], hits=line.place["hits"]), ""


def draw(day: Lifecycle, *, here: str | None, hits: int = 0) -> Ring:
    """Return an agent's day as a ring: the states in the order in which they are lived."""
    order: list[str] = []
    for first in (day.start, *day.states):
        name = first
        while name not in order:
            order.append(name)
            name = day.states[name].next
    order = order[:24]
    now = here if here in day.states else day.start
    places = {name: _spot(index, len(order)) for index, name in enumerate(order)}
    nodes = []
    for name in order:
        state, (x, y), angle = day.states[name], places[name], _angle(order.index(name), len(order))
        side = math.cos(angle)
        anchor = "middle" if abs(side) < 0.3 else "start" if side > 0 else "end"
        drop = 4 if abs(side) >= 0.3 else -20 if math.sin(angle) < 0 else 30
        done = f"{hits if name == now else 0}/{state.repeat}" if state.repeat > 1 else ""
        gate = f", at most every {length_text(state.min_interval)}" if state.min_interval else ""
        said = f"{name}: {'rest' if state.kind == 'rem' else 'wake'}"
        said += f", {state.repeat} times" if state.repeat > 1 else ""
        label_x = x if anchor == "middle" else x + (20 if side > 0 else -20)
        nodes.append(
            Node(
                name if len(name) <= 18 else f"{name[:17]}…",
                x,
                y,
                round(label_x, 1),
                round(y + drop, 1),
                anchor,
                name == now,
                state.kind == "rem",
                f"{said}{gate}, then {state.next}",
                done,
            )
        )
    pairs = ((places[name], places.get(day.states[name].next)) for name in order)
    ways = [_way(a, b) for a, b in pairs if b is not None and a != b]
    told = " → ".join(order[:12])
    return Ring(nodes, ways, f"Its day: {told}, and again. It stands at {now}.")


def _angle(index: int, total: int) -> float:
    return math.tau * index / total - math.pi / 2


def _spot(index: int, total: int) -> tuple[float, float]:
    """Return the middle of a state on the ring."""
    angle = _angle(index, total)
    return round(180 + 78 * math.cos(angle), 1), round(120 + 78 * math.sin(angle), 1)


def _way(a: tuple[float, float], b: tuple[float, float]) -> str:
    """Return the way from one state to the next, a little outside the straight line."""
    (x1, y1), (x2, y2) = a, b
    length = math.hypot(x2 - x1, y2 - y1)
    ux, uy = (x2 - x1) / length, (y2 - y1) / length
    sx, sy, ex, ey = x1 + 16 * ux, y1 + 16 * uy, x2 - 19 * ux, y2 - 19 * uy
    bend = 0.16 * length
    mx, my = (sx + ex) / 2 + bend * uy, (sy + ey) / 2 - bend * ux
    return f"M{sx:.1f} {sy:.1f}Q{mx:.1f} {my:.1f} {ex:.1f} {ey:.1f}"


# Board


class _Card(NamedTuple):
    """A task as the board shows it, and its rule in words."""

    task: Mapping[str, Any]
    rule: str
    next_at: datetime | None


class _Column(NamedTuple):
    """The tasks of one status; *total* is how many there are."""

    name: str
    cards: list[_Card]
    total: int


async def _board(house: _House, look: Look, _: Request) -> _Sheet:  # noqa: ARG001
    """The tasks by status, what is in the way of each, and when it comes back."""
    tasks = house.front.tasks
    try:
        said = None if tasks is None else await tasks.board()
    except HoraeError as error:
        if error.exit_code != Exit.NOT_FOUND:
            raise
        said = None
    columns = [] if said is None else await asyncio.to_thread(_columns, said["tasks"])
    problems = [] if said is None else said["problems"]
    values: dict[str, object] = {"columns": columns, "problems": problems, "has_board": said}
    return _Sheet("board.html", "Board", "board", values)


def _columns(tasks: Sequence[Mapping[str, Any]]) -> list[_Column]:
    """Return the columns of a board; what is put away is not on it."""
    by_status: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for task in tasks:
        by_status[str(task["status"])].append(task)
    known = [name for name in STATUSES if name != "archived"]
    names = [*known, *sorted(by_status.keys() - set(STATUSES))]
    return [
        _Column(name, [_card(each) for each in by_status[name][:CARDS]], len(by_status[name]))
        for name in names
    ]


def _card(task: Mapping[str, Any]) -> _Card:
    coming = [parse_rfc3339(each) for each in islice(task["next"], 1)]
    cron, zone_name = task["cron_schedule"], task["timezone"] or "UTC"
    if not cron:
        return _Card(task, "", None)
    try:
        rule = words(cron_rule(cron, zone_name=zone_name), zone_name=zone_name)
    except HoraeError as error:
        return _Card(task, str(error), None)
    return _Card(task, f"{rule} ({zone_name})", coming[0] if coming else None)


# Plan


async def _plans(house: _House, look: Look, _: Request) -> _Sheet:  # noqa: ARG001
    """The plans that the engine keeps."""
    files = sorted(await house.papers.plans())
    problems = [str(each) for some in house.front.almanac.problems.values() for each in some]
    values: dict[str, object] = {"files": files[:ENTRIES], "more": len(files) - ENTRIES}
    return _Sheet("plans.html", "Plan", "plan", {**values, "problems": problems})


class _Text(NamedTuple):
    """A line of a plan, with what is to be said beside and below it."""

    number: int
    text: str
    facts: Sequence[tuple[str, str]]
    findings: Sequence[Any]


async def _plan(house: _House, look: Look, request: Request) -> _Sheet:
    """A plan as it is written, with what each headline means and what is odd."""
    file = request.path_params["file"]
    if file not in await house.papers.plans():  # so that nothing else is ever read
        raise PageError(f"no plan is called {file[:200]!r}; /plan lists them")
    text = await house.papers.plan(file)
    line = _Asked(request).number("line") or 1
    lines, total = await asyncio.to_thread(_texts, text, file, line, look)
    first = lines[0].number if lines else 1
    values: dict[str, object] = {"file": file, "lines": lines, "total": total, "here": line}
    values |= {"first": first, "last": first + len(lines) - 1, "most": LINES}
    return _Sheet("plan.html", file, "plan", values)


def _texts(text: str, file: str, line: int, look: Look) -> tuple[list[_Text], int]:
    """Return the lines of a plan around one of them, and how many there are in all."""
    written = text.split("\n")
    start = max(0, (line - 1) // LINES * LINES)
    facts = _facts(text, file, look)
    findings = defaultdict(list)
    for each in check(text, name=file, zone=look.zone, now=look.now):
        findings[each.line].append(each)
    shown = [
        _Text(number, _CONTROLS.sub("�", each.rstrip("\r")), facts[number], findings[number])
        for number, each in enumerate(written[start : start + LINES], start + 1)
    ]
    return shown, len(written)


def _facts(text: str, file: str, look: Look) -> dict[int, list[tuple[str, str]]]:
    """Return what the schedules of a plan mean, by line."""
    plan = read(text)
    facts: dict[int, list[tuple[str, str]]] = defaultdict(list)
    for scanned in scan_plan(plan, file=file, zone_name=look.zone):
        item = scanned.item
        said = facts[item.origin.line]
        if not isinstance(item, Entry):
            said.append(("off", f"not armed: {item.reason}"))
            continue
        said.append(("rule", words(item.rule, zone_name=item.zone)))
        coming = next(project(item, look.now, look.now + _FAR), None)
        if coming is not None:
            said.append(("next", f"next {moment_text(coming.at, item.zone)}"))
        elif isinstance(item.rule, CronRule | OnceRule | RepeaterRule):
            said.append(("off", "no moment is left"))
    for task in tasks_of(plan, file=file, zone_name=look.zone):
        for what, at in (("scheduled", task.scheduled), ("deadline", task.deadline)):
            if at is not None:
                is_over = what == "deadline" and at < look.now
                word = "overdue since" if is_over else what
                kind = "bad" if is_over else "next"
                facts[task.origin.line].append((kind, f"{word} {look.full(at)}"))
    return facts


# Entry


async def _entry(house: _House, look: Look, request: Request) -> _Sheet:
    """One entry: its rule in words, its next fires, and what became of those before."""
    asked, desk = _Asked(request), house.front.desk
    found = await desk.named(request.path_params["entry"])
    line: EntryLine = await desk.entry(str(found.number))
    history = await desk.history(
        str(found.number), limit=30, cursor=asked.number("cursor"), statuses=_statuses(asked)
    )
    item = found.item
    values: dict[str, object] = {"line": line, "history": history, "status": asked.status("status")}
    values |= {"fires": [], "changes": [], "policy": "", "is_agent": False, "item": None}
    if isinstance(item, Entry):
        fires = await asyncio.to_thread(
            lambda: list(islice(project(item, look.now, look.now + _FAR), 10))
        )
        met = seams(item.rule, zone_name=item.zone, start=look.now, end=look.now + 366 * _DAY)
        values |= {"fires": fires, "changes": [str(each) for each in islice(met, 5)]}
        values |= {"policy": policy_words(item.policy, zone_name=item.zone), "item": item}
        values["is_agent"] = item.work is Work.TICK
    busy = any(each.filed.status in OPEN for each in history.lines)
    return _Sheet("entry.html", line.title, "", values, every=2 if busy else 30)


def _statuses(asked: _Asked) -> list[Status]:
    status = asked.status("status")
    return [] if status is None else [status]


async def _why(house: _House, look: Look, request: Request) -> _Sheet:  # noqa: ARG001
    """Why an entry ran, or did not."""
    asked, desk = _Asked(request), house.front.desk
    found = await desk.named(request.path_params["entry"])
    at = asked.text("at")
    ask = parse_ask(f"{found.number}@{at}") if at else parse_ask(str(found.number))
    if at and ask.start is None:
        raise RequestError(f"{at!r} is not a moment; write it like 2026-04-01T09:00 or 2026-04-01")
    why = await desk.why(ask, limit=20)
    return _Sheet("why.html", f"Why: {why.entry.title}", "", {"why": why, "at": at})


# Run


class Box(NamedTuple):
    """A step of a run, drawn."""

    name: str
    status: str
    x: int
    y: int
    said: str


class Steps(NamedTuple):
    """The steps of a run as a graph; each line leads from one to one that took its output."""

    boxes: list[Box]
    lines: list[str]
    width: int
    height: int
    more: int


async def _receipt(house: _House, look: Look, request: Request) -> _Sheet:
    """A receipt with every attempt, and the log of the last."""
    return await _record(house, look, _number(request.path_params["number"]), None)


async def _run(house: _House, look: Look, request: Request) -> _Sheet:
    """One attempt: its record, its steps and its log."""
    found = await house.front.desk.run(_number(request.path_params["number"]))
    return await _record(house, look, found.run.receipt, found.run.number)


async def _record(house: _House, look: Look, number: int, chosen: int | None) -> _Sheet:  # noqa: ARG001
    front = house.front
    account = await front.desk.receipt(number)
    runs = {run.number: run for run in account.runs}
    run = runs.get(chosen) if chosen is not None else next(reversed(account.runs), None)
    filed = account.line.filed
    values: dict[str, object] = {"line": account.line, "filed": filed, "runs": account.runs}
    values |= {"run": run, "log": [], "log_end": 0, "is_cut": False, "steps": None, "facts": []}
    values["policy"] = policy_words(filed.policy, zone_name=account.line.zone)
    values["is_open"] = filed.status in OPEN
    values["is_bad"] = filed.status in BAD
    if run is not None:
        text, end = await asyncio.to_thread(_tail, front.log_of(run), TAIL)
        values |= {"log": text.split("\n") if text else [], "log_end": end, "is_cut": end > TAIL}
        record = run.facts.get("record")
        values["steps"] = graph(record) if isinstance(record, dict) else None
        values["facts"] = _told_facts(run)
    title = f"{account.line.title} · {_say(filed.status)}"
    return _Sheet("receipt.html", title, "", values, every=1 if filed.status in OPEN else 60)


def _told_facts(run: Run) -> list[tuple[str, str]]:
    """Return what else is known of a run, as a person reads it."""
    told = []
    for name, value in run.facts.items():
        if name in _UNTOLD or value in (None, "", 0, {}, []):
            continue
        word, form = _FACTS.get(name, (name.replace("_", " "), str))
        told.append((word, form(value)[:500]))
    return told


def _bytes(value: Any) -> str:
    """Return a number of bytes in words.

    >>> _bytes(42), _bytes(7634944), _bytes("many")
    ('42 bytes', '7.3 MiB', 'many')
    """
    if not isinstance(value, int):
        return str(value)
    for unit, size in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if value >= size:
            return f"{value / size:.1f} {unit}"
    return f"{value} bytes"


# What the record says elsewhere, or what only the engine needs to know.
_UNTOLD: Final = frozenset({"record", "seconds", "why"})
_FACTS: Final[Mapping[str, tuple[str, Callable[[Any], str]]]] = {
    "max_rss": ("memory at most", _bytes),
    "output": ("output", _bytes),
    "left_out": ("of it left out", _bytes),
    "cpu_seconds": ("processor", lambda value: f"{value} s"),
    "cost": ("cost", str),
}


def graph(record: Mapping[str, Any]) -> Steps | None:
    """Return the steps of a record as a graph, those that can begin at once on the left."""
    found = list(islice(_steps_in(record), STEPS + 1000))
    steps, more = found[:STEPS], max(0, len(found) - STEPS)
    if not steps:
        return None
    boxes: dict[str, Box] = {}
    lines: list[str] = []
    for y, step in enumerate(steps):
        name, after = str(step.get("name")), step.get("after")
        before = boxes.get(str(after)) if after else None
        column = 0 if before is None else (before.x - 10) // 190 + 1
        boxes[name] = Box(
            name if len(name) <= 22 else f"{name[:21]}…",
            str(step.get("status")),
            10 + 190 * min(column, 12),
            10 + 44 * y,
            _step_words(step),
        )
        if before is not None:
            box = boxes[name]
            x1, y1, x2, y2 = before.x + 160, before.y + 16, box.x, box.y + 16
            if before.x >= box.x:
                continue
            half = (x1 + x2) // 2
            lines.append(f"M{x1} {y1}C{half} {y1} {half} {y2} {x2} {y2}")
    width = max(box.x for box in boxes.values()) + 180
    return Steps(list(boxes.values()), lines, width, 10 + 44 * len(steps), more)


def _steps_in(record: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield the steps of a record, those of workflows inside it too."""
    waiting: list[Any] = [record]
    while waiting:
        world = waiting.pop()
        if isinstance(world, dict):
            yield from (each for each in _list(world.get("steps")) if isinstance(each, dict))
            waiting.extend(reversed(_list(world.get("sub_workflows"))))


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _step_words(step: Mapping[str, Any]) -> str:
    """Return a step in one line."""
    took = step.get("seconds")
    told = [
        str(step.get("lang") or ""),
        _say(step.get("status")),
        f"{took:.1f} s" if isinstance(took, float | int) else "",
        str(step.get("error") or "")[:200],
    ]
    return ", ".join(each for each in told if each)
