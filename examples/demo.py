"""Keep the hours of a small plan in a directory of its own: what `make run` runs.

python examples/demo.py [SECONDS]
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

PLAN = Path(__file__).parent / "demo" / "plan.org"
TOUR = """\
The plan is in {root}/plan.org: five entries, each with its when one line under its what.

While it runs, try in another terminal (from {root}):
  horae status                  what runs, waits and comes
  horae why "Take three seconds"    what was decided last, and why
  horae run "Say good morning"  one run now, beside the plan
  horae pause shaky             let one rest, and `horae resume shaky`
  horae logs "Count the seconds"
Edit plan.org and save it: it counts at once. Stop it with Ctrl-C and start it again with
`horae up {root}`: what was missed is made good, or says why not.
"""


def main() -> int:
    """Keep the hours until Ctrl-C, or for so many seconds, and show the receipts."""
    seconds = sys.argv[1:2]
    horae = Path(sys.executable).parent / "horae"
    root = Path(tempfile.mkdtemp(prefix="horae-demo-"))
    shutil.copy(PLAN, root)
    print(TOUR.format(root=root), flush=True)
    limit = ["--seconds", seconds[0]] if seconds else []
    done = subprocess.run([horae, "up", root, *limit], check=False)
    print("\nThe last receipts:", flush=True)
    subprocess.run([horae, "history", "--root", root, "--table", "-n", "12"], check=False)
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
