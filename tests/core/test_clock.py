"""The machine's clock and zone, asked in one place."""

import asyncio
from datetime import UTC, timedelta

import pytest

from horae.core.clock import SystemClock, machine_zone


def test_the_clock_is_in_utc_and_goes_forward() -> None:
    first, second = SystemClock().now(), SystemClock().now()
    assert first.utcoffset() == timedelta(0)
    assert first.tzinfo is UTC
    assert first <= second


def test_a_wait_ends_with_its_event_or_its_moment() -> None:
    async def waited() -> timedelta:
        clock, event = SystemClock(), asyncio.Event()
        began = clock.now()
        await clock.wait(event, until=clock.now())
        await clock.wait(event, until=clock.now() - timedelta(hours=1))
        event.set()
        await clock.wait(event, until=clock.now() + timedelta(hours=1))
        return clock.now() - began

    assert asyncio.run(asyncio.wait_for(waited(), 60)) < timedelta(minutes=1)


def test_a_wait_that_is_cancelled_as_its_event_is_set_is_cancelled() -> None:
    async def cancelled() -> bool:
        clock, event = SystemClock(), asyncio.Event()
        task = asyncio.create_task(clock.wait(event, until=clock.now() + timedelta(hours=1)))
        for _ in range(3):
            await asyncio.sleep(0)
        event.set()
        task.cancel()
        await asyncio.wait({task})
        return task.cancelled()

    assert asyncio.run(cancelled())


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
