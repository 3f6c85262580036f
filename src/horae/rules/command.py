"""What a headline calls: a program (`:COMMAND:`) or an address (`:POST:`).

A command is words, never a shell's line: nothing in it is expanded. Who needs a shell names
one, as in `sh -c '…'`.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from horae.errors import ScheduleError

if TYPE_CHECKING:
    from collections.abc import Mapping

LONGEST: Final = 64 * 1024  # characters of a command
_WEB: Final = re.compile(
    r"https?://(?:[\w.-]+|\[[0-9A-Fa-f:.]+\])(?::([0-9]{1,5}))?(?:[/?#][!-~]*)?", re.ASCII
)


class CommandError(ScheduleError):
    """A property that says what to call, and cannot be read."""

    code = "command"

    def __init__(self, key: str, value: str, *, reason: str) -> None:
        self.key = key
        self.value = value
        self.reason = reason
        super().__init__(f":{key}: {value[:60]}: {reason}")


@dataclass(frozen=True, slots=True)
class Call:
    """A program with its arguments, or an address; and the variables that it may see."""

    argv: tuple[str, ...] = ()
    address: str = ""
    variables: tuple[str, ...] = ()


def call_of(props: Mapping[str, str]) -> Call | None:
    """Return what a headline's properties call; None is nothing.

    >>> call_of({"COMMAND": "backup --to '/mnt/my disk'", "ENV": "AWS_PROFILE"})
    Call(argv=('backup', '--to', '/mnt/my disk'), address='', variables=('AWS_PROFILE',))
    """
    if "COMMAND" in props:
        return Call(_words(props["COMMAND"]), "", _variables(props.get("ENV", "")))
    if "POST" in props:
        return Call((), _address(props["POST"]))
    return None


def _words(text: str) -> tuple[str, ...]:
    """Return the words of a command."""
    if len(text) > LONGEST or "\0" in text:
        raise CommandError("COMMAND", text, reason=f"is longer than {LONGEST} or holds a NUL")
    try:
        words = tuple(shlex.split(text))
    except ValueError as error:
        reason = f"{str(error).lower()}; close the quote, or put a \\ before it"
        raise CommandError("COMMAND", text, reason=reason) from None
    if not words or not words[0].strip():
        raise CommandError("COMMAND", text, reason="names no program")
    return words


def _address(text: str) -> str:
    """Return an address that a message can be posted to."""
    fits = _WEB.fullmatch(text)
    if fits is None or int(fits[1] or 1) not in range(1, 65536):
        raise CommandError("POST", text, reason="write an address such as https://example.org/hook")
    return text


def _variables(text: str) -> tuple[str, ...]:
    """Return the names of variables."""
    names = tuple(text.replace(",", " ").split())
    bad = next((name for name in names if not name.isidentifier() or not name.isascii()), None)
    if bad is not None:
        raise CommandError("ENV", text, reason=f"{bad[:60]!r} is not the name of a variable")
    return names
