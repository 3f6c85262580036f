"""Who may come in: the token of a data directory, and what is made from it.

The token is 32 random bytes in a file of mode 0600. A browser gets in by a link that is good once
and becomes a cookie; a calendar program by a path that nobody can guess. All of it follows from
the token, so a new one ends all of it.
"""

from __future__ import annotations

import asyncio
import hmac
import os
import re
import secrets
from contextlib import suppress
from datetime import timedelta
from hashlib import sha256
from stat import S_IMODE, S_ISREG
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from horae.errors import Exit, HoraeError
from horae.server.names import Names

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from horae.engine.ports import Clock

NAME: Final = "token"  # in the data directory
HOST: Final = "host"  # beside it: what the name of the page is made from
CODE: Final = timedelta(minutes=10)  # how long a login link is good
SESSION: Final = timedelta(days=30)  # how long a browser stays logged in
MOST_CODES: Final = 20  # links that are good at the same time

_TOKEN: Final = re.compile(rb"[0-9a-f]{64}")


class TokenFileError(HoraeError):
    """A token that cannot be read, or that others can read."""

    code = "token_file"
    exit_code = Exit.UNAUTHORISED

    def __init__(
        self, path: str, reason: str, remedy: str = "`horae token new` makes a new one"
    ) -> None:
        self.path = path
        self.reason = reason
        super().__init__(f"{path}: {reason}; {remedy}")


class Keys:
    """The token of a data directory, the links that are good, and the sessions made from them.

    The server is asked by *hosts* besides those of the loopback, and by the *proxied* names, of
    which *outside* is the address where a browser finds the page.
    """

    def __init__(
        self,
        directory: Path,
        *,
        clock: Clock,
        hosts: Iterable[str] = (),
        proxied: Iterable[str] = (),
        outside: str = "",
    ) -> None:
        self._directory = directory
        self._clock = clock
        self._codes: dict[str, timedelta] = {}
        self._ended = asyncio.Event()
        self.token = read_token(directory) or write_token(directory)
        self.url = ""  # where the server listens; nothing while it does not
        self.names = Names.of(_host_seed(directory), proxied=proxied, others=hosts)
        self.outside = outside

    @property
    def ended(self) -> asyncio.Event:
        """What is set when the token of now is good no longer."""
        return self._ended

    def rotate(self) -> None:
        """Make a new token; every session, link and secret path ends."""
        self.token = write_token(self._directory)
        self._codes.clear()
        self._ended.set()
        self._ended = asyncio.Event()

    def is_token(self, given: bytes) -> bool:
        """Tell whether somebody has the token."""
        return hmac.compare_digest(given, self.token.encode())

    def new_code(self) -> str:
        """Return what a login link ends with; it is good once, for ten minutes."""
        while len(self._codes) >= MOST_CODES:
            del self._codes[next(iter(self._codes))]
        code = secrets.token_urlsafe(24)
        self._codes[_digest(code)] = self._clock.elapsed() + CODE
        return code

    def take_code(self, code: str) -> bool:
        """Tell whether a login link is good; from then on it is not."""
        # By its digest: how long a search takes tells nothing of what would be right.
        until = self._codes.pop(_digest(code), None)
        return until is not None and self._clock.elapsed() < until

    def new_session(self) -> str:
        """Return the cookie of a browser that may come in from now on."""
        until = int((self._clock.now() + SESSION).timestamp())
        said = f"{until}.{secrets.token_hex(8)}"
        return f"{said}.{self._made(f'session {said}')}"

    def is_session(self, cookie: str) -> bool:
        """Tell whether a cookie is one that was given, and not too long ago."""
        said, _, proof = cookie.rpartition(".")
        until = said.partition(".")[0]
        is_ours = hmac.compare_digest(
            proof.encode(errors="replace"), self._made(f"session {said}").encode()
        )
        is_date = until.isascii() and until.isdecimal() and len(until) < 12
        return is_ours and is_date and self._clock.now().timestamp() < int(until)

    @property
    def calendar(self) -> str:
        """What the path of the calendar ends with."""
        return self._made("calendar")[:43]

    def is_calendar(self, given: str) -> bool:
        """Tell whether somebody knows the path of the calendar."""
        return hmac.compare_digest(given.encode(errors="replace"), self.calendar.encode())

    @property
    def page(self) -> str:
        """Where a browser finds the page; nothing if it cannot."""
        here = urlsplit(self.url)
        if here.hostname in {"127.0.0.1", "::1"} and not self.outside:
            return f"http://{self.names.page}:{here.port}"
        return self.outside if self.url else ""

    def link(self) -> str:
        """Return a login link."""
        return f"{self.page}/login/{self.new_code()}"

    def _made(self, what: str) -> str:
        """Return what only the token makes of some words."""
        return hmac.new(self.token.encode(), what.encode(errors="replace"), sha256).hexdigest()


def read_token(directory: Path, name: str = NAME) -> str | None:
    """Return the token of a data directory, or None if there is none yet."""
    path = directory / name
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        descriptor = os.open(path, flags)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise TokenFileError(str(path), str(error.strerror)) from None
    try:
        found = os.fstat(descriptor)
        if not S_ISREG(found.st_mode) or found.st_uid != os.geteuid():
            raise TokenFileError(str(path), "it is no plain file of our own")
        if S_IMODE(found.st_mode) & 0o077:
            raise TokenFileError(str(path), "others may read it")
        text = os.read(descriptor, 100).strip()
    finally:
        os.close(descriptor)
    if not _TOKEN.fullmatch(text):
        raise TokenFileError(str(path), "it holds no token")
    return text.decode()


def keep_token(directory: Path, token: str, name: str = NAME) -> None:
    """Let a data directory have the token that all machines of a cluster share."""
    if read_token(directory, name) != token:
        write_token(directory, token, name)


def _host_seed(directory: Path) -> str:
    """Return what the name of the page is made from; one that others could read is replaced."""
    with suppress(TokenFileError):
        if found := read_token(directory, HOST):
            return found
    return write_token(directory, name=HOST)


def new_token() -> str:
    """Return a token that nobody can guess."""
    return secrets.token_hex(32)


def write_token(directory: Path, token: str = "", name: str = NAME) -> str:
    """Give a data directory a new token, and return it; a crash leaves the old one or this one."""
    token = token or new_token()
    beside = directory / f".{name}-{secrets.token_hex(8)}"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        descriptor = os.open(beside, flags, 0o600)
        try:
            os.write(descriptor, f"{token}\n".encode())
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        os.replace(beside, directory / name)  # noqa: PTH105 - a file of our own
    except OSError as error:
        with suppress(OSError):
            os.remove(beside)  # noqa: PTH107 - as above
        reason = f"it cannot be written ({error.strerror})"
        raise TokenFileError(str(directory / name), reason, "move away what is there") from None
    return token


def _digest(code: str) -> str:
    return sha256(code.encode(errors="replace")).hexdigest()
