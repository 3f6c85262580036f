"""How long a command takes to start, beside Python itself and the imports it needs."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROUNDS = 15
PLAN = "* Digest :workflow:\nSCHEDULED: <2026-06-06 Sat 06:00 +1d>\n"


def best(command: list[str]) -> float:
    """Return the shortest time of several runs of a command, in milliseconds."""
    times = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        times.append(time.perf_counter() - start)
    return min(times) * 1000


def main() -> None:
    """Print each start and its ratio to Python's own."""
    horae = str(Path(sys.executable).parent / "horae")
    with tempfile.TemporaryDirectory() as folder:
        plan = Path(folder) / "plan.org"
        plan.write_text(PLAN)
        nothing = best([sys.executable, "-c", "pass"])
        # The console script itself imports re; a command line needs click, and JSON json.
        script = best([sys.executable, "-c", "import re, sys"])
        imports = best([sys.executable, "-c", "import re, sys, click, json"])
        version = best([horae, "--version"])
        query = best([horae, "query", "--json", str(plan)])
        coming = best([horae, "next", str(plan)])
        subprocess.run([horae, "up", "--seconds", "1", folder], check=True, capture_output=True)
        status = best([horae, "status", "--root", folder])
    print(f"  python -c pass                        {nothing:6.1f} ms")
    print(f"  python -c 'import re, sys'            {script:6.1f} ms")
    print(f"  python -c 'import click, json'        {imports:6.1f} ms")
    print(f"  horae --version                       {version:6.1f} ms   {version / script:.2f}×")
    print(f"  horae query --json plan.org           {query:6.1f} ms   {query / imports:.2f}×")
    print(f"  horae next plan.org                   {coming:6.1f} ms   {coming / imports:.2f}×")
    print(f"  horae status                          {status:6.1f} ms   {status / imports:.2f}×")


if __name__ == "__main__":
    main()
