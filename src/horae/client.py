"""The client of a running engine: typed calls of its HTTP API, for programs and for commands.

Each call is declared once, in `Calls`, as its route is in `horae.web`: by method, path and
signature. `Client` waits for the answer, `AsyncClient` waits in a thread.
"""

from __future__ import annotations

import json
import os
import re
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cached_property, partial, wraps
from http.client import HTTPConnection, HTTPException, HTTPResponse
from inspect import signature
from pathlib import Path
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    Final,
    Generic,
    ParamSpec,
    TypeVar,
    cast,
    get_type_hints,
    overload,
)
from urllib.parse import quote, urlencode, urlsplit

from msgspec import ValidationError, convert

from horae.config import TrustReport, WaitingSettings, load
from horae.core import access, views
from horae.core.actor import Scope, own_run
from horae.core.inbox import ALL, EntryFilter, EntrySort
from horae.core.lease import NodePage
from horae.core.service import Service
from horae.core.settings import ListenAddress
from horae.errors import Exit, HoraeError
from horae.sources import triggers
from horae.timing.duration import format_duration
from horae.web import ACTOR, RUN, SCOPES, SOCKET, address

if TYPE_CHECKING:
    from horae.sources.triggers.client import AsyncTriggerClient, TriggerClient

CONNECT: Final = 5.0  # seconds
ANSWER: Final = 60.0  # seconds for an answer to begin, and for each part of it
LONG: Final = 3600.0  # for what may take long, such as folding years of receipts
CHUNK: Final = 1 << 16
AWAY: Final = 10.0  # seconds in which an engine comes back that was restarted
LOOK: Final = 0.1  # seconds between two tries
_PART: Final = re.compile(r"\{(\w+)\}")

P = ParamSpec("P")
T = TypeVar("T")


class EngineUnreachableError(HoraeError, code="engine_unreachable", exit_code=Exit.UNREACHABLE):
    def __init__(self, directory: str, reason: str, *, pid: int | None = None) -> None:
        self.directory, self.reason, self.pid = directory, reason, pid
        super().__init__(f"{directory}: {reason}")


class ServerUrlError(HoraeError, code="server_url", exit_code=Exit.USAGE):
    def __init__(self, url: str, reason: str) -> None:
        self.url, self.reason = url, reason
        right = "write it like http://127.0.0.1:7117"
        super().__init__(f"{url!r} is not the address of an engine: {reason}; {right}")


class EngineError(HoraeError):
    """What an engine refused, with the words, the code and the exit code of its own error."""


@dataclass(frozen=True, slots=True)
class Request:
    method: str
    path: str  # below /api/v1
    query: Mapping[str, object] = field(default_factory=dict)
    body: Mapping[str, object] | None = None
    key: str | None = None  # with the same key it is done once
    timeout: float | None = None  # None: that of the client

    @property
    def target(self) -> str:
        said = {name: _in_query(each) for name, each in self.query.items()}
        given = {name: each for name, each in said.items() if each not in {None, "", ()}}
        return f"/api/v1/{self.path}" + (f"?{urlencode(given, doseq=True)}" if given else "")


def _in_json(value: datetime | timedelta) -> str:
    return format_duration(value) if isinstance(value, timedelta) else value.isoformat()


def _in_query(value: object) -> object:
    match value:
        case datetime():
            return value.isoformat()
        case bool():
            return int(value) or None
        case set() | frozenset() | list():
            return tuple(value)
        case _:
            return value


class Sender:
    """Sends requests, and waits for their answers."""

    def send(self, request: Request, read: Callable[[Any], T]) -> T:
        raise NotImplementedError


class AsyncSender:
    """Sends requests, and waits for their answers in a thread."""

    async def send(self, request: Request, read: Callable[[Any], T]) -> T:
        raise NotImplementedError


@dataclass(eq=False)
class Call(Generic[P, T]):
    """A route of the API, declared as a method without a body: its signature says the rest.

    An argument that is given is a part of the path, else a field of the query or the body; `data`
    is the whole body. *names* are those of fields that have another name in the API.
    """

    declared: Callable[Concatenate[Any, P], T]
    method: str
    path: str
    part: str = ""  # the field of the answer that is meant, if not all of it
    timeout: float | None = None
    names: Mapping[str, str] = field(default_factory=dict)

    @overload
    def __get__(self, caller: Sender, owner: object = None) -> Callable[P, T]: ...
    @overload
    def __get__(self, caller: AsyncSender, owner: object = None) -> Callable[P, Awaitable[T]]: ...
    @overload
    def __get__(self, caller: None, owner: object = None) -> Call[P, T]: ...
    def __get__(self, caller: Any, owner: object = None) -> Any:
        if caller is None:
            return self

        @wraps(self.declared)
        def call(*args: P.args, **given: P.kwargs) -> Any:
            return caller.send(self._request(caller, *args, **given), self._read)

        return call

    def _request(self, *args: Any, **given: Any) -> Request:
        fields = signature(self.declared).bind(*args, **given).arguments
        del fields["self"]
        path = _PART.sub(lambda found: _quoted(fields.pop(found[1])), self.path)
        key = fields.pop("idempotency_key", None) or fields.pop("key", None)
        fields |= fields.pop("data", None) or {}
        if "entry_filter" in fields:
            fields |= fields.pop("entry_filter")._asdict()
        said = {self.names.get(name, name): each for name, each in fields.items()}
        has_body = self.method in {"POST", "PUT"}
        query, body = ({}, said) if has_body else (said, None)
        return Request(self.method, path, query, body, key, self.timeout)

    def _read(self, data: Any) -> T:
        return convert(data[self.part] if self.part else data, self._answer)

    @cached_property
    def _answer(self) -> type[T]:
        kind: type[T] = get_type_hints(self.declared)["return"]
        return kind


def _quoted(part: object) -> str:
    return quote(str(part), safe="", errors="replace")


def route(
    method: str, path: str, *, part: str = "", timeout: float | None = None, **names: str
) -> Callable[[Callable[Concatenate[Any, P], T]], Call[P, T]]:
    return lambda declared: Call(declared, method, path, part, timeout, names)


def like(
    method: Callable[Concatenate[Any, P], Awaitable[T]], verb: str, path: str, **more: Any
) -> Call[P, T]:
    """Declare a call that a service in process has as well, by its method."""
    return route(verb, path, **more)(cast("Callable[Concatenate[Any, P], T]", method))


class Calls:
    """What an engine answers; the structs are those of `horae.core.views`.

    What the service in process can do as well has the signature that it has there.
    """

    entries = like(Service.entries, "GET", "entries", with_gone="gone")
    entry = like(Service.entry, "GET", "entries/{entry}")
    history = like(Service.history, "GET", "receipts", statuses="status")
    costs = like(Service.costs, "GET", "costs")
    forecast = like(Service.forecast, "GET", "forecast")
    receipt = like(Service.receipt, "GET", "receipts/{number}")
    run = like(Service.run, "GET", "runs/{number}")
    events = like(Service.events, "GET", "events")
    run_now = like(Service.run_now, "POST", "entries/{entry}/run")
    retry = like(Service.retry, "POST", "entries/{entry}/retry")
    pause = like(Service.pause, "POST", "entries/{entry}/pause")
    resume = like(Service.resume, "POST", "entries/{entry}/resume")
    tick = like(Service.tick, "POST", "agents/{agent}/tick")
    prune = like(Service.prune, "POST", "prune", timeout=LONG)
    note_edit = like(Service.note_edit, "POST", "edits")

    @route("GET", "status")
    def status(self, *, limit: int = 20) -> views.StatusReport:
        """Return what is running, waiting, next, late, missed and failed."""

    @route("GET", "entry-list", states="state", sources="source", with_gone="gone")
    def entry_list(
        self,
        entry_filter: EntryFilter = ALL,
        *,
        sort: EntrySort = EntrySort.TITLE,
        limit: int = 100,
        offset: int = 0,
    ) -> views.EntryList:
        """Return a part of the list of entries, with the state and the last results of each."""

    @route("GET", "why")
    def why(
        self, entry: views.EntryName, *, at: str | None = None, limit: int = 20
    ) -> views.WhyLines:
        """Return why an entry ran or did not run; *at* is a time as after the @ of `horae why`."""

    @route("GET", "last-run")
    def last_run(self, entry: views.EntryName, *, going: bool = False) -> views.RunLine:
        """Return the last run of an entry, or the one that is *going*."""

    @route("GET", "gate")
    def gate(self, *, limit: int = 100) -> views.GateReport:
        """Return the receipts that hold a slot, and those that wait and why."""

    @route("GET", "nodes")
    def nodes(self) -> NodePage:
        """Return the nodes of a cluster."""

    @route("POST", "entries/{entry}/backfill", timeout=LONG, start="from", end="to", name="id")
    def backfill(
        self,
        entry: views.EntryName,
        *,
        start: datetime,
        end: datetime | None = None,
        name: str | None = None,
        dry_run: bool = False,
    ) -> views.Backfill:
        """Run an entry once for each scheduled time of a past period."""

    @route("POST", "runs/{run}/cancel")
    def cancel(self, run: int, *, reason: str = "") -> views.CancelResult:
        """Cancel a run and all processes it started."""

    @route("POST", "restart", timeout=LONG)
    def restart(self, *, wait: bool = False) -> views.RestartAnswer:
        """Restart the engine; *wait* for runs that cannot continue, however long they take."""

    @route("POST", "stop")
    def stop(self, *, wait: bool = False) -> views.StopAnswer:
        """Stop the engine; *wait* lets all runs end, however long they take."""

    @route("POST", "rescan")
    def rescan(self, source: str | None = None) -> views.RescanReport:
        """Read the plans again now."""

    @route("GET", "settings/waiting")
    def waiting_settings(self) -> WaitingSettings:
        """Return the settings of horae.toml that wait for confirmation."""

    @route("POST", "settings/trust")
    def trust(self, digest: str) -> TrustReport:
        """Trust the settings that a digest identifies."""

    @route("GET", "calendar")
    def calendar(self) -> views.CalendarPath:
        """Return the address of the calendar."""

    @route("POST", "login")
    def login(self) -> access.LoginLink:
        """Create a link that logs a browser in."""

    @route("GET", "tokens")
    def tokens(self) -> access.TokenPage:
        """Return the tokens, without what lets their holders in."""

    @route("POST", "tokens")
    def add_token(self, name: str, *, scopes: str) -> access.NewToken:
        """Create a token; it is only in this answer."""

    @route("POST", "tokens/{name}/revoke")
    def revoke_token(self, name: str) -> access.RevokedToken:
        """Revoke a token."""

    @route("POST", "token")
    def renew_token(self) -> access.TokenRotation:
        """Replace the token of the operator."""

    @route("GET", "sessions")
    def sessions(self) -> access.SessionPage:
        """Return the browsers that are logged in."""

    @route("POST", "sessions/{session}/end")
    def end_session(self, session: str) -> access.EndedSessions:
        """End a browser session, or `all` of them."""


class Client(Calls, Sender):
    """Asks the engine of a data directory, over its socket."""

    def __init__(self, directory: Path, *, pid: int | None = None, timeout: float = ANSWER) -> None:
        self._directory, self._pid, self._timeout = directory, pid, timeout

    @cached_property
    def triggers(self) -> TriggerClient:
        return triggers.client.TriggerClient(self)  # loads their service

    def send(self, request: Request, read: Callable[[Any], T]) -> T:
        with self._answer(request, request.timeout or self._timeout) as answer:
            return read(json.loads(answer.read()))

    def log(
        self,
        run: int,
        *,
        tail: int | None = None,
        follow: bool = False,
        since: datetime | None = None,
        step: str | None = None,
    ) -> Iterator[bytes]:
        """Yield the output of a run; with *follow* until it ends, also if the engine restarts."""
        path = f"runs/{run}/log"
        asked: dict[str, object] = {"since": since, "step": step, "tail": tail}
        if not follow:
            with self._answer(Request("GET", path, asked), None) as answer:
                yield from iter(partial(answer.read1, CHUNK), b"")
            return
        asked |= {"follow": True, "exact": True}
        at: int | None = None
        is_over, lost_at = False, 0.0
        while True:
            asked |= {} if at is None else {"from": at, "tail": None}
            try:
                with self._answer(Request("GET", path, asked), None) as answer:
                    start = answer.headers["Log-From"]
                    if at is not None and start is not None and int(start) > at:
                        yield views.LEFT_OUT % (int(start) - at)
                    at = int(start or 0)
                    while part := answer.read1(CHUNK):
                        at += len(part)
                        lost_at = 0.0
                        yield part
                if is_over or start is None:  # a copy, of a node that is lost
                    return
                is_over = self.run(run).ended_at is not None  # if so, the rest has yet to come
            except EngineUnreachableError:
                lost_at = lost_at or time.monotonic()
                # An engine that restarts keeps its process.
                if at is None or self._is_gone() or time.monotonic() - lost_at > AWAY:
                    raise
            if not is_over:
                time.sleep(LOOK)

    def _is_gone(self) -> bool:
        try:
            os.kill(self._pid or os.getpid(), 0)
        except ProcessLookupError:
            return True
        except PermissionError:  # a process of another user
            return False
        return False

    def answers(self) -> bool:
        wire = self._wire(CONNECT)
        try:
            wire.connect()
        except OSError:
            return False
        finally:
            wire.close()
        return True

    def idle(self) -> HoraeError | None:
        wire = self._wire(CONNECT)
        try:
            wire.request("GET", "/readyz", headers={**self._headers(), "Connection": "close"})
            problems = json.loads(wire.getresponse().read())["problems"]
        except (OSError, HTTPException, ValueError, LookupError, TypeError):
            return None
        finally:
            wire.close()
        reason = "; ".join(problems)
        idle = HoraeError(f"nothing starts now: {reason}", code="engine_idle", reason=reason)
        return idle if problems else None

    @contextmanager
    def _answer(self, request: Request, timeout: float | None) -> Iterator[HTTPResponse]:
        wire, body = self._wire(timeout), None
        headers = {**self._headers(), "Connection": b"close"}
        if request.key is not None:
            headers["Idempotency-Key"] = request.key.encode(errors="replace")
        if request.body is not None:
            headers["Content-Type"] = b"application/json"
            body = json.dumps(request.body, default=_in_json).encode()
        try:
            # Who refuses a request by its header answers and hangs up before the body has come.
            with suppress(BrokenPipeError, ConnectionResetError):
                wire.request(request.method, request.target, body, headers)
            with wire.getresponse() as answer:  # which has the socket now
                if answer.status >= 400:
                    raise _refusal(answer)
                yield answer
        except ValidationError as error:
            said = f"the engine answered in a form that this version does not know: {error}"
            raise EngineError(said, code="engine_answer") from error
        except (OSError, HTTPException, json.JSONDecodeError) as error:
            raise self._unreachable(error) from error
        finally:
            wire.close()

    def _wire(self, timeout: float | None) -> HTTPConnection:
        return _SocketConnection(self._directory, timeout)

    def _headers(self) -> dict[str, bytes]:
        if given := _own_token(self._directory):
            return given
        run = own_run(self._directory)
        return {RUN: run.encode()} if run else {}

    def _unreachable(self, error: Exception) -> EngineUnreachableError:
        who = "the engine" if self._pid is None else f"the engine (process {self._pid})"
        if isinstance(error, FileNotFoundError | ConnectionRefusedError):
            remedy = "if it is not just starting or stopping, stop it and start `horae up` again"
            reason = f"{who} does not listen on its socket; {remedy}"
            if self._pid is None:
                reason = "no engine is running; start it with `horae up`"
        elif isinstance(error, TimeoutError):
            reason = f"{who} did not answer in time; the request may still be carried out"
        else:
            reason = f"{who} ended before it had answered; see `horae history` for what was done"
        return EngineUnreachableError(str(self._directory), reason, pid=self._pid)


class LeaderClient(Client):
    """Asks the leader of a cluster, as a node does, on behalf of an actor."""

    def __init__(self, directory: Path, name: str, address: str, secret: str, actor: str) -> None:
        super().__init__(directory)
        self._name, self._address, self._secret, self._actor = name, address, secret, actor

    def _wire(self, timeout: float | None) -> HTTPConnection:
        return HTTPConnection(*ListenAddress.of(self._address), timeout=timeout)

    def _headers(self) -> dict[str, bytes]:
        host = {"Host": b"localhost"}  # a name that every machine goes by
        if given := _own_token(self._directory):
            return {**host, **given}
        # A command that can read the ledger asks as a node does, on behalf of its actor.
        bearer = f"Bearer {self._secret}".encode()
        said = {ACTOR: quote(self._actor).encode(), SCOPES: Scope.ADMIN.value.encode()}
        return {**host, "Authorization": bearer, **said}

    def _unreachable(self, error: Exception) -> EngineUnreachableError:
        reason = f"the leader {self._name} does not answer at {self._address} ({error})"
        return EngineUnreachableError(str(self._directory), reason)


class ServerClient(Client):
    """Asks an engine at its address, with a token."""

    def __init__(self, url: str, token: str, *, timeout: float = ANSWER) -> None:
        try:
            parts = urlsplit(url)
            self._host, self._port = parts.hostname or "", parts.port
        except ValueError as error:
            raise ServerUrlError(url, str(error)) from None
        if parts.scheme not in {"http", "https"} or not self._host:
            raise ServerUrlError(url, "it has no host, or does not begin with http:// or https://")
        if parts.path.strip("/") or parts.query or parts.fragment or "@" in parts.netloc:
            raise ServerUrlError(url, "it must be a scheme, a host and a port only")
        super().__init__(Path(), timeout=timeout)
        self.url, self._is_secure = f"{parts.scheme}://{parts.netloc}", parts.scheme == "https"
        self._token = "".join(token.split())

    def _wire(self, timeout: float | None) -> HTTPConnection:
        if not self._is_secure:
            return HTTPConnection(self._host, self._port, timeout=timeout)
        from http.client import HTTPSConnection  # loads ssl

        return HTTPSConnection(self._host, self._port, timeout=timeout)

    def _headers(self) -> dict[str, bytes]:
        return {"Authorization": f"Bearer {self._token}".encode()} if self._token else {}

    def _unreachable(self, error: Exception) -> EngineUnreachableError:
        if isinstance(error, TimeoutError):
            late = "the engine did not answer in time; the request may still be carried out"
            return EngineUnreachableError(self.url, late)
        if untrusted := getattr(error, "verify_message", ""):
            remedy = "check the address, or name the certificate of its authority in SSL_CERT_FILE"
            reason = f"its certificate is not trusted ({untrusted}); {remedy}"
            return EngineUnreachableError(self.url, reason)
        cause = getattr(error, "strerror", None) or error  # without the number of an OSError
        reason = f"no engine answers ({cause}); check the address, and that the engine is running"
        return EngineUnreachableError(self.url, reason)


def connect(where: str | os.PathLike[str] = ".", *, token: str | None = None) -> Client:
    """Return a client of an engine: that of a plan root or a data directory, or at a URL.

    At a URL it needs a token; the default is the one in HORAE_TOKEN.
    """
    name = os.fspath(where)
    if "://" in name:
        return ServerClient(name, os.environ.get("HORAE_TOKEN", "") if token is None else token)
    if not os.path.exists(os.path.join(name, SOCKET)):
        return Client(load(name).data)
    return Client(Path(name))


def connect_async(where: str | os.PathLike[str] = ".", *, token: str | None = None) -> AsyncClient:
    """Return a client as `connect` does, whose calls are awaited."""
    return AsyncClient(connect(where, token=token))


class AsyncClient(Calls, AsyncSender):
    """Asks as a `Client` does, each request in a thread.

    If a task is cancelled, its request may still be carried out.
    """

    def __init__(self, client: Client) -> None:
        self._client = client

    @cached_property
    def triggers(self) -> AsyncTriggerClient:
        return triggers.client.AsyncTriggerClient(self)

    async def send(self, request: Request, read: Callable[[Any], T]) -> T:
        from asyncio import to_thread

        return await to_thread(self._client.send, request, read)

    async def log(
        self,
        run: int,
        *,
        tail: int | None = None,
        follow: bool = False,
        since: datetime | None = None,
        step: str | None = None,
    ) -> AsyncIterator[bytes]:
        """Yield the output of a run; with *follow* until it ends, also if the engine restarts."""
        from asyncio import to_thread

        parts = self._client.log(run, tail=tail, follow=follow, since=since, step=step)
        while part := await to_thread(next, parts, b""):
            yield part


class _SocketConnection(HTTPConnection):
    def __init__(self, directory: Path, timeout: float | None) -> None:
        super().__init__("localhost", timeout=timeout)
        self._directory = directory

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(CONNECT)
        with address(self._directory) as near:
            self.sock.connect(near)
        self.sock.settimeout(self.timeout)


def _own_token(directory: Path) -> dict[str, bytes]:
    """Return the header with the token of the run that we are in, if it is one of this engine."""
    token = "".join(os.environ.get("HORAE_TOKEN", "").split())
    data = os.environ.get("HORAE_DATA", "")
    is_ours = not data or os.path.realpath(data) == os.path.realpath(directory)
    return {"Authorization": f"Bearer {token}".encode()} if token and is_ours else {}


def _refusal(answer: HTTPResponse) -> HoraeError:
    try:
        said = json.loads(answer.read())
        code, exit_code = str(said["code"]), int(said["exit_code"])
        detail, facts = str(said["detail"]), dict(said["facts"])
        return EngineError(detail, code=code, exit_code=exit_code, **facts)
    except (ValueError, LookupError, TypeError):
        is_busy, status = answer.status == 503, answer.status
        what = "it has reached its limit of connections; try again" if is_busy else answer.reason
        exit_code = Exit.TEMPORARY if is_busy else Exit.FINDINGS
        said = f"the engine answered {status}: {what}"
        return EngineError(said, code="engine_answer", exit_code=exit_code, status=status)
