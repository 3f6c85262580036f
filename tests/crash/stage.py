"""A home that a test can wreck: a plan, `horae up` in a process of its own, and what is left of it."""

from __future__ import annotations

import os
import resource
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from commands import Command, start_command
from process.stage import is_zombie, pids, proc
from waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

HERE: Final = Path(__file__).parent
LIFE: Final = HERE / "life.py"
EFFECT: Final = HERE / "effect.py"
PATIENCE: Final = 30.0  # seconds for what takes half of one on a machine that does nothing else
NAP: Final = 0.02  # seconds between two looks
_LAUNCHER: Final = b"horae.process.launcher"


class Remains(NamedTuple):
    """A process of a life: its launcher, a supervisor, or what a run started."""

    pid: int
    parent: int
    started: int
    engine: int | None  # whose launcher or supervisor it is
    life: str  # in which life it was started, if a run did

    def is_there(self) -> bool:
        """Tell whether it is still alive."""
        stat = proc(self.pid, "stat").rpartition(b") ")[2].split()
        return len(stat) > 19 and int(stat[19]) == self.started and not is_zombie(self.pid)


class Home:
    """A plan root, its data directory, and the file where runs leave their effects."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.plans = place / "plans"
        self.plans.mkdir()
        self.data = place / "data"
        self.effects = place / "effects"
        self.lives: list[Life] = []

    def write(self, *entries: str) -> None:
        """Let the plan be these entries."""
        (self.plans / "plan.org").write_text("".join(entries))

    def effect(self, seconds: float = 0, code: int = 0) -> str:
        """Return a command that leaves its effect, takes so long, and ends with a code."""
        words = (sys.executable, "-I", "-S", EFFECT, self.effects, seconds, code)
        return " ".join(map(str, words))

    def up(
        self,
        *,
        die: tuple[str, int] | None = None,
        settings: dict[str, str] | None = None,
        descriptors: int | None = None,
        program: Sequence[str] = (),
        is_plain: bool = False,
    ) -> Life:
        """Start the engine under some settings, and with no more than so many descriptors.

        With *die* it kills itself when it comes to a step the so-many-th time. A *plain* one is
        `horae` itself, and can execute itself again. With a *program* that is started, as a person
        would, in place of a fork of one that is loaded.
        """
        name = str(len(self.lives) + 1)
        aimed = (
            () if die is None else ("--die", die[0], str(die[1]), str(self.place / f"died-{name}"))
        )
        command = (LIFE, *aimed, self.plans, "--data", self.data, "--log", "plain")
        environment = {**os.environ, "CRASH_LIFE": name, "TZ": "UTC", **(settings or {})}
        said = self.place / f"said-{name}"
        with (
            Path(os.devnull).open() as nothing,
            said.with_suffix(".out").open("wb") as output,
            said.open("wb") as errors,
        ):
            files = (nothing.fileno(), output.fileno(), errors.fileno())
            if program:
                process: Command = subprocess.Popen(
                    [*program, "up", *map(str, command[1 + len(aimed) :])],
                    stdin=nothing,
                    stdout=output,
                    stderr=errors,
                    env=environment,
                    start_new_session=True,
                )
            else:
                words = ("horae", "up", *command[1:]) if is_plain else command
                process = start_command(words, files=files, environ=environment)
        if descriptors is not None:
            resource.prlimit(process.pid, resource.RLIMIT_NOFILE, (descriptors, descriptors))
        self.lives.append(Life(self, process, said, name))
        return self.lives[-1]

    def end(self) -> None:
        """End every life that goes on, and whatever else a test left of one."""
        for life in self.lives:
            if life.process.poll() is None:
                life.kill()
        for each in snapshot(self.data):
            if each.life:
                with suppress(ProcessLookupError):
                    os.kill(each.pid, signal.SIGKILL)

    def rows(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        """Return what the ledger answers, read without the help of anything that is tested."""
        uri = f"{(self.data / 'ledger.db').as_uri()}?mode=ro"
        with closing(sqlite3.connect(uri, uri=True, timeout=PATIENCE)) as connection:
            return connection.execute(query, values).fetchall()

    def count(self, condition: str = "1") -> int:
        """Return how many receipts are so; none as long as there is no ledger."""
        try:
            return int(self.rows(f"SELECT count(*) FROM receipt WHERE {condition}")[0][0])
        except sqlite3.OperationalError:
            return 0

    def said(self) -> str:
        """Return all that any life told of itself, and against others."""
        return "".join(life.said() for life in self.lives)


class Life:
    """One engine, from its start to its end, and all that it started."""

    def __init__(self, home: Home, process: Command, said: Path, name: str) -> None:
        self.home = home
        self.process = process
        self.name = name
        self._said = said

    @property
    def pid(self) -> int:
        """The number of the engine's process."""
        return self.process.pid

    def said(self) -> str:
        """Return what it told of itself, and against others."""
        return self._said.read_text()

    def shown(self) -> str:
        """Return what it showed of what happened."""
        return self._said.with_suffix(".out").read_text()

    def died_over(self) -> str:
        """Return over what it killed itself."""
        return (self.home.place / f"died-{self.name}").read_text()

    def begun(self) -> Life:
        """Return when the engine runs the plans."""
        self.until(lambda: "running the plans" in self.said())
        return self

    def until(self, condition: Callable[[], object], *, within: float = PATIENCE) -> None:
        """Return when something holds, while the engine is alive."""

        def look() -> object:
            if not (found := condition()):
                code = self.process.poll()
                assert code is None, f"it ended with {code}: {self.said()}"
            return found

        wait_until(look, within=within, said=self.said)

    def kill(self) -> None:
        """Kill the engine, and nothing else."""
        self.process.kill()
        self.process.wait()

    def stop(self, *, within: float = PATIENCE) -> int:
        """Ask it to end, and return its exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.ended(within=within)

    def ended(self, *, within: float = PATIENCE) -> int:
        """Return the exit code when it has ended by itself."""
        try:
            return self.process.wait(within)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"it did not end within {within} s: {self.said()}") from None

    def launcher(self) -> Remains | None:
        """Return its launcher, if it has one now."""
        return next((each for each in self._servants() if each.parent == self.pid), None)

    def supervisors(self) -> list[Remains]:
        """Return the supervisors of its runs."""
        return [each for each in self._servants() if each.parent != self.pid]

    def remains(self) -> list[Remains]:
        """Return all that lives and was started in this life, but not the engine itself."""
        found = snapshot(self.home.data)
        return [each for each in found if self.pid == each.engine or each.life == self.name]

    def _servants(self) -> list[Remains]:
        return [each for each in snapshot(self.home.data) if each.engine == self.pid]


def snapshot(data: Path) -> list[Remains]:
    """Return the living processes that belong to a data directory, engines not included."""
    found = []
    mark = b"HORAE_DATA=" + os.fsencode(data) + b"\0"
    for pid in pids():
        stat = proc(pid, "stat").rpartition(b") ")[2].split()
        if len(stat) < 20 or stat[0] == b"Z":
            continue
        parent, started = int(stat[1]), int(stat[19])
        environment, words = proc(pid, "environ"), proc(pid, "cmdline").split(b"\0")
        if mark in environment:
            life = environment.partition(b"CRASH_LIFE=")[2].partition(b"\0")[0].decode()
            found.append(Remains(pid, parent, started, None, life))
        elif os.fsencode(data) in words and any(_LAUNCHER in word for word in words):
            found.append(Remains(pid, parent, started, int(words[-3]), ""))
    return found


def below(roots: Iterable[Remains], among: Iterable[Remains]) -> list[Remains]:
    """Return all descendants of some processes."""
    everyone, level, found = list(among), {each.pid for each in roots}, []
    while level:
        children = [each for each in everyone if each.parent in level]
        found += children
        level = {each.pid for each in children}
    return found


def until_gone(those: Callable[[], Iterable[Remains]], *, within: float) -> float:
    """Return how long it took until none of those was alive; fail if it took too long.

    What counts is the time that looking and napping would have taken on a machine that does
    nothing else: as much as this process is kept waiting for a processor, so are those.
    """
    start, worked, naps = time.monotonic(), time.thread_time(), 0
    while left := [each for each in those() if each.is_there()]:
        counted = time.thread_time() - worked + naps * NAP
        assert counted < within, f"alive after {within} s: {left}"
        assert time.monotonic() - start < PATIENCE, f"alive after {PATIENCE} s: {left}"
        time.sleep(NAP)
        naps += 1
    return time.monotonic() - start


def entry(title: str, command: str, *, schedule: str = "* * * * * *", **props: str) -> str:
    """Return a headline that calls a command every second, or as it is said."""
    lines = [f":{name.upper()}: {value}" for name, value in props.items()]
    drawer = [f":SCHEDULE: {schedule}", f":COMMAND: {command}", ":ENV: CRASH_LIFE", *lines]
    return "\n".join([f"* {title}", ":PROPERTIES:", *drawer, ":END:", ""])
