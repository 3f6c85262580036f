"""Windows: the parts of time that the timeline shows, from a year down to ten minutes."""

from __future__ import annotations

import math
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final, NamedTuple

from horae.core.views import RequestError
from horae.timing.zone import instant

if TYPE_CHECKING:
    from zoneinfo import ZoneInfo

_HOUR: Final = timedelta(hours=1)
_MINUTE: Final = timedelta(minutes=1)
DAY: Final = timedelta(days=1)


class Zoom(NamedTuple):
    """A length of time that one picture shows."""

    word: str
    form: str  # of its address
    length: timedelta
    part: timedelta  # by which many receipts are counted
    tick: str  # what the axis of the next coarser zoom says


ZOOMS: Final = {
    "year": Zoom("Year", "%Y", 366 * DAY, 7 * DAY, ""),
    "month": Zoom("Month", "%Y-%m", 31 * DAY, DAY, "{:%b}"),
    "week": Zoom("Week", "%G-W%V", 7 * DAY, 2 * _HOUR, ""),
    "day": Zoom("Day", "%Y-%m-%d", DAY, 15 * _MINUTE, "{0:%a} {0.day}"),
    "hour": Zoom("Hour", "%Y-%m-%dT%H", _HOUR, _MINUTE, "{:%H}"),
    "minutes": Zoom("10 min", "%Y-%m-%dT%H:%M", 10 * _MINUTE, _MINUTE / 6, "{:%H:%M}"),
}
INNER: Final = dict(year="month", month="day", week="day", day="hour", hour="minutes")  # noqa: C408


class Window(NamedTuple):
    """A part of time as the calendar of a zone divides it; *first* is its wall time."""

    zoom: str
    first: datetime
    place: ZoneInfo

    @classmethod
    def around(cls, zoom: str, wall: datetime, place: ZoneInfo) -> Window:
        """Return the window of a zoom in which a wall time lies.

        >>> from zoneinfo import ZoneInfo
        >>> wall, place = datetime(2026, 11, 19, 14, 27, 3), ZoneInfo("UTC")
        >>> [Window.around(zoom, wall, place).address for zoom in ZOOMS]
        ['2026', '2026-11', '2026-W47', '2026-11-19', '2026-11-19T14', '2026-11-19T14:20']
        """
        first = wall.replace(second=0, microsecond=0)
        if zoom == "minutes":
            return cls(zoom, first.replace(minute=first.minute // 10 * 10), place)
        first = first.replace(minute=0)
        if zoom == "hour":
            return cls(zoom, first, place)
        first = first.replace(hour=0)
        if zoom == "week":
            return cls(zoom, first - first.weekday() * DAY, place)
        first = first if zoom == "day" else first.replace(day=1)
        return cls(zoom, first.replace(month=1) if zoom == "year" else first, place)

    @classmethod
    def at(cls, text: str, place: ZoneInfo) -> Window:
        for name, zoom in ZOOMS.items():
            is_week = name == "week"
            try:
                wall = datetime.strptime(text + "-1" * is_week, zoom.form + "-%u" * is_week)  # noqa: DTZ007 - the zone is *place*
            except ValueError:
                continue
            if 1000 < wall.year < 9900:
                return cls.around(name, wall, place)
        raise RequestError(
            "at must be a year, month, week, day, hour or minute like 2026, 2026-11, 2026-W47, "
            f"2026-11-19, 2026-11-19T14 or 2026-11-19T14:20, not {text!r}"
        )

    @property
    def address(self) -> str:
        return self.first.strftime(ZOOMS[self.zoom].form)

    @property
    def last(self) -> datetime:
        """Return the wall time at which the next window begins."""
        if self.zoom in {"year", "month"}:
            over = self.first + ZOOMS[self.zoom].length + 6 * DAY
            return Window.around(self.zoom, over, self.place).first
        return self.first + ZOOMS[self.zoom].length

    @property
    def start(self) -> datetime:
        return instant(self.first, self.place)

    @property
    def end(self) -> datetime:
        # An hour that a clock change leaves out is as long as the one after it.
        return max(instant(self.last, self.place), self.start + ZOOMS["minutes"].length)

    def move(self, steps: int) -> Window:
        wall = self.last if steps > 0 else self.first - _MINUTE
        return Window.around(self.zoom, wall, self.place)

    def parts(self, zoom: str) -> list[Window]:
        found = [Window.around(zoom, self.first, self.place)]
        while found[-1].last < self.last:
            found.append(found[-1].move(1))
        return found

    def edges(self, part: timedelta) -> list[datetime]:
        """Return where parts of a length begin, those of days at midnight, and the end."""
        many = math.ceil((self.last - self.first) / part)
        if part >= DAY:
            walls = (self.first + index * part for index in range(many))
            return [*(instant(each, self.place) for each in walls), self.end]
        return [*(self.start + n * part for n in range(math.ceil(self.length / part))), self.end]

    @property
    def length(self) -> timedelta:
        return self.end - self.start

    @property
    def title(self) -> str:
        first, last = self.first, self.last - _MINUTE
        match self.zoom:
            case "year":
                return f"{first.year}"
            case "month":
                return f"{first:%B %Y}"
            case "week":
                month = f" {first:%B}" if first.month != last.month else ""
                return f"{first.day}{month} to {last.day} {last:%B %Y}"
            case "day":
                return f"{first:%A} {first.day} {first:%B %Y}"
        return f"{first:%a} {first.day} {first:%b %Y}, {first:%H:%M} to {self.last:%H:%M}"
