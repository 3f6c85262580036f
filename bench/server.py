"""How fast a running engine tells how things stand, and whether it is late meanwhile.

500 questions a second for 30 seconds on a port, with the token, beside entries that fire every
second; the questions come from another process. `python bench/server.py [SECONDS [RATE]]`.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

ENTRIES = 20  # that fire every second
CONNECTIONS = 32
AIM_P99 = 0.050  # seconds
AIM_LATE = 1.0

PLAN = "".join(
    f"* Entry {n} :workflow:\n:PROPERTIES:\n:SCHEDULE: * * * * * *\n:COMMAND: true\n:END:\n"
    for n in range(ENTRIES)
) + "".join(
    f"* Daily {n} :workflow:\n:PROPERTIES:\n:SCHEDULE: 0 9 * * *\n:COMMAND: true\n:END:\n"
    for n in range(980)
)


async def serve(root: Path) -> None:
    """Keep a plan, and answer on a port, until standard input ends."""
    from horae.config import load
    from horae.house import keep, open_house
    from horae.server.api import Front, app, operation_of
    from horae.server.guard import guarded
    from horae.server.keys import Keys
    from horae.server.serve import listen_tcp, serve_tcp

    stop = asyncio.Event()
    async with open_house(load(str(root))) as house:
        keys = Keys(house.data, clock=house.clock)
        front = Front(
            desk=house.desk,
            almanac=house.almanac,
            facts=house.facts,
            log_of=house.log_of,
            clock=house.clock,
            ledger=house.ledger,
            keys=keys,
        )
        listener = listen_tcp("127.0.0.1", 0)
        guard = guarded(app(front), keys, clock=house.clock, operation_of=operation_of)
        serving = asyncio.create_task(serve_tcp(guard, listener, stop=stop))
        lags: list[float] = []
        watching = asyncio.create_task(watch(lags))
        print(json.dumps({"port": listener.getsockname()[1], "token": keys.token}), flush=True)
        loop = asyncio.get_running_loop()
        # The first line says from when on it counts, the end of the input that it is over.
        loop.add_reader(
            sys.stdin.fileno(), lambda: lags.clear() if sys.stdin.readline() else stop.set()
        )
        await keep(house, stop=stop)
        await serving
        watching.cancel()
        page = await house.ledger.receipts(limit=1000)
        late: list[float] = []
        began: list[float] = []
        for filed in page.receipts:
            late.append(filed.lateness.total_seconds())
            runs = await house.ledger.runs_of(filed.number)
            planned_at = filed.receipt.planned_at
            began += [(run.started_at - planned_at).total_seconds() for run in runs]
        print(json.dumps({"late": late, "began": began, "lag": max(lags, default=0.0)}), flush=True)


async def watch(lags: list[float]) -> None:
    """Note how long the loop does not turn."""
    while True:
        before = time.perf_counter()
        await asyncio.sleep(0.005)
        lags.append(time.perf_counter() - before - 0.005)


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
            engine.stdin.close()
            told = json.loads(engine.stdout.readline())
    p99 = took[int(len(took) * 0.99)]
    late, began = sorted(told["late"]), sorted(told["began"])
    late99, began99 = (each[int(len(each) * 0.99)] for each in (late, began))
    print(f"{len(took):,} answers in {seconds:g} s beside {ENTRIES} entries that fire each second")
    print(
        f"  half within {median(took) * 1e3:.1f} ms, 99 % within {p99 * 1e3:.1f} ms, "
        f"the slowest {took[-1] * 1e3:.1f} ms, {errors} errors; aim 50 ms: {said(p99 <= AIM_P99)}"
    )
    print(
        f"  the newest {len(late)} receipts: 99 % decided within {late99 * 1e3:.0f} ms, "
        f"begun within {began99 * 1e3:.0f} ms; aim 1 s: {said(began99 <= AIM_LATE)}"
    )
    print(
        f"  the loop stood still for {told['lag'] * 1e3:.0f} ms at most; aim 50 ms: "
        f"{said(told['lag'] <= 0.050)}"
    )


def said(is_met: bool) -> str:
    """Return whether an aim is met, in words."""
    return "met" if is_met else "not met"


if __name__ == "__main__":
    if sys.argv[1:2] == ["--serve"]:
        asyncio.run(serve(Path(sys.argv[2])))
    else:
        main()
