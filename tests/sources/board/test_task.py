"""A task is Markdown with its fields on top, and what is wrong with it is said with its place."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from horae.org.plan import Severity
from horae.sources.board.task import FIELDS, LARGEST_ID, byte_span, lines_of, parse, value_of

SEED = """\
---
id: 42
title: Weekly standup report
status: todo
priority: medium
cron_schedule: "0 9 * * MON"
scheduled_for: "2026-03-31T09:00:00Z"
cron_last_run: "2026-03-24T09:00:00Z"
---

Generate and distribute the weekly standup report.
"""


def test_a_task_has_the_fields_that_stand_on_its_top() -> None:
    task, odd = parse(SEED)
    assert task is not None
    assert (task.id, task.title, task.status, task.priority) == (
        42,
        "Weekly standup report",
        "todo",
        "medium",
    )
    assert task.cron_schedule == "0 9 * * MON"
    assert task.scheduled_for == "2026-03-31T09:00:00Z"
    assert task.cron_last_run == "2026-03-24T09:00:00Z"
    assert task.body == "\nGenerate and distribute the weekly standup report.\n"
    assert odd == ()


def test_what_is_left_out_has_its_default() -> None:
    task, odd = parse("---\nid: 7\ntitle: Sow\n---\n")
    assert task is not None
    assert (task.status, task.priority, task.tags, task.body) == ("backlog", "", (), "")
    assert (task.scheduled_for, task.cron_schedule, task.cron_last_run, task.timezone) == (
        None,
    ) * 4
    assert odd == ()


@pytest.mark.parametrize("value", ["", " ~", " null", " ''"])
def test_a_field_without_a_value_is_not_there(value: str) -> None:
    task, odd = parse(f"---\nid: 7\ntitle: Sow\ncron_schedule:{value}\n---\n")
    assert task is not None
    assert (task.cron_schedule, odd) == (None, ())


def test_a_value_is_the_text_that_was_written() -> None:
    task, _ = parse(
        "---\nid: 042\ntitle: 2026-01-01\nscheduled_for: 2026-03-25T09:00:00-04:00\n---\n"
    )
    assert task is not None
    assert (task.id, task.title) == (42, "2026-01-01")
    assert task.scheduled_for == "2026-03-25T09:00:00-04:00"


def test_other_fields_are_kept_with_their_places() -> None:
    text = "---\nid: 7\ntitle: Sow\nestimate: 3h\n---\nBody\n"
    task, _ = parse(text)
    assert task is not None
    place = task.fields.places["estimate"]
    start = task.frontmatter.start
    assert text[start + place.start : start + place.end] == "3h"
    assert place.line == 4


@pytest.mark.parametrize(
    ("extra", "is_archived"),
    [
        ("status: archived", True),
        ("tags: [archived]", True),
        ("tags: archived", True),
        ("tags: [a]", False),
    ],
)
def test_a_task_is_archived_by_its_status_or_by_a_tag(extra: str, *, is_archived: bool) -> None:
    task, _ = parse(f"---\nid: 7\ntitle: Sow\n{extra}\n---\n")
    assert task is not None
    assert task.is_archived == is_archived


@pytest.mark.parametrize(
    ("text", "place", "message"),
    [
        ("# A note\n", (1, 1), "a task file must begin with a line of three dashes"),
        ("", (1, 1), "a task file must begin with a line of three dashes"),
        ("\n---\nid: 7\n", (2, 1), "the fields are not closed"),
        ("---\n---\n", (2, 1), "there are no fields"),
        ("---\n- 7\n---\n", (2, 1), "there are no fields"),
        ("---\ntitle: Sow\n---\n", (2, 1), "a task needs an id"),
        ("---\ntitle: Sow\n id: 7\n---\n", (3, 4), "where a key is not allowed"),
        ("---\ntitle: Sow\nid: seven\n---\n", (3, 1), "a task needs an id"),
        (f"---\ntitle: Sow\nid: {LARGEST_ID + 1}\n---\n", (3, 1), "a task needs an id"),
        ("---\nid: 7\n---\n", (2, 1), "a task needs a title"),
        ("---\nid: 7\ntitle: [a]\n---\n", (3, 1), "title must be text, not a list"),
        (
            "---\nid: 7\ntitle: Sow\ncron_schedule: */5 * * * *\n---\n",
            (4, 16),
            "cannot begin with *",
        ),
        ("---\nid: 7\nid: 8\ntitle: Sow\n---\n", (3, 1), "already at line 2"),
    ],
)
def test_what_is_no_task_says_why_and_where(
    text: str, place: tuple[int, int], message: str
) -> None:
    task, [odd] = parse(text, name="007-sow.md")
    assert task is None
    assert message in odd.message
    assert (odd.file, odd.line, odd.column) == ("007-sow.md", *place)
    assert odd.fix


def test_an_odd_field_is_told_and_the_rest_still_reads() -> None:
    task, [odd] = parse("---\nid: 7\ntitle: Sow\npriority: {a: b}\nstatus: done\n---\n")
    assert task is not None
    assert (task.status, task.priority) == ("done", "")
    assert str(odd) == "-:4:1: error task: priority must be text, not a list"


def test_each_kind_of_field_is_read_as_what_it_is() -> None:
    task, odd = parse(
        "---\nid: 7\ntitle: Sow\ndepends_on: [012, 3]\nparent: 010\nclaim_ttl_secs: 1800\n"
        "tests_passed: True\nblocked: on\nbranch: no\ntags: [a, 'b c']\nfiles: one.md\n"
        "claimed_by: null\nassignee: 'null'\ncreated: 2026-01-01T00:00:00-05:00\nown: 0x1F\n---\n"
    )
    assert task is not None
    assert odd == ()
    assert task.depends_on == (12, 3)
    assert (task.number("parent"), task.number("claim_ttl_secs")) == (10, 1800)
    assert (task.flag("tests_passed"), task.flag("blocked"), task.flag("tests_run")) == (
        True,
        None,
        None,
    )
    assert (task.text("blocked"), task.text("branch")) == ("on", "no")
    assert (task.tags, task.texts("files"), task.texts("artifacts")) == (
        ("a", "b c"),
        ("one.md",),
        (),
    )
    assert (task.text("claimed_by"), task.text("assignee")) == (None, "null")
    assert task.text("created") == "2026-01-01T00:00:00-05:00"
    assert (task.text("own"), task.number("own")) == ("0x1F", None)


@pytest.mark.parametrize(
    ("field", "message", "severity"),
    [
        ("depends_on: [x]", "depends_on must be a list of numbers", Severity.ERROR),
        ("depends_on: {a: 1}", "depends_on must be a list of numbers", Severity.ERROR),
        ("scheduled_for: [a]", "scheduled_for must be text, not a list", Severity.ERROR),
        ("claim_ttl_secs: soon", "claim_ttl_secs must be a whole number", Severity.WARNING),
        ("parent: -1", "parent must be a whole number", Severity.WARNING),
        ("tests_run: maybe", "tests_run must be true or false", Severity.WARNING),
        ("tags: {a: b}", "tags must be a list of strings", Severity.WARNING),
        ("blocked: [a]", "blocked must be text, not a list", Severity.WARNING),
    ],
)
def test_a_value_of_the_wrong_kind_is_told_with_its_place(
    field: str, message: str, severity: Severity
) -> None:
    task, [odd] = parse(f"---\nid: 7\ntitle: Sow\n{field}\n---\n")
    assert task is not None
    assert (odd.message, odd.severity, odd.line, odd.column) == (message, severity, 4, 1)


@pytest.mark.parametrize("key", FIELDS)
def test_a_field_may_be_left_empty(key: str) -> None:
    if key not in {"id", "title"}:
        assert parse(f"---\nid: 7\ntitle: Sow\n{key}:\n---\n").diagnostics == ()


def test_the_place_of_a_field_is_known_in_characters_and_in_bytes() -> None:
    text = "\ufeff---\r\nid: 7\r\ntitle: 'Säen'  # ü\r\nnotes: |\r\n  a\r\n  b\r\n---\r\nü"
    task, _ = parse(text)
    assert task is not None
    lines = {key: lines_of(text, task, key) for key in task.fields}
    assert {key: text[span.start : span.end] for key, span in lines.items()} == {
        "id": "id: 7\r\n",
        "title": "title: 'Säen'  # ü\r\n",
        "notes": "notes: |\r\n  a\r\n  b\r\n",
    }
    span = byte_span(text, value_of(text, task, "title"))
    assert text.encode()[span.start : span.end].decode() == "'Säen'"


WORDS = st.text(st.characters(codec="utf-8", categories=("L", "N")), min_size=1, max_size=12)


@given(
    number=st.integers(0, LARGEST_ID),
    title=WORDS,
    body=st.text(st.characters(codec="utf-8", exclude_characters="\r")),
    before=st.sampled_from(["", "\ufeff", "\n", "\ufeff \n\n"]),
    newline=st.sampled_from(["\n", "\r\n"]),
)
def test_whatever_the_line_ends_and_the_body_the_fields_are_read(
    number: int, title: str, body: str, before: str, newline: str
) -> None:
    lines = (f"{before}---", f"id: {number}", f"title: '{title}'", "---", body)
    task, odd = parse(newline.join(lines))
    assert odd == ()
    assert task is not None
    assert (task.id, task.title, task.body) == (number, title, body)


@given(st.text(st.sampled_from("-\n id:7tle'[]{}\r\t#")))
def test_any_text_is_a_task_or_says_what_is_wrong(text: str) -> None:
    task, odd = parse(text)
    assert task is not None or odd
    for each in odd:
        assert 1 <= each.line <= text.count("\n") + 1
        assert each.column >= 1
