"""A repeater that counts hours names times of day, too, unless it names every hour."""

from datetime import datetime

import pytest

from horae.core.entry import Entry
from horae.core.project import seams
from horae.org.document import read
from horae.sources.plans.arming import scan_plan

GAP = "02:30 does not exist on 2026-03-29 in Europe/Berlin: runs at 03:00 instead"
FOLD = "02:30 occurs twice on 2026-10-25 in Europe/Berlin: runs the first time only"


def met(stamp: str) -> list[str]:
    plan = read(f"* Digest :workflow:\nSCHEDULED: {stamp}\n")
    [found] = scan_plan(plan, file="plan.org", zone_name="Europe/Berlin")
    assert isinstance(found.item, Entry)
    start, end = (datetime.fromisoformat(f"{year}-01-01T00:00Z") for year in (2026, 2027))
    return [*map(str, seams(found.item.rule, zone_name="Europe/Berlin", start=start, end=end))]


@pytest.mark.parametrize("repeater", ["+24h", "++6h", "+2h"])
def test_hours_that_name_a_time_of_day_meet_clock_changes(repeater: str) -> None:
    assert met(f"<2026-01-01 Thu 02:30 {repeater}>") == [GAP, FOLD]


@pytest.mark.parametrize("repeater", ["+1h", "++1h", ".+1h", ".+6h"])
def test_every_hour_and_hours_from_an_end_name_no_time_of_day(repeater: str) -> None:
    assert met(f"<2026-01-01 Thu 02:30 {repeater}>") == []


def test_hours_that_pass_by_the_change_are_not_mentioned() -> None:
    assert met("<2026-01-01 Thu 03:30 +6h>") == []
