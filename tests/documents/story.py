"""Pages that tell a story: their files are written and their commands typed, one after the other.

How such a page is written:

- `<!-- story -->` begins a story, in a new and empty directory, on a machine set to UTC.
  What stands above the first one belongs to none.
- `<!-- file: crew/day.org -->` on the line above a fenced block: the block is saved there.
- `console`: a line with `$` is typed into bash, in a terminal that is 100 columns wide; the
  lines below it are the answer. In an answer `…` stands for any text, and alone on a line
  for any number of lines. Blanks at the ends of lines do not count. What only asks (status,
  history, a file, …) is asked again until it answers so, for a while.
- Where a command is not told what time it is (`--at`, `--from`), any moment, length of time, number of
  an entry, receipt, run or process, id, port and login link is as good as the one that is shown.
- A command that fails must be followed by `echo $?`.
- `horae up` goes on in the background; what it prints is not compared. `<!-- stop -->` ends it as
  Ctrl-C does, `<!-- kill -->` as a power cut does. At the end of the story it is ended.
- `sh`, `text` and others are not run.
"""

from __future__ import annotations

import os
import pty
import re
import shlex
import signal
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from commands import SCRIPTS, Command, is_healthy, start_command
from waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

PATIENCE: Final = 90.0  # seconds in which an answer may come
WIDTH: Final = 100
ANY: Final = "…"
_SHELL: Final = re.compile(r"[$`|&;<>(){}*?~#!\\]")  # what only a shell understands

_PART: Final = re.compile(
    r"^(?:<!-- (?P<order>story|stop|kill) -->|(?:<!-- file: (?P<file>\S+) -->\n+)?"
    r"(?P<fence>`{3,})(?P<language>[a-z]*)[^\n`]*\n(?P<text>.*?)^(?P=fence)[ ]*$)",
    re.MULTILINE | re.DOTALL,
)
_PROMPT: Final = re.compile(r"^\$ ", re.MULTILINE)
# What is another every time, and what stands for it.
_OTHER: Final = (
    (
        re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f-]{22}|\b[0-9a-f]{12}\b|\b\d{6}-[0-9a-f]{6}\b"),
        "<id>",
    ),
    (re.compile(r"\d{4}-\d\d-\d\d(?: [A-Z][a-z]{2})?(?:[ T]\d\d:\d\d(?::\d\d)?Z?)?"), "<moment>"),
    (re.compile(r"\b\d+(?:\.\d+)?(?:ms|[smhd])(?:\d+[smhd])*\b"), "<length>"),
    (re.compile(r"\b(entry|receipt|process|run) \d+"), r"\1 <number>"),
    (re.compile(r"horae-[0-9a-f]{24}(\.localhost)"), r"horae-<name>\1"),
    (re.compile(r"(127\.0\.0\.1|\.localhost):\d+"), r"\1:<port>"),
    (re.compile(r"/login/[\w…-]+"), "/login/<code>"),
    (re.compile(r"^\d+(?= +<moment>)"), "<number>"),
    (re.compile(r" {2,}"), "  "),  # a column is as wide as what stands in it
)
_TOLD: Final = re.compile(r"(?!horae trigger add).* --(at|from)[ =]")
_ASKS: Final = re.compile(
    r"horae (status|list|history|why|logs|next|agent (list|show)|board (list|summary)"
    r"|task (list|show|next|health)|trigger (list|show|history)|approval list|cluster nodes)\b"
    r"|(agent orchestrator|batty) (\S+ )?(list|get|show|dispatch|health|usage)\S*"
    r"|(cat|ls|tail|head|grep|git log|curl -s)\b"
)


class Part(NamedTuple):
    """What a page has next: an order to the runner, a file to write, or commands to type."""

    line: int
    kind: str  # "stop", "kill", "file", "console"
    name: str
    text: str


def stories_of(text: str) -> list[list[Part]]:
    """Return the stories of a page, each as its parts in order; no story, no list."""
    stories: list[list[Part]] = []
    for line, found in _parts(text):
        if found["order"] == "story":
            stories.append([])
        elif not stories:
            continue
        elif found["order"]:
            stories[-1].append(Part(line, found["order"], "", ""))
        elif found["file"]:
            stories[-1].append(Part(line, "file", found["file"], found["text"]))
        elif found["language"] == "console":
            stories[-1].append(Part(line, "console", "", found["text"]))
    return stories


def _parts(text: str) -> Iterator[tuple[int, re.Match[str]]]:
    for found in _PART.finditer(text):
        yield text.count("\n", 0, found.start()) + 1, found


def typed(text: str) -> list[tuple[str, list[str]]]:
    """Return the commands of a console block, each with the lines of its answer."""
    before, *rest = _PROMPT.split(text)
    assert before == "", "a console example begins with a command"
    found = []
    for each in rest:
        command, *answer = each.rstrip("\n").split("\n")
        while command.endswith("\\"):
            command = command[:-1] + answer.pop(0).removeprefix(">").lstrip()
        found.append((command, answer))
    return found


def programs_of(story: list[Part]) -> list[str]:
    """Return the programs that a story needs and that a machine may not have."""
    first = {
        command.split()[0]
        for part in story
        if part.kind == "console"
        for command, _ in typed(part.text)
    }
    return sorted(first & {"curl", "git"})


def agrees(shown: list[str], said: list[str]) -> bool:
    """Tell whether an answer is as it is shown."""
    pattern = "".join(
        r"(?:[^\n]*\n)*" if line == ANY else ".*".join(map(re.escape, line.split(ANY))) + r"\n"
        for line in shown
    )
    return re.fullmatch(pattern, "".join(f"{line}\n" for line in said)) is not None


def same_at_any_time(line: str) -> str:
    """Return a line with what is another every time replaced by what stands for it.

    >>> same_at_any_time("2026-06-06 Sat 08:00:05 UTC  Digest  receipt 12, done after 3s")
    '<moment> UTC  Digest  receipt <number>, done after <length>'
    """
    for pattern, word in _OTHER:
        line = pattern.sub(word, line)
    return line.rstrip()


def answers(command: str, shown: list[str], said: list[str]) -> bool:
    """Tell whether a command answers as it is shown, today or at any other time."""
    if agrees(shown, said):
        return True
    if _TOLD.match(command):
        return False
    return agrees([*map(same_at_any_time, shown)], [*map(same_at_any_time, said)])


@dataclass
class Teller:
    """One terminal in one directory, and perhaps an engine beside it."""

    home: Path
    here: Path = field(init=False)
    code: int = 0
    engines: list[Command] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.here = self.home / "work"
        self.here.mkdir()
        self.environ = _environ(self.home)

    def tell(self, story: list[Part], page: str) -> None:
        """Live through a story; what is not as it is shown raises."""
        try:
            for part in story:
                match part.kind:
                    case "file":
                        self.write(part.name, part.text)
                    case "stop":
                        self.end(signal.SIGINT)
                    case "kill":
                        self.end(signal.SIGKILL)
                    case _:
                        self.type_all(part, f"{page}:{part.line}")
        finally:
            self.end(signal.SIGINT)

    def write(self, name: str, text: str) -> None:
        path = self.here / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8", newline="")

    def type_all(self, part: Part, place: str) -> None:
        commands = typed(part.text)
        for (command, shown), after in zip(commands, [*commands[1:], ("", [])], strict=True):
            if re.match(r"(HORAE_\w+=\S+ )*horae up\b(?!.*--seconds)", command):
                self.start(command)
                continue
            said = self.ask(command, shown)
            assert answers(command, shown, said), _difference(place, command, shown, said)
            if after[0] != "echo $?":
                assert self.code == 0, f"{place}: $ {command}: exit code {self.code}"

    def ask(self, command: str, shown: list[str]) -> list[str]:
        """Return what a command answers; what only asks is asked again until it agrees."""
        until = time.monotonic() + PATIENCE
        said = self.type(command)
        while (
            _ASKS.match(command) and not answers(command, shown, said) and time.monotonic() < until
        ):
            time.sleep(0.3)
            said = self.type(command)
        return said

    def type(self, command: str) -> list[str]:
        """Return what a command prints on its terminal."""
        ours, theirs = pty.openpty()
        with ThreadPoolExecutor(1) as reader:
            said = reader.submit(_read_all, ours)
            try:
                self.code = self._run(command, theirs)
            finally:
                os.close(theirs)
        return [line.rstrip() for line in said.result().replace("\r", "").splitlines()]

    def _run(self, command: str, terminal: int) -> int:
        words = command.split()
        if words[0] in SCRIPTS and not _SHELL.search(command):
            with Path(os.devnull).open() as nothing:
                files = (nothing.fileno(), terminal, terminal)
                return start_command(
                    shlex.split(command), at=self.here, environ=self.environ, files=files
                ).wait(PATIENCE)
        where = self.home / "where"
        script = f'(exit {self.code})\n{command}\ncode=$?; pwd > "{where}"; exit $code'
        done = subprocess.run(
            ["bash", "-c", script],
            cwd=self.here,
            env=self.environ,
            stdin=subprocess.DEVNULL,
            stdout=terminal,
            stderr=terminal,
            check=False,
            timeout=PATIENCE,
        )
        self.here = Path(where.read_text().strip())
        return done.returncode

    def start(self, command: str) -> None:
        """Let an engine go on beside the terminal; return when it answers."""
        words = command.split()
        while "=" in words[0]:
            del words[0]  # a port of its own is set for every story
        with (self.home / "up.log").open("ab") as log, Path(os.devnull).open() as nothing:
            files = (nothing.fileno(), log.fileno(), log.fileno())
            engine = start_command(words, at=self.here, environ=self.environ, files=files)
        self.engines.append(engine)
        named = [word for word in words[2:] if not word.startswith("-")]
        data = self.here.joinpath(*named) / ".horae"
        wait_until(lambda: is_healthy(data) or engine.poll() is not None, within=PATIENCE)
        assert engine.poll() is None, (self.home / "up.log").read_text()

    def end(self, sign: signal.Signals) -> None:
        while self.engines:
            engine = self.engines.pop()
            engine.send_signal(sign)
            try:
                engine.wait(PATIENCE)
            finally:
                engine.kill()
                engine.wait()


def _environ(home: Path) -> dict[str, str]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    bin_path = Path(sys.executable).parent
    return {
        "PATH": f"{bin_path}{os.pathsep}{os.environ['PATH']}",
        "HOME": str(home),
        "TZ": "UTC",
        "TERM": "dumb",
        "LANG": "C.UTF-8",
        "COLUMNS": str(WIDTH),
        "LINES": "40",
        "HORAE_LISTEN": f"127.0.0.1:{port}",
        "PAGER": "cat",
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_AUTHOR_NAME": "wren",
        "GIT_AUTHOR_EMAIL": "wren@example.org",
        "GIT_COMMITTER_NAME": "wren",
        "GIT_COMMITTER_EMAIL": "wren@example.org",
        "GIT_CONFIG_COUNT": "2",
        "GIT_CONFIG_KEY_0": "init.defaultBranch",
        "GIT_CONFIG_VALUE_0": "main",
        "GIT_CONFIG_KEY_1": "advice.detachedHead",
        "GIT_CONFIG_VALUE_1": "false",
    }


def _read_all(terminal: int) -> str:
    """Return all that is written to a terminal until its last writer is gone."""
    chunks = []
    while True:
        try:
            chunk = os.read(terminal, 65536)
        except OSError:  # Linux says so when nobody can write any more
            break
        if not chunk:
            break
        chunks.append(chunk)
    os.close(terminal)
    return b"".join(chunks).decode()


def _difference(place: str, command: str, shown: list[str], said: list[str]) -> str:
    return "\n".join([f"{place}: $ {command}", "shown:", *shown, "said:", *said])
