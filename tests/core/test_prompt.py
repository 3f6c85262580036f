"""A template is filled in once, and nothing that is filled in is ever read as a template."""

from __future__ import annotations

import pytest
from hypothesis import given, settings, strategies as st

from horae.core.agent import LONGEST, as_written, problems, render, variables

KNOWN = ["title", "body", "fire_time", "labels"]
NASTY = [
    "{{title}}",
    "{{",
    "}}",
    '"',
    "'",
    "\n",
    "\r\n",
    "\x00",
    "\x1b[2J",
    "\u2028",
    "{",
    "$",
    "\\1",
]

texts = st.lists(st.sampled_from([*NASTY, "a", " ", "{{body}}", "{{ title }}"])).map("".join)


def test_a_place_may_have_spaces_in_it() -> None:
    values = {"title": "Digest"}
    for place in ("{{title}}", "{{ title }}", "{{\ttitle\n}}"):
        assert render(f"<{place}>", values) == "<Digest>"


def test_names_are_told_once_and_in_order() -> None:
    assert variables("{{body}} {{ title }} {{body}}") == ["body", "title"]
    assert variables("none { here } }}{{") == []


def test_a_brace_around_a_place_stays() -> None:
    assert render('{"t": {{title}}}', {"title": "x"}) == '{"t": x}'


def test_a_name_without_a_value_stays_as_it_is() -> None:
    assert render("{{late}} {{ title }}", {"title": "x"}) == "{{late}} x"


@pytest.mark.parametrize(
    ("template", "found"),
    [
        ("", ["the template is empty"]),
        (" \n", ["the template is empty"]),
        ("Plain words.", []),
        ("{{title}} {{ body }}", []),
        ("a {{title", ["unclosed template placeholder at position 2"]),
        ("{{title}} {{ {{body}}", ["unclosed template placeholder at position 10"]),
        ("{{metadata.team}} {{metadata.issue-number}}", []),
    ],
)
def test_what_is_wrong_is_said(template: str, found: list[str]) -> None:
    assert problems(template, KNOWN) == found


def test_an_unknown_name_is_named_with_the_nearest_known_one() -> None:
    [said] = problems("{{fire_tme}}", KNOWN)
    assert said.startswith(
        "unknown template variable '{{fire_tme}}'. Did you mean '{{fire_time}}'?"
    )
    assert said.endswith("Known variables: title, body, fire_time, labels")
    assert len(problems("{{Title}} {{zzzz}} {{metadata.}} {{metadata.a b}}", KNOWN)) == 4
    assert "Did you mean" not in problems("{{zzzz}}", KNOWN)[0]


def test_a_template_has_a_longest_length() -> None:
    assert problems("x" * LONGEST, KNOWN) == []
    assert problems("x" * (LONGEST + 1), KNOWN) == [
        f"the template has more than {LONGEST:,} characters"
    ]


@settings(deadline=None)
@given(texts)
def test_no_value_is_ever_expanded_or_changes_what_stands_around_it(value: str) -> None:
    values = {"title": value, "body": value, "fire_time": "now", "labels": "SECRET"}
    told = render("A {{title}} B\nC {{body}} D\nE {{fire_time}}", values)
    assert told == (f"A {as_written('title', value)} B\nC {as_written('body', value)} D\nE now")
    assert "SECRET" not in told
    assert told.splitlines()[0].startswith("A ")
    assert len(as_written("title", value).splitlines()) <= 1


@settings(deadline=None)
@given(texts)
def test_a_value_holds_no_control_byte_where_it_is_shown(value: str) -> None:
    assert all(char.isprintable() for char in as_written("title", value))
    assert all(char.isprintable() or char in "\n\t" for char in as_written("body", value))
    if value.isprintable():
        assert as_written("title", value) == value


@settings(deadline=None)
@given(st.text(alphabet="{}ab \n", max_size=60))
def test_a_template_without_problems_is_filled_in_completely(template: str) -> None:
    known = ["a", "b", "ab", "ba", ""]
    if not problems(template, known):
        told = render(template, dict.fromkeys(known, "."))
        assert "{{" not in told


def test_the_time_it_takes_grows_with_the_text_alone() -> None:
    for bomb in (
        "{" * 100_000,
        "{{" * 50_000 + "}}" * 50_000,
        "{{a" * 40_000,
        "{{ " + " " * 200_000,
    ):
        assert render(bomb, {"a": "x"})
        assert problems(bomb, KNOWN)
