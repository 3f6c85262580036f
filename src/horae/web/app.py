"""The porch: how a house is seen from outside, on its socket, on a port, and as a page."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from horae.app import new_id
from horae.core.actor import local_actor
from horae.core.entry import Entry
from horae.core.views import CannotRunError
from horae.files.git.repository import Git, is_repository
from horae.files.read import find_plans, read_plan
from horae.hands import AskedTasks, AskedWorkflows, commits
from horae.readiness import readiness_of
from horae.sources.agents.source import Asking
from horae.sources.board.tasks import Board
from horae.sources.crew.lifecycle import parse_lifecycle
from horae.sources.crew.rules import parse_crew
from horae.store.access import BookTokens
from horae.store.sessions import BookSessions
from horae.web.api import Front, app, operation_of
from horae.web.guard import attended, guarded
from horae.web.keys import Keys
from horae.web.page import Papers, routes
from horae.web.peers import Proxies
from horae.web.serve import ListenError, listen_tcp, serve_socket, serve_tcp, url_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from typing import Any, TypeAlias

    from starlette.types import ASGIApp

    from horae.app import House
    from horae.config import Config
    from horae.core.ports import Clock, Listed
    from horae.sources.crew.lifecycle import Lifecycle
    from horae.store.ledger import BookLedger

    Nodes: TypeAlias = Callable[[], Awaitable[list[dict[str, Any]]]]


async def open_porch(
    house: House, *, keys: Keys | None = None, around: Callable[[ASGIApp], ASGIApp] | None = None
) -> Porch:
    """Return the porch of a house; where a port cannot be had, the house says so.

    What is *around* its application decides who answers.
    """
    keys = keys or keys_of(house.config, house.data, clock=house.clock, ledger=house.ledger)
    made = await app_of(house, keys)
    return Porch(house, keys, made if around is None else around(made))


def keys_of(config: Config, data: Path, *, clock: Clock, ledger: BookLedger, **parts: Any) -> Keys:
    """Return who may come in, and by which names the server is asked."""
    outside = (config.server_url or "").rstrip("/")
    proxied = [*(config.server_names or ()), *filter(None, [urlsplit(outside).hostname])]
    hosts = [config.listen.host]
    return Keys(
        data,
        clock=clock,
        tokens=BookTokens(ledger),
        sessions=BookSessions(ledger),
        hosts=hosts,
        proxied=proxied,
        outside=outside,
        **parts,
    )


async def app_of(house: House, keys: Keys, *, nodes: Nodes | None = None) -> ASGIApp:
    """Return the application of a house; *nodes* tells of the machines that share its ledger."""
    agents = Asking(
        ledger=house.ledger,
        clock=house.clock,
        ids=new_id,
        poke=house.engine.note_change,
        check=lambda name: _refuse_unready(house, name),
        zone_name=house.zone_name,
        term=house.term,
    )
    limit, most = house.config.plan_max_bytes, house.config.plan_max_files
    front = Front(
        service=house.service,
        engine=house.engine,
        facts=house.facts,
        log_of=house.log_of,
        clock=house.clock,
        ledger=house.ledger,
        zone_name=house.zone_name,
        since=await house.ledger.newest_event(),
        keys=keys,
        triggers=house.triggers,
        workflows=AskedWorkflows(house.workflows, house.place, clock=house.clock, ids=new_id),
        agent_runs=agents,
        tasks=AskedTasks(
            Board(house.root / house.tasks, root=house.root, limit=limit, most=most),
            clock=house.clock,
            ledger=house.ledger,
            changed=lambda: house.engine.request("board"),
        ),
        changes=(lambda: commits(Git(house.root))) if is_repository(house.root) else None,
        nodes=nodes,
        settings=house.settings,
        is_public=house.config.server_public,
    )
    return app(front, pages=routes(front, papers_of(house)))


async def _refuse_unready(house: House, name: str) -> None:
    """Raise an error unless there is an agent of this name, and it can run; no name is anybody."""
    if name and await house.store.agent(name) is None:
        (await asyncio.to_thread(house.agents)).get(name)
    ready = readiness_of(house.config, card=house.store.agent, text=house.ledger.text)
    why = await ready.of_agent(name) if name else ready.of_nobody()
    if why is not None:
        raise CannotRunError(name or "the request", why)


class Porch:
    """An application with its keys, on a socket and, if one can be had, on a port."""

    def __init__(self, house: House, keys: Keys, made: ASGIApp) -> None:
        self._house = house
        self._made = made
        self.keys = keys
        self._listener = None
        address = house.config.listen
        try:
            self._listener = listen_tcp(
                address.host, address.port, allow_remote=house.config.server_remote
            )
        except ListenError as error:
            house.notes.append(str(error))
        else:
            keys.url = url_of(self._listener)
        if (tokens := house.place.tokens) is not None:
            keys.runs, tokens.is_served, tokens.url = tokens, True, keys.url

    @property
    def link(self) -> str | None:
        """A login link that is good once; None without a port."""
        return self.keys.link() if self.keys.page else None

    async def serve(self, stop: asyncio.Event) -> None:
        """Answer until *stop* is set."""
        house = self._house
        near = attended(
            self._made, self.keys, operation_of=operation_of, actor_of=self._local_actor
        )
        answering = [serve_socket(near, house.data, stop=stop)]
        if self._listener is not None:
            proxies = Proxies.of(house.config.server_trusted_proxies or ())
            wire = guarded(
                self._made,
                self.keys,
                clock=house.clock,
                operation_of=operation_of,
                proxies=proxies,
            )
            answering.append(serve_tcp(wire, self._listener, stop=stop, proxies=proxies))
        await asyncio.gather(*answering)

    async def _local_actor(self, user: int, run: str) -> str:
        return await local_actor(self._house.ledger, uid=user, run=run)


def papers_of(house: House) -> Papers:
    """Return what pages show that stands in the files of a house."""

    async def plans() -> list[str]:
        found = await asyncio.to_thread(find_plans, house.root, most=house.config.plan_max_files)
        return [os.path.relpath(each, house.root) for each in found.plans]

    async def plan(file: str) -> str:
        return (await asyncio.to_thread(read_plan, house.root / file, root=house.root)).text

    async def day(found: Listed) -> Lifecycle | None:
        item = found.item
        if not isinstance(item, Entry):
            return None
        text = await house.ledger.text(item.digest)
        return None if text is None else await asyncio.to_thread(_day, text, item.origin.file)

    return Papers(plans=plans, plan=plan, day=day)


def _day(text: str, manifest: str) -> Lifecycle | None:
    """Return the day of a member, as its part of the manifest names it."""
    members = parse_crew(text, manifest).members
    if not members or members[0].lifecycle is None:
        return None
    path = Path(manifest).parent / members[0].lifecycle
    return parse_lifecycle(read_plan(path).text, str(path)).lifecycle
