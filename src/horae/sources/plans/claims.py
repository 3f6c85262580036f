"""Claims: an agent takes a task before it works on it, for all others to see.

A claim is a fact in the plan: the state DOING and the agent's name in `:AGENT:`. Where the plan
has an origin, the claim is made there first, as one commit on top of what the origin has, and
only then comes into the tree. The origin takes one of two such commits and turns the other away,
so one of two agents wins, and the other has nothing to undo.
"""

from __future__ import annotations

import os.path
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Final, TypeAlias

from horae.errors import Exit, HoraeError
from horae.files.edit import edit
from horae.files.git.calls import Author, GitError
from horae.files.git.repository import FileState, Git, Pushed, repository_of
from horae.files.read import LIMIT, PlanFileError, StrPath, decoded, read_plan
from horae.org.document import read
from horae.org.plan import is_id
from horae.sources.plans.done import (
    Edit,
    HeadlineMissingError,
    changed,
    find,
    property_edits,
    sequence_of,
    splices_of,
    state_edits,
)
from horae.timing.rfc3339 import Rfc3339Error, parse_rfc3339

if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from datetime import datetime, timedelta

    from horae.org.plan import Headline, Plan

DOING: Final = "DOING"
_ATTEMPTS: Final = 8  # to push before somebody else pushes again


class ClaimError(HoraeError):
    """A claim that could not be made or given back."""

    code: ClassVar[str] = "claim"

    def __init__(self, file: str, name: str, reason: str) -> None:
        self.file = file
        self.name = name
        self.reason = reason
        super().__init__(f"{file}: {name}: {reason}")


class ClaimLostError(ClaimError):
    """A task that somebody else has."""

    code = "claim_lost"
    exit_code = Exit.CONFLICT

    def __init__(
        self,
        file: str,
        name: str,
        *,
        winner: str,
        until: str | None = None,
        remedy: str = "; claim another headline",
    ) -> None:
        self.winner = winner
        self.until = until
        end = f" until {until}" if until else ""
        super().__init__(file, name, f"is claimed by {winner}{end}{remedy}")


class ClaimRefusedError(ClaimError):
    """A task that cannot be claimed as the plan is written."""

    code = "claim_refused"
    exit_code = Exit.USAGE


class ClaimBusyError(ClaimError):
    """A claim that did not get through; the same again may."""

    code = "claim_busy"
    exit_code = Exit.TEMPORARY


@dataclass(frozen=True, slots=True)
class Claim:
    """A task as it stands after a claim, or after it was given back."""

    file: str
    name: str
    title: str
    state: str | None
    agent: str | None
    until: datetime | None = None
    is_changed: bool = True  # else it was so already
    commit: str | None = None  # None where there is no git
    is_pushed: bool = False
    note: str = ""


_Change: TypeAlias = "Callable[[Plan, int, str], list[Edit]]"


async def claim(
    file: StrPath,
    name: str,
    *,
    agent: str,
    now: datetime,
    ttl: timedelta | None = None,
    root: StrPath | None = None,
    local: Collection[StrPath] = (),
    limit: int = LIMIT,
) -> Claim:
    """Take a task for an agent, or raise an error that says who has it."""
    until = None if ttl is None else (now + ttl).replace(microsecond=0)
    _check_agent(str(file), name, agent)
    task = _TaskLine(file, name, agent, now, root, local=local, limit=limit)
    return await task.change(
        lambda plan, index, path: _taken(plan, index, path, task, until=until),
        f"Claim {name} for {agent}",
    )


async def release(
    file: StrPath,
    name: str,
    *,
    agent: str,
    now: datetime,
    root: StrPath | None = None,
    local: Collection[StrPath] = (),
    limit: int = LIMIT,
) -> Claim:
    """Give a task back, so that others can take it; a state that is not DOING stays."""
    _check_agent(str(file), name, agent)
    task = _TaskLine(file, name, agent, now, root, local=local, limit=limit)
    return await task.change(
        lambda plan, index, path: _given_back(plan, index, path, task),
        f"Release {name} by {agent}",
    )


def _check_agent(file: str, name: str, agent: str) -> None:
    if not is_id(agent):
        reason = (
            f"{agent!r} is not a valid agent name; use letters, digits, dots, dashes, underscores"
        )
        raise ClaimRefusedError(file, name, reason)


def _taken(
    plan: Plan, index: int, path: str, task: _TaskLine, *, until: datetime | None
) -> list[Edit]:
    """Return the edits that make a task the agent's own."""
    headline = plan.headlines[index]
    if DOING not in plan.states.todo:
        reason = f"the file has no state {DOING}; add the line `{_declaration(plan)}` at the top"
        raise ClaimRefusedError(path, task.name, reason)
    if headline.state in plan.states.done:
        raise ClaimRefusedError(path, task.name, f"is already {headline.state}")
    _check_free(headline, path, task)
    end = None if until is None else f"{until:%Y-%m-%dT%H:%M:%SZ}"
    changes = {"AGENT": task.agent, "CLAIMED-UNTIL": end}
    return [*state_edits(headline, DOING), *property_edits(headline, changes, path=path)]


def _declaration(plan: Plan) -> str:
    """Return the line that adds DOING to the states that the file has."""
    states = sequence_of(plan, None)
    return f"#+TODO: {' '.join((*states.open, DOING))} | {' '.join(states.done) or 'DONE'}"


def _check_free(headline: Headline, path: str, task: _TaskLine) -> None:
    """Raise an error if somebody else has the task, and has it still."""
    holder, end = headline.props.get("AGENT"), headline.props.get("CLAIMED-UNTIL")
    if holder == task.agent or (holder is None and headline.state != DOING):
        return
    if end is not None and _is_past(end, task.now):
        return
    raise ClaimLostError(path, task.name, winner=holder or "an unnamed agent", until=end)


def _is_past(end: str, now: datetime) -> bool:
    """Tell whether a claim has outlived its time; one whose time cannot be read has not."""
    moment = _moment(end)
    return moment is not None and moment <= now


def _moment(text: str) -> datetime | None:
    with suppress(Rfc3339Error):  # such a claim never expires by itself
        return parse_rfc3339(text)
    return None


def _given_back(plan: Plan, index: int, path: str, task: _TaskLine) -> list[Edit]:
    headline = plan.headlines[index]
    holder = headline.props.get("AGENT")
    if holder not in {None, task.agent}:
        end = headline.props.get("CLAIMED-UNTIL")
        who = "; only the owner of the claim can release it"
        raise ClaimLostError(path, task.name, winner=holder or "", until=end, remedy=who)
    if holder is None:
        return []
    edits = property_edits(headline, {"AGENT": None, "CLAIMED-UNTIL": None}, path=path)
    if headline.state != DOING:
        return edits
    opened = [word for word in sequence_of(plan, DOING).open if word != DOING]
    return [*state_edits(headline, opened[0] if opened else "TODO"), *edits]


@dataclass(frozen=True, slots=True)
class _TaskLine:
    """One task, and how its file is changed: beside git, in git, or at the origin."""

    file: StrPath
    name: str
    agent: str
    now: datetime
    root: StrPath | None
    local: Collection[StrPath]
    limit: int

    async def change(self, change: _Change, message: str) -> Claim:
        """Make one change of the task a fact, as far out as the plan reaches."""
        content = read_plan(self.file, root=self.root, limit=self.limit)  # it must be one of ours
        top = repository_of(content.path)
        if top is None:
            return self._edit(change)
        git = Git(top, local=self.local)
        async with git.held():
            standing = await git.status(_absolute(content.path))
            if standing in {FileState.UNTRACKED, FileState.IGNORED}:
                return self._edit(change)
            if await git.origin() is not None:
                return await self._at_origin(git, change, message)
            return await self._in_git(git, change, message)

    def _edit(self, change: _Change) -> Claim:
        content = read_plan(self.file, root=self.root, limit=self.limit)
        plan = read(content.text)
        index = find(plan, self.name, path=content.path)
        edits = change(plan, index, content.path)
        splices = splices_of(plan, index, edits)
        edit(content.path, splices, expected=content.digest, root=self.root, limit=self.limit)
        return self._standing(changed(plan, index, edits, content.data), bool(edits))

    async def _in_git(self, git: Git, change: _Change, message: str) -> Claim:
        head = await git.head()
        made = None if head is None else await self._made(git, change, message, onto=head)
        if made is None or made.commit is None:
            return made or self._edit(change)
        ended = await git.advance(made.commit)
        if ended.is_left_alone:
            raise ClaimBusyError(str(self.file), self.name, f"nothing was claimed: {ended.words}")
        return made

    async def _at_origin(self, git: Git, change: _Change, message: str) -> Claim:
        """Change the file at the origin, and let the tree follow."""
        for _ in range(_ATTEMPTS):
            try:
                tip = await git.fetch() or await git.head()
            except GitError as error:
                reason = f"the origin cannot be reached: {error.reason}"
                raise ClaimBusyError(str(self.file), self.name, reason) from error
            if tip is None:
                return self._edit(change)
            try:
                made = await self._made(git, change, message, onto=tip)
            except ClaimLostError:
                await git.advance(tip)  # so that the tree shows who has it
                raise
            if made.commit is None:
                return await self._followed(git, made, tip)
            pushed = await git.push(commit=made.commit)
            match pushed.ending:
                case Pushed.PUSHED:
                    return await self._followed(git, made, made.commit)
                case Pushed.FAILED:
                    reason = f"the origin rejected the claim: {pushed.words}"
                    raise ClaimBusyError(str(self.file), self.name, reason)
        raise ClaimBusyError(
            str(self.file), self.name, "other pushes came first each time; try again"
        )

    async def _made(self, git: Git, change: _Change, message: str, *, onto: str) -> Claim:
        path = str(self.file)
        data = await git.content(_absolute(path), at=onto)
        if data is None:
            reason = "the file is not in the commit that the claim is based on; push it first"
            raise ClaimRefusedError(path, self.name, reason)
        plan = read(decoded(path, data))
        try:
            index = find(plan, self.name, path=path)
        except HeadlineMissingError as error:
            raise self._unpushed(error) from error
        edits = change(plan, index, path)
        if not edits:
            return self._standing(data, is_changed=False)
        data = changed(plan, index, edits, data)
        author = Author.named(self.agent)
        commit = await git.propose(
            _absolute(path), data, onto=onto, message=message, author=author, now=self.now
        )
        return self._standing(data, is_changed=True, commit=commit)

    def _unpushed(self, error: HeadlineMissingError) -> PlanFileError:
        """Return the error for a headline that may stand in the tree, and nowhere else yet."""
        here = read(read_plan(self.file, root=self.root, limit=self.limit).text)
        if all(self.name not in {each.title, each.props.get("ID")} for each in here.headlines):
            return error
        reason = f"{self.name!r} is only in the working tree; commit and push it first"
        return PlanFileError(str(self.file), reason)

    async def _followed(self, git: Git, made: Claim, commit: str) -> Claim:
        """Return the claim once the tree has followed, or with a note that it has not."""
        ended = await git.advance(commit)
        note = f"the working tree was not updated: {ended.words}" if ended.is_left_alone else ""
        return replace(made, is_pushed=made.commit is not None, note=note)

    def _standing(self, data: bytes, is_changed: bool, commit: str | None = None) -> Claim:
        plan = read(decoded(str(self.file), data))
        headline = plan.headlines[find(plan, self.name, path=str(self.file))]
        end = headline.props.get("CLAIMED-UNTIL")
        return Claim(
            str(self.file),
            self.name,
            headline.title,
            headline.state,
            headline.props.get("AGENT"),
            until=None if end is None else _moment(end),
            is_changed=is_changed,
            commit=commit,
        )


def _absolute(path: StrPath) -> str:
    return os.path.abspath(path)
