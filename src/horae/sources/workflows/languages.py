"""The languages that blocks are written in: one row each, and the tools that run them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from horae.core.ports import RunError

if TYPE_CHECKING:
    from collections.abc import Iterable

AGENT: Final = "agent"  # a block that is a prompt

# What stands for something else in the commands below.
SOURCE: Final = "{source}"  # the block's file
SOURCES: Final = "{sources}"  # the block's file, and the files among its :deps of its own kind
PROGRAM: Final = "{program}"  # what a build makes
FLAGS: Final = "{flags}"  # what its packages ask for
PACKAGE: Final = "{package}"
MEBIBYTES: Final = "{mebibytes}"

_WORDS: Final = 1 << 16  # characters of what a tool said that are looked at
# What stands around the words that tell something: frames, versions, hints.
_NOISE: Final = re.compile(
    r"at |from |# |\[C\]|\S+:\d+: in |\S+:\d+ \+0x|main\.\w+\(|goroutine |stack traceback"
    r"|Node\.js v|Bun v|note: |hint: |exit status |error: compilation failed|\d+ errors?$"
    r"|Execution of \S+ aborted|(?:\d+ )?\||[{}\[\](),;]+$|\w+: (?:'[^']*'|\d+|[\[{]|undefined),?$"
)
_CARETS: Final = re.compile(r"[~^]+")
# It begins where a word does: from everywhere, a long line would take very long.
_PATH: Final = re.compile(r"(?<![^\s:'\"(])(?:file://)?[^\s:'\"(]*/(?=block\.)")
_NUMBERS: Final = re.compile(r"(\d+)(?:\.(\d+))?", re.ASCII)


@dataclass(frozen=True, slots=True)
class Tool:
    """A program that builds or runs blocks; `build` is empty if it runs them as they are."""

    program: str
    run: tuple[str, ...] = (SOURCE,)
    build: tuple[str, ...] = ()
    version: tuple[str, ...] = ("--version",)
    least: tuple[int, int] | None = None
    has: tuple[str, ...] = ()  # a command that fails if a package is not there
    asks: str = ""  # whose command that is, if not the tool's; it prints what a build needs
    heap: tuple[str, ...] | None = None  # limits memory, where a limit on addresses cannot


@dataclass(frozen=True, slots=True)
class Language:
    name: str
    suffix: str
    tools: tuple[Tool, ...]
    remedy: str  # when no tool is there
    aliases: tuple[str, ...] = ()
    entries: tuple[str, ...] = ()  # which file of a :dir is the program
    packages: str = ""  # what the names in :deps are; nothing: only files can be named


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
    """Tell whether a tool of this version will do.

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
    """Return a command with all that stands for something else put in.

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
    r"""Return the line of a tool's words that tells most, without the path of the block.

    It is the last one, or of a build the *first* that tells of an error; frames, versions and
    hints around it do not count, nor does a line of the block that is only shown.

    >>> telling("block.js:3\nthrow x\n^\n\nError: oops\n    at main (block.js:3)\nNode.js v20\n")
    'Error: oops'
    """
    lines: list[str] = []
    for line in (each.strip() for each in said[-_WORDS:].splitlines()):
        if _CARETS.fullmatch(line) and lines:
            lines.pop()  # the line that they point at
        elif line:
            lines.append(line)
    sayings = [each for each in lines if not _NOISE.match(each)] or lines or [""]
    wrong = [each for each in sayings if "error" in each.lower()] if first else []
    return _PATH.sub("", (wrong or sayings)[0 if first else -1])
