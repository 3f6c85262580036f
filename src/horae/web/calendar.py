"""What will come, and what was to come: the agenda of any window, the calendar, a preview."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from heapq import merge, nsmallest
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any, Final

from msgspec.structs import replace
from starlette.responses import Response

from horae.core.actor import Scope
from horae.core.entry import Entry, OnceRule, Origin, cron_rule, is_net, key_time, phrase_cron
from horae.core.project import TINY, project
from horae.core.text import is_number, words
from horae.core.views import CalendarPath, RequestError, Shape, Time, zoned
from horae.timing.cron import is_phrase
from horae.timing.zone import parse_rfc3339, zone
from horae.web.answer import HEADERS
from horae.web.fields import Fields, Limit, Word, about
from horae.web.front import Front, NotOfferedError, offered
from horae.web.router import Access, Routes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from horae.core.ports import Listed

routes = Routes()
FEED: Final = timedelta(days=365)  # how far a calendar looks
WEEK: Final = timedelta(days=7)


class Fire(Shape, frozen=True, kw_only=True, order=True):
    """A planned moment of an entry; ordered by time, then by where it is written."""

    at: Time
    file: str
    line: int
    entry: int
    title: str
    zone: str
    key: str
    estimate: bool


class Agenda(Shape, frozen=True, kw_only=True):
    start: Time
    end: Time
    fires: tuple[Fire, ...]
    cursor: str | None


class AgendaQuery(Fields, frozen=True, kw_only=True):
    start: Annotated[Time | None, about("start of the window; default: now")] = None
    end: Annotated[Time | None, about("end of the window, exclusive; default: a week later")] = None
    entry: Annotated[Word, about("only this entry")] = ""
    limit: Limit = 100
    cursor: Annotated[Word, about("cursor of the previous page")] = ""


@routes.get("/api/v1/agenda", Scope.READ, also=(404,))
async def agenda(front: Front, query: AgendaQuery) -> Agenda:
    """List the scheduled times in a window, past or future, in order."""
    ledger = offered(front.ledger, "agenda")
    now = front.clock.now()
    start = query.start or now
    end = query.end or start + WEEK
    if end <= start:
        raise RequestError("`to` must be later than `from`")
    since, skip, most = start, 0, query.limit
    if query.cursor:  # the time to go on at, and how many of it were shown
        at, many = query.cursor.rpartition(".")[::2]
        if not is_number(many) or int(many) > 10**6:
            raise RequestError("cursor must be the cursor of an earlier response")
        since, skip = parse_rfc3339(at).astimezone(UTC), int(many)
    found = [await front.service.named(query.entry)] if query.entry else await ledger.entries()

    def look() -> list[Fire]:
        near = nearest(found, since, skip + most + 1) if since >= now else found
        return list(islice(fires(near, since, end), skip, skip + most + 1))

    page = await asyncio.to_thread(look)
    shown = page[:most]
    more = None
    if len(page) > most:
        last = shown[-1].at
        before = skip if last == since else 0
        same = sum(1 for each in shown if each.at == last)
        more = f"{key_time(last)}.{before + same}"
    return Agenda(
        start=zoned(start, front.zone_name),
        end=zoned(end, front.zone_name),
        fires=tuple(replace(each, at=zoned(each.at, each.zone)) for each in shown),
        cursor=more,
    )


def nearest(entries: list[Listed], since: datetime, count: int) -> list[Listed]:
    """Return the entries that the first *count* moments from now on, or later, can be of."""
    timed = {
        each.number: each.next_at
        for each in entries
        if each.is_armed and each.next_at is not None and each.next_at >= since
    }
    if len(timed) <= count:
        return entries
    last = nsmallest(count, timed.values())[-1]
    return [each for each in entries if timed.get(each.number, since) <= last]


def fires(entries: list[Listed], start: datetime, end: datetime) -> Iterator[Fire]:
    """Yield the moments of all entries from *start* up to *end*, which is not in it."""
    return merge(*(_fires(each, start, end) for each in entries))


def _fires(found: Listed, start: datetime, end: datetime) -> Iterator[Fire]:
    entry = found.item
    if not isinstance(entry, Entry) or found.gone_at is not None or is_net(entry):
        return
    where = {"file": entry.origin.file, "line": entry.origin.line, "zone": entry.zone}
    about: dict[str, Any] = {**where, "entry": found.number, "title": entry.title}
    # A window has its start and not its end, as a day has; `project` takes it the other way.
    for each in project(entry, start - TINY, end - TINY):
        yield Fire(at=each.at, key=each.key, estimate=each.is_estimate, **about)


class Preview(Shape, frozen=True, kw_only=True):
    cron: str | None
    words: str
    zone: str
    next: tuple[Time, ...]


class PreviewQuery(Fields, frozen=True, kw_only=True):
    cron: Annotated[Word, about("a cron expression")] = ""
    when: Annotated[Word, about("a schedule in words, or a cron expression")] = ""
    at: Annotated[Time | None, about("a single time")] = None
    zone: Annotated[Word, about("time zone; default: UTC")] = ""
    start: Annotated[Time | None, about("time after which to look for them; default: now")] = None
    limit: Limit = 5


@routes.get("/api/v1/preview", Scope.READ)
async def preview(front: Front, query: PreviewQuery) -> Preview:
    """Describe a rule in words, with its next scheduled times."""
    place = query.zone or "UTC"
    zone(place)
    if [bool(query.cron), bool(query.when), query.at is not None].count(True) != 1:
        raise RequestError("pass one of `cron`, `when` or `at`")
    cron = phrase_cron(query.when) if is_phrase(query.when) else query.cron or query.when
    rule = cron_rule(cron, zone_name=place) if query.at is None else OnceRule(query.at)
    entry = Entry("", Origin("", 0), "", rule, zone=place)
    now, far = query.start or front.clock.now(), datetime(9998, 1, 1, tzinfo=UTC)
    moments = await asyncio.to_thread(lambda: [*islice(project(entry, now, far), query.limit)])
    coming = tuple(zoned(each.at, place) for each in moments)
    said = words(rule, zone_name=place)
    return Preview(cron=cron or None, words=said, zone=place, next=coming)


_ICS: Final = "text/calendar; charset=utf-8"


@routes.get("/calendar.ics", Scope.READ, kind=_ICS, also=(404,))
async def calendar_ics(front: Front) -> Response:
    """Return the scheduled times of the next year in iCalendar format."""
    return await _ics(front)


@routes.get("/calendar/{secret}.ics", Access.SECRET, kind=_ICS)
async def secret_calendar(front: Front, secret: str) -> Response:
    """Return the same calendar at its secret path, without a token."""
    if front.keys is None or not front.keys.is_calendar(secret):
        raise NotOfferedError("calendar at this path")
    return await _ics(front)


@routes.get("/api/v1/calendar", Scope.ADMIN, also=(404,))
async def calendar_path(front: Front) -> CalendarPath:
    """Return the secret path of the calendar; a new operator token changes it."""
    keys = offered(front.keys, "secret path")
    path = f"/calendar/{keys.calendar}.ics"
    # Not at the page's own name: calendar programs do not know where names below localhost are.
    url = f"{keys.outside or keys.url}{path}" if keys.url else None
    return CalendarPath(path=path, url=url)


async def _ics(front: Front) -> Response:
    from horae.web.ics import calendar  # which few engines ever write

    ledger = offered(front.ledger, "calendar")
    now = front.clock.now()
    found = (each.item for each in await ledger.entries() if each.gone_at is None)
    entries = [item for item in found if isinstance(item, Entry) and not is_net(item)]

    def written() -> bytes:
        lines = calendar(entries, start=now, end=now + FEED, now=now, zone_name=front.zone_name)
        return "".join(lines).encode()

    text = await asyncio.to_thread(written)
    headers = {**HEADERS, "Content-Disposition": 'inline; filename="horae.ics"'}
    return Response(text, headers=headers, media_type=_ICS)
