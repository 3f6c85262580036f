"""Schedules, from top to bottom: declared time in the plan, and the keeper who ticks.

Two clocks that never read each other: what stands in a plan is data until an engine keeps it,
and the rhythm of an agent is its own. The agents are shell scripts here; the clock of the engine
is turned by hand, but for the one engine in a process of its own.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from contextlib import contextmanager
from datetime import UTC, datetime
from itertools import permutations
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import horae
from horae.client import Client
from horae.config import load
from horae.core.receipt import FINAL, Status
from horae.process.processes import can_kill_trees
from waiting import until
from walks.stage import (
    DAY,
    EIGHT,
    HOUR,
    LIMIT,
    MINUTE,
    SECOND,
    engine,
    git,
    member,
    story,
    typed,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import timedelta

    from walks.stage import Ground

CRON = {"cron": "0 6 * * *"}
STAMP = {"at": "2026-06-13T09:00", "repeat": "+1w", "active": True}
runs = pytest.mark.skipif(not can_kill_trees(), reason="needs pidfds")


def row(text: str) -> Any:
    """Return the row of the only headline."""
    [only] = horae.query(text)
    return only


def world(text: str) -> Any:
    """Return the only world."""
    [only] = horae.tangle(text)["worlds"]
    return only


# Nine in the morning, and nobody is home

REVIEW = """\
* Review :workflow:
SCHEDULED: <2026-06-13 09:00 +1w>
** Look :component:
#+begin_src sh
date >> looked; echo looked
#+end_src
"""
NINE = datetime(2026, 6, 13, 9, tzinfo=UTC)


def test_the_line_every_week_at_nine_is_read_as_it_stands() -> None:
    text = "* Review :workflow:\nSCHEDULED: <2026-06-13 09:00 +1w>\n"
    assert row(text)["scheduled"] == STAMP
    assert world(text)["schedule"] == STAMP


def test_to_read_a_plan_runs_nothing(ground: Ground) -> None:
    ground.write("plan.org", REVIEW)
    for verb in ("query", "tangle", "lint"):
        assert typed("wb", verb, "plan.org", at=ground.root).code == 0
    assert sorted(each.name for each in ground.root.iterdir()) == ["horae.toml", "plan.org"]


@runs
@story
async def test_something_outside_of_it_has_to_wake_up_and_read_the_line(ground: Ground) -> None:
    """Different here: the engine keeps declared time itself, to the moment.

    In the document only a keeper ticks, and its agent reads the plan; nothing fires a workflow
    but a request from outside. Here a workflow is run by the engine when its time has come, with
    a receipt; agents are told that the engine keeps it.
    """
    ground.write("plan.org", REVIEW)
    async with engine(ground, now=NINE - MINUTE) as here:
        await here.until(NINE - SECOND)
        assert await here.receipts("Review") == []
        await here.until(NINE + 7 * DAY)
        planned = [each.receipt.planned_at for each in await here.receipts("Review")]
        assert planned == [NINE, NINE + 7 * DAY], "every week at nine"
        assert await here.statuses("Review") == [Status.DONE] * 2


# The definition: two halves that are not the same clock


@runs
@story
async def test_the_rhythm_of_an_agent_does_not_come_from_the_plan(ground: Ground) -> None:
    ground.agent("echo done")
    ground.crew(wren=":INTERVAL: 20m")
    ground.write("plan.org", REVIEW)
    async with engine(ground, now=NINE - 10 * MINUTE) as here:
        await here.advance(HOUR)
        ticks = [each.receipt.planned_at - NINE for each in await here.receipts("wren")]
        assert ticks == [-9 * MINUTE, 11 * MINUTE, 31 * MINUTE]


# One character decides


@pytest.mark.parametrize(
    ("written", "active"),
    [
        pytest.param("<2026-06-13 09:00 +1w>", True, id="angle brackets are a thing to act on"),
        pytest.param("[2026-06-13 09:00 +1w]", False, id="square brackets are a thing recorded"),
    ],
)
def test_the_first_character_is_all_that_tells_an_appointment_from_a_diary(
    written: str, active: bool
) -> None:
    assert horae.parse_timestamp(written) == STAMP | {"active": active}


@pytest.mark.parametrize("written", ["2026-06-13 09:00 +1w", "(2026-06-13)", '"2026-06-13"', ""])
def test_there_are_no_bare_timestamps(written: str) -> None:
    assert horae.parse_timestamp(written) is None


@pytest.mark.parametrize(
    "tokens", [*permutations(["2026-06-13", "Fri", "09:00", "+1w"])], ids=" ".join
)
def test_the_order_of_the_tokens_does_not_matter(tokens: tuple[str, ...]) -> None:
    assert horae.parse_timestamp(f"<{' '.join(tokens)}>") == STAMP


@pytest.mark.parametrize("tokens", [*permutations(["2026-06-13", "09:00", "+1w"])], ids=" ".join)
def test_the_order_does_not_matter_on_a_planning_line_either(tokens: tuple[str, ...]) -> None:
    assert row(f"* Review\nSCHEDULED: <{' '.join(tokens)}>\n")["scheduled"] == STAMP


@pytest.mark.parametrize(
    ("written", "seen"),
    [
        pytest.param("<2026-06-13 Fri 09:00 +1w>", STAMP, id="date, day, time and repeater"),
        pytest.param(
            "<2026-06-20>", {"at": "2026-06-20", "repeat": None, "active": True}, id="a date alone"
        ),
        pytest.param(
            "[2026-06-11 14:30]",
            {"at": "2026-06-11T14:30", "repeat": None, "active": False},
            id="a note of a past hour",
        ),
        pytest.param(
            "<2026-06-13 09:00 .+2d>",
            {"at": "2026-06-13T09:00", "repeat": ".+2d", "active": True},
            id="a repeater that counts from completion",
        ),
    ],
)
def test_what_is_written_is_what_the_kernel_sees(written: str, seen: dict[str, object]) -> None:
    assert horae.parse_timestamp(written) == seen
    assert row(f"* Review\nDEADLINE: {written}\n")["deadline"] == seen


def test_a_wrong_day_name_is_silently_ignored() -> None:
    saturday = "2026-06-13"
    read = horae.parse_timestamp(f"<{saturday} Fri>")
    assert read == {"at": saturday, "repeat": None, "active": True}


def test_both_keywords_are_surfaced_on_every_row_as_a_stamp_or_null() -> None:
    text = (
        "* Both\nSCHEDULED: <2026-06-13 09:00 +1w> DEADLINE: <2026-06-20>\n"
        "* Neither\n"
        "** Owed\nDEADLINE: <2026-06-20>\n"
        "** Started\nSCHEDULED: <2026-06-13 09:00 +1w>\n"
    )
    owed = {"at": "2026-06-20", "repeat": None, "active": True}
    assert [(each["scheduled"], each["deadline"]) for each in horae.query(text)] == [
        (STAMP, owed),
        (None, None),
        (None, owed),
        (STAMP, None),
    ]


@pytest.mark.parametrize("repeater", ["+1w", ".+1d", "++1w", "+2m", "++3y", ".+36h"])
def test_a_repeater_is_recognised_and_never_computed(repeater: str) -> None:
    read = horae.parse_timestamp(f"<2026-06-13 09:00 {repeater}>")
    assert read == STAMP | {"repeat": repeater}


# When a timestamp is not enough


@pytest.mark.parametrize(
    ("under_the_headline", "schedule"),
    [
        pytest.param(
            "SCHEDULED: <2026-06-13 09:00 +1w>\n:PROPERTIES:\n:SCHEDULE: 0 6 * * *\n:END:\n",
            CRON,
            id="the cron property outranks the stamp",
        ),
        pytest.param(
            ":PROPERTIES:\n:SCHEDULE: 0 6 * * *\n:END:\n", CRON, id="the cron property alone"
        ),
        pytest.param("SCHEDULED: <2026-06-13 09:00 +1w>\n", STAMP, id="the stamp alone"),
        pytest.param("", None, id="neither"),
        pytest.param("DEADLINE: <2026-06-13 09:00 +1w>\n", None, id="a deadline is neither"),
        pytest.param(
            "DEADLINE: <2026-06-20>\n:PROPERTIES:\n:SCHEDULE: 0 6 * * *\n:END:\n",
            CRON,
            id="the cron property beside a deadline",
        ),
        pytest.param(
            "SCHEDULED: <2026-06-13 09:00 +1w>\n:PROPERTIES:\n:SCHEDULE: \n:END:\n",
            STAMP,
            id="a property without a value is no property",
        ),
    ],
)
def test_the_precedence_is_fixed(under_the_headline: str, schedule: object) -> None:
    assert world("* Review :workflow:\n" + under_the_headline)["schedule"] == schedule


@pytest.mark.parametrize(
    "raw",
    [
        "anything at all",
        "0 6 * * *",
        "0 24 * * *",
        "@daily",
        "0 6 * * 1-5; 0 9 1,15 * *",
        "<2026-06-13 09:00 +1w>",
        "0  6 *\t* *",
    ],
)
def test_the_cron_string_is_carried_and_never_read(raw: str) -> None:
    text = f"* Review :workflow:\n:PROPERTIES:\n:SCHEDULE: {raw}\n:END:\n"
    assert world(text)["schedule"] == {"cron": raw}


def test_every_workflow_carries_its_own_schedule_at_each_level() -> None:
    text = (
        "* Year :workflow:\nSCHEDULED: [2026-01-01]\n"
        "** Month :workflow:\n:PROPERTIES:\n:SCHEDULE: @monthly\n:END:\n"
        "*** Week :workflow:\nSCHEDULED: <2026-06-13 09:00 +1w>\n"
        "**** Some day :workflow:\nDEADLINE: <2026-06-20>\n"
    )
    year = world(text)
    [month] = year["workflows"]
    [week] = month["workflows"]
    [some_day] = week["workflows"]
    assert year["schedule"] == {"at": "2026-01-01", "repeat": None, "active": False}
    assert month["schedule"] == {"cron": "@monthly"}
    assert week["schedule"] == STAMP
    assert some_day["schedule"] is None


def test_the_schedule_stands_next_to_name_imports_exports_and_edges() -> None:
    assert world("* Review :workflow:\n").keys() >= {
        "name",
        "schedule",
        "imports",
        "exports",
        "edges",
    }


@runs
@story
async def test_the_schedule_is_in_the_plan_that_is_asked_for_and_nothing_runs(
    ground: Ground,
) -> None:
    async with engine(ground) as here:
        answer = await here.post("/api/workflow?plan=1", {"org": REVIEW})
        [summary] = answer.json()
        assert (summary["workflow"], summary["schedule"]) == ("Review", STAMP)
        assert not (ground.root / "looked").exists()


@runs
def test_the_schedule_is_in_every_record_of_a_run(ground: Ground) -> None:
    inner = "** Inner :workflow:\n:PROPERTIES:\n:SCHEDULE: 0 6 * * *\n:END:\n"
    step = "*** Say :component:\n#+begin_src sh\necho hello\n#+end_src\n"
    ground.write("plan.org", REVIEW + inner + step)
    ending = typed("wb", "run", "plan.org", at=ground.root)
    assert ending.code == 0, ending.err
    [record] = ending.data
    assert record["schedule"] == STAMP
    assert [each["schedule"] for each in record["sub_workflows"]] == [CRON]


# A metronome, not a cron daemon

BOARD = """\
* TODO Pay the rent
DEADLINE: <2026-03-31 Tue>
* TODO Dig
:PROPERTIES:
:ID: dig
:END:
* TODO Sow
:PROPERTIES:
:BLOCKER: dig
:END:
* TODO Water
SCHEDULED: <2026-04-01 Wed 08:30>
"""


@runs
@story
async def test_a_tick_lets_the_agent_notice_three_things_at_once(ground: Ground) -> None:
    ground.agent("cat > SIDE/told")
    ground.crew(wren=":INTERVAL: 1h")
    ground.write("board.org", BOARD)
    async with engine(ground) as here:
        await here.advance(MINUTE)
        assert "Water" not in ground.seen("told"), "it is not due yet"
        done = "* DONE Dig\nCLOSED: [2026-04-01 Wed 08:20]\n"
        ground.write("board.org", BOARD.replace("* TODO Dig\n", done))
        await here.advance(HOUR)
    told = ground.seen("told")
    parts = dict(part.split(":\n", 1) for part in told.split("\n\n") if ":\n-" in part)
    assert "Pay the rent" in parts["Overdue"]
    assert "Sow" in parts["Unblocked since your last run"]
    assert "Water" in parts["Due"]


@runs
@story
async def test_a_beat_is_pull_run_and_report_and_then_the_next_is_scheduled(
    ground: Ground,
) -> None:
    script = "cat > SIDE/told; ls > SIDE/there; echo x > y; git add y; git commit -qm 'Sow peas'"
    ground.agent(script)
    ground.crew(wren=":INTERVAL: 1h; :LIFECYCLE: day.org; :MODE: edit")
    ground.write("day.org", "* work\n")
    ground.repository(origin=True)
    environ = {
        "WB_GITOPS": "1",
        "HORAE_GIT_LOCAL": str(ground.origin),
        "HORAE_SERVER_PUBLIC": "1",
    }
    async with engine(ground, environ=environ) as here:
        peer = ground.clone("peer")
        (peer / "pushed.txt").write_text("from a laptop\n")
        ground.commit("Push", at=peer)
        git("push", "-q", at=peer)
        await here.advance(MINUTE)
        assert "pushed.txt" in ground.seen("there").split(), "live within one tick"
        assert "MODE: edit\nLIFECYCLE: work\n" in ground.seen("told")
        assert await here.statuses("wren") == [Status.DONE]
        assert await here.wait_for_next() == HOUR
        # The commit is the changelog: in the repository, at its origin, and for all to see.
        assert git("log", "-1", "--format=%an: %s", at=ground.root) == "wren: Sow peas\n"
        assert git("log", "-1", "--format=%s", "main", at=ground.origin) == "Sow peas\n"
        changes = (await here.get("/_changes"))["changes"]
        assert (changes[0]["author"], changes[0]["msg"]) == ("wren", "Sow peas")


# Anatomy of a tick


@runs
@story
async def test_a_restart_picks_up_the_clock_where_it_was(ground: Ground) -> None:
    ground.agent("echo done")
    ground.crew(wren=":INTERVAL: 1h")
    async with engine(ground) as here:
        assert await here.wait_for_next() == MINUTE, "the grace of a fresh start"
        await here.advance(MINUTE)
        due = await here.next_run()
    for now, left in ((due - 20 * MINUTE, 20 * MINUTE), (due - SECOND, MINUTE)):
        async with engine(ground, now=now) as here:
            assert await here.wait_for_next() == left


@runs
@story
async def test_a_merge_conflict_aborts_the_pull_and_is_left_for_a_person(ground: Ground) -> None:
    ground.agent("echo NO-WORK")
    ground.crew(wren=":INTERVAL: 1h")
    ground.write("notes.txt", "first\n")
    ground.repository(origin=True)
    environ = {"WB_GITOPS": "1", "HORAE_GIT_LOCAL": str(ground.origin)}
    async with engine(ground, environ=environ) as here:
        peer = ground.clone("peer")
        (peer / "notes.txt").write_text("theirs\n")
        ground.commit("Theirs", at=peer)
        git("push", "-q", at=peer)
        ground.write("notes.txt", "ours\n")
        ground.commit("Ours")
        await here.advance(MINUTE)
        assert await here.statuses("wren") == [Status.NO_WORK], "the run takes place"
        assert "pull" in (await here.agent())["troubles"]
    assert (ground.root / "notes.txt").read_text() == "ours\n"
    assert git("status", "--porcelain", at=ground.root) == "", "and no merge is left half done"


# The breather and the backoff


def test_a_keeper_is_hourly_by_default_and_a_breather_is_45_seconds(ground: Ground) -> None:
    config = load(ground.root, environ={})
    assert (config.keeper_interval, config.keeper_breather) == (HOUR, 45 * SECOND)
    assert config.keeper_continuous is False
    assert config.keeper_timeout == 15 * MINUTE


@pytest.mark.parametrize(
    ("every", "delays"),
    [
        pytest.param("45s", [1, 2, 4, 8, 16, 30, 30], id="with a breather"),
        pytest.param("5m", [5, 5, 5, 8, 16, 30, 30], id="with an interval"),
        pytest.param("1h", [60] * 7, id="never sooner than the base"),
    ],
)
def test_the_curve_of_an_idle_keeper(ground: Ground, every: str, delays: list[int]) -> None:
    ground.write("day.org", "* work\n")
    words = (
        "agent",
        "lifecycle",
        "day.org",
        "--every",
        every,
        "--outcomes",
        "no_work",
        "--next",
        "7",
    )
    told = typed("horae", *words, "--json", at=ground.root).data
    assert [each["delay"] / 60 for each in told] == delays


def test_one_piece_of_work_drops_it_straight_back(ground: Ground) -> None:
    ground.write("day.org", "* work\n")
    outcomes = ",".join(["no_work"] * 6 + ["done", "no_work"])
    words = (
        "agent",
        "lifecycle",
        "day.org",
        "--every",
        "45s",
        "--outcomes",
        outcomes,
        "--next",
        "8",
    )
    told = typed("horae", *words, "--json", at=ground.root).data
    assert [each["delay"] for each in told][5:] == [1800, 45, 60]


# Turning a keeper on: the block that one would paste


@contextmanager
def up(place: Path, **environ: str) -> Iterator[Client]:
    """Start `horae up` as a service does; give somebody who can ask it, once it has started."""
    data = place / "data"
    command = [sys.executable, str(Path(sys.executable).with_name("horae")), "up", "--log", "json"]
    known = {**os.environ, "WB_DATA": str(data), "HORAE_LISTEN": "127.0.0.1:0", **environ}
    with (place / "said").open("wb") as said:
        process = subprocess.Popen(command, cwd=place, env=known, stdout=said, stderr=said)
    try:
        client = Client(data)
        asyncio.run(until(client.answers))
        client.rescan()
        yield client
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(LIMIT) == 0, (place / "said").read_text()


@runs
def test_the_block_of_variables_turns_a_keeper_on(ground: Ground) -> None:
    """Different here: under git the agent works in a clone of its own, not in the repository.

    What it committed is brought home by the engine after the run, so that a person who works
    there, and a run that is cut off, are in nobody's way.
    """
    definition = ground.agent(
        "cat > SIDE/told; pwd > SIDE/where; echo x > y; git add y; git commit -qm Work"
    )
    place = ground.side / "box"
    home = place / "data" / "local"
    home.mkdir(parents=True)
    git("init", "-q", at=home)
    git("commit", "-q", "--allow-empty", "-m", "Begin", at=home)
    block = {
        "WB_KEEPER_DEF": str(definition),
        "WB_KEEPER_INTERVAL_MS": "3600000",
        "WB_KEEPER_CONTINUOUS": "1",
        "WB_KEEPER_BREATHER_MS": "45000",
        "WB_KEEPER_RUN_TIMEOUT_MS": "900000",
        "WB_LIFECYCLE_DEF": str(ground.write("day.org", "* work\n")),
        "WB_TENANT": "local",
    }
    with up(place, **block) as client:
        status = client.status()
        [keeper] = status.agents
        assert keeper.rule == "45s after the end of each tick"
        assert keeper.next_run is not None
        since = datetime.fromisoformat(status.engine.since or "")
        wait = keeper.next_run - since
        assert MINUTE <= wait < 2 * MINUTE, "after the grace, not instantly"
        filed = client.tick("keeper")
        asyncio.run(until(lambda: client.receipt(filed.receipt).status in FINAL))
        told = client.receipt(filed.receipt)
        assert told.status == "done", told
        asyncio.run(until((home.parent / "lifecycle-pos").exists))  # it follows the receipt
        assert (home.parent / "lifecycle-pos").read_text() == "work 0\n"
        assert int((home.parent / "keeper-last-run").read_text()) > 0
    assert "LIFECYCLE: work\n" in ground.seen("told")
    assert ground.seen("where").strip() == str(home.parent / "trees" / "wren")
    assert git("log", "-1", "--format=%an: %s", at=home) == "wren: Work\n", "whose repo it is"


@runs
def test_without_a_definition_nobody_ticks(ground: Ground) -> None:
    place = ground.side / "box"
    (place / "data" / "local").mkdir(parents=True)
    with up(place, WB_KEEPER_INTERVAL_MS="100") as client:
        assert client.status().agents == ()
    assert not [*(place / "data").glob("keeper-*")]


# One manifest, many workers


@runs
@story
async def test_the_manifest_wins_over_a_single_keeper(ground: Ground) -> None:
    for name in ("wren", "moss"):
        ground.agent("echo done", name=name)
    ground.crew(wren=":INTERVAL: 10m", moss=":INTERVAL: 20m")
    environ = {"WB_KEEPER_DEF": str(ground.root / "wren.org")}
    async with engine(ground, environ=environ) as here:
        standing = await here.app.service.status(here.app.facts())
        assert [each.agent for each in standing.agents] == ["wren", "moss"]


@runs
@story
async def test_a_member_without_a_definition_is_skipped_and_that_is_said(ground: Ground) -> None:
    ground.repository()
    ground.agent("echo done")
    ground.write("crew.org", "* moss\n:PROPERTIES:\n:INTERVAL: 20m\n:END:\n" + member("wren", ""))
    async with engine(ground) as here:
        standing = await here.app.service.status(here.app.facts())
        assert [each.agent for each in standing.agents] == ["wren"]
        [idler] = standing.unarmed
        assert (idler.title, idler.reason) == ("moss", "the member has no :DEF:")
        assert await here.wait_for_next() == MINUTE, "nor does it take a place in the stagger"
    checked = typed("horae", "check", ".", "--jsonl", at=ground.root)
    found = [json.loads(line) for line in checked.out.splitlines()]
    assert [each["code"] for each in found if each["file"].endswith("crew.org")] == ["member-def"]


@pytest.mark.parametrize(
    ("written", "length"),
    [
        ("10m", 10 * MINUTE),
        ("2h", 2 * HOUR),
        ("90s", 90 * SECOND),
        ("60000", MINUTE),
        (None, HOUR),
    ],
)
@runs
@story
async def test_an_interval_is_minutes_hours_seconds_or_bare_milliseconds(
    ground: Ground, written: str | None, length: timedelta
) -> None:
    ground.agent("echo done")
    ground.crew(wren="" if written is None else f":INTERVAL: {written}")
    async with engine(ground) as here:
        await here.tick()
        assert await here.wait_for_next() == length


@runs
@story
async def test_each_worker_keeps_its_own_files_and_without_a_day_it_just_ticks(
    ground: Ground,
) -> None:
    for name in ("wren", "moss"):
        ground.agent("echo done", name=name)
    ground.write("lifecycles/writer.org", "* draft\n* polish\n")
    ground.crew(wren=":LIFECYCLE: lifecycles/writer.org; :INTERVAL: 10m", moss=":INTERVAL: 20m")
    async with engine(ground) as here:
        assert await here.next_run("moss") - await here.next_run("wren") == 30 * SECOND
        await here.advance(2 * MINUTE)
    files = {each.name for each in ground.data.iterdir() if each.name.startswith(("keep", "life"))}
    assert files == {
        "keeper-last-run-wren",
        "keeper-last-run-moss",
        "lifecycle-pos-wren",
        "lifecycle-ran-wren-draft",
    }


@runs
@story
async def test_a_wedged_worker_does_not_starve_the_others(ground: Ground) -> None:
    """Also not the plan: the crew holds at most its two of the gate's four slots."""
    for name in ("wren", "moss"):
        ground.agent("until [ -e SIDE/go ]; do sleep 0.1; done", name=name)
    ground.agent("echo done", name="fern")
    ground.crew(wren="", moss="", fern="")
    ground.write("plan.org", REVIEW)
    async with engine(ground, now=NINE - 3 * MINUTE) as here:
        await here.until(NINE - 30 * SECOND, busy=2)
        gate = await here.get("/api/v1/gate")
        assert [each["title"] for each in gate["waiting"]] == ["fern"]
        await here.until(NINE, busy=2)
        assert await here.statuses("Review") == [Status.DONE]
        (ground.side / "go").touch()
        await here.rest()
        assert await here.statuses("fern") == [Status.DONE]


# Declaring what a tick is

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


@pytest.mark.parametrize(
    ("outcomes", "ways"),
    [
        pytest.param(
            "done",
            ["wake_add 1", "wake_add 2", "wake_audit 0", "rem 0", "wake_plan 0", "wake_add 0"],
            id="a done is a hit, and at the last repeat the way on",
        ),
        pytest.param(
            "no_work",
            ["wake_audit 0", "rem 0", "wake_plan 0", "wake_add 0", "wake_audit 0", "rem 0"],
            id="no work is a fast-forward, and every state still runs",
        ),
        pytest.param("done,failed", ["wake_add 1"] * 6, id="a failure holds"),
        pytest.param("done,done,killed", ["wake_add 1", *["wake_add 2"] * 5], id="so does a kill"),
    ],
)
def test_the_stepping_rules_are_precise(ground: Ground, outcomes: str, ways: list[str]) -> None:
    ground.write("day.org", CANONICAL)
    words = (
        "agent",
        "lifecycle",
        "day.org",
        "--every",
        "1h",
        "--outcomes",
        outcomes,
        "--next",
        "6",
    )
    told = typed("horae", *words, "--json", at=ground.root).data
    assert [each["then"] for each in told] == ways


@runs
@story
async def test_a_place_that_the_day_does_not_know_is_the_start(ground: Ground) -> None:
    ground.agent("sed -n 's/^LIFECYCLE: //p' >> SIDE/states")
    ground.write("day.org", CANONICAL)
    ground.crew(wren=":LIFECYCLE: day.org")
    ground.write(".horae/lifecycle-pos-wren", "wake_up_early 2\n")
    async with engine(ground) as here:
        await here.tick()
    assert ground.seen("states") == "wake_add\n"


@runs
@story
async def test_a_person_may_set_the_place_and_a_slip_of_theirs_costs_nothing(
    ground: Ground,
) -> None:
    """Different here: the files mirror the ledger.

    What a person writes there counts; what cannot be understood is set aside as `.bad`, and
    the place that the ledger knows stands, where the document would begin at the start.
    """
    ground.agent("sed -n 's/^LIFECYCLE: //p' >> SIDE/states")
    ground.write("day.org", CANONICAL)
    ground.crew(wren=":LIFECYCLE: day.org")
    async with engine(ground) as here:
        await here.tick()
        ground.write(".horae/lifecycle-pos-wren", "wake_plan 0\n")
        await here.tick()
        ground.write(".horae/lifecycle-pos-wren", "wake_op 0\n")
        await here.tick()
    assert ground.seen("states").split() == ["wake_add", "wake_plan", "wake_add"]
    assert ground.state("lifecycle-pos-wren.bad") == "wake_op 0"


# Where it bites


@pytest.mark.parametrize(
    "line",
    [
        pytest.param("DEADLINE: <1999-01-01 Fri>", id="overdue for years"),
        pytest.param("SCHEDULED: <2026-02-30>", id="a day that does not exist"),
        pytest.param("SCHEDULED: <2026-06-13 Fri>", id="a day name that disagrees"),
        pytest.param("SCHEDULED: <2026-06-13 +0q>", id="a repeater of no known unit"),
        pytest.param("SCHEDULED: <2026-06-13]", id="brackets that do not match"),
    ],
)
def test_the_validator_has_no_word_on_time(line: str) -> None:
    assert horae.validate(f"* TODO Review :workflow:\n{line}\n") == []


def test_the_validator_reports_a_component_without_a_language() -> None:
    [finding] = horae.validate("* Review :workflow:\n** Read :component:\nNo code yet.\n")
    assert (finding["level"], finding["scope"]) == ("error", "Read")


def test_the_validator_reports_an_input_that_nothing_produces() -> None:
    text = "* Review :workflow:\n** Read :component:\n#+begin_src js :in notes\n#+end_src\n"
    [finding] = horae.validate(text)
    assert finding["level"] == "error"
    assert "notes" in finding["message"]


# Repeaters and cron are carried by the kernel; the engine is who honours them


@pytest.mark.parametrize(
    ("repeater", "planned"),
    [
        pytest.param("+1d", [10, 11, 12, 13], id="by the interval"),
        pytest.param("++1d", [12, 13], id="on to the next that is still to come"),
        pytest.param(".+1d", [10, 13], id="from when it was done"),
    ],
)
@runs
@story
async def test_after_three_days_without_an_engine_each_repeater_goes_on_in_its_own_way(
    ground: Ground, repeater: str, planned: list[int]
) -> None:
    """Different here: the meaning of a repeater is computed, not left to an agent's judgement."""
    text = REVIEW.replace("2026-06-13 09:00 +1w", f"2026-06-10 09:00 {repeater}")
    ground.write("plan.org", text)
    tenth = datetime(2026, 6, 10, 9, tzinfo=UTC)
    async with engine(ground, now=tenth - HOUR):
        pass
    async with engine(ground, now=tenth + 2 * DAY + HOUR) as here:
        await here.until(tenth + 3 * DAY + 2 * HOUR)
        ran = [each for each in await here.receipts("Review") if each.status is Status.DONE]
        assert [each.receipt.planned_at.day for each in ran] == planned


@runs
@story
async def test_a_cron_string_that_means_nothing_is_carried_and_said_not_to_be_armed(
    ground: Ground,
) -> None:
    """Different here: the engine reads the string, so that a slip is found before it is missed."""
    cron = ":PROPERTIES:\n:SCHEDULE: anything at all\n:END:\n"
    ground.write("plan.org", f"* Review :workflow:\n{cron}")
    assert world(f"* Review :workflow:\n{cron}")["schedule"] == {"cron": "anything at all"}
    async with engine(ground) as here:
        [entry] = (await here.app.service.status(here.app.facts())).unarmed
        assert (entry.title, "anything at all" in str(entry.reason)) == ("Review", True)


def test_overdue_is_arithmetic_that_a_reader_runs(ground: Ground) -> None:
    """Different here: what is owed on a day, without a time, is overdue when that day is over."""
    ground.write("plan.org", "* TODO Pay\nDEADLINE: <2026-03-31 Tue>\n")
    assert typed("wb", "lint", "plan.org", at=ground.root).data == []
    for now, count in (("2026-03-31 23:59", 0), ("2026-04-01 00:01", 1)):
        words = ("query", "--overdue", "--at", now, "--json", "plan.org")
        assert len(typed("horae", *words, "--json", at=ground.root).data) == count


@runs
@story
async def test_the_time_of_a_keeper_is_at_least_and_never_at_most(ground: Ground) -> None:
    """What is due at nine is told to an hourly agent at its first tick at or after nine.

    Different here: that is so for what agents do. A workflow is run by the engine at nine.
    """
    ground.agent("cat > SIDE/told")
    ground.crew(wren=":INTERVAL: 1h")
    ground.write("board.org", "* TODO Water\nSCHEDULED: <2026-04-01 Wed 09:00 +1w>\n")
    async with engine(ground, now=EIGHT + 30 * MINUTE) as here:
        await here.until(EIGHT + HOUR)
        assert "Water" not in ground.seen("told")
        await here.until(EIGHT + 90 * MINUTE)
        assert "Water" not in ground.seen("told")
        await here.until(EIGHT + 91 * MINUTE)
        assert "Water (board.org:1" in ground.seen("told")


@pytest.mark.parametrize("interval", ["1d", "2w", "1y"])
def test_an_interval_knows_no_days_or_weeks(ground: Ground, interval: str) -> None:
    ground.agent("echo done")
    ground.crew(wren=f":INTERVAL: {interval}")
    found = typed("horae", "check", ".", "--jsonl", at=ground.root).out.splitlines()
    [finding] = [each for each in map(json.loads, found) if each["code"] == "member-interval"]
    assert "the member ticks every hour" in finding["message"]


# Questions people ask


@runs
@story
async def test_a_triggered_drain_needs_no_keeper_at_all(ground: Ground) -> None:
    """Any scheduler can ask: for a plan that it brings, or for what is in the plan already."""
    ground.write("plan.org", REVIEW)
    async with engine(ground) as here:
        answer = await here.post("/api/workflow", {"org": REVIEW})
        [record] = answer.json()
        assert (record["status"], record["schedule"]) == ("done", STAMP)
        asked = await here.post("/api/v1/entries/Review/run", {"note": "from cron"})
        filed = await here.over(asked.json()["receipt"])
        assert (filed.status, filed.receipt.key.partition(":")[0]) == (Status.DONE, "manual")


@runs
@story
async def test_a_redeploy_resumes_the_rhythm_and_the_place(ground: Ground) -> None:
    ground.agent("echo done")
    ground.write("day.org", CANONICAL)
    ground.crew(wren=":LIFECYCLE: day.org")
    async with engine(ground) as here:
        await here.advance(HOUR + MINUTE)
        due = await here.next_run()
    async with engine(ground, now=due - 20 * MINUTE) as here:
        assert await here.next_run() == due
        assert ground.state("lifecycle-pos-wren") == "wake_add 2"
        await here.until(due)
        assert ground.state("lifecycle-pos-wren") == "wake_audit 0"
