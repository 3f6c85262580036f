"""An alert is an entry that follows how others ended."""

from datetime import timedelta

import pytest
from msgspec.structs import replace

import one_run
from horae import check
from horae.core.decide import AfterError, follows, occasions, occasions_of, parse_after
from horae.core.entry import AfterRule, Occasion, Policy
from horae.core.project import next_moment
from horae.core.receipt import Filed, Status
from horae.core.text import words
from horae.sources.plans.arming import entries
from reasons import because

DONE, FAILED, KILLED, MISSED = Status.DONE, Status.FAILED, Status.KILLED, Status.MISSED
ON_TIME, LATE = timedelta(seconds=1), timedelta(minutes=2)

ALERT = """* Call me
:PROPERTIES:
:AFTER: failed, missed of backup
:COMMAND: notify-send 'It failed'
:END:
"""


def test_an_alert_is_an_entry_without_a_moment() -> None:
    [entry] = entries(ALERT)
    assert entry.rule == AfterRule((Occasion.FAILED, Occasion.MISSED), "backup")
    assert entry.accounted_to is None
    assert words(entry.rule, zone_name="UTC") == "after backup (failed or missed)"


def test_all_may_be_said_or_left_out() -> None:
    assert parse_after("stuck") == parse_after("stuck of all") == AfterRule((Occasion.STUCK,))
    assert words(parse_after("stuck"), zone_name="UTC") == "after any entry (stuck)"


@pytest.mark.parametrize("text", ["", "of backup", "rotten of backup", "failed and missed"])
def test_an_after_that_names_no_occasion_says_which_there_are(text: str) -> None:
    with pytest.raises(AfterError, match="failed, late, missed, stuck, recovered, broken, budget"):
        parse_after(text)


def test_check_points_at_an_after_that_cannot_be_read() -> None:
    [found] = check(ALERT.replace("failed,", "broke,"), name="plan.org")
    assert (found.code, found.line, found.column) == ("after", 3, 9)


@pytest.mark.parametrize(
    ("status", "lateness", "before", "found"),
    [
        (DONE, ON_TIME, [], []),
        (DONE, LATE, [], ["late"]),
        (DONE, ON_TIME, [DONE], []),
        (DONE, ON_TIME, [FAILED, DONE], ["recovered"]),
        (DONE, ON_TIME, [Status.SKIPPED, KILLED], ["recovered"]),
        (FAILED, ON_TIME, [], ["failed"]),
        (Status.INTERRUPTED, LATE, [], ["failed", "late"]),
        (FAILED, ON_TIME, [FAILED], ["failed"]),
        (FAILED, ON_TIME, [FAILED, KILLED], ["failed", "stuck"]),
        (FAILED, ON_TIME, [FAILED, FAILED, DONE], ["failed", "stuck"]),
        (FAILED, ON_TIME, [FAILED, FAILED, FAILED], ["failed"]),
        (FAILED, ON_TIME, [FAILED, DONE, FAILED], ["failed"]),
        (MISSED, LATE, [], ["missed"]),
        (Status.COALESCED, LATE, [], []),
        (Status.SKIPPED, LATE, [], []),
    ],
)
def test_what_a_final_receipt_is_an_occasion_for(
    status: Status, lateness: timedelta, before: list[Status], found: list[str]
) -> None:
    assert sorted(occasions(status, lateness=lateness, before=before)) == found


def test_as_many_equal_results_as_the_policy_says_are_stuck_once() -> None:
    def filed(words: str, status: Status = DONE) -> Filed:
        receipt = replace(one_run.stub(1).receipt, status=status, reason=because(words))
        return replace(one_run.stub(1), receipt=receipt, policy=Policy(same=3))

    again, other = filed("nothing changed"), filed("two tests fixed")
    skipped = filed("it rains", Status.SKIPPED)
    assert Occasion.STUCK in occasions_of(again, [again, skipped, again])
    assert Occasion.STUCK in occasions_of(again, [again, again, other, again])
    assert Occasion.STUCK not in occasions_of(again, [again, other, again])
    assert Occasion.STUCK not in occasions_of(again, [again, again, again])


def test_an_alert_follows_an_entry_by_any_of_its_names_an_agent_or_all() -> None:
    names = ["id:backup", "backup", "Back up"]
    assert follows(parse_after("failed of Back up"), names=names, agents=[])
    assert follows(parse_after("failed of backup"), names=names, agents=[])
    assert follows(parse_after("failed"), names=names, agents=[])
    assert not follows(parse_after("failed of other"), names=names, agents=["other"])


def test_an_alert_is_never_projected() -> None:
    from datetime import UTC, datetime

    [entry] = entries(ALERT)
    assert next_moment(entry, datetime(2026, 4, 1, tzinfo=UTC)) is None
