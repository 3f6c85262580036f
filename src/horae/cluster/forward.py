"""Requests at a node: which it answers itself, and which the leader or another node answers."""

from __future__ import annotations

from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from starlette.responses import Response

from horae.config import ListenAddress
from horae.core.explain import stamp
from horae.web.answer import as_json
from horae.web.forward import Forwarder, NoLeaderError, refuse

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

    from horae.cluster.node import ClusterNode
    from horae.core.ports import Run
    from horae.web.forward import Where

_RUNS: Final = "/api/v1/runs/"
_LOG: Final = "/log"
_ENTRY: Final = frozenset({"/api/v1/login", "/api/v1/logout"})  # a cookie is not handed on
_HEALTH: Final = frozenset({"/healthz", "/readyz"})
_SETTINGS: Final = "/api/v1/settings/"  # which each machine has for itself


@dataclass(frozen=True, slots=True)
class Porter:
    member: ClusterNode

    def around(self, own: ASGIApp) -> ASGIApp:
        def leader() -> tuple[str, ListenAddress] | None:
            found = self.member.leader
            return None if found is None else self._where(found.holder)

        to_leader = self._to(leader)

        async def answer(scope: Scope, receive: Receive, send: Send) -> None:
            path, member = scope.get("path", ""), self.member
            run = await self._run_of(path)
            if run is not None and run.member == member.name:
                await own(scope, receive, send)
            elif run is not None and run.member:
                await self._output(run)(scope, receive, send)
            elif path.startswith(_SETTINGS):
                await own(scope, receive, send)
            elif member.web is not None:
                await member.web(scope, receive, send)
            elif path in _HEALTH:
                await self._health()(scope, receive, send)
            elif path.startswith("/login/") or path in _ENTRY:
                await own(scope, receive, send)
            else:
                if member.leader is None:
                    await member.look_for_leader()
                await to_leader(scope, receive, send)

        return answer

    async def _run_of(self, path: str) -> Run | None:
        if not (path.startswith(_RUNS) and path.endswith(_LOG)):
            return None
        number = path.removeprefix(_RUNS).removesuffix(_LOG)
        is_number = number.isascii() and number.isdecimal() and len(number) < 19
        return await self.member.ledger.run(int(number)) if is_number else None

    def _output(self, run: Run) -> ASGIApp:
        async def kept(scope: Scope, receive: Receive, send: Send) -> None:
            found = await self.member.ledger.log(run.number)
            if found is None and run.facts.get("output") == 0:
                found = b""  # it has said nothing
            if found is None:
                reason = f"the node {run.member} is lost, and the output of the run was not copied"
                await refuse(NoLeaderError(reason), scope)(scope, receive, send)
            else:
                told = Response(found, media_type="text/plain; charset=utf-8")
                await told(scope, receive, send)

        return self._to(lambda: self._where(run.member), otherwise=kept)

    def _health(self) -> ASGIApp:
        member = self.member
        now, is_up = member.clock.now(), member.is_up
        problems = [] if is_up else ["the lease of this node is not renewed"]
        said = {
            "ok": is_up,
            "at": stamp(now, "UTC"),
            "turned_at": None,
            "loop_lag_seconds": 0.0,
            "ledger_writable": is_up,
            "problems": problems,
        }
        return as_json(said, HTTPStatus.OK if is_up else HTTPStatus.SERVICE_UNAVAILABLE)

    def _to(self, where: Where, otherwise: ASGIApp | None = None) -> ASGIApp:
        keys = self.member.keys
        assert keys is not None, "a member has its keys before it answers"
        return Forwarder(where, keys.node, self.member.name, otherwise)

    def _where(self, name: str) -> tuple[str, ListenAddress] | None:
        for each in self.member.members:
            if each.member.name == name and each.is_alive and name != self.member.name:
                host, _, port = each.member.address.rpartition(":")
                return name, ListenAddress(host.strip("[]"), int(port))
        return None
