"""Timers of systemd, taken over with equal moments."""

import os
import re
import shutil
import subprocess
from datetime import UTC, datetime
from itertools import islice

import pytest
from hypothesis import given, settings, strategies as st

import horae
from extras.foreign import of_systemd, prove
from horae.extras.importers.job import UnfitError, import_job
from horae.extras.importers.systemd import (
    read_event,
    read_timer,
    settings_of,
    unit_of,
)
from scale import scaled

NOW = datetime(2026, 11, 14, 12, 0, tzinfo=UTC)
BASE = "2026-11-14 12:00:00 UTC"
SERVICE = "[Service]\nType=oneshot\nExecStart=/usr/bin/true\n"
ANALYZE = shutil.which("systemd-analyze")

TIMERS = {
    "logrotate": "OnCalendar=daily\nAccuracySec=1h\nPersistent=true",
    "apt-daily": "OnCalendar=*-*-* 6,18:00\nRandomizedDelaySec=12h\nPersistent=true",
    "fstrim": "OnCalendar=weekly\nAccuracySec=1h\nPersistent=true\nRandomizedDelaySec=6000",
    "e2scrub": "OnCalendar=Sun *-*-* 03:10:00\nPersistent=true",
    "certbot": "OnCalendar=*-*-* 00,12:00:00\nRandomizedDelaySec=43200\nPersistent=true",
    "office": "OnCalendar=Mon..Fri *-*-* 09..17:0/30",
    "twice": "OnCalendar=*-*-01 04:00\nOnCalendar=*-*-15 04:00",
    "reset": "OnCalendar=hourly\nOnCalendar=\nOnCalendar=Tue 12:00",
    "last-day": "OnCalendar=*-*~01 23:30",
    "last-monday": "OnCalendar=Mon *-*~07/1 18:00",
    "second-saturday": "OnCalendar=Sat *-*-8..14 10:00",
    "quarter": "OnCalendar=quarterly",
    "abroad": "OnCalendar=*-*-* 09:00 Asia/Tokyo",
    "often": "OnCalendar=*:0/5:30",
    "years": "OnCalendar=2026..2030-12-24 18:00",
}


@pytest.mark.parametrize("name", TIMERS)
def test_a_real_timer_fires_as_it_did(name: str) -> None:
    reading = read_timer(
        f"[Timer]\n{TIMERS[name]}\n", name=f"{name}.timer", service=SERVICE, zone_name="UTC"
    )
    assert [str(each) for each in reading.remarks] == []
    adopted = import_job(reading.jobs[0], now=NOW)
    assert adopted.is_taken, adopted.reason
    assert adopted.entry is not None
    proof = prove(adopted.entry, [of_systemd(rule) for rule in adopted.job.rules], now=NOW)
    assert proof.asked == proof.equal
    assert proof.asked == (5 if name == "years" else 50)
    assert [str(each) for each in horae.check(adopted.text)] == []


def test_what_a_unit_waits_for_is_named() -> None:
    timer = "[Unit]\nOnFailure=a.service\n[Timer]\nOnCalendar=daily\n[Install]\nWantedBy=x\n"
    service = "[Unit]\nDescription=x\nAfter=network-online.target\n" + SERVICE
    for text, beside in ((timer, service), (timer + service, None)):
        reading = read_timer(text, service=beside, name="report.timer", zone_name="UTC")
        assert [each.what for each in reading.remarks] == [
            "OnFailure=a.service of report.timer is not imported",
            "After=network-online.target of report.service is not imported",
        ]
        assert len(reading.jobs) == 1


EVENTS = [
    "*-*-* 02:30 Europe/Berlin", "*:0/20 Europe/Berlin", "Mon-Fri", "*-*~7/1", "Mon *-*~07/1",
    "26-12-31", "*-*-1..3,7", "Mon,Wed..Fri 9,10..12/2:0/30", "weekly Europe/Berlin",
    "@1800000000", "*-*~1..3", "quarterly", "semiannually", "yearly", "*-*-31", "minutely",
    "2026..2027-1/3-1 0:0", "*-*-1/10", "monday 5:00", "2026/2-01-01", "*-*~2,4", "*-* 12:00",
    "*:*:*", "12:*", "Sat..Sun", "*-*~10/3 05:00 America/New_York", "Sun *-*-* 03:00 UTC",
    "*-02~03 12:00", "*-06-* 5/6:7", "*:0/7:30", "hourly UTC", "*-*~5..10/2", "Thu,Fri 12:0",
    "*-02-29 UTC", "*-*-* 23:59:59", "Sat *-*-1..7 18:00:00", "*-12-24",
]  # fmt: skip


@pytest.mark.skipif(ANALYZE is None, reason="systemd-analyze is not on this machine")
@pytest.mark.parametrize("event", EVENTS)
def test_the_walk_agrees_with_systemd_itself(event: str) -> None:
    found = read_event(event)
    ours = list(islice(of_systemd(found.cron).times(found.zone or "UTC", NOW), 20))
    assert ours == asked(event, 20)


REFUSED = [
    "*:*/15", "*-*-*/2", "Fri..Mon", "10", "*-*~3..1", "12..10:00", "Sun..Mon", "5-8-2026",
    "00:00 UTC+1", "24:00", "2027-*-~1", "9:00:60", "Mon, Tue 10:00", "", "noon", "*-13-01",
    "*-*-* 9:00 Nowhere/City", "*:48/12", "*-*~29", "*-*~3/5", "*-12/3-1",
]  # fmt: skip


@pytest.mark.parametrize("event", REFUSED)
def test_what_systemd_refuses_is_refused_with_a_remedy(event: str) -> None:
    with pytest.raises(UnfitError) as refused:
        read_event(event)
    assert refused.value.what
    assert refused.value.remedy
    if ANALYZE is not None and event:
        assert asked(event, 1) == []


@pytest.mark.parametrize("event", ["Fri *-*-13", "mon *-01-01 00:00", "12:30:10.5"])
def test_what_cron_cannot_say_is_refused(event: str) -> None:
    with pytest.raises(UnfitError):
        read_event(event)


def asked(event: str, count: int) -> list[datetime] | None:
    """Return what systemd says of an event; None if it gives up on one that it understands."""
    assert ANALYZE is not None
    command = [ANALYZE, "calendar", f"--iterations={count}", f"--base-time={BASE}", event]
    ended = subprocess.run(
        command, check=False, capture_output=True, text=True, env={**os.environ, "TZ": "UTC"},
        timeout=60,
    )  # fmt: skip
    if "Resource deadlock avoided" in ended.stderr:
        return None
    found = re.findall(r"(?:elapse|#\d+): \w+ (\S+ \S+) UTC", ended.stdout)
    return [datetime.strptime(each, "%Y-%m-%d %H:%M:%S").replace(tzinfo=UTC) for each in found]


def numbers(low: int, high: int) -> st.SearchStrategy[str]:
    value = st.integers(low, high)
    span = st.tuples(value, value).map(lambda two: f"{min(two)}..{max(two)}")
    steps = st.integers(1, 12)
    open_step = st.tuples(value, steps).map(lambda two: f"{two[0]}/{two[1]}")
    stepped = st.tuples(span, steps).map(lambda two: f"{two[0]}/{two[1]}")
    items = st.lists(st.one_of(value.map(str), span, open_step, stepped), min_size=1, max_size=3)
    return st.one_of(st.just("*"), items.map(",".join))


TIMES = st.tuples(numbers(0, 23), numbers(0, 59)).map(":".join)
DATES = st.one_of(
    st.tuples(numbers(1, 12), numbers(1, 28)).map(lambda two: f"*-{two[0]}-{two[1]}"),
    st.tuples(numbers(1, 12), numbers(1, 28)).map(lambda two: f"*-{two[0]}~{two[1]}"),
)
DAYS = st.sampled_from(["Mon..Fri ", "Sat,Sun ", "Wed ", "Fri..Sun "])
CALENDARS = st.one_of(
    st.tuples(DAYS, TIMES).map("".join), st.tuples(DATES, TIMES).map(" ".join), TIMES
)


@pytest.mark.skipif(ANALYZE is None, reason="systemd-analyze is not on this machine")
@given(CALENDARS, st.sampled_from(["", " Europe/Berlin"]))
@settings(max_examples=scaled(1_000), deadline=None)
def test_any_event_is_walked_as_systemd_walks_it(event: str, place: str) -> None:
    try:
        found = read_event(event + place)
    except UnfitError:
        assert asked(event + place, 6) == []
        return
    theirs = asked(event + place, 6)
    # systemd 252 refuses some lists of last days (~1,2,23) and takes others (~1,2,22).
    if theirs is None or (not theirs and re.search("~[^ ]*,", event)):
        return
    assert list(islice(of_systemd(found.cron).times(found.zone or "UTC", NOW), 6)) == theirs


def test_only_the_hour_that_a_clock_change_leaves_out_differs() -> None:
    timer = "[Timer]\nOnCalendar=*-*-* 02:30 Europe/Berlin\n"
    job = read_timer(timer, name="x.timer", service=SERVICE, zone_name="UTC").jobs[0]
    entry = import_job(job, now=NOW).entry
    assert entry is not None
    proof = prove(entry, [of_systemd(rule) for rule in job.rules], now=NOW)
    assert proof.holds
    # systemd leaves the hour out that does not exist; horae fires at the first moment after it.
    assert [(each.at, each.is_ours) for each in proof.seams] == [
        (datetime(2027, 3, 28, 1, 0, tzinfo=UTC), True)
    ]


def test_a_timer_in_two_zones_becomes_two_headlines() -> None:
    timer = "[Timer]\nOnCalendar=9:00 Asia/Tokyo\nOnCalendar=9:00\n"
    reading = read_timer(timer, name="x.timer", service=SERVICE, zone_name="Europe/Berlin")
    assert [job.zone for job in reading.jobs] == ["Asia/Tokyo", "Europe/Berlin"]


@pytest.mark.parametrize(
    ("line", "place", "remedy"),
    [
        ("OnUnitActiveSec=15min", "2:17", "write an OnCalendar= line"),
        ("OnBootSec=15min", "2:11", "keep it in systemd"),
        ("OnCalendar=noon", "2:12", "write Mon"),
        ("OnClockChange=yes", "2:1", "write an OnCalendar= line"),
        ("Persistent=true", "2:1", "write an OnCalendar= line"),
    ],
)
def test_what_is_no_time_of_day_is_said_with_what_comes_near(
    line: str, place: str, remedy: str
) -> None:
    reading = read_timer(f"[Timer]\n{line}\n", name="x.timer", service=SERVICE, zone_name="UTC")
    assert reading.jobs == []
    assert str(reading.remarks[0]).startswith(place)
    assert remedy in reading.remarks[0].remedy


@pytest.mark.parametrize(
    ("service", "command"),
    [
        ("ExecStart=/usr/bin/a b", "/usr/bin/a b"),
        ('ExecStart=/usr/bin/a "b c"', "/usr/bin/a 'b c'"),
        ("ExecStart=/a\nExecStart=/b", "sh -c '/a && /b'"),
        ("ExecStartPre=/p\nExecStart=/a", "sh -c '/p && /a'"),
        ("ExecStart=/a --x=${X}/b ${Y}", """sh -c '/a "--x=${X}/b" "${Y}"'"""),
        ("ExecStart=/a $Y", "systemctl start x.service"),
        ("ExecStart=/a $$Y", "systemctl start x.service"),
        ("ExecStart=-/a", "systemctl start x.service"),
        (
            "WorkingDirectory=/srv/my app\nExecStart=./a",
            """sh -c 'cd '"'"'/srv/my app'"'"' && ./a'""",
        ),
        ("WorkingDirectory=~\nExecStart=./a", "sh -c 'cd && exec ./a'"),
        ('Environment=A=b "C=d e"\nExecStart=/a', "env A=b 'C=d e' /a"),
        ("ExecStart=/a 50%%", "/a 50%"),
        ("ExecStart=/old\nExecStart=\nExecStart=/a \\\n  --long", "/a --long"),
        ("ExecStart=/a %i", "systemctl start x.service"),
        ("Type=oneshot", "systemctl start x.service"),
    ],
)
def test_a_service_becomes_a_command(service: str, command: str) -> None:
    reading = read_timer(
        "[Timer]\nOnCalendar=daily\n",
        name="x.timer",
        service=f"[Service]\n{service}\n",
        zone_name="UTC",
    )
    assert reading.jobs[0].command == command


def test_what_systemctl_cat_prints_is_read_as_one() -> None:
    text = (
        "# /etc/x.timer\n[Timer]\nOnCalendar=daily\nUnit=y.service\n\n# /etc/y.service\n" + SERVICE
    )
    reading = read_timer(text, name="x.timer", service=None, zone_name="UTC")
    assert reading.jobs[0].command == "/usr/bin/true"
    assert unit_of(text, name="x.timer") == "y.service"


def test_policies_are_taken_over() -> None:
    timer = "[Timer]\nOnCalendar=daily\nPersistent=yes\nRandomizedDelaySec=1h 30min\n"
    service = SERVICE + "TimeoutStartSec=90\n"
    job = read_timer(timer, name="x.timer", service=service, zone_name="UTC").jobs[0]
    assert dict(job.props) == {"CATCHUP": "latest", "JITTER": "1h30m", "TIMEOUT": "1m30s"}


def test_what_only_systemd_gives_a_service_is_named() -> None:
    reading = read_timer(
        "[Timer]\nOnCalendar=daily\n",
        name="x.timer",
        service=SERVICE + "User=web\nEnvironmentFile=/etc/default/x\n",
        zone_name="UTC",
    )
    assert [each.what for each in reading.remarks] == [
        "User=web, EnvironmentFile=/etc/default/x of x.service are not imported"
    ]
    assert reading.remarks[0].is_taken


def test_a_setting_of_the_timer_that_we_do_not_know_is_named() -> None:
    timer = "[Timer]\nOnCalendar=daily\nWakeSystem=true\n"
    reading = read_timer(timer, name="x.timer", service=SERVICE, zone_name="UTC")
    assert [each.what for each in reading.remarks] == ["WakeSystem=true is not imported"]
    assert len(reading.jobs) == 1


@given(st.text(max_size=300))
@settings(max_examples=scaled(2_000), deadline=None)
def test_no_text_breaks_the_reader(text: str) -> None:
    timer = f"[Timer]\nOnCalendar={text}"
    reading = read_timer(timer, name="x.timer", service=text, zone_name="UTC")
    assert reading.jobs or reading.remarks, "it is taken, or named"
    assert all(each.line <= text.count("\n") + 1 for each in settings_of(text))
