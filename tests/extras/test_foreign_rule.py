"""The times of a foreign rule, held against a slow walk along the clock that shares no code."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from itertools import islice
from random import Random

import pytest

from extras import walk
from extras.foreign import Fold, ForeignRule, Gap
from horae.extras.importers.job import cron_of
from horae.timing.cron_fields import field_text

ZONES = (
    "UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Africa/Cairo",
    "America/Nuuk", "America/Havana", "Asia/Kathmandu", "Pacific/Apia",
)  # fmt: skip


@pytest.mark.parametrize("zone_name", ZONES)
@pytest.mark.parametrize("gap", Gap)
@pytest.mark.parametrize("fold", Fold)
def test_a_rule_has_the_times_that_a_walk_along_the_clock_finds(
    zone_name: str, gap: Gap, fold: Fold
) -> None:
    roll = Random(f"{zone_name} {gap} {fold}")
    for _ in range(12):
        minutes = frozenset(roll.sample(range(0, 60, 5), roll.choice((1, 2, 12))))
        hours = frozenset(roll.sample(range(24), roll.choice((1, 3, 24))))
        seconds = frozenset(roll.choice(((0,), (0,), (15, 45))))
        days = frozenset(roll.sample(range(1, 32), roll.choice((1, 15, 31))))

        def is_day(day: date, days: frozenset[int] = days) -> bool:
            return day.day in days

        start = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(hours=roll.randint(0, 9000))
        end = start + timedelta(days=roll.choice((3, 40, 400)))
        fields = field_text(days, 1, 31), "*"
        cron = cron_of((seconds, minutes, hours), fields, frozenset(range(1, 13)), None)
        ours = ForeignRule(cron, gap, fold).times(zone_name, start, end)
        slow = walk.Walk(
            seconds, minutes, hours, is_day, walk.Gap(gap.value), walk.Fold(fold.value)
        ).moments(zone_name, start, end)
        expected = sorted({at for at in islice(slow, 3000) if at <= end})
        assert list(islice(ours, 2900)) == expected[:2900]
