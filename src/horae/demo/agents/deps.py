"""An agent: the prompt is its standard input, and what it prints is its answer."""

import os
import sys
from pathlib import Path

PINS = Path("requirements.txt")
LATEST = Path("latest.txt")


def main() -> None:
    """Do the task, or update the first dependency that is out of date."""
    sys.stdin.read()  # a real agent would read its prompt
    answer = task() if "HORAE_TASK" in os.environ else update()
    if not answer.startswith("NO-WORK"):
        with Path("activity.log").open("a") as log:
            log.write(f"{answer}\n")
    print(answer)


def task() -> str:
    """Return what to say about a task of the board."""
    return f"task {os.environ['HORAE_TASK']} completed by {os.environ['HORAE_AGENT']}"


def update() -> str:
    """Write one newer version into the requirements."""
    text = PINS.read_text()
    for old, new in zip(text.split(), LATEST.read_text().split(), strict=True):
        if old != new:
            with PINS.open("w") as pins:
                pins.write(text.replace(old, new))
            return f"update {old} to {new.partition('==')[2]}"
    return "NO-WORK: all dependencies are up to date"


if __name__ == "__main__":
    main()
