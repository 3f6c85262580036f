"""From a plan to its entries: what is armed, with what rule and policy, and what is not and why."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings, strategies as st

from horae.core.entry import (
    CatchUp,
    CronRule,
    Entry,
    OnceRule,
    OnDemandRule,
    Overlap,
    PlanTask,
    Policy,
    PolicyError,
    RepeaterRule,
    Retry,
    Unarmed,
    Work,
    cron_rule,
    policy_of,
)
from horae.core.project import next_moment
from horae.core.source import agent_blocks
from horae.errors import ScheduleError
from horae.org.document import read
from horae.sources.plans.arming import DEEPEST, entries, entries_of, scan_plan, tasks_of
from horae.timing.cron import Cron
from horae.timing.repeater import parse_repeater
from scale import scaled


def at(text: str) -> datetime:
    return datetime.fromisoformat(text)


def items(text: str, *, zone: str = "UTC") -> list[Entry | Unarmed]:
    return list(entries_of(read(text), file="plan.org", zone_name=zone))


def armed(text: str, *, zone: str = "UTC") -> Entry:
    (item,) = items(text, zone=zone)
    assert isinstance(item, Entry), item
    return item


def why_not(text: str) -> str:
    (item,) = items(text)
    assert isinstance(item, Unarmed), item
    return item.reason


def workflow(planning: str = "", *, head: str = "* Digest :workflow:", **props: str) -> str:
    """Return a plan of one headline; a property's dash is written as an underscore."""
    lines = [head, planning] if planning else [head]
    if props:
        drawer = [f":{key.replace('_', '-')}: {value}" for key, value in props.items()]
        lines += [":PROPERTIES:", *drawer, ":END:"]
    return "\n".join([*lines, "Read the mail.", ""])


DAILY = "SCHEDULED: <2026-06-06 Sat 06:00 +1d>"


# What is armed


def test_a_stamp_without_a_repeater_is_one_moment() -> None:
    entry = armed(workflow("SCHEDULED: <2026-06-06 Sat 06:00>"))
    assert entry.rule == OnceRule(at("2026-06-06T06:00Z"))


@pytest.mark.parametrize("repeater", ["+1d", "++1w", ".+2d/4d", "+3m", ".+1y", "++6h"])
def test_a_stamp_with_a_repeater_comes_round(repeater: str) -> None:
    entry = armed(workflow(f"SCHEDULED: <2026-06-06 Sat 06:00 {repeater}>"))
    assert entry.rule == RepeaterRule(at("2026-06-06T06:00"), parse_repeater(repeater))


def test_a_date_without_a_time_is_midnight_in_its_zone() -> None:
    entry = armed(workflow("SCHEDULED: <2026-06-06 Sat>"), zone="Europe/Berlin")
    assert entry.rule == OnceRule(at("2026-06-05T22:00Z"))


def test_a_range_of_hours_comes_at_its_start() -> None:
    entry = armed(workflow("SCHEDULED: <2026-06-06 Sat 09:00-11:00>"))
    assert entry.rule == OnceRule(at("2026-06-06T09:00Z"))


@pytest.mark.parametrize(
    "stamps",
    [
        "<2026-06-06 Sat 09:00>--<2026-06-06 Sat 11:00>",
        "<2026-06-06 Sat 09:00>--<2026-06-08 Mon 11:00>",
    ],
)
def test_a_range_of_stamps_is_not_armed(stamps: str) -> None:
    reason = f"SCHEDULED: {stamps} is a range; write a single timestamp"
    assert why_not(workflow(f"SCHEDULED: {stamps}")) == reason
    assert armed(workflow(f"SCHEDULED: {stamps}", SCHEDULE="@daily")).rule == CronRule(
        (Cron("@daily"),)
    )


def test_a_schedule_is_a_cron_expression() -> None:
    entry = armed(workflow(SCHEDULE="0 9 * * MON-FRI"))
    assert entry.rule == CronRule((Cron("0 9 * * MON-FRI"),))


def test_several_expressions_are_divided_by_semicolons() -> None:
    entry = armed(workflow(SCHEDULE="0 9 * * MON-FRI ; 0 12 * * SAT;@monthly"))
    crons = (Cron("0 9 * * MON-FRI"), Cron("0 12 * * SAT"), Cron("@monthly"))
    assert entry.rule == CronRule(crons)
    moment = next_moment(entry, at("2026-06-06T00:00Z"))
    assert moment is not None
    assert moment.key == "cron:2026-06-06T12:00:00Z"


def test_a_schedule_wins_over_a_stamp() -> None:
    assert armed(workflow(DAILY, SCHEDULE="@daily")).rule == CronRule((Cron("@daily"),))
    inactive = workflow("SCHEDULED: [2026-06-06 Sat]", SCHEDULE="@daily")
    assert armed(inactive).rule == CronRule((Cron("@daily"),))


@pytest.mark.parametrize("planning", ["", "DEADLINE: <2026-06-06 Sat +1d>", "CLOSED: [2026-06-06]"])
def test_a_workflow_without_a_when_runs_on_demand(planning: str) -> None:
    assert armed(workflow(planning)).rule == OnDemandRule()


def test_a_headline_that_is_no_workflow_is_no_entry() -> None:
    assert items(f"* Digest\n{DAILY}\n* Notes :workflows:\n{DAILY}\n") == []


def test_an_entry_says_what_it_is_and_where_it_stands() -> None:
    text = f"#+TITLE: Mail\n\n* Morning\n** TODO [#A] Digest :mail:workflow:\n{DAILY}\n"
    entry = armed(text)
    assert (entry.title, entry.work) == ("Digest", Work.WORKFLOW)
    assert str(entry.origin) == "plan.org:4"
    assert entry.address == "plan.org::Morning/Digest"
    assert (entry.number, entry.accounted_to, entry.ended_at) == (0, None, None)


def asks(title: str, args: str = "", stars: str = "**") -> str:
    return f"{stars} {title} :component:\n#+begin_src agent {args}\nBe brief.\n#+end_src\n"


def agents_of(text: str) -> dict[str, tuple[str, ...]]:
    return {each.title: each.agents for each in entries(text)}


def test_a_workflow_names_every_agent_of_its_blocks_each_once() -> None:
    text = (
        "* Digest :workflow:\n"
        + asks("A", ":in x :agent wren :out y")
        + asks("B", ":agent moss")
        + asks("C", ":agent wren")
        + "** D :component:\n#+begin_src sh :agent nobody\ncat\n#+end_src\n"
        + "* Other :workflow:\n"
    )
    assert agents_of(text) == {"Digest": ("wren", "moss"), "Other": ()}


def test_a_block_that_names_no_agent_asks_that_of_its_own_workflow() -> None:
    drawer = ":PROPERTIES:\n:AGENT: moss\n:END:\n"
    text = f"* Digest :workflow:\n{drawer}{asks('A')}{asks('B', ':agent wren')}"
    assert agents_of(text) == {"Digest": ("moss", "wren")}
    inside = f"{text}** Inner :workflow:\n{asks('C', stars='***')}"
    assert agents_of(inside) == {"Digest": ("moss", "wren"), "Inner": ()}
    assert [name for _, name in agent_blocks(read(inside))] == ["moss", "wren", None]


def test_the_agents_of_the_workflows_inside_are_needed_too() -> None:
    inner = (
        f"** Inner :workflow:\nSCHEDULED: <2026-06-06 09:00 +1h>\n{asks('B', ':agent moss', '***')}"
    )
    text = f"* Digest :workflow:\n{asks('A', ':agent wren')}{inner}"
    assert agents_of(text) == {"Digest": ("wren", "moss"), "Inner": ("moss",)}


def test_what_calls_a_program_needs_no_agent() -> None:
    text = f"* Call :workflow:\n:PROPERTIES:\n:COMMAND: true\n:END:\n{asks('A', ':agent wren')}"
    assert agents_of(text) == {"Call": ()}


def test_a_name_behind_agent_is_a_name_and_no_other_argument() -> None:
    assert agents_of("* D :workflow:\n" + asks("A", ":agent :out y")) == {"D": ()}
    assert agents_of("* D :workflow:\n" + asks("A", ":agent")) == {"D": ()}


def test_the_digest_is_of_the_text_that_would_run() -> None:
    base = f"* Digest :workflow:\n{DAILY}\n** Step\n#+begin_src sh\ntrue\n#+end_src\n"
    digest = armed(base).digest
    assert armed(f"A line above.\n{base}* Another\n").digest == digest
    assert armed(base.replace("true", "false")).digest != digest
    assert armed(base.replace("Digest", "Mail")).digest != digest


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("* A :workflow:\n* B :workflow:\n", [1, 2]),
        ("\n\n* A :workflow:\n\ntext\n\n* B :workflow:", [3, 7]),
        ("\ufeff* A :workflow:\r\ntext\r\n* B :workflow:\r\n", [1, 3]),
        ("preamble\n* A :workflow:\n** B :workflow:\n", [2, 3]),
    ],
)
def test_lines_are_counted_from_the_top_of_the_file(text: str, lines: list[int]) -> None:
    assert [item.origin.line for item in items(text)] == lines


# Zones


def test_an_entry_reads_the_clock_of_the_plan() -> None:
    for text in (workflow(SCHEDULE="0 9 * * *"), workflow("SCHEDULED: <2026-06-06 Sat 09:00>")):
        entry = armed(text, zone="Asia/Tokyo")
        assert entry.zone == "Asia/Tokyo"
        moment = next_moment(entry, at("2026-06-05T12:00Z"))
        assert moment is not None
        assert moment.at == at("2026-06-06T00:00Z")


def test_a_zone_of_its_own_wins() -> None:
    for text in (
        workflow(SCHEDULE="0 9 * * *", TZ="Europe/Berlin"),
        workflow("SCHEDULED: <2026-06-06 Sat 09:00>", TZ="Europe/Berlin"),
        workflow("SCHEDULED: <2026-06-06 Sat 09:00 +1d>", TZ="Europe/Berlin"),
    ):
        entry = armed(text, zone="Asia/Tokyo")
        assert entry.zone == "Europe/Berlin"
        moment = next_moment(entry, at("2026-06-05T12:00Z"))
        assert moment is not None
        assert moment.at == at("2026-06-06T07:00Z")


def test_a_zone_holds_for_its_own_headline_only() -> None:
    inner = workflow(SCHEDULE="0 9 * * *", head="** Part :workflow:")
    outer, part = items(workflow(SCHEDULE="0 9 * * *", TZ="Asia/Tokyo") + inner)
    assert isinstance(outer, Entry)
    assert isinstance(part, Entry)
    assert (outer.zone, part.zone) == ("Asia/Tokyo", "UTC")


def test_until_is_read_in_the_zone_of_the_entry() -> None:
    entry = armed(workflow(DAILY, UNTIL="2026-12-31 18:00", TZ="Asia/Tokyo"))
    assert entry.policy.until == at("2026-12-31T09:00Z")


# What is not armed, and why


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (
            workflow("SCHEDULED: [2026-06-06 Sat 06:00 +1d]"),
            "SCHEDULED is in square brackets, so it is inactive",
        ),
        (workflow(DAILY, head="* DONE Digest :workflow:"), "the state is DONE"),
        (
            "#+TODO: OPEN | SHIPPED\n" + workflow(DAILY, head="* SHIPPED Digest :workflow:"),
            "the state is SHIPPED",
        ),
        (workflow(DAILY, head="* COMMENT Digest :workflow:"), "'COMMENT Digest' is commented out"),
        (
            workflow(DAILY, head="* TODO [#A] COMMENT Digest :workflow:"),
            "'COMMENT Digest' is commented out",
        ),
        (workflow(DAILY, head="* Digest :workflow:ARCHIVE:"), "'Digest' is archived"),
        (
            "* COMMENT Mail\n** Morning\n" + workflow(DAILY, head="*** Digest :workflow:"),
            "'COMMENT Mail' is commented out",
        ),
        ("* Old :ARCHIVE:\n" + workflow(DAILY, head="** Digest :workflow:"), "'Old' is archived"),
        (workflow("SCHEDULED: <tomorrow>"), "SCHEDULED: <tomorrow> is not a timestamp"),
        (
            workflow("SCHEDULED: <2026-02-30 Mon>"),
            "timestamp '2026-02-30': 2026-02-30 is not a valid date",
        ),
        (
            workflow("SCHEDULED: <2026-06-06 Sat 25:00>"),
            "timestamp '2026-06-06T25:00': 25:00 is not a valid time; write HH:MM or HH:MM-HH:MM",
        ),
        (
            workflow("SCHEDULED: <2026-06-06 Sat +1h>"),
            "repeater '+1h': counts hours, but the date has no time; add one, such as 06:00",
        ),
        (
            workflow("SCHEDULED: <2026-06-06 Sat +1x>"),
            "repeater '+1x': unit x is not one of h, d, w, m, y",
        ),
        (workflow(SCHEDULE="0 24 * * *"), "cron '0 24 * * *': hour 24 is outside 0-23"),
        (
            workflow(SCHEDULE="0 9 * * *; 0 24 * * *"),
            "cron '0 24 * * *': hour 24 is outside 0-23",
        ),
        (
            workflow(SCHEDULE="0 9 * * *;"),
            "cron '': expression is empty; write five fields, such as '0 9 * * *'",
        ),
        (workflow(SCHEDULE="0 0 30 2 *"), "cron '0 0 30 2 *' matches no date"),
        (
            workflow(DAILY, TZ="Berlin"),
            "zone 'Berlin': no such time zone; did you mean Europe/Berlin?",
        ),
        (
            workflow(DAILY, RETRY="often"),
            ":RETRY: often: write the number of retries (at most 100) and the first wait, such as 3 30s",
        ),
    ],
)
def test_what_cannot_fire_says_why(text: str, reason: str) -> None:
    assert why_not(text) == reason


def test_what_cannot_fire_is_listed_with_its_place() -> None:
    (item,) = items("* Mail\n" + workflow(SCHEDULE="bad", head="** Digest :workflow:"))
    assert isinstance(item, Unarmed)
    assert (item.address, item.title) == ("plan.org::Mail/Digest", "Digest")
    assert str(item.origin) == "plan.org:2"


def test_an_open_state_and_a_word_like_comment_fire() -> None:
    assert armed(workflow(DAILY, head="* TODO Digest :workflow:"))
    assert armed(workflow(DAILY, head="* COMMENTARY of the day :workflow:"))
    assert armed(workflow(DAILY, head="* Digest COMMENT :workflow:"))


def test_only_its_own_state_puts_a_workflow_to_rest() -> None:
    assert armed("* DONE Mail\n" + workflow(DAILY, head="** Digest :workflow:"))


def test_what_rests_says_so_even_if_its_rule_is_bad_too() -> None:
    bad = workflow(SCHEDULE="bad", head="* DONE Digest :workflow:")
    assert why_not(bad) == "the state is DONE"


def test_expressions_that_all_never_come_are_not_armed() -> None:
    assert "matches no date" in why_not(workflow(SCHEDULE="0 0 30 2 *; 0 0 31 4 *"))


def test_one_expression_that_never_comes_is_named() -> None:
    assert "0 0 30 2 *" in why_not(workflow(SCHEDULE="0 9 * * *; 0 0 30 2 *"))


def test_a_comment_may_end_in_a_tab() -> None:
    assert "commented out" in why_not(workflow(DAILY, head="* COMMENT\tDigest :workflow:"))


# Two with one address


def test_of_two_in_one_place_the_second_is_not_armed() -> None:
    first, second = items(workflow(DAILY) + workflow(DAILY))
    assert isinstance(first, Entry)
    assert isinstance(second, Unarmed)
    assert second.reason == "plan.org:1 has the same name; give one of the two an :ID:"
    assert str(second.origin) == "plan.org:4"


def test_a_name_of_its_own_tells_two_apart() -> None:
    both = items(workflow(DAILY) + workflow(DAILY, ID="mine"))
    assert [item.address for item in both] == ["plan.org::Digest", "id:mine"]
    assert all(isinstance(item, Entry) for item in both)


def test_one_title_under_two_headlines_is_two_entries() -> None:
    inner = workflow(DAILY, head="** Digest :workflow:")
    both = items(f"* Mail\n{inner}* News\n{inner}")
    assert [item.address for item in both] == ["plan.org::Mail/Digest", "plan.org::News/Digest"]
    assert all(isinstance(item, Entry) for item in both)


def test_of_two_with_one_name_the_second_is_told_to_take_another() -> None:
    _, second = items(workflow(DAILY, ID="mine") + workflow(ID="mine", head="* Other :workflow:"))
    assert isinstance(second, Unarmed)
    assert "give one of the two an :ID:" not in second.reason
    assert "mine" in second.reason


def test_one_that_is_done_does_not_disarm_the_next_of_its_name() -> None:
    done = workflow(DAILY, head="* DONE Digest :workflow:")
    _, second = items(done + workflow(DAILY))
    assert isinstance(second, Entry)


TITLES = st.lists(
    st.sampled_from(["a", "b", "a/b", "a\\", "a\\/b", "/", "\\", "a::b", "/b"]),
    min_size=1,
    max_size=3,
)


@given(TITLES, TITLES)
@settings(max_examples=scaled(3_000), deadline=None)
def test_different_paths_have_different_addresses(one: list[str], other: list[str]) -> None:
    def address(titles: list[str]) -> str:
        heads = [f"{'*' * level} {title}" for level, title in enumerate(titles, 1)]
        (item,) = items("\n".join([*heads[:-1], f"{heads[-1]} :workflow:", ""]))
        return item.address

    assert (address(one) == address(other)) == (one == other)


def test_a_slash_in_a_title_is_no_level() -> None:
    slash, level = items("* a/b :workflow:\n* a\n** b :workflow:\n")
    assert slash.address != level.address


def test_a_count_of_finished_parts_is_no_part_of_an_address() -> None:
    before, after = (
        armed(f"* Garden {cookie}\n" + workflow(DAILY, head="** Water :workflow:")).address
        for cookie in ("[1/3]", "[2/3]")
    )
    assert before == after


# What an entry can be recognised by


def test_armed_or_not_every_workflow_can_be_recognised() -> None:
    resting = workflow(DAILY, head="* DONE Sleep :workflow:")
    plan = read(workflow(SCHEDULE="@daily ; @hourly", ID="mine") + resting)
    digest, sleep = (scanned.mark for scanned in scan_plan(plan, file="p.org", zone_name="UTC"))
    assert (digest.address, digest.title, digest.rule) == ("id:mine", "Digest", "@daily ; @hourly")
    assert (sleep.address, sleep.title) == ("p.org::Sleep", "Sleep")
    assert sleep.rule == "<2026-06-06 Sat 06:00 +1d>"


def test_a_body_is_all_that_stands_under_the_headline() -> None:
    def body(text: str) -> str:
        (scanned,) = scan_plan(read(text), file="p.org", zone_name="UTC")
        return scanned.mark.body

    text = workflow(DAILY) + "** Step\nOne.\n"
    assert body(text) == body(text.replace("* Digest :workflow:", "* TODO News :workflow:mail:"))
    assert body(text) == body(f"Above.\n{text}* Below\n")
    assert body(text) != body(text.replace("One", "Two"))
    assert body(text) != body(text.replace("06:00", "07:00"))


# Workflows inside workflows


def test_every_workflow_inside_another_has_a_rule_of_its_own() -> None:
    text = (
        workflow(DAILY, head="* Mail :workflow:")
        + workflow(SCHEDULE="0 9 * * *", head="** Sort :workflow:")
        + workflow(head="*** Archive :workflow:")
        + workflow("SCHEDULED: [2026-06-06]", head="** Answer :workflow:")
        + "* Notes\n"
    )
    mail, sort, archive, answer = items(text)
    assert isinstance(mail, Entry)
    assert isinstance(mail.rule, RepeaterRule)
    assert isinstance(sort, Entry)
    assert isinstance(sort.rule, CronRule)
    assert isinstance(archive, Entry)
    assert archive.rule == OnDemandRule()
    assert isinstance(answer, Unarmed)
    assert [item.address for item in (mail, sort, archive, answer)] == [
        "plan.org::Mail",
        "plan.org::Mail/Sort",
        "plan.org::Mail/Sort/Archive",
        "plan.org::Mail/Answer",
    ]


def test_a_part_that_changes_changes_the_digest_of_the_whole() -> None:
    def digests(text: str) -> list[str]:
        return [item.digest for item in items(text) if isinstance(item, Entry)]

    text = workflow(head="* Mail :workflow:") + workflow(head="** Sort :workflow:")
    whole, part = digests(text)
    new_whole, new_part = digests(text.replace("Sort", "Sift"))
    assert (whole != new_whole, part != new_part) == (True, True)
    assert digests(text + "* Notes\n") == [whole, part]


def test_levels_may_be_left_out() -> None:
    text = "* Mail :workflow:\n***** Sort :workflow:\n*** Answer :workflow:\n"
    assert [item.address for item in items(text)] == [
        "plan.org::Mail",
        "plan.org::Mail/Sort",
        "plan.org::Mail/Answer",
    ]


def test_what_stands_too_deep_is_not_armed() -> None:
    deep = [f"{'*' * level} Level {level} :workflow:\n" for level in range(1, DEEPEST + 3)]
    found = items("".join(deep))
    assert [isinstance(item, Entry) for item in found] == [True] * DEEPEST + [False] * 2
    last = found[-1]
    assert isinstance(last, Unarmed)
    assert last.reason == "nested more than 32 levels deep"
    assert last.origin.line == DEEPEST + 2


def test_ten_thousand_stars_are_one_level() -> None:
    assert armed(f"{'*' * 10_000} Digest :workflow:\n{DAILY}\n").address == "plan.org::Digest"


def test_a_thousand_levels_are_read_to_the_end() -> None:
    levels = "".join(f"{'*' * level} a\n" for level in range(1, 1_000))
    found = items(f"{levels}{'*' * 1_000} Digest :workflow:\n{DAILY}\n")
    assert [type(item) for item in found] == [Unarmed]


# Policies


@pytest.mark.parametrize(
    ("key", "value", "policy"),
    [
        ("CATCHUP", "all", Policy(catchup=CatchUp.ALL)),
        ("CATCHUP", "Latest", Policy(catchup=CatchUp.LATEST)),
        ("CATCHUP", "NONE", Policy(catchup=CatchUp.NONE)),
        ("OVERLAP", "skip", Policy(overlap=Overlap.SKIP)),
        ("OVERLAP", "queue", Policy(overlap=Overlap.QUEUE)),
        ("OVERLAP", "Allow", Policy(overlap=Overlap.ALLOW)),
        ("RETRY", "3 30s", Policy(retry=Retry(3, timedelta(seconds=30)))),
        ("RETRY", "3", Policy(retry=Retry(3, timedelta(seconds=30)))),
        ("RETRY", "100   1h30m", Policy(retry=Retry(100, timedelta(minutes=90)))),
        ("TIMEOUT", "15m", Policy(timeout=timedelta(minutes=15))),
        ("JITTER", "5m", Policy(jitter=timedelta(minutes=5))),
        ("PAUSE-AFTER", "5", Policy(pause_after=5)),
        ("HOST", "gpu, berlin gpu", Policy(requires=("gpu", "berlin"))),
        ("UNTIL", "2026-12-30", Policy(until=at("2026-12-30T23:59:59.999999Z"))),
        ("UNTIL", "<2026-12-31 Thu>", Policy(until=at("2026-12-31T23:59:59.999999Z"))),
        ("UNTIL", "[2026-12-31 Thu]", Policy(until=at("2026-12-31T23:59:59.999999Z"))),
        ("UNTIL", "2026-12-31 18:00", Policy(until=at("2026-12-31T18:00Z"))),
        ("UNTIL", "2026-12-31T18:00:00+02:00", Policy(until=at("2026-12-31T16:00Z"))),
        ("UNTIL", "9999-12-31", Policy(until=datetime.max.replace(tzinfo=UTC))),
    ],
)
def test_a_property_asks_for_a_policy(key: str, value: str, policy: Policy) -> None:
    assert policy_of({key: value}, zone_name="UTC") == policy
    assert armed(workflow(DAILY, **{key: value})).policy == policy


@pytest.mark.parametrize("text", ["2026-12-31 Thu", "2026-12-29 Tue", "2026-12-31 Thu 18:00"])
def test_until_may_name_its_weekday(text: str) -> None:
    assert policy_of({"UNTIL": text}, zone_name="UTC").until is not None


def test_the_whole_day_of_until_is_meant_where_its_last_hour_comes_twice() -> None:
    # In Chile the clock goes back from midnight to eleven on that evening.
    until = policy_of({"UNTIL": "2026-04-04"}, zone_name="America/Santiago").until
    assert until == at("2026-04-05T03:59:59.999999Z")


def test_policies_stand_side_by_side() -> None:
    asked = {"CATCHUP": "none", "OVERLAP": "queue", "RETRY": "2 1m", "JITTER": "30s"}
    assert policy_of(asked, zone_name="UTC") == Policy(
        catchup=CatchUp.NONE,
        overlap=Overlap.QUEUE,
        retry=Retry(2, timedelta(minutes=1)),
        jitter=timedelta(seconds=30),
    )
    assert policy_of({"EFFORT": "1h", "CATCH-UP": "?"}, zone_name="UTC") == Policy()


@pytest.mark.parametrize(
    ("key", "value", "advice"),
    [
        ("CATCHUP", "sometimes", "write all, latest or none"),
        ("OVERLAP", "never", "write skip, queue or allow"),
        (
            "RETRY",
            "0",
            "write the number of retries (at most 100) and the first wait, such as 3 30s",
        ),
        (
            "RETRY",
            "-1",
            "write the number of retries (at most 100) and the first wait, such as 3 30s",
        ),
        (
            "RETRY",
            "101",
            "write the number of retries (at most 100) and the first wait, such as 3 30s",
        ),
        (
            "RETRY",
            "9" * 5_000,
            "write the number of retries (at most 100) and the first wait, such as 3 30s",
        ),
        (
            "RETRY",
            "\N{ARABIC-INDIC DIGIT THREE}",
            "write the number of retries (at most 100) and the first wait",
        ),
        ("RETRY", "3 soon", "duration 'soon': must be numbers with units, such as 90s"),
        ("RETRY", "3 30s 5", "duration '30s 5'"),
        ("TIMEOUT", "90 minutes", "write 1h30m"),
        ("TIMEOUT", "0s", "must not be zero; write 1s or more"),
        ("TIMEOUT", "-5m", "must not have a sign; write 5m"),
        ("JITTER", "5", "has no unit; write 5s or 5m"),
        ("HOST", "a/b", "write labels of a node, such as gpu, or its name"),
        ("PAUSE-AFTER", "0", "write a number of failures, such as 5"),
        ("PAUSE-AFTER", "five", "write a number of failures, such as 5"),
        ("PAUSE-AFTER", "\N{ARABIC-INDIC DIGIT THREE}", "write a number of failures, such as 5"),
        ("UNTIL", "soon", "write a date such as 2026-12-31"),
        ("UNTIL", "2026-13-40", "2026-13-40 is not a valid date"),
        ("UNTIL", "<2026-12-31 25:00>", "25:00 is not a valid time; write HH:MM"),
        ("UNTIL", "2026-12-31T18:00:00", "end with Z, or with an offset such as +02:00"),
    ],
)
def test_a_policy_that_cannot_be_read_says_what_would_be_right(
    key: str, value: str, advice: str
) -> None:
    with pytest.raises(PolicyError) as refused:
        policy_of({key: value}, zone_name="UTC")
    assert str(refused.value).startswith(f":{key}: {value[:40]}")
    assert advice in str(refused.value)
    assert (refused.value.key, refused.value.value) == (key, value)
    assert isinstance(refused.value, ScheduleError)
    assert why_not(workflow(DAILY, **{key: value})) == str(refused.value)


def test_a_long_value_is_shown_in_part() -> None:
    assert len(why_not(workflow(DAILY, CATCHUP="a" * 100_000))) < 1_000


# Any text

ANY = st.text(alphabet=st.characters(exclude_characters="\n\r", exclude_categories=["Cs"]))
KEYS = st.sampled_from(
    [
        "SCHEDULE",
        "TZ",
        "CATCHUP",
        "OVERLAP",
        "RETRY",
        "TIMEOUT",
        "JITTER",
        "PAUSE-AFTER",
        "UNTIL",
        "HOST",
    ]
)
STAMPS = st.one_of(
    ANY,
    st.text(alphabet="0123456789-:+.hdwmy <>", max_size=30),
    st.sampled_from(["0001-01-01", "9999-12-31 23:59 +1d", "2026-06-06 24:00", "2026-06-06 .+1h"]),
)


@given(STAMPS, st.lists(st.tuples(KEYS, STAMPS), max_size=3))
@settings(max_examples=scaled(4_000), deadline=None)
def test_any_text_is_armed_or_says_why_not(stamp: str, props: list[tuple[str, str]]) -> None:
    drawer = "".join(f":{key}: {value}\n" for key, value in props)
    text = f"* Digest :workflow:\nSCHEDULED: <{stamp}>\n:PROPERTIES:\n{drawer}:END:\n"
    for item in items(text):
        if isinstance(item, Unarmed):
            assert item.reason
        else:
            next_moment(item, at("2026-06-06T00:00Z"))


# What a plan costs


def test_a_schedule_of_thousands_of_expressions_is_refused() -> None:
    with pytest.raises(ScheduleError):
        cron_rule(";".join(["0 9 * * *"] * 5_000), zone_name="UTC")


def test_a_long_title_is_not_repeated_in_every_address_below_it() -> None:
    plan = "* " + "t" * 20_000 + "\n" + "".join(f"** {n} :workflow:\n" for n in range(100))
    addresses = [item.address for item in items(plan)]
    assert len(set(addresses)) == 100
    assert sum(len(address) for address in addresses) < 10 * len(plan)


# Faces


def test_the_armed_entries_of_a_text_are_given_at_once() -> None:
    text = workflow(DAILY) + workflow("SCHEDULED: [2026-06-06]", head="* Note :workflow:")
    (entry,) = entries(text, name="plan.org", zone="Asia/Tokyo")
    assert (str(entry.origin), entry.zone) == ("plan.org:1", "Asia/Tokyo")


def test_open_headlines_with_a_date_are_tasks_and_workflows_are_not() -> None:
    text = (
        "* TODO Call\nSCHEDULED: <2026-06-06 Sat 09:00>\n"
        "* DONE Write\nSCHEDULED: <2026-06-06 Sat 09:00>\n"
        "* Tax\nDEADLINE: <2026-06-30 Tue>\n"
        "* Someday\nSCHEDULED: [2026-06-06 Sat]\n"
        "* Broken\nSCHEDULED: <2026-02-30>\n"
        "* Undated\n" + workflow(DAILY)
    )
    found = list(tasks_of(read(text), file="plan.org", zone_name="UTC"))
    assert [(task.title, task.origin.line) for task in found] == [("Call", 1), ("Tax", 5)]
    assert found[0] == PlanTask(found[0].origin, "Call", at("2026-06-06T09:00Z"), None)
    assert found[1].deadline == at("2026-07-01T00:00Z")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("* A :workflow:\nSCHEDULED: <soon>\n", "SCHEDULED: <soon> is not a timestamp"),
        (
            "* A :workflow:\nSCHEDULED: <2026-04-01> at 9\n",
            "'at 9' makes this planning line invalid",
        ),
        ("* A\n:PROPERTIES:\n:COMMAND: ls\nnote\n:END:\n", "line 'note' makes the drawer invalid"),
        ("* A\n:PROPERTIES:\n:COMMAND: ls\n", "this drawer has no :END:"),
        ("* A\n\n:PROPERTIES:\n:COMMAND: ls\n:END:\n", "this drawer is ignored"),
    ],
)
def test_what_cannot_be_read_is_broken_and_says_why(text: str, why: str) -> None:
    [found] = scan_plan(read(text), file="plan.org", zone_name="UTC")
    assert found.broken.startswith(why)


def test_a_drawer_that_is_not_read_still_tells_the_name() -> None:
    text = "* A\n:PROPERTIES:\n:ID: back-up\n:COMMAND: ls\nnote\n:END:\n"
    [found] = scan_plan(read(text), file="plan.org", zone_name="UTC")
    assert found.mark.address == "id:back-up"
    assert isinstance(found.item, Unarmed)


@pytest.mark.parametrize(
    "text",
    [
        "* A\n:PROPERTIES:\n:OWNER: ls\nnote\n:END:\n",
        "* A\nSCHEDULED: <2026-04-01 Wed> early\n",
        "* A :workflow:\nRead SCHEDULED: <2026-04-01 Wed> first.\n",
        "* DONE A\n:PROPERTIES:\n:COMMAND: ls\nnote\n:END:\n",
    ],
)
def test_a_headline_that_nothing_fires_is_not_broken(text: str) -> None:
    found = scan_plan(read(text), file="plan.org", zone_name="UTC")
    assert [each.broken for each in found if each.broken] == []
