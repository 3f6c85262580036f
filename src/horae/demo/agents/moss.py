"""An agent: what it is handed comes in on stdin, and what it prints is its answer."""

import os
import sys
from pathlib import Path

DIARY = Path("diary.txt")


def main() -> None:
    """Do the task there is, else look around."""
    handed = sys.stdin.read()
    task = os.environ.get("HORAE_TASK")
    if task is not None:
        with DIARY.open("a") as diary:
            diary.write(f"moss has done task {task}\n")
        print(f"task {task} is done")
        return
    lines = len(DIARY.read_text().splitlines()) if DIARY.exists() else 0
    print(f"was handed {len(handed.splitlines())} lines, and the diary has {lines}")


if __name__ == "__main__":
    main()
