"""Before its go nothing of a run has happened; after it, its end is never lost."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

import one_run
from core.world import DAY, HOUR, MINUTE, NINE, SECOND, World, cron, story, world
from horae.core.actor import acting
from horae.core.entry import Occasion
from horae.core.ports import (
    Ended,
    HeldBackError,
    Job,
    LauncherLostError,
    LedgerWriteError,
    Process,
    RunError,
    Unreleased,
)
from horae.core.receipt import Receipt, Status
from horae.testing import Ending
from reasons import because

if TYPE_CHECKING:
    from datetime import datetime

    from horae.core.ports import Held, Run
    from horae.core.receipt import Filed

FULL = LedgerWriteError("ledger", "the disk is full", remedy="make room")
DIGEST = cron("Digest", "0 9 * * *")


def hours(_: Filed) -> Ending:
    return Ending(after=2 * HOUR)


async def statuses(here: World) -> list[Status]:
    """Return every status that a receipt ever had."""
    events = await here.ledger.events_after(0)
    return [Status(str(e.facts["status"])) for e in events if e.kind == "receipt"]


@story
async def test_what_was_let_go_too_late_to_begin_waits_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    late = [Ended(Status.KILLED, because("it was never let go"), facts={"released": False})]

    async with world(DIGEST) as here:
        hold = here.engine.launch.runner.hold

        async def once_late(job: Job) -> Held:
            held = await hold(job)
            ended = held.ended

            async def told() -> Ended:
                return late.pop() if late else await ended()

            monkeypatch.setattr(held, "ended", told)
            return held

        monkeypatch.setattr(here.engine.launch.runner, "hold", once_late)
        await here.until(NINE)
        [filed] = await here.receipts()
        assert (filed.status, filed.attempts) == (Status.DONE, 1)
        assert not here.engine.gate.holders


@story
async def test_what_cannot_be_made_is_failed_with_the_reason_and_its_slot_is_free(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def refuse(job: Job) -> Held:
        raise RunError("there is no program 'backup'; install it or change :COMMAND:")

    async with world(DIGEST) as here:
        monkeypatch.setattr(here.engine.launch.runner, "hold", refuse)
        await here.until(NINE)
        [filed] = await here.receipts()
        assert (filed.status, filed.attempts) == (Status.FAILED, 1)
        assert "there is no program 'backup'" in filed.receipt.reason
        assert not here.engine.gate.holders


@story
async def test_what_somebody_must_do_something_for_is_held_and_tried_again_at_the_next_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def refuse(job: Job) -> Held:
        raise HeldBackError("the agent wren has no command; write :COMMAND:")

    async with world(DIGEST) as here:
        monkeypatch.setattr(here.engine.launch.runner, "hold", refuse)
        await here.until(NINE)
        [filed] = await here.receipts()
        assert (filed.status, filed.attempts) == (Status.HELD, 0)
        assert filed.receipt.reason == "the agent wren has no command; write :COMMAND:"
        assert not here.engine.gate.holders
        await here.outage(MINUTE)
        assert await here.history() == [("04-01 09:00", "done")]


@story
async def test_a_launcher_that_was_lost_is_asked_again_and_nothing_is_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with world(DIGEST) as here:
        runner = here.engine.launch.runner
        hold, losses = runner.hold, [LauncherLostError("it ended")] * 2

        async def unsteady(job: Job) -> Held:
            if losses:
                raise losses.pop()
            return await hold(job)

        monkeypatch.setattr(runner, "hold", unsteady)
        await here.until(NINE + MINUTE)
        [filed] = await here.receipts()
        assert (filed.status, filed.attempts) == (Status.DONE, 1)
        assert len(await here.ledger.runs_of(filed.number)) == 3


@pytest.mark.parametrize("is_kept", [False, True])
@pytest.mark.parametrize("name", ["start_many", "running_many"])
@story
async def test_a_start_whose_answer_is_lost_lets_nothing_go_and_is_made_again(
    name: str, is_kept: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with world(DIGEST) as here:
        real, failures = getattr(here.ledger, name), [FULL]

        async def unsteady(*args: object, now: datetime, term: int) -> object:
            answer = await real(*args, now=now, term=term) if is_kept or not failures else None
            if failures:
                raise failures.pop()
            return answer

        monkeypatch.setattr(here.ledger, name, unsteady)
        await here.until(NINE + MINUTE)
        assert len(here.started) == 1
        [filed] = await here.receipts()
        assert (filed.status, filed.attempts) == (Status.DONE, 1)
        assert not here.engine.gate.holders
        assert all(run.ended_at for run in await here.ledger.runs_of(filed.number))


@story
async def test_an_end_is_written_down_however_long_that_takes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with world(DIGEST) as here:
        end, failures = here.ledger.end_many, [FULL] * 90

        async def unsteady(*ends: Any, **rest: Any) -> object:
            if failures:
                raise failures.pop()
            return await end(*ends, **rest)

        monkeypatch.setattr(here.ledger, "end_many", unsteady)
        await here.until(NINE + MINUTE)
        assert await here.history() == [("04-01 09:00", "running")]
        await here.advance(MINUTE)
        assert await here.history() == [("04-01 09:00", "done")]
        assert len(here.started) == 1


@story
async def test_a_run_can_be_cancelled_and_says_why() -> None:
    async with world(DIGEST, script=hours) as here:
        await here.until(NINE + MINUTE)
        [filed] = await here.receipts()
        with acting("token:ops"):
            assert here.engine.launch.cancel(filed.number, because("cancelled"))
        assert not here.engine.launch.cancel(filed.number, because("cancelled twice"))
        await here.advance(SECOND)
        [filed] = await here.receipts()
        assert (filed.status, filed.receipt.reason) == (Status.KILLED, "cancelled")
        told = [each for each in await here.ledger.events_after(0) if each.facts.get("status")]
        assert [each.actor for each in told if each.facts["status"] == "killed"] == ["token:ops"]
        assert {each.actor for each in told if each.facts["status"] != "killed"} == {"engine"}
        assert not here.engine.launch.cancel(filed.number, because("too late"))


@story
async def test_to_stop_lets_runs_end_and_interrupts_those_that_do_not() -> None:
    lengths = {"Short": 3 * SECOND, "Long": 2 * HOUR}
    async with world(
        cron("Short", "0 9 * * *"),
        cron("Long", "0 9 * * *"),
        cron("Later", "2 0 9 * * *"),
        script=lambda filed: Ending(after=lengths.get(filed.title, 0 * SECOND)),
    ) as here:
        await here.until(NINE)
        import asyncio

        stopping = asyncio.create_task(here.engine.stop(within=10 * SECOND))
        await here.advance(11 * SECOND)
        await stopping
        assert {each.title: each.status for each in await here.receipts()} == {
            "Short": Status.DONE,
            "Long": Status.INTERRUPTED,
            "Later": Status.WAITING,
        }
        await here.down()
        await here.up()
        await here.advance(0 * SECOND)
        assert [each.title for _, each in here.started] == ["Short", "Long", "Later"]


# What an engine before this one left


async def left_behind(here: World, *, is_running: bool) -> Filed:
    """Leave a receipt as an engine that died left it."""
    await here.down()
    blind = here.new_engine()
    await blind.start()
    blind._is_admitting = False
    await here.until(NINE)
    await blind.turn()
    [filed] = await here.receipts()
    run = await one_run.start(here.ledger, filed.number, now=NINE, term=1)
    assert run is not None
    if is_running:
        await one_run.running(here.ledger, run.number, Process(7, 7), now=NINE, term=1)
    return filed


@story
async def test_a_run_that_was_never_let_go_starts_now_and_nothing_is_lost() -> None:
    async with world(DIGEST) as here:
        await left_behind(here, is_running=False)
        await here.up()
        [filed] = await here.receipts()
        assert (filed.status, filed.attempts, filed.deaths) == (Status.DONE, 1, 1)
        assert len(here.started) == 1


@pytest.mark.parametrize(
    ("found", "status", "starts"),
    [
        (Unreleased(), Status.DONE, 1),
        (Ended(Status.NO_WORK, because("NO-WORK")), Status.NO_WORK, 0),
        (None, Status.INTERRUPTED, 0),
    ],
)
@story
async def test_a_run_that_may_have_been_let_go_is_judged_by_its_report(
    found: Ended | Unreleased | None,
    status: Status,
    starts: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def look_back(self: object, filed: Filed, run: Run) -> Ended | Unreleased | None:
        return found

    monkeypatch.setattr("horae.testing.ScriptedRunner.look_back", look_back)
    async with world(DIGEST) as here:
        await left_behind(here, is_running=True)
        await here.up()
        [filed] = await here.receipts()
        assert (filed.status, filed.attempts, len(here.started)) == (status, 1, starts)


@story
async def test_what_was_interrupted_is_repeated_only_if_it_may_be() -> None:
    async with world(cron("Digest", "0 9 * * *", ":RETRY: 1 30s")) as here:
        await left_behind(here, is_running=True)
        await here.up()
        assert await here.history() == [("04-01 09:00", "waiting")]
        await here.advance(30 * SECOND)
        assert await here.history() == [("04-01 09:00", "done")]
        [filed] = await here.receipts()
        assert filed.attempts == 2


@story
async def test_what_three_engines_died_over_while_starting_it_is_set_aside() -> None:
    async with world(DIGEST) as here:
        filed = await left_behind(here, is_running=False)
        for _ in range(2):
            await here.new_engine().start()
            assert await here.history() == [("04-01 09:00", "waiting")]
            assert await one_run.start(here.ledger, filed.number, now=NINE, term=1)
        await here.new_engine().start()
        [filed] = await here.receipts()
        assert filed.status is Status.FAILED
        assert "the engine exited 3 times while starting the run" in filed.receipt.reason
        assert here.started == []


@story
async def test_what_three_engines_died_over_while_it_ran_is_set_aside_though_it_may_be_retried() -> (
    None
):
    async with world(cron("Digest", "0 9 * * *", ":RETRY: 9 1s")) as here:
        filed = await left_behind(here, is_running=True)
        for _ in range(2):
            await here.new_engine().start()
            assert await here.history() == [("04-01 09:00", "waiting")]
            run = await one_run.start(here.ledger, filed.number, now=NINE, term=1)
            assert run is not None
            await one_run.running(here.ledger, run.number, Process(7, 7), now=NINE, term=1)
        await here.new_engine().start()
        [filed] = await here.receipts()
        assert filed.status is Status.INTERRUPTED
        assert "the engine exited 3 times during the run" in filed.receipt.reason


# The gate


@story
async def test_never_more_run_than_there_are_slots_and_the_first_planned_goes_first() -> None:
    many = [cron(f"Job {n}", f"{n} 0 9 * * *") for n in range(20)]
    async with world(*many, script=lambda _: Ending(after=MINUTE)) as here:
        for _ in range(30):
            await here.advance(10 * SECOND) if here.clock.now() > NINE else await here.until(
                NINE + 21 * SECOND
            )
            assert len(here.engine.gate.holders) <= 4
        await here.advance(HOUR)
        planned = [each.receipt.planned_at for _, each in here.started]
        assert planned == sorted(planned)
        assert len(planned) == 20


@story
async def test_a_skipped_receipt_leaves_the_line() -> None:
    many = [cron(f"Job {n}", "0 9 * * *") for n in range(5)]
    async with world(*many, script=hours) as here:
        await here.until(NINE)
        [obstacle] = here.engine.gate.obstacles(now=NINE)
        assert obstacle.reason == "no slot is free; gate.slots is 4"
        assert await here.ledger.pause(obstacle.ask.entry, now=NINE, term=1)
        here.engine.note_change()
        await here.advance(0 * SECOND)
        assert here.engine.gate.obstacles(now=NINE) == []


@story
async def test_a_run_inside_a_run_rides_in_its_parents_slot() -> None:
    many = [cron(f"Job {n}", "0 9 * * *") for n in range(4)]
    inner = "* Inner :workflow:\n"
    async with world(*many, inner, script=hours) as here:
        await here.until(NINE)
        parent = (await here.receipts())[0]
        number = (await here.numbers())["Inner"]
        asked = Receipt("manual:1", Status.WAITING, because("requested by a run"), NINE, NINE)
        here.engine.offer(
            await here.ledger.add(number, [asked], now=NINE, term=1, parent=parent.number)
        )
        await here.advance(0 * SECOND)
        assert len(here.started) == 5
        assert len({holder.slot for holder in here.engine.gate.holders}) == 4


# Alerts


def alert(after: str) -> str:
    drawer = f":PROPERTIES:\n:AFTER: {after}\n:COMMAND: notify\n:END:\n"
    return f"* Call me\n{drawer}"


@story
async def test_an_alert_runs_once_for_each_receipt_that_ends_as_it_waits_for() -> None:
    bad = iter([Status.DONE, Status.FAILED, Status.FAILED, Status.DONE])

    def script(filed: Filed) -> Ending:
        return Ending() if filed.title == "Call me" else Ending(next(bad))

    async with world(DIGEST, cron("Other", "0 12 * * *"), alert("failed of Digest")) as here:
        here.engine.launch.runner._script = script  # type: ignore[attr-defined]
        await here.until(NINE + HOUR)
        await here.advance(DAY)
        alerts = [each for _, each in here.started if each.title == "Call me"]
        [only] = alerts
        about = await here.ledger.receipt(int(only.receipt.key.removeprefix("after:")))
        assert about is not None
        assert (about.title, about.status) == ("Digest", Status.FAILED)
        assert only.receipt.reason.startswith("after Digest (failed): ")
        followed = await here.ledger.read(lambda book: book._followed(only))
        assert followed is not None
        assert (followed.filed, followed.event) == (about, (Occasion.FAILED,))


@story
async def test_an_alert_that_fails_raises_no_alert() -> None:
    async with world(DIGEST, alert("failed"), script=lambda _: Ending(Status.FAILED)) as here:
        await here.until(NINE + 12 * HOUR)
        assert [each.title for _, each in here.started] == ["Digest", "Call me"]


@story
async def test_a_missed_moment_is_told_of_too() -> None:
    async with world(
        cron("Digest", "0 9 * * *", ":CATCHUP: none"), alert("missed recovered")
    ) as here:
        await here.outage(3 * HOUR)
        assert [each.title for _, each in here.started] == ["Call me"]


@story
async def test_hundreds_of_alerts_after_an_outage_keep_nothing_from_starting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    jobs = [cron(f"Job {each}", "0 9 * * *", ":CATCHUP: none") for each in range(350)]
    async with world(*jobs, cron("Noon", "0 12 * * *"), alert("missed")) as here:
        add = here.ledger.add

        async def slow(*args: Any, **options: Any) -> list[Filed]:
            await here.pass_by(SECOND)  # a disk that takes its time for a commit
            return await add(*args, **options)

        monkeypatch.setattr(here.ledger, "add", slow)
        await here.outage(4 * HOUR - SECOND)
        await here.advance(5 * SECOND)
        starts = Counter(each.title for _, each in here.started)
        assert starts["Noon"] == 1
        assert starts["Call me"] >= 3, "what waits starts while the others are filed"
        await here.advance(10 * SECOND)
        starts = Counter(each.title for _, each in here.started)
        assert starts["Call me"] == 350


@story
async def test_a_source_that_is_slow_to_follow_up_keeps_nothing_from_starting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    jobs = [cron(f"Job {each}", "0 9 * * *", ":CATCHUP: none") for each in range(60)]
    async with world(*jobs, cron("Noon", "0 12 * * *")) as here:
        settled: list[int] = []

        async def slow(filed: Filed) -> None:
            settled.append(filed.number)
            await here.pass_by(SECOND)

        monkeypatch.setattr(here.source, "settle", slow)
        await here.outage(4 * HOUR - 10 * SECOND)
        await here.until(NINE + 3 * HOUR + 2 * SECOND)
        assert [each.title for _, each in here.started] == ["Noon"]
        assert len(settled) < 60
        await here.advance(2 * MINUTE)
        assert len(settled) == len(set(settled)) == 61
        assert not await here.ledger.unsettled(limit=10)


@story
async def test_an_engine_that_stops_while_a_source_follows_up_lets_it_do_so_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with world(cron("Digest", "0 9 * * *")) as here:
        settled: list[int] = []
        goes_on = asyncio.Event()

        async def hang(filed: Filed) -> None:
            await goes_on.wait()
            settled.append(filed.number)

        monkeypatch.setattr(here.source, "settle", hang)
        await here.until(NINE)
        turns, here._turns = here._turns, None
        assert turns is not None
        turns.cancel()
        await asyncio.gather(turns, return_exceptions=True)
        goes_on.set()
        await here.engine.turn()  # as the last one of an engine that stops
        assert len(settled) == 1
        assert not await here.ledger.unsettled()


@story
async def test_what_could_start_and_does_not_is_a_stall(monkeypatch: pytest.MonkeyPatch) -> None:
    async with world(cron("Digest", "0 9 * * *"), cron("Noon", "0 12 * * *")) as here:
        goes_on = asyncio.Event()

        async def hang(filed: Filed) -> None:
            await goes_on.wait()

        monkeypatch.setattr(here.source, "settle", hang)
        await here.until(NINE + 3 * HOUR)
        assert await here.engine.stall() == "", "nothing waits"
        number = (await here.numbers())["Noon"]
        asked = Receipt(
            "manual:1", Status.WAITING, because("asked"), here.clock.now(), here.clock.now()
        )
        [filed] = await here.ledger.add(number, [asked], now=here.clock.now(), term=1)
        await here.advance(29 * SECOND)
        assert await here.engine.stall() == ""
        await here.advance(2 * SECOND)
        assert await here.engine.stall() == (
            f"stalled since 2026-04-01T12:00:00Z: receipt {filed.number} (Noon, plan.org:6)"
            " does not start, although nothing blocks it; if this persists, restart the engine"
        )
        goes_on.set()
        here.engine.note_change()
        await here.advance(SECOND)
        assert await here.engine.stall() == ""
        assert [each.title for _, each in here.started] == ["Digest", "Noon", "Noon"]


@story
async def test_what_waits_for_its_turn_is_no_stall() -> None:
    hours = [cron(f"Job {each}", "0 9 * * *") for each in range(9)]
    async with world(*hours, script=lambda _: Ending(after=5 * MINUTE)) as here:
        await here.until(NINE)
        assert (len(here.started), await here.engine.stall()) == (4, "")
        await here.advance(4 * MINUTE)
        assert (len(here.started), await here.engine.stall()) == (4, "")


@story
async def test_an_alert_is_not_lost_if_the_engine_dies_before_it_is_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with world(DIGEST, alert("failed"), script=lambda _: Ending(Status.FAILED)) as here:

        async def never(*_: object, **__: object) -> list[Filed]:
            raise FULL

        with monkeypatch.context() as patched:
            patched.setattr(here.ledger, "add", never)
            await here.until(NINE + MINUTE)
            assert [each.title for _, each in here.started] == ["Digest"]
        await here.outage(SECOND)
        assert [each.title for _, each in here.started] == ["Digest", "Call me"]
