"""One manifest, many workers: each heading is an agent with a cadence of its own."""

from __future__ import annotations

import asyncio
import os
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from horae.core.entry import CadenceRule, Entry, Unarmed, Work
from horae.core.source import match
from horae.sources.crew.rules import STAGGER
from horae.sources.crew.source import (
    CrewCadence,
    CrewSource,
    Roster,
    SingleKeeper,
    check_keeper,
    check_manifest,
)

if TYPE_CHECKING:
    from pathlib import Path

    from horae.core.source import Scan
    from horae.org.plan import Diagnostic

START = datetime.fromisoformat("2026-04-01T08:00Z")
SECOND, MINUTE, HOUR = timedelta(seconds=1), timedelta(minutes=1), timedelta(hours=1)

MANIFEST = """\
#+TITLE: The crew

* wren
:PROPERTIES:
:DEF: /data/agents/writer.org
:LIFECYCLE: /data/lifecycles/writer.org
:INTERVAL: 10m
:END:
The writer: drafts new sections on its lifecycle.
** What it must not do
Publish.

* moss
:PROPERTIES:
:DEF: /data/agents/editor.org
:INTERVAL: 20m
:END:
"""


def scanned(path: Path, text: str | None = None, *, stagger: timedelta = STAGGER) -> Scan:
    manifest = path / "crew.org"
    if text is not None:
        manifest.write_text(text)
    return asyncio.run(CrewSource(manifest, CrewCadence(START, stagger)).scan({}))


def member(name: str, *lines: str) -> str:
    drawer = "".join(f"{line}\n" for line in lines)
    return f"* {name}\n:PROPERTIES:\n{drawer}:END:\n"


def rules(scan: Scan) -> list[CadenceRule]:
    items = [each.item for each in scan.entries]
    found = [item.rule for item in items if isinstance(item, Entry)]
    return [rule for rule in found if isinstance(rule, CadenceRule)]


def test_a_member_without_a_time_limit_has_that_of_its_definition(tmp_path: Path) -> None:
    (tmp_path / "wren.org").write_text(
        "* wren :agent:\n:PROPERTIES:\n:TIMEOUT: 20m\n:END:\nYou write.\n"
    )
    text = "".join(
        (
            member("wren", ":DEF: wren.org"),
            member("fern", ":DEF: wren.org", ":TIMEOUT: 5m"),
            member("moss", ":DEF: missing.org"),
        )
    )
    (tmp_path / "crew.org").write_text(text)
    source = CrewSource(tmp_path / "crew.org", CrewCadence(START, timeout=HOUR))
    items = [each.item for each in asyncio.run(source.scan({})).entries]
    limits = [item.policy.timeout for item in items if isinstance(item, Entry)]
    assert limits == [20 * MINUTE, 5 * MINUTE, HOUR]


def test_a_manifest_in_the_plan_root_is_named_from_there(tmp_path: Path) -> None:
    source = CrewSource(tmp_path / "crew.org", CrewCadence(START), root=tmp_path)
    [missing] = asyncio.run(source.scan({})).problems
    assert str(missing) == ("crew.org: does not exist; write it, or correct the setting crew.def")
    (tmp_path / "crew.org").write_text(member("wren", ":DEF: wren.org"))
    [wren] = asyncio.run(source.scan({})).entries
    assert wren.item.origin.place == "crew.org:1"


def test_a_member_says_on_which_machines_it_ticks(tmp_path: Path) -> None:
    text = member("wren", ":DEF: wren.org", ":HOST: gpu, berlin")
    [wren] = (each.item for each in scanned(tmp_path, text).entries)
    assert isinstance(wren, Entry)
    assert wren.policy.requires == ("gpu", "berlin")


def test_each_heading_is_an_agent_that_ticks_on_its_interval(tmp_path: Path) -> None:
    scan = scanned(tmp_path, MANIFEST)
    wren, moss = (each.item for each in scan.entries)
    assert isinstance(wren, Entry)
    assert isinstance(moss, Entry)
    assert (wren.address, wren.agents, wren.work) == ("agent:wren", ("wren",), Work.TICK)
    assert (str(wren.origin), str(moss.origin)) == (
        f"{tmp_path}/crew.org:3",
        f"{tmp_path}/crew.org:13",
    )
    assert [rule.base for rule in rules(scan)] == [10 * MINUTE, 20 * MINUTE]
    assert (scan.problems, scan.standing) == ((), ())


def test_the_first_ticks_come_after_a_grace_one_stagger_apart(tmp_path: Path) -> None:
    firsts = [rule.first_at - START for rule in rules(scanned(tmp_path, MANIFEST))]
    assert firsts == [60 * SECOND, 90 * SECOND]
    staggered = rules(scanned(tmp_path, stagger=5 * SECOND))
    assert [rule.first_at - START for rule in staggered] == [60 * SECOND, 65 * SECOND]


def test_what_a_member_runs_is_its_section_with_all_that_is_below(tmp_path: Path) -> None:
    first, _ = scanned(tmp_path, MANIFEST).entries
    assert first.text.startswith("* wren\n")
    assert first.text.endswith("Publish.\n\n")
    edited, other = scanned(tmp_path, MANIFEST.replace("Publish", "Sing")).entries
    assert isinstance(first.item, Entry)
    assert isinstance(edited.item, Entry)
    assert edited.item.digest != first.item.digest
    assert other == scanned(tmp_path, MANIFEST).entries[1]


@pytest.mark.parametrize(
    ("interval", "base"),
    [("10m", 10 * MINUTE), ("2h", 2 * HOUR), ("90s", 90 * SECOND), ("45000", 45 * SECOND)],
)
def test_an_interval_is_in_hours_minutes_seconds_or_bare_milliseconds(
    tmp_path: Path, interval: str, base: timedelta
) -> None:
    [rule] = rules(scanned(tmp_path, member("wren", ":DEF: w.org", f":INTERVAL: {interval}")))
    assert rule.base == base


def test_without_an_interval_it_is_an_hour(tmp_path: Path) -> None:
    [rule] = rules(scanned(tmp_path, member("wren", ":DEF: w.org")))
    assert rule.base == HOUR


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (member("wren", ":INTERVAL: 10m"), "the member has no :DEF:"),
        ("* wren\n", "the member has no :DEF:"),
        (member("jenny wren", ":DEF: w.org"), "is not a valid member name"),
    ],
)
def test_a_member_that_cannot_tick_says_why_and_delays_nobody(
    tmp_path: Path, text: str, reason: str
) -> None:
    scan = scanned(tmp_path, text + member("moss", ":DEF: m.org"))
    [idler] = [each.item for each in scan.entries if isinstance(each.item, Unarmed)]
    assert reason in idler.reason
    assert [rule.first_at - START for rule in rules(scan)] == [MINUTE]


def test_a_heading_of_several_words_without_a_def_is_only_a_heading(tmp_path: Path) -> None:
    scan = scanned(tmp_path, "* How the crew works\nWell.\n" + member("moss", ":DEF: m.org"))
    assert [each.item.title for each in scan.entries] == ["moss"]


def test_a_restart_or_an_edit_leaves_every_member_the_one_it_was(tmp_path: Path) -> None:
    marks = [each.mark for each in scanned(tmp_path, MANIFEST).entries]
    known = dict(enumerate(marks, start=1))
    manifest = tmp_path / "crew.org"
    later = CrewSource(manifest, CrewCadence(START + HOUR))
    again = [each.mark for each in asyncio.run(later.scan({})).entries]
    assert again == marks  # though their first ticks are others
    manifest.write_text(
        "* robin\n:PROPERTIES:\n:DEF: r.org\n:END:\n" + MANIFEST.replace("10m", "1h")
    )
    edited = [each.mark for each in asyncio.run(later.scan({})).entries]
    assert match(known, edited).numbers == (None, 1, 2)


def test_while_the_manifest_cannot_be_read_what_is_known_stands(tmp_path: Path) -> None:
    (tmp_path / "crew.org").write_bytes(b"* wren\n\xff\n")
    scan = scanned(tmp_path)
    assert (scan.entries, scan.standing) == ((), ("",))
    assert str(scan.problems[0]).startswith(f"{tmp_path}/crew.org:2:1: ")


def test_a_manifest_that_is_gone_takes_its_members_with_it(tmp_path: Path) -> None:
    scan = scanned(tmp_path)
    assert (scan.entries, scan.standing) == ((), ())
    assert str(scan.problems[0]) == (
        f"{tmp_path}/crew.org: does not exist; write it, or correct the setting crew.def"
    )


@pytest.mark.parametrize("interval", ["3d", "0", "soon"])
def test_an_interval_that_cannot_be_read_is_as_if_it_were_not_there(
    tmp_path: Path, interval: str
) -> None:
    [rule] = rules(scanned(tmp_path, member("wren", ":DEF: w.org", f":INTERVAL: {interval}")))
    assert rule.base == HOUR


def test_a_continuous_member_takes_only_a_breather(tmp_path: Path) -> None:
    [rule] = rules(scanned(tmp_path, member("wren", ":DEF: w.org", ":CONTINUOUS: yes")))
    assert rule.base == 45 * SECOND


def test_a_ledger_that_knows_nothing_begins_with_the_file_of_the_last_run(tmp_path: Path) -> None:
    manifest = tmp_path / "crew.org"
    manifest.write_text(member("wren", ":DEF: w.org", ":INTERVAL: 1h"))
    last = START - 40 * MINUTE
    (tmp_path / "keeper-last-run-wren").write_text(f"{int(last.timestamp())}\n")
    source = CrewSource(manifest, CrewCadence(START), data=tmp_path)
    [rule] = rules(asyncio.run(source.scan({})))
    assert rule.first_at == START + 20 * MINUTE


def test_a_single_keeper_is_a_crew_of_one(tmp_path: Path) -> None:
    single = SingleKeeper(tmp_path / "keeper.org", None, HOUR)
    (tmp_path / "keeper-last-run").write_text(f"{int((START - 10 * MINUTE).timestamp())}")
    source = CrewSource("keeper", CrewCadence(START), data=tmp_path, keeper=single)
    scan = asyncio.run(source.scan({}))
    [entry] = [each.item for each in scan.entries]
    assert isinstance(entry, Entry)
    assert (entry.address, entry.agents) == ("agent:keeper", ("keeper",))
    [rule] = rules(scan)
    assert (rule.base, rule.first_at) == (HOUR, START + 50 * MINUTE)


def test_the_manifest_of_a_single_keeper_has_an_interval_with_its_unit(
    tmp_path: Path,
) -> None:
    single = SingleKeeper(tmp_path / "keeper.org", None, 30 * MINUTE)
    assert ":INTERVAL: 30m\n" in single.manifest("keeper")


def test_a_single_keeper_is_called_as_its_file_says_and_stays_the_same(tmp_path: Path) -> None:
    file = tmp_path / "keeper.org"
    file.write_text("* The gardener :agent:\n:PROPERTIES:\n:ID: ann\n:END:\nYou keep.\n")
    later = iter((START, START + HOUR, START + 2 * HOUR))
    source = CrewSource(
        file, CrewCadence(START), keeper=SingleKeeper(file, None, HOUR), clock=lambda: next(later)
    )

    def called() -> tuple[str, str, tuple[str, ...], datetime]:
        scan = asyncio.run(source.scan({}))
        [found], [rule] = scan.entries, rules(scan)
        assert isinstance(found.item, Entry)
        return found.mark.address, found.mark.title, found.item.agents, rule.first_at

    assert called() == ("agent:keeper", "ann", ("ann",), START + MINUTE)
    file.write_text(file.read_text().replace("ann", "bea"))
    assert called() == ("agent:keeper", "bea", ("bea",), START + MINUTE)
    file.unlink()
    assert called() == ("agent:keeper", "bea", ("bea",), START + MINUTE), "as long as it is away"


def test_a_restart_keeps_those_apart_who_are_due_and_leaves_the_others_their_rhythm(
    tmp_path: Path,
) -> None:
    manifest = tmp_path / "crew.org"
    names = ("wren", "moss", "fern")
    manifest.write_text("".join(member(each, ":DEF: w.org", ":INTERVAL: 1h") for each in names))
    for name, ago in zip(names, (90, 80, 40), strict=True):
        last = START - ago * MINUTE
        (tmp_path / f"keeper-last-run-{name}").write_text(f"{int(last.timestamp())}\n")
    source = CrewSource(manifest, CrewCadence(START), data=tmp_path)
    waits = [rule.first_at - START for rule in rules(asyncio.run(source.scan({})))]
    assert waits == [60 * SECOND, 90 * SECOND, 20 * MINUTE]


def test_who_joins_later_begins_when_it_is_seen_and_the_others_stay_as_they_were(
    tmp_path: Path,
) -> None:
    manifest = tmp_path / "crew.org"
    manifest.write_text(member("wren", ":DEF: w.org"))
    now = START
    source = CrewSource(manifest, CrewCadence(START), clock=lambda: now)
    asyncio.run(source.scan({}))
    now = START + 5 * HOUR
    manifest.write_text(member("wren", ":DEF: w.org") + member("moss", ":DEF: m.org"))
    firsts = [rule.first_at for rule in rules(asyncio.run(source.scan({})))]
    assert firsts == [START + MINUTE, now + MINUTE]
    manifest.write_text(member("wren", ":DEF: w.org", ":INTERVAL: 2h"))
    assert rules(asyncio.run(source.scan({})))[0].first_at == now + MINUTE
    manifest.write_text("")
    asyncio.run(source.scan({}))
    now += HOUR
    manifest.write_text(member("wren", ":DEF: w.org", ":INTERVAL: 2h"))
    assert rules(asyncio.run(source.scan({})))[0].first_at == now + MINUTE  # it is back


def test_a_pipe_in_place_of_the_last_run_is_not_waited_for(tmp_path: Path) -> None:
    manifest = tmp_path / "crew.org"
    manifest.write_text(member("wren", ":DEF: w.org"))
    os.mkfifo(tmp_path / "keeper-last-run-wren")
    [rule] = rules(asyncio.run(CrewSource(manifest, CrewCadence(START), data=tmp_path).scan({})))
    assert rule.first_at == START + MINUTE


AGENT = "* wren :agent:\nYou write.\n"


def codes(found: list[Diagnostic], home: Path) -> list[str]:
    return [f"{each.file.removeprefix(f'{home}/')}:{each.line} {each.code}" for each in found]


def test_a_check_of_a_crew_reads_its_definitions_and_days_too(tmp_path: Path) -> None:
    manifest = tmp_path / "crew.org"
    manifest.write_text(
        member("wren", ":DEF: agents/wren.org", ":LIFECYCLE: day.org")
        + member("moss", ":DEF: agents/moss.org", ":LIFECYCLE: day.org")
        + member("fern", ":DEF: gone.org", ":INTERVAL: soon")
        + member("fern", ":DEF: agents/wren.org")
        + member("reed", ":INTERVAL: 10m")
    )
    (tmp_path / "agents").mkdir()
    (tmp_path / "agents" / "wren.org").write_text(AGENT)
    (tmp_path / "agents" / "moss.org").write_text("* moss :agent:\n")
    (tmp_path / "day.org").write_text(
        "* work\n:PROPERTIES:\n:NEXT: rset\n:END:\n* rest\n:PROPERTIES:\n:KIND: rem\n:END:\n"
    )
    assert codes(check_manifest(manifest), tmp_path) == [
        "agents/moss.org:1 agent",
        "crew.org:11 member-file",
        "crew.org:14 member-interval",
        "crew.org:16 member-twice",
        "crew.org:20 member-def",
        "day.org:3 state-next",
        "day.org:5 rest-only",
        "day.org:5 state-last",
        "day.org:5 state-unreachable",
    ]


def test_a_gate_is_judged_by_the_rhythm_of_the_member_whose_day_it_is(tmp_path: Path) -> None:
    manifest = tmp_path / "crew.org"
    (tmp_path / "wren.org").write_text(AGENT)
    (tmp_path / "day.org").write_text("* work\n:PROPERTIES:\n:MIN-INTERVAL: 5h\n:END:\n")
    for interval, found in (("10m", ["day.org:1 gate-starves"]), ("5h", [])):
        lines = (":DEF: wren.org", ":LIFECYCLE: day.org", f":INTERVAL: {interval}")
        manifest.write_text(member("wren", *lines))
        assert codes(check_manifest(manifest), tmp_path) == found


def test_a_check_says_which_file_of_a_keeper_or_a_crew_cannot_be_read(tmp_path: Path) -> None:
    assert codes(check_manifest(tmp_path / "crew.org"), tmp_path) == ["crew.org:1 member-file"]
    keeper, day = tmp_path / "keeper.org", tmp_path / "day.org"
    assert codes(check_keeper(keeper, day, every=HOUR), tmp_path) == [
        "keeper.org:1 member-file",
        "day.org:1 member-file",
    ]
    keeper.write_text(AGENT)
    day.write_text("no state\n")
    assert codes(check_keeper(keeper, day, every=HOUR), tmp_path) == ["day.org:1 lifecycle-empty"]
    assert check_keeper(keeper, None, every=HOUR) == []


def test_an_agent_is_at_the_line_of_its_definition(tmp_path: Path) -> None:
    (tmp_path / "crew.org").write_text("* wren\n:PROPERTIES:\n:DEF: w.org\n:END:\n")
    (tmp_path / "w.org").write_text("#+TITLE: An agent\n\n* Wren :agent:\nYou sing.\n")
    made = Roster(tmp_path / "crew.org", tmp_path).agents()["wren"]()
    assert str(made.origin) == "w.org:3"
