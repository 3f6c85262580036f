"""Words that say when, and the rule beside them: what agrees is silent, what does not is shown."""

import re
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings, strategies as st

from horae.extras.drift.check import Drift, claims, drift
from horae.extras.drift.phrase import Nth, Often, Period, Rule, SpokenTime, Stamped, TimeOfDay
from horae.timing.cron import Cron
from horae.timing.repeater import parse_at, parse_repeater
from scale import scaled

HERE = Path(__file__).parent
STAMP = re.compile(r"<(\S+) \w+(?: (\d\d:\d\d))?(?: (\.?\+\S+))?>")
# Rules so unlike that no claim agrees with all of them.
UNLIKE = ("13 5 17 6 *", "*/7 * * * *", "0 22 * * TUE,SAT", "<2026-06-03 Wed 10:10 ++5d>")
# Rules whose sentences are longer than what the reader of prose understands.
OWN = (
    "30 4 1,15 * 5", "0 8 10-20 5 *", "10 5 8-14 * *", "*/7 1,2,3,4 */2 6-8 MON#1", "5-20 0 L-2 * 5L",
    "10-50/10 * 1,15 */3 *", "30 8-18/2 LW 12 0", "*/5 6,18 15W * 6,0", "0 0 1 * 6,0",
)  # fmt: skip


def rows(name: str) -> Iterator[list[str]]:
    """Yield the columns of a table of texts, with its line breaks and bars."""
    for line in (HERE / name).read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#"):
            parts = re.split(r"(?<!\\) \| ", line)
            yield [re.sub(r"\\(.)", lambda m: "\n" if m[1] == "n" else m[1], p) for p in parts]


def rule(text: str) -> Rule:
    """Return the rule that a column says: a timestamp, or cron with a zone after an @."""
    stamp = STAMP.fullmatch(text)
    if stamp is None:
        expression, _, zone = text.partition(" @ ")
        return Cron(expression, zone=zone or "UTC")
    anchor = parse_at("T".join(part for part in stamp.group(1, 2) if part))
    repeater = parse_repeater(stamp[3], has_time=anchor.has_time) if stamp[3] else None
    return Stamped(anchor.start, anchor.has_time, repeater)


def suggested(suggestion: str, old: Rule) -> list[Rule]:
    """Return the rules that a suggestion makes of an old one."""
    if suggestion.startswith("<"):
        return [rule(suggestion)]
    if suggestion.startswith(("+", ".")):
        assert isinstance(old, Stamped)
        return [Stamped(old.anchor, old.has_time, parse_repeater(suggestion))]
    zone = old.zone if isinstance(old, Cron) else "UTC"
    return [Cron(part.strip(), zone=zone) for part in suggestion.split(";")]


def said(text: str, when: str) -> list[tuple[str, str | None]]:
    return [(found.said, found.suggestion) for found in drift(text, rule(when))]


TRUE = list(rows("drift_true.txt"))
HONEST = list(rows("drift_honest.txt"))
SILENT = (HERE / "drift_honest.txt").read_text(encoding="utf-8").partition("whatever the rule")[2]


def test_the_tables_are_large_enough_to_mean_something() -> None:
    assert len(TRUE) >= 60
    assert len({text for text, _ in HONEST}) >= 200
    assert len(SILENT.splitlines()) >= 150


@pytest.mark.parametrize(("marked", "when", "suggestion"), TRUE)
def test_words_and_rule_that_came_apart_are_found(marked: str, when: str, suggestion: str) -> None:
    words = marked[marked.index("«") + 1 : marked.index("»")]
    text = marked.replace("«", "").replace("»", "")
    assert said(text, when) == [(words, suggestion)]
    [found] = drift(text, rule(when))
    assert (found.start, text[found.start : found.end]) == (marked.index("«"), words)


@pytest.mark.parametrize(("text", "when"), HONEST)
def test_honest_words_have_no_finding(text: str, when: str) -> None:
    assert drift(text, rule(when)) == []


@pytest.mark.parametrize("line", SILENT.splitlines()[1:])
def test_words_that_only_tempt_have_no_finding_beside_any_rule(line: str) -> None:
    text = line.partition(" | ")[0]
    assert [drift(text, rule(when)) for when in UNLIKE] == [[]] * len(UNLIKE)


@pytest.mark.parametrize(("marked", "when", "suggestion"), TRUE)
def test_a_suggestion_keeps_the_words_it_was_made_for(
    marked: str, when: str, suggestion: str
) -> None:
    text = marked.replace("«", "").replace("»", "")
    old = rule(when)
    if isinstance(old, Stamped) or not suggestion.startswith("+"):
        assert drift(text, *suggested(suggestion, old)) == []


MONDAY = frozenset({0})
WORKDAYS = frozenset(range(5))


@pytest.mark.parametrize(
    ("text", "when"),
    [
        ("Runs every 15 minutes", SpokenTime(every=Often(15, Period.MINUTE))),
        ("Runs every 30s", SpokenTime(every=Often(30, Period.SECOND))),
        ("Runs every half hour", SpokenTime(every=Often(30, Period.MINUTE))),
        ("Runs every 90 minutes", SpokenTime(every=Often(90, Period.MINUTE))),
        ("Runs every 24 hours", SpokenTime(every=Often(1, Period.DAY))),
        ("Runs daily", SpokenTime(every=Often(1, Period.DAY))),
        ("Runs every day", SpokenTime(every=Often(1, Period.DAY), is_literal=True)),
        ("Runs once a day", SpokenTime(every=Often(1, Period.DAY), is_literal=True)),
        ("Runs every other day", SpokenTime(every=Often(2, Period.DAY))),
        ("Runs every second day", SpokenTime(every=Often(2, Period.DAY))),
        ("Runs every 14 days", SpokenTime(every=Often(2, Period.WEEK))),
        ("Runs once every two weeks", SpokenTime(every=Often(2, Period.WEEK))),
        ("Runs quarterly", SpokenTime(every=Often(3, Period.MONTH))),
        ("Runs once a year", SpokenTime(every=Often(1, Period.YEAR))),
        ("Runs twice a day", SpokenTime(times_per=Often(2, Period.DAY))),
        ("Runs 3x a week", SpokenTime(times_per=Often(3, Period.WEEK))),
        ("Runs on Mondays", SpokenTime(weekdays=MONDAY)),
        ("Runs weekly on Monday", SpokenTime(weekdays=MONDAY)),
        ("Runs Mon-Fri", SpokenTime(weekdays=WORKDAYS)),
        ("Runs on business days", SpokenTime(weekdays=WORKDAYS)),
        ("Runs every other Monday", SpokenTime(every=Often(2, Period.WEEK), weekdays=MONDAY)),
        ("Runs on Monday mornings", SpokenTime(weekdays=MONDAY, part="morning")),
        ("Runs every day except weekends", SpokenTime(weekdays=WORKDAYS, is_literal=True)),
        ("Runs hourly on weekdays", SpokenTime(every=Often(1, Period.HOUR), weekdays=WORKDAYS)),
        ("Runs on the 1st and 15th", SpokenTime(days=frozenset({1, 15}))),
        (
            "Runs on the last day of the month",
            SpokenTime(every=Often(1, Period.MONTH), days=frozenset({-1})),
        ),
        (
            "Runs on the first Monday of each month",
            SpokenTime(every=Often(1, Period.MONTH), nth=Nth(1, MONDAY)),
        ),
        ("Runs every January", SpokenTime(months=frozenset({1}))),
        ("Runs at 9", SpokenTime(times=frozenset({TimeOfDay(540, is_vague=True)}))),
        ("Runs at 9am", SpokenTime(times=frozenset({TimeOfDay(540)}))),
        ("Runs at 12 am", SpokenTime(times=frozenset({TimeOfDay(0)}))),
        ("Runs at 09:00", SpokenTime(times=frozenset({TimeOfDay(540)}))),
        ("Runs at 6 in the evening", SpokenTime(times=frozenset({TimeOfDay(1080)}))),
        ("Runs at 4 p.m. UTC", SpokenTime(times=frozenset({TimeOfDay(960)}), zone="UTC")),
        ("Runs at noon and midnight", SpokenTime(times=frozenset({TimeOfDay(720), TimeOfDay(0)}))),
        (
            "Runs every evening at 6",
            SpokenTime(
                every=Often(1, Period.DAY), part="evening", times=frozenset({TimeOfDay(1080)})
            ),
        ),
        (
            "Runs every hour from 9am to 5pm",
            SpokenTime(every=Often(1, Period.HOUR), hours=(9, 17)),
        ),
    ],
)
def test_a_claim_says_what_its_words_mean(text: str, when: SpokenTime) -> None:
    assert [claim.when for claim in claims(text)] == [when]


@pytest.mark.parametrize(
    "text",
    [
        "Runs biweekly",
        "Runs every second Tuesday",
        "Runs on Monday",
        "Runs at 25:00",
        "Runs on the 1st and every Monday",
        "Runs Mondays at 9 and Fridays at 18",
        "Runs every 0 minutes",
        "Runs around 9am",
        "Runs daily" + " and on" * 100,
    ],
)
def test_words_that_mean_two_things_claim_nothing(text: str) -> None:
    assert claims(text) == []


def test_the_phrases_of_one_sentence_share_one_suggestion() -> None:
    text = "Every Monday, send the report at 9. It takes a minute."
    assert said(text, "0 8 * * TUE") == [
        ("Every Monday", "0 9 * * MON"),
        ("at 9", "0 9 * * MON"),
    ]


def test_a_title_and_a_body_are_each_held_to_the_rule() -> None:
    text = "* Nightly digest :workflow:\nReads the notes.\n\nRuns at 6am every day.\n"
    assert said(text, "0 7 * * MON") == [
        ("Nightly", "0 7 * * *"),
        ("at 6am every day", "0 6 * * *"),
    ]


def test_a_name_may_say_anything_where_a_sentence_says_how_it_is() -> None:
    assert said("Daily digest", "0 9 * * MON") == [("Daily", "0 9 * * *")]
    assert said("Daily digest\nRuns every Monday.", "0 9 * * MON") == []


def test_a_name_does_not_ask_a_single_date_to_come_again() -> None:
    assert said("Weekly review", "<2026-06-05 Fri 16:00>") == []
    assert said("Runs every week", "<2026-06-05 Fri 16:00>") == [
        ("every week", "<2026-06-05 Fri 16:00 +1w>")
    ]


def test_days_said_in_two_sentences_count_together() -> None:
    text = "On Mondays, look at the queue. On Thursdays, do it again."
    assert said(text, "0 9 * * MON,THU") == []
    assert [words for words, _ in said(text, "0 9 * * MON")] == ["On Thursdays"]


def test_any_of_several_rules_may_keep_the_words() -> None:
    both = Cron("0 9 * * MON"), Cron("30 18 * * FRI")
    assert drift("Runs on Mondays and Fridays", *both) == []
    assert drift("Runs at 18:30", *both) == []
    [found] = drift("Runs on Tuesdays", *both)
    assert found.means == "at 09:00 on Mondays; at 18:30 on Fridays"
    assert found.suggestion == "0 9 * * TUE"


def test_a_time_counts_only_by_the_clock_of_the_rule() -> None:
    text = "Runs daily at 9am UTC"
    assert said(text, "0 8 * * *") == [("daily at 9am UTC", "0 9 * * *")]
    assert said(text, "0 8 * * * @ Europe/Berlin") == []
    assert said("Runs at 9am Europe/Berlin", "0 8 * * * @ Europe/Berlin") == [
        ("at 9am Europe/Berlin", "0 9 * * *")
    ]
    assert said(text, "<2026-06-06 Sat 08:00 +1d>") == []


def test_nobody_knows_whose_morning_it_is_in_utc() -> None:
    assert said("Every morning, read the alerts", "0 19 * * *") == []
    assert said("Every morning, read the alerts", "0 19 * * * @ Asia/Tokyo") == [
        ("Every morning", "0 7 * * *")
    ]


@pytest.mark.parametrize(
    ("when", "means"),
    [
        ("0 9 * * TUE", "at 09:00 on Tuesdays"),
        ("<2026-06-06 Sat 06:00 +1w>", "every week on Saturday at 06:00"),
        ("<2026-06-06 Sat ++2w>", "every 2 weeks on Saturday"),
        ("<2026-06-06 Sat 06:00 .+2d>", "2 days after the last run, at 06:00"),
        ("<2026-06-06 Sat 06:00 +5h>", "every 5 hours from 06:00"),
        ("<2026-06-06 Sat 06:00 +1m>", "every month on day 6 at 06:00"),
        ("<2026-06-06 Sat +1y>", "every year on 6 June"),
        ("<2026-06-06 Sat 06:00>", "once, on 2026-06-06 at 06:00"),
    ],
)
def test_a_finding_says_what_the_rule_means(when: str, means: str) -> None:
    assert [found.means for found in drift("Runs every Monday", rule(when))] == [means]


def test_what_no_rule_can_say_has_no_suggestion() -> None:
    assert said("Runs every 45 minutes", "0 * * * *") == [("every 45 minutes", None)]
    assert said("Runs every other Monday at 9", "0 9 * * MON") == [
        ("every other Monday at 9", "++2w")
    ]


def test_a_rule_that_never_comes_is_left_to_the_check_that_says_so() -> None:
    assert said("Runs daily", "0 0 30 2 *") == []
    assert said("Runs daily", "<9999-12-31 Fri 23:00 +1y>") == []


VOCABULARY = (
    "every each once twice daily weekly monthly hourly yearly on at the 1st 15th 31st first last"
    " second of month day week hour minutes 15 9 9am 5pm 09:00 noon midnight and , or to Monday"
    " Mondays Thu Fridays Mon-Fri weekdays weekends morning evenings in from between except other"
    " half quarter run runs send it this job UTC ( ) . ; ? : - not a per times 3 two March 2h 30s"
    " \n * > | # “ ” ' ` \" = ~ [ ] < > \0 İ ſ ² 99999999999999999999 p.m. local time"
)
WORDS = st.sampled_from([*VOCABULARY.split(" "), "9" * 5_000])
SOUP = st.lists(WORDS, max_size=25).map(" ".join)
RULES = st.sampled_from(
    [
        rule(text)
        for text in (
            *UNLIKE,
            "* * * * *",
            "@weekly",
            "*/15 9-17 * * MON-FRI",
            "0 9 L * *",
            "0 9 * * MON#1",
            "0 0 29 2 *",
            "*/30 * * * * *",
            "0 0 9 ? * 2L 2027",
            "0 9 1W */3 *",
            "0 9 1 1 sun",
            "<2026-01-31 Sat 20:00 .+1m>",
            "<9999-12-31 Fri 23:00 +1d>",
            "<0001-01-01 Mon 00:00 +36h>",
            "<2026-06-06 Sat .+2d/4d>",
            "<2026-06-06 Sat>",
        )
    ]
)


@given(st.one_of(st.text(), SOUP), RULES)
@settings(max_examples=scaled(300, few=60), deadline=None)
def test_no_text_is_too_odd_to_be_read(text: str, when: Rule) -> None:
    end = 0
    for claim in claims(text):
        assert end <= claim.start < claim.end <= len(text)
        end = claim.end
    for found in drift(text, when):
        assert found.said == text[found.start : found.end]


# fmt: off
DAYS = ["Mondays", "Mon-Fri", "weekends", "Tuesdays and Fridays", "Thursday evenings"]
EVERY = [
    "day", "hour", "week", "month", "quarter", "year", "Monday", "weekday", "morning", "night",
    "15 minutes", "2 hours", "3 days", "other day", "other week", "6 months", "Sunday and Monday",
    "first Friday of the month", "March", "30 seconds",
]
OTHERWISE = [
    "daily", "weekly", "monthly", "hourly", "quarterly", "yearly", "twice a day", "twice a week",
    "once a year", "on the first of the month", "on the 1st and 15th",
    "on the last day of each month",
]
TIMES = ["", " at 9", " at 6pm", " at 07:30", " at noon", " at 9:30 and 17:00", " in the evening"]
# fmt: on
STATEMENTS = [
    f"It runs {days}{time}"
    for days in [*(f"on {d}" for d in DAYS), *(f"every {e}" for e in EVERY), *OTHERWISE]
    for time in TIMES
]


def test_what_is_suggested_is_never_suggested_again() -> None:
    random = Random(7)
    olds = ("0 9 * * *", "*/7 * * * *", "5 6,18 * * 1,3", "0 0 31 * *", "<2026-01-31 Sat .+1y>")
    rules = [rule(text) for text in (*olds, *UNLIKE)]
    found = 0
    for _ in range(scaled(10_000)):
        text, old = random.choice(STATEMENTS), random.choice(rules)
        for each in drift(text, old):
            if each.suggestion and (isinstance(old, Stamped) or each.suggestion[0] not in "+."):
                assert drift(text, *suggested(each.suggestion, old)) == [], (text, old)
                found += 1
    assert found > scaled(10_000) // 2


@pytest.mark.parametrize(
    "piece",
    [
        "every ",
        "Runs daily. ",
        '"',
        "[",
        "'a ",
        "=a ",
        "a",
        "on the 1st and ",
        "mon-",
        "9:",
        "\n* ",
    ],
)
def test_a_long_text_is_read_in_one_go(piece: str) -> None:
    size = scaled(1_000_000)
    text = piece * (size // len(piece))
    expected = size // len(piece) if piece == "Runs daily. " else 0
    assert len(claims(text)) == expected
    assert len(drift(text, Cron("0 9 * * MON"))) == expected


def test_a_drift_is_plain_data() -> None:
    assert drift("Runs on Mondays", Cron("0 9 * * TUE")) == [
        Drift(5, 15, "on Mondays", "at 09:00 on Tuesdays", "0 9 * * MON")
    ]
    day = datetime.fromisoformat("2026-06-06")
    assert rule("<2026-06-06 Sat>") == Stamped(day, has_time=False)


@pytest.mark.parametrize("rule", OWN)
def test_the_sentence_with_which_we_say_a_rule_is_true(rule: str) -> None:
    """However little of it the reader of prose understands."""
    said = Cron(rule).describe()
    for text in (
        said,
        f"{said[0].upper()}{said[1:]} (Europe/Berlin).",
        f"It runs.\r\n  {said}\r\n",
    ):
        assert drift(text, Cron(rule), own=[said]) == []
    stale = Cron("13 5 17 6 *")
    assert drift(f"{said}.", stale, own=[stale.describe()]) != []


def test_a_sentence_of_ours_that_goes_on_is_read_as_any_other() -> None:
    rule = Cron("0 9 * * MON-FRI")
    assert drift("At 09:00 on Monday to Friday.", rule, own=[rule.describe()]) == []
    assert rule.describe() == "at 09:00 on Monday to Friday"
    assert drift("Runs daily at 8, at 09:00 on Monday to Friday.", rule, own=[rule.describe()])


def test_a_name_may_say_anything_beside_a_sentence_of_ours() -> None:
    rule = Cron("0 9 1-7 * *")
    text = f"* Daily digest\nThe {rule.describe()} of it.\n"
    assert [each.said for each in drift(text, rule, own=[rule.describe()])][:1] == ["Daily"]
    assert drift(f"* Daily digest\n{rule.describe()}.\n", rule, own=[rule.describe()]) == []
