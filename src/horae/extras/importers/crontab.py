r"""A crontab in the syntax of Vixie's cron and its successors.

>>> reading = read_crontab("# Back up\n30 2 * * 1-5 /usr/bin/backup --all\n", zone_name="UTC")
>>> job = reading.jobs[0]
>>> job.title, job.schedule, job.command
('Back up', '30 2 * * 1-5', '/usr/bin/backup --all')
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final, NamedTuple

from horae.errors import ScheduleError
from horae.extras.importers.job import (
    CONTROL,
    LONGEST_LINE,
    MONTHS,
    SUNDAY_FIRST,
    Dialect,
    ForeignJob,
    Reading,
    UnfitError,
    as_user,
    numbers,
)
from horae.timing.cron_fields import NICKNAMES
from horae.timing.zone import zone

_dialect = partial(Dialect, has_open_step=False)
DIALECTS: Final = (
    *(_dialect("minute", 0, 59), _dialect("hour", 0, 23), _dialect("day of month", 1, 31)),
    *(_dialect("month", 1, 12, MONTHS), _dialect("weekday", 0, 7, SUNDAY_FIRST)),
)

# How cron runs a job: without catch-up, and concurrently with itself.
POLICY: Final = (("CATCHUP", "none"), ("OVERLAP", "allow"))
_VARIABLE: Final = re.compile(r"""\s*("[^"]*"|'[^']*'|[A-Za-z_]\w*)\s*=\s*(.*?)\s*""", re.ASCII)
_FIELD: Final = re.compile(r"[^ \t]+")
# What only a shell understands, and a path from the home directory.
_SHELL: Final = re.compile(r"[|&;<>()$`\\\"'*?\[\]~!{}]|\s#|\A\s*\w+=")
_RELATIVE: Final = re.compile(r"(?:^|\s)(?![/-])\S*/")
_PER_CENT: Final = re.compile(r"(?<!\\)%")
_ELSEWHERE: Final = re.compile(r"cd +/")
_REDIRECTED: Final = re.compile(r"(?:\s*[0-9&]?>+\s*(?:/dev/null|&[0-9]))+\Z")
_ZONES: Final = ("CRON_TZ", "TZ")
_KEPT: Final = ("MAILTO", "MAILFROM", "SHELL", "CRON_TZ", "RANDOM_DELAY")
_LONGEST_TITLE: Final = 60
_MOST_VARIABLES: Final = 100  # each is set before the command of every job
_USER: Final = re.compile(r"[A-Za-z_][\w.-]*\$?(?::[\w.-]+)?")
USERS: Final = frozenset({"root", "nobody", "www-data"})


class CrontabLine(NamedTuple):
    texts: tuple[str, ...]
    columns: tuple[int, ...]
    user: str
    rest: str
    column: int  # of the command


def read_crontab(
    text: str, *, zone_name: str, is_system: bool = False, users: Collection[str] = USERS
) -> Reading:
    """Return the jobs of a crontab; in a system's one, commands follow a user."""
    reader = CrontabReader(zone_name, is_system, users)
    for number, line in enumerate(text.split("\n"), 1):
        reader.take(number, line.removesuffix("\r"))
        if reader.reading.is_full:
            break
    reader.end()
    return reader.reading


@dataclass(slots=True)
class CrontabReader:
    zone: str
    is_system: bool
    users: Collection[str]
    reading: Reading = field(default_factory=Reading)
    # Commands that start in the plan's directory.
    _elsewhere: list[tuple[int, int]] = field(default_factory=list)
    _variables: dict[str, str] = field(default_factory=dict)
    _comment: str = ""

    def take(self, number: int, line: str) -> None:
        bare = line.strip(" \t")
        if not bare:
            self._comment = ""
        elif bare.startswith("#"):
            self._comment = bare.lstrip("#").strip()
        elif len(line) > LONGEST_LINE:
            what = f"is longer than {LONGEST_LINE:,} characters"
            self.reading.refuse(number, 1, what, "put the command into a script")
        elif CONTROL.search(line):
            self.reading.refuse(number, 1, "contains a control character", "remove it")
        elif variable := _VARIABLE.fullmatch(line):
            self._set(number, variable)
        elif self.reading.has_room(number):
            self._take_job(number, line)
            self._comment = ""

    def end(self) -> None:
        if not self._elsewhere:
            return
        (line, column), *others = self._elsewhere
        word = "line" if len(others) == 1 else "lines"
        shown = ", ".join(str(number) for number, _ in others[:10]) + ", …" * (len(others) > 10)
        also = f" (also {word} {shown})" if others else ""
        what = f"the command runs in the plan's directory{also}; cron runs it in the home directory"
        remedy = "use `sh -c 'cd && exec …'` where the directory matters"
        self.reading.note(line, column, what, remedy)

    def _set(self, number: int, found: re.Match[str]) -> None:
        name, value = _unquoted(found[1]), _unquoted(found[2])
        if len(self._variables) >= _MOST_VARIABLES and name not in self._variables:
            what = f"there are more than {_MOST_VARIABLES} variables"
            self.reading.refuse(number, 1, what, "set them in a script")
            return
        try:
            if name in _ZONES:
                zone(value.removeprefix(":"))
        except ScheduleError as error:
            self._variables.pop(name, None)
            remedy = "the jobs below use the previous time zone; write one such as Europe/Berlin"
            self.reading.refuse(number, found.start(2) + 1, str(error), remedy)
            return
        self._variables[name] = value
        if name == "CRON_TZ" and value.removeprefix(":") != self.zone:
            what = (
                f"CRON_TZ={value}: the jobs below run in this time zone, as under cronie; Debian's "
                "and Ubuntu's cron ignore it and use the system time zone"
            )
            remedy = "if they ran on Debian or Ubuntu, remove this line and import again"
            self.reading.note(number, 1, what, remedy)
        if name == "MAILTO" and value:
            what = f"MAILTO={value}: output is not mailed"
            remedy = "add a headline with `:AFTER: failed` and a :COMMAND: that notifies you"
            self.reading.note(number, 1, what, remedy)
        if name == "RANDOM_DELAY":
            remedy = f"add `:JITTER: {value}m` where needed"
            self.reading.note(number, 1, f"RANDOM_DELAY={value} is not imported", remedy)

    def _take_job(self, number: int, line: str) -> None:
        try:
            found = self._divided(line)
            rule = foreign_rule(found.texts, columns=found.columns)
        except UnfitError as error:
            self.reading.refuse(number, error.offset, error.what, error.remedy)
            return
        zone_name = self._variables.get("CRON_TZ", self.zone).removeprefix(":")
        if found.user:
            what = f"runs as {found.user} under cron, and as the engine's user here"
            remedy = as_user(found.user)
            self.reading.note(number, found.column, what, remedy)
        if is_plain(found.rest):
            self._elsewhere.append((number, found.column))
        title = self._comment[:_LONGEST_TITLE].strip() or title_of(found.rest)
        command = command_of(found.rest, self._variables)
        notes = (f"Ran as {found.user}.",) * bool(found.user)
        job = ForeignJob(number, title, zone_name, (rule,), command, "", POLICY, notes)
        self.reading.jobs.append(job)

    def _divided(self, line: str) -> CrontabLine:
        fields = list(_FIELD.finditer(line))
        first = fields[0]
        is_nickname = first[0].startswith("@")
        count, texts = 1 if is_nickname else 5, tuple(each[0] for each in fields[:5])
        if is_nickname:
            texts = _nickname(first)
        elif texts[0].startswith("-"):  # cronie and SUSE: without a log
            texts = (texts[0][1:], *texts[1:])
        needed = count + 1 + self.is_system
        if len(fields) < needed:
            many = "1 field" if len(fields) == 1 else f"{len(fields)} fields"
            what = f"the line has {many}; a job needs at least {needed}"
            parts = "minute, hour, day, month, weekday" if count == 5 else "a nickname"
            user = ", the user" if self.is_system else ""
            raise UnfitError(what, f"write {parts}{user} and the command", offset=first.start() + 1)
        user = fields[count][0] if self.is_system else ""
        first_word = fields[count]
        if user and not _USER.fullmatch(user):
            remedy = "omit --system if the lines of this file do not name a user"
            raise UnfitError(f"{user!r} is not a user name", remedy, offset=first_word.start() + 1)
        if not user and first_word[0] in self.users and len(fields) > needed:
            what = f"{first_word[0]!r} is a user name where the command should be"
            remedy = "use --system if each line of this file names a user, as in /etc/crontab"
            raise UnfitError(what, remedy, offset=first_word.start() + 1)
        command = fields[count + self.is_system]
        columns = tuple(each.start() + 1 for each in (fields[:5] if count == 5 else [first] * 5))
        rest = line[command.start() :].rstrip(" \t")
        return CrontabLine(texts, columns, user, rest, command.start() + 1)


def _nickname(found: re.Match[str]) -> tuple[str, ...]:
    word = found[0]
    column = found.start() + 1
    if word.islower() and (rule := NICKNAMES.get(word.upper())):
        return tuple(rule.split())
    if word == "@reboot":
        remedy = "start the job with a systemd service, or give it a schedule"
        raise UnfitError("@reboot is not a time", remedy, offset=column)
    if word.startswith("@every"):
        remedy = "write five fields such as '*/5 * * * *', or six in a :SCHEDULE: for seconds"
        raise UnfitError(f"{word} is not standard cron", remedy, offset=column)
    known = ", ".join(NICKNAMES).lower()
    raise UnfitError(f"{word} is not a cron nickname", f"write one of {known}", offset=column)


def foreign_rule(
    texts: Sequence[str],
    dialects: Sequence[Dialect] = DIALECTS,
    columns: Sequence[int] = (0, 0, 0, 0, 0),
) -> str:
    """Return our cron for five fields; raises UnfitError with the wrong column.

    >>> foreign_rule(["0", "9", "1", "*", "*/1"])
    '0 9 1 * *'
    """
    named = []
    for text, dialect, column in zip(texts, dialects, columns, strict=True):
        if "~" in text:
            what = f"{dialect.word} {text!r} is chosen at random each time cron starts"
            remedy = "write one value, and add :JITTER: to vary it"
            raise UnfitError(what, remedy, offset=column)
        named.append(numbers(text, dialect, column))
    fields = list(texts)
    if "*" in (texts[2][0], texts[4][0]):  # then both days must match; one of them must be any
        fields[2] = "*" if len(named[2]) == 31 else texts[2]
        fields[4] = "*" if len({each % 7 for each in named[4]}) == 7 else texts[4]
        if "*" not in (fields[2], fields[4]):
            what = f"weekday {texts[4]!r} and day {texts[2]!r} must both match"
            remedy = (
                "cron needs both if a field begins with *, and horae runs if either matches; list "
                "the days without *, or test the other field in the command"
            )
            raise UnfitError(what, remedy, offset=columns[4])
    return " ".join(fields)


def command_of(text: str, variables: Mapping[str, str]) -> str:
    r"""Return the command of a job as words, with a shell where it needs one.

    >>> command_of("/usr/bin/backup --all", {})
    '/usr/bin/backup --all'
    >>> command_of("find /tmp -mtime +7 -delete > /dev/null 2>&1", {})
    "sh -c 'cd && find /tmp -mtime +7 -delete > /dev/null 2>&1'"
    >>> command_of("mail me%Hello", {"PATH": "/bin"})
    'env PATH=/bin sh -c \'cd && printf "%s\\n" Hello | sh -c \'"\'"\'mail me\'"\'"\'\''
    """
    command, *lines = _parted(text)
    if lines and not lines[-1]:
        lines.pop()  # cron ends the input with one newline, not with two
    shell = variables.get("SHELL", "") or "sh"
    given = {name: value for name, value in variables.items() if name not in _KEPT}
    words = command
    if not is_plain(text):
        if lines:
            told = " ".join(map(shlex.quote, lines))
            command = f'printf "%s\\n" {told} | {shell} -c {shlex.quote(command)}'
        home = "" if _ELSEWHERE.match(command) else "cd && "  # cron starts in the home directory
        words = f"{shell} -c {shlex.quote(home + command)}"
    if not given:
        return words
    pairs = " ".join(f"{name}={shlex.quote(value)}" for name, value in given.items())
    return f"env {pairs} {words}"


def is_plain(text: str) -> bool:
    """Return whether a command runs without a shell, in the plan's directory.

    >>> is_plain("make report"), is_plain("./report"), is_plain("cd /srv && make report")
    (True, False, False)
    """
    command, *lines = _parted(text)
    return not lines and not _SHELL.search(command) and not _RELATIVE.search(command)


def _parted(text: str) -> list[str]:
    return [part.replace("\\%", "%") for part in _PER_CENT.split(text)]


def title_of(command: str) -> str:
    """Return a title for a command: its program and first argument.

    >>> title_of("/usr/local/bin/backup.sh --all"), title_of("cd /srv/app && ./poll")
    ('backup.sh', 'cd /srv/app && ./poll')
    """
    first = command.split(maxsplit=1)[0] if command.strip() else command
    if not _SHELL.search(command) and "/" in first:
        return first.rpartition("/")[2][:_LONGEST_TITLE] or first
    return _REDIRECTED.sub("", " ".join(command.split()))[:_LONGEST_TITLE].strip()


def _unquoted(text: str) -> str:
    if len(text) > 1 and text[0] in "\"'" and text[-1] == text[0]:
        return text[1:-1]
    return text
