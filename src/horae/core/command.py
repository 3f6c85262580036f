"""Commands of headlines: a program (`:COMMAND:`) or an address (`:POST:`).

A command is a list of words and no shell reads it: nothing in it is expanded.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, NamedTuple

from horae.core.receipt import Reason, ReasonCode
from horae.core.secret import NAME, OWN, is_own, is_reference, names_in
from horae.errors import ScheduleError
from horae.org.document import read

LONGEST: Final = 64 * 1024  # characters of a command
# Words that mean more than themselves to a shell, unquoted and alone.
_OPERATOR: Final = re.compile(
    r"&&|\|[|&]?|;|&"
    r"|[0-9]*(?:>>|>\||<<<|<<|>&|<&|<>|&>>|&>|>|<)(?!=)(?![^\s>]*>)\S*"  # not >=1.0, not <a@b.c>
    r"|[^\s;]+;"  # `cd /srv; make`
)
_EXPANDED: Final = re.compile(r"\$[A-Za-z_{(]|`|\*|^~/")
_PATTERNS: Final = frozenset(  # these programs expand a pattern themselves
    {"-name", "-iname", "-path", "-ipath", "-wholename", "--include", "--exclude", "--glob", "-g"}
)
_CALLING: Final = frozenset({"-exec", "-execdir", "-ok", "-okdir"})  # a `;` ends their arguments
_QUOTED: Final = re.compile(r"""\\.|'[^']*'|"(?:\\.|[^"\\])*\"""", re.DOTALL)
_ASSIGNED: Final = re.compile(r"[A-Za-z_]\w*=\S*", re.ASCII)
_WORD: Final = re.compile(r"\S+")
_WEB: Final = re.compile(
    r"https?://(?:[\w.-]+|\[[0-9A-Fa-f:.]+\])(?::([0-9]{1,5}))?(?:[/?#][!-~]*)?", re.ASCII
)


class CommandError(ScheduleError, code="command"):
    def __init__(self, key: str, value: str, *, reason: str) -> None:
        self.key, self.value, self.reason = key, value, reason
        super().__init__(f":{key}: {value[:60]}: {reason}")


@dataclass(frozen=True, slots=True)
class CommandCall:
    """A program with its arguments, or an address; its variables are NAME or `NAME=${SECRET}`."""

    argv: tuple[str, ...] = ()
    address: str = ""
    variables: tuple[str, ...] = ()


class Unready(NamedTuple):
    reason: str
    fix: str  # empty if the reason says what to do
    code: ReasonCode = ReasonCode.NOT_READY

    def __str__(self) -> str:
        return f"{self.reason}; {self.fix}" if self.fix else self.reason

    def why(self) -> Reason:
        return Reason(self.code, str(self))


def call_of(props: Mapping[str, str]) -> CommandCall | None:
    """Return the command in a headline's properties, if there is one.

    >>> call_of({"COMMAND": "backup --to '/mnt/my disk'", "ENV": "AWS_PROFILE"})
    CommandCall(argv=('backup', '--to', '/mnt/my disk'), address='', variables=('AWS_PROFILE',))
    """
    if "COMMAND" in props:
        return CommandCall(_words(props["COMMAND"]), "", _variables(props.get("ENV", "")))
    if "POST" in props:
        return CommandCall((), _address(props["POST"]))
    return None


@lru_cache(maxsize=4096)  # most occurrences run the same text as the one before
def call_in(text: str) -> CommandCall | None:
    headlines = read(text).headlines
    return call_of(headlines[0].props) if headlines else None


def shell_syntax(text: str) -> tuple[int, str] | None:
    """Return the position and text of the first shell syntax outside quotes, if there is any.

    Quoted or escaped text is for the program, as in `sh -c '…'`.

    >>> shell_syntax("make all && ./install"), shell_syntax("sh -c 'make all && ./install'")
    ((9, '&&'), None)
    >>> shell_syntax("find . -name '*.log'"), shell_syntax("rm -f /tmp/*.log")
    (None, (6, '/tmp/*.log'))
    """
    # Quoted parts are masked with as many characters, so that positions stay.
    plain = _QUOTED.sub(lambda found: "_" * len(found[0]), text)
    words = list(_WORD.finditer(plain))
    calls = any(word[0] in _CALLING for word in words)
    before = ""
    for number, found in enumerate(words):
        word = found[0]
        is_operator = _OPERATOR.fullmatch(word) and not (calls and word == ";")
        is_pattern = before in _PATTERNS or word.startswith("-")
        is_expanded = _EXPANDED.search(word) and not is_pattern
        is_assigned = number == 0 and _ASSIGNED.fullmatch(word) and len(words) > 1
        if is_operator or is_expanded or is_assigned:
            return found.start(), text[found.start() : found.end()]
        before = word
    return None


def _words(text: str) -> tuple[str, ...]:
    if len(text) > LONGEST or "\0" in text:
        raise CommandError(
            "COMMAND", text, reason=f"is longer than {LONGEST} characters or contains a NUL"
        )
    try:
        words = tuple(shlex.split(text))
    except ValueError as error:
        reason = f"{str(error).lower()}; close the quote, or escape it with \\"
        raise CommandError("COMMAND", text, reason=reason) from None
    if not words or not words[0].strip():
        raise CommandError("COMMAND", text, reason="does not name a program")
    return words


def _address(text: str) -> str:
    fits = _WEB.fullmatch(text)
    if fits is None or int(fits[1] or 1) not in range(1, 65536):
        raise CommandError("POST", text, reason="write an address such as https://example.org/hook")
    return text


def _variables(text: str) -> tuple[str, ...]:
    asked = tuple(text.replace(",", " ").split())
    for each in asked:
        name, is_filled, secret = each.partition("=")
        if not NAME.fullmatch(name):
            reason = f"{name[:60]!r} is not the name of a variable"
        elif is_filled and not is_reference(secret):
            # The reason leaves the text after `=` out: it may be a secret.
            reason = f"{name[:60]}= must name a secret, as in {name[:60]}=${{NAME}}"
            raise CommandError("ENV", f"{name}=…", reason=reason)
        elif is_own(name) or any(map(is_own, names_in(secret))):
            reason = f"variables that begin with {OWN} are reserved for the engine"
        else:
            continue
        raise CommandError("ENV", name, reason=reason)
    return asked
