"""What will come, and what was to come: the agenda of any window, the calendar, a preview."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from heapq import merge, nsmallest
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from starlette.responses import Response

from horae.core.entry import Entry, OnceRule, Origin, cron_rule, key_time
from horae.core.explain import stamp
from horae.core.project import TINY, project
from horae.core.scope import Scope
from horae.core.text import is_number, words
from horae.core.views import RequestError
from horae.sources.board.recycle import is_net
from horae.timing.rfc3339 import parse_rfc3339
from horae.timing.zone import zone
from horae.web.answer import HEADERS
from horae.web.ics import calendar
from horae.web.router import Access, NotOfferedError, asks, limit, moment, offered, text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from starlette.requests import Request

    from horae.core.ports import Listed
    from horae.web.router import Front, RequestFields

FEED: Final = timedelta(days=365)  # how far a calendar looks
WEEK: Final = timedelta(days=7)


class CalendarFire(NamedTuple):
    """A planned moment of an entry; ordered by time, then by where it is written."""

    at: datetime
    file: str
    line: int
    entry: int
    title: str
    zone: str
    key: str
    is_estimate: bool

    def data(self) -> dict[str, object]:
        at = {"at": stamp(self.at, self.zone), "zone": self.zone}
        about = {"entry": self.entry, "title": self.title, "file": self.file, "line": self.line}
        return {**at, **about, "key": self.key, "estimate": self.is_estimate}


async def agenda(front: Front, _: Request, asked: RequestFields) -> dict[str, object]:
    """List the scheduled times in a window, past or future, in order."""
    ledger = offered(front.ledger, "agenda")
    now = front.clock.now()
    start = asked.moment("from") or now
    end = asked.moment("to") or start + WEEK
    if end <= start:
        raise RequestError("`to` must be later than `from`")
    since, skip = start, 0
    if cursor := asked.text("cursor"):  # the time to go on at, and how many of it were shown
        at, many = cursor.rpartition(".")[::2]
        if not is_number(many) or int(many) > 10**6:
            raise RequestError("cursor must be the cursor of an earlier response")
        since, skip = parse_rfc3339(at).astimezone(UTC), int(many)
    most = asked.limit(100)
    word = asked.text("entry")
    found = [await front.service.named(word)] if word else await ledger.entries()

    def look() -> list[CalendarFire]:
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
    window = {"from": stamp(start, front.zone_name), "to": stamp(end, front.zone_name)}
    return {**window, "fires": [each.data() for each in shown], "cursor": more}


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


def fires(entries: list[Listed], start: datetime, end: datetime) -> Iterator[CalendarFire]:
    """Yield the moments of all entries from *start* up to *end*, which is not in it."""
    return merge(*(_fires(each, start, end) for each in entries))


def _fires(found: Listed, start: datetime, end: datetime) -> Iterator[CalendarFire]:
    entry = found.item
    if not isinstance(entry, Entry) or found.gone_at is not None or is_net(entry):
        return
    origin = entry.origin
    about = origin.file, origin.line, found.number, entry.title, entry.zone
    # A window has its start and not its end, as a day has; `project` takes it the other way.
    for each in project(entry, start - TINY, end - TINY):
        yield CalendarFire(each.at, *about, each.key, each.is_estimate)


async def preview(front: Front, _: Request, asked: RequestFields) -> dict[str, object]:
    """Describe a rule in words, with its next scheduled times."""
    place = asked.text("zone") or "UTC"
    zone(place)
    cron, at = asked.text("cron"), asked.moment("at")
    if bool(cron) == (at is not None):
        raise RequestError("pass either `cron` or `at`")
    rule = cron_rule(cron, zone_name=place) if at is None else OnceRule(at)
    entry = Entry("", Origin("", 0), "", rule, zone=place)
    now = asked.moment("from") or front.clock.now()
    far = datetime(9998, 1, 1, tzinfo=UTC)
    count = asked.limit(5)
    moments = await asyncio.to_thread(lambda: list(islice(project(entry, now, far), count)))
    coming = [stamp(each.at, place) for each in moments]
    return {"words": words(rule, zone_name=place), "zone": place, "next": coming}


async def calendar_ics(front: Front, _: Request, __: RequestFields) -> Response:
    """Return the scheduled times of the next year in iCalendar format."""
    return await _ics(front)


async def secret_calendar(front: Front, request: Request, _: RequestFields) -> Response:
    """Return the same calendar at its secret path, without a token."""
    if front.keys is None or not front.keys.is_calendar(request.path_params["secret"]):
        raise NotOfferedError("calendar at this path")
    return await _ics(front)


async def calendar_path(front: Front, _: Request, __: RequestFields) -> dict[str, Any]:
    """Return the secret path of the calendar; a new operator token changes it."""
    keys = offered(front.keys, "secret path")
    path = f"/calendar/{keys.calendar}.ics"
    # Not at the page's own name: calendar programs do not know where names below localhost are.
    return {"path": path, "url": f"{keys.outside or keys.url}{path}" if keys.url else None}


async def _ics(front: Front) -> Response:
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


_ICS: Final = "text/calendar; charset=utf-8"
# fmt: off
OPERATIONS: Final = (
    asks("/api/v1/agenda", Scope.READ, agenda, "from:time to:time fires:Fire[] cursor:str?",
         moment("from", "start of the window; default: now"),
         moment("to", "end of the window, exclusive; default: a week after `from`"),
         text("entry", "only this entry"),
         limit(100),
         text("cursor", "cursor of the previous page"),
         also=(404,)),
    asks("/api/v1/preview", Scope.READ, preview, "words zone next:time[]",
         text("cron", "a cron expression"),
         moment("at", "a single time, instead of `cron`"),
         text("zone", "time zone; default: UTC"),
         moment("from", "time after which to look for occurrences; default: now"),
         limit(5)),
    asks("/api/v1/calendar", Scope.ADMIN, calendar_path, "path:str url:str?", also=(404,)),
    asks("/calendar.ics", Scope.READ, calendar_ics, "str", kind=_ICS, also=(404,)),
    asks("/calendar/{secret}.ics", Access.SECRET, secret_calendar, "str", kind=_ICS),
)
# fmt: on
