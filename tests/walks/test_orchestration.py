"""Orchestration, from top to bottom: what keeps a standing agent standing.

A worker is woken again and again, has a place in its day, shares a machine with others, and
loses neither rhythm nor place. Its agents are shell scripts here; all else is the real thing,
but for the clock of the engine, which is turned by hand.
"""

from __future__ import annotations

import asyncio
import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
import pytest

from horae.core.entry import Entry
from horae.core.receipt import Status
from horae.process.processes import can_kill_trees
from horae.sources.crew.lifecycle import StateKind, parse_lifecycle
from waiting import until
from walks.stage import (
    EIGHT,
    HOUR,
    MINUTE,
    SECOND,
    engine,
    git,
    story,
    type_,
    typed,
)

if TYPE_CHECKING:
    from datetime import timedelta

    from walks.stage import Engine, Ground

pytestmark = pytest.mark.skipif(not can_kill_trees(), reason="needs pidfds")

DAY = """\
#+START: wake_add
* wake_add
:PROPERTIES:
:KIND: wake
:REPEAT: 3
:NEXT: wake_audit
:END:
Add one thing.
* wake_audit
:PROPERTIES:
:KIND: wake
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
:KIND: wake
:NEXT: wake_add
:END:
"""
# An agent that notes in which state it was woken, and answers what stands in SIDE/answer.
NOTES = (
    "sed -n 's/^LIFECYCLE: //p' >> SIDE/states\n"
    "[ -e SIDE/answer ] && cat SIDE/answer || echo I did something\n"
)
# An agent that goes on until somebody lets it end; each says when it has begun.
WAITS = (
    "echo $HORAE_AGENT >> SIDE/begun; until [ -e SIDE/go ]; do sleep 0.1; done; echo I am done\n"
)
BREATHER = 45 * SECOND


def is_alive(pid: int) -> bool:
    """Tell whether a process is there."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return False
    return stat.rpartition(b") ")[2][:1] not in {b"Z", b"X"}


def is_begun(ground: Ground, name: str) -> bool:
    """Tell whether an agent has begun."""
    return name in ground.seen("begun").split()


def one_worker(ground: Ground, script: str = NOTES, lines: str = ":INTERVAL: 1h") -> None:
    """Let wren be the crew, with a day."""
    ground.agent(script)
    ground.write("day.org", DAY)
    ground.crew(wren=f"{lines}; :LIFECYCLE: day.org")


async def walked(here: Engine, ground: Ground, count: int, name: str = "wren") -> list[str]:
    """Let an agent tick so often, each time when its time has come; return its places."""
    places = []
    for _ in range(count):
        await here.until(await here.next_run(name))
        places.append(ground.state(f"lifecycle-pos-{name}"))
    return places


# Cron is not a colleague: five ways in which a line of cron fails


@story
async def test_the_schedule_does_not_die_with_the_run(ground: Ground) -> None:
    one_worker(ground, "echo oops >&2; kill -9 $$")
    async with engine(ground) as here:
        await here.advance(3 * HOUR)
        assert await here.statuses("wren") == [Status.FAILED] * 3
        assert await here.next_run() > here.now
        assert here.app.is_well()


@story
async def test_a_redeploy_does_not_reset_the_clock(ground: Ground) -> None:
    one_worker(ground)
    async with engine(ground) as here:
        await here.advance(MINUTE)
        due = await here.next_run()
    async with engine(ground, now=due - 5 * MINUTE) as here:
        assert await here.next_run() == due


@story
async def test_an_idle_poll_need_not_even_start_the_model(ground: Ground) -> None:
    one_worker(ground, "echo x >> SIDE/woken", ":INTERVAL: 1h; :WAKE: due")
    async with engine(ground) as here:
        await here.advance(3 * HOUR)
        assert await here.statuses("wren") == [Status.NO_WORK] * 3
        assert ground.seen("woken") == ""


@story
async def test_the_days_have_a_shape(ground: Ground) -> None:
    one_worker(ground)
    async with engine(ground) as here:
        await walked(here, ground, 6)
        assert ground.seen("states").split() == ["wake_add"] * 3 + ["wake_audit", "wake_plan"]


@story
async def test_two_agents_on_one_board_do_not_both_reach_for_the_top_ticket(
    ground: Ground,
) -> None:
    two_on_one_board(ground, CAREFUL)
    async with engine(ground, environ={"HORAE_GIT_LOCAL": str(ground.origin)}) as here:
        await asyncio.gather(here.tick("wren"), here.tick("moss"))
    taken = [line.split() for line in ground.seen("taken").splitlines()]
    assert sorted(task for _, task in taken) == ["task-7", "task-8"]


# The definition


@story
async def test_one_worker_is_one_agent_is_one_cadence(ground: Ground) -> None:
    for name in ("wren", "moss"):
        ground.agent("echo done", name=name)
    ground.crew(wren=":INTERVAL: 10m", moss=":INTERVAL: 20m")
    async with engine(ground) as here:
        known = await here.app.ledger.entries()
        assert [each.mark.address for each in known] == ["agent:wren", "agent:moss"]
        assert [(await here.agent(each))["rule"] for each in ("wren", "moss")] == [
            "10m after the end of each tick",
            "20m after the end of each tick",
        ]


# Anatomy of a tick


@story
async def test_a_tick_notes_its_moment_then_pulls_then_asks_the_day_and_then_runs(
    ground: Ground,
) -> None:
    one_worker(
        ground,
        f"cat {ground.data}/keeper-last-run-wren > SIDE/noted; cat news.txt > SIDE/pulled; {NOTES}",
    )
    ground.repository(origin=True)
    environ = {"WB_GITOPS": "1", "HORAE_GIT_LOCAL": str(ground.origin)}
    async with engine(ground, environ=environ) as here:
        peer = ground.clone("peer")
        (peer / "news.txt").write_text("from anywhere\n")
        ground.commit("News", at=peer)
        git("push", "-q", at=peer)
        await here.advance(MINUTE)
        assert await here.statuses("wren") == [Status.DONE]
    assert int(ground.seen("noted")) == (EIGHT + MINUTE).timestamp()
    assert ground.seen("pulled") == "from anywhere\n", "live within one tick"
    assert ground.seen("states") == "wake_add\n"


@story
async def test_without_gitops_nothing_is_pulled(ground: Ground) -> None:
    one_worker(ground)
    ground.repository(origin=True)
    async with engine(ground, environ={"HORAE_GIT_LOCAL": str(ground.origin)}) as here:
        peer = ground.clone("peer")
        (peer / "news.txt").write_text("from anywhere\n")
        ground.commit("News", at=peer)
        git("push", "-q", at=peer)
        await here.app.engine.launch.rest()
        ground.agent("echo NO-WORK")
        await here.tick()
        assert not (ground.root / "news.txt").exists()


@story
async def test_the_pull_is_a_best_effort_and_the_tick_goes_on(ground: Ground) -> None:
    one_worker(ground, "echo NO-WORK")
    ground.repository(origin=True)
    ground.origin.rename(ground.side / "gone.git")
    environ = {"WB_GITOPS": "1", "HORAE_GIT_LOCAL": str(ground.origin)}
    async with engine(ground, environ=environ) as here:
        await here.advance(MINUTE)
        assert await here.statuses("wren") == [Status.NO_WORK]
        assert "pull" in (await here.agent())["troubles"]


@story
async def test_a_tick_at_a_gate_that_is_shut_does_nothing_and_holds_its_place(
    ground: Ground,
) -> None:
    one_worker(ground, lines=":INTERVAL: 1m")
    ground.write("day.org", "* work\n:PROPERTIES:\n:MIN-INTERVAL: 10m\n:END:\n")
    async with engine(ground) as here:
        await here.advance(3 * MINUTE)
        ran, *gated = await here.receipts("wren")
        assert (ran.status, ground.seen("states")) == (Status.DONE, "work\n")
        assert {each.receipt.reason.partition(" in ")[0] for each in gated} == {
            "work may begin again"
        }
        assert ground.state("lifecycle-pos-wren") == "work 0"
        assert (await here.agent())["streak"] == 0
        assert await here.wait_for_next() == MINUTE, "and the next one is scheduled"


def test_the_wall_clock_is_fifteen_minutes(ground: Ground) -> None:
    shown = typed("horae", "config", "keeper.timeout", "--table", at=ground.root)
    assert shown.out == "keeper.timeout = 15m\n"


@story
async def test_every_tick_is_bounded_by_it(ground: Ground) -> None:
    one_worker(ground)
    async with engine(ground) as here:
        [known] = await here.app.ledger.find("agent:wren")
        assert isinstance(known.item, Entry)
        assert known.item.policy.timeout == 15 * MINUTE


@story
async def test_a_run_that_hangs_is_killed_with_all_it_started_and_the_worker_goes_on(
    ground: Ground,
) -> None:
    one_worker(
        ground,
        "sleep 1000 & echo $$ $! > SIDE/pids; wait",
        ":INTERVAL: 10m; :TIMEOUT: 1s",
    )
    async with engine(ground) as here:
        await here.advance(MINUTE)
        [filed] = await here.receipts("wren")
        assert (filed.status, "time limit of 1s" in filed.receipt.reason) == (Status.KILLED, True)
        pids = [int(each) for each in ground.seen("pids").split()]
        await until(lambda: not any(map(is_alive, pids)))
        one_worker(ground, lines=":INTERVAL: 10m")
        await here.reread()
        await here.advance(10 * MINUTE)
        assert (await here.statuses("wren"))[-1] is Status.DONE


@story
async def test_a_standing_agent_and_a_single_request_run_by_the_same_path(ground: Ground) -> None:
    one_worker(ground, "cat > SIDE/told-$HORAE_KEY; echo $0 $# $HORAE_AGENT >> SIDE/called")
    async with engine(ground) as here:
        await here.advance(MINUTE)
        asked = await here.post("/api/run", {"agent": "wren", "task": "Add one thing."})
        assert asked.status_code == 202, asked.text
        number = int(asked.json()["id"].removeprefix("run-"))
        assert (await here.over(number)).status is Status.DONE
    called = ground.seen("called").splitlines()
    assert len(called) == 2
    assert len({line.split()[0] for line in called}) == 1, "the same program"
    told = [each.read_text() for each in sorted(ground.side.glob("told-*"))]
    assert all("You are wren." in each and "Add one thing." in each for each in told)


# A day declared in org


def test_the_headings_are_states_and_their_drawers_carry_edges_and_gates() -> None:
    day = parse_lifecycle(DAY).lifecycle
    assert day is not None
    assert day.start == "wake_add"
    states = {
        name: (state.kind, state.repeat, state.next, state.min_interval)
        for name, state in day.states.items()
    }
    assert states == {
        "wake_add": (StateKind.WAKE, 3, "wake_audit", None),
        "wake_audit": (StateKind.WAKE, 1, "rem", None),
        "rem": (StateKind.REM, 1, "wake_plan", 10 * MINUTE),
        "wake_plan": (StateKind.WAKE, 1, "wake_add", None),
    }


@story
async def test_the_loop_is_add_three_times_audit_rest_plan_and_add_again(ground: Ground) -> None:
    one_worker(ground)
    async with engine(ground) as here:
        assert await walked(here, ground, 7) == [
            "wake_add 1",
            "wake_add 2",
            "wake_audit 0",
            "rem 0",
            "wake_plan 0",
            "wake_add 0",
            "wake_add 1",
        ]
    woken = ["wake_add"] * 3 + ["wake_audit", "wake_plan", "wake_add"]
    assert ground.seen("states").split() == woken, "a rest calls no model"


@story
async def test_a_rest_waits_until_ten_minutes_have_passed_since_the_last(ground: Ground) -> None:
    one_worker(ground, lines=":INTERVAL: 1m")
    async with engine(ground) as here:
        await here.advance(16 * MINUTE)
        began = [
            filed.receipt.planned_at
            for filed in await here.receipts("wren")
            for run in await here.app.ledger.runs_of(filed.number)
            if run.facts.get("state") == "rem" and "may begin again" not in filed.receipt.reason
        ]
        assert [one - began[0] for one in began] == [0 * MINUTE, 10 * MINUTE]
        refused = [
            each
            for each in await here.receipts("wren")
            if each.receipt.reason.startswith("rem may begin again in ")
        ]
        assert len(refused) == 4


@story
async def test_what_is_done_inside_a_state_is_up_to_the_agent(ground: Ground) -> None:
    one_worker(ground, "cat > SIDE/told")
    async with engine(ground) as here:
        await here.advance(MINUTE)
    told = ground.seen("told")
    assert "LIFECYCLE: wake_add\n" in told
    assert "\nAdd one thing.\n" in told, "what stands under the state is handed over, as it is"


@story
async def test_the_day_is_read_again_at_every_tick(ground: Ground) -> None:
    one_worker(ground)
    async with engine(ground) as here:
        await walked(here, ground, 1)
        ground.write("day.org", DAY.replace(":REPEAT: 3", ":REPEAT: 2"))
        assert await walked(here, ground, 1) == ["wake_audit 0"]


# Four outcomes, one rule each


@pytest.mark.parametrize(
    ("script", "status", "place", "delay"),
    [
        pytest.param("echo I did", Status.DONE, "wake_add 1", BREATHER, id="done"),
        pytest.param("echo NO-WORK", Status.NO_WORK, "wake_audit 0", MINUTE, id="no_work"),
        pytest.param("exit 3", Status.FAILED, "wake_add 0", BREATHER, id="failed"),
        pytest.param("sleep 1000", Status.KILLED, "wake_add 0", BREATHER, id="killed"),
    ],
)
@story
async def test_each_outcome_has_one_effect_on_the_place_and_one_on_the_delay(
    ground: Ground, script: str, status: Status, place: str, delay: timedelta
) -> None:
    bound = "; :TIMEOUT: 1s" if status is Status.KILLED else ""
    one_worker(ground, script, f":CONTINUOUS: true{bound}")
    async with engine(ground) as here:
        await here.advance(MINUTE)
        assert await here.statuses("wren") == [status]
        assert ground.state("lifecycle-pos-wren") == place
        assert await here.wait_for_next() == delay


@story
async def test_a_run_that_the_engine_left_behind_counts_as_killed(ground: Ground) -> None:
    """Different here: there is a fifth word, `interrupted`, for what an engine's end cut off.

    Its effect is that of a kill: the place holds, and the same state is tried again.
    """
    one_worker(ground, WAITS)
    async with engine(ground) as here:
        await here.advance(MINUTE, busy=1)
        await until(lambda: ground.seen("begun"))
    one_worker(ground)
    async with engine(ground, now=EIGHT + 2 * MINUTE) as here:
        assert await here.statuses("wren") == [Status.INTERRUPTED]
        assert (await here.agent())["failures"] == 1
        assert await walked(here, ground, 1) == ["wake_add 1"]
    assert ground.seen("states") == "wake_add\n"


def test_with_these_rules_the_next_six_ticks_can_be_predicted(ground: Ground) -> None:
    ground.write("day.org", DAY)
    told = typed(
        "horae",
        "agent",
        "lifecycle",
        "day.org",
        "--every",
        "1h",
        "--next",
        "6",
        "--json",
        at=ground.root,
    )
    assert [(each["state"], each["hits"]) for each in told.data] == [
        ("wake_add", 0),
        ("wake_add", 1),
        ("wake_add", 2),
        ("wake_audit", 0),
        ("rem", 0),
        ("wake_plan", 0),
    ]


@story
async def test_a_crash_or_a_timeout_holds_the_place_and_the_same_state_is_tried_again(
    ground: Ground,
) -> None:
    one_worker(ground)
    async with engine(ground) as here:
        await walked(here, ground, 2)
        ground.agent("exit 1")
        assert await walked(here, ground, 2) == ["wake_add 2"] * 2
        ground.agent(NOTES)
        assert await walked(here, ground, 1) == ["wake_audit 0"]
    assert ground.seen("states").split() == ["wake_add"] * 3


@story
async def test_no_work_is_a_fast_forward_of_repeats_and_never_a_skip_of_states(
    ground: Ground,
) -> None:
    one_worker(ground)
    (ground.side / "answer").write_text("NO-WORK: nothing to add\n")
    async with engine(ground) as here:
        places = await walked(here, ground, 4)
        assert places == ["wake_audit 0", "rem 0", "wake_plan 0", "wake_add 0"]
    assert ground.seen("states").split() == ["wake_add", "wake_audit", "wake_plan"]


# Cadence that survives the machine

KEEPER_FILES = ("keeper-last-run", "lifecycle-pos", "lifecycle-ran-rem")


@story
async def test_the_sense_of_time_is_three_tiny_files(ground: Ground) -> None:
    """The names are those of a single keeper.

    Different here: each state that ran has its file, not only one with a gate, so that a gate
    that is written tomorrow already knows when its state last ran.
    """
    single_keeper(ground)
    async with engine(ground, environ=keeper_variables(ground)) as here:
        await here.advance(HOUR + MINUTE)
        assert ground.state("keeper-last-run") == f"{(EIGHT + HOUR + MINUTE).timestamp():.0f}"
        assert ground.state("lifecycle-pos") == "wake_add 2"
        await here.advance(3 * HOUR)
        assert ground.state("lifecycle-ran-rem") == f"{(EIGHT + 4 * HOUR + MINUTE).timestamp():.0f}"


def single_keeper(ground: Ground) -> None:
    ground.agent(NOTES)
    ground.write("day.org", DAY)
    settings = (ground.root / "horae.toml").read_text()
    ground.write("horae.toml", settings.replace('[crew]\ndef = "crew.org"\n', ""))


def keeper_variables(ground: Ground) -> dict[str, str]:
    return {
        "WB_KEEPER_DEF": str(ground.root / "wren.org"),
        "WB_LIFECYCLE_DEF": str(ground.root / "day.org"),
    }


@pytest.mark.parametrize(
    ("elapsed", "left"),
    [
        pytest.param(40 * MINUTE, 20 * MINUTE, id="forty minutes into the hour"),
        pytest.param(59 * MINUTE + 30 * SECOND, MINUTE, id="not less than a minute"),
        pytest.param(3 * HOUR, MINUTE, id="long overdue"),
    ],
)
@story
async def test_after_a_restart_the_delay_is_what_is_left_and_at_least_a_minute(
    ground: Ground, elapsed: timedelta, left: timedelta
) -> None:
    """It counts from the end of the last tick; a fresh engine without a ledger, from its file."""
    one_worker(ground)
    async with engine(ground) as here:
        await here.advance(MINUTE)
    async with engine(ground, now=EIGHT + MINUTE + elapsed) as here:
        assert await here.wait_for_next() == left


@story
async def test_a_restart_loop_cannot_hammer_the_model(ground: Ground) -> None:
    one_worker(ground)
    for restart in range(5):
        async with engine(ground, now=EIGHT + restart * 50 * SECOND) as here:
            await here.advance(45 * SECOND)
    assert ground.seen("states") == ""


@story
async def test_where_an_agent_is_in_its_day_is_answered_while_it_runs(ground: Ground) -> None:
    one_worker(ground)
    async with engine(ground) as here:
        await walked(here, ground, 2)
        ground.agent(WAITS)
        await here.until(await here.next_run(), busy=1)
        await until(lambda: ground.seen("begun"))
        agent = await here.get("/api/v1/agents/wren")
        assert (agent["running"], agent["next_run"]) == (True, None)
        assert (agent["lifecycle"]["state"], agent["lifecycle"]["hits"]) == ("wake_add", 2)
        (ground.side / "go").touch()
        await here.rest()


@story
async def test_the_gate_of_a_state_that_never_ran_is_open(ground: Ground) -> None:
    one_worker(ground)
    ground.write("day.org", DAY.replace("START: wake_add", "START: rem"))
    async with engine(ground) as here:
        assert await walked(here, ground, 1) == ["wake_plan 0"]


@story
async def test_the_position_is_a_fact_on_disk(ground: Ground) -> None:
    """A fresh engine that knows nothing goes on from the files alone."""
    single_keeper(ground)
    ground.write(".horae/keeper-last-run", f"{(EIGHT - 40 * MINUTE).timestamp():.0f}\n")
    ground.write(".horae/lifecycle-pos", "wake_add 2\n")
    async with engine(ground, environ=keeper_variables(ground)) as here:
        assert await here.wait_for_next() == 20 * MINUTE
        await here.advance(20 * MINUTE)
        assert ground.state("lifecycle-pos") == "wake_audit 0"


# The price of idleness


@story
async def test_an_idle_worker_waits_ever_longer_and_one_piece_of_work_ends_that(
    ground: Ground,
) -> None:
    ground.agent(NOTES)
    ground.crew(wren=":CONTINUOUS: true")
    async with engine(ground) as here:
        await here.until(await here.next_run())
        delays = [await here.wait_for_next()]
        (ground.side / "answer").write_text("NO-WORK\n")
        for _ in range(7):
            await here.until(await here.next_run())
            delays.append(await here.wait_for_next())
        assert delays == [45 * SECOND, *(n * MINUTE for n in (1, 2, 4, 8, 16, 30, 30))]
        assert (HOUR / delays[0], HOUR / delays[-1]) == (80, 2), "wakes an hour"
        (ground.side / "answer").write_text("There was something.\n")
        await here.until(await here.next_run())
        assert await here.wait_for_next() == 45 * SECOND
        assert (await here.agent())["streak"] == 0


@pytest.mark.parametrize(
    ("answer", "status"),
    [
        ("NO-WORK", Status.NO_WORK),
        ("NO-WORK: the board is empty", Status.NO_WORK),
        ("There is NO-WORK left", Status.DONE),
        ("no work", Status.DONE),
    ],
)
@story
async def test_an_answer_that_begins_with_the_literal_word_is_no_work(
    ground: Ground, answer: str, status: Status
) -> None:
    one_worker(ground)
    (ground.side / "answer").write_text(answer)
    async with engine(ground) as here:
        assert (await here.tick()).status is status


@story
async def test_the_backoff_is_never_shorter_than_the_base(ground: Ground) -> None:
    one_worker(ground, "echo NO-WORK", ":INTERVAL: 5m")
    ground.crew(wren=":INTERVAL: 5m")
    async with engine(ground) as here:
        delays = []
        for _ in range(4):
            await here.until(await here.next_run())
            delays.append(await here.wait_for_next())
        assert delays == [5 * MINUTE, 5 * MINUTE, 5 * MINUTE, 8 * MINUTE]


# Many workers, one box


@story
async def test_each_member_of_the_manifest_is_a_worker_of_its_own(ground: Ground) -> None:
    for name in ("wren", "moss"):
        ground.agent("pwd >> SIDE/where; echo done", name=name)
    ground.write("day.org", DAY)
    ground.crew(wren=":LIFECYCLE: day.org; :INTERVAL: 10m", moss=":INTERVAL: 20m")
    ground.repository()
    async with engine(ground) as here:
        await here.advance(11 * MINUTE)
        assert (len(await here.receipts("wren")), len(await here.receipts("moss"))) == (2, 1)
        assert ground.state("lifecycle-pos-wren") == "wake_add 2"
        wren, moss = (int(ground.state(f"keeper-last-run-{each}")) for each in ("wren", "moss"))
        assert wren - moss == (10 * MINUTE - 30 * SECOND).total_seconds()
        assert not (ground.data / "lifecycle-pos-moss").exists(), "it has no day"
    assert {Path(each).name for each in ground.seen("where").split()} == {"wren", "moss"}


@story
async def test_the_first_ticks_are_thirty_seconds_apart(ground: Ground) -> None:
    names = ("wren", "moss", "fern")
    ground.crew(**dict.fromkeys(names, ""))
    for name in names:
        ground.agent("echo done", name=name)
    async with engine(ground) as here:
        firsts = [await here.next_run(name) for name in names]
        assert firsts == [EIGHT + MINUTE + index * 30 * SECOND for index in range(3)]


@story
async def test_two_run_at_a_time_and_the_others_park_in_the_order_they_came(
    ground: Ground,
) -> None:
    names = ("wren", "moss", "fern", "lark")
    for name in names:
        ground.agent(WAITS.replace("SIDE/go", "SIDE/go-$HORAE_AGENT"), name=name)
    ground.crew(**dict.fromkeys(names, ""))
    async with engine(ground) as here:
        await here.until(EIGHT + 150 * SECOND, busy=2)
        gate = await here.get("/api/v1/gate")
        assert [each["title"] for each in gate["holding"]] == ["wren", "moss"]
        assert [each["title"] for each in gate["waiting"]] == ["fern", "lark"]
        for leaving, coming in (("moss", "fern"), ("wren", "lark")):
            (ground.side / f"go-{leaving}").touch()
            await until(partial(is_begun, ground, coming))
        for name in ("fern", "lark"):
            (ground.side / f"go-{name}").touch()
        await here.rest()
        assert [await here.statuses(each) for each in names] == [[Status.DONE]] * 4


@pytest.mark.parametrize(
    ("script", "bound", "status"),
    [
        pytest.param("sleep 1000", ":TIMEOUT: 1s", Status.KILLED, id="blows its wall clock"),
        pytest.param("kill -9 $$", "", Status.FAILED, id="crashes"),
    ],
)
@story
async def test_a_run_that_ends_badly_returns_its_slot(
    ground: Ground, script: str, bound: str, status: Status
) -> None:
    ground.agent(f"until [ -e SIDE/go ]; do sleep 0.1; done; {script}")
    ground.agent("echo done", name="moss")
    ground.crew(wren=bound, moss="")
    async with engine(ground, environ={"WB_CREW_MAX_CONCURRENT": "1"}) as here:
        await here.until(EIGHT + MINUTE, busy=1)
        (ground.side / "go").touch()
        await here.until(EIGHT + 90 * SECOND)
        assert await here.statuses("wren") == [status]
        assert await here.statuses("moss") == [Status.DONE]


def test_the_gate_lets_two_through_by_default(ground: Ground) -> None:
    shown = typed("horae", "config", "crew.max_concurrent", "--table", at=ground.root)
    assert shown.out == "crew.max_concurrent = 2\n"


# Claims, not locks

BOARD = """\
#+TODO: TODO NEXT DOING | DONE
* NEXT task-7
* NEXT task-8
"""
# It pulls, takes the first ticket that is free with a commit that is pushed, and only then works.
CAREFUL = """\
for try in 1 2 3 4 5; do
  git fetch -q SIDE/origin.git main && git reset -q --hard FETCH_HEAD
  task=$(sed -n 's/^\\* NEXT //p' board.org | head -n 1)
  [ -z "$task" ] && { echo NO-WORK; exit; }
  sed -i "s/^\\* NEXT $task\\$/* DOING $task\\n:PROPERTIES:\\n:AGENT: $HORAE_AGENT\\n:END:/" board.org
  git commit -qam "$task: DOING, $HORAE_AGENT"
  if git push -q SIDE/origin.git HEAD:main 2>/dev/null; then
    echo "$HORAE_AGENT $task" >> SIDE/taken
    echo "I work on $task"
    exit
  fi
done
exit 1
"""
# It takes what its own copy says is free, and tells nobody before the work.
CARELESS = """\
task=$(sed -n 's/^\\* NEXT //p' board.org | head -n 1)
echo "$HORAE_AGENT $task" >> SIDE/taken
until [ $(wc -l < SIDE/taken) -ge 2 ]; do sleep 0.1; done
sed -i "s/^\\* NEXT $task\\$/* DOING $task\\n:PROPERTIES:\\n:AGENT: $HORAE_AGENT\\n:END:/" board.org
git commit -qam "$task: DOING, $HORAE_AGENT"
"""


def two_on_one_board(ground: Ground, script: str) -> None:
    """Let wren and moss share a board in git."""
    for name in ("wren", "moss"):
        ground.agent(script, name=name)
    ground.crew(wren="", moss="")
    ground.write("board.org", BOARD)
    ground.repository(origin=True)


@story
async def test_a_claim_is_a_state_and_a_name_committed_before_the_work(ground: Ground) -> None:
    two_on_one_board(ground, CAREFUL)
    async with engine(ground, environ={"HORAE_GIT_LOCAL": str(ground.origin)}) as here:
        await here.tick("wren")
        assert "* DOING task-7\n:PROPERTIES:\n:AGENT: wren\n:END:\n" in git(
            "show", "main:board.org", at=ground.origin
        )
        await here.tick("moss")  # which pulls first, sees that claim, and takes the next
    assert ground.seen("taken").splitlines() == ["wren task-7", "moss task-8"]
    log = git("log", "--format=%an: %s", "main", at=ground.origin).splitlines()
    assert log[:2] == ["moss: task-8: DOING, moss", "wren: task-7: DOING, wren"]


@story
async def test_a_claim_can_be_seen_and_reverted(ground: Ground) -> None:
    two_on_one_board(ground, CAREFUL)
    async with engine(ground, environ={"HORAE_GIT_LOCAL": str(ground.origin)}) as here:
        await here.tick("wren")
    peer = ground.clone("peer")
    git("revert", "--no-edit", "HEAD", at=peer)
    assert (peer / "board.org").read_text() == BOARD


@story
async def test_the_runtime_isolates_runs_and_locks_nothing(ground: Ground) -> None:
    """A definition that works before it claims can take a ticket twice, and that can be seen."""
    two_on_one_board(ground, CARELESS)
    async with engine(ground, environ={"HORAE_GIT_LOCAL": str(ground.origin)}) as here:
        await asyncio.gather(here.tick("wren"), here.tick("moss"))
        problems = here.app.facts().problems
    assert sorted(ground.seen("taken").split()[1::2]) == ["task-7", "task-7"]
    # Both claims are in git: one on the main branch, the other where a person finds it.
    subjects = git("log", "--all", "--format=%s", at=ground.root).splitlines()
    assert {"task-7: DOING, wren", "task-7: DOING, moss"} <= set(subjects)
    assert len([each for each in problems if " is kept on horae-work/" in each]) == 1


def test_a_claim_is_one_command_for_whoever_wants_more_than_a_convention(ground: Ground) -> None:
    """Beyond the document: `horae claim` does all of it, and says who was first."""
    ground.write("board.org", BOARD)
    ground.repository()
    words = ("claim", "board.org", "task-7", "--agent")
    assert typed("horae", *words, "wren", at=ground.root).code == 0
    late = typed("horae", *words, "moss", at=ground.root)
    assert (late.code, "claimed by wren; claim another headline" in late.err) == (6, True)
    assert git("log", "-1", "--format=%s", at=ground.root) != "Begin\n"


# Where the edges are


@story
async def test_a_state_that_keeps_failing_is_tried_for_ever_but_ever_more_seldom(
    ground: Ground,
) -> None:
    """Different here: after three failures in a row the wait grows and the agent is *stuck*.

    A state that fails holds its place for ever, as it should. But a broken agent at its full
    rhythm is a bill that nobody reads: so the fourth failure waits as an idle tick would, a
    minute and then twice as long up to half an hour, and everybody is told. One good end is
    enough to be back at the base.
    """
    one_worker(ground, "exit 1", ":CONTINUOUS: true")
    async with engine(ground) as here:
        delays, stuck = [], []
        for _ in range(6):
            await here.until(await here.next_run())
            delays.append(await here.wait_for_next())
            stuck.append((await here.agent())["stuck"])
        assert delays == [BREATHER] * 3 + [MINUTE, 2 * MINUTE, 4 * MINUTE]
        assert stuck == [False] * 3 + [True] * 3
        assert ground.state("lifecycle-pos-wren") == "wake_add 0"
        ground.agent(NOTES)
        await here.until(await here.next_run())
        assert await here.wait_for_next() == BREATHER


@story
async def test_a_gate_counts_elapsed_time_and_knows_no_calendar(ground: Ground) -> None:
    one_worker(ground, lines=":INTERVAL: 7m")
    ground.write("day.org", "* work\n:PROPERTIES:\n:MIN-INTERVAL: 10m\n:END:\n")
    async with engine(ground) as here:
        await here.advance(MINUTE + 28 * MINUTE)
        ran = [
            each.receipt.planned_at - EIGHT
            for each in await here.receipts("wren")
            if each.status is Status.DONE
        ]
        # Not at 10, 20, 30: at the first tick by which ten minutes are over.
        assert ran == [MINUTE, 15 * MINUTE, 29 * MINUTE]


@story
async def test_a_data_directory_has_one_engine(ground: Ground) -> None:
    """One box is the default. Different here: with a shared database several machines take part.

    There one of them leads at a time, so that each cadence still has one keeper.
    """
    one_worker(ground)
    async with engine(ground):
        second = await type_("horae", "up", ".", "--seconds", "5", at=ground.root)
        assert second.code == 6, second.err
        assert f"an engine is already running here (process {os.getpid()}," in second.err


# Questions people ask


@story
async def test_an_edit_of_the_day_leaves_the_place_unless_its_state_is_gone(
    ground: Ground,
) -> None:
    one_worker(ground)
    async with engine(ground) as here:
        await walked(here, ground, 3)
        assert ground.state("lifecycle-pos-wren") == "wake_audit 0"
        ground.write("day.org", DAY.replace(":REPEAT: 3", ":REPEAT: 2"))
        assert await walked(here, ground, 1) == ["rem 0"]
        rewritten = DAY.replace("rem", "quiet")
        ground.write("day.org", rewritten)
        await walked(here, ground, 1)
        assert ground.seen("states").split()[-1] == "wake_add", "it began at the start"
        assert ground.state("lifecycle-pos-wren") == "wake_add 1"


@story
async def test_the_public_plane_says_how_each_agent_is_also_in_the_middle_of_a_run(
    ground: Ground,
) -> None:
    """Different here: that plane is off until `server.public` is set; all else needs the token."""
    one_worker(ground)
    async with engine(ground, environ={"HORAE_SERVER_PUBLIC": "1"}) as here:
        await walked(here, ground, 1)
        at_rest = (await here.get("/_activity"))["agent"]
        assert at_rest == {
            "active": True,
            "running": False,
            "agent": "wren",
            "last_run": (EIGHT + MINUTE).timestamp(),
            "next_run": (EIGHT + HOUR + MINUTE).timestamp(),
            "interval_ms": 3_600_000,
            "lifecycle": {
                "state": "wake_add",
                "hits": 1,
                "next_state": "wake_audit",
                "kind": "wake",
            },
        }
        ground.agent(WAITS)
        await here.until(await here.next_run(), busy=1)
        await until(lambda: ground.seen("begun"))
        async with httpx.AsyncClient(base_url=here.url, timeout=60, trust_env=False) as anybody:
            assert (await anybody.get("/api/v1/status")).status_code == 401
            mid_run = (await anybody.get("/_activity")).json()["agent"]
        assert (mid_run["running"], mid_run["next_run"]) == (True, None)
        assert mid_run["lifecycle"]["state"] == "wake_add"
        (ground.side / "go").touch()
        await here.rest()


@story
async def test_in_the_middle_of_the_first_run_each_member_has_its_place_and_its_times(
    ground: Ground,
) -> None:
    ground.agent(WAITS)
    ground.agent(NOTES, name="moss")
    ground.write("day.org", DAY)
    ground.crew(wren=":INTERVAL: 1h; :LIFECYCLE: day.org", moss=":INTERVAL: 1h")
    async with engine(ground, environ={"HORAE_SERVER_PUBLIC": "1"}) as here:
        await here.until(EIGHT + MINUTE, busy=1)
        await until(lambda: ground.seen("begun"))
        wren, moss = (await here.get("/_activity"))["agents"]
        place = {"state": "wake_add", "hits": 0, "next_state": "wake_audit", "kind": "wake"}
        assert (wren["name"], wren["running"], wren["lifecycle"]) == ("wren", True, place)
        assert (wren["last_run"], wren["next_run"]) == ((EIGHT + MINUTE).timestamp(), None)
        assert (moss["last_run"], moss["next_run"]) == (
            None,
            (EIGHT + MINUTE + 30 * SECOND).timestamp(),
        )
        (ground.side / "go").touch()
        await here.rest()


@story
async def test_a_tick_by_hand_comes_at_once_and_can_be_watched(ground: Ground) -> None:
    one_worker(ground)
    async with engine(ground) as here:
        asked = type_("horae", "agent", "tick", "wren", "--watch", at=ground.root)
        ending = await here.meanwhile(asked)
        await here.rest()
        assert ending.code == 0, ending.err
        assert "I did something" in ending.out
        assert here.now < EIGHT + MINUTE, "the boot grace is not over yet"
        [filed] = await here.receipts("wren")
        assert (filed.status, filed.receipt.key) == (Status.DONE, "tick:1")
        assert ground.state("lifecycle-pos-wren") == "wake_add 1", "it is a tick like any other"
        assert filed.ended_at is not None
        assert await here.next_run() == filed.ended_at + HOUR


@story
async def test_an_outside_scheduler_can_be_the_one_who_asks(ground: Ground) -> None:
    one_worker(ground)
    async with engine(ground) as here:
        answer = await here.post("/api/v1/agents/wren/tick", {"note": "from cron"})
        assert answer.status_code == 200, answer.text
        filed = await here.over(answer.json()["receipt"])
        assert (filed.status, filed.receipt.key) == (Status.DONE, "tick:1")


@story
async def test_a_rest_consolidates_without_the_model(ground: Ground) -> None:
    """The document leaves open what a rest does; here it writes a page of what happened."""
    one_worker(ground, "echo x > $HORAE_KEY.txt; git add .; git commit -qm $HORAE_KEY")
    ground.write("day.org", DAY.replace("START: wake_add", "START: wake_audit"))
    ground.repository()
    async with engine(ground) as here:
        await walked(here, ground, 2)
        rest = (await here.receipts("wren"))[-1]
        assert rest.status is Status.DONE
        [page] = (ground.root / "rem").iterdir()
        assert rest.receipt.reason == f"wrote rem/{page.name}"
        assert "tick:1" in page.read_text()
