"""The guard that all YAML passes: everything is text, nothing is deep, and nothing hangs."""

import json
import subprocess
import sys
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest
import yaml
from hypothesis import given, settings, strategies as st

from horae.files.yaml import (
    MAX_BYTES,
    MAX_DEPTH,
    MAX_NODES,
    Data,
    YamlError,
    YamlMap,
    YamlPlace,
    read_yaml,
)
from scale import scaled

TASK = """\
id: 042
title: Weekly standup report
status: todo
tags: [weekly, "on call"]   # who is on
cron_schedule: "0 9 * * MON"
scheduled_for: 2026-03-30T09:00:00Z
claimed_by:
depends_on:
  - 7
  - 12

# the end
"""

TRIGGER = """\
name: health-check
agent: monitor

source:
  type: cron
  expression: "0 * * * *"

prompt_template: |
  Hourly health check at {{fire_time}}.
  - [ ] check *all* endpoints & report: "any" anomalies!

tool_policy:
  mode: allow_list
  tools:
    - Bash
    - WebFetch

enabled: true
"""


@pytest.fixture(params=["C", "Python"])
def _either_reader(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run the test with both readers of the library; some installations have only one."""
    if request.param == "Python":
        monkeypatch.delattr(yaml, "CBaseLoader")


def mapping(text: str) -> YamlMap:
    data = read_yaml(text)
    assert isinstance(data, YamlMap)
    return data


def refused(text: str, **options: Any) -> YamlError:
    with pytest.raises(YamlError) as caught:
        read_yaml(text, **options)
    return caught.value


def value_at(text: str, place: YamlPlace) -> str:
    return text[place.start : place.end]


# What it reads


@pytest.mark.usefixtures("_either_reader")
def test_a_task_is_read_as_text() -> None:
    assert mapping(TASK) == {
        "id": "042",
        "title": "Weekly standup report",
        "status": "todo",
        "tags": ["weekly", "on call"],
        "cron_schedule": "0 9 * * MON",
        "scheduled_for": "2026-03-30T09:00:00Z",
        "claimed_by": None,
        "depends_on": ["7", "12"],
    }


@pytest.mark.usefixtures("_either_reader")
def test_a_trigger_is_read_as_text() -> None:
    assert mapping(TRIGGER) == {
        "name": "health-check",
        "agent": "monitor",
        "source": {"type": "cron", "expression": "0 * * * *"},
        "prompt_template": "Hourly health check at {{fire_time}}.\n"
        '- [ ] check *all* endpoints & report: "any" anomalies!\n',
        "tool_policy": {"mode": "allow_list", "tools": ["Bash", "WebFetch"]},
        "enabled": "true",
    }


def test_keys_keep_their_order() -> None:
    assert list(mapping("z: 1\na: 2\nm: 3\n")) == ["z", "a", "m"]


@pytest.mark.parametrize(
    "written",
    [
        "012",
        "0x1F",
        "1:30",
        "on",
        "No",
        "~",
        "null",
        "=",
        "2026-13-45",
        "1e3",
        ".inf",
        "1_000",
        "y",
    ],
)
def test_what_other_readers_turn_into_something_else_stays_text(written: str) -> None:
    assert mapping(f"key: {written}") == {"key": written}


def test_only_a_value_that_is_not_there_is_none() -> None:
    assert mapping("absent:\nempty: ''\nempty2: \"\"\nblock: |\nlist:\n -\n - ''\n") == {
        "absent": None,
        "empty": "",
        "empty2": "",
        "block": "",
        "list": [None, ""],
    }


@pytest.mark.parametrize("text", ["", "\n\n", "# a comment\n", "---\n", "---\n...\n", "\ufeff"])
def test_an_empty_text_is_none(text: str) -> None:
    assert read_yaml(text) is None


def test_the_top_may_be_a_list_or_a_word() -> None:
    assert read_yaml("- a\n- b: c\n") == ["a", {"b": "c"}]
    assert read_yaml("word") == "word"


@pytest.mark.usefixtures("_either_reader")
def test_line_ends_a_byte_order_mark_and_any_script_are_read() -> None:
    assert mapping("\ufeff---\r\ntitle: Día 時 🕐\r\ntext: |\r\n  one\r\n  two\r\n") == {
        "title": "Día 時 🕐",
        "text": "one\ntwo\n",
    }


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
TREES: st.SearchStrategy[Any] = st.recursive(
    TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=12,
)


class Plain(yaml.SafeDumper):
    """A writer that gives each value its own text."""

    def ignore_aliases(self, data: Any) -> bool:
        return data is not None


@settings(max_examples=scaled(4000), deadline=None)
@given(TREES, st.sampled_from(["'", '"', "|"]), st.booleans())
def test_what_a_writer_writes_is_read_back(tree: Any, style: str, flow: bool) -> None:
    written = yaml.dump(tree, Dumper=Plain, default_style=style, default_flow_style=flow, width=40)
    # The writer marks block text as text with a tag, which we do not take, and long keys with ?.
    if "!" not in written and "? " not in written:
        assert read_yaml(written) == tree


# Where things stand


def test_each_key_knows_its_line_its_column_and_its_value() -> None:
    places = mapping(TASK).places
    assert places["status"].line == 3
    assert places["status"].column == 1
    assert TASK[places["status"].key :].startswith("status: todo")
    assert {key: value_at(TASK, place) for key, place in places.items()} == {
        "id": "042",
        "title": "Weekly standup report",
        "status": "todo",
        "tags": '[weekly, "on call"]',
        "cron_schedule": '"0 9 * * MON"',
        "scheduled_for": "2026-03-30T09:00:00Z",
        "claimed_by": "",
        "depends_on": "- 7\n  - 12",
    }


def test_an_inner_mapping_knows_its_places_too() -> None:
    source = mapping(TRIGGER)["source"]
    assert isinstance(source, YamlMap)
    place = source.places["expression"]
    assert (place.line, place.column) == (6, 3)
    assert value_at(TRIGGER, place) == '"0 * * * *"'


def test_the_value_of_a_block_ends_with_its_last_word() -> None:
    text = "note: |\n  one\n\n  two\n\n\n# below\nlist:\n- a\n-\n# end\n"
    places = mapping(text).places
    assert value_at(text, places["note"]) == "|\n  one\n\n  two"
    assert value_at(text, places["list"]) == "- a\n-"


def test_lines_count_from_where_the_text_stands_in_its_file() -> None:
    data = read_yaml("id: 1\ntitle: x\n", line=2)
    assert isinstance(data, YamlMap)
    assert [place.line for place in data.places.values()] == [2, 3]


def test_a_byte_order_mark_counts_as_an_offset_and_not_as_a_column() -> None:
    text = "\ufeffid: 7\n"
    place = mapping(text).places["id"]
    assert (place.line, place.column) == (1, 1)
    assert text[place.key : place.end] == "id: 7"


def spliced(text: str, place: YamlPlace) -> str:
    blank = " " if place.start == place.end else ""
    return f'{text[: place.start]}{blank}"new"{text[place.end :]}'


def is_under_its_key(text: str, place: YamlPlace) -> bool:
    """Tell whether a value is where people put it; a `|` may stand below its key, unindented."""
    line = text.rfind("\n", 0, place.start) + 1
    return line <= place.key or place.start - line >= place.column


def test_a_value_can_be_replaced_where_it_stands_and_nothing_else_changes() -> None:
    random = Random(20260606)
    replaced = 0
    for text in near_yaml(random, scaled(100_000)):
        if "\t" in text:  # a line with nothing but a tab is read differently after a quote
            continue
        try:
            data = read_yaml(text)
        except YamlError:
            continue
        if not isinstance(data, YamlMap):
            continue
        for key, place in data.places.items():
            if place.start == place.end:
                assert text[place.start - 1] == ":"
            if is_under_its_key(text, place):
                assert read_yaml(spliced(text, place)) == {**data, key: "new"}, (text, key)
                replaced += 1
    assert replaced > scaled(100_000) // 50


# What it refuses


@pytest.mark.usefixtures("_either_reader")
@pytest.mark.parametrize(
    ("text", "line", "column", "reason"),
    [
        ("a: &x 1\nb: 2", 1, 4, "an anchor (&), which is not supported"),
        ("a: 1\nb: *x", 2, 4, "an alias (*), which is not supported"),
        ("a:\n  <<: b", 2, 3, "a merge key (<<), which is not supported"),
        ("a: !!python/object/apply:os.system [id]", 1, 4, "a tag (!), which is not supported"),
        ("a: !secret x", 1, 4, "a tag (!), which is not supported"),
        ("! a", 1, 1, "a tag (!), which is not supported"),
        ("!!map {a: b}", 1, 1, "a tag (!), which is not supported"),
        ("&top\na: b", 1, 1, "an anchor (&), which is not supported"),
        ("a: 1\n---\nb: 2", 2, 1, "a second document"),
        ("%YAML 1.1\n---\na: b", 1, 1, "a line that begins with % (a directive)"),
        ("[a]: b", 1, 1, "a list or mapping as a key"),
        ("? {a: b}\n: c", 1, 3, "a list or mapping as a key"),
        ("?\n: b", 1, 2, "a value without a key"),
        ("? a\n: b", 1, 3, "a key without a colon and a space"),
        ('{a:"b"}', 1, 2, "a key without a colon and a space"),
    ],
)
def test_what_we_do_not_take_is_refused_at_its_place(
    text: str, line: int, column: int, reason: str
) -> None:
    error = refused(text)
    assert (error.line, error.column, error.reason) == (line, column, reason)


def test_the_same_key_twice_is_refused_with_both_places() -> None:
    error = refused("x:\n  status: todo\n  id: 1\n  status: done\n", name="t.yml", line=10)
    assert str(error) == (
        "t.yml:13:3: the key 'status' is already at line 11, column 3; keep one of the two"
    )
    assert (error.line, error.first_line) == (13, 11)


def test_the_same_key_in_two_mappings_is_fine() -> None:
    assert mapping("a: {x: 1}\nb: {x: 2}") == {"a": {"x": "1"}, "b": {"x": "2"}}


def test_a_quoted_merge_key_is_a_word() -> None:
    assert mapping("'<<': a") == {"<<": "a"}


@pytest.mark.usefixtures("_either_reader")
@pytest.mark.parametrize(
    ("text", "line", "column", "words"),
    [
        ("cron: */5 * * * *", 1, 7, "a value cannot begin with *; put it in quotes"),
        ("cron: @daily", 1, 7, "a value cannot begin with @; put it in quotes"),
        ("title: `x`", 1, 8, "a value cannot begin with `; put it in quotes"),
        ("title: %x", 1, 8, "a value cannot begin with %; put it in quotes"),
        ("title: & co", 1, 8, "a value cannot begin with &; put it in quotes"),
        ("title: !<x", 1, 8, "a value cannot begin with !; put it in quotes"),
        (
            "title: Fix: it",
            1,
            11,
            'a ": " where a key is not allowed; quote the value, or correct the indentation',
        ),
        (
            "a: 1\n b: 2",
            2,
            3,
            'a ": " where a key is not allowed; quote the value, or correct the indentation',
        ),
        ("list: - a", 1, 7, 'a "- " where a list is not allowed; begin the list on a new line'),
        ("a: b\n\tc: d", 2, 1, "a tab where only spaces are allowed; indent with spaces"),
        ('a: "x\nb: y', 1, 4, "a quote that is not closed; close it"),
        (
            "a: 'it's",
            1,
            8,
            "a line that does not fit the lines above it; correct the indentation, and quote values",
        ),
        ('a: "C:\\dir"', 1, 7, "an unknown escape; write \\\\ for a backslash"),
        ("a: [b, c", 1, 4, "a bracket that is not closed, or a missing comma; close it"),
        ("a: {b: c", 1, 4, "a bracket that is not closed, or a missing comma; close it"),
        ("a: b\nword", 2, 1, "a line without a colon; write `key: value`"),
        ("a: |x\n b", 1, 5, "a | or > that cannot be read; put its text on the next lines"),
        ("a: b\n...\nc", 3, 1, "text after the end of the document; keep only one document"),
        ("a: ]", 1, 4, "a value is missing; write a value, or put this in quotes"),
        ("{: b}", 1, 2, "a value is missing; write a value, or put this in quotes"),
        ("a: b ? c: d", 1, 9, 'a ": " where a key is not allowed'),
        ("- a\n? b", 2, 1, "a line that does not fit the lines above it"),
    ],
)
def test_a_slip_of_the_pen_is_explained_at_its_place(
    text: str, line: int, column: int, words: str
) -> None:
    error = refused(text)
    # The two readers of the library may point at a backslash or at what follows it.
    assert error.line == line
    assert abs(error.column - column) <= ("escape" in words)
    assert words in str(error)


@pytest.mark.parametrize(
    ("text", "column", "words"),
    [
        ("a: \x07", 4, "an invisible character, U+0007; remove it, write an escape"),
        ("a: \x00", 4, "an invisible character, U+0000"),
        ("a: \x7f", 4, "an invisible character, U+007F"),
        ("a: \ufeffb", 4, "an invisible character, U+FEFF"),
        ("a: b\x85c: d", 5, "an invisible character, U+0085"),
        ("a: b\u2028c: d", 5, "an invisible character, U+2028"),
        ("a: b\u2029", 5, "an invisible character, U+2029"),
        ("a: b\rc: d", 5, "U+000D; remove it, write an escape in double quotes, or end lines with"),
        ("a: \ud83d", 4, "an invisible character, U+D83D"),
        ("é: \udce9", 4, "an invisible character, U+DCE9"),
    ],
)
def test_a_character_that_cannot_be_seen_is_refused_at_its_place(
    text: str, column: int, words: str
) -> None:
    error = refused(f"first: line\n{text}")
    assert (error.line, error.column) == (2, column)
    assert words in str(error)


@pytest.mark.usefixtures("_either_reader")
def test_such_a_character_may_be_written_as_an_escape() -> None:
    assert mapping(r'a: "\x07\u2028\x85"') == {"a": "\x07\u2028\x85"}


@pytest.mark.usefixtures("_either_reader")
def test_half_a_character_is_refused_as_an_escape_too() -> None:
    assert "U+D83D" not in str(refused(r'a: "\ud83d"'))
    assert refused(r'"\ud83d": a').line == 1


def test_an_error_names_the_file_or_only_the_place() -> None:
    assert str(refused("*", name="agents/a.yml", line=3)).startswith("agents/a.yml:3:1: ")
    assert str(refused("*")).startswith("line 1, column 1: ")


def test_an_error_keeps_its_facts() -> None:
    assert refused("a: *x", name="a.yml").data() == {
        "code": "yaml",
        "message": "a.yml:1:4: an alias (*), which is not supported; write the value out, or quote it",
        "facts": {
            "reason": "an alias (*), which is not supported",
            "fix": "write the value out, or quote it",
            "line": 1,
            "column": 4,
            "name": "a.yml",
        },
    }


@pytest.mark.parametrize("trouble", [MemoryError, RecursionError, ValueError, OverflowError])
def test_whatever_the_library_does_is_the_same_error(
    trouble: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    def parse(*_: object, **__: object) -> Iterator[object]:
        raise trouble

    monkeypatch.setattr(yaml, "parse", parse)
    assert trouble.__name__ in str(refused("a: b"))


# How much it takes


def test_the_size_is_counted_in_bytes() -> None:
    assert read_yaml("é" * 10, limit=20) == "é" * 10
    assert "more than 19 bytes" in str(refused("é" * 10, limit=19))
    assert refused("x" * (MAX_BYTES + 1)).column == 1


@pytest.mark.usefixtures("_either_reader")
@pytest.mark.parametrize(
    ("opening", "closing"),
    [("[", "]"), ("{a: ", "}"), ("- ", ""), ("[{a: ", "}]")],
)
def test_depth_counts_lists_and_mappings_of_every_kind(opening: str, closing: str) -> None:
    step = 2 if "[{" in opening else 1
    levels = MAX_DEPTH // step
    read_yaml(opening * levels + "x" + closing * levels)
    error = refused(opening * (levels + 1) + "x" + closing * (levels + 1))
    assert error.reason == "more than 64 levels"
    assert error.column == levels * len(opening) + 1


def test_depth_counts_indented_blocks() -> None:
    stairs = [" " * level + "a:\n" for level in range(MAX_DEPTH + 1)]
    read_yaml("".join(stairs[:MAX_DEPTH]))
    assert refused("".join(stairs)).line == MAX_DEPTH + 1


def test_depth_can_be_set() -> None:
    assert read_yaml("a: [b]", depth=2) == {"a": ["b"]}
    assert refused("a: [b]", depth=1).column == 4


def test_brackets_in_prose_and_quotes_nest_nothing() -> None:
    prose = "  - [ ] see [[link]] and {this\n" * 300
    quoted = ", ".join(['"[ "', "']'", '"\\" {"'] * 300)
    data = mapping(f"text: |\n{prose}list: [{quoted}]\nword: a[[[[{{{{# no comment\n")
    assert isinstance(data["text"], str)
    assert data["text"].count("[[link]]") == 300
    assert isinstance(data["list"], list)
    assert len(data["list"]) == 900


@pytest.mark.usefixtures("_either_reader")
@pytest.mark.parametrize("text", ["[" * 100_000, "{a: " * 100_000, "- " * 400_000])
def test_what_is_too_deep_is_refused_before_the_library_has_read_the_rest(text: str) -> None:
    assert refused(text).reason == "more than 64 levels"


def test_brackets_that_nest_nothing_may_be_many_and_a_line_may_be_indented_far() -> None:
    assert read_yaml("'" + "[" * 100_000 + "'") == "[" * 100_000
    assert read_yaml(" " * 5_000 + "x") == "x"


def test_keys_and_values_are_counted() -> None:
    assert read_yaml("- x\n" * (MAX_NODES - 1)) == ["x"] * (MAX_NODES - 1)
    assert refused("- x\n" * MAX_NODES).reason == "more than 50,000 keys and values"


# Each of these crashes, hangs or fills the memory of some reader of YAML.
BOMBS = """
N = 1_000_000
levels = range(30)
BOMBS = [
    "[" * 100_000, "{" * N, "[{" * N, "[a, " * N, "{a: " * N, "[" * 9_999, "{? " * 9_999,
    "[" * 9_999 + "]" * 9_999, '["' * 9_999, "[\\n" * N, "[#\\n" * N,
    "- " * N, "-\\n" * N, "-" * N, "? " * N, "?\\n" * N, ": " * N, ":\\n" * N, "- ? " * N,
    "-\\t" * N, "a: " * N, "a:" * N, "? a\\n" * N, "'" * N, "''" * N, '"' * N, '"\\\\' * N,
    "".join(" " * n + "a:\\n" for n in range(999)),
    "".join(" " * n + "- a:\\n" for n in range(0, 998, 2)),
    "".join(f"- &a{n} x\\n" for n in range(50_000)),
    "".join(f"a{n}: &a{n} {{<<: [*a{n - 1}, *a{n - 1}]}}\\n" for n in levels),
    "".join(f"- &a{n} [*a{n - 1}, *a{n - 1}]\\n" for n in levels),
    "".join(f"%TAG !a{n}! x\\n" for n in range(60_000)) + "--- a",
    "".join(f"key{n}: value\\n" for n in range(60_000)),
    "x" * 8 * N, "a: " + "x" * N, "a: " + "x " * (N // 2), "a: |\\n" + " x\\n" * (N // 3),
    "a: |\\n" + "\\n" * N, "a: >\\n" + " x\\n\\n" * (N // 5), "a: '" + "x\\n " * (N // 3) + "'",
    "a: " + " " * N + "b", "#" * N, "#\\n" * (N // 2), "\\n" * N, " " * N, "\\t" * N,
    "---\\n" * (N // 4), "...\\n" * (N // 4), "!" * N, "&" * N, "*" * N, "|" * N, "%" * N,
    "\\u2028" * N, "\\ufeff" * N, "\\ud800" * N, "\\r" * N, "\\x00" * N, "[],[" * N,
    "".join(f"a{n}: |\\n x\\n" + "\\n" * 30 for n in range(20_000)),
]
"""

DEFUSED = (
    BOMBS
    + """
import resource, sys, yaml
if sys.argv[1] == "Python":
    del yaml.CBaseLoader
from horae.files.yaml import YamlError, read_yaml
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
resource.setrlimit(resource.RLIMIT_DATA, (2**28, 2**28))
forever = resource.getrlimit(resource.RLIMIT_CPU)[1]
for number, bomb in enumerate(BOMBS):
    used = resource.getrusage(resource.RUSAGE_SELF)
    resource.setrlimit(resource.RLIMIT_CPU, (int(used.ru_utime + used.ru_stime) + 10, forever))
    try:
        read_yaml(bomb)
    except YamlError as error:
        assert error.line and error.column and error.reason and error.fix
print(number + 1)
"""
)


@pytest.mark.skipif(sys.platform == "win32", reason="limits of a process are POSIX")
@pytest.mark.parametrize("reader", ["C", "Python"] if scaled(100) == 100 else ["C"])
def test_every_bomb_is_answered_within_a_cpu_and_a_memory_limit(reader: str) -> None:
    run = subprocess.run(
        [sys.executable, "-c", DEFUSED, reader], capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr[-2000:]
    assert int(run.stdout) > 50


def test_the_library_is_loaded_only_when_there_is_yaml_to_read() -> None:
    code = "import sys, horae.files.yaml; sys.exit('yaml' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


# Anything at all

PIECES = [
    *("a", "b", "key", "id", "- ", "-", "? ", "?", ": ", ":", "\n", "\n", "\n", "\n ", "\n  "),
    *("\n    ", "\r\n", "  ", "[", "]", "{", "}", ",", ", ", '"', "'", "#", " # c", "|", ">", "|-"),
    *(
        ">+",
        "|2",
        "&x ",
        "*x",
        "*",
        "!",
        "!!str ",
        "!x ",
        "%",
        "@",
        "`",
        "~",
        "null",
        "<<: ",
        "---",
    ),
    *("\n---\n", "...", "\n...\n", "\t", "\n\t", "\\", "\\n", "\\x", "\\u12", "0", "042", "1:30"),
    *("é", "🕐", "=", "<", "x: y", "- z", 'a: "b"', "'it''s'", '"q\\"r"', "key: value\n"),
    *("list:\n  - one\n", "text: |\n  some\n", "in: {a: [b]}\n"),
]
STRANGE = ["\ufeff", "\x07", "\u2028", "\x85", "\r", "\ud800", "\x00"]


def near_yaml(random: Random, count: int) -> Iterator[str]:
    """Yield texts that are almost YAML: pieces of it, and real files with a few pieces changed."""
    for number in range(count):
        pieces = PIECES if random.random() < 0.8 else PIECES + STRANGE
        if number % 2:
            yield "".join(random.choices(pieces, k=random.randrange(1, 18)))
            continue
        text = random.choice([TASK, TRIGGER])
        for _ in range(random.randrange(1, 5)):
            start = random.randrange(len(text))
            end = min(len(text), start + random.randrange(4))
            text = text[:start] + random.choice(pieces) + text[end:]
        yield text


def answer(text: str) -> tuple[Data, list[YamlPlace]] | None:
    """Return data and places, or None for a text that is refused."""
    try:
        data = read_yaml(text, depth=8)
    except YamlError as error:
        check_refusal(text, error)
        return None
    return data, places(data)


def check_refusal(text: str, error: YamlError) -> None:
    assert 1 <= error.line <= text.count("\n") + 1
    assert 1 <= error.column <= len(text) + 1
    assert error.reason
    assert error.fix


def places(data: Data) -> list[YamlPlace]:
    """Return every place in a tree, after checking that the tree is plain text."""
    found: list[YamlPlace] = []
    stack = [data]
    while stack:
        match stack.pop():
            case YamlMap() as node:
                assert list(node) == list(node.places)
                assert all(type(key) is str for key in node)
                found += node.places.values()
                stack += node.values()
            case list() as nodes:
                stack += nodes
            case node:
                assert node is None or type(node) is str
    json.dumps(data)
    return found


def test_no_text_raises_anything_else_and_both_readers_of_the_library_agree(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    random = Random(42)
    read = 0
    for text in near_yaml(random, scaled(100_000)):
        ours = answer(text)
        with monkeypatch.context() as patch:
            patch.delattr(yaml, "CBaseLoader")
            theirs = answer(text)
        # They refuse a little differently: a tab after a value, `[a:, b]` or `[a? b]`.
        if ours is not None and theirs is not None:
            assert theirs == ours, text
            read += 1
    assert read > scaled(100_000) // 10


@settings(max_examples=scaled(5000), deadline=None)
@given(st.text() | st.text(st.sampled_from("[]{}-?:,'\"#&*!|>%@ \n\tab")))
def test_any_text_is_data_or_an_error(text: str) -> None:
    _, found = answer(text) or (None, [])
    assert all(place.line <= text.count("\n") + 1 for place in found)
    assert all(place.key <= place.start <= len(text) for place in found)
