"""Reading plans: cost per byte, hostile shapes, and the ratio to other org readers.

    python bench/org.py            about a minute
    python bench/org.py --quick    a few seconds, small sizes

Everything is measured in this run, on this machine. The peer is `orgparse`; Emacs's
org-element is measured too where Emacs is installed. Memory is the peak resident size of
a process of its own, less that of one that only imported the reader.
"""

from __future__ import annotations

import json
import random
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from horae.org.document import query, read

if TYPE_CHECKING:
    from collections.abc import Callable

WORDS = (
    *(
        "plan",
        "digest",
        "report",
        "send",
        "fetch",
        "events",
        "summary",
        "water",
        "plants",
        "review",
    ),
    *(
        "the",
        "morning",
        "list",
        "of",
        "tasks",
        "that",
        "wait",
        "for",
        "their",
        "hour",
        "and",
        "come",
    ),
)
MB = 1_000_000


def plan(size: int, *, dense: bool = False, seed: int = 1) -> str:
    """Return a plan of about *size* bytes: workflows, components with code, notes with prose.

    A dense one has little under each headline, which is the reader's worst ordinary case.
    """
    pick = random.Random(seed)
    pieces = ["#+TITLE: Plans\n#+TODO: TODO NEXT | DONE\n\nWhat this file is for.\n\n"]
    length = len(pieces[0])
    while length < size:
        piece = _section(pick, len(pieces), dense=dense)
        pieces.append(piece)
        length += len(piece)
    return "".join(pieces)


def _section(pick: random.Random, number: int, *, dense: bool) -> str:
    """Return one section of a plan."""
    stars = "*" * pick.choice((1, 2, 2, 3, 3, 3))
    state = pick.choice(("", "TODO ", "DONE ", "", "NEXT [#A] "))
    title = " ".join(pick.choices(WORDS, k=pick.randint(2, 7)))
    tags = pick.choice(("", " :workflow:", " :component:", " :home:garden:"))
    lines = [f"{stars} {state}{title}{tags}"]
    if pick.random() < 0.4:
        deadline = pick.choice(("", " DEADLINE: <2026-07-04 Sat>"))
        lines.append(f"SCHEDULED: <2026-06-{pick.randint(1, 28):02} 06:00 +1d>{deadline}")
    if pick.random() < 0.5:
        owner = pick.choice(WORDS)
        lines += [":PROPERTIES:", f":ID: id-{number}", f":OWNER: {owner}", ":END:"]
    for _ in range(pick.randint(0, 3 if dense else 12)):
        lines.append(" ".join(pick.choices(WORDS, k=pick.randint(5, 14))))
    if pick.random() < (0.1 if dense else 0.4):
        code = [f"    print({n})" for n in range(pick.randint(1, 3 if dense else 15))]
        lines += ["#+begin_src python :out events", "def main():", *code, "#+end_src"]
    return "\n".join(lines) + "\n"


HOSTILE: dict[str, Callable[[int], str]] = {
    "stars": lambda n: "*" * n,
    "one line": lambda n: "* " + "x" * n,
    "colons": lambda n: "* a " + ":" * n,
    "tags": lambda n: "* a " + ":errands: " * (n // 11),
    "open drawers": lambda n: "* a\n:PROPERTIES:\n:k: v\n" * (n // 23),
    "one open drawer": lambda n: "* a\n:PROPERTIES:\n" + ":k: v\n" * (n // 6),
    "open brackets": lambda n: "* a\nSCHEDULED: " + "<" * n,
    "nesting": lambda n: "".join(f"{'*' * (k % 100 + 1)} a\n" for k in range(n // 53)),
}


def best(work: Callable[[], object], *, seconds: float = 0.4) -> float:
    """Return the shortest time of several runs."""
    shortest, spent = float("inf"), 0.0
    while spent < seconds:
        start = time.perf_counter()
        work()
        taken = time.perf_counter() - start
        shortest, spent = min(shortest, taken), spent + taken
    return shortest


def cost_per_byte(sizes: list[int]) -> None:
    """Print the time per byte from small to large, ordinary and hostile."""
    print("\ncost per byte, ns (best of several), and largest / smallest")
    header = "".join(f"{size / MB:>9.1f} MB" for size in sizes)
    print(f"  {'shape':<16}{header}{'spread':>10}")
    shapes: dict[str, Callable[[int], str]] = {"plan": plan, "dense plan": _dense, **HOSTILE}
    for name, make in shapes.items():
        costs = []
        for size in sizes:
            text = make(size)
            costs.append(best(lambda text=text: read(text)) / len(text) * 1e9)  # type: ignore[misc]
        cells = "".join(f"{cost:>12.2f}" for cost in costs)
        print(f"  {name:<16}{cells}{max(costs) / min(costs):>9.2f}×")


def _dense(size: int) -> str:
    return plan(size, dense=True)


def against_peers(sizes: list[int]) -> None:
    """Print how much faster than others the same file is read."""
    import orgparse  # a peer, not a part

    print("\nread a plan: seconds, and how many times faster than orgparse")
    for size in sizes:
        for name, text in (("plan", plan(size)), ("dense plan", _dense(size))):
            ours = best(lambda text=text: read(text))  # type: ignore[misc]
            ours_rows = best(lambda text=text: query(text))  # type: ignore[misc]
            theirs = best(lambda text=text: _orgparse(orgparse.loads(text)), seconds=0.2)  # type: ignore[misc]
            print(
                f"  {name:<11}{size / MB:>5.1f} MB   read {ours:.4f} s   read and query rows "
                f"{ours_rows:.4f} s   orgparse {theirs:.4f} s   {theirs / ours:.1f}× / "
                f"{theirs / ours_rows:.1f}×"
            )
    emacs = shutil.which("emacs")
    if emacs is None:
        print("  Emacs is not installed here; org-element is not measured")
        return
    for size in sizes[:1]:
        _emacs(emacs, plan(size), size)


def _orgparse(root: object) -> object:
    """Read from orgparse's nodes what our reader has read, too."""
    return [
        (
            node.heading,
            node.todo,
            node.priority,
            node.shallow_tags,
            node.properties,
            node.scheduled,
            node.deadline,
        )
        for node in root[1:]  # type: ignore[index]
    ]


def _emacs(emacs: str, text: str, size: int) -> None:
    """Print the time that org-element takes for the same file, Emacs's start not counted."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "plan.org"
        path.write_text(text)
        lisp = (
            f'(progn (require (quote org)) (find-file "{path}") '
            "(let ((start (float-time))) (org-element-parse-buffer) "
            '(princ (format "%f" (- (float-time) start)))))'
        )
        done = subprocess.run(
            [emacs, "-Q", "--batch", "--eval", lisp], capture_output=True, text=True, check=False
        )
    if done.returncode == 0:
        theirs, ours = float(done.stdout.split()[-1]), best(lambda: read(text))
        print(
            f"  plan       {size / MB:>5.1f} MB   org-element {theirs:.2f} s   {theirs / ours:.0f}×"
        )


def memory(size: int) -> None:
    """Print the peak memory of reading the same file, each reader in a process of its own."""
    ours = _peak("horae", size) - _peak("horae", 0)
    theirs = _peak("orgparse", size) - _peak("orgparse", 0)
    print(f"\npeak memory beyond the imports, {size / MB:.0f} MB")
    print(f"  horae {ours / MB:.0f} MB   orgparse {theirs / MB:.0f} MB   {ours / theirs:.2f}×")


def _peak(reader: str, size: int) -> int:
    """Return the peak resident size of a process that reads a plan, in bytes."""
    command = [sys.executable, __file__, "--peak", reader, str(size)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return int(json.loads(done.stdout))


def _measure_peak(reader: str, size: int) -> None:
    """Read a plan from a file, as a user would, and print the peak resident size."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "plan.org"
        made = [sys.executable, __file__, "--make", str(size), str(path)]
        subprocess.run(made, check=True)  # elsewhere, so that making it costs nothing here
        text = path.read_text()
        if reader == "horae":
            kept: object = read(text)
        else:
            import orgparse  # a peer, not a part

            kept = orgparse.loads(text)
        assert kept is not None
    print(_own_peak())


def _own_peak() -> int:
    """Return this process's peak resident size; what it inherited through exec not counted."""
    status = Path("/proc/self/status")
    if not status.exists():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) * 1024


def main(arguments: list[str]) -> None:
    """Run what was asked for."""
    match arguments:
        case ["--peak", reader, size]:
            _measure_peak(reader, int(size))
        case ["--make", size, path]:
            Path(path).write_text(plan(int(size)))
        case ["--quick"]:
            cost_per_byte([MB // 10, MB])
            against_peers([MB // 10])
        case _:
            cost_per_byte([MB // 10, MB, 10 * MB, 100 * MB])
            against_peers([MB, 10 * MB])
            memory(10 * MB)


if __name__ == "__main__":
    main(sys.argv[1:])
