"""Requests at a node: which it answers itself, and which the leader or another node answers."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from starlette.requests import Request
from starlette.responses import Response

from horae.core.explain import stamp
from horae.core.settings import ListenAddress
from horae.core.text import is_number
from horae.web import forward
from horae.web.answer import as_json
from horae.web.fields import parsed, query_of
from horae.web.forward import Forwarder, NoLeaderError, refuse
from horae.web.stream import LinesQuery, lines_in

if TYPE_CHECKING:
    from collections.abc import Sequence

    from starlette.types import ASGIApp, Receive, Scope, Send

    from horae.core.lease import NodeDescription
    from horae.core.ports import Run
    from horae.node import ClusterNode
    from horae.web.forward import Where

_RUNS: Final = "/api/v1/runs/"
_LOG, _LINES = "/log", "/lines"
_ENTRY: Final = frozenset({"/api/v1/login", "/api/v1/logout"})  # a cookie is not handed on
_HEALTH: Final = frozenset({"/healthz", "/readyz"})
# What each machine has for itself.
_OWN: Final = ("/api/v1/settings/", "/api/v1/restart", "/api/v1/stop")


@dataclass(frozen=True, slots=True)
class NodeRequests:
    member: ClusterNode

    def around(self, own: ASGIApp) -> ASGIApp:
        def leader() -> tuple[str, ListenAddress] | None:
            found = self.member.leader
            return None if found is None else self._where(found.holder)

        to_leader = self._to(leader)

        async def answer(scope: Scope, receive: Receive, send: Send) -> None:
            path, member = scope.get("path", ""), self.member
            if path == forward.AWAY:
                is_away = await member.gives_word()
                question = member.name, scope["query_string"], member.lease, self._secret
                await Response(forward.word_of(*question) if is_away else b"")(scope, receive, send)
                return
            if member.is_away and path not in _HEALTH and not path.startswith("/static/"):
                await member.last_known().answer(scope)(scope, receive, send)
                return
            run = await self._run_of(path)
            if run is not None and run.member == member.name:
                await own(scope, receive, send)
            elif run is not None and run.member:
                await self._output(run)(scope, receive, send)
            elif path.startswith(_OWN):
                await own(scope, receive, send)
            elif path in _HEALTH and (member.is_away or member.web is None):
                await self._health()(scope, receive, send)
            elif member.web is not None:
                await member.web(scope, receive, send)
            elif path.startswith("/login/") or path in _ENTRY:
                await own(scope, receive, send)
            else:
                if member.leader is None:
                    await member.look_for_leader()
                await to_leader(scope, receive, send)

        return answer

    async def are_away(self, others: Sequence[NodeDescription]) -> bool:
        """Ask nodes whether none of them reaches the database, or records one as lost soon."""
        own = self.member.name, self.member.lease, self._secret
        ask = (forward.gives_word(each.name, each.address, *own) for each in others)
        return all(await asyncio.gather(*ask))

    @property
    def _secret(self) -> str:
        keys = self.member.keys
        assert keys is not None, "a member has its keys before it answers"
        return keys.node

    async def _run_of(self, path: str) -> Run | None:
        if not (path.startswith(_RUNS) and path.endswith((_LOG, _LINES))):
            return None
        number = path.removeprefix(_RUNS).removesuffix(_LOG).removesuffix(_LINES)
        return await self.member.ledger.run(int(number)) if is_number(number) else None

    def _output(self, run: Run) -> ASGIApp:
        async def kept(scope: Scope, receive: Receive, send: Send) -> None:
            found = await self.member.ledger.log(run.number)
            if found is None and run.facts.get("output") == 0:
                found = b""  # it has said nothing
            if found is None:
                reason = f"the node {run.member} is lost, and the output of the run was not copied"
                await refuse(NoLeaderError(reason), scope)(scope, receive, send)
            elif scope["path"].endswith(_LINES):
                items = Request(scope).query_params.multi_items()
                query = parsed(query_of(items, LinesQuery), LinesQuery)
                told = as_json(lines_in(found, query, run.started_at))
                await told(scope, receive, send)
            else:
                told = Response(found, media_type="text/plain; charset=utf-8")
                await told(scope, receive, send)

        return self._to(lambda: self._where(run.member), otherwise=kept)

    def _health(self) -> ASGIApp:
        member = self.member
        is_up = member.is_up and not member.is_away
        said = {
            "ok": is_up,
            "at": stamp(member.clock.now(), "UTC"),
            "turned_at": None,
            "loop_lag_seconds": 0.0,
            "ledger_writable": is_up,
            "problems": [] if is_up else [member.last_known().words],
        }
        return as_json(said, HTTPStatus.OK if is_up else HTTPStatus.SERVICE_UNAVAILABLE)

    def _to(self, where: Where, otherwise: ASGIApp | None = None) -> ASGIApp:
        return Forwarder(where, self._secret, self.member.name, otherwise)

    def _where(self, name: str) -> tuple[str, ListenAddress] | None:
        for each in self.member.members:
            if each.member.name == name and each.is_alive and name != self.member.name:
                return name, ListenAddress.of(each.member.address)
        return None
