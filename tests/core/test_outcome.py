"""What the end of a run means."""

from datetime import timedelta

import pytest
from hypothesis import given, strategies as st

from horae.core.receipt import (
    LAST,
    SHOWN,
    EndCause,
    RunFinish,
    Status,
    Verdict,
    last_words,
    shown,
    verdict,
)


def after(first: str, code: int = 0) -> Verdict:
    return verdict(RunFinish(EndCause.EXIT, code=code, first=first))


@pytest.mark.parametrize(
    "first", ["NO-WORK", "no-work", " \t\r\n NO-WORK: nothing due", "No-Work\n", "NO-WORK-ISH"]
)
def test_no_work_as_the_very_first_token_is_no_work(first: str) -> None:
    assert after(first).status is Status.NO_WORK


@pytest.mark.parametrize(
    "first",
    [
        "NO-WORKER",
        "NO-WORK_",
        "NO WORK",
        "- NO-WORK",
        "\x1b[1mNO-WORK",
        "\ufeffNO-WORK",
        "NO-WORK2",
    ],
)
def test_anything_else_at_the_beginning_is_work_done(first: str) -> None:
    assert after(first).status is Status.DONE


def test_failed_and_a_colon_at_the_beginning_is_a_failure_with_its_words() -> None:
    assert after("FAILED: the disk is full") == (Status.FAILED, "the disk is full")
    assert after("FAILED:") == (Status.FAILED, "the run reported FAILED without a reason")
    assert after("It FAILED: no").status is Status.DONE


def test_silence_is_work_done() -> None:
    assert after("") == (Status.DONE, "exit code 0")


def test_a_bad_exit_beats_every_word() -> None:
    assert after("NO-WORK", code=3) == (Status.FAILED, "exit code 3")


def test_a_failure_says_the_last_lines_of_the_output() -> None:
    last = "reading\r50 %\r99 %\n\n\x1b[31mtar: /srv: not found\x1b[0m\n   ^^^^\n\ngiving up\n\n"
    words = "99 % / tar: /srv: not found / giving up"
    assert verdict(RunFinish(EndCause.EXIT, code=2, last=last)).reason == f"exit code 2: {words}"
    assert (
        verdict(RunFinish(EndCause.EXIT, signal=6, last=last)).reason == f"signal SIGABRT: {words}"
    )
    assert verdict(RunFinish(EndCause.TIMEOUT, limit=timedelta(seconds=5), last=last)).reason == (
        f"exceeded the time limit of 5s; last output: {words}"
    )


def test_what_ended_well_or_said_itself_why_it_failed_needs_no_last_lines() -> None:
    said = "FAILED: the disk is full"
    assert verdict(RunFinish(EndCause.EXIT, code=0, first="swept", last="swept")).reason == "swept"
    assert verdict(RunFinish(EndCause.EXIT, code=3, first=said, last="x")).reason == (
        "the disk is full (exit code 3)"
    )
    assert verdict(RunFinish(EndCause.CANCEL, said="by hand", last="x")).reason == "by hand"


def test_of_long_lines_the_last_one_counts_most() -> None:
    assert last_words("a" * 250 + "\n" + "b" * 250) == "b" * (SHOWN - 1) + "…"
    assert last_words("a" * 50 + "\n" + "b" * 250) == "a" * 50 + " / " + "b" * (SHOWN - 1) + "…"


def test_a_signal_has_its_name() -> None:
    assert verdict(RunFinish(EndCause.EXIT, signal=11)) == (Status.FAILED, "signal SIGSEGV")
    assert verdict(RunFinish(EndCause.EXIT, signal=42)).reason == "signal 42"


def test_the_wall_clock_says_how_long_it_was() -> None:
    ended = verdict(
        RunFinish(EndCause.TIMEOUT, limit=timedelta(minutes=15), code=0, first="NO-WORK")
    )
    assert ended == (Status.KILLED, "exceeded the time limit of 15m")


def test_whoever_cancels_gives_the_reason() -> None:
    assert verdict(RunFinish(EndCause.CANCEL, said="by hand")) == (Status.KILLED, "by hand")
    assert verdict(RunFinish(EndCause.CANCEL)) == (Status.KILLED, "cancelled")


@pytest.mark.parametrize("why", [EndCause.ENGINE, EndCause.LEASE])
def test_what_ends_with_the_engine_is_interrupted(why: EndCause) -> None:
    assert verdict(RunFinish(why)).status is Status.INTERRUPTED


def test_what_could_not_be_started_has_failed() -> None:
    ended = verdict(RunFinish(EndCause.START, said="/bin/x: Exec format error"))
    assert ended == (Status.FAILED, "cannot be started: /bin/x: Exec format error")


def test_orders_to_a_terminal_are_not_shown() -> None:
    assert (
        shown("\x1b[31;1mred\x1b[0m \x1b]0;title\x07and \x1b(Bplain\x00\u202e") == "red and Bplain"
    )


@given(st.sampled_from(EndCause), st.none() | st.integers(0, 255), st.text(), st.text(), st.text())
def test_any_output_gives_one_of_five_ends_and_one_short_line(
    why: EndCause, code: int | None, first: str, said: str, last: str
) -> None:
    status, reason = verdict(RunFinish(why, code=code, first=first, said=said, last=last))
    assert status in {
        Status.DONE, Status.NO_WORK, Status.FAILED, Status.KILLED, Status.INTERRUPTED,
    }  # fmt: skip
    assert 0 < len(reason) <= LAST + 60
    assert not any(ord(character) < 32 or character == "\x1b" for character in reason)


@given(st.binary(max_size=40).filter(lambda before: b"no-work" not in before.lower()))
def test_only_whitespace_may_stand_before_the_token(before: bytes) -> None:
    ended = after((before + b"NO-WORK").decode(errors="replace"))
    assert (ended.status is Status.NO_WORK) is (not before.strip())
