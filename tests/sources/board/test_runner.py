"""Tasks go to free members, and their files say so: real files, real processes, real git.

As a program it is an engine that can be killed:

    test_dispatching.py HOME
"""

from __future__ import annotations

import asyncio
import os
import random
import subprocess
import sys
import time
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import one_run
from commands import engine_up
from horae.core.clock import SystemClock
from horae.core.engine import Engine
from horae.core.entry import Work, key_time
from horae.core.explain import parse_ask
from horae.core.gate import Capacity
from horae.core.ports import HeldBackError, Job, Process, Run, RunError
from horae.core.receipt import Receipt, Status
from horae.core.service import Service
from horae.files.git.trees import Trees
from horae.process.processes import Processes, can_kill_trees
from horae.process.run_settings import RunSettings
from horae.sources.agents.runner import AgentHost, Registry
from horae.sources.board.dispatch import rest_after
from horae.sources.board.runner import UNCLAIMED, Dispatcher, DispatchRunner, busy_at
from horae.sources.board.source import BoardSource
from horae.sources.board.tasks import Board, CommittedBoard
from horae.sources.crew.source import Roster
from horae.store.sqlite import SqliteLedger
from horae.testing import ManualClock
from reasons import because
from scale import scaled
from store.ledger_suite import HOUR, MINUTE, SECOND, story
from waiting import until, wait_until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from horae.core.receipt import Filed
    from horae.sources.board.task import Task

pytestmark = pytest.mark.skipif(not can_kill_trees(), reason="runs need pidfds")

LIMIT = 15.0  # seconds that anything here may take
NOW = datetime(2026, 4, 1, 8, tzinfo=UTC)
# Says when it begins and ends, and does in between what is written for its task.
AGENT = """\
echo "begin $HORAE_TASK $HORAE_AGENT" >> {home}/log
if [ -e {home}/{do} ]; then . {home}/{do}; fi
echo "end $HORAE_TASK $HORAE_AGENT" >> {home}/log
"""


class Home:
    """A plan root with a board, a crew and its programs, and a data directory."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.root, self.data, self.crew = path / "plan", path / "data", path / "crew"
        self.tasks = self.root / "board" / "tasks"
        self.manifest = self.crew / "crew.org"

    def make(self, *members: str, command: str = "sh {home}/agent.sh") -> Home:
        for each in (self.tasks, self.data, self.crew):
            each.mkdir(parents=True)
        (self.path / "agent.sh").write_text(AGENT.format(home=self.path, do="do-$HORAE_TASK.sh"))
        (self.path / "log").touch()
        lines = []
        for name in members:
            lines.append(f"* {name}\n:PROPERTIES:\n:DEF: {name}.org\n:END:\n")
            said = command.format(home=self.path)
            drawer = f":PROPERTIES:\n:COMMAND: {said}\n:TIMEOUT: 20m\n:END:\n" if said else ""
            (self.crew / f"{name}.org").write_text(f"* {name} :agent:\n{drawer}You garden.\n")
        self.manifest.write_text("".join(lines))
        return self

    def task(
        self, number: int, *fields: str, status: str = "todo", does: str | None = None
    ) -> None:
        lines = "".join(f"{field}\n" for field in (f"status: {status}", *fields))
        text = f"---\nid: {number}\ntitle: Bed {number}\n{lines}---\n\nSow bed {number}.\n"
        (self.tasks / f"{number:03}-bed.md").write_text(text)
        if does is not None:
            (self.path / f"do-{number}.sh").write_text(f"{does}\n")

    def read(self, number: int) -> Task:
        return Board(self.tasks).card(number).task

    def save(self, number: int, **fields: str | None) -> None:
        Board(self.tasks).change(number, lambda _: fields)

    def log(self) -> list[tuple[str, int, str]]:
        lines = (line.split() for line in (self.path / "log").read_text().splitlines())
        return [(word, int(task), member) for word, task, member in lines]

    def begun(self) -> list[int]:
        return [task for word, task, _ in self.log() if word == "begin"]

    def git(self, *args: str) -> str:
        who = ("-c", "user.name=ann", "-c", "user.email=ann@example.org")
        made = subprocess.run(
            ["git", *who, *args], cwd=self.root, check=True, capture_output=True, text=True
        )
        return made.stdout

    def commit_all(self) -> None:
        self.git("init", "--quiet", "--initial-branch=main")
        self.git("add", ".")
        self.git("commit", "--quiet", "-m", "Begin")


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


@dataclass
class Hall:
    """One engine with nothing in it but a board and its members."""

    home: Home
    ledger: SqliteLedger
    engine: Engine
    dispatcher: Dispatcher
    runner: DispatchRunner
    service: Service

    async def until(self, condition: Callable[[], object]) -> None:
        """Return when something holds, or fail with what went wrong meanwhile."""
        await until(lambda: self.engine.launch.failure or condition(), within=LIMIT)
        assert self.engine.launch.failure is None

    async def history(self, number: int) -> list[tuple[str, str, str]]:
        """Return the receipts of a task, oldest first: key, status and reason."""
        found = await self.ledger.find(f"task:{number}:work")
        page = await self.ledger.receipts(entry=found[0].number)
        told = (each.receipt for each in reversed(page.receipts))
        return [(each.key, each.status.value, each.reason) for each in told]

    async def until_ended(self, number: int, *, times: int = 1) -> list[tuple[str, str, str]]:
        """Return the receipts of a task once so many of them are settled."""
        loop = asyncio.get_running_loop()
        gives_up_at = loop.time() + LIMIT
        while True:
            found = await self.ledger.find(f"task:{number}:work")
            page = await self.ledger.receipts(entry=found[0].number)
            if sum(each.settled_at is not None for each in page.receipts) >= times:
                return await self.history(number)
            assert loop.time() < gives_up_at, f"task {number}: {await self.history(number)}"
            assert self.engine.launch.failure is None, self.engine.launch.failure
            await asyncio.sleep(0.02)


@asynccontextmanager
async def open_hall(
    home: Home, *, rest: Callable[[int], timedelta] = lambda _: HOUR / 2, crew: int = 2
) -> AsyncIterator[Hall]:
    """Give an engine that is up; what it started is gone at the end."""
    clock = SystemClock()
    ledger = await SqliteLedger.open(home.data, now=clock.now())
    async with Processes(home.data) as processes:
        place = RunSettings(home.root, home.data, os.environ, timedelta(minutes=10))
        board = CommittedBoard(Board.below(home.root))
        agents, members = (
            AgentHost(Registry(), processes, place, Trees(place.root, place.data)),
            Roster(home.manifest).agents,
        )
        dispatcher = Dispatcher(
            board,
            members,
            agents=agents,
            ledger=ledger,
            clock=clock,
            busy=lambda: busy_at(engine.gate),
        )
        runner = DispatchRunner(
            agents,
            board,
            members,
            ledger=ledger,
            clock=clock,
            heard=dispatcher.note_change,
            rest=rest,
        )
        source = BoardSource(
            Board.below(home.root),
            now=clock.now,
            follow_up=runner.settle,
            changed=dispatcher.note_change,
        )
        engine = Engine(
            clock=clock,
            ledger=ledger,
            runner=runner,
            sources=[source],
            capacity=Capacity(slots=4, crew=crew),
        )
        service = Service(ledger=ledger, clock=clock, ids=lambda: "x", poke=engine.note_change)
        await engine.start()
        parts = [
            asyncio.create_task(engine.run(turned=dispatcher.turned)),
            asyncio.create_task(dispatcher.run(engine.offer)),
        ]
        try:
            yield Hall(home, ledger, engine, dispatcher, runner, service)
            for part in parts:
                assert not part.done(), part.exception()
        finally:
            await engine.stop(within=timedelta(0))
            for part in parts:
                part.cancel()
            await asyncio.gather(*parts, return_exceptions=True)
            await ledger.close()


# From begin to end


@story
async def test_tasks_go_by_priority_and_dependency_never_two_at_one_nor_one_at_two(
    home: Home,
) -> None:
    home.make("wren", "moss")
    home.task(1)
    home.task(2, "priority: critical", does="sleep 0.1")
    home.task(3, "priority: high", "depends_on: [5]", does="sleep 0.1")
    home.task(4, "priority: critical", "depends_on: [3]")
    home.task(5, "priority: high", does="sleep 0.1")
    async with open_hall(home) as hall:
        await hall.until(lambda: all(home.read(n).status == "done" for n in range(1, 6)))
        for number in range(1, 6):
            [(key, status, _)] = await hall.until_ended(number)
            assert (key, status) == ("dispatch:1", "done")
    log = home.log()
    assert set(home.begun()[:2]) == {2, 5}
    at = {(word, task): place for place, (word, task, _) in enumerate(log)}
    assert at["begin", 3] > at["end", 5]
    assert at["begin", 4] > at["end", 3]
    assert sorted(home.begun()) == [1, 2, 3, 4, 5]
    for name in ("wren", "moss"):
        words = [word for word, _, member in log if member == name]
        assert words == ["begin", "end"] * (len(words) // 2)
        assert words
    done = home.read(5)
    assert done.text("completed")
    assert not [key for key in done.fields if key.startswith(("claim", "attempt"))]


@story
async def test_the_claim_stands_in_the_file_before_the_member_begins(home: Home) -> None:
    home.make("wren")
    seen = home.path / "seen"
    does = f"cp {home.tasks}/007-bed.md {seen}; cat > {home.path}/prompt"
    home.task(7, "attempt: 1", "attempt_reason: no water", does=does)
    async with open_hall(home) as hall:
        await hall.until_ended(7)
    home.tasks.joinpath("007-bed.md").write_bytes(seen.read_bytes())
    task = home.read(7)
    assert (task.status, task.text("claimed_by")) == ("in-progress", "wren")
    begun, ends = (
        datetime.fromisoformat(task.text(key) or "") for key in ("claimed_at", "claim_expires_at")
    )
    assert ends - begun == 25 * MINUTE  # its wall clock, and some grace
    said = (home.path / "prompt").read_text()
    for words in (
        "You garden.",
        "#7 of the board: Bed 7",
        "board/tasks/007-bed.md",
        "Sow bed 7.",
        "no water",
        "NO-WORK",
    ):
        assert words in said


@story
async def test_every_outcome_moves_the_task(home: Home) -> None:
    home.make("wren", "moss")
    home.task(1, does="echo sown")
    home.task(2, "review_owner: ann", does="echo sown")
    home.task(3, does="echo NO-WORK it is sown already; exit")
    home.task(4, does="exit 3")
    home.task(5, does="echo 'FAILED: no soil'; exit")
    home.task(6, does="sleep 60")
    async with open_hall(home) as hall:
        await hall.until(lambda: 6 in home.begun())
        await hall.until(lambda: len(hall.engine.launch.receipts) == 1)
        [receipt] = hall.engine.launch.receipts
        hall.engine.launch.cancel(receipt, because("it rains"))
        ends = [(await hall.until_ended(n))[0][1] for n in range(1, 7)]
    assert ends == ["done", "done", "no_work", "failed", "failed", "killed"]
    tasks = [home.read(number) for number in range(1, 7)]
    assert [task.status for task in tasks] == ["done", "review", "done", "todo", "todo", "todo"]
    assert [task.text("attempt_reason") for task in tasks[3:]] == [
        "failed: exit code 3",
        "failed: no soil",
        "killed: it rains",
    ]
    assert [task.number("attempt") for task in tasks] == [None, None, None, 1, 1, 1]
    assert not any(key.startswith("claim") for task in tasks for key in task.fields)
    assert sorted(home.begun()) == [1, 2, 3, 4, 5, 6]  # those that failed rest now


@story
async def test_what_failed_is_tried_again_after_its_rest_and_says_how_often(home: Home) -> None:
    home.make("wren")
    home.task(1, does=f"[ $(grep -c begin {home.path}/log) = 3 ] || exit 1")
    async with open_hall(home, rest=lambda attempt: attempt * SECOND / 10) as hall:
        history = await hall.until_ended(1, times=3)
    assert [(key, status) for key, status, _ in history] == [
        ("dispatch:1", "failed"),
        ("dispatch:2", "failed"),
        ("dispatch:3", "done"),
    ]
    assert (home.read(1).status, home.read(1).number("attempt")) == ("done", None)


@story
async def test_what_a_person_saves_before_it_begins_wins(home: Home) -> None:
    home.make("wren", "moss")
    home.task(1, does=f"while [ ! -e {home.path}/go ]; do sleep 0.1; done")
    home.task(2)
    async with open_hall(home, crew=1) as hall:
        await hall.until(lambda: home.begun() == [1])
        await hall.until(lambda: hall.engine.gate.obstacles(now=NOW))  # the other one waits
        home.save(2, blocked="no water")
        before = (home.tasks / "002-bed.md").read_bytes()
        (home.path / "go").touch()
        [(key, status, reason)] = await hall.until_ended(2)
        assert (key, status) == ("dispatch:1", "no_work")
        assert reason == "task #2 was not started: no water"
        assert (home.tasks / "002-bed.md").read_bytes() == before
        # And when the person has done with it, it goes out again.
        home.save(2, blocked=None, priority="high")
        await hall.engine.rescan("board")
        assert [key for key, _, _ in await hall.until_ended(2, times=2)][1] == "dispatch:2"
    assert home.begun() == [1, 2]


@pytest.mark.parametrize(
    ("saved", "left"),
    [
        ({"status": "blocked", "block_reason": "no water"}, ("blocked", None)),
        ({"claimed_by": "ann"}, ("in-progress", "ann")),
    ],
)
@story
async def test_what_a_person_saves_while_it_runs_wins(
    home: Home, saved: dict[str, str], left: tuple[str, str | None]
) -> None:
    home.make("wren")
    home.task(1, does=f"while [ ! -e {home.path}/go ]; do sleep 0.1; done")
    async with open_hall(home) as hall:
        await hall.until(lambda: home.begun() == [1])
        home.save(1, **saved)
        (home.path / "go").touch()
        [(_, status, _)] = await hall.until_ended(1)
    assert status == "done"
    assert (home.read(1).status, home.read(1).text("claimed_by")) == left


# After a crash


def live(home: Home) -> subprocess.Popen[bytes]:
    """Return an engine in a process of its own."""
    return subprocess.Popen(
        [sys.executable, __file__, str(home.path)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )


@story
async def test_after_kill_9_the_claim_is_taken_back_and_the_task_goes_out_once_more(
    home: Home,
) -> None:
    home.make("wren")
    home.task(1, does=f"[ -e {home.path}/once ] || {{ touch {home.path}/once; sleep 60; }}")
    engine = live(home)
    try:
        wait_until((home.path / "once").exists, within=LIMIT)
        assert home.read(1).text("claimed_by") == "wren"
    finally:
        engine.kill()
        engine.wait()
    async with open_hall(home, rest=lambda _: timedelta(0)) as hall:
        history = await hall.until_ended(1, times=2)
        await hall.engine.turn()
        assert history == await hall.history(1)
    assert [(key, status) for key, status, _ in history] == [
        ("dispatch:1", "interrupted"),
        ("dispatch:2", "done"),
    ]
    assert home.begun() == [1, 1]
    assert home.read(1).status == "done"


@story
async def test_however_often_the_engine_is_killed_each_task_is_done_once(home: Home) -> None:
    home.make("wren", "moss")
    numbers = range(1, 7)
    for number in numbers:
        home.task(number, does="sleep 0.1")

    def is_all_done() -> bool:
        return all(home.read(number).status == "done" for number in numbers)

    chance = random.Random(7)
    for _ in range(scaled(30)):
        known = len(home.log())
        engine = live(home)
        try:
            wait_until(lambda: is_all_done() or len(home.log()) > known, within=LIMIT)  # noqa: B023
            time.sleep(chance.uniform(0, 0.3))  # whatever it is at then
        finally:
            engine.kill()
            engine.wait()
        if is_all_done():
            break
    async with open_hall(home, rest=lambda _: timedelta(0)) as hall:
        await hall.until(is_all_done)
        for number in numbers:
            ends = [status for _, status, _ in await hall.until_ended(number)]
            assert ends.count("done") == 1
            assert set(ends) <= {"done", "interrupted"}
            assert home.begun().count(number) <= len(ends)


@story
async def test_a_run_that_was_never_let_go_knows_its_own_claim_the_next_time(home: Home) -> None:
    home.make("wren")
    home.task(1)
    async with dispatch_stage(home) as stage, Processes(home.data) as processes:
        await stage.look()
        [filed] = (await stage.ledger.receipts()).receipts
        runner = runner_of(stage, processes)
        for _ in range(2):
            await stage.clock.advance(SECOND)
            run = await one_run.start(stage.ledger, filed.number, now=stage.clock.now(), term=1)
            assert run is not None
            held = await runner.hold(Job(filed, run, ""))
            assert held.process.pid  # somebody is there, and waits
            assert home.read(1).text("claimed_at") == key_time(run.started_at)
            held.cancel("the engine ended")
            await stage.ledger.give_back(
                run.number, reason=because("so"), now=stage.clock.now(), term=1
            )


@story
async def test_a_task_whose_tree_cannot_be_made_is_held_with_the_reason(home: Home) -> None:
    home.make("wren")
    home.task(1)
    home.commit_all()
    (home.data / "trees").write_text("in the way\n")
    async with open_hall(home) as hall:

        async def held() -> str:
            found = await hall.ledger.find("task:1:work")
            page = await hall.ledger.receipts(entry=found[0].number) if found else None
            own = [each.receipt for each in page.receipts] if page else []
            return next((each.reason for each in own if each.status.value == "held"), "")

        reason = await until(held)
        assert reason == f"the tree of wren cannot be made: {home.data}/trees: file exists"


@story
async def test_a_run_that_ends_before_its_task_is_claimed_is_not_tried_at_once_for_ever(
    home: Home,
) -> None:
    home.make("wren")
    (home.crew / "wren.org").unlink()
    home.task(1)
    async with open_hall(home, rest=rest_after) as hall:
        [(key, status, reason)] = await hall.until_ended(1)
        assert (key, status) == ("dispatch:1", "failed")
        assert "wren.org" in reason
        await hall.until(lambda: hall.dispatcher.next_at is not None)
        hall.dispatcher.note_change()
        await hall.engine.turn()
        assert len(await hall.history(1)) == 1
        home.save(1, title="Bed one")  # whoever changes it need not wait
        hall.engine.request("board")
        assert len(await hall.until_ended(1, times=2)) == 2


@story
async def test_an_end_that_did_not_reach_the_file_is_finished_once(home: Home) -> None:
    home.make("wren")
    path, seen = home.tasks / "001-bed.md", home.path / "seen"
    home.task(1, does=f"cp {path} {seen}")
    async with open_hall(home) as hall:
        await hall.until_ended(1)
        [filed] = (await hall.ledger.receipts()).receipts
        path.write_bytes(seen.read_bytes())  # as if the engine had died before the edit
        await hall.runner.settle(filed)
        done = path.read_bytes()
        assert home.read(1).status == "done"
        await hall.runner.settle(filed)
        assert path.read_bytes() == done
        claimed = ("claimed_by: wren", "claimed_at: 2026-04-01T08:00:00Z")
        home.task(1, *claimed, status="in-progress")
        before = path.read_bytes()
        await hall.runner.settle(filed)  # the claim of another time is not ours to end
        assert path.read_bytes() == before


# Under git


@story
async def test_work_is_done_in_a_clone_and_delivered_and_each_edit_is_committed_alone(
    home: Home,
) -> None:
    home.make("wren")
    commit = "git -c user.name=wren -c user.email=w@example.org commit -qm Sow"
    home.task(1, does=f"echo sown > bed.txt; git add bed.txt; {commit}")
    (home.root / "bed.txt").write_text("bare\n")
    home.commit_all()
    (home.root / "mine.txt").write_text("a person's work\n")
    async with open_hall(home) as hall:
        await hall.until_ended(1)
    assert (home.root / "bed.txt").read_text() == "sown\n"
    log = home.git("log", "--reverse", "--no-merges", "--format=%an: %s", "--name-only")
    told = [line for line in log.splitlines() if line]
    assert told[-6:] == [
        "horae: Assign task #1 to wren",
        "board/tasks/001-bed.md",
        "wren: Sow",
        "bed.txt",
        "horae: Move task #1 to done",
        "board/tasks/001-bed.md",
    ]
    assert home.git("status", "--porcelain").strip() == "?? mine.txt"


@story
async def test_work_that_does_not_go_in_cleanly_goes_to_review_with_its_branch(home: Home) -> None:
    home.make("wren")
    commit = "git -c user.name=wren -c user.email=w@example.org commit -qam Sow"
    wait = f"while [ ! -e {home.path}/go ]; do sleep 0.1; done"
    home.task(1, does=f"echo beans > bed.txt; {commit}; {wait}")
    (home.root / "bed.txt").write_text("bare\n")
    home.commit_all()
    async with open_hall(home) as hall:
        await hall.until(lambda: home.begun() == [1])
        (home.root / "bed.txt").write_text("peas\n")
        home.git("commit", "-qam", "Sow peas")
        (home.path / "go").touch()
        await hall.until_ended(1)
    task = home.read(1)
    assert (task.status, task.text("branch")) == ("review", "horae-work/wren/1")
    assert (home.root / "bed.txt").read_text() == "peas\n"
    assert home.git("show", "horae-work/wren/1:bed.txt") == "beans\n"


# Who is asked, and what is said


@story
async def test_why_and_history_tell_of_a_task_like_of_anything_else(home: Home) -> None:
    home.make("wren")
    home.task(7, does="exit 3")
    async with open_hall(home) as hall:
        await hall.until_ended(7)
        history = await hall.service.history("task:7:work")
        [line] = history.receipts
        assert (line.key, line.status) == ("dispatch:1", Status.FAILED)
        assert (await hall.service.filed(line.receipt)).agents == ("wren",)
        answer = await hall.service.why(parse_ask("task:7:work"))
        assert "exit code 3" in str(answer)


@story
async def test_somebody_can_ask_for_a_task_that_names_who_does_it(home: Home) -> None:
    home.make("wren", "moss")
    home.task(1, "assignee: moss", does="exit 3")
    home.task(2, "tags: [x]", "assignee: ann")
    async with open_hall(home) as hall:
        await hall.until_ended(1)
        (home.path / "do-1.sh").write_text("echo sown\n")
        await hall.service.run_now("task:1:work")
        assert [status for _, status, _ in await hall.until_ended(1, times=2)] == ["failed", "done"]
        await hall.service.run_now("task:2:work")
        [(key, status, reason)] = await hall.until_ended(2)
        assert (key, status, reason) == ("manual:x", "failed", "ann is not a member of the crew")
    assert [member for _, _, member in home.log()] == ["moss"] * 3


# What a look does, in a time of our own


@dataclass
class DispatchStage:
    """A dispatcher over a real board and ledger, whose looks are asked for by hand."""

    home: Home
    clock: ManualClock
    ledger: SqliteLedger
    dispatcher: Dispatcher
    source: BoardSource
    busy: set[str]

    async def scan(self) -> None:
        scan = await self.source.scan(await self.ledger.index("board"))
        await self.ledger.scan("board", scan, now=self.clock.now(), term=1)

    async def look(self) -> list[tuple[int, str, str]]:
        """Return what one look hands out: the task, the key and the member."""
        await self.scan()
        found = await self.dispatcher.look(self.clock.now())
        return [(int(each.title.split()[1]), each.receipt.key, each.agents[0]) for each in found]

    async def end(self, outcome: Status = Status.DONE) -> None:
        """Let everything that waits run and end so."""
        page = await self.ledger.receipts(statuses=(Status.WAITING,))
        stamp: dict[str, Any] = {"now": self.clock.now(), "term": 1}
        for filed in page.receipts:
            run = await one_run.start(self.ledger, filed.number, **stamp)
            assert run is not None
            await one_run.running(self.ledger, run.number, Process(1, 1), **stamp)
            await one_run.end(self.ledger, run.number, outcome, reason=because("so"), **stamp)


def host_of(home: Home, processes: Processes) -> AgentHost:
    place = RunSettings(home.root, home.data, os.environ, MINUTE)
    return AgentHost(Registry(), processes, place, Trees(place.root, place.data))


@asynccontextmanager
async def dispatch_stage(home: Home) -> AsyncIterator[DispatchStage]:
    clock, busy = ManualClock(NOW), set[str]()
    ledger = await SqliteLedger.in_memory()
    dispatcher = Dispatcher(
        CommittedBoard(Board.below(home.root)),
        Roster(home.manifest).agents,
        agents=host_of(home, Processes(home.data)),
        ledger=ledger,
        clock=clock,
        busy=lambda: busy,
    )
    source = BoardSource(Board.below(home.root), now=clock.now, changed=dispatcher.note_change)
    yield DispatchStage(home, clock, ledger, dispatcher, source, busy)
    await ledger.close()


def runner_of(stage: DispatchStage, processes: Processes) -> DispatchRunner:
    home = stage.home
    return DispatchRunner(
        host_of(home, processes),
        CommittedBoard(Board.below(home.root)),
        Roster(home.manifest).agents,
        ledger=stage.ledger,
        clock=stage.clock,
    )


@story
async def test_to_look_twice_files_once_also_for_another_engine(home: Home) -> None:
    home.make("wren", "moss")
    for number in (1, 2, 3):
        home.task(number)
    async with dispatch_stage(home) as stage:
        assert await stage.look() == [(1, "dispatch:1", "wren"), (2, "dispatch:1", "moss")]
        assert await stage.look() == []
        later = Dispatcher(
            CommittedBoard(Board.below(home.root)),
            Roster(home.manifest).agents,
            agents=host_of(home, Processes(home.data)),
            ledger=stage.ledger,
            clock=stage.clock,
            busy=tuple,
        )
        assert await later.look(NOW) == []
        await stage.end()
        home.save(1, status="done")
        assert [filed.title for filed in await later.look(NOW)] == ["Bed 2", "Bed 3"]


@story
async def test_who_is_busy_or_rests_or_cannot_run_is_handed_nothing(home: Home) -> None:
    home.make("wren", "moss", "fern", "reed")
    (home.crew / "fern.org").write_text("* fern :agent:\nYou garden.\n")  # has no command
    for number in (1, 2, 3, 4):
        home.task(number)
    async with dispatch_stage(home) as stage:
        stage.busy.add("wren")
        assert await stage.look() == [(1, "dispatch:1", "moss"), (2, "dispatch:1", "reed")]
        stage.busy.clear()
        assert await stage.look() == [(3, "dispatch:1", "wren")]


@story
async def test_when_nobody_can_run_the_receipt_says_why(home: Home) -> None:
    home.make("wren", command="")
    home.task(1)
    async with dispatch_stage(home) as stage, Processes(home.data) as processes:
        assert await stage.look() == [(1, "dispatch:1", "wren")]
        [filed] = (await stage.ledger.receipts()).receipts
        assert filed.work is Work.DISPATCH
        runner = runner_of(stage, processes)
        before = (home.tasks / "001-bed.md").read_bytes()
        with pytest.raises(HeldBackError, match="has no command"):
            await runner.hold(Job(filed, Run(1, filed.number, 1, NOW), ""))
        assert (home.tasks / "001-bed.md").read_bytes() == before
        assert "has no command" in (await runner.obstacle(filed) or "")
        (home.crew / "wren.org").write_text(
            f"* wren :agent:\n:PROPERTIES:\n:COMMAND: sh {home.path}/agent.sh\n:END:\nYou garden.\n"
        )
        assert await runner.obstacle(filed) is None


@story
async def test_without_a_crew_nothing_is_handed_out(home: Home) -> None:
    home.make()
    home.task(1)
    async with dispatch_stage(home) as stage:
        assert await stage.look() == []
        assert [each.mark.address for each in await stage.ledger.entries()] == ["task:1:work"]
        assert stage.dispatcher.next_at is None


@story
async def test_a_task_that_somebody_paused_keeps_nobody_from_the_next(home: Home) -> None:
    home.make("wren")
    for number in (1, 2):
        home.task(number)
    async with dispatch_stage(home) as stage:
        await stage.scan()
        [known] = await stage.ledger.find("task:1:work")
        await stage.ledger.pause(known.number, now=NOW, term=1)
        assert await stage.look() == [(2, "dispatch:1", "wren")]


@story
async def test_a_task_that_was_not_begun_rests_and_keeps_nobody_from_the_next(home: Home) -> None:
    home.make("wren")
    for number in (1, 2):
        home.task(number)
    async with dispatch_stage(home) as stage:
        assert await stage.look() == [(1, "dispatch:1", "wren")]
        await stage.end(Status.NO_WORK)  # and its file is as it was
        assert await stage.look() == [(2, "dispatch:1", "wren")]
        await stage.end(Status.NO_WORK)
        assert await stage.look() == []
        assert stage.dispatcher.next_at == NOW + UNCLAIMED
        await stage.clock.advance(UNCLAIMED)
        assert await stage.look() == [(1, "dispatch:2", "wren")]


@story
async def test_one_that_was_changed_meanwhile_need_not_rest(home: Home) -> None:
    home.make("wren")
    home.task(1)
    async with dispatch_stage(home) as stage:
        assert await stage.look() == [(1, "dispatch:1", "wren")]
        home.save(1, blocked="no water")
        await stage.end(Status.NO_WORK)
        assert await stage.look() == []
        home.save(1, blocked=None)
        assert await stage.look() == [(1, "dispatch:2", "wren")]


@story
async def test_two_files_with_one_number_are_not_handed_out_and_others_are(home: Home) -> None:
    home.make("wren", "moss")
    home.task(1)
    text = (home.tasks / "001-bed.md").read_text()
    home.task(2)
    (home.tasks / "007-copy.md").write_text(text)
    async with dispatch_stage(home) as stage, Processes(home.data) as processes:
        assert await stage.look() == [(2, "dispatch:1", "wren")]
        # One that was handed out before its copy came is not begun, and says why.
        (home.tasks / "007-copy.md").unlink()
        assert await stage.look() == [(1, "dispatch:1", "moss")]
        [filed] = [
            each for each in (await stage.ledger.receipts()).receipts if each.agents == ("moss",)
        ]
        (home.tasks / "007-copy.md").write_text(text)
        held = await runner_of(stage, processes).hold(Job(filed, Run(1, filed.number, 1, NOW), ""))
        held.go()
        ended = await held.ended()
    assert ended.outcome is Status.NO_WORK
    assert ended.reason.startswith("task #1 was not started: 2 files have the id 1: ")
    assert "001-bed.md" in ended.reason
    assert "007-copy.md" in ended.reason


@story
async def test_a_time_on_the_board_is_when_to_look_again(home: Home) -> None:
    home.make("wren")
    home.task(1, "scheduled_for: 2026-04-01T09:00:00Z")
    async with dispatch_stage(home) as stage:
        assert await stage.look() == []
        assert stage.dispatcher.next_at == NOW + HOUR
        offered: list[Filed] = []
        looking = asyncio.create_task(stage.dispatcher.run(offered.extend))
        await stage.clock.advance(HOUR - SECOND)
        assert offered == []
        await stage.clock.advance(SECOND)
        await until(lambda: offered, within=LIMIT)
        looking.cancel()
        assert [(each.title, each.receipt.planned_at) for each in offered] == [
            ("Bed 1", NOW + HOUR)
        ]


@story
async def test_a_dead_holders_claim_is_taken_back_first_and_a_persons_is_not(home: Home) -> None:
    home.make("wren", "moss")
    held = ("claimed_by: dead", "claimed_at: 2026-04-01T07:00:00Z")
    home.task(1, *held, "claim_expires_at: 2026-04-01T08:30:00Z", status="in-progress")
    home.task(2, *held, status="in-progress")
    async with dispatch_stage(home) as stage:
        assert await stage.look() == []
        assert stage.dispatcher.next_at == NOW + HOUR / 2
        await stage.clock.advance(HOUR / 2)
        assert await stage.look() == [(1, "dispatch:1", "wren")]
        assert home.read(1).text("attempt_reason") == "the claim of dead expired"
        assert home.read(2).text("claimed_by") == "dead"


@story
async def test_what_ended_badly_rests_the_longer_the_more_often_also_after_a_restart(
    home: Home,
) -> None:
    home.make("wren")
    home.task(1, "attempt: 3")
    async with dispatch_stage(home) as stage:
        assert await stage.look() == [(1, "dispatch:1", "wren")]
        await stage.end(Status.FAILED)
        home.save(1, attempt="4", retry_at=key_time(NOW + rest_after(4)))
        assert await stage.look() == []
        assert stage.dispatcher.next_at == NOW + rest_after(4) == NOW + 8 * MINUTE
        await stage.clock.advance(8 * MINUTE)
        assert await stage.look() == [(1, "dispatch:2", "wren")]
        await stage.end(Status.FAILED)
        home.save(1, attempt="5", retry_at=key_time(NOW + HOUR / 2))
        assert await stage.look() == []
        home.save(1, attempt=None)  # a person says: now
        assert await stage.look() == [(1, "dispatch:3", "wren")]


@story
async def test_a_task_goes_to_a_member_whose_roles_fit(home: Home) -> None:
    home.make("wren", "moss", "fern")
    manifest = home.manifest.read_text()
    for name, roles in (("wren", "docs"), ("moss", "web, docs")):
        manifest = manifest.replace(f":DEF: {name}.org", f":DEF: {name}.org\n:ROLES: {roles}")
    home.manifest.write_text(manifest)
    home.task(1, "roles: [web]")
    home.task(2, "tags: [urgent, docs]")
    home.task(3, "roles: cooking")
    home.task(4, "assignee: wren", "roles: [web]")
    async with dispatch_stage(home) as stage:
        # Who has no role may get any task, and who is named gets the task whatever its roles.
        assert sorted(await stage.look()) == [
            (1, "dispatch:1", "moss"),
            (2, "dispatch:1", "fern"),
            (4, "dispatch:1", "wren"),
        ]


@pytest.mark.parametrize("most", [1, 2])
def test_without_a_crew_one_command_gets_the_tasks(tmp_path: Path, most: int) -> None:
    home = Home(tmp_path).make()
    program = tmp_path / "program"
    lines = f"echo begin $HORAE_TASK $HORAE_AGENT >>{home.path}/log; sleep 0.3"
    lines += f"; grep -h claimed_by: {home.tasks}/* >>{home.path}/claims"
    program.write_text(f"#!/bin/sh\ncat >/dev/null; {lines}\n")
    program.chmod(0o755)
    settings = f'[board]\ncommand = ["{program}"]\nmax = {most}\n'
    (home.root / "horae.toml").write_text(settings)
    for number in (1, 2, 3):
        home.task(number)
    with engine_up(home.root):
        numbers = (1, 2, 3)
        wait_until(lambda: all(home.read(each).status == "done" for each in numbers), within=LIMIT)
    names = {"board"} if most == 1 else {"board", "board-2"}
    assert {member for _, _, member in home.log()} == names
    assert sorted(home.begun()) == [1, 2, 3]
    assert set((home.path / "claims").read_text().split()) == {"claimed_by:", "board"}


@story
async def test_a_task_that_comes_back_goes_on_with_its_history(home: Home) -> None:
    home.make("wren")
    home.task(1)
    async with dispatch_stage(home) as stage:
        assert await stage.look() == [(1, "dispatch:1", "wren")]
        await stage.end()
        home.save(1, status="done")
        assert await stage.look() == []
        await stage.clock.advance(3 * SECOND)
        await stage.scan()
        [known] = await stage.ledger.find("task:1:work")
        assert known.gone_at is not None
        home.save(1, status="todo")
        assert await stage.look() == [(1, "dispatch:2", "wren")]
        [again] = await stage.ledger.find("task:1:work")
        assert (again.number, again.gone_at) == (known.number, None)


@story
async def test_a_task_that_the_ledger_does_not_know_yet_is_handed_out_once_it_does(
    home: Home,
) -> None:
    home.make("wren")
    home.task(1)
    async with dispatch_stage(home) as stage:
        assert await stage.dispatcher.look(NOW) == []
        assert await stage.look() == [(1, "dispatch:1", "wren")]


@story
async def test_a_receipt_that_names_nobody_is_refused_with_what_to_do(home: Home) -> None:
    home.make("wren")
    home.task(1)
    async with dispatch_stage(home) as stage, Processes(home.data) as processes:
        await stage.scan()
        [known] = await stage.ledger.find("task:1:work")
        asked = Receipt("manual:x", Status.WAITING, because(""), NOW, NOW)
        [filed] = await stage.ledger.add(known.number, [asked], now=NOW, term=1)
        runner = runner_of(stage, processes)
        with pytest.raises(RunError, match="has no assignee; set one with"):
            await runner.hold(Job(filed, Run(1, filed.number, 1, NOW), ""))


async def _live(home: Home) -> None:
    """Keep an engine up until it is killed."""
    async with open_hall(home, rest=lambda _: timedelta(0)):
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(_live(Home(Path(sys.argv[1]))))
