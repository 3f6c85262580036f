"""How soon a browser paints the pages of many entries, and how many bytes that takes.

10,000 entries with 50,000 receipts: `python bench/page.py [ENTRIES]`. Needs chromium.
"""

from __future__ import annotations

import asyncio
import gzip
import os
import sys
import tempfile
from datetime import timedelta
from pathlib import Path
from statistics import median

import httpx

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from horae.core.clock import SystemClock
from horae.core.decide import decide
from horae.core.ports import EntryStep
from horae.core.source import Scan
from horae.org.document import read
from horae.sources.plans.arming import scan_plan
from horae.store.sqlite import SqliteLedger
from web.browser import CHROMIUM, DRIVER, MISSING, Living, browsing, resize

ROUNDS = 5  # receipts of each entry, and looks at each page
AIM_PAINT = 400.0  # milliseconds on a quiet machine
AIM_BYTES = 60_000
PATHS = ("/", "/entries", "/entries?sort=last&page=50", "/timeline")
PAINTED = """const done = arguments[0];
new PerformanceObserver((list, me) => {
  const [paint] = list.getEntriesByName("first-contentful-paint");
  if (paint === undefined) return;
  me.disconnect();
  done(paint.startTime);
}).observe({type: "paint", buffered: true});"""


def plan(entries: int) -> str:
    """Return a plan whose entries run once a day each, half a day from now."""
    hour = (SystemClock().now().hour + 12) % 24
    return "".join(
        f"* Entry number {n} :workflow:\n:PROPERTIES:\n:SCHEDULE: {n % 60} {hour} * * *\n"
        f":CATCHUP: none\n:COMMAND: true\n:END:\n"
        for n in range(entries)
    )


async def remember(root: Path, text: str) -> int:
    """Give the entries of a plan a past, and return how many receipts that is."""
    now, count = SystemClock().now(), 0
    at = now - timedelta(days=ROUNDS + 1)
    ledger = await SqliteLedger.open(root / ".horae", now=at)
    scanned = scan_plan(read(text), file="plan.org", zone_name="UTC")
    await ledger.scan("org", Scan(tuple(scanned)), now=at, term=1)
    for _ in range(ROUNDS):
        at += timedelta(days=1)
        while due := await ledger.due(now=at):
            steps = [EntryStep(each.entry, decide(each.entry, now=at)) for each in due]
            count += len(await ledger.decide(steps, now=at, term=1))
    await ledger.close()
    return count


def main() -> int:
    """Measure, and print what came out beside what we aim at."""
    if CHROMIUM is None or DRIVER is None:
        print(f"  {MISSING}")
        return 0
    entries = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
    with tempfile.TemporaryDirectory() as name:
        root, text = Path(name, "plans"), plan(entries)
        root.mkdir()
        (root / "plan.org").write_text(text, encoding="utf-8")
        (root / "horae.toml").write_text('zone = "UTC"\n', encoding="utf-8")
        receipts = asyncio.run(remember(root, text))
        load = os.getloadavg()[0]
        print(
            f"{entries:,} entries, {receipts:,} receipts; load {load:.1f} on {os.cpu_count()} cores"
        )
        app = Living(root)
        app.start()
        try:
            measure(app, Path(name, "profile"), (root / ".horae" / "token").read_text().strip())
        finally:
            app.end()
    return 0


def measure(app: Living, profile: Path, token: str) -> None:
    """Print the bytes and the first paint of each page."""
    with browsing(profile) as driver:
        resize(driver, 1440)
        driver.get(app.link)
        for path in PATHS:
            times = []
            for _ in range(ROUNDS):
                driver.get(app.url + path)
                times.append(float(driver.execute_async_script(PAINTED)))
            sent = {"Authorization": f"Bearer {token}"}
            page = httpx.get(app.near + path, headers=sent, timeout=60).content
            size, paint = len(gzip.compress(page, 5)), median(times)
            is_met = size <= AIM_BYTES and paint <= AIM_PAINT
            print(
                f"  {path:<28} {size:>7,} bytes compressed, first paint {paint:5.0f} ms;"
                f" aim {AIM_BYTES:,} and {AIM_PAINT:.0f} ms: {'met' if is_met else 'not met'}"
            )


if __name__ == "__main__":
    sys.exit(main())
