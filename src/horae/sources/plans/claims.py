"""Claims: an agent takes a task before it works on it, so that others can see it.

A claim is the state DOING and the agent's name in `:AGENT:`. If the plan has an origin, the claim
is made there first, as one commit on top of the origin's, and only then in the tree. The origin
accepts one of two such commits and rejects the other, so the agent that loses has nothing to undo.
"""

from __future__ import annotations

import os.path
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Final, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from horae.errors import Exit, HoraeError
from horae.files.edit import edit, spliced
from horae.files.git.calls import Author, GitError, GitRefusedError, LocalOriginError
from horae.files.git.layout import repository_of
from horae.files.git.repository import FileState, Git, UpdateRefusal, why_uncommitted
from horae.files.read import LIMIT, PlanFileError, StrPath, decoded, read_plan
from horae.org.document import read
from horae.org.plan import is_id
from horae.sources.plans import done
from horae.timing.zone import Rfc3339Error, parse_rfc3339

DOING: Final = "DOING"
_ANOTHER: Final = "; claim another headline"
_ATTEMPTS: Final = 8  # to push before another push


class ClaimError(HoraeError, code="claim"):
    def __init__(self, file: str, name: str, reason: str) -> None:
        self.file, self.name, self.reason = file, name, reason
        super().__init__(f"{file}: {name}: {reason}")


class ClaimLostError(ClaimError, code="claim_lost", exit_code=Exit.CONFLICT):
    def __init__(
        self, file: str, name: str, *, winner: str, until: str | None, remedy: str = _ANOTHER
    ) -> None:
        self.winner, self.until = winner, until
        end = f" until {until}" if until else ""
        super().__init__(file, name, f"claimed by {winner}{end}{remedy}")


class ClaimRefusedError(ClaimError, code="claim_refused", exit_code=Exit.USAGE): ...


class ClaimBusyError(ClaimError, code="claim_busy", exit_code=Exit.TEMPORARY): ...


_KEYS: Final = {"name": "id", "is_changed": "changed", "is_pushed": "pushed"}


class ClaimResult(Struct, frozen=True, rename=_KEYS):
    file: str
    name: str
    title: str
    state: str | None
    agent: str | None
    until: datetime | None = None
    is_changed: bool = True  # False: it was so already
    commit: str | None = None  # None without git
    is_pushed: bool = False
    note: str | None = None


# The second argument completes an edit of the file: "commit", or nothing.
_Change: TypeAlias = "Callable[[done.PlanHeadline, str], list[done.Edit]]"


def _moment(text: str | None) -> datetime | None:
    with suppress(Rfc3339Error):  # a claim without a valid expiry never expires
        return None if text is None else parse_rfc3339(text)
    return None


@dataclass(frozen=True, slots=True)
class HeadlineClaim:
    file: StrPath
    name: str
    _: KW_ONLY
    agent: str
    now: datetime
    local: Collection[StrPath] = ()
    limit: int = LIMIT

    def __post_init__(self) -> None:
        if not is_id(self.agent):
            allowed = "use letters, digits, dots, dashes, underscores"
            reason = f"{self.agent!r} is not a valid agent name; {allowed}"
            raise ClaimRefusedError(str(self.file), self.name, reason)

    def _busy(self, reason: str) -> ClaimBusyError:
        return ClaimBusyError(str(self.file), self.name, reason)

    async def claim(self, ttl: timedelta | None = None) -> ClaimResult:
        until = None if ttl is None else (self.now + ttl).replace(microsecond=0)
        message = f"Claim {self.name} for {self.agent}"
        return await self._change(partial(self._taken, until), message, "claimed")

    async def release(self) -> ClaimResult:
        message = f"Release {self.name} by {self.agent}"
        return await self._change(self._given_back, message, "released")

    def _taken(self, until: datetime | None, here: done.PlanHeadline, then: str) -> list[done.Edit]:
        headline, states, which = here.headline, here.plan.states, (here.path, self.name)
        if DOING not in states.todo:
            words = done.sequence_of(here.plan, None)
            line = f"{' '.join((*words.open, DOING))} | {' '.join(words.done) or 'DONE'}"
            file, also = ("committed file", f" and {then} it") if then else ("file", "")
            remedy = f"add the line `#+TODO: {line}` at the top{also}"
            raise ClaimRefusedError(*which, f"the {file} has no state {DOING}; {remedy}")
        if headline.state in states.done:
            where = " in the committed file" if then else ""
            raise ClaimRefusedError(*which, f"is already {headline.state}{where}")
        holder, end = headline.props.get("AGENT"), headline.props.get("CLAIMED-UNTIL")
        ends_at = _moment(end)
        is_free = holder == self.agent or (holder is None and headline.state != DOING)
        if not is_free and (ends_at is None or ends_at > self.now):
            raise ClaimLostError(*which, winner=holder or "an unnamed agent", until=end)
        end = None if until is None else f"{until:%Y-%m-%dT%H:%M:%SZ}"
        changes = {"AGENT": self.agent, "CLAIMED-UNTIL": end}
        return [*here.state_edits(DOING), *here.property_edits(changes)]

    def _given_back(self, here: done.PlanHeadline, _then: str) -> list[done.Edit]:
        headline = here.headline
        holder = headline.props.get("AGENT")
        if holder is None:
            return []
        if holder != self.agent:
            end = headline.props.get("CLAIMED-UNTIL")
            who = "; only the owner of the claim can release it"
            raise ClaimLostError(here.path, self.name, winner=holder, until=end, remedy=who)
        edits = here.property_edits({"AGENT": None, "CLAIMED-UNTIL": None})
        if headline.state != DOING:
            return edits
        opened = [word for word in done.sequence_of(here.plan, DOING).open if word != DOING]
        return [*here.state_edits(opened[0] if opened else "TODO"), *edits]

    async def _change(self, change: _Change, message: str, participle: str) -> ClaimResult:
        content = read_plan(self.file, limit=self.limit)  # it must be a plan
        top = repository_of(content.path)
        if top is None:
            return self._edit(change)
        git = Git(top, local=self.local)
        async with git.held():
            standing = await git.status(os.path.abspath(content.path))
            if standing in {FileState.UNTRACKED, FileState.IGNORED}:
                made, why = self._edit(change), why_uncommitted(standing)
                note = why if made.is_changed else why.removeprefix("saved, ")
                return replace(made, note=note if made.is_changed or made.agent else None)
            if await git.origin() is not None:
                return await self._at_origin(git, change, message)
            head = await git.head()
            if head is None:
                return self._edit(change)
            made = await self._made(git, change, message, onto=head, then="commit")
            if made.commit is None:
                return made
            ended = await git.advance(made.commit)
            if ended.is_refused:
                why = f": {ended.words}"
                if ended.why is UpdateRefusal.DIRTY:
                    why = ", because the file has uncommitted changes; commit or stash them first"
                raise self._busy(f"not {participle}{why}")
            return made

    def _edit(self, change: _Change) -> ClaimResult:
        content = read_plan(self.file, limit=self.limit)
        here = done.find(read(content.text), self.name, path=content.path)
        splices = here.splices(change(here, ""))
        edit(content.path, splices, expected=content.digest, limit=self.limit)
        return self._standing(spliced(content.data, splices), is_changed=bool(splices))

    async def _at_origin(self, git: Git, change: _Change, message: str) -> ClaimResult:
        try:
            await git.branch()
        except GitError as error:
            reason = f"nothing is changed: {error.reason}"
            raise ClaimRefusedError(os.fspath(self.file), self.name, reason) from error
        for _ in range(_ATTEMPTS):
            try:
                tip = await git.fetch() or await git.head()
            except GitRefusedError as error:
                local = ", or use --local" if isinstance(error, LocalOriginError) else ""
                reason = f"nothing is changed: {error.reason}{local}"
                raise ClaimRefusedError(os.fspath(self.file), self.name, reason) from error
            except GitError as error:
                raise self._busy(f"the origin cannot be reached: {error.reason}") from error
            if tip is None:
                return self._edit(change)
            try:
                made = await self._made(git, change, message, onto=tip, then="commit and push")
            except ClaimLostError:
                await git.advance(tip)  # so that the tree shows the claim
                raise
            if made.commit is not None:
                pushed = await git.push(commit=made.commit)
                if pushed.why is UpdateRefusal.BEHIND:
                    continue
                if pushed.is_refused:
                    raise self._busy(f"the origin rejected the claim: {pushed.words}")
            ended = await git.advance(made.commit or tip)
            words = f"the working tree was not updated: {ended.words}"
            note = words if ended.is_refused else None
            return replace(made, is_pushed=made.commit is not None, note=note)
        raise self._busy("other pushes came first each time; try again")

    async def _made(
        self, git: Git, change: _Change, message: str, *, onto: str, then: str
    ) -> ClaimResult:
        path, absolute = str(self.file), os.path.abspath(self.file)
        data = await git.content(absolute, at=onto)
        if data is None:
            reason = f"the file is not in the commit that the claim is based on; {then} it first"
            raise ClaimRefusedError(path, self.name, reason)
        try:
            here = done.find(read(decoded(path, data)), self.name, path=path)
        except done.HeadlineMissingError as error:
            tree = read(read_plan(self.file, limit=self.limit).text)
            if all(self.name not in {each.title, each.props.get("ID")} for each in tree.headlines):
                raise
            reason = f"{self.name!r} is only in the working tree; {then} it first"
            raise PlanFileError(path, reason) from error
        splices = here.splices(change(here, then))
        if not splices:
            return self._standing(data, is_changed=False)
        data = spliced(data, splices)
        author = Author.named(self.agent)
        commit = await git.propose(
            absolute, data, onto=onto, message=message, author=author, now=self.now
        )
        return self._standing(data, is_changed=True, commit=commit)

    def _standing(self, data: bytes, *, is_changed: bool, commit: str | None = None) -> ClaimResult:
        plan = read(decoded(str(self.file), data))
        headline = done.find(plan, self.name, path=str(self.file)).headline
        agent, until = (headline.props.get(key) for key in ("AGENT", "CLAIMED-UNTIL"))
        what = (str(self.file), self.name, headline.title, headline.state, agent, _moment(until))
        return ClaimResult(*what, is_changed=is_changed, commit=commit)
