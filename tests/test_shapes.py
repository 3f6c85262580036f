"""Whatever stands where the engine looks, it goes on; what was good there stays, and comes back."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from horae.app import FOLDERS, build, keep, read_again
from horae.cli.group import horae
from horae.cli.run import run
from horae.config import SettingError, load
from horae.core.ports import LedgerWriteError
from horae.core.receipt import Status
from horae.errors import Exit, HoraeError
from scale import by_turns
from waiting import wait_until
from walks.stage import EIGHT, MINUTE, Engine, HandClock, story

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from horae.app import App

TICK = """\
* Tick
:PROPERTIES:
:SCHEDULE: * * * * *
:COMMAND: true
:END:
"""
OTHER = TICK.replace("Tick", "Other").replace("* * * * *", "0 6 * * *")
FLOW = """\
name: nightly
agent: moss
source:
  type: cron
  expression: '0 6 * * *'
prompt_template: Look around.
"""
SETTINGS = """\
zone = "UTC"
listen = "127.0.0.1:0"
[crew]
def = "crew.org"
[board]
auto_dispatch = false
[run]
drain = "0s"
"""
FILES: Final = {
    "tick.org": TICK,
    "sub/plan.org": OTHER,
    "crew.org": "* wren\n:PROPERTIES:\n:DEF: agents/wren.org\n:INTERVAL: 720h\n:END:\n",
    "agents/wren.org": "* wren :agent:\n:PROPERTIES:\n:COMMAND: true\n:END:\n",
    "board/tasks/007-sow.md": "---\nid: 7\ntitle: Sow\nstatus: todo\n---\nBeans.\n",
    ".agentd/agents/moss.yml": "name: moss\ncommand: 'true'\n",
    ".agentd/workflows/nightly.yml": FLOW,
    "horae.toml": SETTINGS,
}
# What is put where a thing of ours was, and the title of the entry that stands nevertheless.
FILE_PLACES: Final = {
    "sub/plan.org": "Other",
    ".agentd/agents/moss.yml": "",
    ".agentd/workflows/nightly.yml": "nightly",
    "board/tasks/007-sow.md": "Sow",
    "crew.org": "wren",
    "agents/wren.org": "",
    "horae.toml": "",
}
FOLDER_PLACES: Final = {
    "sub": "Other",
    ".agentd": "nightly",
    ".agentd/agents": "",
    ".agentd/workflows": "nightly",
    "board": "Sow",
    "board/tasks": "Sow",
    "agents": "",
    ".horae": "Tick",
    ".horae/runs": "Tick",
}
ALL: Final = FILE_PLACES | FOLDER_PLACES


def _socket(path: Path) -> None:
    """Bind a socket, however long its path is."""
    here = os.open(path.parent, os.O_RDONLY)
    try:
        with socket.socket(socket.AF_UNIX) as bound:
            bound.bind(f"/proc/self/fd/{here}/{path.name}")
    finally:
        os.close(here)


def _device(path: Path) -> None:
    os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(1, 5))  # as /dev/zero, which never ends


def _large(path: Path) -> None:
    path.touch()
    os.truncate(path, 16 * 2**20 + 1)


def _text(data: bytes, mode: int = 0o644) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        path.write_bytes(data)
        path.chmod(mode)

    return write


def _link(to: str) -> Callable[[Path], None]:
    """Link to something beside the plan root, or to wherever else."""

    def link(path: Path) -> None:
        path.symlink_to(to.replace("SIDE", os.environ["SIDE"]).replace("SELF", path.name))

    return link


SHAPES: Final[dict[str, Callable[[Path], None]]] = {
    "regular": _text(b"nothing of ours\n"),
    "link to a file": _link("SIDE/file"),
    "link to a directory": _link("SIDE/directory"),
    "link outside": _link("/etc/passwd"),
    "dangling link": _link("SIDE/nowhere"),
    "loop": _link("SELF"),
    "FIFO": os.mkfifo,
    "socket": _socket,
    "device": _device,
    "directory": Path.mkdir,
    "empty": _text(b""),
    "NUL": _text(bytes(4096)),
    "too large": _large,
    "no permission": _text(b"", 0),
}
# A data directory that is exchanged is another ledger, and the engine that wrote to it ends.
EXCHANGED: Final = {"directory", "link to a directory"}
# What may stand there: it is another content, no obstacle. Root may read what nobody may.
TEXTS: Final = {"regular", "empty", "NUL"} | ({"no permission"} if os.geteuid() == 0 else set())
FITTING: Final = {
    **{place: {*TEXTS} for place in FILE_PLACES},
    **{place: {"directory"} for place in FOLDER_PLACES},
    "crew.org": {*TEXTS, "link to a file", "link outside"},  # a person named it in the settings
    "sub/plan.org": {*TEXTS, "directory"},
    "agents/wren.org": {*TEXTS, "directory"},
    **{place: {*EXCHANGED} for place in ("board", "board/tasks", ".horae/runs")},
}


@dataclass(frozen=True)
class Ground:
    """A plan root with a file in every place, and a place beside it."""

    root: Path
    side: Path

    def put(self, name: str, shape: str) -> None:
        """Put a shape where something is, which is kept aside."""
        path = self.root / name
        path.rename(self.side / name.replace("/", "%"))
        SHAPES[shape](path)

    def restore(self, name: str) -> None:
        """Let it be as it was."""
        path = self.root / name
        remove(path)
        (self.side / name.replace("/", "%")).rename(path)


def remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()


@pytest.fixture
def ground(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Ground:
    ground = Ground(tmp_path / "plan", tmp_path / "side")
    monkeypatch.setenv("SIDE", str(ground.side))
    (ground.side / "directory").mkdir(parents=True)
    (ground.side / "file").write_text("elsewhere\n")
    for name, text in FILES.items():
        path = ground.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return ground


async def never(app: App, stop: asyncio.Event) -> None:
    """Tell of no change: a test says by itself when to look."""
    await asyncio.Event().wait()


@asynccontextmanager
async def engine(ground: Ground, clock: HandClock) -> AsyncIterator[Engine]:
    """Give a real engine in this process, whose clock is turned by hand."""
    stop = asyncio.Event()
    async with build(load(ground.root), clock=clock) as app:
        here = Engine(app, clock)
        here.keeping = asyncio.create_task(keep(app, stop=stop, turned=here.turned, watch=never))
        try:
            await here.rest()
            yield here
        finally:
            await here.client.aclose()
            stop.set()
            await here.keeping


async def look(here: Engine) -> None:
    """Let it read all there is, and a minute later once more, with all that comes due."""
    await read(here)
    await here.advance(MINUTE)
    await read(here)


async def read(here: Engine) -> None:
    """Let it read all there is, as after a change."""
    await read_again(here.app)
    for name in here.app.engine.sources:
        with suppress(LedgerWriteError):  # while there is no data directory
            await here.app.engine.rescan(name)


async def standing(here: Engine) -> set[str]:
    """Return what is armed."""
    known = await here.app.ledger.entries()
    triggers = [each.definition for each in await here.app.context.trigger_store.of_files()]
    off = {each.name for each in triggers if not each.is_enabled}
    return {each.mark.title for each in known if each.gone_at is None} - off


async def last(here: Engine) -> tuple[Status, str, bool]:
    """Return how the entry that nobody touches has ended, why, and whether it was right now."""
    filed = (await here.receipts("Tick"))[-1]
    return filed.status, filed.receipt.reason, filed.receipt.planned_at == here.now


@pytest.mark.parametrize("place", ALL)
@story
async def test_no_shape_in_any_place_ends_a_running_engine(ground: Ground, place: str) -> None:
    path = ground.root / place
    async with engine(ground, HandClock(EIGHT)) as here:
        await look(here)
        (ground.root / ".horae/runs").mkdir(exist_ok=True)
        whole = await standing(here)
        assert {"Tick", "Other", "nightly", "Sow", "wren"} <= whole
        for shape in by_turns(SHAPES, [*ALL].index(place)):
            if place == ".horae" and shape in EXCHANGED:
                continue
            ground.put(place, shape)
            is_fitting = shape in FITTING[place]
            try:
                await look(here)
                problems = here.app.facts().problems
            finally:
                ground.restore(place)
            told = [each for each in problems if place in each]
            assert bool(told) or is_fitting, (shape, problems)
            assert "unexpected" not in " ".join(problems)
            if place == ".horae":
                continue  # nothing is decided that cannot be written down
            if not is_fitting:
                assert ALL[place] in {*await standing(here), ""}, shape
            status, reason, is_now = await last(here)
            assert is_now, shape
            if place == ".horae/runs" and not is_fitting:
                assert status is Status.FAILED
                assert reason.startswith(f"{path}/")
            else:
                assert status is Status.DONE, (shape, reason)
            await read(here)
            await here.rest()
            assert here.app.facts().problems == (), shape
            assert await standing(here) == whole, shape
        await look(here)
        assert here.app.facts().problems == ()
        assert (await last(here))[::2] == (Status.DONE, True)


@pytest.mark.parametrize("shape", SHAPES)
@story
async def test_an_engine_starts_whatever_stands_in_all_places_at_once(
    ground: Ground, shape: str
) -> None:
    clock = HandClock(EIGHT)
    async with engine(ground, clock) as here:
        await look(here)
        whole = await standing(here)
    for place in FILE_PLACES:
        if place != "horae.toml":
            ground.put(place, shape)
    async with engine(ground, clock) as here:
        await look(here)
        hidden = {FILE_PLACES[each] for each in FILE_PLACES if shape not in FITTING[each]}
        known = {*await standing(here), ""}
        assert hidden <= known
        assert (await last(here))[::2] == (Status.DONE, True)
    for place in FILE_PLACES:
        if place != "horae.toml":
            ground.restore(place)
    folders = ["sub", ".agentd", "board", "agents", ".horae/runs"]
    (ground.root / ".horae/runs").mkdir(exist_ok=True)
    for place in folders:
        ground.put(place, shape)
    async with engine(ground, clock) as here:
        await look(here)
        hidden = {FOLDER_PLACES[each] for each in folders if shape not in FITTING[each]}
        assert hidden & known <= {*await standing(here), ""}
        assert (await last(here))[2]
        for place in folders:
            ground.restore(place)
        await look(here)
        assert await standing(here) == whole
        assert here.app.facts().problems == ()
        assert (await last(here))[::2] == (Status.DONE, True)


@pytest.mark.parametrize("shape", SHAPES)
def test_what_stands_for_the_settings_or_the_data_is_refused_at_the_start_in_words(
    ground: Ground, shape: str, capsys: pytest.CaptureFixture[str]
) -> None:
    async def start() -> None:
        async with engine(ground, HandClock(EIGHT)):
            pass

    asyncio.run(start())
    ground.put("horae.toml", shape)
    if shape in {"empty", "no permission"} & TEXTS:
        load(ground.root)
    else:
        with pytest.raises(SettingError, match=r"horae\.toml"):
            load(ground.root)
    ground.restore("horae.toml")
    if shape not in EXCHANGED:
        ground.put(".horae", shape)
        with pytest.raises(
            LedgerWriteError, match=r"\.horae: not a directory; move it, or name another directory"
        ):
            asyncio.run(start())
        code = run(horae, name="horae", args=["up", str(ground.root), "--seconds", "0"])
        said = capsys.readouterr().err
        assert (code, said) == (
            Exit.TEMPORARY,
            f"horae: {ground.root}/.horae: not a directory; move it, or name another directory\n",
        )
        ground.restore(".horae")
    asyncio.run(start())


PARTS: Final = {
    "trees": True,
    "cache": True,
    "backups": True,
    "root": True,
    "socket": True,
    "keeper-last-run-wren": True,
    "ledger-numbers.json": True,
    "launcher.log": True,
    # Without these nothing can be kept or proved: it does not start, and says which.
    "post.key": False,
    "lock": False,
    "runs.lock": False,
    "ledger.db": False,
}


@pytest.mark.parametrize("part", PARTS)
@story
async def test_what_stands_for_a_part_of_the_data_directory_is_told_and_hangs_nothing(
    ground: Ground, part: str
) -> None:
    clock = HandClock(EIGHT)
    async with engine(ground, clock) as here:
        await look(here)
    path = ground.root / ".horae" / part
    shapes = ("FIFO", "socket", "device", "directory", "dangling link", "loop")
    for shape in by_turns(shapes, [*PARTS].index(part)):
        aside = ground.side / "part"
        if os.path.lexists(path):
            path.rename(aside)
        SHAPES[shape](path)
        try:
            async with engine(ground, clock) as here:
                await look(here)
                assert (await last(here))[::2] == (Status.DONE, True)
                if part in FOLDERS and shape != "directory":
                    [told] = here.app.facts().problems
                    assert told.startswith(f"{path}: is a ")
                    assert told.endswith(", not a directory; move or remove it")
        except HoraeError as error:
            refusal = str(error)
        else:
            refusal = ""
        assert not refusal or (not PARTS[part] and str(ground.root / ".horae") in refusal), shape
        remove(path)
        if aside.exists():
            aside.rename(path)
    async with engine(ground, clock) as here:
        await look(here)
        assert here.app.facts().problems == ()
        assert (await last(here))[::2] == (Status.DONE, True)


NAMES: Final = {
    "not UTF-8": b"caf\xe9",
    "a newline": b"two\nlines",
    "like an option": b"-x",
    "255 bytes": b"y" * 255,
}
SUFFIXES: Final = {
    ".": ".org",
    "sub": ".org",
    ".agentd": ".yml",
    ".agentd/agents": ".yml",
    ".agentd/workflows": ".yml",
    "board": ".md",
    "board/tasks": ".md",
    "agents": ".org",
    ".horae": ".db",
    ".horae/runs": "",
}


@pytest.mark.parametrize("name", NAMES)
@story
async def test_no_name_in_any_place_ends_the_engine(ground: Ground, name: str) -> None:
    clock = HandClock(EIGHT)
    (ground.root / ".horae/runs").mkdir(parents=True)

    def put() -> None:
        for place, suffix in SUFFIXES.items():
            stem = NAMES[name][: 255 - len(suffix)]
            folder = ground.root / place
            (folder / os.fsdecode(stem + suffix.encode())).write_text("* A plan\n")
            (folder / os.fsdecode(stem[:200] + b"~")).mkdir()

    async with engine(ground, clock) as here:
        await look(here)
        whole = await standing(here)
        put()
        await look(here)
        assert whole <= await standing(here)
        assert (await last(here))[::2] == (Status.DONE, True)
        said = "\n".join(here.app.facts().problems)
        assert ("caf\\xe9.org: its name is not UTF-8; rename it" in said) == (name == "not UTF-8")
        assert said.isprintable() or said.replace("\n", "").isprintable()
    async with engine(ground, clock) as here:
        await look(here)
        assert whole <= await standing(here)
        assert (await last(here))[::2] == (Status.DONE, True)


# A process of its own, whose files change while it runs


LIVE: Final = {
    ".agentd": "FIFO",
    "sub": "loop",
    "board/tasks": "socket",
    "board/tasks/007-sow.md": "link outside",
    "crew.org": "FIFO",
    "horae.toml": "device",
    ".horae/runs": "regular",
}


def ticks(root: Path) -> int:
    seen = root / "seen"
    return seen.read_bytes().count(b"\n") if seen.exists() else 0


def until_it_ticks(root: Path, process: subprocess.Popen[bytes]) -> None:
    count = ticks(root)
    wait_until(lambda: ticks(root) > count or process.poll() is not None)
    assert process.poll() is None, log_of(root).read_text(errors="replace")


def started(root: Path) -> subprocess.Popen[bytes]:
    """Return an engine in a process of its own, in which something runs every second."""
    command = TICK.replace("* * * * *", "* * * * * *").replace("true", "sh -c 'echo >> seen'")
    (root / "tick.org").write_text(command)
    words = [sys.executable, "-m", "horae.cli.main", "up", str(root), "--log", "plain"]
    with log_of(root).open("wb") as log:
        return subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=log)


def log_of(root: Path) -> Path:
    return root.with_name(f"{root.name}.log")


def test_an_engine_whose_data_directory_is_exchanged_ends_and_keeps_what_it_knew(
    ground: Ground,
) -> None:
    data, old = ground.root / ".horae", ground.root / "old"
    process = started(ground.root)
    try:
        until_it_ticks(ground.root, process)
        data.rename(old)
        shutil.copytree(old, data, ignore=shutil.ignore_patterns("socket"))
        process.wait(timeout=30)
    finally:
        process.kill()
        process.wait()
    said = log_of(ground.root).read_text(errors="replace")
    assert process.returncode == Exit.VERIFICATION, said
    assert "Traceback" not in said
    assert f"`horae restore {data}/ledger-rescued.db`" in said
    assert (data / "ledger-rescued.db").exists()


def test_a_process_goes_on_whatever_appears_and_starts_again_with_all_of_it(
    ground: Ground,
) -> None:
    (ground.root / ".horae/runs").mkdir(parents=True)
    process = started(ground.root)
    try:
        until_it_ticks(ground.root, process)
        for name in (b"caf\xe9.yml", b"link.yml"):
            path = Path(os.fsdecode(os.fsencode(ground.root / ".agentd/workflows") + b"/" + name))
            path.symlink_to("nowhere")
        os.mkfifo(ground.root / ".git")
        for place, shape in LIVE.items():
            ground.put(place, shape)
            if place != ".horae/runs":
                until_it_ticks(ground.root, process)
                ground.restore(place)
        wait_until(
            lambda: ".horae/runs: is a file" in log_of(ground.root).read_text(errors="replace")
        )
        assert process.poll() is None
        ground.restore(".horae/runs")
        until_it_ticks(ground.root, process)
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=30)
        said = log_of(ground.root).read_text(errors="replace")
        assert process.returncode == 0, said
        assert "Traceback" not in said
        assert ".agentd: is a FIFO, not a directory" in said
        assert ".agentd/workflows/caf\\xe9.yml:1:1: its name is not UTF-8; rename it" in said
        assert ".horae/runs: is a file, not a directory; move or remove it" in said
        for place in ("board/tasks", "crew.org", ".agentd", "sub"):
            ground.put(place, LIVE[place])
        process = started(ground.root)
        until_it_ticks(ground.root, process)
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=30) == 0
    finally:
        process.kill()
        process.wait()
