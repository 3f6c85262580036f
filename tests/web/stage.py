"""A real engine in a directory of its own: in this process, or in one that can be killed."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from contextlib import asynccontextmanager, contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import httpx
from starlette.applications import Starlette

from horae.app import Runners
from horae.context import block_agents
from horae.core.access import Sessions, Tokens
from horae.core.actor import local_actor
from horae.core.clock import SystemClock
from horae.core.engine import Engine
from horae.core.entry import Work
from horae.core.gate import Capacity
from horae.core.service import Service
from horae.core.views import EngineFacts
from horae.files.git.trees import Trees
from horae.process.processes import LOG_NAME, Processes
from horae.process.run_settings import RunSettings
from horae.sources.agents.runner import Registry
from horae.sources.agents.source import AgentRequests
from horae.sources.board.routes import BoardRequests
from horae.sources.board.tasks import Board
from horae.sources.crew.rules import agent_state
from horae.sources.plans.runner import CommandRunner
from horae.sources.plans.source import OrgSource
from horae.sources.triggers.runner import PromptRunner
from horae.sources.triggers.service import Triggers
from horae.sources.triggers.source import TriggerSource
from horae.sources.triggers.store import TriggerStore
from horae.sources.workflows.routes import WorkflowRequests
from horae.sources.workflows.runner import WorkflowRunner
from horae.store.sqlite import SqliteLedger
from horae.web import SOCKET, guard
from horae.web.api import asgi_app, operation_of
from horae.web.front import Front
from horae.web.guard import Guard, attended
from horae.web.keys import Keys
from horae.web.serve import listen_tcp, serve_socket, serve_tcp, url_of
from waiting import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

    import pytest

    from horae.core.ports import Clock, Runner


class Waits:
    """Counts the answers that the guard delays, and delays them until it is released."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        self.released = asyncio.Event()
        self.released.set()
        monkeypatch.setattr(guard, "sleep", self._sleep)

    async def _sleep(self, seconds: float) -> None:
        assert seconds == guard.SLOWED
        self.count += 1
        await self.released.wait()

    async def is_delayed(self, answer: Awaitable[httpx.Response], status: int = 401) -> bool:
        before = self.count
        assert (await answer).status_code == status
        return self.count > before


COOKIE = "horae-session"  # of the page, under its own name
JSON = {"Content-Type": "application/json"}


def command(title: str, line: str, *properties: str) -> str:
    """Return a workflow that calls a program when it is asked to."""
    drawer = "".join(f"{each}\n" for each in (f":COMMAND: {line}", *properties))
    return f"* {title} :workflow:\n:PROPERTIES:\n{drawer}:END:\n"


def shell(title: str, script: str, *properties: str) -> str:
    """Return a workflow that runs a line of the shell when it is asked to."""
    return command(title, f"sh -c '{script}'", *properties)


PLAN = "".join(
    [
        command("Digest", "echo all the news", ":SCHEDULE: 0 9 * * *", ":ID: digest-1"),
        shell("Fails", "echo oh no; exit 3"),
        shell("Long", "echo begun; exec sleep 60"),
        command("Soil/water & light", "echo wet"),
    ]
)


def _near(request: httpx.Request) -> httpx.Request:
    """Return a request as a browser sends it: names below localhost are on this machine."""
    if not request.url.host.endswith(".localhost"):
        return request
    url = request.url.copy_with(host="127.0.0.1")
    return httpx.Request(
        request.method,
        url,
        headers=request.headers,
        stream=request.stream,
        extensions=request.extensions,
    )


class Near(httpx.AsyncHTTPTransport):
    """A wire that finds the page's own name."""

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        return await super().handle_async_request(_near(request))


class NearSync(httpx.HTTPTransport):
    """The same for who waits."""

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        return super().handle_request(_near(request))


@asynccontextmanager
async def keyed(folder: Path, *, clock: Clock, **parts: Any) -> AsyncIterator[Keys]:
    """Give the keys of a directory, with the tokens and sessions of an empty ledger."""
    ledger = await SqliteLedger.in_memory()
    tokens, sessions = Tokens(ledger), Sessions(ledger)
    yield Keys(folder, clock=clock, tokens=tokens, sessions=sessions, **parts)
    await ledger.close()


async def logged_in(keys: Keys, name: str = "operator", *, cookie: str = COOKIE) -> dict[str, str]:
    """Return the header of a browser that has logged in with a token."""
    session = await keys.begin_session(name, "a browser")
    assert session is not None
    return {"Cookie": f"{cookie}={session}"}


class Here:
    """An engine in this process, and a client on its socket."""

    def __init__(self, front: Front, data: Path) -> None:
        self.front = front
        self.data = data
        self.serving = Starlette()
        self.stop = asyncio.Event()
        wire = httpx.AsyncHTTPTransport(
            uds=str(data / SOCKET), limits=httpx.Limits(max_connections=None), verify=False
        )
        self.client = httpx.AsyncClient(transport=wire, base_url="http://localhost", timeout=60)

    @property
    def keys(self) -> Keys:
        """Who may come in on a port."""
        assert self.front.keys is not None
        return self.front.keys

    @property
    def token(self) -> dict[str, str]:
        """The header that lets somebody in."""
        return {"Authorization": f"Bearer {self.keys.token}"}

    @asynccontextmanager
    async def on_port(self, **settings: Any) -> AsyncIterator[httpx.AsyncClient]:
        """Give a client without a token on a port, with the guard before the application."""
        listener = listen_tcp("127.0.0.1", 0)
        self.keys.url = url_of(listener)
        guard = Guard(
            self.serving,
            self.keys,
            clock=self.front.clock,
            operation_of=operation_of,
            **settings,
        )
        stop = asyncio.Event()
        serving = asyncio.create_task(serve_tcp(guard, listener, stop=stop))
        try:
            limits = httpx.Limits(max_connections=None)
            async with httpx.AsyncClient(
                base_url=self.keys.url, timeout=60, transport=Near(limits=limits)
            ) as client:
                yield client
        finally:
            stop.set()
            await serving

    async def get(self, path: str, **query: object) -> Any:
        """Return the answer to a question that can be answered."""
        asked = {name.rstrip("_"): str(value) for name, value in query.items()}
        answer = await self.client.get(f"/api/v1/{path}", params=asked)
        assert answer.status_code == 200, answer.text
        return answer.json()

    async def post(self, path: str, body: object = None, *, key: str | None = None) -> Any:
        """Return what came of a request that can be honoured."""
        answer = await self.ask(path, body, key=key)
        assert answer.status_code == 200, answer.text
        return answer.json()

    async def ask(
        self, path: str, body: object = None, *, key: str | None = None
    ) -> httpx.Response:
        headers = {} if key is None else {b"Idempotency-Key": key.encode()}
        return await self.client.post(f"/api/v1/{path}", json=body or {}, headers=headers)

    async def ended(self, receipt: int) -> Any:
        """Return a receipt when it is final."""

        async def final() -> Any:
            told = await self.get(f"receipts/{receipt}")
            return told if told["ended_at"] else None

        return await until(final)

    async def running(self, entry: str) -> int:
        """Ask for a run, and return its number when it has put something out."""
        receipt = (await self.post(f"entries/{entry}/run"))["receipt"]

        async def begun() -> Any:
            return (await self.get(f"receipts/{receipt}"))["runs"]

        number = int((await until(begun))[0]["run"])
        await until(lambda: self.log(number))
        return number

    async def log(self, run: int, **query: object) -> bytes:
        """Return what a run has put out."""
        asked = {name.rstrip("_"): str(value) for name, value in query.items()}
        answer = await self.client.get(f"/api/v1/runs/{run}/log", params=asked)
        assert answer.status_code == 200, answer.text
        return answer.content


@asynccontextmanager
async def engine(
    root: Path,
    plan: str = PLAN,
    *,
    slots: int = 4,
    keys: Callable[..., Keys] = lambda data, **parts: Keys(data, clock=SystemClock(), **parts),
) -> AsyncIterator[Here]:
    """Give an engine that keeps a plan and answers on its socket."""
    if not (root / "plan.org").exists():
        (root / "plan.org").write_text(plan)
    data, clock = root / ".horae", SystemClock()
    ledger = await SqliteLedger.open(data, now=clock.now())
    async with Processes(data) as processes:
        place = RunSettings(root, data, os.environ, timedelta(seconds=60))
        registry, store = Registry(command=lambda: ("cat",)), TriggerStore(ledger)
        agents = block_agents(
            lambda: registry, processes, place, Trees(root, data), card=store.agent
        )
        runners: dict[Work, tuple[Runner, None]] = {
            Work.COMMAND: (CommandRunner(processes, place), None),
            Work.PROMPT: (PromptRunner(agents.find, store, ledger.text), None),
        }
        engine = Engine(
            clock=clock,
            ledger=ledger,
            runner=Runners(runners.get),
            sources=[OrgSource(root, zone_name="UTC"), TriggerSource(TriggerStore(ledger))],
            capacity=Capacity(slots),
        )
        triggers = Triggers(
            store=store,
            ledger=ledger,
            clock=clock,
            ids=lambda: str(uuid4()),
            poke=engine.note_change,
        )
        service = Service(
            ledger=ledger,
            clock=clock,
            ids=new_id,
            poke=engine.note_change,
            agent_state=agent_state,
            again=triggers.again,
        )

        async def known(name: str) -> None:
            if name:
                registry.get(name)

        asking = AgentRequests(
            ledger=ledger, clock=clock, ids=new_id, poke=engine.note_change, check=known
        )
        board = Board(root / "board" / "tasks")
        workflows = WorkflowRequests(WorkflowRunner(processes, place, clock=clock), new_id)
        front = Front(
            service=service,
            engine=engine,
            facts=lambda: EngineFacts(True, str(data), pid=os.getpid()),
            log_of=lambda run: place.directory_of(run) / LOG_NAME,
            clock=clock,
            ledger=ledger,
            keys=keys(data, tokens=Tokens(ledger), sessions=Sessions(ledger)),
            triggers=triggers,
            workflows=lambda: workflows,
            agent_runs=lambda: asking,
            root=root,
            tasks=lambda: BoardRequests(
                board, clock=clock, ledger=ledger, changed=engine.note_change
            ),
        )
        here = Here(front, data)
        here.serving = asgi_app(front)
        await engine.start()
        turning = asyncio.create_task(engine.run())

        async def actor_of(user: int, run: str) -> str:
            return await local_actor(ledger, uid=user, run=run)

        near = attended(here.serving, here.keys, operation_of=operation_of, actor_of=actor_of)
        serving = asyncio.create_task(serve_socket(near, data, stop=here.stop))
        await listening(data)
        try:
            yield here
        finally:
            await here.client.aclose()
            here.stop.set()
            await serving
            await engine.stop(within=timedelta(0))
            turning.cancel()
            with suppress(asyncio.CancelledError):
                await turning
    await ledger.close()


def new_id() -> str:
    """Return a name that nothing else has."""
    return os.urandom(6).hex()


async def listening(data: Path) -> None:
    """Return when the socket is there."""
    await until((data / SOCKET).exists)


@contextmanager
def engine_process(
    root: Path, plan: str = PLAN, *, slots: int = 4
) -> Iterator[subprocess.Popen[str]]:
    """Give an engine in a process of its own."""
    (root / "plan.org").write_text(plan)
    with subprocess.Popen(
        [sys.executable, __file__, str(root), str(slots)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        try:
            yield process
        finally:
            if process.poll() is None:
                process.communicate("", timeout=20)


async def _main(root: Path, slots: int) -> None:
    async with engine(root, slots=slots) as here, here.on_port():
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        loop = asyncio.get_running_loop()
        over = asyncio.Event()
        loop.add_reader(sys.stdin.fileno(), over.set)
        await over.wait()


if __name__ == "__main__":
    asyncio.run(_main(Path(sys.argv[1]), int(sys.argv[2])))
