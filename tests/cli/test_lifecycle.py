"""`horae agent lifecycle`: the ticks to come of a day."""

from pathlib import Path

import pytest

from calling import Call

TEXT = (Path(__file__).parents[1] / "data" / "lifecycle-canonical.org").read_text()


@pytest.fixture(autouse=True)
def day(tmp_path: Path) -> None:
    (tmp_path / "day.org").write_text(TEXT)


def test_the_next_ticks_are_shown_with_where_the_agent_stands_and_how_long_it_waits(
    call: Call,
) -> None:
    ending = call("agent", "lifecycle", "day.org", "--table", "--next", "7", "--every", "90s")
    assert (ending.code, ending.err) == (0, "")
    assert ending.out.splitlines() == [
        "tick  after  state         ends         then          next in",
        "1     0s     wake_add 0    done         wake_add 1    1m30s",
        "2     1m30s  wake_add 1    done         wake_add 2    1m30s",
        "3     3m     wake_add 2    done         wake_audit 0  1m30s",
        "4     4m30s  wake_audit 0  done         rem 0         1m30s",
        "5     6m     rem 0         done (rest)  wake_plan 0   1m30s",
        "6     7m30s  wake_plan 0   done         wake_add 0    1m30s",
        "7     9m     wake_add 0    done         wake_add 1    1m30s",
    ]


def test_outcomes_are_assumed_in_turn_and_the_last_goes_on(call: Call) -> None:
    asked = ["agent", "lifecycle", "day.org", "--outcomes", "done,failed,no-work", "--next", "5"]
    rows = call(*asked, "--every", "45s", "--json").data
    assert [(row["state"], row["hits"], row["outcome"], row["delay"]) for row in rows] == [
        ("wake_add", 0, "done", 45),
        ("wake_add", 1, "failed", 45),
        ("wake_add", 1, "no_work", 60),
        ("wake_audit", 0, "no_work", 120),
        ("rem", 0, "no_work", 240),
    ]


@pytest.mark.parametrize("place", [["wake_add", "2"], ["wake_add 2"]])
def test_a_prediction_may_begin_anywhere(call: Call, place: list[str]) -> None:
    [row] = call("agent", "lifecycle", "day.org", "--from", *place, "--next", "1", "--json").data
    assert row == {
        "tick": 1,
        "after": 0,
        "state": "wake_add",
        "hits": 2,
        "kind": "wake",
        "outcome": "done",
        "gated": None,
        "then": "wake_audit 0",
        "streak": 0,
        "failures": 0,
        "delay": 3600,
    }


def test_a_gated_tick_is_shown_with_the_wait(call: Call) -> None:
    asked = ["--from", "rem", "--outcomes", "failed", "--every", "4m", "--next", "2"]
    _, second = call("agent", "lifecycle", "day.org", *asked, "--jsonl").out.splitlines()
    assert '"outcome":null,"gated":360.0,"then":"rem 0"' in second
    table = call("agent", "lifecycle", "day.org", *asked, "--table").out.splitlines()
    assert table[2] == "2     4m     rem 0  gated for 6m   rem 0  4m"


def test_twelve_ticks_are_shown_unless_asked_otherwise(call: Call) -> None:
    assert len(call("agent", "lifecycle", "day.org", "--json").data) == 12


def test_what_is_odd_is_said_beside_the_ticks_and_an_error_is_the_exit_code(
    call: Call, tmp_path: Path
) -> None:
    (tmp_path / "odd.org").write_text("* work\n:PROPERTIES:\n:NEXT: rset\n:END:\n* rest\n")
    ending = call("agent", "lifecycle", "odd.org", "--next", "2", "--json")
    assert ending.code == 1
    assert [row["state"] for row in ending.data] == ["work", "work"]
    assert ending.err.splitlines()[0] == (
        "horae: odd.org:3:8: error state-next: 'rset' is not a state; the lifecycle restarts at work; "
        "write rest"
    )


def test_a_gate_that_starves_the_day_is_a_warning(call: Call, tmp_path: Path) -> None:
    (tmp_path / "slow.org").write_text(TEXT.replace("10m", "48h"))
    ending = call("agent", "lifecycle", "slow.org", "--next", "1")
    assert ending.code == 0
    assert "warning gate-starves: :MIN-INTERVAL: 2d delays the whole cycle" in ending.err


def test_a_file_without_a_state_has_no_ticks(call: Call, tmp_path: Path) -> None:
    (tmp_path / "empty.org").write_text("Prose.\n")
    ending = call("agent", "lifecycle", "empty.org")
    assert (ending.code, ending.out) == (1, "")
    assert "lifecycle-empty: no heading names a state" in ending.err


@pytest.mark.parametrize(
    ("args", "code", "message"),
    [
        (["gone.org"], 4, "gone.org: does not exist"),
        (["gone"], 4, "gone: does not exist"),
        (["."], 2, "is a directory; name the file of the lifecycle."),
        (
            ["day.org", "--outcomes", "done,maybe"],
            2,
            "'maybe' is not an outcome; use one or more of",
        ),
        (
            ["day.org", "--from", "nap"],
            2,
            "'nap' is not a state; the file has wake_add, wake_audit",
        ),
        (["day.org", "2"], 2, "HITS is only for --from STATE."),
        (["day.org", "--every", "3d"], 2, "write 72h"),
        (["day.org", "--every", "5"], 2, "--every: 5 has no unit; write 5s or 5m"),
        (["day.org", "--every", "9999h"], 2, "is longer than 31d"),
        (["day.org", "--next", "0"], 2, "0 is not in the range"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_what_cannot_be_predicted_is_one_clear_line(
    call: Call, args: list[str], code: int, message: str
) -> None:
    ending = call("agent", "lifecycle", *args)
    assert ending.code == code
    assert message in ending.err
    assert "Traceback" not in ending.err
