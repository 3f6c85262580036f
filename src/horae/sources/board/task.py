r"""A task of the board: Markdown, with YAML between two lines of dashes at its top.

Here it is only read: what a time or a cron expression means is not known to this room. Every
value is the text that stands there until a field that we know says what kind it is, so `042`
is forty-two, an offset stays, and `on` is a word.

>>> text = "---\nid: 42\ntitle: Report\ncron_schedule: '0 9 * * MON'\n---\nWrite it.\n"
>>> task = parse(text).task
>>> task.id, task.status, task.cron_schedule, task.body
(42, 'backlog', '0 9 * * MON', 'Write it.\n')
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import TYPE_CHECKING, Final, NamedTuple

from horae.core.entry import PROPERTIES
from horae.files.yaml import YamlError, YamlMap, read_yaml
from horae.org.plan import Diagnostic, Severity, Span

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from horae.files.yaml import Data

LARGEST_ID: Final = 2**32 - 1

_OPENING: Final = re.compile(r"\ufeff?\s*+---[ \t]*+\r?\n")
_CLOSING: Final = re.compile(r"^---[ \t]*+\r?$", re.MULTILINE)
_ID: Final = re.compile(
    r"^id:[ \t]*(['\"]?)([0-9]{1,18})\1[ \t]*(?:#.*)?\r?$", re.ASCII | re.MULTILINE
)
_NUMBER: Final = re.compile(r"[0-9]{1,18}", re.ASCII)
_ABSENT: Final = frozenset({"~", "null"})
_FLAGS: Final = {"true": True, "false": False}


class TaskFieldKind(StrEnum):
    """What a field holds."""

    TEXT = "text"
    MOMENT = "a time such as 2026-03-25T09:00:00Z"
    NUMBER = "a whole number"
    FLAG = "true or false"
    FLAG_OR_TEXT = "true, false or a reason"
    TEXTS = "a list of strings"
    NUMBERS = "a list of whole numbers"


# How a recurring task wants to be kept.
TASK_PROPERTIES: Final = tuple(each for each in PROPERTIES if each.in_tasks)
_OPTIONS: Final = tuple(each.option for each in TASK_PROPERTIES)
# Every field that a board may have; what is not here is kept as it is and means nothing to us.
FIELDS: Final[Mapping[str, TaskFieldKind]] = {
    "id": TaskFieldKind.NUMBER,
    "title": TaskFieldKind.TEXT,
    "status": TaskFieldKind.TEXT,
    "priority": TaskFieldKind.TEXT,
    "scheduled_for": TaskFieldKind.MOMENT,
    "cron_schedule": TaskFieldKind.TEXT,
    "cron_last_run": TaskFieldKind.MOMENT,
    "timezone": TaskFieldKind.TEXT,
    **dict.fromkeys(_OPTIONS, TaskFieldKind.TEXT),
    "api": TaskFieldKind.TEXT,
    "tags": TaskFieldKind.TEXTS,
    "depends_on": TaskFieldKind.NUMBERS,
    "assignee": TaskFieldKind.TEXT,
    "claimed_by": TaskFieldKind.TEXT,
    "claimed_at": TaskFieldKind.MOMENT,
    "claim_ttl_secs": TaskFieldKind.NUMBER,
    "claim_expires_at": TaskFieldKind.MOMENT,
    "last_progress_at": TaskFieldKind.MOMENT,
    "claim_warning_sent_at": TaskFieldKind.MOMENT,
    "claim_extensions": TaskFieldKind.NUMBER,
    "last_output_bytes": TaskFieldKind.NUMBER,
    "attempt": TaskFieldKind.NUMBER,
    "attempt_reason": TaskFieldKind.TEXT,
    "blocked": TaskFieldKind.FLAG_OR_TEXT,
    "block_reason": TaskFieldKind.TEXT,
    "blocked_on": TaskFieldKind.TEXT,
    "review_owner": TaskFieldKind.TEXT,
    "review_disposition": TaskFieldKind.TEXT,
    "review_feedback": TaskFieldKind.TEXT,
    "reviewed_by": TaskFieldKind.TEXT,
    "reviewed_at": TaskFieldKind.MOMENT,
    "review_blockers": TaskFieldKind.TEXTS,
    "worktree_path": TaskFieldKind.TEXT,
    "branch": TaskFieldKind.TEXT,
    "commit": TaskFieldKind.TEXT,
    "changed_paths": TaskFieldKind.TEXTS,
    "artifacts": TaskFieldKind.TEXTS,
    "files": TaskFieldKind.TEXTS,
    "tests_run": TaskFieldKind.FLAG,
    "tests_passed": TaskFieldKind.FLAG,
    "test_results": TaskFieldKind.TEXT,
    "outcome": TaskFieldKind.TEXT,
    "next_action": TaskFieldKind.TEXT,
    "execution_owner": TaskFieldKind.TEXT,
    "created": TaskFieldKind.MOMENT,
    "updated": TaskFieldKind.MOMENT,
    "started": TaskFieldKind.MOMENT,
    "completed": TaskFieldKind.MOMENT,
    "due": TaskFieldKind.TEXT,
    "estimate": TaskFieldKind.TEXT,
    "parent": TaskFieldKind.NUMBER,
    "class": TaskFieldKind.TEXT,
}

# Without these a task would be taken for another one, or start too early: it is not taken at all.
_STRICT: Final = (
    "title",
    "status",
    "priority",
    "scheduled_for",
    "cron_schedule",
    "cron_last_run",
    "timezone",
    *_OPTIONS,
    "api",
    "depends_on",
)


class Task(NamedTuple):
    """A task as it is written; a time is the text that stands there."""

    id: int
    title: str
    status: str
    priority: str
    scheduled_for: str | None
    cron_schedule: str | None
    cron_last_run: str | None
    timezone: str | None
    tags: tuple[str, ...]
    depends_on: tuple[int, ...]
    fields: YamlMap  # all of the frontmatter; places count from `frontmatter.start`
    absent: frozenset[str]  # the fields whose value stands for nothing
    frontmatter: Span
    body: str

    @property
    def is_archived(self) -> bool:
        """Whether it is put away, by its status or by a tag."""
        return self.status == "archived" or "archived" in self.tags

    def text(self, key: str) -> str | None:
        """Return a field that is one text; what stands for nothing is None."""
        value = self.fields.get(key)
        return value if isinstance(value, str) and value and key not in self.absent else None

    def number(self, key: str) -> int | None:
        """Return a field that is a whole number."""
        return _number(self.text(key))

    def flag(self, key: str) -> bool | None:
        """Return a field that is true or false; no other word is either of them."""
        return _FLAGS.get((self.text(key) or "").lower())

    def texts(self, key: str) -> tuple[str, ...]:
        """Return a field that is a list of strings; a single one may stand without brackets."""
        return _texts(self.fields.get(key) if key not in self.absent else None)

    def numbers(self, key: str) -> tuple[int, ...]:
        """Return a field that is a list of whole numbers."""
        read = map(_number, self.texts(key))
        return tuple(number for number in read if number is not None)


class ParsedTask(NamedTuple):
    """The task that a text holds, if it can be told which, and what is wrong with the text."""

    task: Task | None
    diagnostics: tuple[Diagnostic, ...]


def parse(text: str, *, name: str = "-") -> ParsedTask:
    """Return the task of a Markdown file; *name* is what the file is called."""
    opening = _OPENING.match(text)
    if opening is None:
        message = "a task file must begin with a line of three dashes and the fields"
        return _refused(name, 1, 1, message, "write --- as the first line")
    line = text.count("\n", 0, opening.end()) + 1
    closing = _CLOSING.search(text, opening.end())
    if closing is None:
        message = "the fields are not closed"
        return _refused(name, line - 1, 1, message, "write --- on its own line after the fields")
    frontmatter = Span(opening.end(), closing.start())
    written = text[frontmatter.start : frontmatter.end]
    try:
        fields = read_yaml(written, name=name, line=line)
    except YamlError as error:
        return _refused(name, error.line, error.column, error.reason, error.fix)
    if not isinstance(fields, YamlMap):
        return _refused(name, line, 1, "there are no fields", "write `id: 1` and `title: …`")
    body = text[closing.end() :].removeprefix("\n")
    task = _task(fields, _absent(fields, written), frontmatter, body)
    odd = tuple(_oddities(name, task, line=line))
    return ParsedTask(task if task.id >= 0 and task.title else None, odd)


def id_of(text: str) -> int | None:
    r"""Return the number of the task that a text holds; as a rule no other field is read for it.

    >>> id_of("---\nid: 042\ntitle: Report\n---\nid: 7\n"), id_of("id: 7\n")
    (42, None)
    """
    opening = _OPENING.match(text)
    closing = None if opening is None else _CLOSING.search(text, opening.end())
    if opening is None or closing is None:
        return None
    plain = _ID.search(text, opening.end(), closing.start())
    if plain is not None:
        return int(plain[2])
    task = parse(text).task
    return None if task is None else task.id


def lines_of(text: str, task: Task, key: str) -> Span:
    r"""Return the lines that a field stands on, with the end of the last one.

    >>> text = "---\nid: 7\ntags:\n  - a\n  - b\ntitle: Sow\n---\n"
    >>> where = lines_of(text, parse(text).task, "tags")
    >>> text[where.start : where.end]
    'tags:\n  - a\n  - b\n'
    """
    place, base = task.fields.places[key], task.frontmatter.start
    start = text.rfind("\n", 0, base + place.key) + 1
    end = text.find("\n", base + max(place.key, place.end))
    return Span(start, len(text) if end < 0 else end + 1)


def value_of(text: str, task: Task, key: str) -> Span:
    r"""Return where the value of a field stands; one that begins below its key, from the colon.

    >>> text = "---\nid: 7\ntitle: 'Sow'  # in spring\n---\n"
    >>> where = value_of(text, parse(text).task, "title")
    >>> text[where.start : where.end]
    "'Sow'"
    """
    place, base = task.fields.places[key], task.frontmatter.start
    start, end = base + place.start, base + place.end
    if "\n" in text[base + place.key : start]:
        written = _key_end(text, base + place.key)
        return Span(written, end)
    return Span(start, end)


def _key_end(text: str, key: int) -> int:
    line = text[key : text.index("\n", key)]
    quote = line[:1] if line[:1] in {"'", '"'} else ""
    after = line.index(quote, 1) + 1 if quote else 0
    return key + line.index(":", after) + 1


def byte_span(text: str, span: Span) -> Span:
    """Return a span of characters as a span of the bytes of the text in UTF-8."""
    if text.isascii():
        return span
    start = len(text[: span.start].encode())
    return Span(start, start + len(text[span.start : span.end].encode()))


def _task(fields: YamlMap, absent: frozenset[str], frontmatter: Span, body: str) -> Task:
    """Return the task that the fields say; one without a number or a title has -1 or nothing."""
    bare = Task(
        -1, "", "", "", None, None, None, None, (), (), fields, absent, frontmatter, body
    )  # fmt: skip
    number = bare.number("id")
    return bare._replace(
        id=number if number is not None and number <= LARGEST_ID else -1,
        title=bare.text("title") or "",
        status=bare.text("status") or "backlog",
        priority=bare.text("priority") or "",
        scheduled_for=bare.text("scheduled_for"),
        cron_schedule=bare.text("cron_schedule"),
        cron_last_run=bare.text("cron_last_run"),
        timezone=bare.text("timezone"),
        tags=bare.texts("tags"),
        depends_on=bare.numbers("depends_on"),
    )


def _absent(fields: YamlMap, written: str) -> frozenset[str]:
    """Return the fields whose value stands for nothing, without quotes."""
    return frozenset(
        key for key, place in fields.places.items() if written[place.start : place.end] in _ABSENT
    )


def _oddities(name: str, task: Task, *, line: int) -> Iterator[Diagnostic]:
    """Yield what is wrong with the fields of a task, in the order in which we know them."""
    fields = task.fields
    if task.id < 0:
        fix = f"write `id:` and a whole number up to {LARGEST_ID:,}"
        yield _at(name, fields, "id", "a task needs an id", fix, line=line)
    if not task.title and not isinstance(fields.get("title"), list | YamlMap):
        yield _at(name, fields, "title", "a task needs a title", "write `title: …`", line=line)
    for key, value in fields.items():
        kind = FIELDS.get(key)
        if kind is None or key == "id" or key in task.absent or not value:
            continue
        problem = _misfit(kind, value)
        if problem is not None:
            severity = Severity.ERROR if key in _STRICT else Severity.WARNING
            message, fix = problem
            yield _at(name, fields, key, f"{key} {message}", fix, line=line, severity=severity)


def _misfit(kind: TaskFieldKind, value: Data) -> tuple[str, str] | None:
    """Return why a value is not of its field's kind and what to write, if it is not."""
    is_list = isinstance(value, list | YamlMap)
    match kind:
        case TaskFieldKind.TEXT | TaskFieldKind.MOMENT | TaskFieldKind.FLAG_OR_TEXT if is_list:
            return "must be text, not a list", "write one value, in quotes if it has brackets"
        case TaskFieldKind.NUMBER if is_list or _number(value) is None:
            return "must be a whole number", "use only digits"
        case TaskFieldKind.FLAG if is_list or str(value).lower() not in _FLAGS:
            return "must be true or false", "write true or false"
        case TaskFieldKind.TEXTS if isinstance(value, YamlMap) or _has_nested(value):
            return "must be a list of strings", "write it like [one, two]"
        case TaskFieldKind.NUMBERS if _has_nested(value) or None in map(_number, _texts(value)):
            return "must be a list of numbers", "write it like [7, 12]"
    return None


def _has_nested(value: Data) -> bool:
    """Tell whether there is more in a value than texts, one after the other."""
    parts = value if isinstance(value, list) else [value]
    return not all(isinstance(part, str) for part in parts)


def _at(
    name: str,
    fields: YamlMap,
    key: str,
    message: str,
    fix: str,
    *,
    line: int,
    severity: Severity = Severity.ERROR,
) -> Diagnostic:
    """Return what is wrong at a field; one that is not there would stand first."""
    place = fields.places.get(key)
    where = (line, 1) if place is None else (place.line, place.column)
    return Diagnostic(name, *where, "task", severity, message, fix)


def _refused(name: str, line: int, column: int, message: str, fix: str) -> ParsedTask:
    return ParsedTask(None, (Diagnostic(name, line, column, "task", Severity.ERROR, message, fix),))


def _number(value: Data) -> int | None:
    """Return a whole number; `042` is forty-two."""
    is_number = isinstance(value, str) and _NUMBER.fullmatch(value)
    return int(value) if isinstance(value, str) and is_number else None


def _texts(value: Data) -> tuple[str, ...]:
    """Return the texts of a list; a single one may stand without brackets."""
    parts = value if isinstance(value, list) else [value]
    return tuple(part for part in parts if isinstance(part, str))
