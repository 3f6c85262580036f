"""A whole app behind a real browser: an engine in a process of its own, and chromium."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import subprocess
import sys
from contextlib import contextmanager
from datetime import datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any, Final

import one_run
from horae.app import build, keep
from horae.config import load
from horae.core.clock import SystemClock
from horae.core.decide import decide
from horae.core.ports import EntryStep, Process
from horae.core.receipt import Status
from horae.core.source import Scan
from horae.org.document import read
from horae.sources.board.tasks import Board
from horae.sources.plans.arming import scan_plan
from horae.store.sqlite import SqliteLedger
from horae.web.api import asgi_app, operation_of
from horae.web.app import keys_of
from horae.web.front import Front
from horae.web.guard import Guard
from horae.web.page.routes import routes
from horae.web.serve import listen_tcp, serve_tcp
from reasons import because
from scale import SCALE, scaled

if TYPE_CHECKING:
    from collections.abc import Iterator

    from selenium.webdriver import Chrome

    from horae.app import App
    from horae.web.keys import Keys

CHROMIUM: Final = shutil.which("chromium") or shutil.which("chromium-browser")
DRIVER: Final = shutil.which("chromedriver")
MISSING: Final = "no chromium here; install it with `apt-get install -y chromium chromium-driver`"
SHOTS: Final = Path(__file__).resolve().parents[1] / "screenshots"
ZONE: Final = "Europe/Berlin"
MEBIBYTES: Final = max(90, scaled(2048))  # of a long output, more than is kept
SPOKEN: Final = MEBIBYTES // 6  # of them, before somebody says that they were seen
EVIL: Final = "<img src=x onerror=\"document.title='owned'\"><script>alert(1)</script>"

PLAN: Final = f"""\
#+TITLE: The hours of a small house

* Nightly digest :workflow:news:
:PROPERTIES:
:ID:       digest
:SCHEDULE: 0 2 * * *
:COMMAND:  echo all the news
:END:
Every night at two.

* Water the beds :workflow:garden:daily:
SCHEDULED: <2026-01-01 Thu 07:30 ++1d>
:PROPERTIES:
:COMMAND:  echo wet
:END:

* Poll the mail :workflow:news:
:PROPERTIES:
:ID:       mail
:SCHEDULE: */20 * * * *
:CATCHUP:  none
:COMMAND:  echo no mail
:END:

* Weekly report :workflow:
:PROPERTIES:
:SCHEDULE: 0 9 * * MON; 30 16 * * FRI
:COMMAND:  echo reported
:TZ:       America/New_York
:END:

* Speak slowly :workflow:
:PROPERTIES:
:ID:       slow
:COMMAND:  sh -c 'for n in 1 2 3 4 5 6; do echo "line $n"; sleep 0.4; done'
:END:

* Wait for ever :workflow:
:PROPERTIES:
:ID:       ever
:COMMAND:  sh -c 'echo begun; exec sleep 600'
:END:

* Speak much :workflow:
:PROPERTIES:
:ID:       much
:COMMAND:  sh -c 'i=0; while [ $i -lt {MEBIBYTES} ]; do i=$((i+1)); yes "part $i" | head -c 1048576; echo; [ $((i % {SPOKEN})) != 0 ] || read seen < seen; done; echo the very last; exec sleep 600'
:END:

* Count to twelve million :workflow:
:PROPERTIES:
:ID:       count
:COMMAND:  sh -c 'seq 12000000; printf "\\033[1;31mdone\\033[0m\\n"'
:END:

* Speak in steps :workflow:
:PROPERTIES:
:ID:       steps
:END:
** Fetch :component:
#+begin_src sh :out found:list
seq 5 >&2
echo fetched
#+end_src
** Sum up :component:
#+begin_src sh :in found:list
seq 3 >&2
cat
#+end_src

* Work or not :workflow:
:PROPERTIES:
:ID:       flaky
:COMMAND:  sh -c 'test ! -e broken'
:END:

* Speak markup {EVIL}\x1b[31m\x9b2J :workflow:
:PROPERTIES:
:ID:       evil
:COMMAND:  sh -c 'printf "%b" "\\033[31m<b onclick=x>bold</b>\\033[0m <script>alert(2)</script>\\nFAILED: <i>no</i>\\n"; exit 3'
:END:

* Never read :workflow:
:PROPERTIES:
:SCHEDULE: 0 25 * * *
:COMMAND:  echo never
:END:

* TODO Renew the insurance
DEADLINE: <2026-02-01 Sun>
"""
CREW: Final = """\
* wren
:PROPERTIES:
:DEF: writer.org
:LIFECYCLE: day.org
:INTERVAL: 2h
:END:

* moss
:PROPERTIES:
:DEF: writer.org
:INTERVAL: 3h
:END:
"""
AGENT: Final = """\
* The writer :agent:
:PROPERTIES:
:ID: writer
:RUNNER: command
:COMMAND: cat
:END:
** System prompt
You write.
"""
DAY: Final = """\
#+START: wake_add
* wake_add
:PROPERTIES:
:REPEAT: 3
:NEXT: wake_audit
:END:
* wake_audit
:PROPERTIES:
:NEXT: rem
:END:
* rem
:PROPERTIES:
:KIND: rem
:NEXT: wake_plan
:MIN-INTERVAL: 10m
:END:
* wake_plan
:PROPERTIES:
:NEXT: wake_add
:END:
"""
TASKS: Final = {
    "1-sow.md": "---\nid: 1\ntitle: Sow the beans\nstatus: todo\npriority: high\ntags: [garden]\n---\n",
    "2-pick.md": "---\nid: 2\ntitle: Pick them\nstatus: todo\ndepends_on: [1]\n---\n",
    "3-sweep.md": (
        "---\nid: 3\ntitle: Sweep the paths\nstatus: done\n"
        "cron_schedule: '0 9 * * MON'\ntimezone: Europe/Berlin\n---\n"
    ),
    "4-evil.md": f"---\nid: 4\ntitle: '{EVIL.replace(chr(39), chr(39) * 2)}'\nstatus: backlog\n---\n",
    "5-write.md": "---\nid: 5\ntitle: Write it all down\nstatus: in-progress\nassignee: wren\n---\n",
}


# What a run of a workflow with three steps leaves.
RECORD: Final = {
    "steps": [
        {"name": "Fetch", "status": "done", "lang": "sh", "seconds": 1.5, "after": None},
        {"name": "Sum up", "status": "done", "lang": "python", "seconds": 0.2, "after": "Fetch"},
        {"name": "Count", "status": "failed", "lang": "sh", "error": EVIL, "after": "Fetch"},
        {"name": "Send", "status": "skipped", "lang": "sh", "after": "Sum up"},
    ]
}


def furnish(root: Path) -> None:
    """Write a plan, a crew and a board into a directory."""
    (root / "plan.org").write_text(PLAN)
    (root / "notes").mkdir()
    (root / "notes" / "deep & wide.org").write_text("* Nothing here yet\n")
    crew = root / "crew"
    crew.mkdir()
    for name, text in (("crew.org", CREW), ("writer.org", AGENT), ("day.org", DAY)):
        (crew / name).write_text(text)
    tasks = root / "board" / "tasks"
    tasks.mkdir(parents=True)
    for name, text in TASKS.items():
        (tasks / name).write_text(text)
    (root / "horae.toml").write_text(
        f'zone = "{ZONE}"\n[run]\ndrain = "0s"\n[crew]\ndef = "crew/crew.org"\nstagger = "1h"\n[board]\nauto_dispatch = false\n'
    )


async def live_a_day(root: Path) -> None:
    """Let the ledger of an app have seen a day, and then an hour in which nobody looked."""
    now = SystemClock().now()
    now = now.replace(minute=now.minute // 10 * 10, second=0, microsecond=0)
    began = now - timedelta(hours=26)
    ledger = await SqliteLedger.open(root / ".horae", now=began)
    found = scan_plan(read(PLAN), file="plan.org", zone_name=ZONE)
    await ledger.scan("org", Scan(tuple(found)), now=began, term=1)
    at = began
    while (at := at + timedelta(minutes=10)) < now - timedelta(minutes=65):
        steps = [
            EntryStep(due.entry, decide(due.entry, now=at)) for due in await ledger.due(now=at)
        ]
        for filed in await ledger.decide(steps, now=at, term=1):
            if filed.status is not Status.WAITING:
                continue
            run = await one_run.start(ledger, filed.number, now=at, term=1)
            assert run is not None
            await one_run.running(ledger, run.number, Process(2, 1), now=at, term=1)
            is_bad = filed.number % 7 == 3
            await one_run.end(
                ledger,
                run.number,
                Status.FAILED if is_bad else Status.DONE,
                reason=because("exit code 1: the server said 503" if is_bad else "exit code 0"),
                exit_code=int(is_bad),
                now=at + timedelta(minutes=1 + filed.number % 5),
                term=1,
                facts={"record": RECORD} if filed.title == "Nightly digest" else None,
            )
    unsettled = await ledger.unsettled()
    await ledger.settle([each.number for each in unsettled], now=at, term=1)
    await ledger.close()


def front_of(app: App, keys: Keys) -> Front:
    """Return what of an app others may use."""
    from horae.sources.board.routes import BoardRequests

    return Front(
        service=app.service,
        engine=app.engine,
        facts=app.facts,
        log_of=app.log_of,
        clock=app.clock,
        ledger=app.ledger,
        zone_name=app.context.zone_name,
        keys=keys,
        root=app.root,
        triggers=app.triggers,
        tasks=lambda: BoardRequests(
            Board(app.root / "board" / "tasks"),
            clock=app.clock,
            ledger=app.ledger,
            changed=lambda: app.engine.request("board"),
        ),
    )


async def _main(root: Path, port: int) -> None:
    """Keep an app and answer on a port until the input ends."""
    stop = asyncio.Event()
    async with build(load(str(root))) as app:
        keys = keys_of(app.config, app.data, clock=app.clock, **app.context.access)
        front = front_of(app, keys)
        listener = listen_tcp("127.0.0.1", port)
        keys.url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        made = asgi_app(front, pages=lambda: routes(front, app.root))
        wire = Guard(made, keys, clock=app.clock, operation_of=operation_of)
        serving = asyncio.create_task(serve_tcp(wire, listener, stop=stop))
        asyncio.get_running_loop().add_reader(sys.stdin.fileno(), stop.set)
        keeping = asyncio.create_task(keep(app, stop=stop))
        while app.engine.turned_at is None:
            await asyncio.sleep(0.01)
        sys.stdout.write(f"{keys.link()}\n")
        sys.stdout.flush()
        await keeping
        await serving


class Living:
    """An engine in a process of its own, which can be ended and started again."""

    def __init__(self, root: Path) -> None:
        self.root = root
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = int(probe.getsockname()[1])
        self.near = f"http://127.0.0.1:{self.port}"  # for programs
        self.link = ""
        self._process: subprocess.Popen[str] | None = None

    @property
    def url(self) -> str:
        """Where a browser finds the page."""
        return self.link.partition("/login/")[0]

    def start(self) -> None:
        """Start the engine; return when it answers."""
        clean = {name: value for name, value in os.environ.items() if not name.startswith("WB_")}
        self._process = subprocess.Popen(
            [sys.executable, __file__, str(self.root), str(self.port)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**clean, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
        assert self._process.stdout is not None
        self.link = self._process.stdout.readline().strip()
        assert self.link.startswith("http"), "the engine has started"

    def end(self) -> None:
        """End the engine."""
        if self._process is not None:
            self._process.communicate("", timeout=20)
            self._process = None


@contextmanager
def living(root: Path, *, has_past: bool = True) -> Iterator[Living]:
    """Give a furnished app that an engine keeps."""
    furnish(root)
    if has_past:
        asyncio.run(live_a_day(root))
    app = Living(root)
    app.start()
    try:
        yield app
    finally:
        app.end()


class Stranger:
    """A server on another port of this machine, and all that a browser sends to it."""

    def __init__(self) -> None:
        self.heard: list[str] = []  # request lines and headers
        heard = self.heard

        class Hears(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                heard.append(f"{self.requestline}\n{self.headers}")
                self.send_response(200)
                self.send_header("Content-Type", "text/html")
                # A cookie for all names below localhost, if a browser would take it.
                self.send_header("Set-Cookie", "horae-session=tossed; Domain=localhost; Path=/")
                self.end_headers()
                self.wfile.write(b"<!doctype html><title>A stranger</title><body>Hello.")

            do_POST = do_GET  # noqa: N815 - as the server calls it

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Hears)
        self.port = int(self.server.server_address[1])


@contextmanager
def stranger() -> Iterator[Stranger]:
    """Give a server of somebody else on this machine."""
    made = Stranger()
    serving = Thread(target=made.server.serve_forever, kwargs={"poll_interval": 0.05})
    serving.start()
    try:
        yield made
    finally:
        made.server.shutdown()
        serving.join()
        made.server.server_close()


_WATCH: Final = """
window.refused = [];
document.addEventListener("securitypolicyviolation", (event) => {
  window.refused.push(`${event.violatedDirective} ${event.blockedURI} ${event.sourceFile}`);
});
"""


@contextmanager
def browsing(profile: Path) -> Iterator[Chrome]:
    """Give a browser with a new, empty profile."""
    from selenium.webdriver import Chrome, ChromeOptions, ChromeService

    options = ChromeOptions()
    options.binary_location = CHROMIUM or ""
    for flag in (
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-sync",
        "--no-first-run",
        f"--user-data-dir={profile}",
    ):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = Chrome(options=options, service=ChromeService(DRIVER))
    try:
        driver.set_page_load_timeout(15)
        driver.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": _WATCH})
        yield driver
    finally:
        driver.quit()


def resize(driver: Chrome, width: int, height: int = 900) -> None:
    """Give the window a size, also one that no desktop would."""
    size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    driver.execute_cdp_cmd("Emulation.setScrollbarsHidden", {"hidden": True})


def paint(driver: Chrome, scheme: str) -> None:
    """Let the browser prefer light or dark."""
    feature = {"name": "prefers-color-scheme", "value": scheme}
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})


def shoot(driver: Chrome, name: str) -> None:
    """Keep a picture of the whole page, if somebody wants to see it: each costs 0.1 s."""
    import base64

    if SCALE < 1 and "HORAE_SHOTS" not in os.environ:
        return
    SHOTS.mkdir(exist_ok=True)
    told: dict[str, Any] = driver.execute_cdp_cmd(
        "Page.captureScreenshot", {"captureBeyondViewport": True}
    )
    (SHOTS / f"{name}.png").write_bytes(base64.b64decode(told["data"]))


def complaints(driver: Chrome) -> list[str]:
    """Return what the browser complained of since it was last asked."""
    refused: list[str] = driver.execute_script("return window.refused") or []
    logged: list[dict[str, Any]] = driver.get_log("browser")  # type: ignore[no-untyped-call]
    return [*(str(each["message"]) for each in logged), *refused]


def moment(text: str) -> datetime:
    """Return a moment that a page shows."""
    return datetime.fromisoformat(text)


if __name__ == "__main__":
    asyncio.run(_main(Path(sys.argv[1]), int(sys.argv[2])))
