"""A trigger fires by a cron expression or once, and a delay that has fired rests."""

from __future__ import annotations

import asyncio
import hmac
from base64 import b64decode, b64encode
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest
from msgspec import to_builtins

import one_run
from horae.core.actor import acting
from horae.core.agent import AgentUnavailableError
from horae.core.command import Unready
from horae.core.decide import decide
from horae.core.entry import CatchUp, Entry, OnceRule, Unarmed, Work
from horae.core.ports import PATIENCE, EntryStep, LedgerBusyError, Process
from horae.core.receipt import Status
from horae.core.source import Scan
from horae.errors import HoraeError
from horae.sources.triggers.kinds import TriggerError
from horae.sources.triggers.runner import GithubPoller
from horae.sources.triggers.service import (
    ApproverError,
    TriggerConflictError,
    TriggerNotFoundError,
    Triggers,
    UnsignedError,
    refusal,
)
from horae.sources.triggers.source import TriggerSource
from horae.sources.triggers.store import AgentCard, TriggerStore, agent_id
from horae.store.sqlite import SqliteLedger
from horae.testing import ManualClock
from reasons import because
from scale import scaled
from store.ledger_suite import DAY, HOUR, MINUTE, NINE, NOW, SECOND, add_trigger, asked, story

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping, Sequence
    from datetime import datetime
    from typing import NoReturn

    from horae.core.receipt import Filed
    from horae.core.tool_policy import ToolPolicy
    from horae.sources.triggers import views
    from horae.store.ledger import SqlLedger

ID = "550e8400-e29b-41d4-a716-446655440001"
CRON = {"kind": "cron", "cron_expr": "0 9 * * MON-FRI", "agent": "worker", "prompt": "Report."}
DELAY = {"kind": "delay", "run_at": "2026-04-01T09:00:00Z", "agent": "worker", "prompt": "Deploy."}


async def turned(ledger: SqlLedger, *, on: bool, now: datetime) -> bool:
    """Enable or disable the trigger; False: there is none, or it is so already."""
    store = TriggerStore(ledger)
    was = await store.get(ID)
    if was is None or was.definition.is_enabled is on:
        return False
    return await store.change(was, replace(was.definition, is_enabled=on), now=now) is not None


async def seen(ledger: SqlLedger) -> Scan:
    return await TriggerSource(TriggerStore(ledger)).scan(await ledger.index("trigger"))


async def put(ledger: SqlLedger, spec: dict[str, str], *, is_enabled: bool = True) -> None:
    assert await add_trigger(
        ledger, ID, name="report", spec=spec, now=NOW, term=1, is_enabled=is_enabled
    )


async def taken(ledger: SqlLedger, *, now: datetime) -> Entry | Unarmed:
    """Let the ledger take over the triggers, of which there is one; return it."""
    await ledger.scan("trigger", await seen(ledger), now=now, term=1)
    [known] = await ledger.entries()
    return known.item


async def come(ledger: SqlLedger, *, now: datetime) -> list[Filed]:
    """Decide about all that has come due."""
    steps = [
        EntryStep(each.entry, decide(each.entry, now=now)) for each in await ledger.due(now=now)
    ]
    return await ledger.decide(steps, now=now, term=1)


async def over(ledger: SqlLedger, filed: Filed, *, now: datetime) -> Filed:
    """Run what waits, to a good end."""
    run = await one_run.start(ledger, filed.number, now=now, term=1)
    assert run is not None
    assert await one_run.running(ledger, run.number, Process(1, 1), now=now, term=1)
    ended = await one_run.end(ledger, run.number, Status.DONE, reason=because(""), now=now, term=1)
    assert ended is not None
    return ended


async def is_enabled(ledger: SqlLedger) -> bool:
    [known] = await ledger.entries()
    return isinstance(known.item, Entry)


@story
async def test_a_cron_trigger_prompts_its_agent_and_makes_nothing_good(
    ledger: SqlLedger,
) -> None:
    await put(ledger, {**CRON, "timezone": "Europe/Berlin"})
    entry = await taken(ledger, now=NOW)
    assert isinstance(entry, Entry)
    assert (entry.address, entry.title) == (f"trigger:{ID}", "report")
    assert (entry.work, entry.agents, entry.zone) == (Work.PROMPT, ("worker",), "Europe/Berlin")
    assert entry.policy.catchup is CatchUp.NONE
    assert await ledger.text(entry.digest) == "Report."
    missed = await come(ledger, now=NOW + 3 * DAY)
    assert [each.status for each in missed] == [Status.MISSED] * 2
    assert [each.receipt.key for each in missed] == [
        "cron:2026-04-02T07:00:00Z",
        "cron:2026-04-03T07:00:00Z",
    ]


@story
async def test_a_delay_fires_once_at_its_time(ledger: SqlLedger) -> None:
    await put(ledger, {**DELAY, "run_at": "2026-04-01T05:00:00-04:00"})
    await taken(ledger, now=NOW)
    assert await come(ledger, now=NINE - MINUTE) == []
    [filed] = await come(ledger, now=NINE)
    assert (filed.receipt.key, filed.status, filed.agents) == (
        f"delay:{ID}",
        Status.WAITING,
        ("worker",),
    )
    assert await come(ledger, now=NINE + DAY) == []


@story
async def test_a_delay_whose_time_has_passed_fires_at_once(ledger: SqlLedger) -> None:
    await put(ledger, DELAY)
    await taken(ledger, now=NINE + 30 * DAY)
    [filed] = await come(ledger, now=NINE + 30 * DAY)
    assert filed.status is Status.WAITING


@story
async def test_a_delay_that_is_over_is_disabled_however_often_that_is_said(
    ledger: SqlLedger,
) -> None:
    await put(ledger, DELAY)
    source = TriggerSource(TriggerStore(ledger))
    await taken(ledger, now=NOW)
    [filed] = await come(ledger, now=NINE)
    await source.settle(filed)  # it still waits
    assert await is_enabled(ledger)
    ended = await over(ledger, filed, now=NINE)
    for _ in range(2):
        await source.settle(ended)
        assert not await is_enabled(ledger)
    rests = await taken(ledger, now=NINE + MINUTE)
    assert isinstance(rests, Unarmed)
    assert rests.reason == "the trigger is disabled"


@story
async def test_a_delay_that_is_enabled_again_fires_again_under_a_new_key(
    ledger: SqlLedger,
) -> None:
    await put(ledger, DELAY)
    source = TriggerSource(TriggerStore(ledger))
    ends: list[Filed] = []
    for number, key in enumerate((f"delay:{ID}", f"delay:{ID}:2", f"delay:{ID}:3")):
        now = NINE + number * HOUR
        await taken(ledger, now=now)
        [filed] = await come(ledger, now=now)
        assert filed.receipt.key == key
        ends.append(await over(ledger, filed, now=now))
        await source.settle(ends[-1])
        await taken(ledger, now=now)
        assert await turned(ledger, on=True, now=now)
        for old in ends:  # as an engine does that begins anew before they were marked
            await source.settle(old)
        assert await is_enabled(ledger)


@story
async def test_the_end_of_anything_else_disables_nothing(ledger: SqlLedger) -> None:
    await put(ledger, CRON)
    await taken(ledger, now=NOW)
    [filed] = await come(ledger, now=NINE)
    await TriggerSource(TriggerStore(ledger)).settle(await over(ledger, filed, now=NINE))
    [extra] = await ledger.add(filed.entry, [asked("manual:1", NINE)], now=NINE, term=1)
    await TriggerSource(TriggerStore(ledger)).settle(await over(ledger, extra, now=NINE))
    assert await is_enabled(ledger)


@story
async def test_what_is_disabled_does_not_fire_from_that_moment_on(ledger: SqlLedger) -> None:
    await put(ledger, CRON)
    await taken(ledger, now=NOW)
    assert await turned(ledger, on=False, now=NOW)
    assert not await turned(ledger, on=False, now=NOW)
    assert isinstance(await taken(ledger, now=NOW), Unarmed)
    assert await come(ledger, now=NINE) == []
    assert await turned(ledger, on=True, now=NINE)
    assert not await turned(ledger, on=True, now=NINE)
    await taken(ledger, now=NINE)
    [filed] = await come(ledger, now=NINE + DAY)
    assert filed.receipt.key == "cron:2026-04-02T09:00:00Z"


@story
async def test_a_delay_that_begins_disabled_has_the_first_key_when_it_is_enabled(
    ledger: SqlLedger,
) -> None:
    await put(ledger, DELAY, is_enabled=False)
    assert isinstance(await taken(ledger, now=NOW), Unarmed)
    assert await turned(ledger, on=True, now=NOW)
    entry = await taken(ledger, now=NOW)
    assert isinstance(entry, Entry)
    assert entry.rule == OnceRule(NINE, ID)


@story
async def test_an_id_or_a_name_that_is_taken_is_an_answer(ledger: SqlLedger) -> None:
    await put(ledger, CRON)
    for trigger, name in ((ID, "other"), ("other", "report")):
        assert not await add_trigger(ledger, trigger, name=name, spec=CRON, now=NOW, term=1)
    assert len(await ledger.entries()) == 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"cron_expr": "0 25 * * *"}, "hour 25"),
        ({"cron_expr": "0 9 30 2 *"}, "matches no date"),
        ({"timezone": "Mars/Base"}, "Mars/Base"),
        ({"kind": "delay"}, "Delay trigger requires a non-empty 'run_at' datetime"),
        ({"kind": "delay", "run_at": "soon"}, "'soon' is not an RFC 3339 time"),
        ({"kind": "comet"}, "there is no trigger type 'comet'"),
        ({"agent": ""}, "the agent has no name"),
        ({"agent": "../x"}, "agent name '../x' may contain only"),
        ({"prompt": "{{nothing}}"}, "unknown template variable '{{nothing}}'"),
    ],
)
@story
async def test_a_trigger_that_could_never_fire_is_refused(
    ledger: SqlLedger, change: dict[str, str], message: str
) -> None:
    with pytest.raises(HoraeError, match=message):
        await add_trigger(ledger, ID, name="report", spec={**CRON, **change}, now=NOW, term=1)
    for name in ("a b", "agent:worker"):
        with pytest.raises(HoraeError, match="may contain only letters"):
            await add_trigger(ledger, ID, name=name, spec=CRON, now=NOW, term=1)
    assert (await seen(ledger)).entries == ()


@pytest.mark.parametrize(
    "spec", ["{", "[1]", "7", '{"agent": "x"}', '{"agent": "x", "config": {}, "template": 7}']
)
@story
async def test_a_trigger_that_cannot_be_understood_stops_no_other(
    ledger: SqlLedger, spec: str
) -> None:
    await put(ledger, CRON)
    query = """
        INSERT INTO trigger (id, name, spec, is_enabled, enabled_times, created_at, updated_at)
        VALUES ('odd', 'odd', :spec, 1, 1, 0, 0)
    """
    await ledger.write(1, lambda book: book.execute(query, {"spec": spec}))
    await ledger.scan("trigger", await seen(ledger), now=NOW, term=1)
    good, odd = (each.item for each in await ledger.entries())
    assert isinstance(odd, Unarmed)
    assert odd.reason == "the definition in the ledger cannot be read"
    assert isinstance(good, Entry)
    assert await seen(ledger) == Scan((), standing=("",))  # it is known now


@story
async def test_a_scan_that_comes_late_undoes_no_change(ledger: SqlLedger) -> None:
    # An engine reads the triggers and then writes down what it read: here one was changed,
    # one made and one forgotten between the two.
    await put(ledger, DELAY)
    await turned(ledger, on=False, now=NOW)
    spec = {**CRON, "cron_expr": "0 0 1 1 *"}
    assert await add_trigger(ledger, "other", name="other", spec=spec, now=NOW, term=1)
    late = await seen(ledger)
    await turned(ledger, on=True, now=NOW)
    assert await add_trigger(ledger, "third", name="third", spec=spec, now=NOW, term=1)
    assert await TriggerStore(ledger).remove("other", now=NOW)
    [filed] = await come(ledger, now=NINE)
    await ledger.scan("trigger", late, now=NINE, term=1)
    again = await ledger.receipt(filed.number)
    assert again is not None
    assert (again.receipt.key, again.status) == (f"delay:{ID}:2", Status.WAITING)
    there = [each for each in await ledger.entries() if each.gone_at is None]
    assert [each.mark.title for each in there if isinstance(each.item, Entry)] == [
        "report",
        "third",
    ]


@story
async def test_an_entry_without_its_trigger_is_missed_and_then_gone(ledger: SqlLedger) -> None:
    await put(ledger, CRON)
    await ledger.write(1, lambda book: book.execute("DELETE FROM trigger"))
    for later in (0 * SECOND, PATIENCE):
        await ledger.scan("trigger", await seen(ledger), now=NOW + later, term=1)
    [known] = await ledger.entries()
    assert known.gone_at is not None


class _Busy(SqliteLedger):
    """A ledger that cannot be read just now."""

    async def read(self, _: Callable[..., object]) -> NoReturn:
        raise LedgerBusyError(self.place, "it is busy", remedy="wait")


@story
async def test_while_triggers_cannot_be_read_what_is_known_of_them_stands() -> None:
    ledger = await _Busy.in_memory()
    scan = await TriggerSource(TriggerStore(ledger)).scan({})
    assert (scan.entries, scan.standing) == ((), ("",))
    assert [type(problem) for problem in scan.problems] == [LedgerBusyError]
    await ledger.close()


# All that can be asked, on a real ledger


@dataclass
class Told:
    """Says of every agent what the stage says."""

    stage: Stage

    async def of_agent(self, name: str, tools: ToolPolicy | None = None) -> Unready | None:  # noqa: ARG002
        return Unready(self.stage.obstacle, "name one") if self.stage.obstacle else None

    def of_card(self, card: AgentCard, tools: ToolPolicy | None = None) -> Unready | None:  # noqa: ARG002
        return Unready(self.stage.obstacle, "name one") if self.stage.obstacle else None


@dataclass
class Stage:
    """Triggers on a ledger, with a clock that is set by hand."""

    ledger: SqlLedger
    clock: ManualClock = field(default_factory=lambda: ManualClock(NOW))
    others: tuple[str, ...] = ()
    obstacle: str = ""
    has_gh: bool = True
    pokes: int = 0
    made: int = 0

    def __post_init__(self) -> None:
        self.store = TriggerStore(self.ledger)
        self.triggers = Triggers(
            store=self.store,
            ledger=self.ledger,
            clock=self.clock,
            ids=self._id,
            poke=self._poke,
            others=lambda: self.others,
            ready=Told(self),
            has_gh=lambda: self.has_gh,
        )
        self.source = TriggerSource(self.store, follow=self.triggers.follow)

    def _poke(self) -> None:
        self.pokes += 1

    def _id(self) -> str:
        self.made += 1
        return f"00000000-0000-4000-8000-{self.made:012}"

    async def agent(self, name: str = "worker", **said: Any) -> views.TriggerAgent:
        return await self.triggers.create_agent({"name": name, **said})

    async def workflow(self, name: str = "report", **said: Any) -> views.TriggerLine:
        """Make a workflow; daily at nine unless it says otherwise."""
        data = {
            "name": name,
            "agent_id": agent_id("worker"),
            "trigger_config": {"type": "cron", "expression": "0 9 * * *"},
            "prompt_template": "Report for {{fire_time}}.",
        }
        return await self.triggers.create({**data, **said})

    async def come(self, *, now: datetime) -> list[Filed]:
        """Let time come, decide what is due, and let in what may start; return what waits."""
        self.clock.step(now - self.clock.now())
        waiting = [
            each for each in await come(self.ledger, now=now) if each.status is Status.WAITING
        ]
        return await self.triggers.admit(waiting)

    async def end(self, filed: Filed, *, now: datetime) -> Filed:
        """Run what waits to a good end, and let the source follow it up."""
        ended = await over(self.ledger, filed, now=now)
        await self.source.settle(ended)
        return ended

    async def history(self, word: str = "report") -> tuple[views.Dispatch, ...]:
        return (await self.triggers.history(word)).items


@story
async def test_a_workflow_is_armed_when_its_creation_returns(ledger: SqlLedger) -> None:
    stage = Stage(ledger)
    await stage.agent()
    made = await stage.workflow()
    assert made.notes == ()
    assert (made.enabled, made.poll_interval_secs) == (True, 60)
    assert made.tool_policy == {"mode": "allow_all"}
    assert made.created_at == made.updated_at == "2026-04-01T08:00:00Z"
    [listed] = await ledger.entries()
    assert (listed.next_at, stage.pokes) == (NINE, 1)
    assert await stage.triggers.get(made.id) == await stage.triggers.get("report")


@story
async def test_a_page_has_items_total_limit_and_offset(ledger: SqlLedger) -> None:
    stage = Stage(ledger)
    await stage.agent()
    for number in range(5):
        await stage.workflow(f"report-{number}")
    page = await stage.triggers.page(limit=2, offset=1)
    assert [each.name for each in page.items] == ["report-3", "report-2"]
    assert (page.total, page.limit, page.offset) == (5, 2, 1)
    assert (await stage.triggers.page(limit=0)).limit == 1
    assert (await stage.triggers.page(limit=500)).limit == 200
    assert (await stage.triggers.page()).limit == 50


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ({"agent_id": agent_id("nobody")}, "Agent not found"),
        ({"agent_id": None}, "missing field `agent_id`"),
        ({"name": None}, "missing field `name`"),
        ({"trigger_config": None}, "missing field `trigger_config`"),
        ({"prompt_template": ""}, "the prompt template is not valid: the template is empty"),
        ({"enabled": "yes"}, "enabled must be true or false"),
        ({"poll_interval_secs": "60"}, "poll_interval_secs must be an integer"),
        ({"tool_policy": {"mode": "auto"}}, "is not a mode"),
        ({"tool_policy": {"mode": "allow_list"}}, "needs `tools`"),
        ({"retry": []}, "retry must be a string"),
        (
            {"trigger_config": {"type": "dispatch_result", "source_workflow_id": "x"}},
            "there is no such workflow",
        ),
    ],
)
@story
async def test_what_cannot_be_is_refused_before_anything_is_kept(
    ledger: SqlLedger, said: dict[str, Any], reason: str
) -> None:
    stage = Stage(ledger)
    await stage.agent()
    with pytest.raises(TriggerError) as caught:
        await stage.workflow(**said)
    assert reason in str(caught.value)
    assert refusal(caught.value) == (400, {"error": f"invalid input: {caught.value}"})
    assert (await stage.triggers.page()).total == 0
    assert await ledger.entries() == []


@story
async def test_an_agent_that_is_stopped_gets_no_workflow(ledger: SqlLedger) -> None:
    stage = Stage(ledger)
    card = await stage.agent(enabled=False)
    with pytest.raises(TriggerError, match=rf"{card.id} is not running \(status: stopped\)"):
        await stage.workflow()


@story
async def test_a_name_that_is_taken_is_a_conflict(ledger: SqlLedger) -> None:
    stage = Stage(ledger, others=("keeper",))
    await stage.agent()
    await stage.workflow()
    other = await stage.workflow("other")
    for again in (
        stage.workflow(),
        stage.agent(),
        stage.agent("keeper"),
        stage.triggers.update(other.id, {"name": "report"}),
    ):
        with pytest.raises(TriggerConflictError) as caught:
            await again
        assert refusal(caught.value)[0] == 409
    assert (await stage.triggers.page()).total == 2


@story
async def test_what_is_not_there_is_not_found(ledger: SqlLedger) -> None:
    stage = Stage(ledger)
    await stage.agent()
    for request in (
        stage.triggers.get("report"),
        stage.triggers.get("agent:worker"),
        stage.triggers.update("report", {}),
        stage.triggers.delete(agent_id("worker")),
        stage.triggers.history("report"),
        stage.triggers.trigger_now("report"),
        stage.triggers.agent("nobody"),
        stage.triggers.delete_agent("nobody"),
        stage.triggers.approve(7),
    ):
        with pytest.raises(TriggerNotFoundError) as caught:
            await request
        assert refusal(caught.value) == (404, {"error": "not found"})


@story
async def test_an_edit_holds_at_once_and_null_changes_nothing(ledger: SqlLedger) -> None:
    stage = Stage(ledger)
    await stage.agent()
    await stage.agent("other")
    made = await stage.workflow()
    same = await stage.triggers.update("report", {"name": None, "enabled": None, "odd": 1})
    assert same.updated_at == made.updated_at
    changed = await stage.triggers.update(
        "report",
        {
            "agent": "other",
            "prompt_template": "Now {{title}}.",
            "trigger_config": {"type": "cron", "expression": "30 8 * * *"},
            "tool_policy": {"mode": "deny_all"},
            "catchup": "latest",
        },
    )
    assert changed.agent_id == agent_id("other")
    assert to_builtins(changed)["catchup"] == "latest"
    [filed] = await stage.come(now=NOW + 30 * MINUTE)
    assert filed.agents == ("other",)
    [said] = await stage.history()
    assert said.prompt_sent == "Now Cron trigger: 30 8 * * *."
    with pytest.raises(TriggerError, match="unclosed"):
        await stage.triggers.update("report", {"prompt_template": "{{title"})


@story
async def test_what_was_filed_runs_with_the_words_of_its_time(ledger: SqlLedger) -> None:
    stage = Stage(ledger)
    await stage.agent()
    await stage.workflow()
    await stage.come(now=NINE)
    await stage.triggers.update("report", {"prompt_template": "Other words."})
    [said] = await stage.history()
    assert said.prompt_sent == "Report for 2026-04-01T09:00:00Z."


@story
async def test_a_dispatch_is_a_receipt_in_the_words_of_the_api(ledger: SqlLedger) -> None:
    stage = Stage(ledger)
    await stage.agent()
    made = await stage.workflow()
    [filed] = await stage.come(now=NINE)
    [waits] = await stage.history()
    assert (waits.status, waits.completed_at) == ("pending", None)
    await stage.end(filed, now=NINE + MINUTE)
    page = await stage.triggers.history(made.id)
    assert page.total == 1
    [said] = page.items
    assert (said.workflow_id, said.agent_id) == (made.id, agent_id("worker"))
    assert (said.source_id, said.status) == ("cron:2026-04-01T09:00:00Z", "completed")
    assert (said.dispatched_at, said.completed_at) == ("2026-04-01T09:01:00Z",) * 2
    assert str(UUID(said.id)) == said.id


@story
async def test_a_deleted_workflow_starts_nothing_and_its_receipts_stay(
    ledger: SqlLedger,
) -> None:
    stage = Stage(ledger)
    await stage.agent()
    await stage.workflow()
    [filed] = await stage.come(now=NINE)
    await stage.triggers.delete("report")
    kept = await ledger.receipt(filed.number)
    assert kept is not None
    assert (kept.status, kept.receipt.reason) == (Status.SKIPPED, "the trigger was removed")
    assert await stage.come(now=NINE + DAY) == []
    again = await stage.workflow()
    assert await stage.history() == ()
    assert again.enabled


@story
async def test_a_tick_whose_agent_is_busy_or_disabled_is_skipped_and_says_so(
    ledger: SqlLedger,
) -> None:
    stage = Stage(ledger)
    await stage.agent()
    await stage.workflow("long", trigger_config={"type": "manual"}, prompt_template="Go.")
    await stage.workflow()
    asked = await stage.triggers.trigger_now("long")
    run = await one_run.start(ledger, asked.receipt, now=NOW, term=1)
    assert run is not None
    assert await stage.come(now=NINE) == []
    assert (await stage.triggers.agent("worker")).activity == "busy"
    await one_run.running(ledger, run.number, Process(1, 1), now=NINE, term=1)
    await one_run.end(ledger, run.number, Status.DONE, reason=because(""), now=NINE, term=1)
    await stage.triggers.update_agent("worker", {"enabled": False})
    assert await stage.come(now=NINE + DAY) == []
    await stage.triggers.update_agent("worker", {"enabled": True})
    assert len(await stage.come(now=NINE + 2 * DAY)) == 1
    assert [(each.status, each.reason) for each in await stage.history()] == [
        ("pending", "the scheduled time was reached"),
        ("skipped", "agent 'worker' is disabled"),
        ("skipped", "agent 'worker' is busy with long"),
    ]


@story
async def test_a_tick_that_says_so_waits_for_its_agent(ledger: SqlLedger) -> None:
    stage = Stage(ledger)
    await stage.agent()
    await stage.workflow("long", trigger_config={"type": "manual"}, prompt_template="Go.")
    await stage.workflow(overlap="queue")
    asked = await stage.triggers.trigger_now("long")
    await one_run.start(ledger, asked.receipt, now=NOW, term=1)
    assert len(await stage.come(now=NINE)) == 1


@story
async def test_a_delay_waits_until_its_agent_can_take_it_and_then_rests(
    ledger: SqlLedger,
) -> None:
    stage = Stage(ledger)
    await stage.agent()
    config = {"type": "delay", "run_at": "2026-04-01T09:00:00Z"}
    made = await stage.workflow(trigger_config=config, prompt_template="It is {{run_at}}.")
    await stage.triggers.update_agent("worker", {"enabled": False})
    assert await stage.come(now=NINE) == []
    [held] = await stage.history()
    assert (held.status, held.reason) == ("pending", "agent 'worker' is disabled")
    await stage.triggers.update_agent("worker", {"enabled": True})
    page = await ledger.receipts(statuses=(Status.WAITING,))
    [filed] = await stage.triggers.admit(page.receipts)
    assert (await stage.triggers.get("report")).enabled
    await stage.end(filed, now=NINE + HOUR)
    assert not (await stage.triggers.get("report")).enabled
    again = await stage.triggers.update(made.id, {"enabled": True})
    assert again.enabled
    [second] = await stage.come(now=NINE + 2 * HOUR)
    assert second.receipt.key == f"delay:{made.id}:2"


@story
async def test_an_agent_without_a_command_is_made_with_a_word_and_its_work_is_held(
    ledger: SqlLedger,
) -> None:
    stage = Stage(ledger, obstacle="agent.command names none")
    assert (await stage.agent()).notes == (
        "agent.command names none; name one; until then its runs are held",
    )
    await stage.workflow()
    assert await stage.come(now=NINE) == []
    asked = await stage.triggers.trigger_now("report")
    assert (asked.status, asked.reason) == (
        "pending",
        "agent.command names none; name one",
    )
    assert {each.status for each in await stage.history()} == {"pending"}
    stage.obstacle = ""
    await stage.triggers.update_agent("worker", {"command": ["my-agent"]})
    page = await ledger.receipts(statuses=(Status.WAITING,))
    assert len(await stage.triggers.admit(page.receipts)) == 2


@story
async def test_an_approval_is_asked_for_given_refused_or_runs_out(ledger: SqlLedger) -> None:
    stage = Stage(ledger)
    await stage.agent()
    await stage.workflow(tool_policy={"mode": "require_approval"})
    assert await stage.come(now=NINE) == []
    [asked] = await stage.triggers.approvals()
    assert (asked.workflow, asked.agent) == ("report", "worker")
    assert asked.prompt == "Report for 2026-04-01T09:00:00Z."
    assert (asked.created_at, asked.expires_at) == (
        "2026-04-01T09:00:00Z",
        "2026-04-01T09:05:00Z",
    )
    assert await stage.triggers.lapse() == NINE + 5 * MINUTE
    with acting("agent:worker"):
        for refused in (stage.triggers.approve, stage.triggers.deny):
            with pytest.raises(ApproverError, match="agent worker cannot approve or reject a run"):
                await refused(asked.receipt)
    with acting("cli:wren"):
        assert (await stage.triggers.approve(asked.receipt)).status == "approved"
    told = (await ledger.events_after(0))[-1]
    assert (told.actor, told.receipt) == ("cli:wren", asked.receipt)
    assert told.facts["reason"] == "approved by wren, on the command line"
    page = await ledger.receipts(statuses=(Status.WAITING,))
    [filed] = await stage.triggers.admit(page.receipts)
    assert await stage.triggers.admit(page.receipts) == [filed]  # it is not asked for again
    with pytest.raises(TriggerConflictError):
        await stage.triggers.approve(asked.receipt)
    await stage.end(filed, now=NINE + MINUTE)

    by_hand = await stage.triggers.trigger_now("report")
    with acting("session:ops"):
        denied = await stage.triggers.deny(by_hand.receipt, reason="not today")
    assert denied.status == "denied"

    late = await stage.triggers.trigger_now("report")
    stage.clock.step(5 * MINUTE - SECOND)
    assert await stage.triggers.lapse() == stage.clock.now() + SECOND
    stage.clock.step(SECOND)
    assert await stage.triggers.lapse() is None
    assert await stage.triggers.approvals() == []
    by = {each.receipt: each.approved_by for each in await stage.history()}
    assert by[asked.receipt] == "cli:wren"
    assert by[late.receipt] is None
    assert {each.receipt: (each.status, each.reason) for each in await stage.history()} == {
        asked.receipt: ("completed", ""),
        by_hand.receipt: ("skipped", "rejected by token ops, from the page: not today"),
        late.receipt: ("skipped", "not approved within 300 s"),
    }


@story
async def test_an_approval_stays_given_whatever_the_reason_says(ledger: SqlLedger) -> None:
    stage = Stage(ledger)
    await stage.agent()
    await stage.workflow(tool_policy={"mode": "require_approval"})
    await stage.come(now=NINE)
    [asked] = await stage.triggers.approvals()
    number = asked.receipt
    # Somebody else lets go what was held: it is still not approved, and asked for again.
    await ledger.release(number, reason=because("approved by mistake"), now=NINE, term=1)
    page = await ledger.receipts(statuses=(Status.WAITING,))
    assert await stage.triggers.admit(page.receipts) == []
    await stage.triggers.approve(number)
    # It is held back for another reason, which is not a question to anybody.
    await ledger.hold(number, reason=because("waiting for approval until never"), now=NINE, term=1)
    assert await stage.triggers.approvals() == []
    with pytest.raises(TriggerConflictError, match="not waiting for approval"):
        await stage.triggers.approve(number)
    await stage.triggers.update_agent("worker", {"model": "small-1"})
    page = await ledger.receipts(statuses=(Status.WAITING,))
    assert [each.number for each in await stage.triggers.admit(page.receipts)] == [number]


@story
async def test_the_time_to_approve_begins_when_somebody_can_be_asked(ledger: SqlLedger) -> None:
    stage = Stage(ledger)
    await stage.agent()
    config = {"type": "delay", "run_at": "2026-04-01T09:00:00Z"}
    policy = {"mode": "require_approval"}
    await stage.workflow(trigger_config=config, prompt_template="Go.", tool_policy=policy)
    await stage.triggers.update_agent("worker", {"enabled": False})
    assert await stage.come(now=NINE) == []
    assert await stage.triggers.approvals() == []
    stage.clock.step(HOUR)
    assert await stage.triggers.lapse() is None
    await stage.triggers.update_agent("worker", {"enabled": True})
    page = await ledger.receipts(statuses=(Status.WAITING,))
    assert await stage.triggers.admit(page.receipts) == []
    assert await stage.triggers.lapse() == NINE + HOUR + 5 * MINUTE
    [said] = await stage.triggers.approvals()
    assert said.expires_at == "2026-04-01T10:05:00Z"


@story
async def test_somebody_asks_and_the_same_key_gives_the_same_dispatch(
    ledger: SqlLedger,
) -> None:
    stage = Stage(ledger)
    await stage.agent()
    await stage.workflow(
        trigger_config={"type": "manual"}, prompt_template="{{title}}: {{body}} {{metadata.team}}"
    )
    said = {"title": "{{body}}", "body": "Do it.", "metadata": {"team": "garden"}}
    first = await stage.triggers.trigger_now("report", said, key="k-1")
    assert first == await stage.triggers.trigger_now("report", said, key="k-1")
    assert (first.source_id, first.prompt_sent) == ("idem:k-1", "{{body}}: Do it. garden")
    with pytest.raises(TriggerConflictError, match="the last run of 'report' has not ended"):
        await stage.triggers.trigger_now("report")
    with pytest.raises(TriggerError, match="Idempotency-Key"):
        await stage.triggers.trigger_now("report", key="\n")
    await stage.triggers.update("report", {"enabled": False})
    with pytest.raises(TriggerError, match="'report' is not enabled"):
        await stage.triggers.trigger_now("report")
    await stage.triggers.update("report", {"enabled": True})
    await stage.triggers.update_agent("worker", {"enabled": False})
    with pytest.raises(AgentUnavailableError) as caught:
        await stage.triggers.trigger_now("report")
    assert refusal(caught.value) == (
        503,
        {"error": "service unavailable: agent 'worker' is disabled"},
    )


SECRET = f"whsec_{b64encode(bytes(range(32))).decode()}"
OTHER = f"whsec_{b64encode(bytes(range(1, 33))).decode()}"


def by_github(body: bytes, secret: str = "s3cret-s3cret", **more: str) -> Mapping[str, str]:
    proof = hmac.new(secret.encode(), body, "sha256").hexdigest()
    return {"X-Hub-Signature-256": f"sha256={proof}", **more}


def standard(
    body: bytes, at: object, *, name: str = "msg_1", secret: str = SECRET
) -> dict[str, str]:
    key = b64decode(secret.removeprefix("whsec_"))
    proof = b64encode(hmac.digest(key, f"{name}.{at}.".encode() + body, "sha256")).decode()
    return {"webhook-id": name, "webhook-timestamp": str(at), "webhook-signature": f"v1,{proof}"}


async def sent(stage: Stage, body: bytes, headers: Mapping[str, str], to: str = "report") -> Any:
    return await stage.triggers.deliver(to, body, headers.items())


@story
async def test_a_message_is_taken_once_however_often_it_is_sent(ledger: SqlLedger) -> None:
    stage = Stage(ledger)
    await stage.agent()
    config = {"type": "webhook", "secret": "s3cret-s3cret", "events": ["issues"]}
    made = await stage.workflow(trigger_config=config, prompt_template="{{title}} {{issue_number}}")
    assert made.trigger_config == {**config, "secret": "***", "scheme": "github"}
    body = b'{"action": "opened", "issue": {"title": "{{body}}", "number": 7}}'
    first = await sent(stage, body, by_github(body, **{"X-GitHub-Event": "issues"}))
    (done,) = await stage.history()
    assert (done.receipt, done.prompt_sent, done.status) == (
        first,
        "{{body}} 7",
        "pending",
    )
    again = by_github(body, **{"X-GitHub-Event": "issues", "X-GitHub-Delivery": "2"})
    assert await sent(stage, body, again) == first
    assert await sent(stage, b"{}", by_github(b"{}", **{"x-github-event": "push"})) is None
    await stage.triggers.update("report", {"trigger_config": {**made.trigger_config}})
    assert await sent(stage, body, again) == first  # the secret is kept
    assert len(await stage.history()) == 1


@story
async def test_a_standard_message_is_taken_once_by_its_id(ledger: SqlLedger) -> None:
    stage = Stage(ledger)
    await stage.agent()
    await stage.workflow(
        trigger_config={"type": "webhook", "secret": SECRET, "events": ["paid"]},
        prompt_template="{{title}} {{delivery_id}}",
    )
    body, at = b'{"type": "paid", "title": "Invoice 7"}', int(stage.clock.now().timestamp())
    first = await sent(stage, body, standard(body, at))
    retried = b'{"type": "paid", "title": "Invoice 7", "attempt": 2}'
    assert await sent(stage, retried, standard(retried, at + 60)) == first
    assert await sent(stage, body, standard(body, at, name="msg_2")) == first + 1
    assert await sent(stage, b'{"type": "due"}', standard(b'{"type": "due"}', at, name="a")) is None
    history = await stage.history()
    assert [each.source_id for each in history] == ["webhook:msg_2", "webhook:msg_1"]
    assert history[1].prompt_sent == "Invoice 7 msg_1"


BODY = b'{"title": "v2 is out"}'
AT = int(NOW.timestamp())


def _without(headers: Mapping[str, str], *names: str) -> dict[str, str]:
    return {name: value for name, value in headers.items() if name not in names}


GOOD = standard(BODY, AT)
GITHUB = by_github(BODY)
STAMPED = f"{AT}.".encode() + BODY
# What somebody can do with messages that were captured: where it is sent, its body and headers.
ATTACKS: dict[str, tuple[str, bytes, Mapping[str, str]]] = {
    "no signature at all": ("report", BODY, {}),
    "replay after five minutes": ("report", BODY, standard(BODY, AT - 301, name="late")),
    "from a clock that is ahead": ("report", BODY, standard(BODY, AT + 301, name="early")),
    "replay with a fresh time": ("report", BODY, {**GOOD, "webhook-timestamp": str(AT + 1)}),
    "replay under another id": ("report", BODY, {**GOOD, "webhook-id": "msg_2"}),
    "stripped of its id": ("report", BODY, _without(GOOD, "webhook-id")),
    "stripped of its time": ("report", BODY, _without(GOOD, "webhook-timestamp")),
    "stripped of its signature": ("report", BODY, _without(GOOD, "webhook-signature")),
    "an empty signature": ("report", BODY, {**GOOD, "webhook-signature": "v1,"}),
    "a signature of no version": (
        "report",
        BODY,
        {**GOOD, "webhook-signature": GOOD["webhook-signature"][3:]},
    ),
    "a signature of another version": (
        "report",
        BODY,
        {**GOOD, "webhook-signature": f"v2{GOOD['webhook-signature'][2:]}"},
    ),
    "a truncated signature": (
        "report",
        BODY,
        {**GOOD, "webhook-signature": GOOD["webhook-signature"][:-4]},
    ),
    "a truncated body": ("report", BODY[:-1], GOOD),
    "an empty body": ("report", b"", GOOD),
    "a longer body": ("report", BODY + b" ", GOOD),
    "id and time exchanged": (
        "report",
        BODY,
        {**GOOD, "webhook-id": str(AT), "webhook-timestamp": "msg_1"},
    ),
    "the time moved into the body": (
        "report",
        f"{AT}.".encode() + BODY,
        {**GOOD, "webhook-timestamp": ""},
    ),
    "the body moved into the id": (
        "report",
        b"{}",
        {**standard(f"{AT}.{{}}".encode(), AT), "webhook-id": f"msg_1.{AT}"},
    ),
    "an id with a dot": ("report", BODY, standard(BODY, AT, name="msg.1")),
    "an id with a blank": ("report", BODY, standard(BODY, AT, name="msg 1")),
    "an id without end": ("report", BODY, standard(BODY, AT, name="m" * 201)),
    "a time in words": ("report", BODY, standard(BODY, "now")),
    "a time before 1970": ("report", BODY, standard(BODY, -1)),
    "a time with 4,000 digits": ("report", BODY, standard(BODY, "9" * 4000)),
    "another secret": ("report", BODY, standard(BODY, AT, secret=OTHER)),
    "of GitHub's form to a standard one": ("report", BODY, by_github(BODY, SECRET)),
    "signed as GitHub does, in the standard header": (
        "report",
        BODY,
        {**GOOD, "webhook-signature": f"v1,{GITHUB['X-Hub-Signature-256'][7:]}"},
    ),
    "of the standard form to one of GitHub's": ("forge", BODY, GOOD),
    "all of a standard message as a body": (
        "forge",
        f"msg_1.{AT}.".encode() + BODY,
        {"X-Hub-Signature-256": GOOD["webhook-signature"].removeprefix("v1,")},
    ),
    "the older form, with its stamp": (
        "forge",
        BODY,
        by_github(STAMPED, **{"X-Horae-Timestamp": str(AT)}),
    ),
    "the older form, stripped of its stamp": ("forge", BODY, by_github(STAMPED)),
    "the older form, its stamp in the body": ("forge", STAMPED, by_github(STAMPED)),
    "a truncated body of GitHub": ("forge", BODY[:-1], GITHUB),
    "a signature of SHA-1": (
        "forge",
        BODY,
        {"X-Hub-Signature": f"sha1={hmac.new(b's3cret-s3cret', BODY, 'sha1').hexdigest()}"},
    ),
    "a truncated signature of GitHub": (
        "forge",
        BODY,
        {"X-Hub-Signature-256": GITHUB["X-Hub-Signature-256"][:-2]},
    ),
    "of one trigger to another": ("second", BODY, GOOD),
    "of one of GitHub's to another": ("other-forge", BODY, GITHUB),
    "to a trigger that is no webhook": ("cron", BODY, GOOD),
    "to a name that nobody has": ("nobody", BODY, GOOD),
}


@story
async def test_a_message_that_was_tampered_with_is_refused(ledger: SqlLedger) -> None:
    stage = Stage(ledger)
    await stage.agent()
    for name, secret in {
        "report": SECRET,
        "second": OTHER,
        "forge": "s3cret-s3cret",
        "other-forge": "another-secret",
    }.items():
        config = {"type": "webhook", "secret": secret}
        await stage.workflow(name, trigger_config=config, prompt_template="Go.")
    await stage.workflow("cron")
    for attack, (name, body, headers) in ATTACKS.items():
        with pytest.raises(UnsignedError) as caught:
            pytest.fail(f"{attack}: receipt {await sent(stage, body, headers, name)}")
        assert refusal(caught.value) == (
            401,
            {"error": "unauthorized: there is no such webhook, or the signature does not match"},
        ), "nobody learns why, nor which names there are"
    for name, headers in {"report": GOOD, "forge": GITHUB}.items():
        doubled = [*headers.items(), *headers.items()]
        with pytest.raises(UnsignedError):
            await stage.triggers.deliver(name, BODY, doubled)
        assert await stage.history(name) == ()
        first = await sent(stage, BODY, headers, name)
        assert await sent(stage, BODY, headers, name) == first, "a replay is the same receipt"
        assert len(await stage.history(name)) == 1
    large = b"x" * (1 << 20) + b"x"
    with pytest.raises(TriggerError, match="at most"):
        await sent(stage, large, by_github(large), "forge")


@story
async def test_while_a_secret_is_replaced_both_are_good(ledger: SqlLedger) -> None:
    stage = Stage(ledger)
    await stage.agent()
    config = {"type": "webhook", "secret": SECRET}
    await stage.workflow(trigger_config=config, prompt_template="Go.")
    made = await stage.triggers.rotate("report", OTHER)
    assert made.trigger_config["old_secret"] == "***"
    old, new = (standard(BODY, AT, name=each, secret=each) for each in (SECRET[6:], OTHER[6:]))
    both = {**new, "webhook-signature": f"v1,{'A' * 43}= v1a,x {new['webhook-signature']}"}
    for headers in (old, new, both):
        assert await sent(stage, BODY, headers)
    with pytest.raises(TriggerConflictError, match="ends the older one"):
        await stage.triggers.rotate("report", SECRET)
    await stage.triggers.update("report", {"trigger_config": made.trigger_config, "name": "b"})
    assert await sent(stage, BODY, old, "b"), "what is masked stays as it is"
    ended = await stage.triggers.rotate("b", None)
    assert "old_secret" not in ended.trigger_config
    assert await sent(stage, BODY, new, "b")
    with pytest.raises(UnsignedError):
        await sent(stage, BODY, old, "b")


@story
async def test_a_webhook_keeps_its_scheme_and_shares_no_secret(ledger: SqlLedger) -> None:
    stage = Stage(ledger)
    await stage.agent()
    config = {"type": "webhook", "secret": SECRET}
    await stage.workflow(trigger_config=config, prompt_template="Go.")
    changed = {"type": "webhook", "secret": "s3cret-s3cret", "scheme": "github"}
    with pytest.raises(TriggerError, match="uses the scheme standard; to change it"):
        await stage.triggers.update("report", {"trigger_config": changed})
    with pytest.raises(TriggerError, match="whsec_"):
        await stage.triggers.update("report", {"trigger_config": {**changed, "scheme": None}})
    with pytest.raises(TriggerError, match="webhook 'report' has the same secret"):
        await stage.workflow("second", trigger_config=config, prompt_template="Go.")
    await stage.workflow("second", trigger_config={**config, "secret": OTHER})
    with pytest.raises(TriggerError, match="webhook 'second' has the same secret"):
        await stage.triggers.rotate("report", OTHER)


@story
async def test_the_end_of_a_workflow_starts_those_that_wait_for_it_and_no_circle(
    ledger: SqlLedger,
) -> None:
    stage = Stage(ledger)
    await stage.agent()
    first = await stage.workflow()
    after = {"type": "dispatch_result"}
    template = "{{status}} {{source_workflow_id}}"
    for name, more in (
        ("mine", {"source_workflow_id": first.id, "status": "completed"}),
        ("failures", {"status": "failed"}),
        ("all", {}),
    ):
        await stage.workflow(name, trigger_config={**after, **more}, prompt_template=template)
    source = (await stage.triggers.get("all")).id
    with pytest.raises(TriggerError, match="could form a cycle"):
        await stage.workflow("loop", trigger_config={**after, "source_workflow_id": source})
    [filed] = await stage.come(now=NINE)
    ended = await stage.end(filed, now=NINE)
    await stage.source.settle(ended)  # as an engine does that begins anew
    assert [len(await stage.history(name)) for name in ("mine", "failures", "all")] == [1, 0, 1]
    [said] = await stage.history("mine")
    assert (said.prompt_sent, said.source_id) == (
        f"completed {first.id}",
        f"after:{filed.number}",
    )
    follower = await ledger.receipt(said.receipt)
    assert follower is not None
    await stage.end(follower, now=NINE)
    assert len(await stage.history("all")) == 1


@story
async def test_of_a_workflow_that_rests_nothing_is_asked_and_nothing_else_stops(
    ledger: SqlLedger,
) -> None:
    stage = Stage(ledger)
    await stage.agent()
    await stage.workflow()
    await stage.workflow("after", trigger_config={"type": "dispatch_result"})
    rests = next(each for each in await ledger.entries() if each.mark.title == "after")
    await ledger.pause(rests.number, now=NOW, term=1)
    [filed] = await stage.come(now=NINE)
    await stage.end(filed, now=NINE)
    assert await stage.history("after") == ()
    with pytest.raises(TriggerConflictError, match="is paused; resume it with `horae resume"):
        await stage.triggers.trigger_now("after")


@story
async def test_what_happens_to_an_agent_starts_those_that_wait_for_it(
    ledger: SqlLedger,
) -> None:
    stage = Stage(ledger)
    await stage.agent()
    await stage.agent("other")
    for event in ("session_start", "session_end", "context_clear"):
        await stage.workflow(
            event.replace("_", "-"),
            trigger_config={"type": "agent_lifecycle", "event": event},
            prompt_template="{{event_type}} {{agent_id}}",
        )
    await stage.triggers.clear_context("other")
    await stage.triggers.clear_context("worker")
    [said] = await stage.history("context-clear")
    assert said.prompt_sent == f"context_clear {agent_id('worker')}"
    await stage.triggers.update_agent("worker", {"enabled": False})
    [ended] = await stage.history("session-end")
    assert (ended.status, ended.reason) == ("pending", "agent 'worker' is disabled")
    await stage.triggers.update_agent("worker", {"enabled": True})
    assert len(await stage.history("session-start")) == 1


@story
async def test_an_agent_that_workflows_start_is_not_forgotten(ledger: SqlLedger) -> None:
    stage = Stage(ledger)
    await stage.agent(env={"TOKEN": "s3cret"}, docker_image="x")
    shown = await stage.triggers.agent("worker")
    assert shown.config["env"] == {"TOKEN": "***"}
    await stage.triggers.update_agent("worker", {"env": {"TOKEN": "***", "HOST": "h"}})
    card = await stage.triggers.card("worker")
    assert card.config["env"] == {"TOKEN": "s3cret", "HOST": "h"}
    await stage.workflow()
    with pytest.raises(
        TriggerConflictError, match="is used by report; delete these workflows first"
    ):
        await stage.triggers.delete_agent("worker")
    await stage.triggers.delete("report")
    await stage.triggers.delete_agent("worker")
    assert (await stage.triggers.agents()).total == 0


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ({"name": ""}, "name"),
        ({"name": "a b"}, "is not valid"),
        ({"env": {"A": 1}}, "env must be an object of strings"),
        ({"command": "ls"}, "command must be a list"),
        ({"command": [1]}, "command must be a list of strings"),
        ({"timeout": "soon"}, "timeout"),
        ({"tool_policy": {"mode": "auto"}}, "is not a mode"),
    ],
)
@story
async def test_an_agent_that_cannot_be_is_refused(
    ledger: SqlLedger, said: dict[str, Any], reason: str
) -> None:
    stage = Stage(ledger)
    with pytest.raises(TriggerError, match=reason):
        await stage.agent(**said)
    assert (await stage.triggers.agents()).items == ()


@story
async def test_github_is_looked_at_from_time_to_time_and_each_issue_is_taken_once(
    ledger: SqlLedger,
) -> None:
    stage = Stage(ledger)
    await stage.agent()
    config = {"type": "github_issues", "owner": "o", "repo": "r"}
    stage.has_gh = False
    with pytest.raises(TriggerError, match="the program gh, which is not installed"):
        await stage.workflow(trigger_config=config, prompt_template="{{title}}")
    stage.has_gh = True
    await stage.workflow(
        trigger_config=config, prompt_template="{{title}} {{url}}", poll_interval_secs=10
    )
    answers = [
        '[{"number": 7, "title": "It leaks", "url": "u"}]',
        "oops",
        '[{"number": 7}, {"number": 9}]',
    ]
    calls = []

    async def call(argv: Sequence[str]) -> str:
        calls.append(argv)
        return answers[len(calls) - 1]

    polls = GithubPoller(triggers=stage.triggers, clock=stage.clock, call=call)
    assert await polls.turn() == NOW + 10 * SECOND
    assert calls == []
    for length, waits in ((10, 10), (10, 12), (12, 10)):
        stage.clock.step(length * SECOND)
        assert await polls.turn() == stage.clock.now() + waits * SECOND
    assert len(calls) == 3
    assert [each.source_id for each in await stage.history()] == ["9", "7"]
    assert (await stage.history())[1].prompt_sent == "It leaks u"


@story
async def test_two_who_change_a_workflow_at_once_lose_nothing(ledger: SqlLedger) -> None:
    stage = Stage(ledger)
    await stage.agent()
    await stage.workflow()
    update = stage.triggers.update
    await asyncio.gather(
        update("report", {"prompt_template": "One."}),
        update("report", {"poll_interval_secs": 7}),
        update("report", {"enabled": False}),
    )
    made = await stage.triggers.get("report")
    assert (made.prompt_template, made.poll_interval_secs, made.enabled) == (
        "One.",
        7,
        False,
    )


async def steps_of(ledger: SqliteLedger, work: Coroutine[object, object, object]) -> int:
    """Return how much the database does for a request; no clock and no other work disturbs it."""
    steps = 0

    def step() -> int:
        nonlocal steps
        steps += 1
        return 0

    ledger._writer.set_progress_handler(step, 10)
    await work
    ledger._writer.set_progress_handler(None, 10)
    return steps


@story
async def test_no_request_costs_more_because_there_are_more_workflows() -> None:
    ledger = await SqliteLedger.in_memory()
    stage = Stage(ledger)
    await stage.agent()
    costs = []
    for until in (20, scaled(10_000)):
        for number in range(stage.made, until):
            await stage.workflow(f"report-{number}")
        name = f"more-{until}"
        requests = (
            stage.workflow(name),
            stage.triggers.page(limit=10),
            stage.triggers.get(name),
            stage.triggers.update(name, {"enabled": False}),
            stage.triggers.update(name, {"enabled": True}),
            stage.triggers.trigger_now(name),
            stage.triggers.history(name),
            stage.triggers.delete(name),
        )
        costs.append([await steps_of(ledger, request) for request in requests])
    few, many = costs
    assert all(more <= 2 * less + 20 for less, more in zip(few, many, strict=True)), costs
    await ledger.close()
