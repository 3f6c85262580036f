"""Who may come in: the operator's token, what is made from it, and named tokens.

The operator's token is 32 random bytes in a file of mode 0600. A browser gets in by a link that is
good once and becomes a session; a calendar program by a path that nobody can guess. All of it
follows from that token, so a new one ends all of it. Named tokens and sessions stand in the ledger.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import os
import re
import secrets
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from stat import S_IMODE, S_ISREG
from typing import TYPE_CHECKING, Any, Final, TypeVar
from urllib.parse import urlsplit
from weakref import WeakValueDictionary

from horae.core.access import SESSION_RENEWED, TOUCHED, NewToken, Token, token_digest
from horae.core.actor import OPERATOR, Scope, allows, check_token_name, in_order
from horae.core.ports import Clock, LedgerBusyError, LedgerError, LedgerWriteError
from horae.core.private import replace_durably
from horae.errors import Exit, HoraeError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Iterable
    from pathlib import Path

    from starlette.types import Scope as Asked

    from horae.core.access import RunTokens, Sessions, Tokens


T = TypeVar("T")
log = logging.getLogger(__name__)
_CALLER: Final = "horae.caller"


@dataclass(frozen=True, slots=True)
class Caller:
    actor: str  # as in `horae.core.actor`
    scopes: frozenset[Scope]
    ended: asyncio.Event
    session: str = ""  # its id, if they sent a cookie
    is_renewed: bool = False  # whether that session lasts longer from now on


def with_caller(asked: Asked, caller: Caller) -> Asked:
    return {**asked, _CALLER: caller}


def caller_of(asked: Asked) -> Caller | None:
    found: Caller | None = asked.get(_CALLER)
    return found


LOOPBACK: Final = ("127.0.0.1", "localhost", "[::1]")
BITS: Final = 96  # of chance in the name of the page

_HOST: Final = re.compile(r"(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9._-]+)(?::[0-9]{1,5})?", re.ASCII)


@dataclass(frozen=True, slots=True)
class Names:
    """The names by which one server is asked, and which cookie counts under each.

    Cookies know no ports: a browser sends one to every server of its host. So the page has a host
    name of its own that nobody can guess, and under the names that every server of this machine
    shares no cookie counts.
    """

    page: str  # below localhost, so that every name service and browser keeps it on this machine
    proxied: frozenset[str] = frozenset()  # those of proxies in front, which speak TLS
    others: frozenset[str] = frozenset(LOOPBACK)

    @classmethod
    def of(cls, seed: str, *, proxied: Iterable[str] = (), others: Iterable[str] = ()) -> Names:
        plain = (f"[{each}]" if ":" in each else each.lower() for each in others)
        page = f"horae-{seed[: BITS // 4]}.localhost"
        return cls(page, frozenset(map(str.lower, proxied)), frozenset({*LOOPBACK, *plain}))

    def has(self, host: str) -> bool:
        return host == self.page or host in self.proxied or host in self.others

    def cookie(self, host: str) -> str | None:
        """Return what the cookie of a session is called under a name; None: none counts there."""
        if host == self.page:
            return "horae-session"
        if host in self.proxied:
            # Two engines may stand behind one name. A browser takes this one from TLS alone,
            # and from no other host.
            return f"__Host-horae-{sha256(self.page.encode()).hexdigest()[:8]}"
        return None


def host_of(text: str) -> str | None:
    """Return the name in a Host header, without its port.

    >>> host_of("Plans.example.org:8443"), host_of("[::1]:7117"), host_of("a@b")
    ('plans.example.org', '[::1]', None)
    """
    match = _HOST.fullmatch(text)
    return None if match is None else match[1].lower()


def set_cookie(name: str, value: str, *, age: timedelta) -> str:
    """Return the header that gives a browser a cookie for its host alone, out of scripts' reach.

    >>> from datetime import timedelta
    >>> set_cookie("__Host-x", "1", age=timedelta(minutes=1))
    '__Host-x=1; Max-Age=60; Path=/; HttpOnly; SameSite=Strict; Secure'
    """
    secure = "; Secure" if name.startswith("__Host-") else ""  # which browsers demand
    seconds = int(age.total_seconds())
    return f"{name}={value}; Max-Age={seconds}; Path=/; HttpOnly; SameSite=Strict{secure}"


NAME: Final = "token"  # in the data directory
HOST: Final = "host"  # beside it: what the name of the page is made from
CODE: Final = timedelta(minutes=10)  # how long a login link is good
MOST_CODES: Final = 20  # links that are good at the same time
SEEN: Final = timedelta(minutes=10)  # for which a caller may look while the ledger is away
MOST_SEEN: Final = 1000  # callers that are remembered for that

_TOKEN: Final = re.compile(rb"[0-9a-f]{64}")
_PREFIX: Final = "horae_"  # by which people and secret scanners know a named token
_NAMED: Final = re.compile(rf"{_PREFIX}[0-9a-f]{{64}}", re.ASCII)
_ALL: Final = frozenset({Scope.ADMIN})


class TokenFileError(HoraeError, code="token_file", exit_code=Exit.UNAUTHORISED):
    def __init__(
        self, path: str, reason: str, remedy: str = "`horae token new` creates a new one"
    ) -> None:
        self.path, self.reason = path, reason
        super().__init__(f"{path}: {reason}; {remedy}")


@dataclass(kw_only=True, slots=True)
class Keys:
    """The token of a data directory, the links that are good, and the sessions made from them."""

    directory: Path = field(kw_only=False)
    clock: Clock
    tokens: Tokens | None = None  # those that have a name
    sessions: Sessions | None = None  # each belongs to a token
    node: str = ""  # the secret by which the nodes of a cluster know each other
    share: Callable[[str], Awaitable[None]] | None = None  # tells the nodes of a new token
    hosts: Iterable[str] = ()  # besides those of the loopback
    proxied: Iterable[str] = ()
    outside: str = ""  # where a browser finds the page
    runs: RunTokens | None = None  # of runs that go on here
    url: str = ""  # where the server listens; nothing while it does not
    token: str = ""
    names: Names = field(init=False)
    _codes: dict[str, tuple[timedelta, str]] = field(default_factory=dict)  # until, and whose
    # By the name of a token, and for a session by that and its id; as long as one is open.
    _ends: WeakValueDictionary[str, asyncio.Event] = field(default_factory=WeakValueDictionary)
    _revoked: int = 0  # how many times a token was revoked
    _touched: dict[str, timedelta] = field(default_factory=dict)
    _touching: set[asyncio.Task[None]] = field(default_factory=set)
    # By digest: who was known when, for a while in which the ledger cannot be asked.
    _seen: dict[str, tuple[timedelta, Caller]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.token = read_token(self.directory) or write_token(self.directory)
        seed = None
        with suppress(TokenFileError):  # one that others could read is replaced
            seed = read_token(self.directory, HOST)
        seed = seed or write_token(self.directory, name=HOST)
        self.names = Names.of(seed, proxied=self.proxied, others=self.hosts)

    def ended_of(self, name: str = OPERATOR, session: str = "") -> asyncio.Event:
        return self._ends.setdefault(f"{name}/{session}", asyncio.Event())

    def end(self, name: str, session: str = "") -> None:
        self._revoked += 1
        self._seen.clear()
        for each in [key for key in self._ends if key.startswith(f"{name}/{session}")]:
            self._ends.pop(each).set()
        if not session:
            self._codes = {key: code for key, code in self._codes.items() if code[1] != name}

    def end_all(self) -> None:
        """End what is open with any token: it is not known which were revoked meanwhile."""
        for name in {key.partition("/")[0] for key in [*self._ends]}:
            self.end(name)

    async def rotate(self) -> None:
        token = new_token()
        if self.share is not None:
            await self.share(token)
        self.replace(token)

    def replace(self, token: str) -> None:
        if token == self.token:
            return
        self.token = write_token(self.directory, token)
        self._codes.clear()
        self.end(OPERATOR)
        for session in [key for key in self._ends if not key.endswith("/")]:  # of other tokens
            self._ends.pop(session).set()

    async def bearer(self, given: str) -> Caller | None:
        if self.is_token(given):
            return Caller(f"token:{OPERATOR}", _ALL, self.ended_of())
        run = None if self.runs is None else self.runs.find(given)
        if run is not None:
            return Caller(run.actor, run.scopes, run.ended)
        if self.tokens is None or not _NAMED.fullmatch(given):
            return None
        # By its digest: how long a search takes tells nothing of what would be right.
        digest, tokens = token_digest(given), self.tokens
        try:
            found = await self._found(lambda: tokens.find(digest))
        except (LedgerBusyError, LedgerWriteError):
            return self._remembered(digest)
        if found is None:
            return None
        elapsed = self.clock.elapsed()
        if elapsed - self._touched.get(found.name, elapsed - TOUCHED) >= TOUCHED:
            self._touched[found.name] = elapsed
            self._later(tokens.touch(found.name, now=self.clock.now()))
        caller = Caller(f"token:{found.name}", frozenset(found.scopes), self.ended_of(found.name))
        return self._remember(digest, caller)

    async def session(self, cookie: str) -> Caller | None:
        sessions, now = self.sessions, self.clock.now()
        if sessions is None:
            return None
        try:
            # Another digest if the operator's token was replaced meanwhile: the session has ended.
            found = await self._found(lambda: sessions.find(self._session(cookie), now=now))
        except (LedgerBusyError, LedgerWriteError):
            return self._remembered(self._session(cookie))
        if found is None:
            return None
        is_renewed = now - found.used_at >= SESSION_RENEWED
        if is_renewed:
            self._later(sessions.renew(self._session(cookie), now=now))
        ended = self.ended_of(found.token, found.id)
        actor = f"session:{found.token}"
        scopes = frozenset(found.scopes)
        caller = Caller(actor, scopes, ended, session=found.id, is_renewed=is_renewed)
        return self._remember(self._session(cookie), caller)

    def _remember(self, digest: str, caller: Caller) -> Caller:
        self._seen.pop(digest, None)
        self._seen[digest] = self.clock.elapsed(), caller
        while len(self._seen) > MOST_SEEN:
            del self._seen[next(iter(self._seen))]
        return caller

    def _remembered(self, digest: str) -> Caller:
        """Return who may still look while the ledger cannot be asked; LedgerError: nobody."""
        at, caller = self._seen.get(digest, (timedelta(0), None))
        if caller is None or caller.ended.is_set() or self.clock.elapsed() - at > SEEN:
            raise LedgerBusyError("the ledger", "it cannot be read", remedy="try again")
        can_read = allows(caller.scopes, Scope.READ)
        scopes = frozenset({Scope.READ}) if can_read else frozenset[Scope]()
        return replace(caller, scopes=scopes, is_renewed=False)

    async def begin_session(self, name: str, agent: str) -> str | None:
        cookie, now = secrets.token_urlsafe(32), self.clock.now()
        is_begun = self.sessions is not None and await self.sessions.begin(
            self._session(cookie), token=name, agent=agent, now=now
        )
        return cookie if is_begun else None

    async def _found(self, find: Callable[[], Awaitable[T | None]]) -> T | None:
        """Return what a look finds; again, if something was revoked during it."""
        revoked, found = self._revoked, await find()
        while found is not None and revoked != self._revoked:
            revoked, found = self._revoked, await find()
        return found

    def _later(self, writing: Coroutine[Any, Any, None]) -> None:
        async def write() -> None:
            try:
                await writing
            except LedgerError as error:
                log.warning("cannot record the use of a token: %s", error)

        task = asyncio.create_task(write())
        self._touching.add(task)
        task.add_done_callback(self._touching.discard)

    def is_token(self, given: str) -> bool:
        return _is_same(given, self.token)

    def is_node(self, given: str) -> bool:
        return _is_same(given, self.node) and bool(self.node)

    def new_code(self, name: str = OPERATOR) -> str:
        """Return what a login link ends with; it is good once, for ten minutes, for a token."""
        while len(self._codes) >= MOST_CODES:
            del self._codes[next(iter(self._codes))]
        code = secrets.token_urlsafe(24)
        self._codes[token_digest(code)] = self.clock.elapsed() + CODE, name
        return code

    def take_code(self, code: str) -> str | None:
        """Return the name of the token that a login link is good for; from then on it is not."""
        # By its digest: how long a search takes tells nothing of what would be right.
        until, name = self._codes.pop(token_digest(code), (timedelta(), None))
        return name if self.clock.elapsed() < until else None

    @property
    def calendar(self) -> str:
        return self._made("calendar")[:43]

    def is_calendar(self, given: str) -> bool:
        return _is_same(given, self.calendar)

    def form(self, caller: Caller) -> str:
        """Return what the forms of a session contain, which pages of others cannot know."""
        return self._made(f"form {caller.session or caller.actor}")[:43]

    def is_form(self, caller: Caller, given: str) -> bool:
        return _is_same(given, self.form(caller))

    @property
    def page(self) -> str:
        here = urlsplit(self.url)
        if here.hostname in {"127.0.0.1", "::1"} and not self.outside:
            return f"http://{self.names.page}:{here.port}"
        return self.outside if self.url else ""

    def link(self, name: str = OPERATOR) -> str:
        return f"{self.page}/login/{self.new_code(name)}"

    def _session(self, cookie: str) -> str:
        return self._made(f"session {cookie}")

    def _made(self, what: str) -> str:
        return hmac.new(self.token.encode(), what.encode(errors="replace"), sha256).hexdigest()


def read_token(directory: Path, name: str = NAME) -> str | None:
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
            raise TokenFileError(str(path), "not a regular file of this user")
        if S_IMODE(found.st_mode) & 0o077:
            raise TokenFileError(str(path), "other users can read it")
        text = os.read(descriptor, 100).strip()
    finally:
        os.close(descriptor)
    if not _TOKEN.fullmatch(text):
        raise TokenFileError(str(path), "contains no valid token")
    return text.decode()


def keep_token(directory: Path, token: str, name: str = NAME) -> None:
    if read_token(directory, name) != token:
        write_token(directory, token, name)


def new_token() -> str:
    return secrets.token_hex(32)


async def all_tokens(directory: Path, tokens: Tokens) -> list[Token]:
    operator = []
    with suppress(OSError):  # there is none yet
        made = datetime.fromtimestamp((directory / NAME).stat().st_mtime, UTC)
        operator = [Token(OPERATOR, in_order(_ALL), made)]
    return [*operator, *await tokens.all()]


async def add_token(
    tokens: Tokens, name: str, scopes: frozenset[Scope], *, now: datetime
) -> NewToken:
    """Keep a new token of a name; its text is kept nowhere."""
    text = f"{_PREFIX}{new_token()}"
    token = NewToken(check_token_name(name), in_order(scopes), now, token=text)
    if not await tokens.add(token, token_digest(text)):
        remedy = f"choose another name, or revoke the token with `horae token revoke {name}`"
        words = f"a token named {name!r} already exists; {remedy}"
        raise HoraeError(words, code="token_taken", exit_code=Exit.CONFLICT, name=name)
    return token


async def revoke_token(tokens: Tokens, name: str, *, now: datetime) -> None:
    if not await tokens.revoke(name, now=now):
        words = f"no token is called {name!r}; `horae token list` shows the names"
        if name == OPERATOR:
            words = "the operator's token cannot be revoked; `horae token new` replaces it"
        raise HoraeError(words, code="no_token", exit_code=Exit.NOT_FOUND, name=name)


def write_token(directory: Path, token: str = "", name: str = NAME) -> str:
    """Give a data directory a new token, and return it; a crash leaves the old one or this one."""
    token = token or new_token()
    try:
        replace_durably(directory / name, f"{token}\n".encode())
    except OSError as error:
        path, reason = str(directory / name), f"cannot be written ({error.strerror})"
        raise TokenFileError(path, reason, "move or remove the existing file") from None
    return token


def _is_same(given: str, own: str) -> bool:
    return hmac.compare_digest(given.encode(errors="replace"), own.encode())
