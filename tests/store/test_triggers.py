"""A trigger fires by a cron expression or once, and a delay that has fired rests."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from horae.engine.ports import LedgerBusyError, Process, Step
from horae.errors import HoraeError
from horae.rules.entry import CatchUp, Entry, OnceRule, Unarmed, Work
from horae.rules.misfire import Status, decide
from horae.store.sqlite import SqliteLedger
from horae.store.triggers import TriggerSource, add, disable, enable
from store.ledger_suite import DAY, HOUR, MINUTE, NINE, NOW, asked, story

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from datetime import datetime
    from pathlib import Path
    from typing import NoReturn

    from horae.engine.ports import Filed
    from horae.engine.source import Scan

ID = "550e8400-e29b-41d4-a716-446655440001"
CRON = {"kind": "cron", "cron_expr": "0 9 * * MON-FRI", "agent": "worker", "prompt": "Report."}
DELAY = {"kind": "delay", "run_at": "2026-04-01T09:00:00Z", "agent": "worker", "prompt": "Deploy."}


@pytest.fixture(params=["sqlite", "memory"])
def ledger(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SqliteLedger]:
    made = (
        SqliteLedger.in_memory()
        if request.param == "memory"
        else SqliteLedger.open(tmp_path / ".horae", now=NOW)
    )
    opened = asyncio.run(made)
    yield opened
    asyncio.run(opened.close())


async def seen(ledger: SqliteLedger) -> Scan:
    return await TriggerSource(ledger).scan(await ledger.index("trigger"))


async def put(ledger: SqliteLedger, spec: dict[str, str], *, is_enabled: bool = True) -> None:
    assert await add(ledger, ID, name="report", spec=spec, now=NOW, term=1, is_enabled=is_enabled)


async def taken(ledger: SqliteLedger, *, now: datetime) -> Entry | Unarmed:
    """Let the ledger take over the triggers, of which there is one; return it."""
    await ledger.scan("trigger", await seen(ledger), now=now, term=1)
    [known] = await ledger.entries(source="trigger")
    return known.item


async def come(ledger: SqliteLedger, *, now: datetime) -> list[Filed]:
    """Decide about all that has come due."""
    steps = [Step(each.entry, decide(each.entry, now=now)) for each in await ledger.due(now=now)]
    return await ledger.decide(steps, now=now, term=1)


async def over(ledger: SqliteLedger, filed: Filed, *, now: datetime) -> Filed:
    """Run what waits, to a good end."""
    run = await ledger.start(filed.number, now=now, term=1)
    assert run is not None
    assert await ledger.running(run.number, Process(1, 1), now=now, term=1)
    ended = await ledger.end(run.number, Status.DONE, reason="", now=now, term=1)
    assert ended is not None
    return ended


async def is_enabled(ledger: SqliteLedger) -> bool:
    [found] = (await seen(ledger)).entries
    return isinstance(found.item, Entry)


@story
async def test_a_cron_trigger_prompts_its_agent_and_makes_nothing_good(
    ledger: SqliteLedger,
) -> None:
    await put(ledger, {**CRON, "timezone": "Europe/Berlin"})
    [found] = (await seen(ledger)).entries
    entry = found.item
    assert isinstance(entry, Entry)
    assert (entry.address, entry.title) == (f"trigger:{ID}", "report")
    assert (entry.work, entry.agents, entry.zone) == (Work.PROMPT, ("worker",), "Europe/Berlin")
    assert entry.policy.catchup is CatchUp.NONE
    assert found.text == "Report."
    await taken(ledger, now=NOW)
    missed = await come(ledger, now=NOW + 3 * DAY)
    assert [each.status for each in missed] == [Status.MISSED] * 2
    assert [each.receipt.key for each in missed] == [
        "cron:2026-04-02T07:00:00Z",
        "cron:2026-04-03T07:00:00Z",
    ]


@story
async def test_a_delay_fires_once_at_its_time(ledger: SqliteLedger) -> None:
    await put(ledger, {**DELAY, "run_at": "2026-04-01T05:00:00-04:00"})
    await taken(ledger, now=NOW)
    assert await come(ledger, now=NINE - MINUTE) == []
    [filed] = await come(ledger, now=NINE)
    assert (filed.receipt.key, filed.status, filed.agents) == (
        f"delay:{ID}",
        Status.WAITING,
        ("worker",),
    )
    assert await come(ledger, now=NINE + DAY) == []


@story
async def test_a_delay_whose_time_has_passed_fires_at_once(ledger: SqliteLedger) -> None:
    await put(ledger, DELAY)
    await taken(ledger, now=NINE + 30 * DAY)
    [filed] = await come(ledger, now=NINE + 30 * DAY)
    assert filed.status is Status.WAITING


@story
async def test_a_delay_that_is_over_is_disabled_however_often_that_is_said(
    ledger: SqliteLedger,
) -> None:
    await put(ledger, DELAY)
    source = TriggerSource(ledger)
    await taken(ledger, now=NOW)
    [filed] = await come(ledger, now=NINE)
    await source.settle(filed)  # it still waits
    assert await is_enabled(ledger)
    ended = await over(ledger, filed, now=NINE)
    for _ in range(2):
        await source.settle(ended)
        assert not await is_enabled(ledger)
    rests = await taken(ledger, now=NINE + MINUTE)
    assert isinstance(rests, Unarmed)
    assert rests.reason == "it is disabled"


@story
async def test_a_delay_that_is_enabled_again_fires_again_under_a_new_key(
    ledger: SqliteLedger,
) -> None:
    await put(ledger, DELAY)
    source = TriggerSource(ledger)
    ends: list[Filed] = []
    for number, key in enumerate((f"delay:{ID}", f"delay:{ID}:2", f"delay:{ID}:3")):
        now = NINE + number * HOUR
        await taken(ledger, now=now)
        [filed] = await come(ledger, now=now)
        assert filed.receipt.key == key
        ends.append(await over(ledger, filed, now=now))
        await source.settle(ends[-1])
        await taken(ledger, now=now)
        assert await enable(ledger, ID, now=now, term=1)
        for old in ends:  # as an engine does that begins anew before they were marked
            await source.settle(old)
        assert await is_enabled(ledger)


@story
async def test_the_end_of_anything_else_disables_nothing(ledger: SqliteLedger) -> None:
    await put(ledger, CRON)
    await taken(ledger, now=NOW)
    [filed] = await come(ledger, now=NINE)
    await TriggerSource(ledger).settle(await over(ledger, filed, now=NINE))
    [extra] = await ledger.add(filed.entry, [asked("manual:1", NINE)], now=NINE, term=1)
    await TriggerSource(ledger).settle(await over(ledger, extra, now=NINE))
    assert await is_enabled(ledger)


@story
async def test_what_is_disabled_does_not_fire_from_that_moment_on(ledger: SqliteLedger) -> None:
    await put(ledger, CRON)
    await taken(ledger, now=NOW)
    assert await disable(ledger, ID, now=NOW, term=1)
    assert not await disable(ledger, ID, now=NOW, term=1)
    assert isinstance(await taken(ledger, now=NOW), Unarmed)
    assert await come(ledger, now=NINE) == []
    assert await enable(ledger, ID, now=NINE, term=1)
    assert not await enable(ledger, ID, now=NINE, term=1)
    await taken(ledger, now=NINE)
    [filed] = await come(ledger, now=NINE + DAY)
    assert filed.receipt.key == "cron:2026-04-02T09:00:00Z"


@story
async def test_a_delay_that_begins_disabled_has_the_first_key_when_it_is_enabled(
    ledger: SqliteLedger,
) -> None:
    await put(ledger, DELAY, is_enabled=False)
    assert isinstance(await taken(ledger, now=NOW), Unarmed)
    assert await enable(ledger, ID, now=NOW, term=1)
    entry = await taken(ledger, now=NOW)
    assert isinstance(entry, Entry)
    assert entry.rule == OnceRule(NINE, ID)


@story
async def test_an_id_or_a_name_that_is_taken_is_an_answer(ledger: SqliteLedger) -> None:
    await put(ledger, CRON)
    for trigger, name in ((ID, "other"), ("other", "report")):
        assert not await add(ledger, trigger, name=name, spec=CRON, now=NOW, term=1)
    assert len((await seen(ledger)).entries) == 1
    assert not await enable(ledger, "other", now=NOW, term=1)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"cron_expr": "0 25 * * *"}, "hour 25"),
        ({"cron_expr": "0 9 30 2 *"}, "never comes"),
        ({"timezone": "Mars/Base"}, "Mars/Base"),
        ({"kind": "delay"}, "kind is cron with a cron_expr, or delay with a run_at"),
        ({"kind": "delay", "run_at": "soon"}, "time 'soon'"),
        ({"agent": ""}, "agent is missing"),
        ({"agent": "../x"}, "agent '../x' is no name"),
    ],
)
@story
async def test_a_trigger_that_could_never_fire_is_refused(
    ledger: SqliteLedger, change: dict[str, str], message: str
) -> None:
    with pytest.raises(HoraeError, match=message):
        await add(ledger, ID, name="report", spec={**CRON, **change}, now=NOW, term=1)
    for trigger, name in (("a:2", "report"), (ID, "a b")):
        with pytest.raises(HoraeError, match="is not a word"):
            await add(ledger, trigger, name=name, spec=CRON, now=NOW, term=1)
    assert (await seen(ledger)).entries == ()


@pytest.mark.parametrize(
    "spec", ["{", "[1]", '{"kind": "comet"}', '{"kind": "cron", "cron_expr": 7}']
)
@story
async def test_a_trigger_that_cannot_be_understood_stops_no_other(
    ledger: SqliteLedger, spec: str
) -> None:
    await put(ledger, CRON)
    row = ("odd", "odd", spec, 1, 1, 0, 0)
    await ledger.write(
        1, lambda book: book.execute("INSERT INTO trigger VALUES (?, ?, ?, ?, ?, ?, ?)", row)
    )
    odd, good = (each.item for each in (await seen(ledger)).entries)
    assert isinstance(odd, Unarmed)
    assert odd.reason == "trigger: kind is cron with a cron_expr, or delay with a run_at"
    assert isinstance(good, Entry)


class _Busy(SqliteLedger):
    """A ledger that cannot be read just now."""

    async def read(self, _: Callable[..., object]) -> NoReturn:
        raise LedgerBusyError(self.place, "it is busy", remedy="wait")


@story
async def test_while_triggers_cannot_be_read_what_is_known_of_them_stands() -> None:
    ledger = await _Busy.in_memory()
    scan = await TriggerSource(ledger).scan({})
    assert (scan.entries, scan.standing) == ((), ("",))
    assert [type(problem) for problem in scan.problems] == [LedgerBusyError]
    await ledger.close()
