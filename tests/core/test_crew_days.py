"""Days of a crew under a clock of our own: the rhythm, the day and the cost of being idle.

The engine, the ledger and the crew's manifest are real; only what an agent does in its run
is a script.
"""

from __future__ import annotations

import asyncio
import random
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import wraps
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from msgspec import to_builtins

from horae.core.engine import Engine
from horae.core.gate import Capacity
from horae.core.ports import Ended, Process
from horae.core.receipt import ENDS, Status
from horae.core.service import Service
from horae.core.views import EngineFacts
from horae.org.document import read
from horae.sources.crew.briefing import hand, is_idle, survey
from horae.sources.crew.lifecycle import (
    Outcome,
    Position,
    TickStreaks as Counts,
    parse_lifecycle,
    standing,
    step,
)
from horae.sources.crew.rules import (
    Beat,
    agent_state,
    begun,
    ended,
    last_run_file,
    mirrored,
    parse_crew,
    read_memory,
    seconds_text,
    tick,
    write_memory,
)
from horae.sources.crew.source import CrewCadence, CrewSource
from horae.store.sqlite import SqliteLedger
from horae.testing import Ending, ManualClock
from horae.timing.duration import FIRST_WAIT
from reasons import because
from scale import scaled

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine
    from pathlib import Path

    from horae.core.ports import Job, Run, Unreleased
    from horae.core.receipt import Filed
    from horae.sources.crew.lifecycle import Lifecycle
    from horae.sources.crew.rules import AgentMemory, TickPlan

NOW = datetime(2026, 4, 1, 8, tzinfo=UTC)
SECOND, MINUTE, HOUR, DAY = (
    timedelta(seconds=1),
    timedelta(minutes=1),
    timedelta(hours=1),
    timedelta(days=1),
)
STAGGER = 30 * SECOND
NOBODY = EngineFacts(True, "here")

CANONICAL = """\
#+START: wake_add
* wake_add
:PROPERTIES:
:REPEAT: 3
:NEXT: wake_audit
:END:
* wake_audit
:PROPERTIES:
:NEXT: rem
:END:
* rem
:PROPERTIES:
:KIND: rem
:NEXT: wake_plan
:MIN-INTERVAL: 10m
:END:
* wake_plan
:PROPERTIES:
:NEXT: wake_add
:END:
"""


class Beaten(NamedTuple):
    """One tick that was let go."""

    at: datetime
    name: str
    beat: Beat
    state: str


@dataclass
class Script:
    """What the agents of a crew do, and what their days are."""

    ending: Callable[[str], Ending] = lambda _: Ending()
    days: dict[str, str] = field(default_factory=dict)
    plan: Callable[[], str] | None = None  # what agents that sleep until something is due look at
    beats: list[Beaten] = field(default_factory=list)

    def day_of(self, name: str) -> Lifecycle | None:
        text = self.days.get(name)
        return None if text is None else parse_lifecycle(text).lifecycle


class ScriptedTicks:
    """Makes ticks by the keeper's own rules; what the agent itself does is the script's."""

    def __init__(self, clock: ManualClock, script: Script, data: Path) -> None:
        self.clock = clock
        self.script = script
        self.data = data

    async def hold(self, job: Job) -> ScriptedTick:
        now = self.clock.now()
        [member] = parse_crew(job.text).members
        (self.data / last_run_file(member.name)).write_text(seconds_text(now))
        memory = read_memory(job.memory)
        sleeps = False
        if self.script.plan is not None:
            found = survey([("plan.org", read(self.script.plan()))], zone_name="UTC")
            sleeps = is_idle(hand(found, agent=member.name, now=now, zone_name="UTC"))
        made = tick(self.script.day_of(member.name), memory, now=now, sleeps=sleeps)
        return ScriptedTick(self, member.name, made, begun(memory, made, now=now))

    async def look_back(self, filed: Filed, run: Run) -> Ended | Unreleased | None:
        """Return that nobody knows how it ended."""


class ScriptedTick:
    """One tick of a script."""

    process = Process(1, 1)

    def __init__(
        self, ticks: ScriptedTicks, name: str, made: TickPlan, memory: AgentMemory
    ) -> None:
        self._ticks = ticks
        self._name = name
        self._made = made
        self._memory = memory
        self._cancelled = asyncio.Event()

    def go(self) -> None:
        made = self._made
        state = "" if made.state is None else made.state.name
        now = self._ticks.clock.now()
        self._ticks.script.beats.append(Beaten(now, self._name, made.beat, state))

    def cancel(self, reason: str) -> None:  # noqa: ARG002 - the port's signature
        self._cancelled.set()

    async def ended(self) -> Ended:
        ticks, made = self._ticks, self._made
        ending = Ending(Status.NO_WORK)
        if made.beat is Beat.WAKE:
            ending = ticks.script.ending(self._name)
        elif made.beat is Beat.REST:
            ending = Ending()
        if ending.after:
            await ticks.clock.wait(self._cancelled, until=ticks.clock.now() + ending.after)
        day = ticks.script.day_of(self._name)
        now = ticks.clock.now()
        memory = mirrored(ended(self._memory, made.beat, day, ending.outcome, now=now), name="x")
        return Ended(
            ending.outcome,
            because(made.reason or "as scripted"),
            memory=write_memory(memory),
            is_counted=made.beat is not Beat.GATED,
        )


class Box:
    """One engine after another on one ledger, one manifest and one clock."""

    def __init__(self, ledger: SqliteLedger, script: Script, home: Path, *, slots: int) -> None:
        self.ledger = ledger
        self.clock = ManualClock(NOW)
        self.script = script
        self.home = home
        self.manifest = home / "crew.org"
        self._capacity = Capacity(slots=4, crew=slots)
        self._turns: asyncio.Task[None] | None = None
        self.starts: list[datetime] = []
        self.service = Service(
            ledger=ledger,
            clock=self.clock,
            ids=lambda: "x",
            poke=self._poked,
            agent_state=agent_state,
        )

    def _poked(self) -> None:
        self.engine.note_change()

    async def up(self) -> None:
        now = self.clock.now()
        self.starts.append(now)
        source = CrewSource(
            self.manifest, CrewCadence(now), data=self.home, inline=True, clock=self.clock.now
        )
        self.engine = Engine(
            clock=self.clock,
            ledger=self.ledger,
            runner=ScriptedTicks(self.clock, self.script, self.home),
            sources=[source],
            capacity=self._capacity,
        )
        await self.engine.start()
        self._turns = asyncio.create_task(self.engine.run())
        await self.advance(0 * SECOND)

    async def down(self) -> None:
        """Kill the engine, and with it all that runs."""
        tasks = [*self.engine.launch._tasks, *filter(None, [self._turns])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._turns = None

    async def advance(self, length: timedelta) -> None:
        await self.clock.advance(length)
        if self._turns is not None and self._turns.done():
            self._turns.result()

    async def write(self, text: str) -> None:
        self.manifest.write_text(text)
        await self.engine.rescan("crew")

    async def ticks(self, name: str) -> list[Filed]:
        """Return the receipts of an agent, oldest first."""
        [entry] = await self.ledger.find(f"agent:{name}")
        page = await self.ledger.receipts(entry=entry.number, limit=100_000)
        return [*reversed(page.receipts)]

    def wakes(self, name: str, since: datetime, until: datetime) -> int:
        """Return how often an agent was woken in a time."""
        return sum(
            each.name == name and each.beat is Beat.WAKE and since <= each.at < until
            for each in self.script.beats
        )


@asynccontextmanager
async def box(home: Path, text: str, script: Script, *, slots: int = 2) -> AsyncIterator[Box]:
    ledger = await SqliteLedger.in_memory()
    made = Box(ledger, script, home, slots=slots)
    made.manifest.write_text(text)
    await made.up()
    yield made
    await made.down()
    await ledger.close()


def story(test: Callable[..., Coroutine[object, object, None]]) -> Callable[..., None]:
    """Run a test that waits for things."""

    @wraps(test)
    def told(*args: object, **kwargs: object) -> None:
        asyncio.run(test(*args, **kwargs))

    return told


def member(name: str, *lines: str) -> str:
    drawer = "".join(f"{line}\n" for line in (f":DEF: {name}.org", *lines))
    return f"* {name}\n:PROPERTIES:\n{drawer}:END:\n"


CREW = {
    "wren": (10 * MINUTE, ":INTERVAL: 10m"),
    "moss": (20 * MINUTE, ":INTERVAL: 20m"),
    "fern": (30 * MINUTE, ":INTERVAL: 30m"),
    "reed": (HOUR, ":INTERVAL: 1h"),
    "lark": (45 * SECOND, ":CONTINUOUS: true"),
}
MANIFEST = "".join(member(name, line) for name, (_, line) in CREW.items())


@story
async def test_a_crew_of_five_keeps_its_rhythm_through_days_of_trouble(
    tmp_path: Path,
) -> None:
    roll = random.Random(7)
    outcomes = [Status.DONE] * 6 + [Status.NO_WORK] * 6 + [Status.FAILED, Status.KILLED]

    def ending(name: str) -> Ending:
        return Ending(roll.choice(outcomes), roll.randrange(90) * SECOND)

    days = dict.fromkeys(("wren", "reed", "lark"), CANONICAL)
    script = Script(ending, days)
    edits: list[datetime] = []
    async with box(tmp_path, MANIFEST, script, slots=5) as here:
        length = scaled(30, few=1)
        end = NOW + length * DAY
        while here.clock.now() < end:
            await here.advance(roll.uniform(1, 300) * MINUTE)
            match roll.randrange(3):
                case 0:  # a crash, whoever runs
                    await here.down()
                    await here.advance(roll.uniform(0, 4) * MINUTE)
                    await here.up()
                case 1:  # a redeploy
                    await here.down()
                    await here.up()
                case _:  # an edit that is none of the rhythm's business, or is
                    word = roll.choice(["10m", "12m"])
                    edits.append(here.clock.now())
                    await here.write(MANIFEST.replace("10m", word) + "\nSeen today.\n")
        await here.advance(2 * HOUR)
        for index, (name, (base, _)) in enumerate(CREW.items()):
            bases = {base} if name != "wren" else {10 * MINUTE, 12 * MINUTE}
            receipts = await here.ticks(name)
            assert len(receipts) > length * 10
            marks = sorted([*here.starts, *edits] if name == "wren" else here.starts)
            check_rhythm(receipts, bases, marks, FIRST_WAIT + index * STAGGER)
        for name in days:
            await check_day(here, name)


def check_rhythm(
    receipts: list[Filed], bases: set[timedelta], marks: list[datetime], grace: timedelta
) -> None:
    """Check that each tick came when the one before it said, or a grace after a restart."""
    counts = Counts()
    for one, other in pairwise(receipts):
        assert one.ended_at is not None
        outcome = {Status.INTERRUPTED: Status.KILLED}.get(one.status, one.status)
        if "may begin again" not in one.receipt.reason:
            counts = counts.after(Outcome(outcome.value))
        expected = {one.ended_at + counts.delay(base) for base in bases}
        planned = other.receipt.planned_at
        if planned in expected:
            continue
        between = [mark for mark in marks if one.ended_at <= mark <= planned]
        assert between, f"{planned} is none of {expected}, and nobody restarted"
        assert min(expected) <= planned <= max(*expected, between[-1] + grace)


async def check_day(here: Box, name: str) -> None:
    """Check that an agent stands where its outcomes, told one by one, lead to."""
    lifecycle = here.script.day_of(name)
    assert lifecycle is not None
    place = standing(lifecycle, None)
    for filed in await here.ticks(name):
        is_held = filed.status not in ENDS or filed.status is Status.INTERRUPTED
        if is_held or "may begin again" in filed.receipt.reason:
            continue
        place = step(lifecycle, place, Outcome(filed.status.value))
    [entry] = await here.ledger.find(f"agent:{name}")
    assert read_memory(entry.memory).position == place
    states = [each.state for each in here.script.beats if each.name == name]
    for one, other in pairwise(states):
        assert other in {one, lifecycle.states[one].next}, "no state is ever skipped"


@story
async def test_an_idle_agent_goes_from_eighty_wakes_an_hour_to_two_and_back_at_once(
    tmp_path: Path,
) -> None:
    outcome = Status.DONE
    script = Script(lambda _: Ending(outcome))
    async with box(tmp_path, member("lark", ":CONTINUOUS: true"), script) as here:
        await here.advance(FIRST_WAIT)
        begun_at = here.clock.now()
        await here.advance(HOUR)
        assert here.wakes("lark", begun_at, begun_at + HOUR) == 80
        outcome = Status.NO_WORK
        await here.advance(3 * HOUR)
        now = here.clock.now()
        await here.advance(4 * HOUR)
        assert here.wakes("lark", now, now + 4 * HOUR) == 8
        outcome = Status.DONE
        await here.advance(30 * MINUTE)
        last = here.script.beats[-1].at
        assert here.clock.now() - last <= 45 * SECOND
        assert here.wakes("lark", last - HOUR, last + SECOND) > 20


@story
async def test_restarts_at_any_point_of_an_hour_leave_the_rhythm_as_it_is(tmp_path: Path) -> None:
    roll = random.Random(11)
    script = Script()
    async with box(tmp_path, member("reed", ":INTERVAL: 1h"), script) as here:
        for _ in range(scaled(200)):
            point = roll.uniform(0, 3600) * SECOND
            await here.advance(point)
            await here.down()
            await here.up()
            await here.advance(HOUR - point)
        await here.advance(2 * MINUTE)
        moments = [each.at for each in script.beats]
        assert len(moments) >= scaled(200)
        mean = (moments[-1] - moments[0]) / (len(moments) - 1)
        assert abs(mean - HOUR) < HOUR / 100


@story
async def test_a_restart_waits_for_what_is_left_and_a_fresh_crew_is_staggered(
    tmp_path: Path,
) -> None:
    text = "".join(member(name, ":INTERVAL: 1h") for name in ("wren", "moss", "fern", "reed"))
    script = Script()
    async with box(tmp_path, text, script, slots=4) as here:
        await here.advance(3 * MINUTE)
        assert [(each.at - NOW).seconds for each in script.beats] == [60, 90, 120, 150]
        await here.advance(37 * MINUTE)  # forty minutes into the hour
        await here.down()
        await here.up()
        await here.advance(25 * MINUTE)
        assert [(each.at - NOW).seconds - 3600 for each in script.beats[4:]] == [60, 90, 120, 150]


@story
async def test_who_joins_a_crew_that_runs_ticks_after_a_grace_and_who_leaves_ticks_no_more(
    tmp_path: Path,
) -> None:
    script = Script()
    async with box(tmp_path, member("wren", ":INTERVAL: 10m"), script) as here:
        await here.advance(5 * HOUR)
        joined = here.clock.now()
        await here.write(member("wren", ":INTERVAL: 10m") + member("moss", ":INTERVAL: 1h"))
        await here.advance(2 * MINUTE)
        [first] = [each.at for each in script.beats if each.name == "moss"]
        assert first == joined + FIRST_WAIT
        await here.write(member("moss", ":INTERVAL: 1h"))
        await here.advance(MINUTE)
        left = here.clock.now()
        await here.advance(HOUR)
        assert not [each for each in script.beats if each.name == "wren" and each.at > left]


@story
async def test_a_night_without_work_starts_nobody_and_one_due_headline_starts_one(
    tmp_path: Path,
) -> None:
    plan = "* TODO Water the beans\nSCHEDULED: <2026-06-06 Sat 06:00>\n"

    def ending(name: str) -> Ending:
        nonlocal plan
        plan = plan.replace("TODO Sow", "DONE Sow")
        return Ending(after=MINUTE)

    script = Script(ending, {"wren": CANONICAL}, plan=lambda: plan)
    async with box(tmp_path, member("wren", ":INTERVAL: 10m"), script) as here:
        await here.advance(DAY)
        assert not [each for each in script.beats if each.beat is not Beat.ASLEEP]
        assert len(script.beats) < 60  # it sleeps ever more deeply
        [entry] = await here.ledger.find("agent:wren")
        assert read_memory(entry.memory).position == Position("wake_add")
        assert entry.streak == len(script.beats)
        plan += "* TODO Sow the peas\nSCHEDULED: <2026-04-01 Wed>\n"
        await here.advance(30 * MINUTE)  # one tick of an agent that was idle for long
        assert here.wakes("wren", NOW, here.clock.now()) == 1
        await here.advance(DAY)
        assert here.wakes("wren", NOW, here.clock.now()) == 1


@story
async def test_a_gated_state_is_waited_for_and_costs_neither_streak_nor_place(
    tmp_path: Path,
) -> None:
    text = CANONICAL.replace("10m", "2h")
    script = Script(days={"wren": text})
    async with box(tmp_path, member("wren", ":INTERVAL: 10m"), script) as here:
        await here.advance(6 * HOUR)
        rests = [each.at for each in script.beats if each.beat is Beat.REST]
        assert all(other - one >= 2 * HOUR for one, other in pairwise(rests))
        assert len(rests) == 3
        gated = [each for each in script.beats if each.beat is Beat.GATED]
        assert {each.state for each in gated} == {"rem"}
        assert len(gated) > 5
        [entry] = await here.ledger.find("agent:wren")
        assert (entry.streak, entry.failures) == (0, 0)


@story
async def test_a_tick_that_is_asked_for_replaces_the_pending_one(tmp_path: Path) -> None:
    script = Script(lambda _: Ending(after=5 * MINUTE))
    async with box(tmp_path, member("reed", ":INTERVAL: 1h"), script) as here:
        await here.advance(30 * MINUTE)
        assert len(script.beats) == 1
        line = await here.service.tick("reed", note="to see it")
        asked = here.clock.now()
        assert (line.key, line.status) == ("tick:2", Status.WAITING)
        await here.advance(MINUTE)
        status = await here.service.status(NOBODY)
        [agent] = status.agents
        assert (agent.running, agent.next_run) == (True, None)
        await here.advance(64 * MINUTE - SECOND)
        assert [each.at for each in script.beats[1:]] == [asked]
        await here.advance(2 * SECOND)
        assert script.beats[2].at == asked + 65 * MINUTE
        keys = [each.receipt.key for each in await here.ticks("reed")]
        assert keys == ["tick:1", "tick:2", "tick:3"]


@story
async def test_a_tick_in_the_boot_grace_comes_at_once_and_a_long_one_is_never_doubled(
    tmp_path: Path,
) -> None:
    script = Script(lambda _: Ending(after=20 * MINUTE))
    async with box(tmp_path, member("lark", ":CONTINUOUS: true"), script) as here:
        await here.service.tick("lark")
        await here.advance(19 * MINUTE)
        await here.engine.rescan("crew")
        await here.advance(5 * MINUTE)
        assert [each.at - NOW for each in script.beats] == [
            0 * SECOND,
            20 * MINUTE + 45 * SECOND,
        ]
        assert [each.status for each in await here.ticks("lark")] == [Status.DONE, Status.RUNNING]


@story
async def test_a_status_tells_how_each_agent_is(tmp_path: Path) -> None:
    outcome = Status.FAILED
    script = Script(lambda _: Ending(outcome), {"wren": CANONICAL})
    async with box(tmp_path, member("wren", ":INTERVAL: 10m"), script) as here:
        [agent] = (await here.service.status(NOBODY)).agents
        assert (agent.last_outcome, agent.last_run, agent.lifecycle) == (None, None, None)
        assert agent.next_run == NOW + FIRST_WAIT
        await here.advance(50 * MINUTE)
        [agent] = (await here.service.status(NOBODY)).agents
        assert (agent.last_outcome, agent.failures, agent.stuck) == (Status.FAILED, 5, True)
        outcome = Status.NO_WORK
        await here.advance(30 * MINUTE)
        told = to_builtins(await here.service.status(NOBODY))["agents"]
        assert told[0]["lifecycle"] == {
            "state": "wake_plan",
            "hits": 0,
            "next_state": "wake_add",
            "kind": "wake",
        }
        # It found no work twice, and then rested, which is work.
        assert (told[0]["streak"], told[0]["stuck"], told[0]["last_outcome"]) == (0, False, "done")
