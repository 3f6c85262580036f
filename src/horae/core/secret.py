"""Secrets by name: `${NAME}` in text; `file:PATH`, `cmd:WORDS` or `env:NAME` in the settings.

A value that came with a request is in a file of the data directory, and the ledger names it as
`${secrets/FILE}`; other names have no slash.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

FOLDER: Final = "secrets"  # in the data directory: values that came with a request
WEBHOOK: Final = "webhook-"  # prefix of the file with a webhook's secret
WEBHOOK_SECRETS: Final = ("secret", "old_secret")  # while one is replaced, both are valid
NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
OWN: Final = "HORAE_"  # prefix of names reserved for the engine
_NAMED: Final = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")
_KEPT: Final = re.compile(r"\$\{secrets/([A-Za-z0-9._-]{1,120})\}")
# What may be a secret: a variable with such a name, or a password in an address.
_SHORTEST: Final = 8  # a shorter value may be an ordinary word
_SECRET: Final = re.compile(
    r"(?:^|_)(?:API_?KEY|KEY|TOKEN|SECRET|PASSWORD|PASSWD|PASS|PASSPHRASE|CREDENTIALS?|DSN)(?:_|$)",
    re.IGNORECASE,
)
_NO_SECRET: Final = re.compile(
    r"^HORAE_(?:AFTER_)?KEY$|_(?:FILE|PATH|DIR|SOCK|NAME|LENGTH)$", re.IGNORECASE
)  # the idempotency key of a receipt is not a secret
_IN_ADDRESS: Final = re.compile(r"\w+://[^/\s:@]*:([^/\s@]+)@")


class SourceKind(StrEnum):
    FILE = "file"
    COMMAND = "cmd"
    VARIABLE = "env"


@dataclass(frozen=True, slots=True)
class SecretSource:
    kind: SourceKind
    words: tuple[str, ...]
    origin: str = ""  # where the setting is

    def __str__(self) -> str:
        return f"{self.kind}:{shlex.join(self.words)}"


def parse_source(text: str) -> SecretSource:
    """Parse the source of a secret; the ValueError does not quote the text.

    >>> parse_source("cmd:pass show deploy").words
    ('pass', 'show', 'deploy')
    """
    kind, _, rest = text.partition(":")
    if kind not in set(SourceKind) or not rest.strip() or "\0" in rest:
        raise ValueError("write file:PATH, cmd:COMMAND or env:NAME, not the value itself")
    rest = rest.strip()
    if kind == SourceKind.VARIABLE and (why := why_no_name(rest)):
        raise ValueError(why)
    words: tuple[str, ...] = (rest,)
    if kind == SourceKind.COMMAND:
        try:
            words = tuple(shlex.split(rest))
        except ValueError as error:
            raise ValueError(f"the command cannot be read: {str(error).lower()}") from None
        if not words or not words[0]:
            raise ValueError("the command has no program")
    return SecretSource(SourceKind(kind), words)


def why_no_name(name: str) -> str:
    if NAME.fullmatch(name) is None:
        return "use letters, digits and underscores, and do not begin with a digit"
    return f"names that begin with {OWN} are reserved for the engine" if is_own(name) else ""


def is_own(name: str) -> bool:
    return name.startswith(OWN)


def names_in(text: str) -> tuple[str, ...]:
    """Return the secrets that a text names, with stored ones as `secrets/FILE`.

    >>> names_in("https://${USER:-me}:${PASSWORD}@example.org")
    ('USER', 'PASSWORD')
    """
    return (*(found[1] for found in _NAMED.finditer(text)), *kept_in(text))


def needed_in(text: str) -> tuple[str, ...]:
    return tuple(found[1] for found in _NAMED.finditer(text) if found[2] is None)


def kept_in(text: str) -> tuple[str, ...]:
    found = _KEPT.fullmatch(text)
    return () if found is None else (f"secrets/{found[1]}",)


def is_reference(text: str) -> bool:
    """Return whether a text is only the name of a secret, and so may be shown.

    >>> is_reference("${DEPLOY}"), is_reference("${DEPLOY:-hunter2}"), is_reference("hunter2")
    (True, False, False)
    """
    found = _NAMED.fullmatch(text)
    return found is not None and found[2] is None


def is_kept(text: str) -> bool:
    return bool(kept_in(text))


def expand(text: str, values: Mapping[str, str]) -> str:
    """Replace `${NAME}` and `${NAME:-else}` in a text, once; KeyError for an unset name.

    >>> expand("${HOST:-localhost}:${PORT}", {"PORT": "80"})
    'localhost:80'
    """

    def value(found: re.Match[str]) -> str:
        name, other = found[1], found[2]
        if name in values:
            return values[name]
        if other is None:
            raise KeyError(name)
        return other

    return _NAMED.sub(value, text)


def looks_secret(name: str, text: str) -> bool:
    """Return whether a variable seems to hold a secret, other than by a reference.

    >>> looks_secret("API_KEY", "k3y-of-gold"), looks_secret("API_KEY", "${KEY}")
    (True, False)
    """
    written = _NAMED.sub(lambda found: found[2] or "", _KEPT.sub("", text))
    return bool(guessed_in(name, written))


def guessed_in(name: str, value: str) -> tuple[str, ...]:
    """Return the probable secrets in the value of a variable.

    >>> guessed_in("URL", "ftp://me:pw99@host")
    ('ftp://me:pw99@host', 'pw99')
    """
    if _SECRET.search(name) and not _NO_SECRET.search(name):
        return (value,) if len(value.encode("utf-8", "surrogateescape")) >= _SHORTEST else ()
    inside = _IN_ADDRESS.search(value)
    return () if inside is None else (value, inside[1])
