"""How a command asks a running engine: HTTP over the socket in the data directory."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from http.client import HTTPConnection, HTTPException, HTTPResponse
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, urlencode

from horae.core.actor import own_run
from horae.core.scope import Scope
from horae.errors import ErrorData, Exit, HoraeError
from horae.web import ACTOR, RUN, SCOPES, address

CONNECT: Final = 5.0  # seconds
ANSWER: Final = 60.0  # seconds for an answer to begin, and for each part of it
LONG: Final = 3600.0  # for what may take long, such as folding years of receipts
CHUNK: Final = 1 << 16


class EngineUnreachableError(HoraeError, code="engine_unreachable", exit_code=Exit.UNREACHABLE):
    def __init__(self, directory: str, reason: str, *, pid: int | None = None) -> None:
        self.directory, self.reason, self.pid = directory, reason, pid
        super().__init__(f"{directory}: {reason}")


class FarError(HoraeError):
    """What an engine refused, with the words, the code and the exit code of its own error."""

    def __init__(
        self, message: str, *, code: str, exit_code: int, facts: Mapping[str, object]
    ) -> None:
        super().__init__(message)
        self._facts = dict(facts)
        # Of each such error they are its own, as it stands for another one.
        self.__dict__.update(code=code, exit_code=exit_code)

    def data(self) -> ErrorData:
        return {"code": self.code, "message": str(self), "facts": self._facts}


class IdleEngineError(HoraeError, code="engine_idle"):
    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(f"nothing starts now: {reason}")


class Far:
    def __init__(self, directory: Path, *, pid: int | None = None) -> None:
        self._directory, self._pid = directory, pid

    def answers(self) -> bool:
        wire = self._wire(CONNECT)
        try:
            wire.connect()
        except OSError:
            return False
        finally:
            wire.close()
        return True

    def idle(self) -> IdleEngineError | None:
        wire = self._wire(CONNECT)
        try:
            wire.request("GET", "/readyz", headers={**self._headers(), "Connection": "close"})
            problems = json.loads(wire.getresponse().read())["problems"]
        except (OSError, HTTPException, ValueError, LookupError, TypeError):
            return None
        finally:
            wire.close()
        return IdleEngineError("; ".join(problems)) if problems else None

    def get(self, *path: object, patience: float = ANSWER, **query: object) -> Any:
        with self._answer(_target(path, query), patience=patience) as answer:
            return json.loads(answer.read())

    def post(
        self,
        *path: object,
        body: Mapping[str, object] | None = None,
        key: str | None = None,
        patience: float = ANSWER,
    ) -> Any:
        """Return what came of a request; with the same *key* it is done once."""
        headers = {} if key is None else {"Idempotency-Key": key.encode(errors="replace")}
        text = json.dumps(body or {}).encode()
        with self._answer(_target(path, {}), text, patience=patience, **headers) as answer:
            return json.loads(answer.read())

    def stream(self, *path: object, **query: object) -> Iterator[bytes]:
        with self._answer(_target(path, query), patience=None) as answer:
            while part := answer.read1(CHUNK):
                yield part

    @contextmanager
    def _answer(
        self, target: str, body: bytes | None = None, *, patience: float | None, **headers: bytes
    ) -> Iterator[HTTPResponse]:
        wire, method = self._wire(patience), "GET" if body is None else "POST"
        given = {**self._headers(), **headers, "Connection": b"close"}
        if body is not None:
            given["Content-Type"] = b"application/json"
        try:
            # Who refuses a request by its header answers and hangs up before the body has come.
            with suppress(BrokenPipeError, ConnectionResetError):
                wire.request(method, target, body, given)
            answer = wire.getresponse()
            if answer.status >= 400:
                raise _refusal(answer)
            yield answer
        except (OSError, HTTPException, json.JSONDecodeError) as error:
            raise self._unreachable(error) from error
        finally:
            wire.close()

    def _wire(self, patience: float | None) -> HTTPConnection:
        return _Wire(self._directory, patience)

    def _headers(self) -> dict[str, bytes]:
        if given := _own_token(self._directory):
            return given
        run = own_run(self._directory)
        return {RUN: run.encode()} if run else {}

    def _unreachable(self, error: Exception) -> EngineUnreachableError:
        who = "the engine" if self._pid is None else f"the engine (process {self._pid})"
        if isinstance(error, FileNotFoundError | ConnectionRefusedError):
            reason = f"{who} does not listen on its socket; stop it and start `horae up` again"
        elif isinstance(error, TimeoutError):
            reason = f"{who} did not answer in time; the request may still be carried out"
        else:
            reason = f"{who} ended before it had answered; see `horae history` for what was done"
        return EngineUnreachableError(str(self._directory), reason, pid=self._pid)


class FarLeader(Far):
    def __init__(self, directory: Path, name: str, address: str, secret: str, actor: str) -> None:
        super().__init__(directory)
        self._name, self._address, self._secret, self._actor = name, address, secret, actor

    def _wire(self, patience: float | None) -> HTTPConnection:
        host, _, port = self._address.rpartition(":")
        return HTTPConnection(host.strip("[]"), int(port), timeout=patience)

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


class _Wire(HTTPConnection):
    def __init__(self, directory: Path, patience: float | None) -> None:
        super().__init__("localhost", timeout=patience)
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


def _target(path: tuple[object, ...], query: Mapping[str, object]) -> str:
    where = "/".join(quote(str(each), safe="", errors="replace") for each in path)
    asked = urlencode({name: each for name, each in query.items() if each is not None})
    return f"/api/v1/{where}" + (f"?{asked}" if asked else "")


def _refusal(answer: HTTPResponse) -> HoraeError:
    try:
        said = json.loads(answer.read())
        code, exit_code = str(said["code"]), int(said["exit_code"])
        return FarError(str(said["detail"]), code=code, exit_code=exit_code, facts=said["facts"])
    except (ValueError, LookupError, TypeError):
        is_busy, status = answer.status == 503, answer.status
        what = "it has reached its limit of connections; try again" if is_busy else answer.reason
        exit_code = Exit.TEMPORARY if is_busy else Exit.FINDINGS
        said = f"the engine answered {status}: {what}"
        return FarError(said, code="engine_answer", exit_code=exit_code, facts={"status": status})
