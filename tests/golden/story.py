"""What a story can do, each thing with its record: call a command, ask a route, look at files."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import sqlite3
import stat
import subprocess
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any

import httpx

from golden.plain import HIDDEN, SAID, SENTENCE, WORDS, Plain
from golden.product import PROGRAMS, Terminal, engine_at, route_of, settle, versions
from waiting import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from calling import Ending
    from golden.product import Engine

NOW = datetime(2026, 6, 5, 12, tzinfo=UTC)  # a Friday
PLANS = Path(__file__).parent / "plans"
# What a plan may call; other programs of the machine are not there.
TOOLS = (
    *("awk", "basename", "cat", "cp", "date", "df", "env", "echo", "false", "git", "grep", "head"),
    *(
        "ls",
        "mkdir",
        "rm",
        "sed",
        "sh",
        "sleep",
        "sort",
        "tail",
        "tar",
        "tee",
        "touch",
        "true",
        "tr",
    ),
    *("uniq", "wc"),
)
# Lines of written files and of formats that are for people.
COMMENT = re.compile(r"^\s*(?:#(?!\+|!)|//)|^(?:Description=|DESCRIPTION:|COMMENT:)")


class Story:
    """One temporary plan root, and the record of all that is done with it."""

    def __init__(self, place: Path, terminal: Terminal, *, talk: bool = False) -> None:
        self.terminal = terminal
        self._talk = talk
        self.place = place
        self.root = place / "plan"
        self.side = place / "side"
        for each in (self.root, self.side):
            each.mkdir(parents=True)
        self.now = NOW
        self.engine: Engine | None = None
        self._settled = -1  # the newest event when all was done
        self.busy = 0  # runs that go on meanwhile
        self.home = Path(os.environ["HOME"])
        top = str(place.parent)
        places = {
            str(self.root): "<root>",
            str(place): "<place>",
            str(self.home): "<home>",
            top: "<top>",
        }
        self._plain = Plain(places | versions())
        self._surfaces: dict[str, Any] = {"cli": [], "http": [], "files": []}
        self._seen: dict[Path, Any] = {}
        self._wording: dict[tuple[str, str], str] = {}

    # What a story begins with

    def plan(self, name: str) -> None:
        """Copy a frozen example into the root."""
        shutil.copytree(PLANS / name, self.root, dirs_exist_ok=True)
        for path in sorted(self.root.rglob("*.py.txt")):
            path.rename(path.with_suffix(""))
        for path in sorted(self.root.rglob("*")):
            self._seen[path] = self._file(path, "as it came")

    def write(self, name: str, text: str) -> Path:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    def git(self, *args: str) -> str:
        """Call git in the root."""
        command = ["git", "-c", "init.defaultBranch=main", *args]
        return subprocess.run(
            command, cwd=self.root, capture_output=True, check=True, text=True
        ).stdout

    # Commands and requests, as they are typed

    async def type(self, script: str) -> None:
        """Do what the lines of a script say: commands, and requests as `POST /path {"a": 1}`.

        What a command prints after `!` is a format of its own, and recorded line by line.
        """
        for line in filter(None, map(str.strip, script.splitlines())):
            began = monotonic()
            await self._type(line)
            if self._talk:
                print(f"{monotonic() - began:6.2f} s  {line}", flush=True)

    async def _type(self, line: str) -> None:
        method, _, rest = line.partition(" ")
        if method in {"GET", "POST", "PUT", "DELETE", "HEAD", "PATCH"}:
            path, _, body = rest.partition(" ")
            data = json.loads(body) if body else {} if method in {"POST", "PUT"} else None
            await self.ask(method, path, data)
            return
        words = shlex.split(line.removeprefix("!"))
        env = dict(word.split("=", 1) for word in words if _is_setting(word, words))
        await self.call(*words[len(env) :], env=env, text=line.startswith("!"))

    async def call(
        self,
        *words: str,
        at: Path | None = None,
        stdin: str = "",
        env: Mapping[str, str] | None = None,
        text: bool = False,
    ) -> Ending:
        """Call a program.

        With *text* stdout that is no JSON is a format of its own, and recorded line by line;
        else it is for people.
        """
        now = self.now if self.engine is None else self.engine.now
        ending = await self.terminal.call(
            [*words], at=at or self.root, now=now, stdin=stdin, env=env or {}
        )
        shown = shlex.join(words)
        if env:
            shown = " ".join([*(f"{name}={value}" for name, value in env.items()), shown])
        record: dict[str, Any] = {"call": self._plain.text(shown), "exit": ending.code}
        where = record["call"]
        if "doctor" in words and ending.code in {
            0,
            1,
        }:  # how the machine is; only what is looked at
            record |= {"exit": "<exit>", "out": sorted({row["check"] for row in ending.data})}
        elif ending.out:
            record["out"] = self._out(ending.out, where, is_format=text)
        errors, said = _errors(ending.err)
        if errors:
            record["errors"] = self._structure(errors, where)
        for line in said:
            self._say(where, "stderr", line)
        _hide(record, HIDDEN)
        self._surfaces["cli"].append(record)
        await self._settle()
        assert "Traceback" not in ending.err, ending.err
        return ending

    def _out(self, out: str, where: str, *, is_format: bool) -> Any:
        if is_format:
            return self._lines(out, where)
        try:
            return self._structure(json.loads(out), where)
        except ValueError:
            pass
        try:
            return {
                "jsonl": [self._structure(json.loads(line), where) for line in out.splitlines()]
            }
        except ValueError:
            self._say(where, "stdout", out)
            return WORDS

    # Routes

    @asynccontextmanager
    async def up(self) -> AsyncIterator[Engine]:
        """Let an engine run from this story's moment on."""
        async with engine_at(self.root, self.side, self.now) as here:
            self.engine = here
            try:
                await settle(here)
                yield here
            finally:
                self.now = here.now
                self.engine = None

    async def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        headers: Mapping[str, str] | None = None,
        port: bool = False,
    ) -> httpx.Response:
        """Ask the engine over its socket or its port; bytes go as they are, the rest as JSON."""
        assert self.engine is not None
        content = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        kind = {} if content is None else {"Content-Type": "application/json"}
        sent = {"User-Agent": "golden", **kind, **(headers or {})}
        if port:
            async with httpx.AsyncClient(base_url=self.engine.url, trust_env=False) as client:
                answer = await client.request(method, path, content=content, headers=sent)
        else:
            answer = await self.engine.client.request(method, path, content=content, headers=sent)
        where = self._plain.text(f"{method} {path}{' on the port' if port else ''}")
        record: dict[str, Any] = {"call": where, "route": route_of(method, path)}
        record["status"] = answer.status_code
        if body is not None:
            shown = body.decode(errors="replace") if isinstance(body, bytes) else body
            record["sent"] = self._plain.data(shown)
        if headers:
            record["headers"] = self._plain.data(dict(headers))
        kind = record["type"] = answer.headers.get("content-type")
        told = ("location", "etag", "allow", "www-authenticate", "retry-after", "set-cookie")
        if found := {name: answer.headers[name] for name in told if name in answer.headers}:
            record["told"] = self._plain.data(found)
        if path == "/openapi.json" and answer.status_code == 200:
            record["out"] = "(in openapi.json)"
            self._surfaces["openapi"] = self._structure(answer.json(), where)
        elif "json" in (kind or "") and answer.content:
            record["out"] = self._structure(answer.json(), where)
        elif "html" in (kind or ""):
            record["out"] = WORDS
        elif answer.text:
            record["out"] = self._lines(answer.text, where)
        _hide(record, HIDDEN)
        self._surfaces["http"].append(record)
        if method not in {"GET", "HEAD"}:
            await self._settle()
        return answer

    async def _settle(self) -> None:
        """Let the engine do all that a call has led to, so that the next one finds it done."""
        if self.engine is None:
            return
        newest = self.engine.app.ledger.newest_event
        if await newest() != self._settled:  # a look changes nothing
            await settle(self.engine, busy=self.busy)
            self._settled = await newest()

    async def stream(self, path: str, *, lines: int) -> None:
        """Record the first lines of an answer that may have no end."""
        assert self.engine is not None
        async with self.engine.client.stream("GET", path) as answer:
            found = []
            async for line in answer.aiter_lines():
                found.append(line)
                if len(found) == lines:
                    break
        where = self._plain.text(f"GET {path}")
        record: dict[str, Any] = {"call": where, "route": route_of("GET", path)}
        record |= {"status": answer.status_code, "type": answer.headers.get("content-type")}
        record["out"] = [self._event(line, where) for line in found]
        _hide(record, HIDDEN)
        self._surfaces["http"].append(record)

    def _event(self, line: str, where: str) -> Any:
        """Return a line of a stream; what is sent as data is JSON."""
        name, _, rest = line.partition(": ")
        if not rest.startswith("{"):
            return self._plain.text(line)
        return {name: self._structure(json.loads(rest), where)}

    async def running(self, count: int) -> None:
        """Return when so many runs have really begun."""
        engine = self.engine
        assert engine is not None

        async def have_begun() -> bool:
            return int((await engine.get("/api/v1/status"))["counts"]["running"]) >= count

        await until(have_begun)

    # Files

    def files(self, when: str, *below: str) -> None:
        """Record the files below places of this story that are new or changed, with their modes.

        Of what is in the data directory only names and modes count, and the tables of a ledger.
        """
        found: dict[str, Any] = {}
        for top in (self._at(name) for name in below):
            for path in [top, *sorted(top.rglob("*"))]:
                if ".git" not in path.parts and not _is_passing(path):
                    made = self._file(path, when)
                    if self._seen.get(path) != made:
                        found[self._plain.text(str(path))] = self._seen[path] = made
        gone = [path for path in self._seen if not path.exists()]
        for path in gone:
            found[self._plain.text(str(path))] = self._seen.pop(path) and None
        self._surfaces["files"].append({"when": when, "files": found})

    def _at(self, name: str) -> Path:
        return self.home if name == "home" else self.place / name

    def _file(self, path: Path, when: str) -> Any:
        mode = stat.filemode(path.lstat().st_mode)
        if not path.is_file():
            return mode
        raw = path.read_bytes()
        if raw.startswith(b"SQLite format 3"):
            return {"mode": mode, "tables": _tables(path)}
        if ".horae" in path.parts and path.suffix not in {".json", ".jsonl", ".org"}:
            return mode
        where, text = f"{when}: {self._plain.text(str(path))}", raw.decode(errors="replace")
        if path.suffix in {".json", ".jsonl"}:
            lines = [text] if path.suffix == ".json" else text.splitlines()
            data = [self._structure(json.loads(line), where) for line in lines]
            _hide(data, HIDDEN)
            return {"mode": mode, "data": data}
        return {"mode": mode, "text": self._lines(text, where)}

    def log(self, when: str) -> None:
        """Record who committed what, newest last."""
        lines = self.git(
            "log", "--reverse", "--format=%an <%ae> | %s", "--name-status"
        ).splitlines()
        found = [self._plain.text(line) for line in lines if line]
        self._surfaces["files"].append({"when": when, "commits": found})

    # What stands in a record

    def _lines(self, text: str, where: str) -> list[str]:
        """Return the lines of a format; of a comment only that it is there."""
        found = ["(lines end with CR LF)"] if "\r\n" in text else []
        if text.startswith("BEGIN:VCALENDAR"):
            text = re.sub(r"\r\n ", "", text)  # a long line is folded
        for line in text.splitlines():
            if COMMENT.match(line) and not line.startswith("# TYPE "):
                self._say(where, "comment", line)
                found += [WORDS] if found[-1:] != [WORDS] else []
            else:
                found.append(self._plain.text(line))
        return found if len(found) <= 400 else [*found[:400], f"and {len(found) - 400} more"]

    def _structure(self, value: Any, where: str) -> Any:
        return self._split(self._plain.data(value), where, "")

    def _split(self, value: Any, where: str, key: str) -> Any:
        """Return data without what it says to people."""
        match value:
            case str() if key in SAID or (key in SENTENCE and " " in value):
                self._say(where, key, value)
                return WORDS
            case list():
                return [self._split(each, where, key) for each in value]
            case dict():
                return {name: self._split(each, where, name) for name, each in value.items()}
        return value

    def _say(self, where: str, key: str, text: str) -> None:
        self._wording.setdefault((key, self._plain.text(text)), where)

    def records(self) -> dict[str, str]:
        """Return the record of each surface by its name."""
        found: dict[str, Any] = {name: each for name, each in self._surfaces.items() if each}
        found["wording"] = [
            {"at": where, key: text.splitlines() if "\n" in text else text}
            for (key, text), where in self._wording.items()
        ]
        return {name: pretty(each) + "\n" for name, each in found.items()}


def pretty(value: Any, indent: str = "") -> str:
    """Return JSON with sorted keys; what fits on a line stands on one."""
    line = json.dumps(value, sort_keys=True, ensure_ascii=False)
    if len(line) + len(indent) <= 110 or not isinstance(value, list | dict):
        return line
    deeper = indent + " "
    if isinstance(value, list):
        return "[\n" + ",\n".join(deeper + pretty(each, deeper) for each in value) + f"\n{indent}]"
    parts = (
        f"{deeper}{json.dumps(key, ensure_ascii=False)}: {pretty(value[key], deeper)}"
        for key in sorted(value)
    )
    return "{\n" + ",\n".join(parts) + f"\n{indent}}}"


def _is_setting(word: str, words: list[str]) -> bool:
    """Tell whether a word sets a variable: it stands before the program."""
    programs = [place for place, each in enumerate(words) if each in PROGRAMS]
    return words.index(word) < programs[0]


def _errors(err: str) -> tuple[list[Any], list[str]]:
    """Return what stderr says to programs, and its other lines."""
    errors, said = [], []
    for line in err.splitlines():
        try:
            data = json.loads(line)
        except ValueError:
            data = None
        if isinstance(data, dict) and "error" in data:
            errors.append(data["error"])
        elif line.strip():
            said.append(line)
    return errors, said


def _hide(value: Any, names: frozenset[str]) -> None:
    """Replace what the machine decides."""
    if isinstance(value, list):
        for each in value:
            _hide(each, names)
    elif isinstance(value, dict):
        for name, each in value.items():
            is_disk = name == "disk" and (each is None or "free" in each)  # null: not yet measured
            if is_disk or (name in names and isinstance(each, int | float)):
                value[name] = f"<{name}>"
            else:
                _hide(each, names)


def _is_passing(path: Path) -> bool:
    """Tell whether a file is there or not as it happens: of SQLite, of a socket, of Python."""
    return path.name.endswith(("-wal", "-shm")) or path.is_socket() or "__pycache__" in path.parts


def _tables(path: Path) -> dict[str, list[str]]:
    """Return the tables of a ledger with their columns."""
    with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as book:
        names = book.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")
        return {
            name: [column[1] for column in book.execute(f"PRAGMA table_info('{name}')")]
            for (name,) in names.fetchall()
        }
