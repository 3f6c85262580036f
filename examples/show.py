"""Show what Horae reads out of the example plan: what `make show` runs.

Each command is printed before its output, so that it can be typed again.
"""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

PLANS = Path("examples") / "nightly"
COMMANDS = (
    ("The plan, as it was written:", ["cat", str(PLANS / "nightly-digest.org")]),
    ("What is written on each headline:", ["horae", "query", str(PLANS)]),
    ("What the workflows resolve to:", ["horae", "tangle", str(PLANS)]),
    ("What may not be meant, in all plans:", ["horae", "check", str(PLANS)]),
    ("What comes in the next two days:", ["horae", "agenda", "--days", "2", str(PLANS)]),
    (
        "What one rule means, and where clocks change under it:",
        ["horae", "explain", "--tz", "Europe/Berlin", "30 2 * * *"],
    ),
    ("The same for programs:", ["wb", "query", str(PLANS / "deadline-only.org")]),
)


def main() -> int:
    """Run the commands one after the other; the first that fails ends the show."""
    scripts = Path(sys.executable).parent
    for title, command in COMMANDS:
        print(f"\n{title}\n$ {shlex.join(command)}", flush=True)
        if command[0] == "cat":
            print(Path(command[1]).read_text(), end="", flush=True)
            continue
        done = subprocess.run([scripts / command[0], *command[1:]], check=False)
        if done.returncode:
            return done.returncode
    print("\nEdit a plan under examples/nightly and run `make show` again.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
