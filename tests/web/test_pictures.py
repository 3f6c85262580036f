"""The pictures of the documents: pages of the demo in a browser, and a transcript of a terminal.

They are made at each run. `make pictures` lets the demo run until it has much to show, and keeps them
in docs/pictures. In the transcript only the name of the temporary directory, the random host name and
the code of the login link are replaced.
"""

from __future__ import annotations

import base64
import io
import os
import pty
import re
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest
from rich.console import Console
from rich.text import Text

from commands import PipedCommand
from waiting import wait_until
from web.browser import CHROMIUM, DRIVER, MISSING, Living, browsing, paint, resize
from web.person import Person

if TYPE_CHECKING:
    from collections.abc import Iterator

DOCS: Final = Path(__file__).parents[2] / "docs" / "pictures"
IS_KEPT: Final = os.environ.get("HORAE_SHOTS") == "docs"
ENDED: Final = 40 if IS_KEPT else 1  # receipts of the demo that a picture needs
# name -> path, colour scheme, and what is to be seen
VIEWS: Final = {
    "now.png": ("/", "light", "#inbox .inbox > li, [id^=going] [data-key=c], .next > li"),
    "now-dark.png": ("/", "dark", "#inbox .inbox > li, [id^=going] [data-key=c], .next > li"),
    "agents.png": ("/crew", "light", ".agent .ring, .agent .strip li"),
    "timeline.png": ("/timeline?span=10m", "light", "#timeline [data-row] rect.done"),
}
EVERY, SECONDS = ("*/10", 15) if IS_KEPT else ("*", 3)
PLAN: Final = f"""\
* Back up the plan
:PROPERTIES:
:SCHEDULE: {EVERY} * * * * *
:COMMAND:  sh -c 'tar -czf plan.tar.gz plan.org && echo "plan.tar.gz written"'
:END:

* Report a failed backup
:PROPERTIES:
:AFTER:    failed missed of Back up the plan
:COMMAND:  notify-send "The backup did not run"
:END:
"""
TYPED: Final = (
    "cat plan.org",
    f"horae up --log plain --seconds {SECONDS}",
    'horae why "Back up the plan"',
)
ENVIRON: Final = {
    "HOME": os.environ.get("HOME", "/"),
    "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
    "TZ": "UTC",
    "TERM": "xterm-256color",
    "COLUMNS": "150",
    "HORAE_LISTEN": "127.0.0.1:0",
}


@pytest.fixture
def made(tmp_path: Path) -> Path:
    """The directory of the pictures."""
    return DOCS if IS_KEPT else tmp_path


@contextmanager
def demo(folder: Path) -> Iterator[Living]:
    """Run the demo in a folder, with the link of its page."""
    app = Living(folder)
    with PipedCommand("horae", "demo", "--keep", folder, environ=ENVIRON) as running:
        try:
            lines = (re.search(r"http://\S+/login/\S+", line) for line in running.stdout)
            app.link = next(found[0] for found in lines if found)
            yield app
        finally:
            running.send_signal(signal.SIGINT)


@pytest.mark.skipif(CHROMIUM is None or DRIVER is None, reason=MISSING)
def test_each_view_that_the_documents_show_is_drawn(tmp_path: Path, made: Path) -> None:
    known = {each.name for each in DOCS.glob("*.png")}
    with demo(tmp_path / "demo") as app, browsing(tmp_path / "profile") as driver:
        resize(driver, 1200, 820)
        person = Person(driver, app)

        def has_ended() -> bool:
            page = person.ask("receipts?limit=100&status=done", "GET")
            return len(page["receipts"]) >= ENDED

        wait_until(has_ended, within=300)
        for name, (path, scheme, shown) in VIEWS.items():
            paint(driver, scheme)
            person.go(path)
            for selector in shown.split(", "):
                person.until(lambda each=selector: person.one(each), 60)  # type: ignore[misc]
            told: dict[str, Any] = driver.execute_cdp_cmd("Page.captureScreenshot", {})
            (made / name).write_bytes(base64.b64decode(told["data"]))
    assert known == set(VIEWS)


def test_the_transcript_is_what_a_terminal_shows(tmp_path: Path, made: Path) -> None:
    console = Console(record=True, width=150, file=io.StringIO(), force_terminal=True)
    folder = tmp_path / "plan"
    folder.mkdir()
    (folder / "plan.org").write_text(PLAN)
    for command in TYPED:
        if IS_KEPT and " up " in command:  # begin between two runs, and so end between two
            wait_until(lambda: 5 <= time.time() % 10 < 6)
        console.print(Text.assemble(("$ ", "dim"), (command, "bold")), soft_wrap=True)
        shown = said(command, folder).replace(str(folder), "~/myplan").rstrip("\n")
        console.print(Text.from_ansi(shown), soft_wrap=True)
        console.print()
    drawn = console.export_svg(title="horae", clear=False)
    # The picture must not load a font from the network.
    drawn = re.sub(r"\s*@font-face \{.*?\}", "", drawn, flags=re.DOTALL)
    (made / "transcript.svg").write_text(drawn, encoding="utf-8")
    lines = [line.rstrip() for line in console.export_text(clear=False).rstrip().split("\n")]
    text = "\n".join(lines) + "\n"
    (made / "transcript.txt").write_text(text, encoding="utf-8")
    assert "done: plan.tar.gz written" in text


def said(command: str, folder: Path) -> str:
    """Return the output of a command on a terminal, without the code of the login link."""
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        ["bash", "-c", command],
        cwd=folder,
        env=ENVIRON,
        stdin=subprocess.DEVNULL,
        stdout=theirs,
        stderr=theirs,
    ):
        os.close(theirs)
        chunks = []
        while chunk := _read(ours):
            chunks.append(chunk)
    os.close(ours)
    text = b"".join(chunks).decode().replace("\r", "")
    return re.sub(r"http://\S+/login/\S+", "http://horae-5b0c….localhost:7117/login/…", text)


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65536)
    except OSError:  # Linux raises it when the other end is closed
        return b""
