"""The machine's clock and zone, asked in one place."""

from datetime import UTC, timedelta

import pytest

from horae.app import SystemClock, machine_zone


def test_the_clock_is_in_utc_and_goes_forward() -> None:
    first, second = SystemClock().now(), SystemClock().now()
    assert first.utcoffset() == timedelta(0)
    assert first.tzinfo is UTC
    assert first <= second


@pytest.mark.parametrize(
    ("tz", "zone"),
    [
        ("Europe/Berlin", "Europe/Berlin"),
        (":America/New_York", "America/New_York"),
        ("Etc/UTC", "UTC"),
        ("Zulu", "UTC"),
    ],
)
def test_the_variable_tz_names_the_zone(tz: str, zone: str) -> None:
    assert machine_zone({"TZ": tz}).key == zone


@pytest.mark.parametrize("tz", ["", "EST5EDT,M3.2.0,M11.1.0", "Nowhere/Land", "../etc"])
def test_a_variable_that_names_no_zone_leaves_it_to_the_machine(tz: str) -> None:
    assert machine_zone({"TZ": tz}).key == machine_zone({}).key
