"""A deadline is a fact to compare with."""

from datetime import datetime

import pytest

from horae.org.plan import is_overdue, parse_timestamp
from horae.timing.zone import zone


@pytest.mark.parametrize(
    ("stamp", "now", "overdue"),
    [
        ("<2026-07-04 Sat>", "2026-07-04T23:59:59+02:00", False),
        ("<2026-07-04 Sat>", "2026-07-05T00:00:00+02:00", False),
        ("<2026-07-04 Sat>", "2026-07-05T00:00:01+02:00", True),
        ("<2026-07-04 Sat 09:00>", "2026-07-04T09:00:00+02:00", False),
        ("<2026-07-04 Sat 09:00>", "2026-07-04T07:00:01+00:00", True),
        ("<2026-07-04 Sat 9:00>", "2026-07-04T09:01:00+02:00", True),
        ("<2026-07-04 Sat 09:00-11:00>", "2026-07-04T09:01:00+02:00", True),
        ("[2026-07-04 Sat]", "2027-01-01T00:00:00+01:00", False),
        ("<2026-13-99>", "2027-01-01T00:00:00+01:00", False),
        ("<2026-07-04 25:00>", "2027-01-01T00:00:00+01:00", False),
        ("<9999-12-31>", "2027-01-01T00:00:00+01:00", False),
    ],
)
def test_a_deadline_is_overdue_once_its_time_or_its_day_is_over(
    stamp: str, now: str, overdue: bool
) -> None:
    deadline = parse_timestamp(stamp)
    assert deadline is not None
    moment = datetime.fromisoformat(now)
    assert is_overdue(deadline, now=moment, zone=zone("Europe/Berlin")) is overdue
