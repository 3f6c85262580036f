"""Show what Horae reads in the example plans: the program of `make show`.

Each command is printed before its output, so that you can run it yourself.
"""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

PLANS = Path("examples") / "nightly"
COMMANDS = (
    ("A plan:", ["cat", str(PLANS / "nightly-digest.org")]),
    ("Its headlines and those of the plans beside it:", ["horae", "query", str(PLANS)]),
    (
        "The workflows, with their blocks and what the blocks exchange:",
        ["horae", "tangle", str(PLANS)],
    ),
    ("The findings of check:", ["horae", "check", str(PLANS)]),
    ("The next two days:", ["horae", "agenda", "--days", "2", str(PLANS)]),
    (
        "One schedule explained, with the clock changes that affect it:",
        ["horae", "explain", "--tz", "Europe/Berlin", "30 2 * * *"],
    ),
    ("The headlines as JSON, for programs:", ["wb", "query", str(PLANS / "deadline-only.org")]),
)


def main() -> int:
    """Run the commands in order, and stop at the first that fails."""
    scripts = Path(sys.executable).parent
    for title, command in COMMANDS:
        print(f"\n{title}\n$ {shlex.join(command)}", flush=True)
        if command[0] == "cat":
            print(Path(command[1]).read_text(), end="", flush=True)
            continue
        done = subprocess.run([scripts / command[0], *command[1:]], check=False)
        if done.returncode:
            return done.returncode
    print("\nEdit a plan in examples/nightly, and run `make show` again.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
