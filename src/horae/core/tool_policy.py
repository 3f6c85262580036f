"""Tools that an agent may use: a mode, and patterns such as `Bash(git *)`.

An allow pattern matches one plain command, never a second one after it. A deny pattern is searched
for in every part of a command; a deny list prevents mistakes, not malice.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Final

from horae.errors import Exit, HoraeError

MOST: Final = 200  # patterns of a policy
LONGEST: Final = 1000  # characters of a pattern

# Other names of tools, and ours.
BASH, READ, WRITE, EDIT, GREP = "Bash", "Read", "Write", "Edit", "Grep"
FETCH, GIT = "WebFetch", "Git"
TOOLS: Final = (BASH, READ, WRITE, EDIT, GREP, FETCH, GIT)
_ALIASES: Final = {
    **{name.lower(): name for name in TOOLS},
    "shell": BASH,
    "search": GREP,
    "fetch": FETCH,
    "web_fetch": FETCH,
    "commit": GIT,
}
_PATHS: Final = frozenset({READ, WRITE, EDIT, GREP})  # tools whose argument is a path

_PATTERN: Final = re.compile(r"([A-Za-z_][\w.:-]{0,99})(?:\((.*)\))?", re.ASCII | re.DOTALL)
_SPELLED: Final = re.compile(r"[^\s,()]+(?:\((?:[^()]|\([^()]*\))*\))?|[()]")
# Shell syntax outside of quotes, and inside double quotes.
_PLAIN: Final = re.compile(
    r"""(?:[^\s\x00-\x1f;&|<>()`$\\"'#{}!~*?\[\]]++|[ \t]++|'[^'\x00-\x08\x0a-\x1f]*+'"""
    r"""|"[^"`$\\!\x00-\x08\x0a-\x1f]*+")*"""
)
# Wildcards, tildes and escapes change the words of a command, not the number of commands.
_HARMLESS: Final = re.compile(r"\\[^\x00-\x1f]|[~*?\[\]#]")
# An escape before a quote: shells and this parser may disagree.
_ESCAPED: Final = re.compile(r"""\\['"]""")
_DIVIDED: Final = re.compile(r"\$\(|[;&|()`{}\n\r]|([<>$])")
_ASSIGNED: Final = re.compile(r"(?:[A-Za-z_]\w*=\S*[ \t]+)+", re.ASCII)
_CALLERS: Final = frozenset(
    {"sudo", "doas", "env", "command", "builtin", "exec", "nohup", "time", "nice", "xargs", "!"}
    | {"if", "then", "else", "elif", "while", "until", "do", "eval"}
)
_ADDRESS: Final = re.compile(
    r"(https?)://([A-Za-z0-9.-]+|\[[0-9A-Fa-f:.]+\])(?::([0-9]{1,5}))?([/?#][!-~]*)?", re.ASCII
)
_DOTS: Final = re.compile(r"(?:^|[/\\])(?:\.|%2e){2}(?:[/\\?#]|$)|%2f|%5c", re.IGNORECASE)


class Mode(StrEnum):
    ALLOW_ALL = "allow_all"
    DENY_ALL = "deny_all"
    ALLOW_LIST = "allow_list"  # only listed tools may be used
    DENY_LIST = "deny_list"  # all but the listed tools may be used
    REQUIRE_APPROVAL = "require_approval"  # a user approves each run


class Answer(StrEnum):
    ALLOW = "allow"
    DENY = "deny"
    ASK = "ask"


class ToolPolicyError(HoraeError, code="tool_policy", exit_code=Exit.USAGE):
    def __init__(self, value: str, *, reason: str) -> None:
        self.value = value[:100]
        self.reason = reason
        super().__init__(f"tool policy: {self.value!r} {reason}")


@dataclass(frozen=True, slots=True)
class Pattern:
    tool: str
    argument: str | None = None

    def __str__(self) -> str:
        return self.tool if self.argument is None else f"{self.tool}({self.argument})"


@dataclass(frozen=True, slots=True)
class ToolPolicy:
    mode: Mode = Mode.ALLOW_ALL
    tools: tuple[Pattern, ...] = ()

    @property
    def is_open(self) -> bool:
        return self.mode is Mode.ALLOW_ALL or (self.mode is Mode.DENY_LIST and not self.tools)

    def names(self, tool: str) -> bool:
        listed = self.tools if self.mode is Mode.ALLOW_LIST else ()
        return any(pattern.tool == tool for pattern in listed)

    def data(self) -> dict[str, object]:
        if self.mode in {Mode.ALLOW_LIST, Mode.DENY_LIST}:
            return {"mode": self.mode.value, "tools": list(map(str, self.tools))}
        return {"mode": self.mode.value}


OPEN: Final = ToolPolicy()


def decide(policy: ToolPolicy, tool: str, argument: str = "") -> Answer:
    """Decide whether a tool may be used with an argument: a command, a path or an address.

    >>> only_git = policy_of(["Bash(git *)"])
    >>> [decide(only_git, "Bash", line).value for line in ("git log", "git log; rm -rf /")]
    ['allow', 'deny']
    """
    name = tool_name(tool)
    match policy.mode:
        case Mode.ALLOW_ALL:
            return Answer.ALLOW
        case Mode.DENY_ALL:
            return Answer.DENY
        case Mode.REQUIRE_APPROVAL:
            return Answer.ASK
        case Mode.ALLOW_LIST:
            is_listed = any(_allows(pattern, name, argument) for pattern in policy.tools)
            return Answer.ALLOW if is_listed else Answer.DENY
        case Mode.DENY_LIST:
            is_listed = any(_denies(pattern, name, argument) for pattern in policy.tools)
            return Answer.DENY if is_listed else Answer.ALLOW


def parse_policy(data: Mapping[str, object]) -> ToolPolicy:
    """Parse a policy; ToolPolicyError if it is not valid.

    >>> parse_policy({"mode": "allow_list", "tools": ["Bash", "WebFetch"]}).names("WebFetch")
    True
    """
    said = data.get("mode")
    if said is None:
        raise ToolPolicyError("mode", reason=f"is missing; write one of {', '.join(Mode)}")
    if not isinstance(said, str) or said not in set(Mode):
        raise ToolPolicyError(str(said), reason=f"is not a mode; write one of {', '.join(Mode)}")
    mode = Mode(said)
    if mode not in {Mode.ALLOW_LIST, Mode.DENY_LIST}:
        return ToolPolicy(mode)
    listed = data.get("tools")
    if not isinstance(listed, list | tuple) or not all(isinstance(each, str) for each in listed):
        raise ToolPolicyError(mode, reason="needs `tools`, a list such as [Read, Bash(git *)]")
    return ToolPolicy(mode, _patterns(listed))


def policy_of(words: Iterable[str]) -> ToolPolicy:
    """Return the policy of the words of `:TOOLS:`; patterns divided at blanks are joined.

    >>> str(policy_of(["git,", "Bash(npm", "test)"]).tools[1])
    'Bash(npm test)'
    """
    listed = _SPELLED.findall(" ".join(words))
    return ToolPolicy(Mode.ALLOW_LIST, _patterns(listed)) if listed else OPEN


def tool_name(name: str) -> str:
    """Return our name of a tool, in whatever case it is written.

    >>> tool_name("bash"), tool_name("search"), tool_name("mcp__wiki__read")
    ('Bash', 'Grep', 'mcp__wiki__read')
    """
    return _ALIASES.get(name.lower(), name)


def is_plain(command: str) -> bool:
    """Return whether a shell would read a command as one program and its arguments.

    >>> is_plain("git log --format='%h; %s'"), is_plain("git log; ls"), is_plain("echo $(ls)")
    (True, False, False)
    """
    return _PLAIN.fullmatch(_HARMLESS.sub("_", command)) is not None and not _ESCAPED.search(
        command
    )


def _patterns(listed: Iterable[str]) -> tuple[Pattern, ...]:
    found = tuple(map(parse_pattern, listed))
    if len(found) > MOST:
        raise ToolPolicyError(str(len(found)), reason=f"tools are too many; the limit is {MOST}")
    return found


@lru_cache(maxsize=1024)
def parse_pattern(text: str) -> Pattern:
    """Parse `Tool` or `Tool(pattern)`.

    >>> parse_pattern("bash( git log:* )")
    Pattern(tool='Bash', argument='git log *')
    >>> parse_pattern("Read(*)")
    Pattern(tool='Read', argument=None)
    """
    found = _PATTERN.fullmatch(text.strip()) if len(text) <= LONGEST else None
    if found is None:
        raise ToolPolicyError(text, reason="is not a tool; write Read, or Bash(git *)")
    name, argument = tool_name(found[1]), (found[2] or "").strip()
    if found[2] is not None and not argument:
        raise ToolPolicyError(text, reason="has empty parentheses; remove them")
    if argument in {"", "*"} or (name in _PATHS and argument == "**"):
        return Pattern(name)
    if name == BASH:
        argument = re.sub(r"[ \t]*:\*$", " *", argument)
    return Pattern(name, argument)


def _allows(pattern: Pattern, name: str, argument: str) -> bool:
    if pattern.tool != name or pattern.argument is None:
        return pattern.tool == name
    if name == BASH:
        command = argument.strip(" \t")
        is_told = command == pattern.argument and not command.endswith(" *")
        return is_told or (is_plain(command) and _fits(pattern.argument, command))
    if name in _PATHS:
        return _fits_path(pattern.argument, argument)
    return _fits_address(pattern.argument, argument) if name == FETCH else False


def _denies(pattern: Pattern, name: str, argument: str) -> bool:
    if pattern.tool != name or pattern.argument is None:
        return pattern.tool == name
    if name == BASH:
        whole = argument.strip(" \t")
        return any(_fits(pattern.argument, part) for part in (whole, *_parts(whole)))
    if name in _PATHS:
        # A path that may be outside of the working directory is denied.
        return _steps(argument) is None or _fits_path(pattern.argument, argument)
    if name == FETCH:
        return _ADDRESS.fullmatch(argument) is None or _fits_address(pattern.argument, argument)
    return True  # nothing is known about its argument


def _fits(pattern: str, command: str) -> bool:
    """Match a command with `p *`, `* s`, `* w *`, or word for word."""
    starts, ends = pattern.startswith("* "), pattern.endswith(" *")
    wanted = pattern.removeprefix("* ").removesuffix(" *").split()
    words, said = f" {' '.join(wanted)} ", f" {' '.join(command.split())} "
    if wanted in ([], ["*"]) or (starts and ends and words in said):
        return True
    if starts == ends:
        return said == words and not starts
    return said.startswith(words) if ends else said.endswith(words)


def _parts(command: str) -> Iterable[str]:
    """Yield the commands that a shell might run, quoted or not, without quotes and wrappers.

    >>> list(_parts("A=1 /bin/ls x && echo $(sudo 'rm' -rf /)"))
    ['ls x', 'echo', 'rm -rf /']
    """
    is_target = False  # whether the first word may be a file, or an unset variable
    for piece in filter(None, _DIVIDED.split(command.replace("\\\n", ""))):
        if piece in {"<", ">", "$"}:
            is_target = True
            continue
        words = _ASSIGNED.sub("", piece.strip() + " ").split()
        words = [re.sub(r"""['"\\]""", "", word) for word in words]
        for rest in (words, words[1:]) if is_target else (words,):
            if called := _called(rest):
                yield called
        is_target = is_target and not words


def _called(words: list[str]) -> str:
    left = list(words)
    while left and (left[0] in _CALLERS or left[0].startswith("-") or "=" in left[0]):
        del left[0]
    return " ".join([left[0].rpartition("/")[2], *left[1:]]) if left else ""


def _steps(path: str) -> list[str] | None:
    steps = [step for step in path.split("/") if step not in {"", "."}]
    is_elsewhere = path.startswith(("/", "~")) or ".." in steps or "\0" in path or "\\" in path
    return None if is_elsewhere else steps


def _fits_path(pattern: str, path: str) -> bool:
    """Match a path: `*` within one part, `**` over any number of them."""
    steps = _steps(path)
    # Of the wildcards of fnmatch only `*` counts.
    plain = pattern.replace("[", "[[]").replace("?", "[?]")
    wanted = [step for step in plain.split("/") if step not in {"", "."}]
    if steps is None or pattern.startswith(("/", "~")) or ".." in wanted:
        return False
    # The parts of the pattern that may come next.
    open_at = _after_stars(wanted, {0})
    for step in steps:
        reached = {at for at in open_at if at < len(wanted) and wanted[at] == "**"}
        reached |= {at + 1 for at in open_at if at < len(wanted) and fnmatchcase(step, wanted[at])}
        open_at = _after_stars(wanted, reached)
    return len(wanted) in open_at


def _after_stars(wanted: list[str], places: set[int]) -> set[int]:
    reached = set(places)
    for at, step in enumerate(wanted):
        if at in reached and step == "**":
            reached.add(at + 1)
    return reached


def _fits_address(pattern: str, address: str) -> bool:
    """Match an address with `domain:host`, `domain:*.host`, or a prefix that ends with `*`."""
    found = _ADDRESS.fullmatch(address)
    if found is None:
        return False
    host = found[2].lower().rstrip(".")
    if pattern.startswith("domain:"):
        wanted = pattern.removeprefix("domain:").strip().lower()
        is_below = wanted.startswith("*.") and host.endswith(wanted[1:])
        return host == wanted or is_below
    asked = _ADDRESS.fullmatch(pattern.removesuffix("*"))
    if asked is None or _DOTS.search(found[4] or ""):
        return False
    if (found[1], host, found[3]) != (asked[1], asked[2].lower().rstrip("."), asked[3]):
        return False
    path, wanted = found[4] or "/", asked[4] or ""
    return path.startswith(wanted or "/") if pattern.endswith("*") else path == (wanted or "/")
