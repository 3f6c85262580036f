"""Reading a plan loses nothing, raises nothing, and never reads twice what it knows."""

import gc
from pathlib import Path
from random import Random

import pytest
from hypothesis import example, given, settings

import horae
from horae.org.document import bare, blocks, elements, keywords, read
from horae.org.headline import parts, properties
from horae.org.plan import Plan, Span
from near_org import text_from, texts
from scale import scaled

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").rglob("*.org"))

DIGEST = """\
#+TITLE: Digest
* TODO [#B] Nightly digest :workflow:daily:
  SCHEDULED: <2026-06-06 Sat 06:00 +1d> DEADLINE: [2026-07-01]
  :PROPERTIES:
  :ID: digest
  :Owner:   Zürich 🕰  \t
  :END:
** Fetch :component:
#+begin_src python :out events
print(1)
#+end_src
"""


def assert_spans_are_exact(plan: Plan) -> None:
    text = plan.text()
    for headline, place in zip(plan.headlines, plan.places(), strict=True):
        section = headline.text
        assert text.startswith(section, place.start)
        assert text.count("\n", 0, place.start) + 1 == place.line
        found = parts(headline)
        assert section[slice(*found.stars)] == "*" * headline.level
        assert section[slice(*found.state)] == (headline.state or "")
        assert section[slice(*found.priority)] == (
            f"[#{headline.priority}]" if headline.priority else ""
        )
        assert section[slice(*found.title)] == headline.title
        if headline.planning:
            for stamp in headline.planning[2:]:
                assert stamp is None or section[stamp.start : stamp.end] == stamp.text
        if headline.drawer:
            lines = list(properties(section, headline.drawer))
            assert {line.key: line.value for line in lines if line.value} == headline.props
            assert all(section[slice(*line.at)] == line.value for line in lines)
        for element in elements(section, headline.body):
            assert section.startswith("#+", element.span.start)
            assert headline.body <= element.span.start < element.span.end <= len(section)
        assert len(bare(section)) == len(section)


@given(texts)
@example("")
@example("\ufeff* A")
@example("* A\r\nSCHEDULED: <2026-06-06>\r\n:PROPERTIES:\r\n:ID: x\r\n:END:\r\n")
@settings(max_examples=scaled(1_000, few=200))
def test_reading_gives_the_text_back_and_every_part_knows_its_place(text: str) -> None:
    plan = read(text)
    assert plan.text() == text
    assert_spans_are_exact(plan)


def test_no_input_makes_a_reader_raise_or_lose_a_character() -> None:
    random = Random(20260606)
    for _ in range(scaled(100_000)):
        text = text_from(random)
        assert read(text).text() == text
        horae.query(text)
        horae.tangle(text)
        horae.validate(text)
        horae.check(text)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_every_example_is_given_back_byte_for_byte(path: Path) -> None:
    data = path.read_bytes()
    plan = read(data.decode())
    assert plan.text().encode() == data
    assert_spans_are_exact(plan)


def test_states_count_wherever_in_the_file_they_are_declared() -> None:
    assert read("* NEXT Sow\n").headlines[0].state is None
    assert read("* NEXT Sow\n#+TODO: NEXT | DONE\n").headlines[0].state == "NEXT"
    assert read("#+TODO: NEXT |\n* NEXT Sow\n").headlines[0].state == "NEXT"


def test_a_state_line_inside_a_block_declares_nothing() -> None:
    plan = read("#+begin_example\n#+TODO: NEXT | LATER\n#+end_example\n* NEXT Sow\n")
    assert plan.headlines[0].state is None


def test_the_words_after_the_bar_are_done() -> None:
    plan = read(
        "#+TODO: ASSIGNED(a) EDIT(e!) | PUBLISHED(p@/!) KILLED\n#+TYP_TODO: Fred Lucy | OK\n"
    )
    assert plan.states.todo == {"TODO", "ASSIGNED", "EDIT", "Fred", "Lucy"}
    assert plan.states.done == {"DONE", "PUBLISHED", "KILLED", "OK"}


def test_every_part_of_a_digest_knows_its_place_in_the_bytes() -> None:
    plan = read(DIGEST)
    data = DIGEST.encode()
    headline = plan.headlines[0]
    assert headline.planning is not None
    assert headline.planning.scheduled is not None
    assert headline.drawer is not None

    def cut(span: Span) -> str:
        start, end = plan.byte_span(0, span)
        return data[start:end].decode()

    found = parts(headline)
    assert cut(found.state) == "TODO"
    assert cut(found.priority) == "[#B]"
    assert cut(found.title) == "Nightly digest"
    assert cut(found.tags) == ":workflow:daily:"
    assert cut(Span(*headline.planning.scheduled[:2])) == "<2026-06-06 Sat 06:00 +1d>"
    assert [cut(line.at) for line in properties(headline.text, headline.drawer)] == [
        "digest",
        "Zürich 🕰",
    ]
    assert [place.line for place in plan.places()] == [2, 8]


def test_a_block_knows_its_lines_and_what_stands_between_them() -> None:
    fetch = read(DIGEST).headlines[1]
    [block] = blocks(fetch.text, fetch.body)
    assert fetch.text[slice(*block.span)] == "#+begin_src python :out events\nprint(1)\n#+end_src\n"
    assert fetch.text[slice(*block.inside)] == "print(1)\n"


def test_a_keyword_knows_its_line() -> None:
    [title] = keywords(read(DIGEST).preamble)
    assert (title.key, title.value, title.span) == ("TITLE", "Digest", Span(0, 16))


def test_the_collector_is_on_again_after_a_large_plan() -> None:
    read("* A\n" * 100_000)
    assert gc.isenabled()


@pytest.mark.parametrize(
    "hostile",
    [
        pytest.param("*" * 1_000_000, id="a million stars"),
        pytest.param("* " + "x" * 1_000_000, id="a megabyte title"),
        pytest.param("* a " + ":a: " * 250_000, id="a megabyte of tags"),
        pytest.param("* a " + ":" * 1_000_000, id="a megabyte of colons"),
        pytest.param("* a\n:PROPERTIES:\n" * 20_000, id="drawers that never end"),
        pytest.param("* a\n:PROPERTIES:\n" + ":a: b\n" * 150_000, id="one drawer that never ends"),
        pytest.param("* a :component:\n" + "#+begin_src x\n" * 70_000, id="blocks that never end"),
        pytest.param("* a :component:\n" + "".join(f"#+begin_{n}\n" for n in range(60_000)), id="blocks of all kinds that never end"),
        pytest.param("* a\nSCHEDULED: " + "<2026-06-06> " * 70_000, id="a megabyte planning line"),
        pytest.param("* a\nSCHEDULED: " + "<" * 1_000_000, id="a megabyte of brackets"),
        pytest.param("".join(f"{'*' * n} a :workflow:\n" for n in range(1, 1_400)), id="deep nesting"),
        pytest.param("* a :workflow:\n" * 20_000, id="many workflows"),
        pytest.param("#+TODO: " + "A " * 400_000 + "\n" + "* A\n" * 50_000, id="many states"),
        pytest.param("#+TODO: A\n" * 40_000, id="many state lines"),
        pytest.param("* a :component:\n" + "- x\n" * 250_000, id="a long list"),
    ],
)  # fmt: skip
def test_a_hostile_megabyte_is_read_in_one_pass(hostile: str) -> None:
    # Would take minutes if any step were quadratic; the benchmark has the numbers.
    assert read(hostile).text() == hostile
    horae.query(hostile)
    horae.tangle(hostile)
    horae.validate(hostile)
    horae.check(hostile)
