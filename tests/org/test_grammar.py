"""The grammar that the kernel reads: headline, planning line, drawer, source block."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import horae

NINE = {"at": "2026-06-13T09:00", "repeat": "+1w", "active": True}
OWED = {"at": "2026-06-20", "repeat": None, "active": True}
KEYS = ["deadline", "id", "level", "props", "scheduled", "state", "tags", "title"]


def row(text: str) -> Any:
    """Return the row of the only headline."""
    [only] = horae.query(text)
    return only


def titles(text: str) -> list[Any]:
    return [each["title"] for each in horae.query(text)]


def component(block: str) -> Any:
    """Return the only component of a plan, with *block* as its section."""
    [world] = horae.tangle(f"* Plan :workflow:\n** Step :component:\n{block}")["worlds"]
    [only] = world["components"]
    return only


# Rows


def test_each_headline_is_one_row_of_exactly_eight_keys() -> None:
    rows = horae.query("* One\n** Two\nProse.\n* Three\n")
    assert [list(each) for each in rows] == [KEYS] * 3


def test_a_bare_headline_has_nothing_but_a_level_and_a_title() -> None:
    assert row("* Water the herbs\n") == {
        "deadline": None,
        "id": None,
        "level": 1,
        "props": {},
        "scheduled": None,
        "state": None,
        "tags": [],
        "title": "Water the herbs",
    }


def test_a_full_headline_fills_every_key() -> None:
    text = (
        "** DONE [#A] Water the herbs :garden:home:\n"
        "   CLOSED: [2026-06-14 Sun] SCHEDULED: <2026-06-13 09:00 +1w> DEADLINE: <2026-06-20>\n"
        "   :PROPERTIES:\n"
        "   :ID: herbs\n"
        "   :CAN: green\n"
        "   :END:\n"
        "Not too much.\n"
    )
    assert row(text) == {
        "deadline": OWED,
        "id": "herbs",
        "level": 2,
        "props": {"CAN": "green", "ID": "herbs"},
        "scheduled": NINE,
        "state": "DONE",
        "tags": ["garden", "home"],
        "title": "Water the herbs",
    }


def test_rows_come_in_the_order_of_the_document() -> None:
    assert titles("* c\n*** a\n** d\n* b\n") == ["c", "a", "d", "b"]


@pytest.mark.parametrize("text", ["", "\n", "Prose alone.\n", "#+TITLE: Nothing\n"])
def test_a_plan_without_headlines_has_no_rows(text: str) -> None:
    assert horae.query(text) == []


def wrapped(*args: str, stdin: str = "") -> tuple[int, Any]:
    """Return the exit code and the answer of `wb --json`."""
    command = [sys.executable, "-m", "horae.cli.wb", "--json", *args]
    done = subprocess.run(
        command, input=stdin.encode(), capture_output=True, check=False, timeout=60
    )
    return done.returncode, json.loads(done.stdout)


def test_the_answer_may_be_wrapped_with_its_verb() -> None:
    code, answer = wrapped("query", "-", stdin="* Sow\n")
    assert (code, answer) == (0, {"ok": True, "verb": "query", "data": horae.query("* Sow\n")})


def test_a_wrapped_refusal_says_what_and_whether_to_try_again(tmp_path: Path) -> None:
    code, answer = wrapped("query", str(tmp_path / "nowhere.org"))
    error = answer.pop("error")
    assert (code, answer) == (4, {"ok": False, "verb": "query"})
    assert error.keys() == {"code", "message", "hint", "retryable"}
    assert error["retryable"] is False


# The headline's stars


@pytest.mark.parametrize(
    "line",
    [
        pytest.param("*x", id="no space behind the star"),
        pytest.param("**x", id="no space behind two stars"),
        pytest.param("*", id="a star alone"),
        pytest.param("**", id="two stars alone"),
        pytest.param(" * x", id="a space before the star"),
        pytest.param("\t* x", id="a tab before the star"),
        pytest.param("*\tx", id="a tab behind the star"),
        pytest.param("*\u00a0x", id="a no-break space behind the star"),
        pytest.param("*bold* x", id="bold text"),
        pytest.param(",* x", id="a comma before the star"),
        pytest.param("- * x", id="a list item"),
    ],
)
def test_what_is_not_stars_and_a_space_at_the_start_of_a_line_is_no_headline(line: str) -> None:
    assert horae.query(f"{line}\n") == []
    assert titles(f"* Real\n{line}\n* Next\n") == ["Real", "Next"]


@pytest.mark.parametrize("level", [1, 2, 9, 300])
def test_the_level_is_the_number_of_stars(level: int) -> None:
    assert row("*" * level + " Deep\n")["level"] == level


def test_levels_may_jump() -> None:
    rows = horae.query("*** Three\n* One\n***** Five\n** Two\n")
    assert [each["level"] for each in rows] == [3, 1, 5, 2]


def test_stars_and_a_space_are_a_headline_without_a_title() -> None:
    assert [(each["level"], each["title"]) for each in horae.query("* \n**  \n")] == [
        (1, ""),
        (2, ""),
    ]


# The headline's state


@pytest.mark.parametrize(
    ("line", "state", "title"),
    [
        pytest.param("* TODO Sow", "TODO", "Sow", id="TODO is a state"),
        pytest.param("* DONE Sow", "DONE", "Sow", id="DONE is a state"),
        pytest.param("* TODO   Sow", "TODO", "Sow", id="more spaces behind it"),
        pytest.param("*   TODO Sow", "TODO", "Sow", id="more spaces before it"),
        pytest.param("* TODO", "TODO", "", id="a state and nothing else"),
        pytest.param("* todo Sow", None, "todo Sow", id="small letters are a title"),
        pytest.param("* Todo Sow", None, "Todo Sow", id="mixed letters are a title"),
        pytest.param("* TODOS Sow", None, "TODOS Sow", id="a longer word is a title"),
        pytest.param("* TODO: Sow", None, "TODO: Sow", id="a colon makes it another word"),
        pytest.param("* Sow TODO", None, "Sow TODO", id="only the first word"),
        pytest.param("* TODO DONE Sow", "TODO", "DONE Sow", id="only one word"),
        pytest.param("* NEXT Sow", None, "NEXT Sow", id="NEXT is a title"),
        pytest.param("* DOING Sow", None, "DOING Sow", id="DOING is a title"),
        pytest.param("* WAIT Sow", None, "WAIT Sow", id="WAIT is a title"),
    ],
)
def test_the_state_is_the_first_word_if_it_is_exactly_todo_or_done(
    line: str, state: str | None, title: str
) -> None:
    read = row(f"{line}\n")
    assert (read["state"], read["title"]) == (state, title)


@pytest.mark.parametrize("keyword", ["TODO", "SEQ_TODO", "TYP_TODO"])
def test_a_plan_may_name_states_of_its_own(keyword: str) -> None:
    text = f"#+{keyword}: NEXT WAIT | CANCELLED\n* NEXT a\n* WAIT b\n* CANCELLED c\n* LATER d\n"
    assert [(each["state"], each["title"]) for each in horae.query(text)] == [
        ("NEXT", "a"),
        ("WAIT", "b"),
        ("CANCELLED", "c"),
        (None, "LATER d"),
    ]


def test_todo_and_done_stay_states_beside_those_of_the_plan() -> None:
    text = "#+TODO: NEXT | GONE\n* TODO a\n* DONE b\n"
    assert [each["state"] for each in horae.query(text)] == ["TODO", "DONE"]


def test_keys_in_parentheses_are_no_part_of_a_state() -> None:
    text = "#+TODO: NEXT(n) WAIT(w@/!) | GONE(g!)\n* NEXT a\n* WAIT b\n* GONE c\n* NEXT(n) d\n"
    assert [each["state"] for each in horae.query(text)] == ["NEXT", "WAIT", "GONE", None]


def test_the_bar_that_divides_states_is_no_state() -> None:
    assert row("#+TODO: NEXT | GONE\n* | a\n")["state"] is None


def test_several_lines_of_states_add_up() -> None:
    text = "#+TODO: NEXT | GONE\n#+SEQ_TODO: DRAFT | SENT\n#+TYP_TODO: wren moss\n"
    rows = horae.query(text + "* NEXT a\n* SENT b\n* moss c\n")
    assert [each["state"] for each in rows] == ["NEXT", "SENT", "moss"]


def test_a_plan_may_name_its_states_below_their_first_use() -> None:
    assert row("* NEXT a\n#+TODO: NEXT | GONE\n")["state"] == "NEXT"


def test_the_keyword_of_the_states_may_be_written_small() -> None:
    assert row("#+todo: NEXT | GONE\n* NEXT a\n")["state"] == "NEXT"


# The headline's priority


@pytest.mark.parametrize(
    ("line", "state", "title"),
    [
        pytest.param("* TODO [#A] Sow", "TODO", "Sow", id="behind the state"),
        pytest.param("* [#A] Sow", None, "Sow", id="without a state"),
        pytest.param("* TODO [#7] Sow", "TODO", "Sow", id="a digit"),
        pytest.param("* TODO [#z] Sow", "TODO", "Sow", id="a small letter"),
        pytest.param("* TODO [#é] Sow", "TODO", "Sow", id="any single character"),
        pytest.param("* TODO [#A]", "TODO", "", id="and no title"),
        pytest.param("* [#A] TODO Sow", None, "TODO Sow", id="before the state it hides the state"),
        pytest.param("* TODO [#AB] Sow", "TODO", "[#AB] Sow", id="two characters are a title"),
        pytest.param("* TODO [#] Sow", "TODO", "[#] Sow", id="no character is a title"),
        pytest.param("* TODO Sow [#A]", "TODO", "Sow [#A]", id="at the end it is a title"),
    ],
)
def test_a_priority_is_taken_from_the_title_and_surfaced_nowhere(
    line: str, state: str | None, title: str
) -> None:
    read = row(f"{line}\n")
    assert (read["state"], read["title"]) == (state, title)


# The headline's tags


@pytest.mark.parametrize(
    ("line", "tags", "title"),
    [
        pytest.param("* Sow :a:", ["a"], "Sow", id="one tag"),
        pytest.param("* Sow :a:b:", ["a", "b"], "Sow", id="two tags that share a colon"),
        pytest.param("* Sow :a::b:", ["a", "b"], "Sow", id="two tags with a colon each"),
        pytest.param("* Sow :a: :b:", ["a", "b"], "Sow", id="two tags with a blank between"),
        pytest.param("* Sow\t\t:a:", ["a"], "Sow", id="tabs before the tags"),
        pytest.param("* Sow :a:  \t", ["a"], "Sow", id="blanks behind the tags"),
        pytest.param("* :a:", ["a"], "", id="tags and no title"),
        pytest.param("* TODO :a:", ["a"], "", id="a state, tags and no title"),
        pytest.param("* Sow :z:a:", ["z", "a"], "Sow", id="order is kept"),
        pytest.param("* Sow :Home:home:", ["Home", "home"], "Sow", id="case is kept"),
        pytest.param("* Sow :a_1:@home:#x:50%:", ["a_1", "@home", "#x", "50%"], "Sow", id="signs"),
        pytest.param("* Sow :jardín:庭:сад:", ["jardín", "庭", "сад"], "Sow", id="any script"),
        pytest.param("* Sow:a:", [], "Sow:a:", id="no blank before the colon"),
        pytest.param("* Sow :a: now", [], "Sow :a: now", id="text behind"),
        pytest.param("* Sow :a", [], "Sow :a", id="never closed"),
        pytest.param("* Sow a:", [], "Sow a:", id="never opened"),
        pytest.param("* Sow :", [], "Sow :", id="a colon alone"),
    ],
)
def test_tags_are_the_colon_run_at_the_end(line: str, tags: list[str], title: str) -> None:
    read = row(f"{line}\n")
    assert (read["tags"], read["title"]) == (tags, title)


def test_tags_are_not_inherited() -> None:
    assert [each["tags"] for each in horae.query("* Garden :home:\n** Sow\n")] == [["home"], []]


# The headline's title


@pytest.mark.parametrize(
    ("line", "title"),
    [
        pytest.param("*    Sow the herbs   ", "Sow the herbs", id="blanks around are trimmed"),
        pytest.param("* Sow  the\therbs", "Sow  the\therbs", id="blanks within are kept"),
        pytest.param(
            "* *bold* /it/ =x= [[a][b]] [1/2]", "*bold* /it/ =x= [[a][b]] [1/2]", id="markup is raw"
        ),
        pytest.param("* Sow 🌱 — später", "Sow 🌱 — später", id="any letter"),
        pytest.param("* Sow :my-tag:", "Sow", id="what only looks like tags is cut"),
        pytest.param("* Sow ::", "Sow", id="two colons are cut"),
        pytest.param("* ::", "", id="two colons alone are cut"),
        pytest.param("* # no comment", "# no comment", id="a hash says nothing"),
    ],
)
def test_the_title_is_the_rest(line: str, title: str) -> None:
    read = row(f"{line}\n")
    assert (read["title"], read["tags"]) == (title, [])


# Planning line


@pytest.mark.parametrize(
    "line",
    [
        pytest.param("SCHEDULED: <2026-06-13 09:00 +1w> DEADLINE: <2026-06-20>", id="in one order"),
        pytest.param("DEADLINE: <2026-06-20> SCHEDULED: <2026-06-13 09:00 +1w>", id="in the other"),
        pytest.param(
            "    SCHEDULED: <2026-06-13 09:00 +1w> DEADLINE: <2026-06-20>", id="after spaces"
        ),
        pytest.param(
            "\t\tSCHEDULED: <2026-06-13 09:00 +1w> DEADLINE: <2026-06-20>", id="after tabs"
        ),
        pytest.param(
            "SCHEDULED: <2026-06-13 09:00 +1w> DEADLINE: <2026-06-20> \t ", id="before blanks"
        ),
        pytest.param(
            "SCHEDULED:<2026-06-13 09:00 +1w>DEADLINE:<2026-06-20>", id="without any blanks"
        ),
        pytest.param(
            "SCHEDULED: \t <2026-06-13 09:00 +1w> \t DEADLINE:   <2026-06-20>",
            id="with many blanks",
        ),
        pytest.param(
            "CLOSED: [2026-06-21 Sun] SCHEDULED: <2026-06-13 09:00 +1w> DEADLINE: <2026-06-20>",
            id="beside a CLOSED that is not surfaced",
        ),
        pytest.param(
            "SCHEDULED: <2026-06-13 09:00 +1w>, DEADLINE: <2026-06-20>", id="with a comma between"
        ),
        pytest.param(
            "DEADLINE: <2026-06-20> ,CLOSED: [2026-06-21] , SCHEDULED: <2026-06-13 09:00 +1w>",
            id="with commas between blanks",
        ),
        pytest.param(
            "SCHEDULED: <2026-01-01> SCHEDULED: <2026-06-13 09:00 +1w> DEADLINE: <2026-06-20>",
            id="of one keyword twice the last",
        ),
    ],
)
def test_the_planning_line_is_the_line_under_the_headline(line: str) -> None:
    read = row(f"* Sow\n{line}\nProse.\n")
    assert (read["scheduled"], read["deadline"]) == (NINE, OWED)


def test_a_closed_headline_has_neither_schedule_nor_deadline() -> None:
    read = row("* DONE Sow\nCLOSED: [2026-06-21 Sun 10:00]\n")
    assert (read["scheduled"], read["deadline"]) == (None, None)


@pytest.mark.parametrize(
    "below",
    [
        pytest.param("\nSCHEDULED: <2026-06-13>\n", id="a blank line above it"),
        pytest.param(" \t\nSCHEDULED: <2026-06-13>\n", id="a line of blanks above it"),
        pytest.param("Prose.\nSCHEDULED: <2026-06-13>\n", id="prose above it"),
        pytest.param("# a remark\nSCHEDULED: <2026-06-13>\n", id="a remark above it"),
        pytest.param(
            ":PROPERTIES:\n:A: b\n:END:\nSCHEDULED: <2026-06-13>\n", id="the drawer above it"
        ),
        pytest.param("DEADLINE: <2026-06-20>\nSCHEDULED: <2026-06-13>\n", id="another above it"),
    ],
)
def test_a_planning_line_further_down_is_not_read(below: str) -> None:
    assert row(f"* Sow\n{below}")["scheduled"] is None


@pytest.mark.parametrize(
    "line",
    [
        pytest.param("SCHEDULED: <2026-06-13> DEADLINE: <2026-06-20> soon", id="text behind"),
        pytest.param("So SCHEDULED: <2026-06-13> DEADLINE: <2026-06-20>", id="text before"),
        pytest.param("SCHEDULED: <2026-06-13> and DEADLINE: <2026-06-20>", id="text between"),
        pytest.param("SCHEDULED: soon <2026-06-13> DEADLINE: <2026-06-20>", id="text inside"),
        pytest.param("SCHEDULED: 2026-06-13 DEADLINE: <2026-06-20>", id="a stamp without brackets"),
        pytest.param(
            "scheduled: <2026-06-13> DEADLINE: <2026-06-20>", id="a keyword written small"
        ),
        pytest.param(
            "SCHEDULED : <2026-06-13> DEADLINE: <2026-06-20>", id="a blank before a colon"
        ),
        pytest.param("STARTED: <2026-06-13> DEADLINE: <2026-06-20>", id="another keyword"),
        pytest.param("- SCHEDULED: <2026-06-13> DEADLINE: <2026-06-20>", id="a list item"),
        pytest.param("SCHEDULED: <2026-06-13> DEADLINE: <2026-06-20>,", id="a comma behind"),
        pytest.param("SCHEDULED: <2026-06-13>,, DEADLINE: <2026-06-20>", id="two commas"),
        pytest.param("SCHEDULED: <2026-06-13>; DEADLINE: <2026-06-20>", id="a semicolon"),
    ],
)
def test_any_other_text_voids_the_whole_line(line: str) -> None:
    read = row(f"* Sow\n{line}\n")
    assert (read["scheduled"], read["deadline"]) == (None, None)


@pytest.mark.parametrize(
    "stamp",
    [
        pytest.param("<2026-06-13]", id="brackets that do not match"),
        pytest.param("[2026-06-13>", id="brackets that do not match the other way"),
        pytest.param("<2026-6-13>", id="a date without its zero"),
        pytest.param("<<2026-06-13>>", id="doubled brackets"),
        pytest.param("<soon>", id="a word"),
        pytest.param("<>", id="nothing"),
    ],
)
def test_an_odd_stamp_is_null_and_spares_its_neighbours(stamp: str) -> None:
    drawer = ":PROPERTIES:\n:A: b\n:END:\n"
    before = row(f"* Sow\nSCHEDULED: {stamp} DEADLINE: <2026-06-20>\n{drawer}")
    behind = row(f"* Sow\nDEADLINE: <2026-06-20> SCHEDULED: {stamp}\n{drawer}")
    assert before["scheduled"] is None
    assert before["deadline"] == OWED
    assert before["props"] == {"A": "b"}
    assert behind == before


@pytest.mark.parametrize(
    "written",
    [
        pytest.param("<09:00 2026-06-13 +1w>", id="the time first"),
        pytest.param("<+1w 09:00 2026-06-13>", id="backwards"),
        pytest.param("<Saturday the 13th, 2026-06-13 09:00 +1w>", id="words"),
        pytest.param("<2026-06-13 09:00 +1w -2d>", id="a warning cookie"),
        pytest.param("< 2026-06-13 09:00 +1w >", id="blanks inside"),
        pytest.param("<2026-06-13 09:00 [maybe] +1w>", id="a word in brackets of its own"),
    ],
)
def test_tokens_on_a_planning_line_are_read_by_shape_in_any_order(written: str) -> None:
    assert row(f"* Sow\nSCHEDULED: {written}\n")["scheduled"] == NINE


@pytest.mark.parametrize(
    ("written", "at"),
    [
        pytest.param("<2026-06-06>--<2026-06-08>", None, id="of days: nothing"),
        pytest.param(
            "<2026-06-06 Sat>--<2026-06-08 Mon>", "2026-06-06", id="with day names: the first day"
        ),
        pytest.param(
            "<2026-06-06 Sat 09:00>--<2026-06-08 Mon 11:00>",
            "2026-06-06T11:00",
            id="with times: the first day and the last time",
        ),
    ],
)
def test_a_range_of_two_stamps_is_read_as_one_text_between_its_outer_brackets(
    written: str, at: str | None
) -> None:
    stamp = at and {"at": at, "repeat": None, "active": True}
    read = row(f"* Fair\nSCHEDULED: {written} DEADLINE: <2026-06-20>\n")
    assert horae.parse_timestamp(written) == stamp
    assert (read["scheduled"], read["deadline"]) == (stamp, OWED)


def test_a_second_planning_line_is_not_read_and_costs_the_drawer() -> None:
    text = "* Sow\nSCHEDULED: <2026-06-13 09:00 +1w>\nDEADLINE: <2026-06-20>\n:PROPERTIES:\n:A: b\n:END:\n"
    read = row(text)
    assert (read["scheduled"], read["deadline"], read["props"]) == (NINE, None, {})


def test_a_voided_planning_line_costs_the_drawer() -> None:
    read = row("* Sow\nSCHEDULED: <2026-06-13> soon\n:PROPERTIES:\n:A: b\n:END:\n")
    assert (read["scheduled"], read["props"]) == (None, {})


# Drawer


@pytest.mark.parametrize(
    ("drawer", "props"),
    [
        pytest.param(":PROPERTIES:\n:A: b\n:END:", {"A": "b"}, id="a key and its value"),
        pytest.param(":PROPERTIES:\n:A: b\n:end:", {"A": "b"}, id="an end written small"),
        pytest.param(":PROPERTIES:\n:A: b\n:End:", {"A": "b"}, id="an end written in both"),
        pytest.param("  :PROPERTIES:\n\t:A: b\n :END:", {"A": "b"}, id="blanks before"),
        pytest.param(":PROPERTIES: \t\n:A: b \t\n:END:  ", {"A": "b"}, id="blanks behind"),
        pytest.param(":PROPERTIES:\n:A: \t b  c \n:END:", {"A": "b  c"}, id="values are trimmed"),
        pytest.param(":PROPERTIES:\n:A:\tb\n:END:", {"A": "b"}, id="a tab behind the colon"),
        pytest.param(":PROPERTIES:\n:some-Key: b\n:END:", {"SOME-KEY": "b"}, id="keys are raised"),
        pytest.param(":PROPERTIES:\n:A: b\n:a: c\n:END:", {"A": "c"}, id="the last of a key wins"),
        pytest.param(":properties:\n:A: b\n:End:", {"A": "b"}, id="an opening written small"),
        pytest.param(":Properties:\r\n:A: b\r\n:end:\r", {"A": "b"}, id="and in both"),
        pytest.param(
            ":PROPERTIES:\n:A: b\n:a+: c\n:A+: d\n:END:", {"A": "b c d"}, id="a plus adds"
        ),
        pytest.param(":PROPERTIES:\n:A+: c\n:A: b\n:END:", {"A": "b c"}, id="also from above"),
        pytest.param(":PROPERTIES:\n:A+: b\n:END:", {"A": "b"}, id="a plus with no key sets it"),
        pytest.param(":PROPERTIES:\n:A: b\n:A+: \n:END:", {"A": "b"}, id="no value adds nothing"),
        pytest.param(":PROPERTIES:\n:+: b\n:END:", {"+": "b"}, id="a plus alone is a key"),
        pytest.param(":PROPERTIES:\n:B+C: d\n:END:", {"B+C": "d"}, id="a plus in a key"),
        pytest.param(
            ":PROPERTIES:\n:header-args:python: :results output\n:END:",
            {"HEADER-ARGS:PYTHON": ":results output"},
            id="a colon in a key",
        ),
        pytest.param(
            ":PROPERTIES:\n:header-args:sh: :dir /\n:header-args:sh+: :in a\n:END:",
            {"HEADER-ARGS:SH": ":dir / :in a"},
            id="a colon and a plus",
        ),
        pytest.param(":PROPERTIES:\n:END:x: b\n:END:", {"END:X": "b"}, id="no end but a key"),
        pytest.param(":PROPERTIES:\n:A: \n:B: c\n:END:", {"B": "c"}, id="no value is skipped"),
        pytest.param(":PROPERTIES:\n:A: b: :c:\n:END:", {"A": "b: :c:"}, id="colons in a value"),
        pytest.param(":PROPERTIES:\n:Größe: ü\n:END:", {"GRÖSSE": "ü"}, id="any script"),
        pytest.param(":PROPERTIES:\n:END:", {}, id="an empty drawer"),
    ],
)
def test_a_drawer_is_read_under_the_headline_and_under_its_planning_line(
    drawer: str, props: dict[str, str]
) -> None:
    under_headline = row(f"* Sow\n{drawer}\nProse.\n")
    under_planning = row(f"* Sow\nSCHEDULED: <2026-06-13>\n{drawer}\nProse.\n")
    assert under_headline["props"] == under_planning["props"] == props


@pytest.mark.parametrize(
    "drawer",
    [
        pytest.param(":PROPERTIES: x\n:A: b\n:END:", id="text behind the opening"),
        pytest.param(":PROPERTIES:\n:A: b\n:END: x", id="text behind the end"),
        pytest.param(":PROPERTIES:\n:A: b", id="no end"),
        pytest.param(":PROPERTIES:\n:A: b\n:B:\n:END:", id="a key with nothing behind it"),
        pytest.param(":PROPERTIES:\n:A: b\n:B:c\n:END:", id="no blank before the value"),
        pytest.param(":PROPERTIES:\n:A: b\nprose\n:END:", id="prose between"),
        pytest.param(":PROPERTIES:\n:A: b\n\n:END:", id="a blank line between"),
        pytest.param(":PROPERTIES:\n:A: b\n# remark\n:END:", id="a remark between"),
        pytest.param(":PROPERTIES:\n:A: b\n:B:c d: e\n:END:", id="a blank in a key"),
        pytest.param(":PROPERTIES:\n:A: b\n:: c\n:END:", id="no key"),
        pytest.param(":PROPERTIEſ:\n:A: b\n:END:", id="another letter in the opening"),
        pytest.param("\n:PROPERTIES:\n:A: b\n:END:", id="a blank line above"),
        pytest.param("Prose.\n:PROPERTIES:\n:A: b\n:END:", id="prose above"),
        pytest.param(":LOGBOOK:\n:A: b\n:END:", id="another drawer"),
    ],
)
def test_an_odd_line_voids_the_whole_drawer_and_nothing_else(drawer: str) -> None:
    first, second = horae.query(f"* Sow\n{drawer}\n* Reap\n:PROPERTIES:\n:C: d\n:END:\n")
    assert (first["title"], first["props"], first["id"]) == ("Sow", {}, None)
    assert (second["title"], second["props"]) == ("Reap", {"C": "d"})


@pytest.mark.parametrize("key", ["ID", "id", "Id"])
def test_the_id_is_a_property_and_a_key_of_the_row(key: str) -> None:
    read = row(f"* Sow\n:PROPERTIES:\n:{key}: herbs 1\n:END:\n")
    assert (read["id"], read["props"]) == ("herbs 1", {"ID": "herbs 1"})


def test_properties_are_sorted_by_key() -> None:
    read = row("* Sow\n:PROPERTIES:\n:c: 1\n:A: 2\n:b: 3\n:END:\n")
    assert list(read["props"].items()) == [("A", "2"), ("B", "3"), ("C", "1")]


def test_properties_are_not_inherited() -> None:
    rows = horae.query("* Garden\n:PROPERTIES:\n:ID: garden\n:END:\n** Sow\n")
    assert [(each["id"], each["props"]) for each in rows] == [
        ("garden", {"ID": "garden"}),
        (None, {}),
    ]


# Source blocks


@pytest.mark.parametrize(
    ("begin", "end"),
    [
        pytest.param("#+begin_src", "#+end_src", id="all small"),
        pytest.param("#+BEGIN_SRC", "#+END_SRC", id="all tall"),
        pytest.param("#+Begin_Src", "#+eND_Src", id="mixed, src spelled alike"),
        pytest.param("#+BEGIN_src", "#+end_src", id="only the beginning tall"),
        pytest.param("    #+begin_src", "\t#+end_src", id="after blanks"),
        pytest.param("#+begin_src", "#+end_src \t", id="before blanks"),
    ],
)
def test_a_source_block_may_be_spelled_and_indented_in_many_ways(begin: str, end: str) -> None:
    read = component(f"{begin} js :out x\n1\n{end}\n")
    assert (read["lang"], read["out"], read["src"]) == ("js", "x", "1\n")


@pytest.mark.parametrize(
    "block",
    [
        pytest.param("#+BEGIN_SRC js :out x\n1\n#+end_src\n", id="src is not spelled alike"),
        pytest.param("#+begin_src js :out x\n1\n", id="it never ends"),
        pytest.param("#+begin_src js :out x\n1\n#+end_example\n", id="another block's end"),
        pytest.param("#+begin_example js :out x\n1\n#+end_example\n", id="an example"),
        pytest.param("#+end_src\n", id="only an end"),
        pytest.param("- item\n  #+begin_src js :out x\n  1\n  #+end_src\n", id="inside a list"),
        pytest.param(
            "#+begin_quote\n#+begin_src js :out x\n1\n#+end_src\n#+end_quote\n", id="inside a quote"
        ),
        pytest.param(":NOTES:\n#+begin_src js :out x\n1\n#+end_src\n:END:\n", id="inside a drawer"),
        pytest.param("*** Sub\n#+begin_src js :out x\n1\n#+end_src\n", id="under a sub-headline"),
        pytest.param("#+begin_src js :out x\n* 1\n#+end_src\n", id="a headline inside breaks it"),
    ],
)
def test_what_is_no_block_of_the_section_itself_is_no_block(block: str) -> None:
    read = component(block)
    assert (read["lang"], read["out"]) == (None, None)


@pytest.mark.parametrize(
    "above",
    [
        pytest.param("Prose.\n\n", id="prose"),
        pytest.param("#+NAME: one\n", id="its name"),
        pytest.param(
            "- item\n  #+begin_src go\n  0\n  #+end_src\n\nProse.\n", id="a list with one"
        ),
        pytest.param(
            "#+begin_quote\n#+begin_src go\n0\n#+end_src\n#+end_quote\n", id="a quote with one"
        ),
        pytest.param(":NOTES:\n#+begin_src go\n0\n#+end_src\n:END:\n", id="a drawer with one"),
        pytest.param(
            "#+begin_example\n#+begin_src go\n0\n#+end_src\n#+end_example\n", id="an example"
        ),
        pytest.param("SCHEDULED: <2026-06-13>\n:PROPERTIES:\n:A: b\n:END:\n", id="plan and drawer"),
    ],
)
def test_the_first_block_of_the_section_itself_is_found_below(above: str) -> None:
    read = component(f"{above}#+begin_src js :out x\n1\n#+end_src\n")
    assert (read["lang"], read["out"], read["src"]) == ("js", "x", "1\n")


def test_only_the_first_of_two_blocks_counts() -> None:
    read = component("#+begin_src js\n1\n#+end_src\n\n#+begin_src go :out x\n2\n#+end_src\n")
    assert (read["lang"], read["out"], read["src"]) == ("js", None, "1\n")


def test_stars_and_a_space_end_the_section_even_inside_a_block() -> None:
    text = "* Plan :workflow:\n** Step :component:\n#+begin_src js\n* Not code\n#+end_src\n"
    assert titles(text) == ["Plan", "Step", "Not code"]


def test_a_comma_keeps_stars_inside_their_block() -> None:
    block = (
        "#+begin_src org\n,* Not a headline\n,** Nor this\n,#+TITLE: x\n, kept\n,kept\n#+end_src\n"
    )
    assert component(block)["src"] == "* Not a headline\n** Nor this\n#+TITLE: x\n, kept\n,kept\n"


@pytest.mark.parametrize(
    ("begin", "lang"),
    [
        pytest.param("#+begin_src js", "js", id="a word"),
        pytest.param("#+begin_src   emacs-lisp  ", "emacs-lisp", id="a word between blanks"),
        pytest.param("#+begin_src C++", "C++", id="signs"),
        pytest.param("#+begin_src 日本", "日本", id="any script"),
        pytest.param("#+begin_src klingon", "klingon", id="a language nobody compiles"),
        pytest.param("#+begin_src :out x", ":out", id="an argument where the language should be"),
        pytest.param("#+begin_src", "", id="no word is an empty language"),
    ],
)
def test_the_language_is_the_first_word_whatever_it_is(begin: str, lang: str) -> None:
    assert component(f"{begin}\n1\n#+end_src\n")["lang"] == lang


@pytest.mark.parametrize("switches", ["-n", "-n 20", "+n", "+n 5", "-r", "-i", "-k", "-n 20 -r -k"])
def test_switches_between_language_and_arguments_are_skipped(switches: str) -> None:
    read = component(f"#+begin_src js {switches} :in a :out b\n1\n#+end_src\n")
    assert (read["lang"], read["in"], read["out"]) == ("js", "a", "b")


@pytest.mark.parametrize(
    ("written", "body"),
    [
        pytest.param("1\n2\n", "1\n2\n", id="the final newline is kept"),
        pytest.param("  if x:\n\ty\n", "  if x:\n\ty\n", id="indentation is kept"),
        pytest.param("\n\n1\n", "1\n", id="leading blank lines are dropped"),
        pytest.param("\n\n  1\n", "  1\n", id="and the indentation below them is kept"),
        pytest.param("1\n\n\n", "1\n\n\n", id="trailing blank lines are kept"),
        pytest.param("1\n\n2\n", "1\n\n2\n", id="blank lines between are kept"),
        pytest.param("#+NAME: x\n:A: b\n", "#+NAME: x\n:A: b\n", id="org inside is only text"),
        pytest.param("", "", id="an empty block has an empty body"),
    ],
)
def test_the_body_is_the_text_between(written: str, body: str) -> None:
    assert component(f"#+begin_src js\n{written}#+end_src\n")["src"] == body


def test_keywords_are_surfaced_nowhere() -> None:
    text = (
        "#+TITLE: heron\n#+AUTHOR: heron\n"
        "* Plan :workflow:\n#+CATEGORY: heron\n** Step :component:\n"
        "#+NAME: heron\n#+HEADER: heron\n#+begin_src js\n1\n#+end_src\n"
    )
    assert "heron" not in str(horae.query(text))
    assert "heron" not in str(horae.tangle(text))


# Lines, bytes and letters

WHOLE = (
    "#+TODO: NEXT | GONE\n"
    "* NEXT [#A] Größe 🌱 :workflow:庭:\n"
    "SCHEDULED: <2026-06-13 09:00 +1w> DEADLINE: <2026-06-20>\n"
    ":PROPERTIES:\n:ID: herbs\n:Ort: Zürich\n:END:\n"
    "** Step :component:\n"
    "#+begin_src js :uses a :out b\n1\n2\n#+end_src\n"
    "** Last :component:\n"
    "#+begin_src js :in b\n3\n#+end_src\n"
)


def test_a_plan_with_windows_line_ends_reads_like_its_twin() -> None:
    twin = WHOLE.replace("\n", "\r\n")
    assert horae.query(twin) == horae.query(WHOLE)
    assert horae.validate(twin) == []
    read: Any = horae.tangle(twin)
    for each in read["worlds"][0]["components"]:
        # Whether code keeps its line ends is the business of its language.
        each["src"] = each["src"].replace("\r\n", "\n")
    assert read == horae.tangle(WHOLE)


def test_a_byte_order_mark_says_nothing() -> None:
    assert horae.query("\ufeff" + WHOLE) == horae.query(WHOLE)
    assert horae.tangle("\ufeff" + WHOLE) == horae.tangle(WHOLE)
    assert titles("\ufeff* Sow\n") == ["Sow"]


@pytest.mark.parametrize("end", range(1, len(WHOLE.splitlines()) + 1))
def test_the_final_newline_may_be_missing(end: int) -> None:
    text = "".join(WHOLE.splitlines(keepends=True)[:end])
    assert horae.query(text.removesuffix("\n")) == horae.query(text)
    assert horae.tangle(text.removesuffix("\n")) == horae.tangle(text)


@pytest.mark.parametrize(
    "mark", ["\x0b", "\x0c", "\x1c", "\x1d", "\x1e", "\x85", "\u2028", "\u2029"]
)
def test_only_a_newline_ends_a_line(mark: str) -> None:
    assert titles(f"* one{mark}* two\n") == [f"one{mark}* two"]


def test_a_title_may_hold_any_letter_and_stays_as_it_is() -> None:
    decomposed = "e\u0301 \u202e אבג \U0001f9d1\u200d\U0001f33e \ufeff \x00"
    assert titles(f"* {decomposed}.\n") == [f"{decomposed}."]
