"""Our rules in the words of other schedulers, with equal moments."""

from datetime import UTC, date, datetime, timedelta
from random import Random

import pytest

from extras.foreign import of_crontab, of_systemd, prove
from horae.core.entry import Entry
from horae.extras.exporters.schedule import to_calendar, to_crontab
from horae.extras.exporters.units import (
    EngineUnit,
    is_untouched,
    launchd_plist,
    systemd_unit,
    timer_pair,
)
from horae.extras.importers.crontab import foreign_rule, read_crontab
from horae.extras.importers.job import UnfitError, clone_of, import_job, meanings
from horae.extras.importers.systemd import read_event
from horae.org.document import read
from horae.sources.plans.arming import entries
from scale import scaled

NOW = datetime(2026, 11, 14, 12, 0, tzinfo=UTC)


def entry(when: str, zone_name: str = "UTC") -> Entry:
    """Return an entry by its cron, or by its stamp."""
    stamp = f"SCHEDULED: {when}\n" if when.startswith("<") else ""
    rule = "" if stamp else f":SCHEDULE: {when}\n"
    text = f"* X\n{stamp}:PROPERTIES:\n{rule}:COMMAND: x\n:END:\n"
    return entries(text, zone=zone_name)[0]


@pytest.mark.parametrize(
    ("when", "lines"),
    [
        ("0 9 * * MON-FRI", ["0 9 * * MON-FRI"]),
        ("@daily", ["0 0 * * *"]),
        ("5/20 9 ? * SAT-SUN", ["5-59/20 9 * * 6-7"]),
        ("0 9 * * monday", ["0 9 * * MON"]),
        ("0 9 1 * *; 0 18 15 * *", ["0 9 1 * *", "0 18 15 * *"]),
        ("0 12 13 * FRI", ["0 12 13 * FRI"]),
        ("<2026-04-01 Wed 03:00 ++1d>", ["0 3 * * *"]),
        ("<2026-04-01 Wed 03:30 +1w>", ["30 3 * * 3"]),
        ("<2026-04-01 Wed 03:15 ++6h>", ["15 3,9,15,21 * * *"]),
        ("<2026-04-28 Tue 03:00 ++3m>", ["0 3 28 1,4,7,10 *"]),
        ("<2026-04-01 Wed 03:00 ++1y>", ["0 3 1 4 *"]),
    ],
)
def test_a_rule_that_a_crontab_can_say_is_said(when: str, lines: list[str]) -> None:
    assert list(to_crontab(entry(when), now=NOW)) == lines
    proof = prove(entry(when), [of_crontab(line) for line in lines], now=NOW)
    assert proof.asked == proof.equal == 50


@pytest.mark.parametrize(
    ("when", "events"),
    [
        ("0 9 * * MON-FRI", ["Mon..Fri *-*-* 09:00:00"]),
        ("*/15 * * * *", ["*-*-* *:00/15:00"]),
        ("*/10 * * * * *", ["*-*-* *:*:00/10"]),
        ("0 12 13 * FRI", ["*-*-13 12:00:00", "Fri *-*-* 12:00:00"]),
        ("0 9 L-2,L * *", ["*-*~01,03 09:00:00"]),
        ("0 9 * * FRI#2", ["Fri *-*-08..14 09:00:00"]),
        ("0 9 * * 5L", ["Fri *-*~07/1 09:00:00"]),
        ("0 0 9 1 1 * 2027-2030", ["2027..2030-01-01 09:00:00"]),
        ("<2026-12-24 Thu 18:00>", ["2026-12-24 18:00:00"]),
        ("0 9 * * SAT-SUN", ["Sat,Sun *-*-* 09:00:00"]),
    ],
)
def test_a_rule_that_systemd_can_say_is_said(when: str, events: list[str]) -> None:
    assert list(to_calendar(entry(when), now=NOW)) == [f"{event} UTC" for event in events]
    proof = prove(entry(when), [of_systemd(read_event(each).cron) for each in events], now=NOW)
    assert proof.asked == proof.equal


@pytest.mark.parametrize(
    ("when", "what"),
    [
        ("*/10 * * * * *", "seconds"),
        ("0 0 9 1 1 * 2027", "year field"),
        ("0 9 L * *", "L, W or #"),
        ("0 9 * * FRI#2", "L, W or #"),
        ("0 9 */2 * MON", "must both match"),
        ("<2026-04-01 Wed 03:00 .+1d>", "end of the last run"),
        ("<2026-04-01 Wed 03:00 ++3d>", "not fall on fixed days"),
        ("<2026-12-24 Thu 18:00>", "runs only once"),
        ("<2027-04-01 Thu 03:00 ++1d>", "begins on 2027-04-01"),
        ("<2026-04-30 Thu 03:00 ++1m>", "day 30 is not in every month"),
        ("<2024-02-29 Thu 03:00 ++1y>", "day 29 is not in every month"),
        ("0 9 1 * *,1", r"reads \* in a list"),
    ],
)
def test_what_a_crontab_cannot_say_is_refused(when: str, what: str) -> None:
    with pytest.raises(UnfitError, match=what):
        to_crontab(entry(when), now=NOW)


def test_a_rule_that_ends_is_not_given_away() -> None:
    text = "* X\n:PROPERTIES:\n:SCHEDULE: @daily\n:UNTIL: 2099-01-01\n:COMMAND: x\n:END:\n"
    for give in (to_crontab, to_calendar):
        with pytest.raises(UnfitError, match="has an end date"):
            give(entries(text)[0], now=NOW)


def test_there_and_back_again_is_the_same_rule() -> None:
    job = read_crontab("*/20 9-17 * * 1-5 x", zone_name="Europe/Berlin").jobs[0]
    adopted = import_job(job, now=NOW)
    assert adopted.entry is not None
    assert to_crontab(adopted.entry, now=NOW) == ("*/20 9-17 * * 1-5",)


@pytest.mark.parametrize("zone_name", ["UTC", "Europe/Berlin"])
def test_what_is_exported_comes_when_the_entry_does(zone_name: str) -> None:
    roll, given = Random(zone_name), 0
    for _ in range(scaled(4_000)):
        one = entry(roll.choice((any_cron, any_stamp))(roll), zone_name)
        for export in (to_crontab, to_calendar):
            try:
                rules = export(one, now=NOW)
            except UnfitError:
                continue
            is_cron = export is to_crontab
            theirs = [
                of_crontab(foreign_rule(each.split()))
                if is_cron
                else of_systemd(read_event(each).cron)
                for each in rules
            ]
            given += 1
            assert not prove(one, theirs, now=NOW).differing, (one, rules)
    assert given > 50


def any_cron(roll: Random) -> str:
    def item(low: int, high: int) -> str:
        first, last = sorted(roll.sample(range(low, high + 1), 2))
        forms = (f"{first}", f"{first}-{last}", f"*/{last}", f"{first}/{last}", f"{first},{last}")
        return roll.choice((*forms, "*", "*", "*"))

    bounds = ((0, 59), (0, 23), (1, 28), (1, 12), (0, 6))
    fields = [item(low, max(high, 1)).replace("*/0", "*") for low, high in bounds]
    odd = ("L", "L-2", "*,1", "1-31")
    fields[2] = roll.choice((fields[2], fields[2], roll.choice(odd)))
    fields[4] = roll.choice((fields[4], fields[4], "FRI#2", "5L", "*,1", "SAT-SUN", "1-7"))
    return " ".join(fields)


def any_stamp(roll: Random) -> str:
    day = date(2026, 1, 1) + timedelta(days=roll.randrange(600))
    count, unit = roll.choice((1, 1, 2, 3, 6, 7, 12)), roll.choice("hdwmy")
    return f"<{day} {day:%a} {roll.randrange(24):02}:30 {roll.choice(('+', '++'))}{count}{unit}>"


def test_a_headline_that_a_plan_has_is_known_again() -> None:
    job = read_crontab("0 9 * * 1 x", zone_name="UTC").jobs[0]
    text = import_job(job, now=NOW).text
    twin = clone_of(text, meanings(read(text.replace("* x", "* Another title", 1))))
    assert twin is not None
    assert twin.title == "Another title"
    assert clone_of(text, meanings(read(text.replace("0 9 * * 1", "0 9 * * 2")))) is None


def test_a_unit_keeps_the_plan_in_reach_and_nothing_else() -> None:
    text = systemd_unit(EngineUnit("/usr/bin/horae", "/home/me/my plan", user="me"))
    assert 'ExecStart=/usr/bin/horae up "/home/me/my plan" --log plain' in text
    assert 'ExecReload=/usr/bin/horae restart "/home/me/my plan"' in text
    assert "ProtectHome=tmpfs" in text
    assert 'BindPaths="/home/me/my plan"' in text
    assert is_untouched(text)
    own = systemd_unit(EngineUnit("/usr/bin/horae", "/srv/plan"))
    assert "DynamicUser=yes" in own
    assert "--data /var/lib/horae" in own
    assert "DynamicUser" not in systemd_unit(EngineUnit("h", "/srv", is_user=True))


def test_a_unit_lets_the_engine_give_each_run_a_cgroup_and_write_no_other() -> None:
    for place in (
        EngineUnit("h", "/srv"),
        EngineUnit("h", "/srv", user="me"),
        EngineUnit("h", "/srv", is_user=True),
    ):
        lines = systemd_unit(place).splitlines()
        assert "Delegate=yes" in lines
        assert "DelegateSubgroup=engine" in lines
        is_closed = "ProtectControlGroups=yes" in lines
        assert is_closed is not place.is_user
        assert ("ReadWritePaths=-/sys/fs/cgroup/system.slice/%n" in lines) is is_closed


def test_words_that_systemd_would_fill_in_stay_as_they_are() -> None:
    words = ("horae", "run", "--root", "/a b", '50% of "$HOME"')
    _, service = timer_pair("50%", ["daily"], words=words, is_persistent=False, delay=0)
    assert r'ExecStart=horae run --root "/a b" "50%% of \"$$HOME\""' in service
    assert "Description=50%%" in service


def test_a_plist_is_xml_that_launchd_can_read() -> None:
    import plistlib

    text = launchd_plist(EngineUnit("/bin/horae", "/p", user="me"), label="org.horae.x", logs="/l")
    job = plistlib.loads(text.encode())
    assert job["ProgramArguments"] == ["/bin/horae", "up", "/p", "--log", "plain"]
    assert job["UserName"] == "me"
