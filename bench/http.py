"""How fast a running engine tells how things stand, and whether it is late meanwhile.

500 questions a second for 30 seconds on a port, with the token, beside entries that fire every
second; the questions come from another process. Then the same beside 50 who listen to the events
and take nothing of them. `python bench/http.py [SECONDS [RATE]]`.
"""

from __future__ import annotations

# ruff: noqa: A005, E402, F401
import os
import sys

# Python looks beside a program first: here, and in every program beside this one, `http` would
# be this file. So it steps aside, and whoever asked for Python's own gets that.
_HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:] = [path for path in sys.path if os.path.abspath(path) != _HERE]
if __name__ == "http":
    del sys.modules["http"]
    import http

import asyncio
import json
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from statistics import median

ENTRIES = 20  # that fire every second
CONNECTIONS = 32
READERS = 50  # who listen to the events and take nothing of them
SLOWED = 10.0  # seconds with them
AIM_P99 = 0.050  # seconds
AIM_LATE = 1.0
AIM_STILL = 0.050
AIM_GROWTH = 20  # MiB

PLAN = "".join(
    f"* Entry {n} :workflow:\n:PROPERTIES:\n:SCHEDULE: * * * * * *\n:COMMAND: true\n:END:\n"
    for n in range(ENTRIES)
) + "".join(
    f"* Daily {n} :workflow:\n:PROPERTIES:\n:SCHEDULE: 0 9 * * *\n:COMMAND: true\n:END:\n"
    for n in range(980)
)


async def serve(root: Path) -> None:
    """Keep a plan, and answer on a port, until standard input ends."""
    from horae.app import build, keep
    from horae.config import load
    from horae.web.api import asgi_app, operation_of
    from horae.web.front import Front
    from horae.web.guard import Guard
    from horae.web.keys import Keys
    from horae.web.serve import listen_tcp, serve_tcp

    stop = asyncio.Event()
    async with build(load(str(root))) as app:
        keys = Keys(app.data, clock=app.clock)
        front = Front(
            service=app.service,
            engine=app.engine,
            facts=app.facts,
            log_of=app.log_of,
            clock=app.clock,
            ledger=app.ledger,
            keys=keys,
        )
        listener = listen_tcp("127.0.0.1", 0)
        guard = Guard(asgi_app(front), keys, clock=app.clock, operation_of=operation_of)
        serving = asyncio.create_task(serve_tcp(guard, listener, stop=stop))
        lags: list[tuple[float, float]] = []
        watching = asyncio.create_task(watch(lags))
        print(json.dumps({"port": listener.getsockname()[1], "token": keys.token}), flush=True)
        loop = asyncio.get_running_loop()
        # The first line says from when on it counts, the end of the input that it is over.
        loop.add_reader(
            sys.stdin.fileno(), lambda: lags.clear() if sys.stdin.readline() else stop.set()
        )
        await keep(app, stop=stop)
        await serving
        watching.cancel()
        page = await app.ledger.receipts(limit=1000)
        late: list[float] = []
        began: list[float] = []
        for filed in page.receipts:
            late.append(filed.lateness.total_seconds())
            runs = await app.ledger.runs_of(filed.number)
            planned_at = filed.receipt.planned_at
            began += [(run.started_at - planned_at).total_seconds() for run in runs]
        print(json.dumps({"late": late, "began": began, "lags": lags}), flush=True)


async def watch(lags: list[tuple[float, float]]) -> None:
    """Note how long the loop does not turn, and how long this process computed meanwhile."""
    while True:
        before, busy = time.perf_counter(), time.process_time()
        await asyncio.sleep(0.005)
        lags.append((time.perf_counter() - before - 0.005, time.process_time() - busy))


async def ask(port: int, token: str, seconds: float, rate: float) -> tuple[list[float], int]:
    """Return how long each answer took, and how many were none."""
    request = (
        f"GET /api/v1/status HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n\r\n"
    ).encode()
    took: list[float] = []
    errors = 0
    begin = time.perf_counter()
    turn = iter(range(int(seconds * rate)))

    async def client() -> None:
        nonlocal errors
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for n in turn:
            due = begin + n / rate
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            writer.write(request)
            head = await reader.readuntil(b"\r\n\r\n")
            length = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0])
            await reader.readexactly(length)
            # From when it was due: a client that had to wait for its turn waited, too.
            took.append(time.perf_counter() - due)
            errors += not head.startswith(b"HTTP/1.1 200")
        writer.close()

    await asyncio.gather(*(client() for _ in range(CONNECTIONS)))
    return sorted(took), errors


def deaf(port: int, token: str) -> socket.socket:
    """Return a connection that asks for all events and takes nothing of them."""
    wire = socket.socket()
    wire.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    wire.connect(("127.0.0.1", port))
    request = "GET /api/v1/events/stream?after=0 HTTP/1.1\r\nHost: localhost\r\n"
    wire.sendall(f"{request}Authorization: Bearer {token}\r\n\r\n".encode())
    return wire


def memory_of(process: int) -> float:
    """Return how many MiB of memory a process uses."""
    pages = int(Path(f"/proc/{process}/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGESIZE") / 2**20


def main() -> None:
    """Measure, and print what came out beside what we aim at."""
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 30.0
    rate = float(sys.argv[2]) if len(sys.argv) > 2 else 500.0
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        (root / "plan.org").write_text(PLAN, encoding="utf-8")
        with subprocess.Popen(
            [sys.executable, __file__, "--serve", name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "TZ": "UTC"},
        ) as engine:
            assert engine.stdout is not None
            assert engine.stdin is not None
            where = json.loads(engine.stdout.readline())
            time.sleep(3)  # until all are known and fire
            engine.stdin.write("now\n")
            engine.stdin.flush()
            took, errors = asyncio.run(ask(where["port"], where["token"], seconds, rate))
            before = memory_of(engine.pid)
            wires = [deaf(where["port"], where["token"]) for _ in range(READERS)]
            slowed, _ = asyncio.run(ask(where["port"], where["token"], SLOWED, rate))
            growth = memory_of(engine.pid) - before
            for wire in wires:
                wire.close()
            engine.stdin.close()
            told = json.loads(engine.stdout.readline())
    p99 = took[int(len(took) * 0.99)]
    late, began = sorted(told["late"]), sorted(told["began"])
    late99, began99 = (each[int(len(each) * 0.99)] for each in (late, began))
    print(f"{len(took):,} answers in {seconds:g} s beside {ENTRIES} entries that fire each second")
    print(f"  load of the machine {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    print(
        f"  half within {median(took) * 1e3:.1f} ms, 99 % within {p99 * 1e3:.1f} ms, "
        f"the slowest {took[-1] * 1e3:.1f} ms, {errors} errors; aim 50 ms: {said(p99 <= AIM_P99)}"
    )
    slow99 = slowed[int(len(slowed) * 0.99)]
    print(
        f"  beside {READERS} slow readers of events, {SLOWED:g} s: 99 % within "
        f"{slow99 * 1e3:.1f} ms, {growth:+.1f} MiB of memory; aim {AIM_GROWTH} MiB: "
        f"{said(growth <= AIM_GROWTH)}"
    )
    print(
        f"  the newest {len(late)} receipts: 99 % decided within {late99 * 1e3:.0f} ms, "
        f"begun within {began99 * 1e3:.0f} ms; aim 1 s: {said(began99 <= AIM_LATE)}"
    )
    lag = max(lag for lag, _ in told["lags"])
    # What it did not compute meanwhile it waited for a core, as on a machine that is busy.
    own = max(min(each) for each in told["lags"])
    print(
        f"  the loop stood still for {lag * 1e3:.0f} ms at most, computing for {own * 1e3:.0f} ms; "
        f"aim 50 ms: {said(own <= AIM_STILL)}"
    )


def said(is_met: bool) -> str:
    """Return whether an aim is met, in words."""
    return "met" if is_met else "not met"


if __name__ == "__main__":
    if sys.argv[1:2] == ["--serve"]:
        asyncio.run(serve(Path(sys.argv[2])))
    else:
        main()
