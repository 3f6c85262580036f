"""Crontabs, taken over with equal moments."""

import shlex
import subprocess
from datetime import UTC, date, datetime, timedelta
from itertools import islice

import pytest
from hypothesis import given, settings, strategies as st

import horae
from extras import walk
from extras.foreign import ForeignRule, of_crontab, prove
from extras.walk import Walk, merged
from horae.extras.importers.crontab import (
    DIALECTS,
    command_of,
    foreign_rule,
    read_crontab,
    title_of,
)
from horae.extras.importers.job import UnfitError, import_job, numbers
from horae.org.document import read
from horae.timing.cron import Cron
from scale import scaled

NOW = datetime(2026, 11, 14, 12, 0, tzinfo=UTC)
LINES = """\
0 5 * * 1 tar -zcf /var/backups/home.tgz /home/
*/5 * * * * /usr/local/bin/check-health >/dev/null 2>&1
17 * * * * cd / && run-parts --report /etc/cron.hourly
25 6 * * * test -x /usr/sbin/anacron || { cd / && run-parts /etc/cron.daily; }
47 6 * * 7 run-parts --report /etc/cron.weekly
52 6 1 * * run-parts --report /etc/cron.monthly
0 0 1 1 * /opt/bin/new-year
@daily /usr/bin/certbot renew --quiet
@hourly /usr/bin/php /srv/shop/cron.php
@weekly find /var/tmp -type f -mtime +30 -delete
@monthly /usr/local/sbin/rotate-keys
@yearly touch /srv/anniversary
@annually /usr/bin/true
@midnight /usr/bin/reset-quota
30 4 1,15 * 5 /usr/local/bin/report --either
0 */6 * * * /usr/bin/sync-mirror
0 9-17 * * MON-FRI /opt/office/poll
*/10 8-18/2 * * 1-5 /opt/office/ping
15 14 1 * * mail -s "Monthly" ops@example.org < /srv/report.txt
0 22 * * 1-5 mail -s "It's 10pm" joe%Joe,%%Where are your kids?%
23 0-23/2 * * * echo "run 23 minutes after midnight, 2am, 4am"
5 4 * * sun echo "run at 5 after 4 every sunday"
0 0 * * 0 /usr/sbin/fsck-report
0 12 * JAN,apr,Jul,oct MON /usr/bin/quarterly
0 2 29 2 * /usr/bin/leap-day
30 2 * * * pg_dump shop | gzip > /srv/dump-$(date +\\%F).sql.gz
59 23 31 12 * /usr/bin/year-end
0 0 31 * * /usr/bin/long-months-only
*/7 * * * * ./relative/poll.sh
1,31 0-4,6-23 * * * ~/bin/fetch
0 3 */2 * * docker system prune -f
0 8 10-20 5 * [ "$(date +\\%u)" = 3 ] && /usr/bin/third-wednesday
*/15 * * * 0,6 /usr/bin/weekend-watch
00 07 * * 02 /usr/bin/leading-zeros
10 5 8-14 * * /usr/bin/second-week
* * * * * /usr/bin/every-minute
"""


@pytest.mark.parametrize("zone_name", ["UTC", "Europe/Berlin", "America/New_York"])
@pytest.mark.parametrize("line", LINES.splitlines())
def test_a_real_line_fires_as_it_did(line: str, zone_name: str) -> None:
    reading = read_crontab(line, zone_name=zone_name)
    assert [each for each in reading.remarks if "home directory" not in each.what] == []
    adopted = import_job(reading.jobs[0], now=NOW)
    assert adopted.is_taken, adopted.reason
    assert adopted.entry is not None
    proof = prove(adopted.entry, [of_crontab(rule) for rule in adopted.job.rules], now=NOW)
    assert proof.asked == proof.equal == 50
    assert proof.seams == ()
    assert [str(each) for each in horae.check(adopted.text, zone=zone_name)] == []


def test_there_are_at_least_thirty_real_lines() -> None:
    assert len(LINES.splitlines()) >= 30


@pytest.mark.parametrize(
    ("line", "place", "what"),
    [
        ("@reboot /usr/bin/once", "1:1", "@reboot is not a time"),
        ("0 9 */2 * 1 x", "1:11", "must both match"),
        ("0 9 1 * */2 x", "1:9", "must both match"),
        ("5/10 * * * * x", "1:1", "has a step without a range"),
        ("0 25 * * * x", "1:3", "hour 25 is outside 0-23"),
        ("0 9 * * fri-mon x", "1:9", "runs backwards"),
        ("0 9 * * monday x", "1:9", "cannot be read"),
        ("0 9 L * * x", "1:5", "cannot be read"),
        ("0~30 9 * * * x", "1:1", "chosen at random"),
        ("0 9 * * 1,,2 x", "1:11", "cannot be read"),
        ("*/0 9 * * * x", "1:1", "no step"),
        ("@every_minute x", "1:1", "is not standard cron"),
        ("@fortnightly x", "1:1", "is not a cron nickname"),
        ("0 9 * * *", "1:1", "has 5 fields"),
        ("hello", "1:1", "the line has 1 field;"),
        ("0 9 * * * x\0y", "1:1", "control character"),
        ("CRON_TZ=Mars/Base", "1:9", "no such time zone"),
    ],
)
def test_what_is_not_taken_is_said_with_its_place(line: str, place: str, what: str) -> None:
    reading = read_crontab(line, zone_name="UTC")
    assert reading.jobs == []
    assert [str(each)[: len(place)] for each in reading.remarks] == [place]
    assert what in reading.remarks[0].what
    assert reading.remarks[0].remedy


def test_no_line_is_dropped_without_a_word() -> None:
    text = LINES + "@reboot x\n0 0 30 2 * never\nMAILTO=me\n\n# a remark\nnonsense\n"
    reading = read_crontab(text, zone_name="UTC")
    told = {each.line for each in reading.jobs} | {each.line for each in reading.remarks}
    silent = {n for n, line in enumerate(text.split("\n"), 1) if not line or line[0] == "#"}
    assert told | silent == set(range(1, text.count("\n") + 2))


def test_a_day_that_never_comes_is_not_taken() -> None:
    job = read_crontab("0 0 30 2 * never", zone_name="UTC").jobs[0]
    adopted = import_job(job, now=NOW)
    assert not adopted.is_taken
    assert "matches no date" in adopted.reason


def test_the_comment_above_a_job_is_its_title_and_a_blank_line_ends_it() -> None:
    text = "## Back up\n0 1 * * * a\n# unrelated\n\n0 2 * * * /opt/b.sh -x\n"
    assert [job.title for job in read_crontab(text, zone_name="UTC").jobs] == ["Back up", "b.sh"]


def test_variables_hold_from_where_they_stand() -> None:
    text = 'A = "x y"\n0 1 * * * one\nCRON_TZ=Asia/Tokyo\nSHELL=/bin/bash\n0 1 * * * two | three\n'
    first, second = read_crontab(text, zone_name="UTC").jobs
    assert (first.command, first.zone) == ("env A='x y' one", "UTC")
    assert second.command == "env A='x y' /bin/bash -c 'cd && two | three'"
    assert second.zone == "Asia/Tokyo"


def test_the_user_of_a_system_crontab_is_named_and_not_run() -> None:
    reading = read_crontab("0 1 * * * backup /usr/bin/x -a", zone_name="UTC", is_system=True)
    assert reading.jobs[0].command == "/usr/bin/x -a"
    assert "runs as backup" in reading.remarks[0].what
    assert reading.remarks[0].is_taken


def test_a_user_column_without_the_option_is_named() -> None:
    text = "0 1 * * * root /usr/bin/x\n0 2 * * * ada make\n0 3 * * * mail -s x y\n0 4 * * * root\n"
    reading = read_crontab(text, zone_name="UTC", users={"root", "ada"})
    assert [job.command for job in reading.jobs] == ["mail -s x y", "root"]
    assert [str(each) for each in reading.remarks[:2]] == [
        f"{line}:11: not imported: {user!r} is a user name where the command should be; "
        "use --system if each line of this file names a user, as in /etc/crontab"
        for line, user in ((1, "root"), (2, "ada"))
    ]


def test_a_command_where_the_user_should_stand_is_named() -> None:
    text = "0 1 * * * /usr/bin/x -a\n0 2 * * * root:wheel /usr/bin/y\n"
    reading = read_crontab(text, zone_name="UTC", is_system=True)
    assert [job.command for job in reading.jobs] == ["/usr/bin/y"]
    assert str(reading.remarks[0]) == (
        "1:11: not imported: '/usr/bin/x' is not a user name; "
        "omit --system if the lines of this file do not name a user"
    )


def test_a_zone_that_debians_cron_ignores_is_named() -> None:
    text = "CRON_TZ=Asia/Tokyo\n0 1 * * * cd /srv && ./x\n"
    remark = read_crontab(text, zone_name="UTC").remarks[0]
    assert remark.is_taken
    assert "Debian's and Ubuntu's cron ignore it" in remark.what
    assert read_crontab(text, zone_name="Asia/Tokyo").remarks == [], "there they agree"


def test_commands_that_do_not_start_in_the_home_directory_are_named_once() -> None:
    text = "0 1 * * * make a\n0 2 * * * ./b\n0 3 * * * make c\n0 4 * * * cd /srv && ./d\n"
    [remark] = read_crontab(text, zone_name="UTC").remarks
    assert str(remark) == (
        "1:11: note: the command runs in the plan's directory (also line 3); cron runs it in the home "
        "directory; use `sh -c 'cd && exec …'` where the directory matters"
    )


def test_every_job_has_a_short_id_that_no_other_has() -> None:
    text = (
        "# Back up the machine in the cellar\n0 1 * * * a\n0 2 * * * b\n0 3 * * * …\n0 4 * * * 7\n"
    )
    jobs = read_crontab(text, zone_name="UTC").jobs
    adopted = [import_job(job, now=NOW, ids={"b", "b-2"}) for job in jobs]
    names = ["back-up-the-machine-in", "b-3", "job-4", "job-7"]
    assert [each.job.name for each in adopted] == names
    assert [read(each.text).headlines[0].props["ID"] for each in adopted] == names


def test_mail_is_named_as_what_it_no_longer_does() -> None:
    remark = read_crontab("MAILTO=root@example.org\n", zone_name="UTC").remarks[0]
    assert "is not mailed" in remark.what
    assert remark.is_taken


@pytest.mark.parametrize(
    "line",
    [
        "echo plain words",
        "echo 'quoted  words' | tr a-z A-Z",
        "cat%first%second",
        r"echo 100\%",
        "sort -r%b%a%c",
        'echo "it\'s" $((1+1)) && echo `echo x`',
        r"printf '\%s' x | cat%input",
        "cat -%trailing%",
        "cat%",
        "cat%a%%b",
    ],
)
def test_a_command_does_what_cron_would_make_it_do(line: str) -> None:
    ours = subprocess.run(
        shlex.split(command_of(line, {})), check=True, capture_output=True, timeout=60
    )
    parts = line.replace(r"\%", "\0").split("%")
    command, *lines = (part.replace("\0", "%") for part in parts)
    fed = "\n".join(lines)
    fed += "" if not fed or fed.endswith("\n") else "\n"
    theirs = subprocess.run(
        ["sh", "-c", command], check=True, capture_output=True, input=fed.encode(), timeout=60
    )
    assert ours.stdout == theirs.stdout


def test_a_title_is_short_and_says_what_runs() -> None:
    assert title_of("/usr/local/bin/backup.sh --all") == "backup.sh"
    assert title_of("/usr/bin/x > /dev/null 2>&1") == "/usr/bin/x"
    assert len(title_of("x" * 500)) <= 60


@pytest.mark.parametrize("comment", ["TODO x", "COMMENT x", "x :a:b:", "[#A] x", "DONE", "* x"])
def test_a_comment_that_org_would_read_otherwise_still_gives_one_headline(comment: str) -> None:
    job = read_crontab(f"# {comment}\n0 1 * * * x\n", zone_name="UTC").jobs[0]
    assert import_job(job, now=NOW).is_taken


def test_two_jobs_of_one_title_get_two_titles() -> None:
    job = read_crontab("0 1 * * * x\n", zone_name="UTC").jobs[0]
    assert import_job(job, now=NOW, taken={"x", "x (2)"}).job.title == "x (3)"


def test_a_huge_file_is_taken_up_to_a_bound() -> None:
    reading = read_crontab("0 1 * * * x\n" * 5_000, zone_name="UTC")
    assert len(reading.jobs) == 250
    assert [each.line for each in reading.remarks] == [251, 1]


@given(st.text(max_size=300))
@settings(max_examples=scaled(2_000), deadline=None)
def test_no_text_breaks_the_reader(text: str) -> None:
    reading = read_crontab(text, zone_name="UTC")
    lines = [*(job.line for job in reading.jobs), *(each.line for each in reading.remarks)]
    assert all(1 <= line <= text.count("\n") + 1 for line in lines)
    for job in reading.jobs[:3]:
        adopted = import_job(job, now=NOW)
        assert adopted.is_taken or adopted.reason


def field(low: int, high: int) -> st.SearchStrategy[str]:
    value = st.integers(low, high)
    span = st.tuples(value, value).map(lambda two: f"{min(two)}-{max(two)}")
    stepped = st.tuples(st.one_of(st.just("*"), span), st.integers(1, 15)).map(
        lambda two: f"{two[0]}/{two[1]}"
    )
    item = st.one_of(value.map(str), span, stepped)
    return st.one_of(st.just("*"), st.lists(item, min_size=1, max_size=3).map(",".join))


CRONS = st.tuples(field(0, 59), field(0, 23), field(1, 31), field(1, 12), field(0, 7)).map(" ".join)
STARTS = st.datetimes(datetime(2026, 1, 1), datetime(2030, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001


def walk_of(cron: str) -> Walk:
    """Return a line's five fields as cron reads them, for a walk along the clock."""
    texts = cron.split()
    found = (numbers(text, dialect) for text, dialect in zip(texts, DIALECTS, strict=True))
    minutes, hours, days, months, named = found
    weekdays = {each % 7 for each in named}
    needed = all if "*" in (texts[2][0], texts[4][0]) else any

    def is_day(day: date) -> bool:
        return needed((day.day in days, day.isoweekday() % 7 in weekdays))

    clock = walk.Gap.AFTER, walk.Fold.FIRST
    if "*" in (texts[0][0], texts[1][0]):
        clock = walk.Gap.SKIPPED, walk.Fold.BOTH
    return Walk(frozenset({0}), minutes, hours, is_day, *clock, months)


@given(CRONS, STARTS, st.sampled_from(["UTC", "Europe/Berlin", "Australia/Lord_Howe"]))
@settings(max_examples=scaled(3_000), deadline=None)
def test_a_rule_and_its_cron_come_when_a_walk_along_the_clock_does(
    cron: str, start: datetime, zone_name: str
) -> None:
    try:
        rule = foreign_rule(cron.split())
    except UnfitError:
        return  # a star before one day field: cron wants both to be met, which we cannot say
    start = start.replace(microsecond=0)
    end = start + timedelta(days=400)
    walked = merged((walk_of(cron),), zone_name, start, 20, end)
    theirs = of_crontab(cron)
    theirs = ForeignRule(rule, theirs.gap, theirs.fold)
    assert list(islice(theirs.times(zone_name, start, end), 20)) == walked
    if ",*" in cron.split(maxsplit=1)[0] + cron.split()[1]:
        return  # a star that is not the first sign counts for us and not for cron
    ours = Cron(rule, zone_name).between(start, end)
    assert [at.astimezone(UTC) for at in islice(ours, 20)] == walked


@pytest.mark.parametrize("zone_name", ["Europe/Berlin", "America/New_York", "Australia/Lord_Howe"])
@pytest.mark.parametrize("cron", ["30 2 * * *", "*/20 * * * *", "15 1,2,3 * * *", "0 */2 * * *"])
def test_both_clock_changes_are_walked_as_debians_cron_takes_them(
    cron: str, zone_name: str
) -> None:
    start = datetime(2026, 1, 1, tzinfo=UTC)
    end = start + timedelta(days=365)
    rule = of_crontab(foreign_rule(cron.split()))
    theirs = [at for at in rule.times(zone_name, start, end) if at <= end]
    assert theirs == [at.astimezone(UTC) for at in Cron(cron, zone_name).between(start, end)]
