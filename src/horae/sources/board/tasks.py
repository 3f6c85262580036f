"""The tasks of a board on disk: found, read, and changed field by field.

An edit replaces the bytes of the lines that its fields stand on, and no other byte. What it
would make of the file is read back before it is written: if any other field would read
otherwise, nothing is written. A person's save in between wins; the edit is then made anew on
what the person wrote.
"""

from __future__ import annotations

import asyncio
import errno
import os
import re
import unicodedata
from collections import defaultdict
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple

from horae.core.entry import Origin, Unarmed, key_time
from horae.core.identity import Mark
from horae.core.ports import Ended, Process, RunError, Unreleased
from horae.core.receipt import NEVER_STARTED, Reason, ReasonCode, Status
from horae.core.source import Scanned
from horae.errors import Exit, HoraeError
from horae.files.cache import FileCache
from horae.files.edit import EditConflictError, Splice, create, edit, move, spliced
from horae.files.git.committing import edit_and_commit
from horae.files.read import (
    LIMIT,
    MOST,
    PlanFileError,
    PlanMissingError,
    checked_name,
    decoded,
    read_plan,
    told,
)
from horae.org.plan import Severity, Span
from horae.sources.board.recycle import Recycled, recycle, trigger_of
from horae.sources.board.rules import check_depends_on, moment
from horae.sources.board.task import (
    FIELDS,
    TaskFieldKind,
    byte_span,
    id_of,
    lines_of,
    parse,
    value_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from horae.core.ports import Clock, Job, Run
    from horae.core.receipt import Filed
    from horae.files.git.repository import CommitResult
    from horae.files.read import Content, StrPath
    from horae.org.plan import Diagnostic
    from horae.sources.board.rules import Changes, Resolution, Value
    from horae.sources.board.task import Task

TASKS: Final = "board/tasks"
ELSEWHERE: Final = (
    ".batty/team_config/board/tasks"  # where the tool keeps it that we take over from
)

_ATTEMPTS: Final = 64  # against others who save the same file
_LONGEST_SLUG: Final = 50
_NAME: Final = re.compile(r"([0-9]{1,10})(?:-.*)?\.md", re.ASCII | re.DOTALL)
_AT: Final = re.compile(r"task:([0-9]{1,10})(?::|$)", re.ASCII)  # its address in the ledger
_PLAIN: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.()/+-]*(?: [A-Za-z0-9_.()/+-]+)*", re.ASCII)
# Words that some reader of YAML takes for something else than a text.
_TYPED: Final = frozenset(
    {"true", "false", "yes", "no", "on", "off", "y", "n", "null", "inf", "nan", "_"}
)
_ESCAPED: Final = re.compile(r'[\x00-\x1f\x7f-\x9f"\\\u2028\u2029\ufeff\ufffe\uffff\u200e-\u202e]')
_SHORT: Final = {"\n": "\\n", "\t": "\\t", "\r": "\\r", '"': '\\"', "\\": "\\\\"}


_NOWHERE: Final = "the directory does not exist; `horae task add` creates it"


class TaskFileError(PlanFileError):
    """A task that cannot be read."""

    code = "task_file"

    def __init__(self, path: str, problem: Diagnostic) -> None:
        where = f"line {problem.line}, column {problem.column}"
        reason = f"{where}: {problem.message}; {problem.fix}"
        super().__init__(path, reason, line=problem.line, column=problem.column)


class TaskEditError(PlanFileError):
    """A task that cannot be changed without touching more than was asked for."""

    code = "task_edit"


class TaskMissingError(HoraeError):
    """A number that no task of the board has."""

    code = "task_missing"
    exit_code = Exit.NOT_FOUND

    def __init__(
        self,
        task: int,
        directory: str,
        *,
        put_away: str | None = None,
        unread: Sequence[HoraeError] = (),
    ) -> None:
        self.task = task
        self.directory = directory
        self.put_away = put_away
        where = "" if put_away is None else f"; it was archived as {put_away}"
        if put_away is None and unread:
            where = f"; it may be in a file that cannot be read: {'; '.join(map(str, unread))}"
        super().__init__(f"task #{task} not found in {directory}{where}")


class TaskAmbiguousError(HoraeError):
    """A number that several files of the board have."""

    code = "task_ambiguous"
    exit_code = Exit.CONFLICT

    def __init__(self, task: int, files: Sequence[str]) -> None:
        self.task = task
        self.files = tuple(files)
        self.reason = f"{len(files)} files have the id {task}: {', '.join(files)}"
        self.fix = "give all but one of them another id"
        super().__init__(f"{self.reason}; {self.fix}")


class BoardMissingError(HoraeError):
    """A board that is not there."""

    code = "board_missing"
    exit_code = Exit.NOT_FOUND

    def __init__(self, directory: str, reason: str = _NOWHERE) -> None:
        self.directory = directory
        self.reason = reason
        super().__init__(f"{directory}: the board cannot be read: {reason}")


class Card(NamedTuple):
    """A task, the file that it stands in, and what is odd about it."""

    task: Task
    path: str
    oddities: tuple[Diagnostic, ...] = ()


def card_data(card: Card, found: Resolution | None) -> dict[str, object]:
    """Return a task as plain data; *found* is how it stands, if it is open."""
    task = card.task
    return {
        "id": task.id,
        "title": task.title,
        "status": task.status,
        "priority": task.priority,
        "standing": None if found is None else found.standing.value,
        "reason": None if found is None else found.reason or None,
        "assignee": task.text("assignee"),
        "claimed_by": task.text("claimed_by"),
        "review_owner": task.text("review_owner"),
        "tags": list(task.tags),
        "depends_on": list(task.depends_on),
        "scheduled_for": task.scheduled_for,
        "cron_schedule": task.cron_schedule,
        "cron_last_run": task.cron_last_run,
        "timezone": task.timezone,
        "file": card.path,
    }


class Cards(NamedTuple):
    """The tasks of a board by number, what could not be read, and which were put away."""

    cards: tuple[Card, ...]
    problems: tuple[HoraeError, ...]
    archived: frozenset[int]

    @property
    def tasks(self) -> list[Task]:
        return [card.task for card in self.cards]

    def find(self, number: int) -> Card | None:
        """Return the task of a number; raises TaskAmbiguousError if two files have it."""
        for problem in self.problems:
            if isinstance(problem, TaskAmbiguousError) and problem.task == number:
                raise problem
        return next((card for card in self.cards if card.task.id == number), None)


def ambiguous(ids: Iterable[tuple[int, str]]) -> list[TaskAmbiguousError]:
    """Return what is wrong with tasks that go by their numbers: each is to be in one file.

    >>> [str(each) for each in ambiguous([(7, "a.md"), (8, "b.md"), (7, "c.md")])]
    ['2 files have the id 7: a.md, c.md; give all but one of them another id']
    """
    files: defaultdict[int, list[str]] = defaultdict(list)
    for number, file in ids:
        files[number].append(file)
    doubles = sorted((number, sorted(found)) for number, found in files.items() if len(found) > 1)
    return [TaskAmbiguousError(number, found) for number, found in doubles]


def refuse_double(board: Board, address: str) -> None:
    """Raise TaskAmbiguousError if several files have the number of the task at an address."""
    task = _AT.match(address)
    if task is not None:
        # Here only a double number matters; the caller meets the rest by itself.
        with suppress(TaskMissingError, BoardMissingError, PlanFileError):
            board.card(int(task[1]))


def find_tasks(root: StrPath, *, board: str | None = None) -> str:
    """Return where the tasks of a root are, from there: as it is set, else where a board is."""
    if board is not None:
        return f"{board.strip('/')}/tasks"
    is_elsewhere = os.path.isdir(f"{os.fspath(root)}/{ELSEWHERE}")
    is_here = os.path.isdir(f"{os.fspath(root)}/{TASKS}")
    return ELSEWHERE if is_elsewhere and not is_here else TASKS


class Board:
    """The tasks in one directory; a file is parsed again only if its bytes have changed.

    Of several files with one number it says how they are called from *root*.
    """

    def __init__(
        self,
        directory: StrPath,
        *,
        root: StrPath | None = None,
        limit: int = LIMIT,
        most: int = MOST,
    ) -> None:
        self.directory = os.fspath(directory).rstrip("/") or "/"
        self._top = "" if root is None else f"{os.fspath(root).rstrip('/')}/"
        self._limit = limit
        self._cards: dict[str, Card] = {}
        self._shelf: FileCache[None] = FileCache(
            self.directory,
            reader="tasks",
            understand=self._understand,
            suffixes=(".md",),
            is_flat=True,
            limit=limit,
            most=most,
        )

    def read(self) -> Cards:
        """Return the tasks as they stand now; raises BoardMissingError if there is no board."""
        scan = self._shelf.look({})
        for problem in scan.problems:
            if isinstance(problem, PlanMissingError):
                raise BoardMissingError(self.directory)
        files = {each.item.origin.file for each in scan.entries}
        self._cards = {file: self._cards[file] for file in files}
        cards = sorted(self._cards.values(), key=lambda card: (card.task.id, card.path))
        doubles = self._ambiguous(cards)
        return Cards(tuple(cards), (*scan.problems, *doubles), self.archived())

    def card(self, number: int) -> Card:
        """Return one task; raises TaskMissingError, or TaskAmbiguousError if two files have it."""
        found: list[Card] = []
        unread: list[PlanFileError] = []
        for path in self._files():
            try:
                content = read_plan(path, root=self.directory, limit=self._limit)
                written = id_of(content.text)
                if written == number or (written is None and _number_in(path) == number):
                    found.append(card_of(content))
            except PlanMissingError:
                continue  # it went while we looked
            except PlanFileError as error:
                unread.append(error)
        for double in self._ambiguous(found):
            raise double
        for card in found:
            return card
        for problem in unread:
            if _number_in(problem.path) == number:
                raise problem
        put_away = self._put_away(number)
        raise TaskMissingError(number, self.directory, put_away=put_away, unread=unread)

    def _ambiguous(self, cards: Iterable[Card]) -> list[TaskAmbiguousError]:
        """Return which numbers several of some tasks have."""
        return ambiguous((card.task.id, card.path.removeprefix(self._top)) for card in cards)

    def change(self, number: int, decide: Callable[[Task], Changes]) -> Card:
        """Change fields of one task, as *decide* says of what stands there; return it after."""
        return change(
            self.card(number).path, decide, number=number, root=self.directory, limit=self._limit
        )

    def add(self, title: str, fields: Changes, *, body: str = "") -> Card:
        """Make a task with the next number and return it; the first one makes the board."""
        above = os.path.dirname(self.directory)
        for directory in filter(None, (above, self.directory)):
            _make_directory(directory)
        # Beside the directory of the tasks, whose own lock each save takes.
        with _locked(above):
            cards = self.read()
            taken = {card.task.id for card in cards.cards} | cards.archived
            # One that cannot be read now has its number all the same.
            taken |= {_number_in(problem.path) or 0 for problem in _unread(cards)}
            number = max(taken, default=0) + 1
            path = f"{self.directory}/{number:03}-{slug(title)}.md"
            text = task_text({"id": number, "title": title, **fields}, body=body)
            task, problems = parse(text, name=path)
            if task is None or problems:
                raise TaskEditError(path, f"would not be a valid task: {problems[0].message}")
            others = {card.task.id: card.task.depends_on for card in cards.cards}
            check_depends_on(number, task.depends_on, others)
            create(path, text.encode(), root=self.directory, limit=self._limit)
        return Card(task, path)

    def archive(self, number: int, decide: Callable[[Task], Changes]) -> Card:
        """Put one task away, changed as *decide* says; return it where it is then.

        Its file keeps its name. If somebody saves it meanwhile, *decide* is asked again about
        that; whoever has a file of that name in the archive keeps it.
        """
        there = self._archive
        above = os.path.dirname(there) or "."
        path = self.card(number).path
        _make_directory(there)
        for _ in range(_ATTEMPTS):
            path = self.change(number, decide).path
            content = read_plan(path, root=self.directory, limit=self._limit)
            card = card_of(content)
            if decide(card.task):
                continue  # somebody saved it since
            target = f"{there}/{path.rpartition('/')[2]}"
            try:
                move(path, target, expected=content.digest, root=above, limit=self._limit)
            except EditConflictError as error:
                if error.path == target:
                    raise
                continue
            return card._replace(path=target)
        raise EditConflictError(
            path, "is being saved repeatedly by another program; try again later"
        )

    def archived_card(self, number: int) -> Card:
        """Return one task, also if it was put away; or raise TaskMissingError."""
        try:
            return self.card(number)
        except TaskMissingError as error:
            if error.put_away is None:
                raise
            return card_of(read_plan(error.put_away, root=self._archive, limit=self._limit))

    @property
    def _archive(self) -> str:
        """Where the files of tasks are that were put away."""
        above = os.path.dirname(self.directory)
        return f"{above}/archive" if above else "archive"

    def _put_away(self, number: int) -> str | None:
        try:
            with os.scandir(self._archive) as found:
                names = sorted(each.name for each in found if _number_in(each.name) == number)
        except OSError:
            return None
        return f"{self._archive}/{names[0]}" if names else None

    def _understand(self, content: Content, file: str, _: None) -> tuple[None, tuple[Scanned, ...]]:
        self._cards[file] = card_of(content)
        task = self._cards[file].task
        address = f"task:{task.id}"
        mark = Mark(address, task.title, "", "")
        return None, (Scanned(mark, Unarmed(address, Origin(file, 1), task.title, "")),)

    def _files(self) -> list[str]:
        try:
            with os.scandir(self.directory) as found:
                files = [each.name for each in found if each.is_file(follow_symlinks=False)]
        except OSError as error:
            reason = _NOWHERE if error.errno == errno.ENOENT else str(error.strerror)
            raise BoardMissingError(self.directory, reason) from None
        names = sorted(each for each in files if each.endswith(".md") and not each.startswith("."))
        return [f"{self.directory}/{name}" for name in names]

    def archived(self) -> frozenset[int]:
        """Return the numbers of the tasks whose files were put away."""
        try:
            with os.scandir(self._archive) as found:
                numbers = {_number_in(each.name) for each in found}
        except OSError:
            return frozenset()
        return frozenset(number for number in numbers if number is not None)


class CommittedBoard:
    """The tasks of a board, for many who ask at once; under git each edit is committed alone.

    *tasks* is their directory, from the root.
    """

    def __init__(
        self, root: StrPath, *, tasks: str = TASKS, limit: int = LIMIT, most: int = MOST
    ) -> None:
        self._board = Board(
            f"{os.fspath(root).rstrip('/')}/{tasks.strip('/')}", root=root, limit=limit, most=most
        )
        self._limit = limit
        self._reading = asyncio.Lock()

    async def read(self) -> Cards:
        """Return the tasks as they stand now; where there is no board there are none."""
        async with self._reading:
            try:
                return await asyncio.to_thread(self._board.read)
            except BoardMissingError:
                return Cards((), (), frozenset())

    async def card(self, number: int) -> Card:
        """Return one task, or raise TaskMissingError."""
        async with self._reading:
            return await asyncio.to_thread(self._board.card, number)

    async def change(
        self, number: int, decide: Callable[[Task], Changes], *, message: Callable[[Task], str]
    ) -> Edited:
        """Change fields of one task, as *decide* says of what stands there.

        It may be asked more than once, and must say the same twice. *message* says of the task
        after the edit what the commit is called; what git refuses is only noted.
        """
        path = (await self.card(number)).path
        is_asked = False

        def noticing(task: Task) -> Changes:
            nonlocal is_asked
            changes = decide(task)
            is_asked = is_asked or bool(changes)
            return changes

        def make() -> Card:
            directory = self._board.directory
            return change(path, noticing, number=number, root=directory, limit=self._limit)

        card, commit = await edit_and_commit(
            path, make, message=lambda card: message(card.task) if is_asked else ""
        )
        return Edited(card, _said(commit))


class Edited(NamedTuple):
    """A task after an edit, and what git made of it."""

    card: Card
    facts: Mapping[str, str] = {}


def _said(commit: CommitResult) -> dict[str, str]:
    """Return what a receipt says of a commit; where there was nothing to commit, nothing."""
    if commit.sha is not None:
        return {"commit": commit.sha}
    return {"git": commit.words} if commit.words else {}


def change(
    path: StrPath,
    decide: Callable[[Task], Changes],
    *,
    number: int | None = None,
    root: StrPath | None = None,
    limit: int = LIMIT,
) -> Card:
    """Change fields of the task in a file, as *decide* says of what stands there.

    If somebody saves meanwhile *decide* is asked again about that. It may raise.
    """
    for attempt in range(1, _ATTEMPTS + 1):
        content = read_plan(path, root=root, limit=limit)
        card = card_of(content)
        task = card.task
        if number is not None and task.id != number:
            raise EditConflictError(content.path, f"is no longer task #{number}; try again")
        splices = splices_of(content, task, decide(task))
        if not splices:
            return card
        try:
            edit(content.path, splices, expected=content.digest, root=root, limit=limit)
        except EditConflictError:
            if attempt == _ATTEMPTS:
                raise
            continue
        text = decoded(content.path, spliced(content.data, splices))
        return card_of(content._replace(text=text))
    raise AssertionError("the last attempt returns or raises")


def card_of(content: Content) -> Card:
    """Return the task of a file, or raise TaskFileError."""
    task, problems = parse(content.text, name=content.path)
    wrong = next((each for each in problems if each.severity is Severity.ERROR), None)
    if wrong is not None or task is None:
        raise TaskFileError(content.path, wrong or problems[0])
    return Card(task, content.path, problems)


def splices_of(content: Content, task: Task, changes: Changes) -> list[Splice]:
    """Return the splices that change fields of a task, none for those that are so already.

    Raises TaskEditError if what comes out would read otherwise than meant.
    """
    wanted = {key: value for key, value in _plain(changes).items() if not _is(task, key, value)}
    if not wanted:
        return []
    if _is_flow(content.text, task):
        reason = "its fields are in braces; write each on its own line"
        raise TaskEditError(content.path, reason)
    # A note below a field that goes may then belong to a text above it: its key must stay.
    for keeps_keys in (False, True):
        splices = _splices(content, task, wanted, keeps_keys=keeps_keys)
        if _reads_as_meant(content, task, wanted, splices):
            return splices
    names = ", ".join(sorted(wanted))
    reason = f"{names} cannot be changed without changing other lines; edit the file by hand"
    raise TaskEditError(content.path, reason)


def _splices(
    content: Content, task: Task, wanted: Mapping[str, Value | None], *, keeps_keys: bool
) -> list[Splice]:
    """Return the splices for the wanted fields; what goes takes its line, or leaves its key."""
    text = content.text
    there = [(key, value) for key, value in wanted.items() if key in task.fields]
    new = [(key, value) for key, value in wanted.items() if key not in task.fields]
    pieces = sorted(_piece(text, task, key, value, keeps_keys=keeps_keys) for key, value in there)
    if lines := "".join(_line(text, task, key, value) for key, value in new if value is not None):
        end = task.frontmatter.end
        pieces.append((Span(end, end), lines))
    try:
        return [Splice(*byte_span(text, span), data.encode()) for span, data in pieces]
    except UnicodeEncodeError:
        reason = "a value contains an unpaired surrogate; write the whole character"
        raise TaskEditError(content.path, reason) from None


def scalar(value: Value) -> str:
    r"""Return a value as YAML, in quotes unless every reader takes it for the same text.

    >>> print(scalar("todo"), scalar("0 9 * * MON"), scalar("yes"), scalar(("a", "b: c")))
    todo "0 9 * * MON" "yes" [a, "b: c"]
    """
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, tuple):
        return f"[{', '.join(scalar(part) for part in value)}]"
    if _PLAIN.fullmatch(value) and value.lower() not in _TYPED:
        return value
    return f'"{_ESCAPED.sub(_escape, value)}"'


def task_text(fields: Changes, *, body: str = "") -> str:
    """Return the text of a new task file."""
    lines = "".join(
        f"{key}: {scalar(value)}\n" for key, value in _plain(fields).items() if value is not None
    )
    return f"---\n{lines}---\n\n{body.strip()}\n" if body.strip() else f"---\n{lines}---\n"


def slug(title: str) -> str:
    """Return the words of a title as they stand in a file's name.

    >>> slug("Weekly: stand-up, Über alles!")
    'weekly-stand-up-uber-alles'
    """
    plain = unicodedata.normalize("NFKD", title).encode("ascii", "ignore").decode().lower()
    words = re.findall(r"[a-z0-9]+", plain)
    while len(words) > 1 and len("-".join(words)) > _LONGEST_SLUG:
        words.pop()
    return "-".join(words)[:_LONGEST_SLUG] or "task"


def _plain(changes: Changes) -> dict[str, Value | None]:
    """Return the changes; an empty text or list is nothing."""
    return {key: None if value in ("", ()) else value for key, value in changes.items()}


def _is(task: Task, key: str, value: Value | None) -> bool:
    if value is None:
        return key not in task.fields
    if isinstance(value, bool):
        return task.flag(key) is value
    if isinstance(value, int):
        return task.number(key) == value
    if isinstance(value, tuple):
        held = task.fields.get(key)
        return isinstance(held, list) and held == [str(part) for part in value]
    return task.text(key) == value


def _is_flow(text: str, task: Task) -> bool:
    """Tell whether the fields stand in braces."""
    first = min(task.fields.places.values(), key=lambda place: place.key)
    at = task.frontmatter.start + first.key
    return "{" in text[text.rfind("\n", 0, at) + 1 : at] or _before(text, task, at).endswith("{")


def _before(text: str, task: Task, at: int) -> str:
    """Return what stands in the fields before a place, without comments and blanks."""
    lines = text[task.frontmatter.start : at].splitlines()
    return "".join(line.partition("#")[0].strip() for line in lines)


def _piece(
    text: str, task: Task, key: str, value: Value | None, *, keeps_keys: bool
) -> tuple[Span, str]:
    if value is None and not keeps_keys:
        return lines_of(text, task, key), ""
    where = value_of(text, task, key)
    if value is None:
        is_last = text[where.end : where.end + 1] in {"\r", "\n"}
        start = len(text[: where.start].rstrip(" \t")) if is_last else where.start
        return Span(start, where.end), ""
    blank = "" if text[where.start - 1] in " \t" else " "
    return where, f"{blank}{scalar(value)}"


def _line(text: str, task: Task, key: str, value: Value) -> str:
    """Return the line of a field that is not there yet, like the others."""
    first = min(task.fields.places.values(), key=lambda place: place.key)
    indent = " " * (first.column - 1)
    end = "\r\n" if text[: task.frontmatter.end].endswith("\r\n") else "\n"
    return f"{indent}{key}: {scalar(value)}{end}"


def _escape(found: re.Match[str]) -> str:
    return _SHORT.get(found[0]) or f"\\u{ord(found[0]):04x}"


def _reads_as_meant(
    content: Content, task: Task, wanted: Mapping[str, Value | None], splices: list[Splice]
) -> bool:
    """Tell whether the wanted fields, and they alone, would read anew."""
    text = spliced(content.data, splices).decode()
    after, _ = parse(text, name=content.path)
    kept = task.fields.keys() - wanted.keys()
    return (
        after is not None
        and after.body == task.body
        and after.fields.keys() - wanted.keys() == kept
        and all(after.fields[key] == task.fields[key] for key in kept)
        and all(_reads_as(after, key, value) for key, value in wanted.items())
    )


def _reads_as(task: Task, key: str, value: Value | None) -> bool:
    """Tell whether a field reads as a value; without one a key alone is nothing."""
    is_nothing = task.fields.get(key) is None or key in task.absent
    return is_nothing if value is None else _is(task, key, value)


def _unread(cards: Cards) -> Iterator[PlanFileError]:
    """Yield what is said of the files of a board that cannot be read."""
    return (each for each in cards.problems if isinstance(each, PlanFileError))


def _number_in(path: str) -> int | None:
    named = _NAME.fullmatch(path.rpartition("/")[2])
    return int(named[1]) if named else None


@contextmanager
def _locked(directory: str) -> Iterator[None]:
    """Hold the lock of a directory, so that two new tasks never get one number."""
    import fcntl

    name = checked_name(directory or ".")
    with told(name):
        descriptor = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _make_directory(path: str) -> None:
    with told(path):
        try:
            os.mkdir(path)
        except FileExistsError:
            return
        above = os.path.dirname(path) or "."
        descriptor = os.open(above, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def kind_of(key: str) -> TaskFieldKind:
    """Return what a field holds; one that we do not know is a text."""
    return FIELDS.get(key, TaskFieldKind.TEXT)


# How a recycle is a run.


class RecycleRunner:
    """Makes the runs that bring a task back: an edit of ours, and no process.

    To make the edit twice changes nothing, so after a crash the file itself tells whether it
    was made. With *inline* all is done in the caller's thread, and git is left alone.
    """

    def __init__(
        self,
        root: StrPath,
        *,
        clock: Clock,
        tasks: str = TASKS,
        limit: int = LIMIT,
        inline: bool = False,
    ) -> None:
        self._root = os.fspath(root).rstrip("/")
        self._tasks = f"{self._root}/{tasks.strip('/')}"
        self._limit = limit
        self._clock = clock
        self._inline = inline

    async def hold(self, job: Job) -> RecycleRun:
        """Make a run that waits for its go."""
        task = parse(job.text).task
        if task is None:
            raise RunError("the text to recycle is not a task")
        return RecycleRun(self, job.filed, task.id)

    async def look_back(self, filed: Filed, run: Run) -> Ended | Unreleased | None:
        """Return how a run ended that an engine before this one made: the file says it."""
        try:
            content = read_plan(f"{self._root}/{filed.origin.file}", limit=self._limit)
            task = card_of(content).task
        except PlanFileError:
            return None
        last, coming = moment(task.cron_last_run), moment(task.scheduled_for)
        if last is None or coming is None or last < run.started_at.replace(microsecond=0):
            return Unreleased()
        made = Recycled(task.id, task.cron_schedule or "", {}, last, coming, last, 1)
        reason = Reason(ReasonCode.TASK_MOVED, made.words)
        return Ended(Status.DONE, reason, facts={"task": task.id, "found": True})

    async def carry_out(self, filed: Filed, number: int) -> Ended:
        """Bring a task back, if it is done and a trigger has passed."""
        try:
            if self._inline:
                return self._bring_back(filed, number)
            path = await asyncio.to_thread(self._find, filed, number)
            ended, commit = await edit_and_commit(
                path,
                lambda: self._bring_back(filed, number),
                message=lambda ended: (
                    f"Move task #{number} back to todo" if ended.outcome is Status.DONE else ""
                ),
            )
            return replace(ended, facts={**ended.facts, **_said(commit)})
        except TaskMissingError:
            words = f"task #{number} is no longer on the board"
            return Ended(Status.NO_WORK, Reason(ReasonCode.TASK_NOT_MOVED, words))
        except (HoraeError, OSError) as error:
            return Ended(Status.FAILED, Reason(ReasonCode.EDIT_FAILED, str(error)))

    def _find(self, filed: Filed, number: int) -> str:
        """Return the file of a task: where it stood, else where it stands now."""
        path = f"{self._root}/{filed.origin.file}"
        if path.startswith(f"{self._tasks}/"):
            with suppress(PlanFileError):  # moved meanwhile: it is looked for below
                content = read_plan(path, root=self._tasks, limit=self._limit)
                if card_of(content).task.id == number:
                    return path
        return Board(self._tasks, limit=self._limit).card(number).path

    def _bring_back(self, filed: Filed, number: int) -> Ended:
        """Edit the task's file, if the task comes back now."""
        now = self._clock.now()
        receipt = filed.receipt
        is_asked = receipt.key.startswith("manual:")
        trigger_at = trigger_of(receipt.key, receipt.planned_at)
        found: Recycled | None = None
        reason = ""

        def decide(task: Task) -> Changes:
            nonlocal found, reason
            answer = recycle(task, now=now, planned_at=trigger_at, is_asked=is_asked)
            if isinstance(answer, Recycled):
                found = answer
                return answer.changes
            found, reason = None, answer.reason
            return {}

        path = self._find(filed, number)
        change(path, decide, number=number, root=self._tasks, limit=self._limit)
        if found is None:
            return Ended(Status.NO_WORK, Reason(ReasonCode.TASK_NOT_MOVED, reason))
        facts = {
            "task": number,
            "trigger": key_time(found.trigger_at),
            "triggers": found.triggers,
            "next": key_time(found.next_at),
        }
        return Ended(Status.DONE, Reason(ReasonCode.TASK_MOVED, found.words), facts=facts)


class RecycleRun:
    """One task that waits to be brought back."""

    process = Process(0, 0)  # there is none

    def __init__(self, runner: RecycleRunner, filed: Filed, number: int) -> None:
        self._runner = runner
        self._filed = filed
        self._number = number
        self._going: asyncio.Future[Ended] | None = None
        self._cancelled = ""

    def go(self) -> None:
        """Let it begin."""
        if not self._cancelled:
            part = self._runner.carry_out(self._filed, self._number)
            self._going = asyncio.ensure_future(part)

    def cancel(self, reason: str) -> None:
        """Keep it from beginning; an edit that was begun is soon over and is not torn."""
        self._cancelled = reason

    async def ended(self) -> Ended:
        if self._going is None:
            reason = NEVER_STARTED
            if self._cancelled:
                reason = Reason(ReasonCode.CANCELLED, self._cancelled)
            return Ended(Status.KILLED, reason)
        return await self._going
