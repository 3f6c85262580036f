"""What is odd in a plan: every code of `check`, its place, its facts, its fix, and its neighbour."""

import ast
import re
from collections.abc import Iterator
from itertools import permutations, product
from pathlib import Path
from random import Random
from typing import Final, NamedTuple

import pytest
from hypothesis import given, settings

import horae
from horae.errors import ScheduleError
from horae.org import check as room
from horae.org.check import check_plans
from horae.org.document import read
from horae.org.plan import Diagnostic
from horae.timing.repeater import parse_at, parse_repeater
from near_org import text_from, texts
from scale import scaled

ROOT: Final = Path(__file__).resolve().parents[2]
SOURCES: Final = [Path(room.__file__)]
# What is found about time, days and crews is not the kernel's; tests/rules has it.
PAGE: Final = re.sub(
    r"^## (?:Time|Properties and commands|Settings|Lifecycles, crews and agents)\n.*?(?=^## |\Z)",
    "",
    (ROOT / "docs" / "reference" / "check.md").read_text(encoding="utf-8"),
    flags=re.MULTILINE | re.DOTALL,
)
EXAMPLES: Final = sorted((ROOT / "examples").glob("**/*.org"))


class Case(NamedTuple):
    """A small plan that shows one code, and a neighbour that shows nothing at all."""

    code: str
    severity: str
    plan: str
    at: tuple[int, int]  # line and column
    facts: tuple[str, ...]  # what the message tells
    fix: str | None  # a part of the fix; None if there is none to tell
    clean: str
    beside: tuple[str, ...] = ()  # other codes that the same plan cannot help showing

    def __str__(self) -> str:
        return f"{self.code} {self.plan!r}"


def line_below(written: str) -> str:
    """Return a headline with one line below it."""
    return f"* Sow\n{written}\n"


def stamp(written: str) -> str:
    """Return a headline that is scheduled for a stamp, which stands at line 2, column 12."""
    return line_below(f"SCHEDULED: {written}")


def drawer(written: str) -> str:
    """Return a headline with these lines in its drawer, from line 3 on."""
    return line_below(f":PROPERTIES:\n{written}\n:END:")


def steps(*args: str) -> str:
    """Return a workflow of steps A, B, C ... with these header arguments, three lines each."""
    return "* Plan :workflow:\n" + "".join(
        f"** {name} :component:\n#+begin_src js {each}\n#+end_src\n"
        for name, each in zip("ABCDEFGH", args, strict=False)
    )


EMPTY: Final = "workflow-empty"
ONE_STEP: Final = "* Plan :workflow:\n** Step :component:\n"
BLOCK: Final = "#+begin_src js\n1\n#+end_src\n"
ONLY: Final = "keep only SCHEDULED:, DEADLINE: and CLOSED:"

LAYOUT: Final = [
    Case(
        "planning-twice",
        "warning",
        line_below("SCHEDULED: <2026-06-13> DEADLINE: <2026-06-20> SCHEDULED: <2026-06-14>"),
        (2, 12),
        ("SCHEDULED:", "more than once", "the last one is used"),
        "keep one",
        clean=line_below("CLOSED: [2026-06-12] SCHEDULED: <2026-06-13> DEADLINE: <2026-06-13>"),
    ),
    Case(
        "planning-void",
        "error",
        stamp("<2026-06-13> soon"),
        (2, 25),
        ("'soon'", "makes this planning line invalid"),
        ONLY,
        clean=stamp("<2026-06-13> \t"),
    ),
    Case(
        "planning-void",
        "error",
        line_below("\tDEADLINE: <2026-06-20> and CLOSED: [2026-06-21]"),
        (2, 25),
        ("'and CLOSED: [2026-06-21]'",),
        ONLY,
        clean=line_below("\tDEADLINE: <2026-06-20> CLOSED: [2026-06-21]"),
    ),
    Case(
        "planning-void",
        "error",
        line_below("DEADLINE: <2026-06-20> scheduled: <2026-06-13>"),
        (2, 24),
        ("'scheduled: <2026-06-13>'",),
        ONLY,
        clean=line_below("DEADLINE: <2026-06-20> SCHEDULED: <2026-06-13>"),
    ),
    Case(
        "planning-void",
        "error",
        stamp("2026-06-13 09:00"),
        (2, 12),
        ("'2026-06-13 09:00'", "invalid"),
        "SCHEDULED: <2026-06-13 09:00>",
        clean=stamp("<2026-06-13 09:00>"),
    ),
    Case(
        "planning-void",
        "error",
        stamp("soon"),
        (2, 12),
        ("'soon'", "invalid"),
        ONLY,
        clean=line_below("SCHEDULED for soon"),
    ),
    Case(
        "planning-void",
        "error",
        line_below("DEADLINE: <2026-06-20> CLOSED:"),
        (2, 24),
        ("'CLOSED:'", "invalid"),
        ONLY,
        clean=line_below("DEADLINE: <2026-06-20> CLOSED: [2026-06-21]"),
    ),
    Case(
        "planning-void",
        "error",
        stamp("[2026-06-13 Sat"),
        (2, 12),
        ("'[2026-06-13 Sat'", "invalid"),
        "write SCHEDULED: [2026-06-13 Sat]",
        clean=stamp("[2026-06-13 Sat]"),
    ),
    Case(
        "planning-case",
        "error",
        line_below("  Scheduled: <2026-06-13>"),
        (2, 3),
        ("Scheduled:", "is ignored"),
        "SCHEDULED:",
        clean=line_below("Prose.\nscheduled: <2026-06-13>"),
    ),
    Case(
        "planning-misplaced",
        "error",
        line_below("\n SCHEDULED: <2026-06-13>"),
        (3, 2),
        ("SCHEDULED:", "directly below the headline"),
        "move it to the line directly below the headline",
        clean=line_below("#+begin_example\nSCHEDULED: <2026-06-13>\n#+end_example"),
    ),
    Case(
        "planning-misplaced",
        "error",
        line_below("SCHEDULED: <2026-06-13>\nDEADLINE: <2026-06-20>"),
        (3, 1),
        ("DEADLINE:",),
        "move it to the end of the line directly below the headline",
        clean=line_below("SCHEDULED: <2026-06-13>\nThe DEADLINE: <2026-06-20>"),
    ),
    Case(
        "planning-misplaced",
        "error",
        drawer(":A: b") + "CLOSED: [2026-06-13]\n",
        (5, 1),
        ("CLOSED:",),
        "move it to the line directly below the headline",
        clean="* Sow\nCLOSED: [2026-06-13]\n:PROPERTIES:\n:A: b\n:END:\n",
    ),
    Case(
        "planning-misplaced",
        "error",
        line_below("\nscheduled: <2026-06-12>\nSCHEDULED: <2026-06-13>"),
        (4, 1),
        ("SCHEDULED:",),
        "move it to the line directly below the headline",
        clean=line_below("\nscheduled: <2026-06-12>"),
    ),
    Case(
        "planning-typo",
        "warning",
        drawer(":COMMAND: true") + "SCHEDULE: 0 9 * * *\n",
        (5, 1),
        ("SCHEDULE:", "is ignored"),
        ":SCHEDULE: in the drawer",
        clean=drawer(":COMMAND: true") + "Our SCHEDULE: 0 9 * * *\n",
    ),
    Case(
        "planning-typo",
        "warning",
        drawer(":COMMAND: true") + "SHEDULED: <2026-06-13>\n",
        (5, 1),
        ("SHEDULED:",),
        "did you mean SCHEDULED: <…> directly below the headline?",
        clean=drawer(":A: b") + "SHEDULED: <2026-06-13>\n",
    ),
    Case(
        "drawer-twice",
        "error",
        drawer(":A: b") + "*Next\n:PROPERTIES:\n:C: d\n:END:\n",
        (6, 1),
        ("is ignored",),
        "a headline needs a space after *",
        clean=drawer(":A: b") + "* Next\n:PROPERTIES:\n:C: d\n:END:\n",
    ),
    Case(
        "headline-space",
        "error",
        "*Next\nSCHEDULED: <2026-06-13>\n:PROPERTIES:\n:C: d\n:END:\n",
        (1, 1),
        ("this is not a headline",),
        "a headline needs a space after *",
        clean=":PROPERTIES:\n:C: d\n:END:\n*bold*\n",
    ),
    Case(
        "property-twice",
        "warning",
        drawer(":COMMAND: true\n:SCHEDULE: 0 9 * * *\n:SCHEDULE: 0 10 * * *"),
        (5, 12),
        (":SCHEDULE: occurs more than once", "the last one is used"),
        "separate several expressions in one line with ;",
        clean=drawer(":COMMAND: true\n:ENV: A\n:ENV+: B"),
    ),
    Case(
        "drawer-twice",
        "error",
        drawer(":A: b") + ":PROPERTIES:\n:C: d\n:END:\n",
        (5, 1),
        ("its headline has another one above",),
        "keep one drawer",
        clean=drawer(":A: b") + "#+begin_example\n:PROPERTIES:\n:END:\n#+end_example\n",
    ),
    Case(
        "drawer-misplaced",
        "error",
        line_below("Prose.\n  :PROPERTIES:\n  :A: b\n  :END:"),
        (3, 3),
        ("'Prose.'", "between"),
        "directly below the headline",
        clean=line_below("SCHEDULED: <2026-06-13>\n  :PROPERTIES:\n  :A: b\n  :END:"),
    ),
    Case(
        "drawer-misplaced",
        "error",
        line_below("\n:PROPERTIES:\n:A: b\n:END:"),
        (3, 1),
        ("the blank line",),
        "directly below the headline",
        clean=line_below("\n#+begin_example\n:PROPERTIES:\n:A: b\n:END:\n#+end_example"),
    ),
    Case(
        "drawer-void",
        "error",
        line_below(" :Properties:\n:A: b\n:B:c d\n:end:"),
        (4, 1),
        ("':B:c d'",),
        ":KEY: value",
        clean=line_below(" :Properties:\n:A: b\n:B:c: d\n:A+: e\n:end:"),
    ),
    Case(
        "drawer-void",
        "error",
        drawer(":A: b\n  prose"),
        (4, 3),
        ("'prose'", "its properties are ignored"),
        ":KEY: value",
        clean=drawer(":A: b\n  :B: prose"),
    ),
    Case(
        "drawer-void",
        "error",
        drawer(":A:"),
        (3, 1),
        ("':A:'",),
        ":KEY: value",
        clean=drawer(":A: "),
    ),
    Case(
        "drawer-void",
        "error",
        drawer(":A: b\n\n:C: d"),
        (4, 1),
        ("a blank line",),
        "remove it",
        clean=drawer(":A: b\n:C: d"),
    ),
    Case(
        "drawer-void",
        "error",
        "* Sow\n:PROPERTIES:\n:A: b\n* Reap\n",
        (2, 1),
        ("no :END:",),
        "add :END:",
        clean="* Sow\n:PROPERTIES:\n:A: b\n:END:\n* Reap\n",
    ),
    Case(
        "drawer-void",
        "error",
        "* Sow\n:PROPERTIES:\n:A: b",
        (2, 1),
        ("no :END:",),
        "add :END:",
        clean="* Sow\n:PROPERTIES:\n:A: b\n:END:",
    ),
    Case(
        "drawer-void",
        "error",
        "* Sow\n:PROPERTIES:\n:A: b\n\nProse.\n",
        (2, 1),
        ("no :END:",),
        "add :END:",
        clean="* Sow\n:PROPERTIES:\n:A: b\n:END:\n\nProse.\n",
    ),
    Case(
        "drawer-void",
        "error",
        "* Sow\n:PROPERTIES:\n:A: b\n:END: x\nProse.\n",
        (4, 1),
        ("':END: x'",),
        "remove it",
        clean="* Sow\n:PROPERTIES:\n:A: b\n:END: \nProse.\n",
    ),
    Case(
        "tag-typo",
        "warning",
        "* Sow :garden:workfow:\n",
        (1, 15),
        ("'workfow'",),
        ":workflow:",
        clean="* Sow :garden:workflow:\n",
    ),
    Case(
        "tag-typo",
        "warning",
        "* 🌱 Sow :components:\n",
        (1, 10),
        ("'components'",),
        ":component:",
        clean="* 🌱 Sow components\n",
    ),
    Case(
        "tag-typo",
        "warning",
        "* Sow :agnet:\n",
        (1, 8),
        ("'agnet'",),
        ":agent:",
        clean="* Sow :urgent:magenta:age:\n",
    ),
    Case(
        "tag-typo",
        "warning",
        "* Sow :WorkFlow:\n",
        (1, 8),
        ("'WorkFlow'",),
        ":workflow:",
        clean="* Sow :work:flow:workload:\n",
    ),
    Case(
        "tag-void",
        "warning",
        "* Sow :my-tag:\n",
        (1, 7),
        ("':my-tag:'", "not a valid tag"),
        "letters, digits, _, @, # and %",
        clean="* Sow :my_tag:\n* Sow:my-tag:\n* Sow :my-tag: now\n",
    ),
    Case(
        "block-open",
        "error",
        ONE_STEP + "  #+begin_src js\n1\n",
        (3, 3),
        ("not closed",),
        "#+end_src",
        clean=ONE_STEP + "  #+begin_src js\n1\n#+end_src\n",
        beside=("component-source",),
    ),
    Case(
        "block-open",
        "error",
        ONE_STEP + "#+BEGIN_SRC js\n1\n#+end_src\n",
        (3, 1),
        ("not closed",),
        "#+begin_NAME needs #+end_NAME",
        clean=ONE_STEP + "#+BEGIN_SRC js\n1\n#+END_SRC\n",
        beside=("component-source",),
    ),
    Case(
        "block-open",
        "error",
        ONE_STEP + BLOCK + "#+begin_src js\n2\n",
        (6, 1),
        ("not closed",),
        "#+end_src",
        clean=ONE_STEP + "#+begin_example\n#+begin_src js\n#+end_example\n" + BLOCK,
    ),
]

STAMPS: Final = [
    Case(
        "brackets",
        "error",
        stamp("<2026-06-13 Sat]"),
        (2, 12),
        ("'<2026-06-13 Sat]'", "not one pair"),
        "<2026-06-13 Sat>",
        clean=stamp("<2026-06-13 Sat>"),
    ),
    Case(
        "brackets",
        "error",
        line_below("DEADLINE: [2026-06-13>"),
        (2, 11),
        ("'[2026-06-13>'",),
        "[2026-06-13]",
        clean=line_below("DEADLINE: [2026-06-13]"),
    ),
    Case(
        "brackets",
        "error",
        stamp("<2026-06-13 --2d]"),
        (2, 12),
        ("'<2026-06-13 --2d]'",),
        "<2026-06-13 --2d>",
        clean=stamp("<2026-06-13 Sat +1d --2d>"),
    ),
    Case(
        "brackets",
        "error",
        stamp("<<2026-06-13>>"),
        (2, 12),
        ("'<<2026-06-13>>'", "not one pair"),
        "<2026-06-13>",
        clean=stamp("<2026-06-13>"),
    ),
    Case(
        "diary",
        "error",
        stamp("<%%(diary-float t 4 2)>"),
        (2, 12),
        ("diary", ":SCHEDULE:"),
        None,
        clean=stamp("<2026-06-13>"),
    ),
    Case(
        "date-shape",
        "error",
        stamp("<2026-6-6 09:00 +1d>"),
        (2, 12),
        ("'2026-6-6'", "is ignored"),
        "<2026-06-06 09:00 +1d>",
        clean=stamp("<2026-06-06 09:00 +1d>"),
    ),
    Case(
        "date-shape",
        "error",
        line_below("CLOSED: [2026/06/06]"),
        (2, 9),
        ("'2026/06/06'",),
        "[2026-06-06]",
        clean=line_below("CLOSED: [2026-06-06]"),
    ),
    *(
        Case(
            "date-shape",
            "error",
            stamp(f"<{written}>"),
            (2, 12),
            (f"'{written}'",),
            "YYYY-MM-DD",
            clean=stamp("<2026-06-06>"),
        )
        for written in ("20260606", "6/6/2026", "26-06-06")
    ),
    *(
        Case(
            "date-shape",
            "error",
            stamp(f"<{written} +1d>"),
            (2, 12),
            (f"'{written}'",),
            "<2026-06-06 09:00 +1d>",
            clean=stamp("<2026-06-06 09:00 +1d>"),
        )
        for written in ("2026-06-06T09:00", "2026-06-06T09:00:00Z", "2026-06-06t09:00:00.5+02:00")
    ),
    Case(
        "date-shape",
        "error",
        stamp("<2026/13/45>"),
        (2, 12),
        ("'2026/13/45'",),
        "YYYY-MM-DD",
        clean=stamp("<2026-12-31>"),
    ),
    Case(
        "date-missing",
        "error",
        stamp("<soon 09:00>"),
        (2, 12),
        ("'<soon 09:00>'", "no date"),
        "<YYYY-MM-DD>",
        clean=stamp("<soon 2026-06-13 09:00>"),
    ),
    Case(
        "date-missing",
        "error",
        stamp("[]"),
        (2, 12),
        ("'[]'",),
        "YYYY-MM-DD",
        clean=stamp("[2026-06-13]"),
    ),
    *(
        Case(
            "range",
            "warning",
            stamp(written),
            (2, 12),
            ("read as one",),
            fix,
            clean=stamp("<2026-06-06 Sat 09:00-11:00>"),
        )
        for written, fix in (
            ("<2026-06-06 Sat>--<2026-06-08>", "write <2026-06-06 Sat>; to run on each day"),
            (
                "<2026-06-06 Sat 09:00>--<2026-06-08 Mon 11:00>",
                "<2026-06-06 Sat 09:00 +1d> with :UNTIL: 2026-06-08",
            ),
            (
                "<2026-06-06 Sat 09:00>--<2026-06-06 Sat 11:00>",
                "write <2026-06-06 Sat 09:00-11:00>",
            ),
            ("<2026-06-06 Sat +1w>--<2026-06-08 Mon +1w>", "write <2026-06-06 Sat +1w>"),
            ("<2026-06-06 Sat>--<soon>", "HH:MM-HH:MM"),
        )
    ),
    Case(
        "range",
        "error",
        stamp("<2026-06-06>--<2026-06-08>"),
        (2, 12),
        ("has no effect",),
        "write <2026-06-06>; to run on each day",
        clean=stamp("<2026-06-06>"),
    ),
    *(
        Case(
            "range",
            "error",
            f"* Fair\nSCHEDULED: {written}\n:PROPERTIES:\n:COMMAND: true\n:END:\n",
            (2, 12),
            ("not armed",),
            "<2026-06-06 Sat +1d> with :UNTIL: 2026-06-08",
            clean=stamp("<2026-06-06 Sat>"),
        )
        for written in ("<2026-06-06 Sat>--<2026-06-08 Mon>", "<2026-06-06 Sat>--<2026-06-08>")
    ),
    *(
        Case(
            "date-impossible",
            "error",
            stamp(f"<{written}>"),
            (2, 12),
            (f"'{written}'", "does not exist"),
            None,
            clean=stamp("<2028-02-29>"),
        )
        for written in ("2026-02-30", "2026-02-29", "2026-13-01", "0000-01-01", "abcd-efghi")
    ),
    *(
        Case(
            "time-impossible",
            "error",
            stamp(f"<2026-06-13 {written}>"),
            (2, 12),
            (f"'{written}'", "does not exist"),
            "HH:MM",
            clean=stamp("<2026-06-13 23:59>"),
        )
        for written in ("24:00", "06:60", "6:0", "06:00:00", "06:00-25:00", "9:00am")
    ),
    Case(
        "day-name",
        "warning",
        stamp("<2026-06-13 Fri 09:00>"),
        (2, 12),
        ("2026-06-13", "Sat", "Fri", "the date is used"),
        "<2026-06-13 Sat 09:00>",
        clean=stamp("<2026-06-13 Sat 09:00>"),
    ),
    Case(
        "day-name",
        "warning",
        line_below("DEADLINE: [2026-06-14 MONDAY]"),
        (2, 11),
        ("Sun", "MONDAY"),
        "[2026-06-14 Sun]",
        clean=line_below("DEADLINE: [2026-06-14 SUNDAY]"),
    ),
    Case(
        "day-name",
        "warning",
        stamp("<Mon 2026-06-13>"),
        (2, 12),
        ("Sat", "Mon"),
        "<Sat 2026-06-13>",
        clean=stamp("<Samstag 2026-06-13>"),
    ),
    *(
        Case(
            "repeater-shape",
            "error",
            stamp(f"<2026-06-13 {written}>"),
            (2, 12),
            (f"'{written}'",),
            "write",
            clean=stamp("<2026-06-13 .+2d/4d>"),
        )
        for written in ("+d", "+", "+++1d", ".+", "+-1d", "+1d/", ".+2d/4D")
    ),
    Case(
        "repeater-sign",
        "warning",
        stamp("<2026-06-13 03:20 1d>"),
        (2, 12),
        ("'1d'", "does not repeat"),
        "<2026-06-13 03:20 +1d>",
        clean=stamp("<2026-06-13 03:20 +1d>"),
    ),
    *(
        Case(
            "repeater-unit",
            "error",
            stamp(f"<2026-06-13 {written}>"),
            (2, 12),
            (f"'{written}'", "is not one of h, d, w, m, y"),
            None,
            clean=stamp("<2026-06-13 +1y>"),
        )
        for written in ("+1x", "+1dd", "+1.5d")
    ),
    Case(
        "repeater-unit",
        "error",
        stamp("<2026-06-13 ++2>"),
        (2, 12),
        ("'++2'", "no unit"),
        "write it like ++2d",
        clean=stamp("<2026-06-13 ++2w>"),
    ),
    Case(
        "repeater-zero",
        "error",
        stamp("<2026-06-13 +00d>"),
        (2, 12),
        ("'+00d'",),
        "at least 1",
        clean=stamp("<2026-06-13 +01d>"),
    ),
    Case(
        "repeater-large",
        "error",
        stamp("<2026-06-13 +1000000d>"),
        (2, 12),
        ("'+1000000d'", "999999"),
        "use a larger unit",
        clean=stamp("<2026-06-13 +000999999d>"),
    ),
    *(
        Case(
            "repeater-habit",
            "error",
            stamp(f"<2026-06-13 {written}>"),
            (2, 12),
            (f"'{written}'", "longest"),
            None,
            clean=stamp("<2026-06-13 .+2d/1w>"),
        )
        for written in (".+2d/1d", ".+2d/2d", ".+1w/7d")
    ),
    Case(
        "repeater-hours",
        "error",
        stamp("<2026-06-13 +1h>"),
        (2, 12),
        ("'+1h'", "the date has no time"),
        "add one, such as 06:00",
        clean=stamp("<2026-06-13 09:00 +1h>"),
    ),
    Case(
        "date-twice",
        "warning",
        stamp("<2026-06-13 2026-06-14>"),
        (2, 12),
        ("2 dates", "'2026-06-13' is used"),
        None,
        clean=stamp("<2026-06-13>"),
    ),
    Case(
        "time-twice",
        "warning",
        stamp("<2026-06-13 09:00 10:00>"),
        (2, 12),
        ("2 times", "'10:00' is used"),
        None,
        clean=stamp("<2026-06-13 09:00-10:00>"),
    ),
    Case(
        "repeater-twice",
        "warning",
        stamp("<2026-06-13 +1d ++2w .+3m>"),
        (2, 12),
        ("3 repeaters", "'.+3m' is used"),
        None,
        clean=stamp("<2026-06-13 +1d -2d>"),
    ),
]

SCHEDULES: Final = [
    Case(
        "inactive",
        "info",
        "* Plan :workflow:\nSCHEDULED: [2026-06-13]\n",
        (2, 12),
        ("square brackets", "never fires"),
        None,
        clean="* Plan\nSCHEDULED: [2026-06-13]\n",
    ),
    Case(
        "inactive",
        "info",
        drawer(":COMMAND: true").replace("\n", "\nSCHEDULED: [2026-06-13]\n", 1),
        (2, 12),
        ("square brackets", "never fires"),
        None,
        clean=drawer(":COMMAND: true").replace("\n", "\nSCHEDULED: <2026-06-13>\n", 1),
    ),
    Case(
        "deadline-only",
        "warning",
        "* Plan :workflow:\nDEADLINE: <2026-07-04 Sat>\n",
        (2, 11),
        ("only a DEADLINE", "never fires"),
        "SCHEDULED:",
        clean="* Plan :workflow:\nDEADLINE: <2026-07-04 Sat> SCHEDULED: <2026-07-01>\n",
    ),
    Case(
        "deadline-only",
        "warning",
        "* Plan :workflow:\n** Inner :workflow:\nDEADLINE: <2026-07-04 Sat>\n",
        (3, 11),
        ("only a DEADLINE",),
        "SCHEDULED:",
        clean="* Plan\nDEADLINE: <2026-07-04 Sat>\n",
    ),
    Case(
        "prose-timestamp",
        "warning",
        "* Plan :workflow:\nEvery day from <2026-06-13 Sat +1d> on.\n",
        (2, 16),
        ("<2026-06-13 Sat +1d>", "does not schedule"),
        "SCHEDULED: <2026-06-13 Sat +1d>",
        clean="* Plan :workflow:\nWritten on [2026-06-13 Sat].\n",
    ),
    Case(
        "prose-timestamp",
        "warning",
        "* Plan <2026-06-13 Sat> :workflow:\n",
        (1, 8),
        ("<2026-06-13 Sat>",),
        "SCHEDULED: <2026-06-13 Sat>",
        clean="* Plan <2026-06-13 Sat>\n",
    ),
    Case(
        "prose-timestamp",
        "warning",
        "* Plan :workflow:\n#+begin_quote\n<2026-01-01>\n#+end_quote\n<2026-06-13>\n",
        (5, 1),
        ("<2026-06-13>",),
        "SCHEDULED: <2026-06-13>",
        clean="* Plan :workflow:\nSCHEDULED: <2026-06-12>\nAlso <2026-06-13>.\n",
    ),
    Case(
        "schedule-both",
        "warning",
        "* Plan :workflow:\nSCHEDULED: <2026-06-13>\n:PROPERTIES:\n:Schedule:  0 6 * * *\n:END:\n",
        (4, 13),
        ("0 6 * * *", "overrides", "<2026-06-13>"),
        "keep the one you mean",
        clean="* Plan :workflow:\nDEADLINE: <2026-06-13>\n:PROPERTIES:\n:SCHEDULE: 0 6 * * *\n:END:\n",
    ),
    Case(
        "schedule-both",
        "warning",
        "* Plan\n:PROPERTIES:\n:COMMAND: true\n:SCHEDULE: 0 6 * * *\n:AFTER: failed\n:END:\n",
        (5, 9),
        (":AFTER: 'failed' overrides :SCHEDULE: '0 6 * * *'",),
        "keep the one you mean",
        clean="* Plan :workflow:\nDEADLINE: <2026-06-13>\n:PROPERTIES:\n:AFTER: failed\n:END:\n",
    ),
    Case(
        "schedule-both",
        "warning",
        "* Plan\nSCHEDULED: <2026-06-13>\n:PROPERTIES:\n:COMMAND: true\n:SCHEDULE: 0 6 * * *\n"
        ":AFTER: failed\n:END:\n",
        (6, 9),
        (":AFTER: 'failed' overrides :SCHEDULE: '0 6 * * *' and SCHEDULED: '<2026-06-13>'",),
        "keep the one you mean",
        clean="* Plan\nSCHEDULED: <2026-06-13>\n:PROPERTIES:\n:COMMAND: true\n:END:\n",
    ),
]

WIRING: Final = [
    Case(
        EMPTY,
        "warning",
        "* Plan :workflow:\n** Step\n" + BLOCK,
        (1, 1),
        ("'Plan'", "has no components", "do nothing"),
        ":component:",
        clean=f"* Plan :workflow:\n** Inner :workflow:\n*** Step :component:\n{BLOCK}"
        "* Call :workflow:\n:PROPERTIES:\n:COMMAND: true\n:END:\n"
        "* Tell :workflow:\n:PROPERTIES:\n:POST: https://example.org/hook\n:END:\n",
    ),
    Case(
        "component-outside",
        "warning",
        f"* Plan :workflow:\n* Step :component:\n{BLOCK}",
        (2, 1),
        ("'Step'", "never runs"),
        ":workflow:",
        clean=f"* Plan :workflow:\n*** Step :component:\n{BLOCK}* Both :workflow:component:\n",
    ),
    Case(
        "component-source",
        "error",
        f"{ONE_STEP}*** Below\n{BLOCK}",
        (2, 1),
        ("'Step'", "no source block"),
        None,
        clean=ONE_STEP + BLOCK,
    ),
    Case(
        "component-source",
        "error",
        f"{ONE_STEP}- item\n  #+begin_src js\n  1\n  #+end_src\n",
        (2, 1),
        ("'Step'",),
        None,
        clean=f"{ONE_STEP}- item\n\nProse.\n{BLOCK}",
    ),
    Case(
        "component-language",
        "error",
        f"{ONE_STEP} #+begin_src\n1\n#+end_src\n",
        (3, 2),
        ("'Step'", "no language"),
        "after #+begin_src",
        clean=ONE_STEP + BLOCK,
    ),
    Case(
        "component-language",
        "error",
        f"{ONE_STEP}#+begin_src :out x\n1\n#+end_src\n",
        (3, 1),
        ("'Step'",),
        "after #+begin_src",
        clean=f"{ONE_STEP}#+begin_src js :out x\n1\n#+end_src\n",
    ),
    Case(
        "component-language",
        "error",
        f"{ONE_STEP}#+begin_src -n 20\n1\n#+end_src\n",
        (3, 1),
        ("'Step'",),
        "after #+begin_src",
        clean=f"{ONE_STEP}#+begin_src js -n 20\n1\n#+end_src\n",
    ),
    Case(
        "input-dangling",
        "error",
        steps(":in x :dir a:in y :in z :in y"),
        (3, 40),
        ("'y'",),
        ":out y",
        clean=steps(":in x :in y", ":out y"),
    ),
    Case(
        "input-dangling",
        "error",
        steps(":out low:number", ":uses net :in low"),
        (6, 26),
        ("'low'", "not the output of any component"),
        ":out low",
        clean=steps(":out low:number", ":uses net :in low:number"),
    ),
    Case(
        "input-scope",
        "error",
        steps(":out x")
        + "** Inner :workflow:\n*** B :component:\n#+begin_src js :in x\n#+end_src\n",
        (7, 16),
        ("'x'", "'Plan'", "do not share outputs"),
        "into the workflow of the other",
        clean=steps(":out x") + "** Inner\n*** B :component:\n#+begin_src js :in x\n#+end_src\n",
    ),
    Case(
        "input-scope",
        "error",
        steps(":in x")
        + "** Inner :workflow:\n*** B :component:\n#+begin_src js :out x\n#+end_src\n",
        (3, 16),
        ("'x'", "'Inner'"),
        "into the workflow of the other",
        clean=steps(":in x", ":out x") + "** Inner :workflow:\n",
    ),
    Case(
        "producer-twice",
        "warning",
        steps(":out x", ":out y", ":out x"),
        (3, 16),
        ("'x'", "'C'", "the later one is used"),
        "its own name",
        clean=steps(":out x", ":out y", ":out z")
        + "** Inner :workflow:\n*** D :component:\n#+begin_src js :out x\n#+end_src\n",
    ),
    Case(
        "cycle",
        "error",
        steps(":in c :out a", ":in a :out b", ":in b :out c", ":in c"),
        (2, 1),
        ("depend on each other",),
        None,
        clean=steps(":out a", ":in a :out b", ":in b :out c", ":in c"),
    ),
    Case(
        "cycle",
        "error",
        steps(":out a", ":in x :out x"),
        (5, 1),
        ("B",),
        None,
        clean=steps(":out a", ":in a :out x"),
    ),
]

NAMES: Final = [
    *(
        Case(
            "id-grammar",
            "error",
            drawer(f":ID:   {written}"),
            (3, 8),
            (written[:40],),
            None,
            clean=drawer(":ID: nightly-digest_2.org"),
        )
        for written in ("two words", "../etc", "..", "größe", "x" * 65)
    ),
    Case(
        "id-grammar",
        "error",
        drawer(":ID: a b\n:ID: "),
        (3, 6),
        ("'a b'",),
        "64",
        clean=drawer(":ID: a\n:ID: "),
    ),
    Case(
        "id-twice",
        "error",
        drawer(":ID: a") + drawer(":ID: b") + drawer(":id: a"),
        (11, 6),
        ("'a'", "plan.org:1"),
        "another ID",
        clean=drawer(":ID: a") + drawer(":ID: b") + drawer(":ID: A"),
    ),
]

CASES: Final = [*LAYOUT, *STAMPS, *SCHEDULES, *WIRING, *NAMES]


def check(plan: str, *, code: str = "") -> list[Diagnostic]:
    """Return what is found; that a plan of few lines has no steps only if that is the *code*."""
    found = horae.check(plan, name="plan.org")
    return [each for each in found if each.code != EMPTY or code == EMPTY]


def codes(found: list[Diagnostic]) -> list[str]:
    return sorted(each.code for each in found)


# Every code


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_finding_has_its_place_its_severity_its_facts_and_its_fix(case: Case) -> None:
    found = check(case.plan, code=case.code)
    assert codes(found) == sorted((case.code, *case.beside))
    [only] = [each for each in found if each.code == case.code]
    assert (only.file, only.line, only.column) == ("plan.org", *case.at)
    assert only.severity == case.severity
    assert [fact for fact in case.facts if fact not in only.message] == []
    assert case.fix is None or case.fix in (only.fix or "")


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_plan_next_to_it_shows_nothing(case: Case) -> None:
    assert check(case.clean, code=case.code) == []


@pytest.mark.parametrize("case", CASES, ids=str)
def test_windows_line_ends_and_a_byte_order_mark_move_no_finding(case: Case) -> None:
    found = check(case.plan)
    assert check(case.plan.replace("\n", "\r\n")) == found
    assert check(f"\ufeff{case.plan}") == found
    assert check("\ufeff" + case.plan.replace("\n", "\r\n")) == found


@pytest.mark.parametrize("case", [each for each in CASES if each.code != "headline-space"], ids=str)
def test_what_stands_above_moves_a_finding_down_and_changes_nothing_else(case: Case) -> None:
    above = "Größe 🌱\r\n\r\n* Prose\n\tMore.\n"
    moved = check(above + case.plan)
    # The message about an ID names the line of the other one.
    told = [each._replace(message="") for each in check(case.plan)]
    assert [each._replace(line=each.line - 4, message="") for each in moved] == told


MAKERS: Final = {"SectionFinding", "error", "warning"}


def written_codes() -> Iterator[str]:
    """Yield the pattern of each code in the source: its letters, `[a-z]+` for what is put in."""
    for node in (node for path in SOURCES for node in ast.walk(ast.parse(path.read_text()))):
        if isinstance(node, ast.Constant) and re.fullmatch(r"[a-z]+(-[a-z]+)+", str(node.value)):
            yield str(node.value)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and len(node.args) > 2:
            code = node.args[1]
            if node.func.id in MAKERS and isinstance(code, ast.Constant):
                yield str(code.value)
            if node.func.id in MAKERS and isinstance(code, ast.JoinedStr):
                yield "".join(
                    str(part.value) if isinstance(part, ast.Constant) else "[a-z]+"
                    for part in code.values
                )


# The codes of the reference page, each with the severities that it names.
ROWS: Final = {
    code: set(severities.split(", "))
    for code, severities in re.findall(
        r"^\| `([a-z-]+)` \| ([a-z, ]+) \| \S.*\. \| \S.*\. \|$", PAGE, re.MULTILINE
    )
}


def test_every_code_in_the_source_has_a_case_here_and_a_row_in_the_reference() -> None:
    patterns = set(written_codes())
    tested = {case.code for case in CASES}
    assert {"planning-void", "brackets", "cycle", "id-twice"} <= patterns
    assert [each for each in patterns if not any(re.fullmatch(each, code) for code in tested)] == []
    assert [code for code in tested if not any(re.fullmatch(each, code) for each in patterns)] == []


def test_the_reference_lists_exactly_these_codes_with_their_severities() -> None:
    severities: dict[str, set[str]] = {}
    for case in CASES:
        severities.setdefault(case.code, set()).add(case.severity)
    assert severities == ROWS
    assert len(ROWS) == len(re.findall(r"^\| `", PAGE, re.MULTILINE))


# No false finding


@pytest.mark.parametrize(
    "plan",
    [
        pytest.param("", id="nothing"),
        pytest.param("Prose, <2026-6-6> and :PROPERTIES: alone.\n", id="no headline"),
        pytest.param("* Sow\nIt is SCHEDULED: <2026-6-6> for now.\n", id="a keyword in a sentence"),
        pytest.param("* Sow\nWe closed: <them> all.\n", id="a word before a bracket"),
        pytest.param("* Sow\nDEADLINE: <2026-06-13 Sat -2d>\n", id="a warning cookie"),
        pytest.param("* Sow\nSCHEDULED: <2026-06-13 Sat +1w --2d>\n", id="a cookie of two dashes"),
        pytest.param("* Plan :workflow:\nCLOSED: <2026-06-13 Sat>\n", id="when it was closed"),
        pytest.param(
            "* Plan :workflow:\n:PROPERTIES:\n:CREATED: <2026-06-13>\n:END:\n", id="a property"
        ),
        pytest.param("* Plan :workflow:\n# since <2026-06-13>\n", id="a remark"),
        pytest.param("* Sow :काम:งานบ้าน:عَمَل:e\u0301:\n", id="tags of any script"),
        pytest.param("* Sow\nSCHEDULED: <2026-06-13 Sat 9:00>\n", id="one digit of an hour"),
        pytest.param("* Sow\nSCHEDULED: <2026-06-13 sat>\n", id="a day name written small"),
        pytest.param("* Sow\n:LOGBOOK:\nCLOCK: [2026-06-13 Sat 09:00]\n:END:\n", id="a logbook"),
        pytest.param("* Sow\n:PROPERTIES:\n:END:\n", id="an empty drawer"),
        pytest.param("* Sow [1/2] :a:b_1:@home:#x:50%:庭:\n", id="tags of many kinds"),
        pytest.param("* Sow\n#+begin_src js\n", id="an open block outside of a component"),
        pytest.param(ONE_STEP + BLOCK, id="a workflow that is run by hand"),
        pytest.param(
            ONE_STEP + "#+begin_src js :in\n#+end_src\n", id="an argument without a value"
        ),
        pytest.param("* Lead :agent:\n:PROPERTIES:\n:ID: lead\n:END:\n", id="an agent"),
        pytest.param(steps(":out a", ":in a", ":in a"), id="one output for two"),
    ],
)
def test_what_is_as_it_should_be_shows_nothing(plan: str) -> None:
    assert check(plan) == []


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: str(path.name))
def test_no_example_shows_an_error(path: Path) -> None:
    text = path.read_bytes().decode("utf-8")
    assert [str(each) for each in horae.check(text) if each.severity == "error"] == []


def test_there_are_examples() -> None:
    assert EXAMPLES


# One cause, one finding


@pytest.mark.parametrize(
    ("plan", "code"),
    [
        pytest.param(
            "* Plan :workflow:\n\nSCHEDULED: <2026-06-13>\n", "planning-misplaced", id="misplaced"
        ),
        pytest.param("* Plan :workflow:\nSCHEDULED: <2026-06-13> x\n", "planning-void", id="void"),
        pytest.param(
            "* Plan :workflow:\nscheduled: <2026-06-13>\n", "planning-case", id="written small"
        ),
        pytest.param(
            "* Plan :workflow:\nSCHEDULED: <2026-6-6> DEADLINE: <2026-07-04>\n",
            "date-shape",
            id="a schedule that says nothing is not a deadline only",
        ),
        pytest.param(
            "* Plan :workflow:\nSCHEDULED: <2026-6-6>\nSee <2026-06-07>.\n",
            "date-shape",
            id="prose",
        ),
        pytest.param("* Sow\nSCHEDULED: <2026-06-13>\r\r\n", "planning-void", id="a stray return"),
    ],
)
def test_one_cause_is_told_once(plan: str, code: str) -> None:
    assert codes(check(plan)) == [code]


HOSTILE: Final = {
    "weekdays in one stamp": stamp(f"<2026-06-13 {'Mon ' * scaled(50_000)}>"),
    "a workflow with a long name": (
        f"* {'x' * scaled(500_000)} :workflow:\n** A :component:\n#+begin_src js :out x\n#+end_src\n"
        "* Plan :workflow:\n"
        + "** B :component:\n#+begin_src js :in x\n#+end_src\n"
        * scaled(10_000)
    ),
    "a component with a long name": (
        "* Plan :workflow:\n"
        + "** A :component:\n#+begin_src js :out x\n#+end_src\n" * scaled(10_000)
        + f"** {'x' * scaled(500_000)} :component:\n#+begin_src js :out x\n#+end_src\n"
    ),
    "tags that are almost one": (
        "* Sow :" + ":".join(f"workflo{chr(0x4E00 + n)}" for n in range(scaled(20_000))) + ":\n"
    ),
    "a long ring": "* Plan :workflow:\n"
    + "".join(
        f"** S{n} :component:\n#+begin_src js :in o{n} :out o{n + 1}\n#+end_src\n"
        for n in range(scaled(20_000))
    )
    + f"** Last :component:\n#+begin_src js :in o{scaled(20_000)} :out o0\n#+end_src\n",
}


@pytest.mark.parametrize("plan", HOSTILE.values(), ids=HOSTILE)
def test_a_report_is_not_much_longer_than_its_plan(plan: str) -> None:
    found = check(plan)
    assert found
    assert max(len(each.message) for each in found) < 600
    assert sum(len(each.message) + len(each.fix or "") for each in found) < 5 * len(plan)


# Many findings, many files


def test_one_plan_may_show_many_findings_in_the_order_of_its_lines() -> None:
    plan = (
        "* Plan :workfow:\n"
        "SCHEDULED: <2026-02-30 25:00 +1x> DEADLINE: <2026-6-6>\n"
        ":PROPERTIES:\n:ID: a b\n:END:\n"
        "** Step :component:\n"
    )
    assert [(each.line, each.column, each.code) for each in check(plan)] == [
        (1, 9, "tag-typo"),
        (2, 12, "date-impossible"),
        (2, 12, "repeater-unit"),
        (2, 12, "time-impossible"),
        (2, 45, "date-shape"),
        (4, 6, "id-grammar"),
        (6, 1, "component-outside"),
    ]


def test_every_ring_is_told_once_at_its_first_member_in_the_order_of_waiting() -> None:
    plan = steps(":in r", ":in q :out p", ":in p :out q", ":in s :out r", ":in r :out s")
    found = check(plan)
    assert [(each.line, each.code) for each in found] == [(5, "cycle"), (11, "cycle")]
    assert [re.findall(r"\b[A-H]\b", each.message) for each in found] == [list("BCB"), list("DED")]


def test_of_several_workflows_that_put_a_name_out_the_first_is_told() -> None:
    others = steps(":out x").replace("Plan", "First") + steps(":out x").replace("Plan", "Second")
    [found] = check(steps(":in x") + others)
    assert (found.line, found.code) == (3, "input-scope")
    assert "'First'" in found.message


def test_each_overridden_producer_is_told_and_the_one_that_counts_is_not() -> None:
    found = check(steps(":out x", ":out x", ":out x"))
    assert [(each.line, each.code) for each in found] == [
        (3, "producer-twice"),
        (6, "producer-twice"),
    ]


def test_findings_of_several_files_are_sorted_by_file_line_column_and_code() -> None:
    bad = "* Sow :my-tag:\nSCHEDULED: <2026-02-30 25:00>\n* Reap :agnet:\n"
    files = [("b.org", bad), ("a/z.org", "* Fine\n"), ("a/b.org", bad), ("B.org", bad)]
    told = [(1, "tag-void"), (2, "date-impossible"), (2, "time-impossible"), (3, "tag-typo")]
    expected = [(name, *each) for name in ("B.org", "a/b.org", "b.org") for each in told]
    for order in permutations(files):
        found = check_plans((name, read(text)) for name, text in order)
        assert [(each.file, each.line, each.code) for each in found] == expected


def test_an_id_belongs_to_one_headline_of_all_the_files() -> None:
    plans = [("a.org", read("Prose.\n" + drawer(":ID: x"))), ("b.org", read(drawer(":ID: x")))]
    [found] = check_plans(plans)
    assert (found.file, found.line, found.column, found.code) == ("b.org", 3, 6, "id-twice")
    assert "a.org:2" in found.message


def test_an_id_that_cannot_be_used_belongs_to_nobody() -> None:
    assert codes(check(drawer(":ID: a b") * 2)) == ["id-grammar", "id-grammar"]


# As text and as data


def test_a_finding_is_one_line_of_text() -> None:
    _, found = horae.check("* Plan :workflow:\nDEADLINE: <2026-07-04>\n", name="pay.org")
    assert str(found).startswith("pay.org:2:11: warning deadline-only: ")
    assert "\n" not in str(found)


def test_a_finding_is_plain_data() -> None:
    [found] = horae.check("* Sow\nSCHEDULED: <2026-6-6>\n")
    assert found.data() == {
        "code": "date-shape",
        "severity": "error",
        "file": "-",
        "line": 2,
        "column": 12,
        "message": found.message,
        "fix": "<2026-06-06>",
    }
    assert {type(value) for value in found.data().values()} == {str, int}


# Whatever is written


def assert_sound(text: str) -> None:
    """Check that each finding of *text* is documented, told in full, and stands in the text."""
    lines = text.removeprefix("\ufeff").split("\n")
    found = horae.check(text)
    for each in found:
        assert each.severity in ROWS[each.code]
        assert each.message.isprintable()  # so nothing in a plan reaches a terminal as an order
        assert 1 <= each.column <= len(lines[each.line - 1]) + 1
    assert found == sorted(found, key=lambda each: (each.line, each.column, each.code))


@settings(max_examples=scaled(5_000), deadline=None)
@given(texts)
def test_no_text_makes_check_raise(text: str) -> None:
    assert_sound(text)


def test_no_text_of_a_great_many_makes_check_raise() -> None:
    random = Random(20260606)
    for _ in range(scaled(40_000)):
        assert_sound(text_from(random))


def test_windows_line_ends_move_no_finding_of_any_plan() -> None:
    random = Random(1)
    for _ in range(scaled(10_000)):
        text = text_from(random).replace("\r", "")
        places = [(each.line, each.column, each.code) for each in horae.check(text)]
        twin = horae.check("\ufeff" + text.replace("\n", "\r\n"))
        assert [(each.line, each.column, each.code) for each in twin] == places


DATES: Final = ("2026-06-06", "2028-02-29", "2026-02-29", "0000-01-01", "abcd-efghi", "2026-W23-6")
TIMES: Final = ("", "06:00", "6:05", "23:59", "24:00", "06:60", "6:0", "06:00-07:30", "06:00-24:00")
REPEATERS: Final = (
    "", "+1d", "++02w", ".+1m", "+1y", "+1h", "++1h", "+0d", "+1", "+d", "+1x", "+1D", "+1dd", "++",
    ".+2d/4d", ".+4d/2d", "+1000000d", "+2d/", "+2d/4", "+2d/0d", "+１d", "+++1d", "+-1d",
)  # fmt: skip


@pytest.mark.parametrize("date", DATES)
def test_a_stamp_shows_an_error_exactly_if_no_time_can_be_told_from_it(date: str) -> None:
    for time, repeater in product(TIMES, REPEATERS):
        written = f"<{date} {time} {repeater}>"
        errors = [each for each in check(stamp(written)) if each.severity == "error"]
        assert bool(errors) != is_told(written), written


def is_told(written: str) -> bool:
    """Tell whether the room that computes times can read a stamp."""
    read_as = horae.parse_timestamp(written)
    if read_as is None:
        return False
    try:
        anchor = parse_at(read_as["at"])
        if read_as["repeat"] is not None:
            parse_repeater(read_as["repeat"], has_time=anchor.has_time)
    except ScheduleError:
        return False
    return True
