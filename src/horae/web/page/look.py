"""How a page says moments, lengths of time, and what a program put out."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from typing import TYPE_CHECKING, Final

from horae.core.explain import stamp
from horae.core.text import in_zone, moment_text
from horae.timing.zone import instant, local, zone
from horae.web.answer import CONTROLS

if TYPE_CHECKING:
    from zoneinfo import ZoneInfo

DAY: Final = timedelta(days=1)
FAR: Final = timedelta(days=366 * 50)  # a rule that names no moment so far on has none left
TINY: Final = timedelta(microseconds=1)
_ESCAPES: Final = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?"
    r"|[PX^_][^\x1b]*(?:\x1b\\)?|[@-Z\\-_])"
)


@dataclass(frozen=True, slots=True)
class PageTime:
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

    def text(self, text: str) -> str:
        """Return a sentence with its UTC times in the zone of the page."""
        return in_zone(text, self.zone)

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
    return CONTROLS.sub("", text.replace("\r\n", "\n").replace("\r", "\n"))


def say(status: object) -> str:
    """Return a status as people read it."""
    return str(status).replace("_", " ")
