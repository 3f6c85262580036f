"""A machine that begins to lead knows what the others wrote while it was not listening yet."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

import one_run
from cluster.stage import entry, free_port, git
from horae import node as membership
from horae.cluster.queue import Carried
from horae.config import load
from horae.core.lease import NodeDescription as Card
from horae.core.ports import StaleTermError
from horae.core.receipt import Status
from horae.node import open_member
from horae.store.postgres import PostgresLedger
from reasons import because
from store.ledger_suite import asked, story
from waiting import until

if TYPE_CHECKING:
    from cluster.stage import Stage

LONG = timedelta(minutes=5)
RARELY = "0 0 29 2 *"


@story
async def test_what_is_given_back_before_a_new_leader_listens_is_started(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage.write({"plan.org": entry("Count", stage.effect("count"), schedule=RARELY)})
    root = stage.place / "root"
    git(stage.place, "clone", "--quiet", str(stage.origin), str(root))
    flags = {"data": str(stage.place / "data"), "store": stage.url()}
    monkeypatch.setenv("HORAE_LISTEN", f"127.0.0.1:{free_port()}")
    monkeypatch.setattr(membership, "LOOK", timedelta(milliseconds=50))
    async with open_member(load(root, flags=flags)) as member:
        ledger, leases, now = member.ledger, member.ledger.leases, member.clock.now()

        # A leader had the run made by a machine, and leads no longer.
        term = await leases.lead("before", LONG)
        assert term is not None
        await member.assemble(ledger, term=term).engine.start()
        [listed] = await ledger.entries()
        [filed] = await ledger.add(listed.number, [asked("manual:1", now)], now=now, term=term)
        east = ledger.for_member("east", await leases.join(Card("east"), LONG))
        run = await one_run.start(east, filed.number, now=now, term=term)
        assert run is not None
        await leases.resign(term)

        # The machine gives it back after the new leader's first look, before its first event.
        has_looked, is_given_back = asyncio.Event(), asyncio.Event()
        look_back, newest_event = Carried.look_back, PostgresLedger.newest_event

        async def looked_back(self: Carried) -> None:
            await look_back(self)
            assert self.receipts == (filed.number,)
            has_looked.set()

        async def newest(self: PostgresLedger) -> int:
            if has_looked.is_set():
                await is_given_back.wait()
            return await newest_event(self)

        monkeypatch.setattr(Carried, "look_back", looked_back)
        monkeypatch.setattr(PostgresLedger, "newest_event", newest)
        stop = asyncio.Event()
        keeping = asyncio.create_task(member.keep(stop))
        async with asyncio.timeout(60):
            await has_looked.wait()
            await leases.drain("east")
            assert await east.give_back(run.number, reason=because("no room"), now=now, term=term)
            is_given_back.set()

            async def is_done() -> bool:
                found = await ledger.receipt(filed.number)
                return found is not None and found.status is Status.DONE

            await until(is_done)
        stop.set()
        await keeping
        assert [each.whose for each in stage.happened()] == ["count", "count"]  # begun, ended


@story
async def test_a_leader_changes_and_starts_triggers_in_its_own_term(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage.write({"plan.org": entry("Count", stage.effect("count"), schedule=RARELY)})
    root = stage.place / "root"
    git(stage.place, "clone", "--quiet", str(stage.origin), str(root))
    flags = {"data": str(stage.place / "data"), "store": stage.url()}
    monkeypatch.setenv("HORAE_LISTEN", f"127.0.0.1:{free_port()}")
    workflow = {"name": "tidy", "agent": "helper", "prompt_template": "Tidy up."}
    async with open_member(load(root, flags=flags)) as member:
        leases = member.ledger.leases
        first = await leases.lead("before", LONG)
        assert first is not None
        await leases.resign(first)
        term = await leases.lead("now", LONG)
        assert term is not None
        assert term > first
        triggers = member.assemble(member.ledger, term=term).triggers
        await triggers.create_agent({"name": "helper", "command": ["true"]})
        await triggers.create({**workflow, "trigger_config": {"type": "manual"}})
        assert (await triggers.trigger_now("tidy")).status == "pending"
        was = member.assemble(member.ledger, term=first).triggers
        with pytest.raises(StaleTermError):
            await was.delete("tidy")
        assert (await triggers.get("tidy")).enabled
