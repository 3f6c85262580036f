"""The languages of blocks: one row each, their tools, the build cache."""

from __future__ import annotations

import asyncio
import logging
import os
import re
from contextlib import suppress
from dataclasses import dataclass, replace
from hashlib import sha256
from json import dumps
from pathlib import Path
from shutil import which
from typing import TYPE_CHECKING, Final, NamedTuple

from horae.core.ports import Clock, Ended, RunError
from horae.core.receipt import Status, shown
from horae.core.text import size_text
from horae.process.logs import clear
from horae.sources.workflows.record import MIB, LiveSteps, log_of, put, write_files

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from horae.org.world import Component
    from horae.process.processes import Spec

AGENT: Final = "agent"  # the language of a block that is a prompt

# Variables in the commands below.
SOURCE: Final = "{source}"  # the block's file
SOURCES: Final = "{sources}"  # the block's file, and the files in its :deps of the same kind
PROGRAM: Final = "{program}"  # the output of a build
FLAGS: Final = "{flags}"  # flags of its packages
PACKAGE: Final = "{package}"
MEBIBYTES: Final = "{mebibytes}"

_WORDS: Final = 1 << 16  # characters of a tool's output that are searched
# Text around the relevant words: frames, versions, hints.
_NOISE: Final = re.compile(
    r"at |from |# |\[C\]|\S+:\d+: in |\S+:\d+ \+0x|main\.\w+\(|goroutine |stack traceback"
    r"|Node\.js v|Bun v|note: |hint: |exit status |error: compilation failed|\d+ errors?$"
    r"|Execution of \S+ aborted|(?:\d+ )?\||[{}\[\](),;]+$|\w+: (?:'[^']*'|\d+|[\[{]|undefined),?$"
)
_CARETS: Final = re.compile(r"[~^]+")
# Anchored at a word: anywhere else, a long line would take very long.
_PATH: Final = re.compile(r"(?<![^\s:'\"(])(?:file://)?[^\s:'\"(]*/(?=block\.)")
_NUMBERS: Final = re.compile(r"(\d+)(?:\.(\d+))?", re.ASCII)


@dataclass(frozen=True, slots=True)
class Tool:
    """A program that builds or runs blocks; `build` is empty if it runs them directly."""

    program: str
    run: tuple[str, ...] = (SOURCE,)
    build: tuple[str, ...] = ()
    version: tuple[str, ...] = ("--version",)
    least: tuple[int, int] | None = None
    has: tuple[str, ...] = ()  # a command that fails if a package is missing
    asks: str = ""  # the program of that command, if not the tool; it prints the flags of a build
    heap: tuple[str, ...] | None = None  # limits memory, where a limit on addresses cannot


@dataclass(frozen=True, slots=True)
class Language:
    name: str
    suffix: str
    tools: tuple[Tool, ...]
    remedy: str  # if no tool is found
    aliases: tuple[str, ...] = ()
    entries: tuple[str, ...] = ()  # the files of a :dir that may be the program
    packages: str = ""  # the meaning of names in :deps; empty: only files can be named


@dataclass(frozen=True, slots=True)
class InstalledTool:
    language: Language
    tool: Tool
    path: str
    version: str = ""


_PYTHON_HAS: Final = (
    "-c",
    "import importlib.util as u, sys; sys.exit(u.find_spec(sys.argv[1]) is None)",
    PACKAGE,
)
_NODE: Final = ("-e", "require.resolve(process.argv[1])", PACKAGE)
_HEAP: Final = (f"--max-old-space-size={MEBIBYTES}",)
_STRIP: Final = ("--experimental-strip-types", "--no-warnings", SOURCE)
_BUN: Final = Tool("bun", run=("run", SOURCE), has=_NODE, heap=())
_DENO: Final = Tool("deno", run=("run", "--allow-all", "--no-remote", SOURCE), heap=())
_IN_PATH: Final = "programs in the PATH"
_MODULES: Final = "packages in a node_modules beside the plan or above it"
_LIBRARIES: Final = "libraries that pkg-config finds"


def _shell(program: str) -> Tool:
    return Tool(program, version=(), has=("-c", 'command -v "$1"', "has", PACKAGE))


def _compilers(names: str, *options: str) -> tuple[Tool, ...]:
    build = ("-O1", *options, "-o", PROGRAM, SOURCES, FLAGS, "-lm")
    has = ("--cflags", "--libs", PACKAGE)
    return tuple(Tool(name, build=build, has=has, asks="pkg-config") for name in names.split())


def _lua(program: str) -> Tool:
    return Tool(program, version=("-v",), has=("-e", "require(arg[1]) os.exit()", "-", PACKAGE))


# fmt: off
LANGUAGES: Final = (
    Language("python", ".py", (Tool("python3", has=_PYTHON_HAS), Tool("python", has=_PYTHON_HAS)),
             "install Python 3 (https://www.python.org)", ("py", "python3"),
             ("__main__.py", "main.py"), "modules that Python can import"),
    Language("sh", ".sh", (_shell("sh"),), "install a POSIX shell, or correct the PATH",
             ("shell",), ("main.sh",), _IN_PATH),
    Language("bash", ".bash", (_shell("bash"),), "install bash, or write the block for sh",
             (), ("main.bash", "main.sh"), _IN_PATH),
    Language("js", ".js", (Tool("node", has=_NODE, heap=_HEAP), _BUN),
             "install Node.js (https://nodejs.org)", ("javascript", "node"),
             ("index.js", "main.js"), _MODULES),
    Language("ts", ".ts",
             (_BUN, _DENO, Tool("tsx", has=_NODE, heap=()),
              Tool("node", run=_STRIP, least=(22, 6), has=_NODE, heap=_HEAP)),
             "install Node.js 22.6 or newer, Bun, Deno or tsx", ("typescript",),
             ("index.ts", "main.ts"), _MODULES),
    Language("rust", ".rs",
             (Tool("rustc", build=("--edition=2021", "-Copt-level=1", "-o", PROGRAM, SOURCE)),),
             "install Rust (https://rustup.rs)", ("rs",), ("main.rs", "src/main.rs")),
    Language("go", ".go",
             (Tool("go", build=("build", "-o", PROGRAM, SOURCES), version=("version",), heap=()),),
             "install Go (https://go.dev)", ("golang",), ("main.go",)),
    Language("c", ".c", _compilers("cc gcc clang"), "install a C compiler, such as gcc or clang",
             (), ("main.c",), _LIBRARIES),
    Language("c++", ".cpp", _compilers("c++ g++ clang++", "-std=c++17"),
             "install a C++ compiler, such as g++ or clang++", ("cpp", "cxx"),
             ("main.cpp", "main.cc"), _LIBRARIES),
    Language("ruby", ".rb", (Tool("ruby", has=("-e", "require ARGV[0]", PACKAGE)),),
             "install Ruby (https://www.ruby-lang.org)", ("rb",), ("main.rb",),
             "libraries that Ruby can require"),
    Language("perl", ".pl",
             (Tool("perl", has=("-e", "eval qq{require $ARGV[0]; 1} or die $@", PACKAGE)),),
             "install Perl (https://www.perl.org)", ("pl",), ("main.pl",),
             "modules that Perl can require"),
    Language("lua", ".lua", tuple(map(_lua, ("lua", "lua5.4", "lua5.3", "luajit"))),
             "install Lua (https://www.lua.org)", (), ("main.lua",),
             "modules that Lua can require"),
    Language("java", ".java", (Tool("java", least=(11, 0), heap=(f"-Xmx{MEBIBYTES}m",)),),
             "install a JDK, 11 or newer", (), ("Main.java",)),
    Language(AGENT, ".txt", (), "an agent block needs an agent"),
)
# fmt: on

_BY_NAME: Final = {name: row for row in LANGUAGES for name in (row.name, *row.aliases)}


def language_of(name: str) -> Language:
    found = _BY_NAME.get(name.lower())
    if found is None:
        known = ", ".join(row.name for row in LANGUAGES)
        raise RunError(f"blocks in {name!r} cannot be run; supported languages: {known}")
    return found


def missing(language: Language, path: str, had: Iterable[str] = ()) -> str:
    names = [
        tool.program if tool.least is None else f"{tool.program} {tool.least[0]}.{tool.least[1]}"
        for tool in language.tools
    ]
    wanted = names[0] if len(names) == 1 else f"{', '.join(names[:-1])} or {names[-1]}"
    seen = f"only {', '.join(had)}" if had else "not found"
    return f"a {language.name} block needs {wanted}: {seen} in the PATH ({path}); {language.remedy}"


def is_new_enough(tool: Tool, version: str) -> bool:
    """Return whether a tool of this version is supported.

    >>> is_new_enough(Tool("node", least=(22, 6)), "v20.20.2")
    False
    """
    numbers = _NUMBERS.search(version)
    if tool.least is None or numbers is None:
        return tool.least is None
    return (int(numbers[1]), int(numbers[2] or 0)) >= tool.least


def filled(
    command: Iterable[str], *, sources: Iterable[str] = (), flags: Iterable[str] = (), **words: str
) -> tuple[str, ...]:
    """Return a command with its variables replaced.

    >>> filled(("-o", PROGRAM, SOURCES), sources=("a.c", "b.c"), program="a")
    ('-o', 'a', 'a.c', 'b.c')
    """
    several = {SOURCES: tuple(sources), FLAGS: tuple(flags)}
    whole: list[str] = []
    for word in command:
        if word in several:
            whole += several[word]
            continue
        for name, value in words.items():
            word = word.replace("{" + name + "}", value)  # noqa: PLW2901
        whole.append(word)
    return tuple(whole)


def telling(said: str, *, first: bool = False) -> str:
    r"""Return the most relevant line of a tool's output, without the path of the block.

    It is the last one, or with *first* the first error of a build; frames, versions, hints and
    quoted lines of the block are skipped.

    >>> telling("block.js:3\nthrow x\n^\n\nError: oops\n    at main (block.js:3)\nNode.js v20\n")
    'Error: oops'
    """
    lines: list[str] = []
    for line in (each.strip() for each in said[-_WORDS:].splitlines()):
        if _CARETS.fullmatch(line) and lines:
            lines.pop()  # the quoted line
        elif line:
            lines.append(line)
    sayings = [each for each in lines if not _NOISE.match(each)] or lines or [""]
    wrong = [each for each in sayings if "error" in each.lower()] if first else []
    return _PATH.sub("", (wrong or sayings)[0 if first else -1])


log = logging.getLogger(__name__)

ROOM: Final = 512 * MIB  # bytes of cached programs
LARGEST: Final = 16 * MIB  # bytes of the files of one block
MOST_FILES: Final = 1000
LOG: Final = 64 << 10  # bytes of a tool's output
_DAY: Final = 86400.0  # seconds after which the version of a tool is read again
_LINE: Final = re.compile(r"\bblock\.\w+(?:\", line |: line |: ?| line )(\d+)", re.ASCII)
_COLOURS: Final = re.compile(r"\x1b\[[0-9;]*m")


class BuildError(RunError):
    """A block that its tool rejects; `said` is the output of the tool."""

    def __init__(self, reason: str, said: bytes = b"", *, line: int | None = None) -> None:
        self.said = said
        self.line = line  # in the block
        super().__init__(reason)


class ToolSettings(NamedTuple):
    live: LiveSteps
    spec: Spec
    root: Path  # files outside are never read
    tools: dict[str, InstalledTool]  # the tools found for this run, by language

    async def about(self, *argv: str, cwd: Path | None = None) -> tuple[Ended, bytes]:
        directory = self.spec.directory
        clear(directory)
        ended, _ = await self.live.run(replace(self.spec, argv=argv, cwd=cwd or self.spec.cwd))
        if ended.outcome in {Status.KILLED, Status.INTERRUPTED}:
            raise RunError(self.live.reason or f"{argv[0]}: {ended.reason}")
        return ended, log_of(directory, LOG)

    def inside(self, name: str) -> Path:
        """Return the path in a plan; it must be inside the plan root."""
        path = (self.spec.cwd / name).resolve()
        if not path.is_relative_to(self.root.resolve()):
            raise RunError(
                f"{name}: is outside the plan root {self.root}; keep it next to the plan"
            )
        return path


class ReadyBlock(NamedTuple):
    found: InstalledTool
    main: str  # a name in `files`, or the path of a program
    files: Mapping[str, bytes]
    digest: str  # of its language and all its files
    directory: Path | None  # its working directory; None: a scratch directory


class BuildCache:
    def __init__(
        self, cache: Path, clock: Clock, environ: Mapping[str, str], *, room: int = ROOM
    ) -> None:
        self._cache = cache
        self._clock = clock
        self._path = environ.get("PATH", os.defpath)
        self._room = room
        self._versions: dict[str, str] = {}
        self._locks: dict[str, asyncio.Lock] = {}  # so that nothing is built twice at a time
        self.environment = {
            "GOCACHE": str(cache / "go"),  # the caches of the tools are next to ours
            "GOFLAGS": "-mod=mod",
            "GOPROXY": "off",  # nothing is downloaded
            "GOTOOLCHAIN": "local",
            "GO111MODULE": "auto",
            "NO_COLOR": "1",  # colour codes would separate a file from its line
            "PYTHONDONTWRITEBYTECODE": "1",
        }

    async def ready(
        self, component: Component, language: Language, program: Path, ask: ToolSettings
    ) -> ReadyBlock:
        block = component.block
        assert block is not None, "it was looked at before"
        found = await self._tool(language, ask)
        beside, packages = _split(filter(None, component.deps), ask)
        flags = await self._packages(found, packages, ask)
        where = None if component.dir is None else ask.inside(component.dir)
        if where is not None and not where.is_dir():
            raise RunError(f":dir {component.dir}: no such directory next to the plan")
        if where is not None and not block.body.strip():
            names = [name for name in language.entries if (where / name).is_file()]
            if not names:
                wanted = " or ".join(language.entries) or "runnable file"
                raise RunError(f"{where}: contains no {wanted}, and the block is empty")
            main, files = str(where / names[0]), {}
            made_of = _tree(where)
        else:
            main, files = f"block{language.suffix}", dict(beside)
            text = block.body.replace("\r\n", "\n")  # saved on Windows
            files[main] = text.encode(errors="surrogateescape")
            made_of = files
        sums = sorted((name, sha256(data).hexdigest()) for name, data in made_of.items())
        how = [word for word in found.tool.build if word != PROGRAM]
        whole = [language.name, found.path, found.version, how, flags, sums]
        digest = sha256(dumps(whole).encode()).hexdigest()
        made = ReadyBlock(found, main, files, digest, where)
        if not found.tool.build:
            return made
        kept = self._cache / "blocks" / digest
        async with self._locks.setdefault(digest, asyncio.Lock()):
            try:
                os.link(kept, program)
                os.utime(kept)  # the cache drops the least recently used
            except OSError:  # not in the cache, or on another disk
                await _build(made, flags, program, ask)
                self._keep(program, kept)
        return made._replace(main=str(program), files={})

    async def _tool(self, language: Language, ask: ToolSettings) -> InstalledTool:
        if language.name in ask.tools:
            return ask.tools[language.name]
        had = []
        for tool in language.tools:
            path = which(tool.program, path=self._path)
            if path is None:
                continue
            version = await self._version(tool, path, ask)
            if is_new_enough(tool, version):
                found = InstalledTool(language, tool, path, version)
                return ask.tools.setdefault(language.name, found)
            had.append(f"{tool.program} {version}")
        raise RunError(missing(language, self._path, had))

    async def _version(self, tool: Tool, path: str, ask: ToolSettings) -> str:
        if not tool.version:
            return ""
        stamp = os.stat(path)
        name = sha256(f"{path}\0{stamp.st_mtime_ns}\0{stamp.st_size}".encode()).hexdigest()
        async with self._locks.setdefault(path, asyncio.Lock()):
            kept, known = self._cache / "tools" / name, self._versions.get(name)
            with suppress(OSError, UnicodeDecodeError):  # then the tool is called
                age = self._clock.now().timestamp() - kept.stat().st_mtime
                known = known or (kept.read_text() if 0 <= age < _DAY else None)
            if known is None:
                ended, _ = await ask.about(path, *tool.version)
                if ended.outcome is not Status.DONE:
                    raise RunError(f"{path} did not report its version: {ended.reason}")
                known = ended.reason
                try:
                    kept.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                    put(kept, known.encode())
                except OSError as error:
                    log.warning("cannot write to the build cache: %s", error)
            self._versions[name] = known
            return known

    async def _packages(
        self, found: InstalledTool, names: Iterable[str], ask: ToolSettings
    ) -> list[str]:
        flags: list[str] = []
        tool, language = found.tool, found.language
        for name in names:
            if not tool.has:
                raise RunError(
                    f":deps {name}: no such file next to the plan, and horae does not fetch"
                    f" packages for {language.name}; name files, or use :dir"
                )
            program = found.path
            if tool.asks:
                program = which(tool.asks, path=self._path) or ""
                if not program:
                    raise RunError(
                        f":deps {name}: {tool.asks} is needed to find it; install {tool.asks}"
                    )
            ended, said = await ask.about(program, *filled(tool.has, package=name))
            if ended.outcome is Status.FAILED:
                raise BuildError(
                    f":deps {name}: not found; for {language.name} it must be a file next to the"
                    f" plan, or among the {language.packages}; horae does not install packages",
                    said,
                )
            flags += said.decode(errors="replace").split() if tool.asks else []
        return flags

    def _keep(self, program: Path, kept: Path) -> None:
        try:
            kept.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor = os.open(program, os.O_RDONLY | os.O_CLOEXEC)
            try:
                os.fchmod(descriptor, 0o500)
                os.fsync(descriptor)  # a link to a truncated file would be trusted forever
            finally:
                os.close(descriptor)
            os.link(program, kept)
            found = [(each.stat(), each) for each in kept.parent.iterdir()]
            total = sum(stat.st_size for stat, _ in found)
            for stat, each in sorted(found, key=lambda one: one[0].st_mtime):
                if total <= self._room:
                    return
                os.remove(each)
                total -= stat.st_size
        except OSError as error:  # including a concurrent process that has cached the same
            log.debug("cannot keep %s in the build cache: %s", kept.name, error)


async def _build(block: ReadyBlock, flags: Sequence[str], program: Path, ask: ToolSettings) -> None:
    found, files = block.found, block.files
    work = ask.spec.directory.with_name(ask.spec.directory.name + ".src")
    try:
        os.mkdir(work, 0o700)
        write_files(work, files)
        same = [name for name in files if name.endswith(found.language.suffix)]
        command = filled(
            found.tool.build,
            source=str(work / block.main),
            sources=[str(work / name) for name in same] or [block.main],
            flags=flags,
            program=str(program),
        )
        ended, said = await ask.about(found.path, *command, cwd=work)
    finally:
        clear(work)
    if ended.outcome is Status.FAILED:
        plain = _COLOURS.sub("", said.decode(errors="replace"))
        reason = f"does not compile: {shown(telling(plain, first=True)) or ended.reason}"
        raise BuildError(reason, said, line=line_in(plain))


def line_in(said: str, *, last: bool = False) -> int | None:
    """Return the line of the block in a tool's output.

    >>> line_in('  File "/runs/7/s0/block.py", line 3, in <module>')
    3
    """
    found = [int(each[1]) for each in _LINE.finditer(said)]
    return found[-1 if last else 0] if found else None


def _split(names: Iterable[str], ask: ToolSettings) -> tuple[dict[str, bytes], list[str]]:
    files: dict[str, Path] = {}
    packages = []
    for name in names:
        path = ask.inside(name) if ".." not in name.split("/") else None
        if path is not None and path.is_file() and not name.startswith("/"):
            files[name] = path
        elif "/" in name or path is None:
            raise RunError(f":deps {name}: no such file next to the plan")
        else:
            packages.append(name)
    return _contents(files), packages


def _tree(directory: Path) -> dict[str, bytes]:
    files: dict[str, Path] = {}
    for where, directories, names in os.walk(directory):
        directories[:] = sorted(each for each in directories if not each.startswith("."))
        for path in (Path(where, name) for name in sorted(names)):
            if path.is_file() and not path.is_symlink():
                files[str(path.relative_to(directory))] = path
        if len(files) > MOST_FILES:
            raise RunError(f"{directory}: contains more than {MOST_FILES} files")
    return _contents(files)


def _contents(files: Mapping[str, Path]) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    room = LARGEST
    for name, path in files.items():
        try:
            with path.open("rb") as file:
                found[name] = file.read(room + 1)
        except OSError as error:
            raise RunError(f"{path}: {error.strerror}") from error
        room -= len(found[name])
        if room < 0:
            raise RunError(f"{path}: the files of a block must not exceed {size_text(LARGEST)}")
    return found
