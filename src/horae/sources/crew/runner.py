"""A tick of an agent, from its heading in the manifest to its commits.

In this order: the last run is recorded, the origin is pulled, the lifecycle is read, the agent gets
its briefing and runs in a clone of its own, its commits are delivered, and its position in the
lifecycle changes with the outcome.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Final

from msgspec import structs

from horae.core import ports
from horae.core.entry import Wake, Work
from horae.core.receipt import ENDS, ENGINE_EXITED, NEVER_STARTED, Filed, Reason, ReasonCode, Status
from horae.errors import HoraeError
from horae.files.edit import EditConflictError, create, mirror
from horae.files.git.calls import HORAE, GitError
from horae.files.git.repository import Git, Logged, UpdateRefusal, edit_and_commit, is_repository
from horae.files.git.trees import Undelivered, why_refused
from horae.files.read import PlanFileError, find_plans, head_of, read_plan
from horae.org.document import read
from horae.sources.crew import briefing, rules
from horae.sources.crew.lifecycle import Lifecycle, parse_lifecycle

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection
    from datetime import datetime, timedelta
    from pathlib import Path

    from horae.core.agent import Agent
    from horae.files.read import StrPath
    from horae.org.plan import Plan
    from horae.sources.crew.source import Roster

log = logging.getLogger(__name__)

MOST: Final = 20  # appointments in a briefing
NOTE_NAME: Final = "tick.json"  # next to the output of a tick: its plan and memory
_NOBODY: Final = ports.Process(0, 0)  # of a tick without a process
_DELIVERY: Final = "delivery"
_REST: Final = "rest: "  # prefix of the message of a page's commit
_PAGES: Final = 100  # per minute
_LONGEST_STATE: Final = 4096  # bytes that are read of a file of state
_LONGEST_NOTE: Final = 1 << 20


@dataclass(frozen=True, eq=False)
class KeeperRunner:
    agents: ports.AgentRunner
    roster: Roster
    _: KW_ONLY
    ledger: ports.Ledger
    clock: ports.Clock
    # Returns the tasks of the board in a tree.
    tasks: Callable[[str, Path], Awaitable[list[ports.TaskBrief]]]
    local: Collection[StrPath] = ()  # allowed origins on this machine
    mode: str = rules.TickMode.PLAN
    timeout: timedelta | None = None
    gitops: bool = False
    zone_name: str = "UTC"
    is_single: bool = False
    # Not with a shared ledger: old files of another node would look like a user's edit.
    has_files: bool = True
    term: int = 1
    is_gone: Callable[[str], bool] = lambda _: False  # whether a node is lost

    async def hold(self, job: ports.Job) -> ports.Held:
        try:
            return await self._hold(job)
        except ports.NOT_STARTED:
            raise
        except (HoraeError, OSError) as error:  # a problem of one agent must not end the engine
            raise ports.RunError(str(error)) from error

    async def _hold(self, job: ports.Job) -> ports.Held:
        now = self.clock.now()
        last_run = self._state(rules.last_run_file(self._suffix(_member(job.text))))
        await self._mirror(last_run, rules.seconds_text(now))
        pulled = await self._pull()
        member, agent, obstacle = await self._member_of(job.filed, job.text)
        lifecycle = await asyncio.to_thread(self._lifecycle, member)
        memory = remembered = await self._remembered(job, member, lifecycle)
        made = rules.tick(lifecycle, memory, now=now)
        # Undelivered work stays so until the next delivery.
        kept = {
            name: why
            for name, why in memory.troubles.items()
            if name == _DELIVERY or ((left := rules.machine_left(name)) and self.is_gone(left))
        }
        memory = replace(memory, troubles={**kept, **pulled})
        tree = None
        if made.beat is rules.Beat.WAKE and obstacle is None:
            tree = await self.agents.take(agent)
        try:
            place = self.agents.place.root if tree is None else tree.path
            told = await self._told(job.filed.entry, member, memory, place, now)
            wakes_when = member.wake or agent.definition.wake
            sleeps = wakes_when is Wake.DUE and briefing.is_idle(told)
            made = rules.tick(lifecycle, memory, now=now, sleeps=sleeps)
            story = _Tick(self, member, lifecycle, rules.begun(memory, made, now=now), made, told)
            if made.beat is rules.Beat.WAKE and obstacle is not None:
                raise ports.HeldBackError(obstacle)
            if made.beat is rules.Beat.WAKE:
                await self.agents.reserve(agent, job)
            if tree is not None and made.beat is rules.Beat.WAKE:
                troubles = {"tree": tree.trouble, "edits": ", ".join(tree.edits)}
                known = {name: why for name, why in troubles.items() if why}
                story.memory = replace(story.memory, troubles={**memory.troubles, **known})
            await asyncio.to_thread(self._note, job, story)
            if made.beat is not rules.Beat.WAKE:
                return story
            known_as = rules.write_memory(rules.going(remembered, lifecycle, now=now))
            await self.ledger.remember(job.filed.entry, known_as, term=self.term)
            timeout = agent.definition.timeout or self.timeout or self.agents.place.timeout
            told_as = briefing.prompt(told, mode=member.mode or self.mode, state=made.state)
            held, tree = tree, None  # from here on the run owns it
            story.run = await self.agents.hold(agent, told_as, run=job, timeout=timeout, tree=held)
            return story
        finally:
            if tree is not None:
                self.agents.release(tree)

    async def look_back(
        self, filed: Filed, run: ports.Run
    ) -> ports.Ended | ports.Unreleased | None:
        directory = self.agents.place.directory_of(run)
        found = await self.agents.look_back(run)
        if isinstance(found, ports.Unreleased):
            return found
        text = await asyncio.to_thread(_text_of, directory / NOTE_NAME, most=_LONGEST_NOTE)
        says = await self.ledger.text(filed.digest)
        try:
            member = _member(says or "")
            lifecycle = await asyncio.to_thread(self._lifecycle, member)
        except ports.RunError:
            return found
        note = rules.read_note(text or "", lifecycle)
        if note is None:
            return found
        made, memory = note
        how = found or ports.Ended(Status.INTERRUPTED, ENGINE_EXITED)
        if made.beat in {rules.Beat.GATED, rules.Beat.ASLEEP}:  # there was nothing to interrupt
            how = ports.Ended(Status.NO_WORK, Reason(ReasonCode.NO_WORK, made.reason))
        return await self.over(_Tick(self, member, lifecycle, memory, made), how)

    async def obstacle(self, filed: Filed) -> str | None:
        says = await self.ledger.text(filed.digest)
        return None if says is None else (await self._member_of(filed, says))[2]

    async def over(self, story: _Tick, how: ports.Ended) -> ports.Ended:
        facts = dict(how.facts)
        memory = story.memory
        if story.made.state is not None:
            facts["state"] = story.made.state.name
        if story.made.beat is rules.Beat.WAKE:
            troubles = {name: why for name, why in memory.troubles.items() if name != _DELIVERY}
            left = facts.get("undelivered")
            if isinstance(left, dict) and left.get("branch") is None:  # else status names it
                troubles[_DELIVERY] = str(Undelivered(**left))
            memory = replace(memory, troubles=troubles)
        facts.update({"troubles": dict(memory.troubles)} if memory.troubles else {})
        try:  # an edit during the run counts already
            day = await asyncio.to_thread(self._lifecycle, story.member)
        except ports.RunError:
            day = story.lifecycle
        if how.outcome is Status.LIMITED:  # the same tick continues when the limit ends
            return structs.replace(how, facts=facts)
        memory = rules.ended(memory, story.made.beat, day, how.outcome, now=self.clock.now())
        memory = rules.mirrored(memory, name=self._suffix(story.member))
        is_counted = how.is_counted and story.made.beat is not rules.Beat.GATED
        return structs.replace(
            how, facts=facts, memory=rules.write_memory(memory), is_counted=is_counted
        )

    async def rest(self, story: _Tick) -> ports.Ended:
        now = self.clock.now()
        facts = await self._facts(story.memory.rested_at, story.told)
        if briefing.is_quiet(facts):
            words = "nothing has happened since the last rest"
            return ports.Ended(Status.NO_WORK, Reason(ReasonCode.REST_QUIET, words))
        text = briefing.rest_text(facts, agent=story.member.name, now=now, zone_name=self.zone_name)
        words = await self._write_page(briefing.rest_file(now), text, f"{_REST}{story.member.name}")
        story.memory = replace(story.memory, carry=briefing.carry_of(text))
        return ports.Ended(Status.DONE, Reason(ReasonCode.REST_WRITTEN, words))

    async def settle(self, filed: Filed) -> None:
        if filed.work is not Work.TICK or filed.status not in ENDS or not self.has_files:
            return
        known = await self.ledger.entry(filed.entry)
        if known is None or not known.memory:
            return
        memory = rules.read_memory(known.memory)
        for name, text in memory.mirrors.items():
            path = self._state(name)
            found = await asyncio.to_thread(_text_of, path)
            if rules.may_mirror(memory, name, found):
                await asyncio.to_thread(mirror, path, text.partition("\n")[0])

    async def _member_of(self, filed: Filed, says: str) -> tuple[rules.Member, Agent, str | None]:
        async def read(text: str) -> tuple[rules.Member, Agent, str | None]:
            member = _member(text)
            agent = await asyncio.to_thread(self.roster.agent, member)
            return member, agent, await self.agents.why_unable(agent)

        found = await read(says)
        # A member that could not run with the old manifest may run with the current one.
        known = None if found[2] is None else await self.ledger.entry(filed.entry)
        if known is None or known.mark.body == filed.digest:
            return found
        now_says = await self.ledger.text(known.mark.body)
        return found if now_says is None else await read(now_says)

    async def _remembered(
        self, job: ports.Job, member: rules.Member, lifecycle: Lifecycle | None
    ) -> rules.AgentMemory:
        memory = rules.read_memory(job.memory)
        if lifecycle is None or not self.has_files:
            return memory

        def look_at_files() -> rules.TakenOver:
            suffix = self._suffix(member)
            found = {
                name: _text_of(self._state(name)) for name in rules.state_files(lifecycle, suffix)
            }
            texts = {name: text for name, text in found.items() if text is not None}
            taken = rules.take_over(memory, lifecycle, texts, name=suffix)
            for name in taken.bad:
                mirror(self._state(f"{name}.bad"), texts[name])
                mirror(self._state(name), memory.mirrors.get(name, "").partition("\n")[0])
            return taken

        taken = await asyncio.to_thread(look_at_files)
        for kind, names in (("state_edited", taken.edited), ("state_set_aside", taken.bad)):
            for name in names:
                facts = {"agent": member.name, "file": name}
                now, entry = self.clock.now(), job.filed.entry
                await self.ledger.note(kind, now=now, term=self.term, entry=entry, facts=facts)
        return taken.memory

    async def _pull(self) -> dict[str, str]:
        root = self.agents.place.root
        if not self.gitops or not is_repository(root):
            return {}
        pulled = await Git(root, local=self.local).pull()
        is_trouble = pulled.is_refused and pulled.why is not UpdateRefusal.NO_ORIGIN
        return {"pull": why_refused(pulled)} if is_trouble else {}

    def _lifecycle(self, member: rules.Member) -> Lifecycle | None:
        if member.lifecycle is None:
            return None
        roster = self.roster
        path = roster.beside(member.lifecycle)
        try:
            return parse_lifecycle(read_plan(path).text, roster.name(path)).lifecycle
        except PlanFileError as error:
            why = error.below(roster.root)
            raise ports.RunError(f"the lifecycle cannot be read: {why}") from None

    async def _told(
        self,
        entry: int,
        member: rules.Member,
        memory: rules.AgentMemory,
        place: Path,
        now: datetime,
    ) -> briefing.Handed:
        plans, tasks = await asyncio.to_thread(_plans, place), await self.tasks(member.name, place)
        return briefing.hand(
            briefing.survey(plans, tasks, zone_name=self.zone_name),
            agent=member.name,
            now=now,
            zone_name=self.zone_name,
            last_run_at=memory.woken_at,
            appointments=await self._appointments(),
            last=await self._last_outcome(entry, memory.woken_at),
            carry=memory.carry,
        )

    async def _last_outcome(self, entry: int, woken_at: datetime | None) -> str:
        rests = {ReasonCode.REST_WRITTEN, ReasonCode.REST_QUIET}
        page = await self.ledger.receipts(entry=entry, statuses=ENDS, limit=MOST)
        since = [
            f"{each.status}: {each.receipt.reason}"
            for each in page.receipts
            if woken_at and each.ended_at and each.ended_at >= woken_at
            if each.receipt.reason.code not in rests
        ]
        return since[-1].replace("_", " ", 1) if since else ""

    async def _appointments(self) -> list[briefing.Appointment]:
        found = []
        for known in await self.ledger.coming(limit=MOST):
            if known.source != "org":
                continue
            page = await self.ledger.receipts(entry=known.number, limit=1)
            last = page.receipts[0] if page.receipts else None
            what = (known.mark.title, known.item.origin, "" if last is None else last.status.value)
            planned_at = None if last is None else last.receipt.planned_at
            found.append(briefing.Appointment(*what, planned_at, known.next_at))
        return found

    async def _facts(
        self, since: datetime | None, told: briefing.Handed | None
    ) -> briefing.DiaryFacts:
        commits: list[Logged] = []
        if is_repository(self.agents.place.root):
            try:
                found = await Git(self.agents.place.root).log(since=since)
            except GitError as error:
                log.warning("the summary of the rest lists no commits: %s", error)
                found = []
            commits = [
                each
                for each in found
                if not (each.author == HORAE.name and each.subject.startswith(_REST))
            ]
        page = await self.ledger.receipts(since=since, statuses=ENDS, limit=200)
        runs = [
            briefing.Ran(each.ended_at, each.title, each.status, each.receipt.reason)
            for each in page.receipts
            if each.ended_at is not None
            and (since is None or each.ended_at > since)
            and each.receipt.reason.code != ReasonCode.REST_WRITTEN
        ]
        coming = [
            briefing.DiaryEntry(each.next_at, each.mark.title)
            for each in await self.ledger.coming(limit=MOST)
            if each.next_at is not None
        ]
        tasks = await self.tasks("", self.agents.place.root)
        counts = Counter(each.status for each in tasks if each.title)  # others are archived
        return briefing.DiaryFacts(commits, runs, counts, coming, told)

    async def _write_page(self, name: str, text: str, message: str) -> str:
        root = self.agents.place.root
        for number in range(1, _PAGES + 1):
            each = name if number == 1 else f"{name.removesuffix('.org')}-{number}.org"
            path = root / each
            path.parent.mkdir(exist_ok=True)
            write = partial(create, path, text.encode(), root=root)
            try:
                _, made = await edit_and_commit(path, write, message=lambda _: message)
            except EditConflictError:  # another rest in this minute
                continue
            return f"wrote {each}; {made.words}" if made.words else f"wrote {each}"
        raise ports.RunError(f"{_PAGES} summaries of this minute already exist: {name}")

    def _note(self, job: ports.Job, story: _Tick) -> None:
        directory = self.agents.place.directory_of(job.run)
        directory.mkdir(0o700, parents=True, exist_ok=True)
        mirror(directory / NOTE_NAME, rules.write_note(story.made, story.memory))

    async def mirror_start(self, member: rules.Member, state: str, began_at: datetime) -> None:
        name = rules.ran_file(state, self._suffix(member))
        await self._mirror(self._state(name), rules.seconds_text(began_at))

    async def _mirror(self, path: Path, text: str) -> None:
        if self.has_files:
            await asyncio.to_thread(mirror, path, text)

    def _suffix(self, member: rules.Member) -> str | None:
        is_keeper = member.definition == str(self.roster.manifest)
        return None if self.is_single and is_keeper else member.name

    def _state(self, name: str) -> Path:
        return self.agents.place.data / name


@dataclass(slots=True, eq=False)
class _Tick:
    """A tick in progress; without a run of its agent it is a rest, or nothing."""

    keeper: KeeperRunner
    member: rules.Member
    lifecycle: Lifecycle | None
    memory: rules.AgentMemory
    made: rules.TickPlan
    told: briefing.Handed | None = None
    run: ports.Held | None = None
    is_let_go: bool = False
    is_cancelled: bool = False

    @property
    def process(self) -> ports.Process:
        return _NOBODY if self.run is None else self.run.process

    def go(self) -> None:
        self.is_let_go = True
        if self.run is not None:
            self.run.go()

    def cancel(self, reason: str) -> None:
        self.is_cancelled = True
        if self.run is not None:
            self.run.cancel(reason)

    async def ended(self) -> ports.Ended:
        if not self.is_let_go:
            never = ports.Ended(Status.KILLED, NEVER_STARTED)
            return never if self.run is None else await self.run.ended()
        state = self.made.state
        if self.made.beat in {rules.Beat.WAKE, rules.Beat.REST} and state is not None:
            # The file of the state records its start, from which its gate counts.
            await self.keeper.mirror_start(self.member, state.name, self.memory.began[state.name])
        if self.run is not None:
            how = await self.run.ended()
            if self.is_cancelled:  # whatever it reports, it keeps its position
                how = structs.replace(how, outcome=Status.KILLED)
        elif self.made.beat is rules.Beat.REST:
            try:
                how = await self.keeper.rest(self)
            except (HoraeError, OSError) as error:
                how = ports.Ended(Status.FAILED, Reason(ReasonCode.EDIT_FAILED, str(error)))
        else:
            how = ports.Ended(Status.NO_WORK, Reason(ReasonCode.NO_WORK, self.made.reason))
        return await self.keeper.over(self, how)


def _member(text: str) -> rules.Member:
    members = rules.parse_crew(text).members
    if not members:
        raise ports.RunError("the manifest does not define this member")
    return members[0]


def _plans(root: Path) -> list[tuple[str, Plan]]:
    plans = []
    with suppress(PlanFileError):  # the scan of the plans reports it, also below
        for path in find_plans(root).plans:
            with suppress(PlanFileError):  # as above
                text = read_plan(path, root=root).text
                plans.append((path.removeprefix(f"{root}/"), read(text)))
    return plans


def _text_of(path: Path, *, most: int = _LONGEST_STATE) -> str | None:
    try:
        return head_of(path, most, follows_link=False).decode("utf-8", "replace")
    except OSError:
        return None
