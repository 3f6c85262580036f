"""A cluster that a test can wreck: one PostgreSQL, a plan in a bare repository, and real members."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import psycopg
import pytest

from cluster.wires import Exchange
from commands import Command, run_command, start_command
from process.stage import is_zombie, pids, proc
from store.server import server
from waiting import PATIENCE, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from cluster.wires import Wire

HERE: Final = Path(__file__).parent
EFFECT: Final = HERE / "effect.py"
HASTY: Final = HERE / "hasty.py"
HORAE: Final = Path(sys.executable).with_name("horae")
LEASE: Final = 3  # seconds
KNOWN: Final = ("PATH", "HOME", "PYTHONPATH")  # of our own environment

SETTINGS: Final = """
zone = "UTC"
[git]
local = ["{origin}"]
[cluster]
lease = "{lease}s"
patience = "20s"
runs = 8
[watch]
poll = "1s"
[gate]
slots = 24
[run]
drain = "2s"
"""

CREW: Final = """
[crew]
def = "crew/crew.org"
stagger = "0s"
[keeper]
continuous = true
breather = "1s"
"""


class Stage:
    """A database, an origin, and the members that were ever started here."""

    def __init__(self, place: Path, *, lease: int = LEASE, name: str = "") -> None:
        found = server()
        if found.problem:
            pytest.skip(found.problem)
        self.place = place
        self.origin = place / "origin.git"
        self.service = place / "service"  # where a person edits the plan
        self.effects = place / "effects"
        self.members: dict[str, Node] = {}
        self.lease = lease
        self.exchange = Exchange()
        self._connection: psycopg.Connection[Any] | None = None  # a new one costs 5 ms of CPU
        self.name = name or f"c{os.getpid()}_{time.monotonic_ns()}"
        if not name:  # else there is one
            self.do(f"CREATE DATABASE {self.name}", database="postgres")
        self._settings = SETTINGS.format(origin=self.origin, lease=lease)
        git(place, "init", "--bare", "--quiet", "--initial-branch=main", str(self.origin))
        git(place, "clone", "--quiet", str(self.origin), str(self.service))
        self.write({}, message="Begin")

    # The plan

    def write(self, files: Mapping[str, str], *, message: str = "Plan", more: str = "") -> None:
        """Let these files be in the plan; *more* is added to its settings."""
        self._settings += more
        for name, text in {"horae.toml": self._settings, **files}.items():
            path = self.service / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        git(self.service, "checkout", "--quiet", "-B", "main")
        git(self.service, "add", "--all")
        git(self.service, "commit", "--quiet", "--allow-empty", "--message", message)
        git(self.service, "push", "--quiet", "origin", "main")

    def crew(
        self, agents: Mapping[str, str], files: Mapping[str, str], *, day: str, host: str = ""
    ) -> None:
        """Let these agents, each with its command, tick a second after each other, by one day."""
        drawer = f":LIFECYCLE: day.org\n{f':HOST: {host}' + chr(10) if host else ''}"
        manifest = "".join(
            f"* {name}\n:PROPERTIES:\n:DEF: {name}.org\n{drawer}:END:\n" for name in agents
        )
        defined = {
            f"crew/{name}.org": f"* {name} :agent:\n:PROPERTIES:\n:ID: {name}\n:RUNNER: command\n"
            f":COMMAND: {command}\n:ENV: CLUSTER_NODE\n:END:\n** System prompt\nWork.\n"
            for name, command in agents.items()
        }
        known = {"crew/crew.org": manifest, "crew/day.org": day}
        self.write({**known, **defined, **files}, more=CREW)

    def effect(self, whose: str, seconds: float = 0, code: int = 0) -> str:
        """Return a command that leaves its effect, takes so long, and ends with a code."""
        words = (sys.executable, "-I", "-S", EFFECT, self.effects, whose, seconds, code)
        return " ".join(map(str, words))

    def finish(self, *whose: str) -> None:
        """Let runs end now, however long they were to take."""
        for each in whose:
            self.effects.with_name(f"{self.effects.name}.{each}.end").touch()

    def happened(self) -> list[Effect]:
        """Return what the runs left."""
        if not self.effects.exists():
            return []
        return [Effect(line.split()) for line in self.effects.read_text().splitlines()]

    # The members

    def member(
        self,
        name: str,
        kind: str = "up",
        *,
        settings: Mapping[str, str] | None = None,
        url: str | None = None,
        port: int = 0,
        is_forked: bool = True,
    ) -> Node:
        """Start a member: its own process, data directory, working copy and wire.

        One that is not *forked* from a program that is loaded can execute itself again.
        """
        known = self.members.get(name)
        wire = self.exchange.wire(server().socket) if known is None else known.wire
        port = port or (free_port() if known is None else known.port)
        place = self.place / name
        root = place / "root"
        if known is None:
            place.mkdir()
            git(place, "clone", "--quiet", str(self.origin), str(root))
        environment = {
            **{each: os.environ[each] for each in KNOWN if each in os.environ},
            "TZ": "UTC",
            "CLUSTER_NODE": name,
            "HORAE_STORE": url or self.url(wire),
            "HORAE_CLUSTER_NAME": name,
            "HORAE_LISTEN": f"127.0.0.1:{port}",
            **(settings or {}),
        }
        said = place / f"said-{time.monotonic_ns()}"
        command = (HASTY, *kind.split(), root, "--data", place / "data", "--log", "plain")
        with (
            Path(os.devnull).open() as nothing,
            said.with_suffix(".out").open("wb") as output,
            said.open("wb") as errors,
        ):
            files = (nothing.fileno(), output.fileno(), errors.fileno())
            if is_forked:
                process = start_command(command, files=files, environ=environment)
            else:
                process = subprocess.Popen(
                    [sys.executable, *map(str, command)],
                    stdin=nothing,
                    stdout=output,
                    stderr=errors,
                    env=environment,
                    start_new_session=True,
                )
        node = Node(self, name, process, said=said, wire=wire, port=port)
        self.members[name] = node
        return node

    def url(self, wire: Wire | None = None, *, user: str = "postgres", more: str = "") -> str:
        """Return where the database is, past the wire or through it."""
        if wire is None:
            folder = Path(server().socket).parent
            return f"postgresql://{user}@/{self.name}?host={folder}{more}"
        return f"postgresql://{user}@127.0.0.1:{wire.port}/{self.name}?sslmode=disable{more}"

    # The database

    def do(self, statement: str, *values: object, database: str = "") -> list[tuple[Any, ...]]:
        """Return what the database answers, read without the help of anything that is tested."""
        if database:
            url = self.url().replace(f"/{self.name}?", f"/{database}?")
            with closing(_connected(url)) as connection:
                return _answer(connection, statement, values)
        if self._connection is not None:
            with suppress(psycopg.OperationalError):  # it was ended, like the server perhaps
                return _answer(self._connection, statement, values)
            self._connection.close()
        self._connection = _connected(self.url())
        return _answer(self._connection, statement, values)

    def count(self, condition: str = "true") -> int:
        """Return how many receipts are so; none as long as there is no ledger."""
        try:
            return int(self.do(f"SELECT count(*) FROM filed WHERE {condition}")[0][0])
        except psycopg.errors.UndefinedTable:
            return 0

    def leader(self) -> str:
        """Return who leads; nobody, if the lease is over."""
        try:
            found = self.do("SELECT holder FROM lease WHERE until > clock_timestamp()")
        except psycopg.errors.UndefinedTable:
            return ""
        return str(found[0][0]) if found else ""

    def open_runs(self) -> list[str]:
        """Return the runs that go on, as the ledger has it."""
        query = "SELECT number::text FROM run WHERE ended_at IS NULL"
        return sorted(row[0] for row in self.do(query))

    def living_runs(self) -> list[str]:
        """Return the runs that go on by the process table; one that is there twice, twice."""
        return sorted(runs_of({node.data for node in self.members.values()}))

    def until(self, condition: Callable[[], object], *, within: float = PATIENCE) -> None:
        """Return when something holds."""
        wait_until(condition, within=within, said=self.said)

    def said(self) -> str:
        """Return all that the members told of themselves, and how things stand."""
        told = [f"-- {each.name}\n{each.said()}" for each in self.members.values()]
        with suppress(psycopg.Error):
            told += map(str, self.do("SELECT name, generation, until, is_reaped FROM member"))
            told += map(str, self.do("SELECT * FROM lease"))
            told += map(str, self.do("SELECT * FROM event ORDER BY number DESC LIMIT 30"))
        return "\n".join(told)

    def close(self) -> None:
        """End all that goes on."""
        for node in self.members.values():
            node.kill()
        self.exchange.end()
        if self._connection is not None:
            self._connection.close()
        with suppress(psycopg.Error):
            self.do(f"DROP DATABASE IF EXISTS {self.name} WITH (FORCE)", database="postgres")


class Effect:
    """The line that a run left."""

    def __init__(self, words: list[str]) -> None:
        self.what, self.whose, self.entry, self.key, self.attempt, self.run = words[:6]
        self.node, self.pid, self.company = words[6:]

    def __repr__(self) -> str:
        return " ".join(map(str, vars(self).values()))


class Node:
    """One member, in a process of its own."""

    def __init__(
        self,
        stage: Stage,
        name: str,
        process: Command,
        *,
        said: Path,
        wire: Wire,
        port: int,
    ) -> None:
        self.stage = stage
        self.name = name
        self.process = process
        self.wire = wire
        self.port = port
        self.root = stage.place / name / "root"
        self.data = stage.place / name / "data"
        self._said = said

    def said(self) -> str:
        """Return what it told of itself."""
        return self._said.read_text()

    def logged(self) -> list[str]:
        """Return what it told of the ledger, line by line."""
        lines = self._said.with_suffix(".out").read_text().splitlines()
        return [line for line in lines if not line.startswith("    ")]

    @property
    def is_up(self) -> bool:
        """Whether its process is there."""
        return self.process.poll() is None

    def joined(self) -> Node:
        """Return when it has joined."""

        def is_there() -> bool:
            assert self.is_up, self.said()
            with suppress(psycopg.errors.UndefinedTable):
                query = "SELECT 1 FROM member WHERE name = %s AND until > clock_timestamp()"
                return bool(self.stage.do(query, self.name)) and " joined " in self.said()
            return False

        self.stage.until(is_there)
        return self

    def send(self, what: signal.Signals) -> None:
        """Send a signal to its engine alone."""
        os.kill(self.process.pid, what)

    def kill(self) -> None:
        """Kill its engine, and nothing else."""
        if self.is_up:
            self.process.kill()
            self.process.wait()

    def stop(self, *, within: float = PATIENCE) -> int:
        """Ask it to end, and return its exit code."""
        self.send(signal.SIGTERM)
        try:
            return self.process.wait(within)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"it did not end within {within} s: {self.said()}") from None

    def ended(self, *, within: float = PATIENCE) -> int:
        """Return the exit code when it has ended by itself."""
        return self.process.wait(within)

    def children(self) -> list[int]:
        """Return what runs of this member started and is alive."""
        mark = f"HORAE_DATA={self.data}\0".encode()
        return [pid for pid in pids() if mark in proc(pid, "environ") and not is_zombie(pid)]

    def living(self) -> list[str]:
        """Return the number of each run of this member whose command is alive."""
        return runs_of({self.data})

    def ask(
        self, path: str, *, method: str = "GET", body: bytes | None = None, accept: str = "*/*"
    ) -> tuple[int, bytes]:
        """Return what this member answers to a request with the token."""
        from http.client import HTTPConnection

        with closing(HTTPConnection("127.0.0.1", self.port, timeout=30)) as connection:
            token = (self.data / "token").read_text().strip()
            headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
            headers["Accept"] = accept
            connection.request(method, path, body, headers)
            answer = connection.getresponse()
            return answer.status, answer.read()


def entry(title: str, command: str, *, schedule: str = "* * * * * *", **props: str) -> str:
    """Return a headline that calls a command every second, or as it is said."""
    lines = [f":{name.upper().replace('_', '-')}: {value}" for name, value in props.items()]
    drawer = [f":SCHEDULE: {schedule}", f":COMMAND: {command}", ":ENV: CLUSTER_NODE", *lines]
    return "\n".join([f"* {title}", ":PROPERTIES:", *drawer, ":END:", ""])


def horae(stage: Stage, *words: str, **environment: str) -> tuple[int, str]:
    """Return the exit code of a command, and all that it says."""
    known = {each: os.environ[each] for each in KNOWN if each in os.environ}
    variables = {**known, "TZ": "UTC", "HORAE_STORE": stage.url(), **environment}
    done = run_command("horae", *words, at=stage.place, environ=variables, limit=PATIENCE)
    return done.code, re.sub(r"\s+", " ", done.out + done.err)


def git(place: Path, *words: str) -> str:
    """Return what git says to a person."""
    who = ("-c", "user.name=Test", "-c", "user.email=test@localhost")
    done = subprocess.run(
        ["git", *who, *words], cwd=place, check=True, capture_output=True, timeout=PATIENCE
    )
    return done.stdout.decode()


def runs_of(data: set[Path]) -> list[str]:
    """Return the number of each run of these data directories whose command is alive."""
    marks = tuple(f"\0HORAE_DATA={each}\0".encode() for each in data)
    told = {pid: b"\0" + proc(pid, "environ") for pid in pids()}
    return [
        found[1].decode()
        for pid, known in told.items()
        if any(mark in known for mark in marks)
        and (found := re.search(rb"\0HORAE_RUN=([^\0]*)", known))
        and not is_zombie(pid)
    ]


def _connected(url: str) -> psycopg.Connection[Any]:
    connection = psycopg.connect(url, autocommit=True, connect_timeout=10)
    connection.execute("SET search_path TO horae")
    return connection


def _answer(
    connection: psycopg.Connection[Any], statement: str, values: tuple[object, ...]
) -> list[tuple[Any, ...]]:
    cursor = connection.execute(statement.encode(), values or None)
    return cursor.fetchall() if cursor.description else []


def free_port() -> int:
    """Return a port that nobody listens on."""
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
