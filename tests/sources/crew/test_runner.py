"""Ticks with real processes and real git: what an agent is told, and what becomes of its work."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import subprocess
import time
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import partial, wraps
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from commands import PipedCommand
from horae.app import build, keep
from horae.cli.status import print_status
from horae.client import Client
from horae.config import load
from horae.context import new_id
from horae.core.clock import SystemClock
from horae.core.receipt import Status
from horae.core.service import Service
from horae.core.views import AgentPosition
from horae.sources.crew.rules import agent_state, read_memory
from horae.sources.crew.source import CrewSource
from horae.timing import duration
from reasons import because
from waiting import settled, until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator

    from horae.app import App
    from horae.core.ports import Run
    from horae.core.receipt import Filed
    from horae.core.views import AgentLine

PERSON = {
    "GIT_AUTHOR_NAME": "ada",
    "GIT_AUTHOR_EMAIL": "ada@example.org",
    "GIT_COMMITTER_NAME": "ada",
    "GIT_COMMITTER_EMAIL": "ada@example.org",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_CONFIG_NOSYSTEM": "1",
}
DAY = """\
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
:END:
* wake_plan
:PROPERTIES:
:NEXT: wake_add
:END:
"""
# An engine whose first ticks need not wait a minute; the rest is the real thing.
HASTY = Path(__file__).with_name("hasty.py")


def story(test: Callable[..., Coroutine[object, object, None]]) -> Callable[..., None]:
    """Run a test that waits for things."""

    @wraps(test)
    def told(*args: object, **kwargs: object) -> None:
        asyncio.run(test(*args, **kwargs))

    return told


def git(*args: str, at: Path, **environ: str) -> str:
    """Call git as a person does."""
    command = ["git", "-c", "init.defaultBranch=main", "-c", "protocol.file.allow=always", *args]
    told = {**os.environ, **PERSON, **environ}
    done = subprocess.run(command, cwd=at, capture_output=True, check=True, text=True, env=told)
    return done.stdout


@dataclass(frozen=True)
class Ground:
    """A plan root with a crew of one, whose agent is a shell script."""

    root: Path
    side: Path  # beside the root: what the agent leaves for the test to see

    @property
    def data(self) -> Path:
        return self.root / ".horae"

    def state(self, name: str) -> str:
        return (self.data / name).read_text().strip()

    def crew(self, *lines: str, name: str = "wren") -> None:
        """Write a manifest in which one agent has these properties."""
        drawer = "".join(f"{line}\n" for line in (f":DEF: {name}.org", *lines))
        (self.root / "crew.org").write_text(f"* {name}\n:PROPERTIES:\n{drawer}:END:\n")

    def agent(self, script: str, *lines: str, name: str = "wren") -> None:
        """Let an agent be a script; SIDE in it is a directory that the test looks into."""
        path = self.side / f"{name}.sh"
        who = f"git -c user.name={name} -c user.email={name}@example.org commit"
        path.write_text(script.replace("SIDE", str(self.side)).replace("git commit", who))
        drawer = "".join(f"{line}\n" for line in (f":COMMAND: sh {path}", *lines))
        text = f"* {name} :agent:\n:PROPERTIES:\n{drawer}:END:\n** System prompt\nYou are {name}.\n"
        (self.root / f"{name}.org").write_text(text)

    def day(self, text: str = DAY) -> None:
        (self.root / "day.org").write_text(text)

    def repository(self, *, origin: bool = False) -> None:
        """Put all that is there under git, with a bare origin if one is wanted."""
        (self.root / ".gitignore").write_text(".horae/\n")
        git("init", "-q", at=self.root)
        git("add", "-A", at=self.root)
        git("commit", "-qm", "Begin", at=self.root, GIT_COMMITTER_DATE="2026-01-01T00:00:00Z")
        if origin:
            git("init", "-q", "--bare", str(self.side / "origin.git"), at=self.side)
            git("remote", "add", "origin", str(self.side / "origin.git"), at=self.root)
            git("push", "-q", "-u", "origin", "main", at=self.root)

    def commit(self, name: str, text: str, *, at: Path | None = None) -> None:
        """Write a file and commit it, as a person does."""
        where = at or self.root
        (where / name).write_text(text)
        git("add", name, at=where)
        git("commit", "-qm", f"Write {name}", at=where)

    def seen(self, name: str) -> str:
        path = self.side / name
        return path.read_text() if path.exists() else ""


@pytest.fixture
def ground(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Ground:
    """A plan root whose wren ticks every hour, does nothing and says that it is done."""
    root, side = tmp_path / "plan", tmp_path / "side"
    root.mkdir()
    side.mkdir()
    (root / "horae.toml").write_text('zone = "UTC"\n[crew]\ndef = "crew.org"\n')
    made = Ground(root, side)
    made.crew(":INTERVAL: 1h", ":LIFECYCLE: day.org")
    made.agent("echo done\n")
    made.day()
    for name, value in PERSON.items():
        monkeypatch.setenv(name, value)
    return made


class Kept:
    """A app that is kept, and what a test asks of it."""

    def __init__(self, app: App) -> None:
        self.app = app

    async def tick(self, name: str = "wren") -> Filed:
        """Let an agent tick now, and return its receipt when that is over."""
        asked = await self.begin(name)
        return await self.over(asked.number)

    async def begin(self, name: str = "wren") -> Filed:
        """Let an agent tick as if its time had come: whether it can is not asked before."""
        app = self.app
        poke = app.engine.note_change
        service = Service(
            ledger=app.ledger, clock=app.clock, ids=new_id, poke=poke, agent_state=agent_state
        )
        return await service.filed((await service.tick(name)).receipt)

    async def over(self, number: int) -> Filed:
        return await settled(self.app.ledger, number)

    async def run_of(self, filed: Filed) -> Run:
        return (await self.app.ledger.runs_of(filed.number))[-1]

    async def agent(self) -> AgentLine:
        [agent] = (await self.app.service.status(self.app.facts())).agents
        return agent

    async def problems(self) -> str:
        return "\n".join((await self.app.service.status(self.app.facts())).problems)

    async def events(self, kind: str) -> list[dict[str, object]]:
        found = await self.app.ledger.events_after(0, limit=10_000)
        return [dict(each.facts) for each in found if each.kind == kind]


@asynccontextmanager
async def kept(ground: Ground) -> AsyncIterator[Kept]:
    """Keep an app as long as it is used."""
    stop = asyncio.Event()
    turned = asyncio.Event()
    async with build(load(ground.root)) as app:
        keeping = asyncio.create_task(keep(app, stop=stop, turned=turned.set))
        try:
            async with asyncio.timeout(20):
                await turned.wait()
            yield Kept(app)
        finally:
            stop.set()
            await keeping


def is_alive(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
        return stat.rpartition(b") ")[2][:1] not in {b"Z", b"X"}
    except OSError:
        return False


# What an agent is told, and where its work goes


@story
async def test_an_agent_is_told_who_it_is_once_and_its_commits_come_home(ground: Ground) -> None:
    (ground.root / "board.org").write_text("* TODO Sow\nSCHEDULED: <2026-01-01 Thu>\n")
    ground.agent("cat > SIDE/told; pwd > SIDE/where; echo x > new.txt; git add .; git commit -qm x")
    ground.repository()
    async with kept(ground) as here:
        filed = await here.tick()
        assert (filed.status, filed.receipt.key) == (Status.DONE, "tick:1")
        told = ground.seen("told")
        assert told.count("You are wren.") == 1
        assert "MODE: plan\nLIFECYCLE: wake_add\n" in told
        assert "Sow (board.org" in told
        assert ground.seen("where").strip() == str(ground.data / "trees" / "wren")
        assert (ground.root / "new.txt").read_text() == "x\n"
        assert git("log", "-1", "--format=%an %s", at=ground.root) == "wren x\n"
        assert (await here.run_of(filed)).facts["delivered"] is True
        assert await here.problems() == ""


@story
async def test_an_agent_is_told_of_the_board_and_a_rest_counts_its_tasks(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HORAE_BOARD_AUTO_DISPATCH", "0")
    ground.crew(":INTERVAL: 1h", ":LIFECYCLE: day.org", ":WAKE: due")
    ground.day("* work\n:PROPERTIES:\n:NEXT: rem\n:END:\n* rem\n:PROPERTIES:\n:KIND: rem\n:END:\n")
    ground.agent("cat > SIDE/told")
    tasks = {
        "1": "title: Sow\nstatus: todo\nscheduled_for: '2026-01-01T00:00:00Z'\n",
        "2": "title: Water\nstatus: todo\ndepends_on: [3]\n",
        "3": "title: Dig\nstatus: done\n",
        "4": "title: Later\nstatus: todo\nscheduled_for: '2999-01-01T00:00:00Z'\n",
        "5": "title: Held\nstatus: todo\ndepends_on: [1]\n",
        "6": "title: Not for wren\nstatus: todo\nassignee: moss\n",
        "7": "title: Taken\nstatus: in-progress\nclaimed_by: wren\n",
    }
    folder = ground.root / "board" / "tasks"
    folder.mkdir(parents=True)
    for number, text in tasks.items():
        (folder / f"00{number}-x.md").write_text(f"---\nid: {number}\n{text}---\n")
    async with kept(ground) as here:
        assert (await here.tick()).status is Status.DONE
        told = ground.seen("told")
        for title in ("Sow", "Water", "Taken"):
            assert f"{title} (task #" in told
        for title in ("Dig", "Later", "Held", "Not for wren"):
            assert title not in told
        rest = await here.tick()
        assert rest.receipt.reason.startswith("wrote rem/")
        [page] = (ground.root / "rem").iterdir()
        assert "5 todo" in page.read_text()


@story
async def test_state_is_kept_in_files_as_people_know_them(ground: Ground) -> None:
    async with kept(ground) as here:
        before = int(time.time())
        await here.tick()
        await here.tick()
        assert ground.state("lifecycle-pos-wren") == "wake_add 2"
        for name in ("keeper-last-run-wren", "lifecycle-ran-wren-wake_add"):
            assert before <= int(ground.state(name)) <= time.time()
        agent = await here.agent()
        assert agent.lifecycle == AgentPosition(
            state="wake_add", hits=2, next_state="wake_audit", kind="wake"
        )


@story
async def test_work_goes_to_the_origin_if_there_is_one(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HORAE_GIT_LOCAL", str(ground.side / "origin.git"))
    ground.agent("echo $HORAE_KEY > new.txt; git add .; git commit -qm $HORAE_KEY")
    ground.repository(origin=True)
    async with kept(ground) as here:
        await here.tick()
        assert git("log", "-1", "--format=%s", "main", at=ground.side / "origin.git") == "tick:1\n"
        assert (ground.root / "new.txt").read_text() == "tick:1\n"
        assert await here.problems() == ""


@story
async def test_work_that_does_not_fit_stays_on_its_branch_until_a_person_takes_it(
    ground: Ground,
) -> None:
    waits = "touch SIDE/on; until [ -e SIDE/go ]; do sleep 0.1; done"
    ground.agent(f"echo agent > shared.txt; git add .; git commit -qm x; {waits}")
    (ground.root / "shared.txt").write_text("first\n")
    ground.repository()
    async with kept(ground) as here:
        asked = await here.app.service.tick("wren")
        await until((ground.side / "on").exists)
        ground.commit("shared.txt", "person\n")
        (ground.side / "go").touch()
        filed = await here.over(asked.receipt)
        assert filed.status is Status.DONE
        assert (ground.root / "shared.txt").read_text() == "person\n"
        assert git("status", "--porcelain", at=ground.root) == ""
        kept_at = f"horae-work/wren/{(await here.run_of(filed)).number}"
        assert git("show", f"{kept_at}:shared.txt", at=ground.root) == "agent\n"
        assert f" is kept on {kept_at};" in await here.problems()
        # The next tick begins with the plan as it is.
        ground.agent("cat shared.txt > SIDE/base")
        await here.tick()
        assert ground.seen("base") == "person\n"
        assert (await here.agent()).troubles == {}


@story
async def test_an_origin_that_is_a_path_is_asked_only_if_the_settings_name_it(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HORAE_GITOPS", "1")
    ground.agent("echo x > new.txt; git add .; git commit -qm x")
    ground.repository(origin=True)
    async with kept(ground) as here:
        filed = await here.tick()
        assert filed.status is Status.DONE
        agent = await here.agent()
        assert set(agent.troubles) == {"pull", "delivery"}
        for words in agent.troubles.values():
            assert "list it in the setting git.local" in words
        facts = (await here.run_of(filed)).facts
        assert facts["delivered"] is False
        assert git("branch", "--list", "horae-work/*", at=ground.root) == ""  # it waits
    with (ground.root / "horae.toml").open("a") as file:
        file.write('[git]\nlocal = ["../side/origin.git"]\n')
    async with kept(ground) as here:
        await here.tick()
        assert git("show", "main:new.txt", at=ground.side / "origin.git") == "x\n"
        assert await here.problems() == ""


@story
async def test_a_conflict_with_the_origin_is_left_for_a_person_and_the_tick_goes_on(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HORAE_GIT_LOCAL", str(ground.side / "origin.git"))
    monkeypatch.setenv("HORAE_GITOPS", "1")
    (ground.root / "shared.txt").write_text("first\n")
    ground.repository(origin=True)
    peer = ground.side / "peer"
    git("clone", "-q", str(ground.side / "origin.git"), str(peer), at=ground.side)
    ground.commit("good.txt", "from afar\n", at=peer)
    git("push", "-q", at=peer)
    async with kept(ground) as here:
        await here.tick()
        assert (ground.root / "good.txt").read_text() == "from afar\n"
        ground.commit("shared.txt", "peer\n", at=peer)
        git("push", "-q", at=peer)
        ground.commit("shared.txt", "here\n")
        head = git("rev-parse", "HEAD", at=ground.root)
        filed = await here.tick()
        assert filed.status is Status.DONE
        assert git("rev-parse", "HEAD", at=ground.root) == head
        assert git("status", "--porcelain", at=ground.root) == ""
        assert "the plan root is not up to date with its origin (conflict: " in (
            await here.problems()
        )


# How a tick may end


@story
async def test_a_hung_agent_is_killed_with_its_children_and_holds_its_place(
    ground: Ground,
) -> None:
    ground.crew(":INTERVAL: 1h", ":LIFECYCLE: day.org", ":TIMEOUT: 1s")
    ground.agent("sleep 1000 & echo $$ $! > SIDE/pids; wait; sleep 1000")
    async with kept(ground) as here:
        filed = await here.tick()
        assert filed.status is Status.KILLED
        pids = [int(each) for each in ground.seen("pids").split()]
        assert len(pids) == 2
        assert not any(map(is_alive, pids))
        assert ground.state("lifecycle-pos-wren") == "wake_add 0"
        assert int(ground.state("lifecycle-ran-wren-wake_add")) > 0


@story
async def test_a_crashing_agent_is_retried_in_its_place_and_after_three_times_is_stuck(
    ground: Ground,
) -> None:
    ground.agent("kill -SEGV $$")
    async with kept(ground) as here:
        for _ in range(4):
            assert (await here.tick()).status is Status.FAILED
        agent = await here.agent()
        assert (agent.stuck, agent.failures, agent.last_outcome) == (True, 4, Status.FAILED)
        assert ground.state("lifecycle-pos-wren") == "wake_add 0"
        ground.agent("echo NO-WORK nothing here")
        assert (await here.tick()).status is Status.NO_WORK
        agent = await here.agent()
        assert (agent.stuck, agent.streak) == (False, 1)
        assert ground.state("lifecycle-pos-wren") == "wake_audit 0"


@pytest.mark.parametrize(
    ("what", "reason"),
    [
        ("definition", "no agent is defined here"),
        ("no definition", "does not exist"),
        ("no day", "the lifecycle cannot be read"),
    ],
)
@story
async def test_what_keeps_an_agent_from_running_fails_its_tick_and_stops_nothing_else(
    ground: Ground, what: str, reason: str
) -> None:
    match what:
        case "definition":
            (ground.root / "wren.org").write_text("* Nothing\n")
        case "no definition":
            (ground.root / "wren.org").unlink()
        case "no day":
            (ground.root / "day.org").unlink()
    async with kept(ground) as here:
        filed = await here.tick()
        assert filed.status is Status.FAILED
        assert reason in filed.receipt.reason
        assert here.app.is_well()


@story
async def test_a_tick_whose_tree_the_disk_does_not_take_is_held_until_it_does(
    ground: Ground,
) -> None:
    ground.agent("pwd > SIDE/where")
    ground.repository()
    ground.data.mkdir()
    (ground.data / "trees").write_text("in the way")
    async with kept(ground) as here:
        number = (await here.begin()).number

        async def is_held() -> bool:
            filed = await here.app.ledger.receipt(number)
            return filed is not None and filed.status is Status.HELD

        await until(is_held)
        assert f"wren cannot be made: {ground.data}/trees: file exists" in await here.problems()
        (ground.data / "trees").unlink()
        (ground.root / "plan.org").write_text("* A change lets the engine look again\n")
        assert (await here.over(number)).status is Status.DONE
        assert ground.seen("where").strip() == str(ground.data / "trees/wren")


@story
async def test_an_agent_that_nothing_can_run_is_held_until_somebody_asks_again(
    ground: Ground,
) -> None:
    path = ground.root / "wren.org"
    path.write_text("* wren :agent:\nYou write.\n")
    async with kept(ground) as here:
        number = (await here.begin()).number

        async def is_held() -> bool:
            filed = await here.app.ledger.receipt(number)
            return filed is not None and filed.status is Status.HELD

        await until(is_held)
        agent = await here.agent()
        assert "the agent wren has no command; write :COMMAND: in " in str(agent.held)
        assert (agent.running, agent.failures) == (False, 0)
        assert "cannot tick: " in await here.problems()
        ground.agent("echo done")
        assert (await here.tick()).number == number
        assert ground.state("lifecycle-pos-wren") == "wake_add 1"


@story
async def test_a_running_tick_is_not_doubled_and_status_answers_at_once(ground: Ground) -> None:
    ground.agent("touch SIDE/on; exec sleep 1000")
    async with kept(ground) as here:
        asked = await here.app.service.tick("wren")
        await until((ground.side / "on").exists)
        began = time.monotonic()
        assert (await here.agent()).running
        assert time.monotonic() - began < 1
        with pytest.raises(Exception, match="a tick has been running since "):
            await here.app.service.tick("wren")
        assert here.app.engine.launch.cancel(asked.receipt, because("enough"))
        assert (await here.over(asked.receipt)).status is Status.KILLED
        assert not (await here.agent()).running


@story
async def test_status_calls_no_run_that_goes_on_the_last_one(
    ground: Ground, capsys: pytest.CaptureFixture[str]
) -> None:
    ground.agent("touch SIDE/on; while [ ! -e SIDE/go ]; do sleep 0.1; done; echo done")
    async with kept(ground) as here:

        async def tick_and_look() -> tuple[int, str]:
            asked = await here.app.service.tick("wren")
            await until((ground.side / "on").exists)
            print_status(await here.app.service.status(here.app.facts()), here.app.facts())
            [line] = [
                each
                for each in capsys.readouterr().out.splitlines()
                if each.strip().startswith("wren") and "running" in each
            ]
            return asked.receipt, line

        number, line = await tick_and_look()
        assert "first tick began " in line
        (ground.side / "go").touch()
        await here.over(number)
        for name in ("on", "go"):
            (ground.side / name).unlink()
        number, line = await tick_and_look()
        assert line.rstrip().endswith("last: done")
        (ground.side / "go").touch()
        await here.over(number)


# The day


@story
async def test_a_persons_edit_of_a_state_file_is_taken_over_and_told(ground: Ground) -> None:
    ground.agent("cat > SIDE/told")
    async with kept(ground) as here:
        await here.tick()
        (ground.data / "lifecycle-pos-wren").write_text("wake_plan 0\n")
        await here.tick()
        assert "LIFECYCLE: wake_plan\n" in ground.seen("told")
        assert ground.state("lifecycle-pos-wren") == "wake_add 0"
        edited = {"agent": "wren", "file": "lifecycle-pos-wren"}
        assert await here.events("state_edited") == [edited]


@story
async def test_what_nobody_can_read_is_set_aside_and_the_place_stands(ground: Ground) -> None:
    roll = random.Random(3)
    async with kept(ground) as here:
        await here.tick()
        for number in range(5):
            garbage = roll.randbytes(roll.randrange(1, 300))
            (ground.data / "lifecycle-pos-wren").write_bytes(garbage)
            filed = await here.tick()
            assert filed.status is Status.DONE, number
            assert (ground.data / "lifecycle-pos-wren.bad").exists()
        events = await here.events("state_set_aside")
        assert len(events) == 5
        # Of six ticks each counted once: three adds, the audit, the rest, the plan.
        assert ground.state("lifecycle-pos-wren") == "wake_add 0"


@story
async def test_a_pipe_or_a_link_in_place_of_a_state_file_holds_nothing_up(ground: Ground) -> None:
    async with kept(ground) as here:
        await here.tick()
        for make in (os.mkfifo, lambda path: path.symlink_to("/dev/zero")):
            path = ground.data / "lifecycle-pos-wren"
            path.unlink()
            make(path)
            assert (await here.tick()).status is Status.DONE
        [entry] = await here.app.ledger.find("agent:wren")
        assert str(read_memory(entry.memory).position) == "wake_audit 0"


@story
async def test_a_ledger_that_is_lost_goes_on_from_the_files(ground: Ground) -> None:
    async with kept(ground) as here:
        await here.tick()
    for path in ground.data.glob("ledger*"):
        path.unlink()
    (ground.data / "horae.mark").unlink(missing_ok=True)
    for path in [each for each in ground.data.iterdir() if each.is_file()]:
        if not path.name.startswith(("keeper-", "lifecycle-")):
            path.unlink()
    ground.agent("cat > SIDE/told")
    async with kept(ground) as here:
        before = (await here.agent()).next_run
        assert before is not None
        wait = before - here.app.clock.now()
        assert timedelta(minutes=59) < wait <= timedelta(hours=1)
        await here.tick()
        assert ground.state("lifecycle-pos-wren") == "wake_add 2"


@story
async def test_a_day_that_is_edited_counts_at_the_next_step(ground: Ground) -> None:
    ground.agent("sed -i 's/REPEAT: 3/REPEAT: 1/' ../plan/day.org || true; cat > SIDE/told")
    async with kept(ground) as here:
        await here.tick()
        assert ground.state("lifecycle-pos-wren") == "wake_audit 0"


@story
async def test_a_rest_writes_a_page_without_waking_anybody_and_a_quiet_one_writes_none(
    ground: Ground,
) -> None:
    ground.day("* rem\n:PROPERTIES:\n:KIND: rem\n:END:\n")
    ground.agent("touch SIDE/woken")
    ground.repository()
    async with kept(ground) as here:
        first = await here.tick()
        assert first.status is Status.DONE
        quiet = await here.tick()
        assert (quiet.status, quiet.receipt.reason) == (
            Status.NO_WORK,
            "nothing has happened since the last rest",
        )
        ground.commit("a.txt", "a\n")
        second = await here.tick()
        assert second.status is Status.DONE
        pages = {f"wrote rem/{each.name}" for each in (ground.root / "rem").iterdir()}
        assert pages == {first.receipt.reason, second.receipt.reason}
        assert len(pages) == 2
        assert not (ground.side / "woken").exists()
        assert git("status", "--porcelain", at=ground.root) == ""
        assert git("log", "-1", "--format=%an: %s", at=ground.root) == "horae: rest: wren\n"


@story
async def test_an_agent_that_wakes_for_what_is_due_is_not_started_for_nothing(
    ground: Ground,
) -> None:
    ground.crew(":INTERVAL: 1h", ":WAKE: due")
    ground.agent("echo x >> SIDE/woken")
    async with kept(ground) as here:
        filed = await here.tick()
        assert (filed.status, filed.receipt.reason) == (
            Status.NO_WORK,
            "nothing is due, ready or claimed",
        )
        assert (await here.agent()).streak == 1
        (ground.root / "board.org").write_text("* TODO Sow\nSCHEDULED: <2026-01-01 Thu>\n")
        assert (await here.tick()).status is Status.DONE
        assert ground.seen("woken") == "x\n"


# Restarts


@story
async def test_a_gated_tick_still_notes_its_moment_and_pulls_and_wakes_nobody(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HORAE_GITOPS", "1")
    monkeypatch.setenv("HORAE_GIT_LOCAL", str(ground.side / "origin.git"))
    ground.day("* work\n:PROPERTIES:\n:MIN-INTERVAL: 10m\n:END:\n")
    ground.agent("echo x >> SIDE/woken")
    ground.repository(origin=True)
    peer = ground.side / "peer"
    git("clone", "-q", str(ground.side / "origin.git"), str(peer), at=ground.side)
    async with kept(ground) as here:
        await here.tick()
        (ground.data / "keeper-last-run-wren").write_text("1\n")
        ground.commit("new.txt", "from afar\n", at=peer)
        git("push", "-q", at=peer)
        gated = await here.tick()
        assert "work may begin again in " in gated.receipt.reason
        assert int(ground.state("keeper-last-run-wren")) > 1
        assert (ground.root / "new.txt").exists()
        assert ground.seen("woken") == "x\n"
        assert ((await here.agent()).streak, ground.state("lifecycle-pos-wren")) == (0, "work 0")


@story
async def test_a_redeploy_in_the_middle_of_an_interval_leaves_the_next_tick_where_it_was(
    ground: Ground,
) -> None:
    async with kept(ground) as here:
        await here.tick()
        before = (await here.agent()).next_run
    async with kept(ground) as here:
        assert (await here.agent()).next_run == before
        assert ground.state("lifecycle-pos-wren") == "wake_add 1"


@story
async def test_ticks_come_by_themselves_in_their_rhythm(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(duration, "FIRST_WAIT", timedelta(milliseconds=300))
    source = partial(CrewSource, clock=SystemClock().now)
    monkeypatch.setattr("horae.sources.crew.source.CrewSource", source)
    ground.crew(":INTERVAL: 300")
    ground.agent("echo x >> SIDE/ticks")
    async with kept(ground) as here:
        await until(lambda: ground.seen("ticks").startswith("x\nx\nx\n"))
        [entry] = await here.app.ledger.find("agent:wren")
        page = await here.app.ledger.receipts(entry=entry.number, limit=100)
    ticks = [*reversed(page.receipts)]
    assert [each.receipt.key for each in ticks][:3] == ["tick:1", "tick:2", "tick:3"]
    waits = [
        after.receipt.planned_at - before.ended_at
        for before, after in pairwise(ticks)
        if before.ended_at is not None
    ]
    assert set(waits) == {timedelta(milliseconds=300)}, "each is planned by the end before it"


@story
async def test_kill_9_in_the_middle_of_a_run_costs_neither_the_place_nor_the_gate(
    ground: Ground,
) -> None:
    ground.day(DAY.replace(":REPEAT: 3", ":REPEAT: 3\n:MIN-INTERVAL: 10m"))
    ground.agent("sleep 1000 & echo $$ $! > SIDE/pids; wait")
    with engine(ground.root) as up:
        await until(lambda: len(ground.seen("pids").split()) == 2)
        [running] = Client(ground.data).status().running
        os.kill(up.pid, signal.SIGKILL)
        up.wait()
    pids = [int(each) for each in ground.seen("pids").split()]
    await until(lambda: not any(map(is_alive, pids)))
    async with kept(ground) as here:
        filed = await here.over(running.receipt)
        assert filed.status is Status.INTERRUPTED
        [entry] = await here.app.ledger.find("agent:wren")
        memory = read_memory(entry.memory)
        assert str(memory.position) == "wake_add 0"
        assert (entry.failures, list(memory.began)) == (1, ["wake_add"])
        gated = await here.tick()
        assert "wake_add may begin again in " in gated.receipt.reason
        assert await here.events("state_edited") == []


@story
async def test_a_run_that_ended_while_no_engine_looked_still_moves_the_day(ground: Ground) -> None:
    ground.agent("echo x > new.txt; git add .; git commit -qm x; echo done")
    ground.repository()
    async with kept(ground) as here:
        filed = await here.tick()
        run = await here.run_of(filed)
        runner = here.app.engine.launch.runner
        found = await runner.look_back(filed, run)
        assert getattr(found, "outcome", None) is Status.DONE
        memory = read_memory(getattr(found, "memory", None) or "")
        assert str(memory.position) == "wake_add 1"


# The older variables


class engine:  # noqa: N801 - it reads like a function
    """An engine in a process of its own, stopped at the end if it still runs."""

    def __init__(self, *args: object, **environ: str) -> None:
        self._args = [str(each) for each in args]
        self._environ = environ

    def __enter__(self) -> PipedCommand:
        words = (HASTY, "up", "--seconds", "40", "--log", "json", *self._args)
        environ = {**os.environ, "HORAE_RUN_DRAIN": "0s", **self._environ}
        self._process = PipedCommand(*words, environ=environ)
        return self._process

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
        self._process.communicate(timeout=30)


def receipts(up: PipedCommand, status: str) -> Iterator[dict[str, Any]]:
    """Yield the receipts that an engine tells of and that stand there."""
    for line in up.stdout:
        said = json.loads(line)
        if said.get("status") == status:
            yield said


@pytest.fixture
def tenant(ground: Ground, tmp_path: Path) -> dict[str, str]:
    """The variables of a tenant whose repository is beneath the data directory."""
    root = tmp_path / "data" / "acme"
    root.mkdir(parents=True)
    return {"WB_DATA": str(tmp_path / "data"), "WB_TENANT": "acme"}


def test_a_single_keeper_ticks_by_the_older_variables_alone(
    ground: Ground, tenant: dict[str, str], tmp_path: Path
) -> None:
    ground.agent("cat > SIDE/told; pwd > SIDE/where")
    environ = {
        **tenant,
        "WB_KEEPER_DEF": str(ground.root / "wren.org"),
        "WB_LIFECYCLE_DEF": str(ground.root / "day.org"),
        "WB_KEEPER_INTERVAL_MS": "3600000",
        "WB_KEEPER_RUN_TIMEOUT_MS": "60000",
        "WB_KEEPER_MODE": "edit",
    }
    with engine(**environ) as up:
        next(receipts(up, "done"))
    assert "MODE: edit\nLIFECYCLE: wake_add\n" in ground.seen("told")
    assert ground.seen("where").strip() == str(tmp_path / "data" / "acme")
    assert int((tmp_path / "data" / "keeper-last-run").read_text()) > 0
    assert (tmp_path / "data" / "lifecycle-pos").read_text() == "wake_add 1\n"


def test_a_continuous_keeper_takes_only_a_breather(ground: Ground, tenant: dict[str, str]) -> None:
    environ = {
        **tenant,
        "WB_KEEPER_DEF": str(ground.root / "wren.org"),
        "WB_KEEPER_CONTINUOUS": "1",
        "WB_KEEPER_BREATHER_MS": "100",
    }
    with engine(**environ) as up:
        done = receipts(up, "done")
        assert [next(done)["receipt"] for _ in range(3)]


def test_a_crew_wins_over_a_single_keeper(
    ground: Ground, tenant: dict[str, str], tmp_path: Path
) -> None:
    ground.agent("echo moss >> SIDE/ticked", name="moss")
    ground.agent("echo keeper >> SIDE/ticked")
    ground.crew(":INTERVAL: 1h", name="moss")
    environ = {
        **tenant,
        "WB_KEEPER_DEF": str(ground.root / "wren.org"),
        "WB_CREW_DEF": str(ground.root / "crew.org"),
        "WB_CREW_STAGGER_MS": "0",
        "WB_CREW_MAX_CONCURRENT": "1",
    }
    with engine(**environ) as up:
        next(receipts(up, "done"))
    assert ground.seen("ticked") == "moss\n"
    assert (tmp_path / "data" / "keeper-last-run-moss").exists()
    assert not (tmp_path / "data" / "keeper-last-run").exists()


def test_an_older_variable_says_how_often_a_keeper_ticks(
    ground: Ground, tenant: dict[str, str]
) -> None:
    keeper = {"WB_KEEPER_DEF": str(ground.root / "wren.org"), "WB_KEEPER_INTERVAL_MS": "100"}
    with engine(**tenant, **keeper) as up:
        done = receipts(up, "done")
        assert len({next(done)["receipt"] for _ in range(3)}) == 3


def test_an_older_variable_says_how_long_a_tick_may_run(
    ground: Ground, tenant: dict[str, str]
) -> None:
    ground.agent("sleep 1000")
    keeper = {"WB_KEEPER_DEF": str(ground.root / "wren.org"), "WB_KEEPER_RUN_TIMEOUT_MS": "300"}
    with engine(**tenant, **keeper) as up:
        assert "time limit of 300ms" in next(receipts(up, "killed"))["reason"]


def test_an_older_variable_lets_the_origin_be_pulled_before_each_tick(
    ground: Ground, tenant: dict[str, str], tmp_path: Path
) -> None:
    ground.repository(origin=True)
    origin, home = ground.side / "origin.git", tmp_path / "data" / "acme"
    git("clone", "-q", str(origin), str(home), at=ground.side)
    ground.commit("new.txt", "from afar\n")
    git("push", "-q", at=ground.root)
    ground.agent("cat new.txt > SIDE/seen; echo done")
    keeper = {
        "WB_KEEPER_DEF": str(ground.root / "wren.org"),
        "WB_GITOPS": "1",
        "HORAE_GIT_LOCAL": str(origin),
    }
    with engine(**tenant, **keeper) as up:
        next(receipts(up, "done"))
    assert ground.seen("seen") == "from afar\n"
    assert (home / "new.txt").exists()


def test_an_older_variable_says_how_far_apart_the_first_ticks_are(
    ground: Ground, tenant: dict[str, str]
) -> None:
    ground.agent("echo moss", name="moss")
    crew = "".join(
        f"* {each}\n:PROPERTIES:\n:DEF: {each}.org\n:END:\n" for each in ("wren", "moss")
    )
    (ground.root / "crew.org").write_text(crew)
    environ = {"WB_CREW_DEF": str(ground.root / "crew.org"), "WB_CREW_STAGGER_MS": "7200000"}
    with engine(**tenant, **environ) as up:
        next(receipts(up, "done"))
        agents = Client(Path(tenant["WB_DATA"])).status().agents
    following = {each.agent: each.next_run for each in agents if each.next_run}
    # Wren has ticked and does so hourly; moss has its first tick two hours after the start.
    apart = following["moss"] - following["wren"]
    assert timedelta(minutes=50) < apart < timedelta(minutes=70)


@pytest.mark.parametrize(("most", "looks"), [("1", 10), ("2", 800)])
def test_an_older_variable_says_how_many_tick_at_a_time(
    ground: Ground, tenant: dict[str, str], most: str, looks: int
) -> None:
    both = "[ $(grep -c begin SIDE/log) -ge 2 ] && break; sleep 0.02"
    script = (
        f"echo begin >> SIDE/log; for i in $(seq {looks}); do {both}; done; echo end >> SIDE/log"
    )
    names = ("wren", "moss")
    for name in names:
        ground.agent(script, name=name)
    crew = "".join(f"* {each}\n:PROPERTIES:\n:DEF: {each}.org\n:END:\n" for each in names)
    (ground.root / "crew.org").write_text(crew)
    environ = {
        "WB_CREW_DEF": str(ground.root / "crew.org"),
        "WB_CREW_STAGGER_MS": "0",
        "WB_CREW_MAX_CONCURRENT": most,
    }
    with engine(**tenant, **environ) as up:
        done = receipts(up, "done")
        assert next(done)["entry"] != next(done)["entry"]
    expected = "begin end begin end" if most == "1" else "begin begin end end"
    assert ground.seen("log").split() == expected.split()


def test_with_neither_nothing_ticks(tenant: dict[str, str], tmp_path: Path) -> None:
    with engine("--seconds", "1", **tenant) as up:
        out, _ = up.communicate(timeout=30)
    assert "tick" not in out
    assert not [*(tmp_path / "data").glob("keeper-*")]


# A tick that is held back


def nameless(ground: Ground, name: str = "wren") -> None:
    """Let an agent name no command."""
    text = f"* {name} :agent:\n** System prompt\nYou are {name}.\n"
    (ground.root / f"{name}.org").write_text(text)


async def held(here: Kept) -> Filed:
    """Let wren tick, and return the receipt that is held back."""
    number = (await here.begin()).number

    async def is_held() -> Filed | None:
        filed = await here.app.ledger.receipt(number)
        return filed if filed and filed.status is Status.HELD else None

    filed: Filed = await until(is_held)
    assert "has no command" in filed.receipt.reason
    return filed


async def name_a_command(ground: Ground, _: App) -> None:
    ground.agent("echo done\n")


async def set_a_command(ground: Ground, app: App) -> None:
    with (ground.root / "horae.toml").open("a") as file:
        file.write('[agent]\ncommand = ["echo", "done"]\n')
    await app.settings.trust((await app.settings.look()).digest)


async def take_another_definition(ground: Ground, _: App) -> None:
    ground.agent("echo done\n", name="moss")
    ground.crew(":INTERVAL: 1h", ":DEF: moss.org")
    text = (ground.root / "crew.org").read_text()
    (ground.root / "crew.org").write_text(text.replace(":DEF: wren.org\n", ""))


@pytest.mark.parametrize("help_it", [name_a_command, set_a_command, take_another_definition])
@story
async def test_a_tick_that_is_held_back_goes_on_once_its_reason_is_gone(
    ground: Ground, help_it: Callable[[Ground, App], Awaitable[None]]
) -> None:
    nameless(ground)
    async with kept(ground) as here:
        filed = await held(here)
        await help_it(ground, here.app)
        over = await here.over(filed.number)
        assert over.status is Status.DONE
        assert over.receipt.key == "tick:1"


@story
async def test_a_tick_whose_reason_is_not_gone_is_not_tried_in_vain(ground: Ground) -> None:
    nameless(ground)
    async with kept(ground) as here:
        filed = await held(here)
        tries = len(await here.app.ledger.runs_of(filed.number))
        with (ground.root / "horae.toml").open("a") as file:
            file.write("[agent]\ncommand = 4\n")
        (ground.root / "wren.org").write_text("* wren\nno agent at all\n")
        for source in here.app.engine.sources:
            await here.app.engine.rescan(source)
        again = await here.app.ledger.receipt(filed.number)
        assert again is not None
        assert again.status is Status.HELD
        assert len(await here.app.ledger.runs_of(filed.number)) == tries
