"""A headline that is done, in the words of Org, and not one other byte."""

from datetime import datetime
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from horae.files.edit import spliced
from horae.org.document import read
from horae.sources.plans.done import (
    Completed,
    HeadlineAmbiguousError,
    HeadlineMissingError,
    HeadlineStampError,
    HeadlineVoidError,
    PlanHeadline,
    complete,
    find,
    sequences,
)
from near_org import texts

NOON = datetime.fromisoformat("2026-06-09T12:00Z")  # a Tuesday


def after(text: str, name: str = "Sow", *, now: datetime = NOON, zone: str = "UTC") -> str:
    """Return a plan after one of its headlines was done."""
    here = find(read(text), name, path="plan.org")
    _, _, edits = here.completion(now=now, zone=zone)
    return spliced(text.encode(), here.splices(edits)).decode()


def test_a_headline_that_is_done_has_its_done_word_and_the_moment() -> None:
    assert after("* TODO Sow\nbeans\n") == "* DONE Sow\nCLOSED: [2026-06-09 Tue 12:00]\nbeans\n"


def test_the_moment_is_told_in_the_plans_zone() -> None:
    assert "CLOSED: [2026-06-09 Tue 21:00]" in after("* TODO Sow\n", zone="Asia/Tokyo")


def test_closed_stands_first_on_the_planning_line() -> None:
    text = "* TODO Sow\n  DEADLINE: <2026-06-10 Wed>\n"
    closed = "  CLOSED: [2026-06-09 Tue 12:00] DEADLINE: <2026-06-10 Wed>\n"
    assert after(text) == f"* DONE Sow\n{closed}"


def test_an_old_closed_gives_way_to_the_new_one() -> None:
    text = "* TODO Sow\nCLOSED: [2020-01-01 Wed] DEADLINE: <2026-06-10 Wed>\n"
    assert after(text).count("CLOSED:") == 1
    assert "CLOSED: [2026-06-09 Tue 12:00] DEADLINE" in after(text)


@pytest.mark.parametrize(
    ("text", "done"),
    [
        ("* Sow", "* DONE Sow\nCLOSED: [2026-06-09 Tue 12:00]"),
        ("* TODO Sow\r\nx\r\n", "* DONE Sow\r\nCLOSED: [2026-06-09 Tue 12:00]\r\nx\r\n"),
        ("\ufeff* Sow\n", "\ufeff* DONE Sow\nCLOSED: [2026-06-09 Tue 12:00]\n"),
        ("* [#A] Sow :x:\n", "* DONE [#A] Sow :x:\nCLOSED: [2026-06-09 Tue 12:00]\n"),
    ],
)
def test_line_ends_marks_and_a_missing_newline_stay(text: str, done: str) -> None:
    assert after(text) == done


def test_the_done_word_is_that_of_the_states_own_sequence() -> None:
    states = "#+TODO: NEXT | SHIPPED\n#+TODO: DRAFT(d) EDIT | PUBLISHED(p!) KILLED\n"
    assert "* PUBLISHED Sow\n" in after(f"{states}* EDIT Sow\n")
    assert "* SHIPPED Sow\n" in after(f"{states}* NEXT Sow\n")
    assert "* SHIPPED Sow\n" in after(f"{states}* Sow\n")
    assert "* DONE Sow\n" in after(f"{states}* TODO Sow\n")


def test_sequences_are_read_wherever_they_stand_and_keep_their_order() -> None:
    plan = read("* a\n#+SEQ_TODO: ONE TWO\n* b\n#+begin_src org\n#+TODO: NO | NEVER\n#+end_src\n")
    assert [each.open for each in sequences(plan)] == [("ONE",), ("TODO",)]


@pytest.mark.parametrize(
    ("repeater", "date"),
    [("+1w", "2026-06-08 Mon"), ("++1w", "2026-06-15 Mon"), (".+1w", "2026-06-16 Tue")],
)
def test_a_repeater_moves_the_date_and_opens_the_headline_again(repeater: str, date: str) -> None:
    text = f"#+TODO: NEXT DOING | DONE\n* DOING Sow\nSCHEDULED: <2026-06-01 Mon {repeater}>\n"
    assert after(text) == (
        "#+TODO: NEXT DOING | DONE\n* NEXT Sow\n"
        f"SCHEDULED: <{date} {repeater}>\n"
        ":PROPERTIES:\n:LAST_REPEAT: [2026-06-09 Tue 12:00]\n:END:\n"
    )


def test_a_headline_without_a_state_repeats_without_one() -> None:
    assert after("* Sow\nSCHEDULED: <2026-06-01 Mon +1d>\n").startswith("* Sow\n")


def test_the_state_to_repeat_to_can_be_written_down() -> None:
    text = (
        "#+TODO: NEXT WAIT | DONE\n* NEXT Sow\nDEADLINE: <2026-06-01 Mon +1d>\n"
        ":PROPERTIES:\n:REPEAT_TO_STATE: WAIT\n:END:\n"
    )
    assert "* WAIT Sow\n" in after(text)


def test_all_timestamps_that_repeat_move_also_in_title_and_text() -> None:
    text = (
        "* TODO Sow\nSCHEDULED: <2026-06-08 Mon +1d> DEADLINE: <2026-06-10 Wed +1w>\n"
        "see <2026-06-08 Mon 07:00 +1d>, not [2026-06-08 Mon +1d] nor <2026-06-08 Mon>\n"
        "# <2026-06-08 Mon +1d>\n"
        "#+begin_example\n<2026-06-08 Mon +1d>\n#+end_example\n"
    )
    assert after(text) == (
        "* TODO Sow\nSCHEDULED: <2026-06-09 Tue +1d> DEADLINE: <2026-06-17 Wed +1w>\n"
        ":PROPERTIES:\n:LAST_REPEAT: [2026-06-09 Tue 12:00]\n:END:\n"
        "see <2026-06-09 Tue 07:00 +1d>, not [2026-06-08 Mon +1d] nor <2026-06-08 Mon>\n"
        "# <2026-06-08 Mon +1d>\n"
        "#+begin_example\n<2026-06-08 Mon +1d>\n#+end_example\n"
    )


@pytest.mark.parametrize(
    ("line", "kept"),
    [
        ("CLOSED: [2020-01-01] SCHEDULED: <2026-06-01 +1d>", "SCHEDULED: <2026-06-02 +1d>"),
        ("SCHEDULED: <2026-06-01 +1d> CLOSED: [2020-01-01]", "SCHEDULED: <2026-06-02 +1d>"),
        (
            "DEADLINE: <2026-06-01 +1d>  SCHEDULED: <2026-05-01> CLOSED: [2020-01-01]",
            "DEADLINE: <2026-06-02 +1d>",
        ),
        ("SCHEDULED: <2026-05-01> DEADLINE: <2026-06-01 +1d>", "DEADLINE: <2026-06-02 +1d>"),
        (
            "  SCHEDULED: <2026-05-01> CLOSED: [2020-01-01] DEADLINE: <2026-06-01 +1d>",
            "  DEADLINE: <2026-06-02 +1d>",
        ),
    ],
)
def test_what_is_spent_when_a_headline_repeats_is_removed(line: str, kept: str) -> None:
    assert after(f"* TODO Sow\n{line}\n").splitlines()[1] == kept


def test_a_planning_line_that_is_all_spent_goes() -> None:
    text = "* TODO Sow <2026-06-01 Mon +1d>\nCLOSED: [2020-01-01 Wed]\nbeans\n"
    name = "Sow <2026-06-01 Mon +1d>"
    assert after(text, name) == (
        "* TODO Sow <2026-06-02 Tue +1d>\n"
        ":PROPERTIES:\n:LAST_REPEAT: [2026-06-09 Tue 12:00]\n:END:\nbeans\n"
    )


def test_last_repeat_is_replaced_in_its_place() -> None:
    text = (
        "* TODO Sow\nSCHEDULED: <2026-06-01 Mon +1d>\n"
        "  :PROPERTIES:\n  :LAST_REPEAT: [2020-01-01 Wed 00:00]\n  :Effort:  1h \n  :END:\n"
    )
    assert after(text) == text.replace("2026-06-01 Mon", "2026-06-02 Tue").replace(
        "[2020-01-01 Wed 00:00]", "[2026-06-09 Tue 12:00]"
    )


def test_a_claim_ends_when_its_task_comes_round() -> None:
    text = (
        "#+TODO: TODO DOING | DONE\n* DOING Sow\nSCHEDULED: <2026-06-01 Mon +1d>\n"
        ":PROPERTIES:\n:AGENT: wren\n:CLAIMED-UNTIL: 2026-06-10T00:00:00Z\n:END:\n"
    )
    assert "AGENT" not in after(text)
    assert "CLAIMED" not in after(text)


def test_a_repeater_that_cannot_be_read_changes_nothing(tmp_path: Path) -> None:
    plan = tmp_path / "plan.org"
    plan.write_text("* TODO Sow\nSCHEDULED: <2026-06-01 Mon +1x>\n")
    with pytest.raises(HeadlineStampError, match=r"plan\.org:2:12: .*unit x"):
        complete(plan, "Sow", now=NOON)
    assert plan.read_text() == "* TODO Sow\nSCHEDULED: <2026-06-01 Mon +1x>\n"


def test_a_comma_goes_with_what_it_divides() -> None:
    line = "SCHEDULED: <2026-06-01 Mon>, DEADLINE: <2026-06-08 Mon +1w>"
    assert "\nDEADLINE: <2026-06-15 Mon +1w>\n" in after(f"* TODO Sow\n{line}\n")
    line = (
        "DEADLINE: <2026-06-08 Mon +1w>, CLOSED: [2026-06-01 Mon] , SCHEDULED: <2026-06-08 Mon +1w>"
    )
    kept = "DEADLINE: <2026-06-15 Mon +1w> , SCHEDULED: <2026-06-15 Mon +1w>"
    assert f"\n{kept}\n" in after(f"* TODO Sow\n{line}\n")


# The record of a change of state


LOGGED = '- State "DONE"       from "TODO"       [2026-06-09 Tue 12:00]\n'


@pytest.mark.parametrize("asked", ["DONE(d!)", "DONE(!)", "DONE(d@)", "DONE(d@/!)", "DONE(d!/@)"])
def test_a_change_of_state_is_recorded_where_the_file_asks_for_it(asked: str) -> None:
    text = f"#+TODO: TODO(t) | {asked}\n* TODO Sow\nbeans\n"
    closed = "CLOSED: [2026-06-09 Tue 12:00]\n"
    assert after(text).endswith(f"* DONE Sow\n{closed}{LOGGED}beans\n")


@pytest.mark.parametrize("asked", ["DONE", "DONE(d)", "DONE(d/!)", "KILLED DONE(d!)"])
def test_where_it_does_not_ask_nothing_is_recorded(asked: str) -> None:
    assert "- State" not in after(f"#+TODO: TODO(t!) | {asked}\n* TODO Sow\n")


def test_leaving_a_state_may_ask_for_the_record() -> None:
    text = "#+TODO: TODO WAIT(w@/!) | DONE\n* WAIT Sow\n"
    assert '- State "DONE"       from "WAIT"       [' in after(text)
    assert "- State" not in after(text.replace("* WAIT", "* TODO"))


def test_a_record_stands_below_planning_line_and_drawer_and_above_older_ones() -> None:
    above = "DEADLINE: <2026-06-10 Wed>\n:PROPERTIES:\n:ID: sow\n:END:\n"
    older = '- State "DONE"       from "TODO"       [2026-06-01 Mon 12:00]\n'
    text = f"#+TODO: TODO | DONE(d!)\n* TODO Sow\n{above}\n{older}* Reap\n"
    assert after(text).endswith(f":END:\n\n{LOGGED}{older}* Reap\n")


def test_what_repeats_is_recorded_too() -> None:
    text = "#+TODO: TODO | DONE(d!)\n* TODO Sow\nSCHEDULED: <2026-06-09 Tue +1d>\nbeans\n"
    drawer = ":PROPERTIES:\n:LAST_REPEAT: [2026-06-09 Tue 12:00]\n:END:\n"
    planned = "SCHEDULED: <2026-06-10 Wed +1d>\n"
    assert after(text).endswith(f"* TODO Sow\n{planned}{drawer}{LOGGED}beans\n")


def test_a_record_keeps_line_ends_and_a_missing_newline() -> None:
    states = "#+TODO: TODO | DONE(d!)"
    closed = "CLOSED: [2026-06-09 Tue 12:00]"
    assert after(f"{states}\r\n* TODO Sow\r\n").endswith(
        f"* DONE Sow\r\n{closed}\r\n{LOGGED.rstrip()}\r\n"
    )
    assert after(f"{states}\n* TODO Sow").endswith(f"* DONE Sow\n{closed}\n{LOGGED.rstrip()}")
    was_none = '- State "DONE"       from              [2026-06-09 Tue 12:00]'
    assert after(f"{states}\n* Sow").endswith(was_none)


# Properties that lines add to


def test_a_property_that_lines_add_to_is_set_as_a_whole() -> None:
    text = "* Sow\n:properties:\n:A: b\n:A+: c\n:X: y\n:A+: d\n:end:\n"
    here = PlanHeadline(read(text), 0, "x")

    def set_to(value: str | None) -> str:
        return spliced(text.encode(), here.splices(here.property_edits({"A": value}))).decode()

    assert set_to("b c d") == text
    assert set_to("new") == "* Sow\n:properties:\n:A: new\n:X: y\n:end:\n"
    assert set_to(None) == "* Sow\n:properties:\n:X: y\n:end:\n"


def test_a_headline_is_found_by_its_id_before_its_title() -> None:
    plan = read("* two\n* one\n:PROPERTIES:\n:ID: two\n:END:\n")
    assert [find(plan, name, path="x").index for name in ("two", "one")] == [1, 1]


def test_a_title_that_several_have_is_refused_with_their_lines() -> None:
    with pytest.raises(HeadlineAmbiguousError, match=r"2 headlines .* \(lines 1, 3\).*:ID:"):
        find(read("* a\n\n* TODO a\n"), "a", path="x")


def test_an_id_that_several_have_is_refused() -> None:
    twice = "* a\n:PROPERTIES:\n:ID: i\n:END:\n" * 2
    with pytest.raises(HeadlineAmbiguousError, match="the :ID: 'i'"):
        find(read(twice), "i", path="x")


def test_a_headline_that_is_not_there_is_told_with_what_is_near() -> None:
    with pytest.raises(HeadlineMissingError, match="did you mean 'Sow the beans'") as caught:
        find(read("* Sow the beans\n* Mow\n"), "Sow beans", path="x")
    assert caught.value.exit_code == 4


def test_a_drawer_that_cannot_be_read_is_not_written_into() -> None:
    text = "* TODO Sow\nSCHEDULED: <2026-06-01 Mon +1d>\n:PROPERTIES:\nodd\n:END:\n"
    with pytest.raises(HeadlineVoidError, match="horae check"):
        after(text)


def test_what_is_done_already_stays_as_it_is(tmp_path: Path) -> None:
    plan = tmp_path / "plan.org"
    plan.write_bytes(b"* DONE Sow\n")
    assert complete(plan, "Sow", now=NOON) == Completed(
        str(plan), 1, "Sow", "DONE", "DONE", (), is_changed=False
    )
    assert plan.read_bytes() == b"* DONE Sow\n"


def test_a_file_is_completed_on_disk(tmp_path: Path) -> None:
    plan = tmp_path / "plan.org"
    plan.write_bytes("* día\n* TODO Sow\r\nSCHEDULED: <2026-06-09 Tue ++1d>\r\n* x".encode())
    done = complete(plan, "Sow", now=NOON)
    assert done.line == 2
    assert done.moved == (("<2026-06-09 Tue ++1d>", "<2026-06-10 Wed ++1d>"),)
    assert plan.read_bytes().decode() == (
        "* día\n* TODO Sow\r\nSCHEDULED: <2026-06-10 Wed ++1d>\r\n"
        ":PROPERTIES:\r\n:LAST_REPEAT: [2026-06-09 Tue 12:00]\r\n:END:\r\n* x"
    )


def test_a_state_is_written_before_a_space_that_is_no_blank() -> None:
    here = PlanHeadline(read("* \v Sow"), 0, "x")
    assert spliced(b"* \v Sow", here.splices(here.state_edits("DONE"))) == b"* DONE \v Sow"


@given(texts, st.data())
def test_completing_touches_no_other_headline_and_can_be_read_back(
    text: str, data: st.DataObject
) -> None:
    plan = read(text)
    if not plan.headlines:
        return
    index = data.draw(st.integers(0, len(plan.headlines) - 1))
    here = PlanHeadline(plan, index, "x")
    headline = here.headline
    changes = {"AGENT": "wren"}
    try:
        edits = [*here.state_edits("DONE"), *here.property_edits(changes)]
    except HeadlineVoidError:
        return
    raw = spliced(text.encode("utf-8", "surrogatepass"), here.splices(edits))
    there = read(raw.decode("utf-8", "surrogatepass"))
    assert there.headlines[index].state == "DONE"
    assert there.headlines[index].props == {**headline.props, **changes}
    assert there.headlines[index].title == headline.title
    assert [each.text for each in there.headlines[:index]] == [
        each.text for each in plan.headlines[:index]
    ]
    assert [each.text for each in there.headlines[index + 1 :]] == [
        each.text for each in plan.headlines[index + 1 :]
    ]
