"""The tasks of a board on disk: found, read, and changed field by field.

An edit replaces the lines of its fields, and no other byte. The result is parsed before it is
written: if any other field would change, nothing is written. A user's concurrent save wins; the
edit is then repeated on it.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import re
import unicodedata
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self, TypeAlias, TypeVar

from horae.core.ports import TaskBrief
from horae.core.views import Shape
from horae.errors import Exit, HoraeError
from horae.files import read as files
from horae.files.cache import FileCache
from horae.files.edit import EditConflictError, Splice, create, edit, move, spliced
from horae.files.git.repository import edit_and_commit
from horae.files.read import LIMIT, MOST, Content, PlanFileError, PlanMissingError, StrPath
from horae.org.plan import Diagnostic, Severity, Span
from horae.sources.board import TASKS, rules
from horae.sources.board.recycle import Recycled, Stays
from horae.sources.board.rules import Changes, Resolution, TaskStatuses, Value, check_depends_on
from horae.sources.board.task import Task, byte_span, id_of, lines_of, parse, value_of

if TYPE_CHECKING:
    from horae.core.source import Scanned

T = TypeVar("T")
Understand: TypeAlias = "Callable[[Content, str], tuple[Scanned, ...]]"

_ATTEMPTS: Final = 64  # when others save the same file
_LONGEST_SLUG: Final = 50
_NAME: Final = re.compile(r"([0-9]{1,10})(?:-.*)?\.md", re.ASCII | re.DOTALL)
_AT: Final = re.compile(r"task:([0-9]{1,10})(?::|$)", re.ASCII)  # its address in the ledger
_PLAIN: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.()/+-]*(?: [A-Za-z0-9_.()/+-]+)*", re.ASCII)
# Words that some YAML reader does not treat as text.
_TYPED: Final = frozenset(
    {"true", "false", "yes", "no", "on", "off", "y", "n", "null", "inf", "nan", "_"}
)
_ESCAPED: Final = re.compile(r'[\x00-\x1f\x7f-\x9f"\\\u2028\u2029\ufeff\ufffe\uffff\u200e-\u202e]')
_SHORT: Final = {"\n": "\\n", "\t": "\\t", "\r": "\\r", '"': '\\"', "\\": "\\\\"}
_NOWHERE: Final = "the directory does not exist; `horae task add` creates it"


class TaskFileError(PlanFileError, code="task_file"):
    def __init__(self, path: str, problem: Diagnostic) -> None:
        reason = f"{problem.message}; {problem.fix}"
        super().__init__(path, reason, line=problem.line, column=problem.column)


class TaskEditError(PlanFileError, code="task_edit"):
    """A task that cannot be changed without changing other lines of its file."""


class TaskMissingError(HoraeError, code="task_missing", exit_code=Exit.NOT_FOUND):
    def __init__(
        self, task: int, directory: str, put_away: str | None, unread: Sequence[HoraeError]
    ) -> None:
        self.task, self.directory, self.put_away = task, directory, put_away
        where = "" if put_away is None else f"; it was archived as {put_away}"
        if put_away is None and unread:
            where = f"; it may be in a file that cannot be read: {'; '.join(map(str, unread))}"
        super().__init__(f"task #{task} not found in {directory}{where}")


class TaskAmbiguousError(HoraeError, code="task_ambiguous", exit_code=Exit.CONFLICT):
    def __init__(self, task: int, files: Sequence[str]) -> None:
        self.task = task
        self.files = tuple(files)
        self.reason = f"{len(files)} files have the id {task}: {', '.join(files)}"
        self.fix = "give all but one of them another id"
        super().__init__(f"{self.reason}; {self.fix}")


class BoardMissingError(HoraeError, code="board_missing", exit_code=Exit.NOT_FOUND):
    def __init__(self, directory: str, reason: str = _NOWHERE) -> None:
        self.directory, self.reason = directory, reason
        super().__init__(f"{directory}: the board cannot be read: {reason}")


class Card(NamedTuple):
    task: Task
    path: str
    oddities: tuple[Diagnostic, ...] = ()
    is_asked: bool = False  # whether the edit was intended, even if nothing had to change
    digest: str = ""  # of its file, when it was read


class TaskLine(Shape, frozen=True, kw_only=True):
    """A task; `standing` and `reason` tell whether an open one can be done, and why not."""

    id: int
    title: str
    status: str
    priority: str
    standing: str | None
    reason: str | None
    assignee: str | None
    claimed_by: str | None
    review_owner: str | None
    tags: tuple[str, ...]
    depends_on: tuple[int, ...]
    scheduled_for: str | None
    cron_schedule: str | None
    cron_last_run: str | None
    timezone: str | None
    file: str

    @classmethod
    def of(cls, card: Card, found: Resolution | None = None, **more: Any) -> Self:
        task = card.task
        facts: dict[str, Any] = {name: getattr(task, name) for name in _WRITTEN}
        facts |= {name: task.text(name) for name in ("assignee", "claimed_by", "review_owner")}
        standing = None if found is None else found.standing.value
        reason = None if found is None else found.reason or None
        return cls(**facts, **more, standing=standing, reason=reason, file=card.path)


_WRITTEN: Final = tuple(each for each in Task._fields if each in TaskLine.__struct_fields__)


class Cards(NamedTuple):
    cards: tuple[Card, ...]
    problems: tuple[HoraeError, ...]
    archived: frozenset[int]

    @property
    def tasks(self) -> list[Task]:
        return [card.task for card in self.cards]

    @property
    def ground(self) -> TaskStatuses:
        return TaskStatuses.of(self.tasks, archived=self.archived)


def ambiguous(ids: Iterable[tuple[int, str]]) -> list[TaskAmbiguousError]:
    files: defaultdict[int, list[str]] = defaultdict(list)
    for number, file in ids:
        files[number].append(file)
    doubles = sorted((number, sorted(found)) for number, found in files.items() if len(found) > 1)
    return [TaskAmbiguousError(number, found) for number, found in doubles]


def refuse_double(board: Board, address: str) -> None:
    task = _AT.match(address)
    if task is not None:
        # The caller reports other errors itself.
        with suppress(TaskMissingError, BoardMissingError, PlanFileError):
            board.card(int(task[1]))


class Board:
    """The tasks in one directory; a file is parsed again only if its bytes have changed."""

    def __init__(
        self, directory: StrPath, *, root: StrPath = "", limit: int = LIMIT, most: int = MOST
    ) -> None:
        self.directory = os.fspath(directory).rstrip("/") or "/"
        self.top = f"{os.fspath(root).rstrip('/')}/" if root else ""  # not in the names of files
        self.limit = limit
        self.most = most
        self._cards: dict[str, Card] = {}
        self._index: Mapping[str, str] = {}
        self._shelf = self.cache(self._understand, "tasks")
        above = os.path.dirname(self.directory)
        self._archive = f"{above}/archive" if above else "archive"

    @classmethod
    def below(cls, root: StrPath, tasks: str = TASKS, **limits: int) -> Board:
        directory = f"{os.fspath(root).rstrip('/')}/{tasks.strip('/')}"
        return cls(directory, root=root, **limits)

    def cache(self, understand: Understand, reader: str) -> FileCache:
        prefix = f"{self.directory.removeprefix(self.top)}/"
        return FileCache(
            self.directory, reader, understand, (".md",), True, prefix, self.limit, self.most
        )

    def read(self) -> Cards:
        scan = self._shelf.look(self._index)
        if any(isinstance(problem, PlanMissingError) for problem in scan.problems):
            raise BoardMissingError(self.directory)
        self._index = scan.index
        self._cards = {file: card for file, card in self._cards.items() if file in scan.index}
        cards = sorted(self._cards.values(), key=lambda card: (card.task.id, card.path))
        doubles = self._ambiguous(cards)
        return Cards(tuple(cards), (*scan.problems, *doubles), frozenset(self.archived()))

    def card(self, number: int) -> Card:
        found: list[Card] = []
        unread: list[PlanFileError] = []
        for path in self._files():
            try:
                content = self._content(path)
                written = id_of(content.text)
                if written == number or (written is None and _number_in(path) == number):
                    found.append(card_of(content))
            except PlanMissingError:
                continue  # removed meanwhile
            except PlanFileError as error:
                unread.append(error)
        for double in self._ambiguous(found):
            raise double
        for card in found:
            return card
        for problem in unread:
            if _number_in(problem.path) == number:
                raise problem
        raise TaskMissingError(number, self.directory, self.archived().get(number), unread)

    def find(self, number: int, hint: str) -> str:
        path = f"{self.top}{hint}"
        if hint and path.startswith(f"{self.directory}/"):
            with suppress(PlanFileError):  # moved meanwhile: it is searched for below
                if card_of(self._content(path)).task.id == number:
                    return path
        return self.card(number).path

    def _content(self, path: str) -> Content:
        return files.read_plan(path, root=self.directory, limit=self.limit)

    def _ambiguous(self, cards: Iterable[Card]) -> list[TaskAmbiguousError]:
        return ambiguous((card.task.id, card.path.removeprefix(self.top)) for card in cards)

    def change(
        self, number: int, decide: Callable[[Task], Changes], *, path: str | None = None
    ) -> Card:
        """Change one task by *decide*, which is called again if the file is saved meanwhile."""
        path = path or self.card(number).path
        for attempt in range(1, _ATTEMPTS + 1):
            content = self._content(path)
            card = card_of(content)
            if card.task.id != number:
                raise EditConflictError(content.path, f"is no longer task #{number}; try again")
            changes = decide(card.task)
            splices = splices_of(content, card.task, changes)
            if not splices:
                return card._replace(is_asked=bool(changes))
            try:
                edit(path, splices, expected=content.digest, root=self.directory, limit=self.limit)
            except EditConflictError:
                if attempt == _ATTEMPTS:
                    raise
                continue
            text = files.decoded(content.path, spliced(content.data, splices))
            return card_of(content._replace(text=text))._replace(is_asked=True)
        raise AssertionError("the last attempt returns or raises")

    def recycle(
        self, number: int, decide: Callable[[Task], Recycled | Stays], *, path: str | None = None
    ) -> Recycled | Stays:
        answer: Recycled | Stays = Stays("")

        def changes(task: Task) -> Changes:
            nonlocal answer
            answer = decide(task)
            return answer.changes

        self.change(number, changes, path=path)
        return answer

    def add(self, title: str, fields: Changes, *, body: str = "") -> Card:
        """Create a task with the next number and return it; the first one creates the board."""
        above = os.path.dirname(self.directory)
        for directory in filter(None, (above, self.directory)):
            _make_directory(directory)
        # New numbers are locked by the directory above, as each save locks the tasks' own.
        with _opened(above) as descriptor:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            cards = self.read()
            taken = {card.task.id for card in cards.cards} | cards.archived
            # An unreadable file still has its number.
            unread = (each for each in cards.problems if isinstance(each, PlanFileError))
            taken |= {_number_in(problem.path) or 0 for problem in unread}
            number = max(taken, default=0) + 1
            path = f"{self.directory}/{number:03}-{slug(title)}.md"
            text = task_text({"id": number, "title": title, **fields}, body=body)
            task, problems = parse(text, name=path)
            if task is None or problems:
                raise TaskEditError(path, f"would not be a valid task: {problems[0].message}")
            others = {card.task.id: card.task.depends_on for card in cards.cards}
            check_depends_on(number, task.depends_on, others)
            digest = create(path, text.encode(), root=self.directory, limit=self.limit)
        return Card(task, path, digest=digest)

    def archive(self, number: int, decide: Callable[[Task], Changes]) -> Card:
        """Archive a task, changed by *decide*; a file in the archive is not replaced."""
        path = self.card(number).path
        _make_directory(self._archive)
        for _ in range(_ATTEMPTS):
            path = self.change(number, decide).path
            content = self._content(path)
            card = card_of(content)
            if decide(card.task):
                continue  # saved by another program since
            target = f"{self._archive}/{path.rpartition('/')[2]}"
            above = os.path.dirname(self._archive) or "."
            try:
                move(path, target, expected=content.digest, root=above, limit=self.limit)
            except EditConflictError as error:
                if error.path == target:
                    raise
                continue
            return card._replace(path=target)
        reason = "is being saved repeatedly by another program; try again later"
        raise EditConflictError(path, reason)

    def archived_card(self, number: int) -> Card:
        try:
            return self.card(number)
        except TaskMissingError as error:
            if error.put_away is None:
                raise
            return card_of(files.read_plan(error.put_away, root=self._archive, limit=self.limit))

    def archived(self) -> dict[int, str]:
        try:
            names = sorted(os.listdir(self._archive), reverse=True)
        except OSError:
            return {}
        found = ((_number_in(name), f"{self._archive}/{name}") for name in names)
        return {number: path for number, path in found if number is not None}

    def _understand(self, content: Content, file: str) -> tuple[Scanned, ...]:
        self._cards[file] = card_of(content)
        return ()

    def _files(self) -> tuple[str, ...]:
        try:
            suffixes, most = (".md",), self.most
            found = files.find_plans(self.directory, suffixes=suffixes, most=most, is_flat=True)
        except PlanFileError as error:
            reason = _NOWHERE if isinstance(error, PlanMissingError) else error.reason
            raise BoardMissingError(self.directory, reason) from None
        return found.plans


class CommittedBoard:
    """The tasks of a board for concurrent callers; under git each edit has its own commit."""

    def __init__(self, board: Board) -> None:
        self.files = board
        self._reading = asyncio.Lock()

    async def read(self) -> Cards:
        async with self._reading:
            try:
                return await asyncio.to_thread(self.files.read)
            except BoardMissingError:
                return Cards((), (), frozenset())

    async def told_to(self, name: str) -> list[TaskBrief]:
        """Return the tasks for the prompt of a member; none if the board cannot be read."""
        try:
            cards = await self.read()
        except (HoraeError, OSError):
            return []
        found = [TaskBrief(number, "", "archived") for number in sorted(cards.archived)]
        for task in cards.tasks:
            assignee = task.text("assignee")
            other = "" if assignee is None or assignee == name else assignee
            what = (task.id, task.title, task.status, task.numbers("depends_on"))
            waits = (rules.moment(task.scheduled_for), rules.blocked_text(task) or "")
            done_at = rules.moment(task.text("completed"))
            found.append(TaskBrief(*what, *waits, task.text("claimed_by") or other, done_at))
        return found

    async def change(
        self, number: int, decide: Callable[[Task], Changes], *, message: Callable[[Task], str]
    ) -> tuple[Card, dict[str, str]]:
        """Change one task by *decide*, and commit; an error of git is only a fact of the result."""
        return await self.edit(
            number,
            lambda path: self.files.change(number, decide, path=path),
            message=lambda card: message(card.task) if card.is_asked else "",
        )

    async def edit(
        self, number: int, make: Callable[[str], T], *, message: Callable[[T], str], hint: str = ""
    ) -> tuple[T, dict[str, str]]:
        path = await asyncio.to_thread(self.files.find, number, hint)
        made, commit = await edit_and_commit(path, lambda: make(path), message=message)
        if commit.sha is not None:
            return made, {"commit": commit.sha}
        return made, {"git": commit.words} if commit.words else {}


def card_of(content: Content) -> Card:
    task, problems = parse(content.text, name=content.path)
    wrong = next((each for each in problems if each.severity is Severity.ERROR), None)
    if wrong is not None or task is None:
        raise TaskFileError(content.path, wrong or problems[0])
    return Card(task, content.path, problems, digest=content.digest)


def splices_of(content: Content, task: Task, changes: Changes) -> list[Splice]:
    wanted = {key: value for key, value in _plain(changes).items() if not _is(task, key, value)}
    if not wanted:
        return []
    text, start = content.text, task.frontmatter.start
    first = min(task.fields.places.values(), key=lambda place: place.key)
    at = start + first.key
    above = "".join(line.partition("#")[0].strip() for line in text[start:at].splitlines())
    if "{" in text[text.rfind("\n", 0, at) + 1 : at] or above.endswith("{"):
        reason = "its fields are in braces; write each on its own line"
        raise TaskEditError(content.path, reason)
    # A comment below a removed field could become part of the text above: its key must stay.
    for keeps_keys in (False, True):
        pieces = sorted(
            _piece(text, task, key, value, keeps_keys=keeps_keys)
            for key, value in wanted.items()
            if key in task.fields
        )
        end = task.frontmatter.end
        newline = "\r\n" if text[:end].endswith("\r\n") else "\n"
        new = {key: value for key, value in wanted.items() if key not in task.fields}
        if lines := _lines(new, indent=" " * (first.column - 1), newline=newline):
            pieces.append((Span(end, end), lines))
        try:
            splices = [Splice(*byte_span(text, span), data.encode()) for span, data in pieces]
        except UnicodeEncodeError:
            reason = "a value contains an unpaired surrogate; write the whole character"
            raise TaskEditError(content.path, reason) from None
        after = parse(spliced(content.data, splices).decode(), name=content.path).task
        if after is not None and _is_as_meant(task, after, wanted):
            return splices
    names = ", ".join(sorted(wanted))
    reason = f"{names} cannot be changed without changing other lines; edit the file by hand"
    raise TaskEditError(content.path, reason)


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


def _is_as_meant(task: Task, after: Task, wanted: Mapping[str, Value | None]) -> bool:
    def is_wanted(key: str, value: Value | None) -> bool:
        is_nothing = after.fields.get(key) is None or key in after.absent  # or a key alone
        return is_nothing if value is None else _is(after, key, value)

    kept = task.fields.keys() - wanted.keys()
    return (
        after.body == task.body
        and after.fields.keys() - wanted.keys() == kept
        and all(after.fields[key] == task.fields[key] for key in kept)
        and all(is_wanted(key, value) for key, value in wanted.items())
    )


def scalar(value: Value) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, tuple):
        return f"[{', '.join(scalar(part) for part in value)}]"
    if _PLAIN.fullmatch(value) and value.lower() not in _TYPED:
        return value
    escaped = _ESCAPED.sub(lambda at: _SHORT.get(at[0]) or f"\\u{ord(at[0]):04x}", value)
    return f'"{escaped}"'


def _lines(fields: Changes, *, indent: str = "", newline: str = "\n") -> str:
    said = ((key, value) for key, value in fields.items() if value is not None)
    return "".join(f"{indent}{key}: {scalar(value)}{newline}" for key, value in said)


def task_text(fields: Changes, *, body: str = "") -> str:
    text = f"\n{body.strip()}\n" if body.strip() else ""
    return f"---\n{_lines(_plain(fields))}---\n{text}"


def slug(title: str) -> str:
    plain = unicodedata.normalize("NFKD", title).encode("ascii", "ignore").decode().lower()
    words = re.findall(r"[a-z0-9]+", plain)
    while len(words) > 1 and len("-".join(words)) > _LONGEST_SLUG:
        words.pop()
    return "-".join(words)[:_LONGEST_SLUG] or "task"


def _plain(changes: Changes) -> dict[str, Value | None]:
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


def _number_in(path: str) -> int | None:
    named = _NAME.fullmatch(path.rpartition("/")[2])
    return int(named[1]) if named else None


@contextmanager
def _opened(directory: str) -> Iterator[int]:
    name = files.checked_name(directory or ".")
    with files.told(name):
        descriptor = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _make_directory(path: str) -> None:
    with files.told(path):
        try:
            os.mkdir(path)
        except FileExistsError:
            return
        except FileNotFoundError as error:
            reason = "does not exist; create it, or correct board.dir in horae.toml"
            raise PlanMissingError(os.path.dirname(path), reason) from error
        except OSError as error:
            raise PlanFileError(path, f"cannot be created: {files.in_words(error)}") from error
        with _opened(os.path.dirname(path)) as above:
            os.fsync(above)
