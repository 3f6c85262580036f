"""An app on its socket, on a port, and as a page."""

from __future__ import annotations

import asyncio
import os
import socket
from functools import cache
from typing import TYPE_CHECKING, Any, Final, TypeAlias
from urllib.parse import urlsplit

from horae.app import App
from horae.context import new_id
from horae.core.actor import local_actor
from horae.core.views import CannotRunError
from horae.files.git.repository import Git, Logged, is_repository
from horae.sources import agents, board, workflows
from horae.web.api import asgi_app, operation_of
from horae.web.front import Front
from horae.web.guard import Guard, attended
from horae.web.keys import Keys
from horae.web.serve import (
    ListenError,
    Proxies,
    listen,
    listen_tcp,
    serve_socket,
    serve_tcp,
    url_of,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping
    from pathlib import Path

    from starlette.routing import Route
    from starlette.types import ASGIApp

    from horae.config import Config
    from horae.core.lease import NodeLine
    from horae.sources.agents.source import AgentRequests
    from horae.sources.board.routes import BoardRequests
    from horae.sources.workflows.routes import WorkflowRequests

    Nodes: TypeAlias = Callable[[], Awaitable[list[NodeLine]]]


_CONTROL: Final = ""  # the address of the control socket among those that are handed over


async def open_server(
    app: App,
    *,
    keys: Keys | None = None,
    around: Callable[[ASGIApp], ASGIApp] | None = None,
    listeners: Mapping[str, int] | None = None,
) -> WebServer:
    """Return the server of an app; what is *around* it decides which machine answers.

    *listeners* are open already, handed over by an image of the engine before this one.
    """
    keys = keys or keys_of(app.config, app.data, clock=app.clock, **app.context.access)
    made = await web_app(app, keys)
    return WebServer(app, keys, made if around is None else around(made), listeners or {})


def keys_of(config: Config, data: Path, **parts: Any) -> Keys:
    outside = (config.server_url or "").rstrip("/")
    proxied = [*(config.server_names or ()), *filter(None, [urlsplit(outside).hostname])]
    return Keys(data, hosts=[config.listen.host], proxied=proxied, outside=outside, **parts)


async def web_app(app: App, keys: Keys, *, nodes: Nodes | None = None) -> ASGIApp:

    async def ready(name: str) -> None:
        """Raise an error unless the agent of a name exists and can run; "" has no name."""
        context = app.context
        if name and await context.trigger_store.agent(name) is None:
            (await asyncio.to_thread(context.agents)).get(name)
        facts = context.readiness
        why = await facts.of_agent(name) if name else facts.of_nobody()
        if why is not None:
            raise CannotRunError(name or "the request", why)

    @cache
    def agent_runs() -> AgentRequests:
        return agents.source.AgentRequests(
            ledger=app.ledger,
            clock=app.clock,
            ids=new_id,
            poke=app.engine.note_change,
            check=ready,
            zone_name=app.context.zone_name,
            term=app.context.term,
        )

    @cache
    def workflow_runs() -> WorkflowRequests:
        return workflows.routes.WorkflowRequests(app.parts.workflows, new_id)

    @cache
    def tasks() -> BoardRequests:
        return board.routes.BoardRequests(
            app.context.board,
            clock=app.clock,
            ledger=app.ledger,
            changed=lambda: app.engine.request("board"),
        )

    async def commits(most: int) -> list[Logged]:
        return await Git(app.root).log(limit=most)

    front = Front(
        service=app.service,
        engine=app.engine,
        facts=app.facts,
        log_of=app.log_of,
        clock=app.clock,
        ledger=app.ledger,
        zone_name=app.context.zone_name,
        since=await app.ledger.newest_event(),
        keys=keys,
        triggers=app.triggers,
        workflows=workflow_runs,
        agent_runs=agent_runs,
        tasks=tasks,
        changes=commits if is_repository(app.root) else None,
        nodes=nodes,
        root=app.root,
        settings=app.settings,
        is_public=app.config.server_public,
        control=app.control,
        closing=app.closing,
    )

    def pages() -> list[Route]:
        from horae.web.page.routes import routes  # loads jinja2, and what only pages need

        return routes(front, app.root, most_plans=app.config.plan_max_files)

    return asgi_app(front, pages=pages)


class WebServer:
    """The application on the socket of the engine and, if one can be had, on a port."""

    def __init__(self, app: App, keys: Keys, made: ASGIApp, listeners: Mapping[str, int]) -> None:
        self._app = app
        self._made = made
        self.keys = keys
        self._listener = None
        self._is_kept = False
        given = {name: socket.socket(fileno=number) for name, number in listeners.items()}
        self._control = given.pop(_CONTROL, None)
        address, remote = app.config.listen, app.config.server_remote
        try:
            self._listener = given.pop(f"{address} {remote}", None) or listen_tcp(
                address.host, address.port, allow_remote=remote
            )
        except ListenError as error:
            app.notes.append(str(error))
        else:
            keys.url = url_of(self._listener)
        if (tokens := app.place.tokens) is not None:
            keys.runs, tokens.is_served, tokens.url = tokens, True, keys.url
        for each in given.values():  # of an address that is not set any more
            each.close()

    def hand_over(self) -> dict[str, int]:
        """Return the descriptors of what we listen on, where clients wait until they are heard."""
        self._is_kept = True
        address, remote = self._app.config.listen, self._app.config.server_remote
        ours = {_CONTROL: self._control, f"{address} {remote}": self._listener}
        return {name: os.dup(each.fileno()) for name, each in ours.items() if each is not None}

    @property
    def link(self) -> str | None:
        return self.keys.link() if self.keys.page else None

    async def serve(self, stop: asyncio.Event) -> None:
        app = self._app

        async def actor_of(user: int, run: str) -> str:
            return await local_actor(app.ledger, uid=user, run=run)

        near = attended(self._made, self.keys, operation_of=operation_of, actor_of=actor_of)
        self._control = control = self._control or listen(app.data)
        answering = [
            serve_socket(near, app.data, control, stop=stop, is_kept=lambda: self._is_kept)
        ]
        if self._listener is not None:
            proxies = Proxies.of(app.config.server_trusted_proxies or ())
            guard = Guard(self._made, self.keys, app.clock, operation_of, proxies)
            answering.append(serve_tcp(guard, self._listener, stop=stop, proxies=proxies))
        await asyncio.gather(*answering)
