"""The stories that are recorded, one per frozen example and per part of the product."""

from __future__ import annotations

import hmac
import json
import sqlite3
from base64 import b64decode, b64encode
from contextlib import closing
from datetime import timedelta
from typing import TYPE_CHECKING

from golden.product import pass_by
from golden.story import PLANS

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from golden.product import Engine
    from golden.story import Story

MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)
SETTINGS = 'zone = "UTC"\nlisten = "127.0.0.1:0"\n[gate]\nslots = 1\n[run]\ndrain = "0s"\n'

# What can be asked of every plan without an engine.
PLAN = """
horae query {0} --json
horae tangle {0} --json
horae check {0} --json
horae next {0} --json
horae agenda {0} --days 2 --json
horae due {0} --json
"""
FILE = """
wb query {0}
wb tangle {0}
wb lint {0}
wb --json lint {0}
wb workflow plan {0}
"""
# What can be asked of every ledger, with an engine and without.
LEDGER = """
horae status --json
horae history --json -n 10
horae agent list --json
"""
# What can be asked of every engine.
LOOK = """
GET /api/v1/status
GET /api/v1/entries
GET /api/v1/agenda?limit=10
GET /api/v1/receipts?limit=10
GET /api/v1/agents
GET /api/v1/board
GET /api/v1/gate
GET /api/v1/events?limit=100
GET /workflows
GET /agents
GET /calendar.ics
"""


async def root(story: Story, *, hours: float) -> None:
    """Record what every plan root has: its files read, some hours kept, and its ledger after."""
    await story.type(PLAN.format("."))
    for name in sorted(path.name for path in story.root.glob("*.org")):
        await story.type(PLAN.format(name) + FILE.format(name))
    await story.type("""
        !horae export ics . --days 7
        !horae export crontab .
        !horae export systemd .
        """)
    async with story.up() as engine:
        await pass_by(engine, hours * HOUR, step=15 * MINUTE)
        await story.type(LEDGER + LOOK)
    await story.type(LEDGER)
    story.files("after the engine", "plan")


# Examples


async def nightly(story: Story) -> None:
    story.plan("nightly")
    story.write("horae.toml", SETTINGS)
    await root(story, hours=0.5)
    await story.type("horae simulate . --days 2 --from 2026-07-01T00:00:00Z --json")


async def pipelines(story: Story) -> None:
    story.plan("pipelines")
    story.write("horae.toml", SETTINGS)
    await story.type("""
        horae run garden.org --plan --json
        horae run garden.org --input "beans 12" --json
        horae run garden.org --workflow 'Hourly watch' --input "a b" --json
        horae run garden.org --workflow Nothing --json
        horae run words.org --input "to be" --json
        horae run nightly-digest.org --plan --json
        wb run garden.org beans 12
        wb workflow run garden.org "beans 12"
        wb --json workflow run words.org "to be"
        wb --json run nowhere.org
        """)
    await root(story, hours=0.5)


async def demo(story: Story) -> None:
    story.plan("demo")
    await story.type("""
        horae query . --json
        horae tangle . --json
        horae check . --json
        horae next . -n 5 --json
        horae due . --json
        wb query crew.org
        wb lint plan.org
        wb workflow plan plan.org
        horae agent lifecycle day.org --json
        horae task list --json
        """)


async def adopt(story: Story) -> None:
    story.plan("adopt")
    for kind, files in (
        ("crontab", "crontab"),
        ("systemd", "night.timer report.timer"),
        ("github-actions", "nightly.yml"),
        ("apscheduler", "jobs.py"),
    ):
        await story.type(f"""
            horae import {kind} {files} --json --tz Europe/Berlin --at 2026-06-01
            !horae import {kind} {files} --tz Europe/Berlin
            horae import {kind} {files} --into taken.org --json
            horae import {kind} {files} --tasks taken-{kind} --json
            horae import {kind} nowhere --json
            """)
    await story.type("""
        horae import crontab crontab --system --json
        horae import crontab crontab --into taken.org --json
        """)
    story.write("horae.toml", SETTINGS)
    story.files("after the imports", "plan")
    await root(story, hours=0)


async def init(story: Story) -> None:
    await story.type("""
        horae init
        horae init
        horae init ../side/other
        horae init horae.toml
        """)
    story.files("after init", "plan", "side")
    story.write("horae.toml", SETTINGS)
    await root(story, hours=0.1)
    await story.type("""
        !horae service print
        !horae service print --user --name plans
        !horae service print --as horae
        !horae service print --launchd
        horae service print --name "A b" --json
        horae service install --user
        horae service install --user
        horae service install --user --launchd --name other
        !horae completion bash
        !horae completion zsh
        !horae completion fish
        horae completion tcsh
        horae doctor --json
        !horae logs Heartbeat
        """)
    unit = story.home / ".config/systemd/user/horae.service"
    unit.write_text(unit.read_text().replace("Restart", "Restrat"))
    await story.type("""
        HORAE_OUTPUT=json horae service install --user
        horae service install --user --force
        horae service uninstall --user
        horae service uninstall --user
        horae service uninstall --user --force --launchd --name other
        """)
    story.files("after service install", "home")


# Everything together, with an engine


async def house(story: Story) -> None:
    story.plan("house")
    await root(story, hours=5)


async def ledger(story: Story) -> None:
    """Record the commands about a ledger: first through an engine, then without one."""
    story.plan("house")
    await story.type("""
        horae status --json
        horae history --json
        horae list --json
        horae cost --json
        horae stop --json
        horae stop --timeout 1s --no-wait --json
        horae stop --wait --json
        horae restart --json
        horae restart --wait --json
        horae why digest --json
        horae why Nothing --json
        horae run ask --json
        horae agent tick wren --json
        horae agent run moss --prompt "Say it" --json
        horae agent show moss --json
        horae agent show nobody --json
        horae agent run nobody --prompt x --json
        """)
    asking = """
        horae run ask --no-wait --note "a test" --json
        horae run ask --no-wait --key k1 --json
        horae run ask --no-wait --key k1 --json
        horae run missing --json
        horae run nothing --json
        horae pause digest --note "on holiday" --until 2026-06-20 --json
        horae pause digest --json
        horae pause words --until 2h --json
        horae pause nothing --json
        horae next --json
        horae due --json
        horae why digest --json
        horae why digest@2026-06-08T09:00 --json
        horae why fails@2026-06-05 --json
        horae why Tell --json
        horae why 'Buy seeds' --json
        horae resume digest --json
        horae resume digest --json
        horae backfill digest --from 2026-06-01 --to 2026-06-03 --dry-run --json
        horae backfill digest --from 2026-06-01 --to 2026-06-03 --id june --json
        horae backfill digest --from 2026-06-01 --to 2026-06-03 --id june --json
        horae backfill fails --from 1990-01-01 --json
        horae backfill water --from 2026-06-01 --json
        horae agent tick wren --note "go on" --json
        horae agent tick nobody --json
        """
    after = """
        horae token add ops --scope read,run --json
        horae token add ops --scope read --json
        horae token add "a b" --scope read --json
        horae token add odd --scope fly --json
        horae token list --json
        horae token revoke ops --json
        horae token revoke nobody --json
        horae token sessions --json
        horae token end-session nothing --json
        !horae logs ask
        !horae logs ask --raw --follow
        !horae logs 1 --tail 1
        !horae logs 1 -n 9 --since 1h --grep o --attempt 1
        !horae logs 1 --step none
        !horae logs 1 --grep (
        !horae logs 1 --attempt 7
        !horae logs 1 --download saved.log
        !horae logs 1 --download saved.log
        !horae logs 999
        HORAE_OUTPUT=json horae logs nothing
        horae cancel ask --json
        horae cancel 999 --json
        horae history ask --json
        horae history --status failed --since 2026-06-05 --until 2026-06-06 --json
        horae history --cursor 3 --json
        horae history --jsonl -n 2
        horae history nothing --json
        horae list --json
        horae list --state armed --source org --search digest --sort next --all --jsonl
        horae why ask --json -n 1
        horae status -n 1 --json
        horae prune --before 1d --dry-run --json
        horae prune --before 1h --json
        horae backup --json
        horae backup first.db --json
        horae backup first.db --json
        """
    async with story.up() as engine:
        await story.type(asking)
        await pass_by(engine, HOUR, step=5 * MINUTE)
        story.busy = 1
        await story.type("horae run long --no-wait --json")
        await story.running(1)
        await story.type("""
            horae status --json
            horae why ask --json
            """)
        story.busy = 0
        await story.type('horae cancel long --reason "it is late" --json')
        await story.type(after)
        await story.type("""
            horae restore first.db --json
            horae approval list --json
            horae approval approve 1 --json
            horae approval reject 999 --reason no --json
            !horae open --print
            !horae open --calendar
            !horae token show
            horae token new
            """)
    await story.type("""
        horae run words --wait --json
        !horae run ask --wait --raw
        !horae agent tick wren --watch --raw
        horae run fails --json
        """)
    await story.type(asking + after)
    await story.type("""
        horae restore nowhere.db --json
        horae restore plan.org --json
        horae restore first.db --json
        horae history --json -n 2
        horae doctor --json
        horae doctor --upgrade --json
        horae doctor --restore --json
        horae approval list --json
        horae approval approve 1 --json
        horae approval reject 1 --json
        HORAE_OUTPUT=json horae open --print
        !horae token show
        horae token new
        horae cluster nodes --json
        horae cluster drain other --json
        horae cluster drain other --off --json
        horae cluster migrate --json
        horae cluster restored --json
        horae config --json
        horae config zone --show-origin --json
        horae config nothing --json
        horae config trust --json
        horae config trust --yes --json
        """)
    story.files("at the end", "plan")
    await story.type("""
        horae retry 1 --no-wait --json
        horae retry 1 --json
        !horae retry 1 --raw
        horae retry 999 --json
        """)


async def routes(story: Story) -> None:
    """Record every route with a good and with a bad request."""
    story.plan("house")
    async with story.up() as engine:
        await pass_by(engine, HOUR, step=15 * MINUTE)
        await story.type("""
            GET /healthz
            GET /readyz
            GET /health
            GET /openapi.json
            GET /docs
            GET /metrics
            GET /_activity
            GET /_changes
            GET /nowhere
            DELETE /api/v1/status
            HEAD /api/v1/status
            POST /api/v1/status
            """)
        await story.type(LOOK)
        await story.type("""
            GET /api/v1/status?limit=0
            GET /api/v1/status?nose=1
            GET /api/v1/entries?limit=2
            GET /api/v1/entries?limit=2&cursor=2
            GET /api/v1/entries?gone=1&limit=x
            GET /api/v1/entries?gone=1
            GET /api/v1/entries/digest
            GET /api/v1/entries/plan.org:11
            GET /api/v1/entries/nothing
            GET /api/v1/entry-list?sort=next&limit=2
            GET /api/v1/entry-list?sort=size
            GET /api/v1/inbox
            GET /api/v1/inbox?limit=0
            GET /api/v1/inbox?limit=x
            GET /api/v1/search?q=digest
            GET /api/v1/search?limit=0
            GET /api/v1/costs
            GET /api/v1/costs?by=day&days=2
            GET /api/v1/costs?by=moon
            GET /api/v1/forecast
            GET /api/v1/forecast?entry=nothing
            GET /api/v1/agenda?from=2026-06-08T00:00:00Z&to=2026-06-09T00:00:00Z
            GET /api/v1/agenda?entry=digest&limit=2
            GET /api/v1/agenda?entry=nothing
            GET /api/v1/agenda?from=soon
            GET /api/v1/preview?cron=0+9+*+*+MON&limit=2
            GET /api/v1/preview?cron=0+9+*+*+FRI-MON
            GET /api/v1/preview?at=2026-07-01T09:00:00Z
            GET /api/v1/preview?cron=0+9+*+*+MON&zone=Berlin
            GET /api/v1/preview
            GET /api/v1/calendar
            GET /calendar/nothing.ics
            GET /login/nothing
            POST /api/v1/login
            POST /api/v1/login {"nose": 1}
            GET /api/v1/agents/wren
            GET /api/v1/agents/nobody
            GET /api/v1/agents?limit=x
            GET /api/v1/board/tasks/1
            GET /api/v1/board/tasks/99
            GET /api/v1/board/tasks/x
            PUT /api/v1/board/tasks/2/schedule {"at": "2026-07-01T09:00:00Z"}
            PUT /api/v1/board/tasks/2/schedule {"cron": "0 9 * * MON", "timezone": "Europe/Berlin"}
            PUT /api/v1/board/tasks/2/schedule {"clear": true}
            PUT /api/v1/board/tasks/2/schedule {"cron": "never"}
            PUT /api/v1/board/tasks/99/schedule {"clear": true}
            PUT /api/v1/board/tasks/2/schedule
            GET /api/v1/receipts?status=failed
            GET /api/v1/receipts?status=odd
            GET /api/v1/receipts?entry=fails&since=2026-06-05T00:00:00Z&limit=1
            GET /api/v1/receipts?cursor=3
            GET /api/v1/receipts/1
            GET /api/v1/receipts/999
            GET /api/v1/receipts/x
            GET /api/v1/runs/1
            GET /api/v1/runs/999
            GET /api/v1/runs/1/log
            GET /api/v1/runs/1/log?from=2&to=5
            GET /api/v1/runs/1/log?follow=1
            GET /api/v1/runs/1/log?from=x
            GET /api/v1/runs/999/log
            GET /api/v1/runs/1/log?line=1&exact=1&download=1
            GET /api/v1/runs/1/lines
            GET /api/v1/runs/1/lines?search=O&limit=1
            GET /api/v1/runs/999/lines
            POST /api/v1/runs/1/cancel {"reason": "late"}
            POST /api/v1/runs/999/cancel
            GET /api/v1/why?entry=fails
            GET /api/v1/last-run?entry=fails
            GET /api/v1/last-run?entry=fails&going=true
            GET /api/v1/why?entry=fails&at=2026-06-05T12:30:00Z
            GET /api/v1/why?entry=nothing
            GET /api/v1/why
            GET /api/v1/nodes
            GET /api/v1/nodes?nose=1
            GET /api/v1/gate?limit=0
            GET /api/v1/events?after=5&limit=3
            GET /api/v1/events?after=x
            POST /api/v1/prune {"before": "2026-06-05T12:00:00Z", "dry_run": true}
            POST /api/v1/prune {"before": "soon"}
            POST /api/v1/restart
            POST /api/v1/restart {"wait": true}
            POST /api/v1/stop {"wait": 3}
            POST /api/v1/rescan
            POST /api/v1/rescan {"source": "org"}
            POST /api/v1/rescan {"source": "moon"}
            POST /api/v1/entries/ask/run {"note": "go"}
            POST /api/v1/entries/missing/run
            POST /api/v1/entries/nothing/run
            POST /api/v1/entries/ask/run {"note": 7}
            POST /api/v1/entries/digest/pause {"note": "away", "until": "2h"}
            POST /api/v1/entries/digest/pause
            POST /api/v1/entries/nothing/pause
            POST /api/v1/entries/digest/resume
            POST /api/v1/entries/digest/resume
            POST /api/v1/entries/nothing/resume
            POST /api/v1/entries/fails/acknowledge {"note": "known", "until": "2h", "state": "failing"}
            POST /api/v1/entries/digest/acknowledge
            POST /api/v1/entries/fails/acknowledge {"state": "odd"}
            POST /api/v1/entries/nothing/acknowledge
            POST /api/v1/entries/fails/unacknowledge
            POST /api/v1/entries/fails/unacknowledge
            POST /api/v1/entries/nothing/unacknowledge
            GET /api/v1/entries/digest/schedule
            GET /api/v1/entries/digest/schedule?to=weekdays+at+10
            GET /api/v1/entries/nothing/schedule
            PUT /api/v1/entries/digest/schedule {"schedule": "0 25 * * *"}
            PUT /api/v1/entries/digest/schedule {"schedule": "weekdays at 10"}
            POST /api/v1/edits/undo {"undo": "nothing"}
            POST /api/v1/board/tasks {"title": "Sow", "tags": "garden", "text": "All beds."}
            POST /api/v1/board/tasks {"title": "Sow", "status": "done"}
            POST /api/v1/board/tasks/2/move {"status": "todo"}
            POST /api/v1/board/tasks/2/move {"status": "moon"}
            POST /api/v1/board/tasks/99/move {"status": "todo"}
            POST /api/v1/board/tasks/2/assign {"assignee": "wren"}
            POST /api/v1/board/tasks/99/assign
            GET /api/v1/board?nose=1
            GET /api/v1/calendar?nose=1
            GET /calendar.ics?nose=1
            GET /docs?nose=1
            GET /health?nose=1
            GET /metrics?nose=1
            GET /openapi.json?nose=1
            GET /readyz?nose=1
            POST /api/v1/entries/digest/backfill {"from": "2026-06-01", "to": "2026-06-03", "dry_run": true}
            POST /api/v1/entries/digest/backfill {"from": "2026-06-01", "to": "2026-06-02", "id": "x"}
            POST /api/v1/entries/digest/backfill
            POST /api/v1/entries/water/backfill {"from": "2026-06-01"}
            """)
        await story.ask(
            "POST", "/api/v1/entries/ask/run", headers={"Idempotency-Key": "k"}, body={}
        )
        await story.ask(
            "POST", "/api/v1/entries/ask/run", headers={"Idempotency-Key": "k"}, body={}
        )
        await story.ask("POST", "/api/v1/entries/ask/run", b"{")
        await story.ask("POST", "/api/v1/entries/ask/pause", {}, headers={"If-Match": '"0123"'})
        await story.ask(
            "POST", "/api/v1/entries/ask/run", b"a=1", headers={"Content-Type": "text/plain"}
        )
        await story.type("""
            POST /api/v1/agents/wren/tick {"note": "go"}
            POST /api/v1/agents/nobody/tick
            """)
        await _trigger_routes(story, engine)
        await _workflow_routes(story, engine)
        await _on_the_port(story, engine)
        await story.type("""
            GET /api/v1/sessions
            GET /api/v1/sessions?nose=1
            POST /api/v1/sessions/nothing/end
            POST /api/v1/logout
            POST /api/v1/logout {"nose": 1}
            POST /api/v1/edits {"file": "plan.org", "what": "claimed 'Digest'"}
            POST /api/v1/edits {"nose": 1}
            GET /api/v1/settings/waiting
            GET /api/v1/settings/waiting?nose=1
            POST /api/v1/settings/trust
            POST /api/v1/settings/trust {"digest": "nothing"}
            POST /api/v1/token
            POST /api/v1/token []
            """)
        await story.stream("/api/v1/events/stream?after=0", lines=12)
        await story.stream("/api/v1/events/stream?after=x", lines=12)
        await story.type("""
            POST /api/v1/entries/digest/retry {"nose": 1}
            POST /api/v1/entries/nobody/retry
            POST /api/v1/entries/ask/retry
            """)


async def _trigger_routes(story: Story, engine: Engine) -> None:
    secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
    hook = {"type": "webhook", "secret": secret}
    report = {"type": "cron", "expression": "0 9 * * MON-FRI"}
    await story.type(f"""
        GET /agents/bell
        GET /agents/nobody
        GET /agents?status=running&limit=1
        GET /agents?limit=x
        POST /agents {{"name": "worker", "command": ["cat"], "model": "small"}}
        POST /agents {{"name": "worker"}}
        POST /agents
        POST /workflows {json.dumps({"name": "report", "agent_id": "worker", "trigger_config": report, "prompt_template": "Go."})}
        POST /workflows {json.dumps({"name": "report", "agent_id": "worker", "trigger_config": report, "prompt_template": "Go."})}
        POST /workflows {json.dumps({"name": "hook", "agent_id": "worker", "trigger_config": hook, "prompt_template": "Look at {{title}}."})}
        POST /workflows {{"name": "odd", "trigger_config": {{"type": "moon"}}}}
        GET /workflows/report
        GET /workflows/nothing
        GET /workflows?limit=1&offset=1
        GET /workflows?limit=x
        PUT /workflows/report {{"prompt_template": "Go on.", "enabled": true}}
        PUT /workflows/report {{"trigger_config": {{"type": "cron", "expression": "never"}}}}
        PUT /workflows/nothing {{"enabled": false}}
        POST /workflows/report/trigger {{"title": "now", "body": "all of it"}}
        POST /workflows/nothing/trigger
        """)
    await story.type("""
        GET /workflows/report/history
        GET /workflows/nothing/history
        POST /agents/worker/message {"content": "Hello"}
        POST /agents/worker/message
        POST /agents/nobody/message {"content": "Hello"}
        """)
    body, stamp = b'{"title": "a push"}', str(int(engine.now.timestamp()))
    key = b64decode(secret.removeprefix("whsec_"))
    proof = b64encode(hmac.digest(key, f"msg_1.{stamp}.".encode() + body, "sha256")).decode()
    signed = {"webhook-id": "msg_1", "webhook-timestamp": stamp, "webhook-signature": f"v1,{proof}"}
    await story.ask("POST", "/webhooks/hook", body, headers=signed)
    await story.ask("POST", "/webhooks/hook", body, headers=signed)
    await story.ask("POST", "/webhooks/hook", body + b" ", headers=signed)
    await story.ask("POST", "/webhooks/nothing", body, headers=signed)
    ask = {"mode": "require_approval", "tools": ["*"]}
    asking = {"name": "asks", "agent_id": "worker", "trigger_config": {"type": "manual"}}
    asking |= {"prompt_template": "May I?", "tool_policy": ask}
    await story.type(f"""
        GET /agents/worker/usage
        GET /agents/nobody/usage
        POST /workflows {json.dumps(asking)}
        POST /workflows/asks/trigger
        POST /workflows/asks/trigger
        GET /api/v1/approvals
        GET /api/v1/approvals?nose=1
        """)
    listed = (await engine.get("/api/v1/approvals"))["approvals"]
    numbers = [each["receipt"] for each in listed] or [998]
    await story.type(f"""
        POST /api/v1/approvals/{numbers[0]}/approve {{"by": "ada"}}
        POST /api/v1/approvals/{numbers[0]}/approve {{"by": "ada"}}
        POST /api/v1/approvals/{numbers[-1]}/deny {{"by": "ada", "reason": "not now"}}
        POST /api/v1/approvals/999/approve
        POST /api/v1/approvals/999/deny
        """)
    await story.type("""
        POST /api/v1/trigger-agents {"name": "far", "command": ["cat"]}
        PUT /api/v1/trigger-agents/far {"model": "large"}
        GET /api/v1/trigger-agents
        GET /api/v1/trigger-agents/far
        POST /api/v1/triggers {"name": "fares", "agent_id": "far", "trigger_config": {"type": "webhook", "secret": "whsec_YW5vdGhlciBzZWNyZXQgb2YgYSB3ZWJob29r"}, "prompt_template": "x"}
        GET /api/v1/triggers?limit=2
        GET /api/v1/triggers/fares
        POST /api/v1/triggers/fares/rotate {}
        PUT /api/v1/triggers/fares {"enabled": false}
        POST /api/v1/triggers/fares/run {}
        GET /api/v1/triggers/fares/history
        POST /api/v1/trigger-agents/far/clear
        GET /api/v1/trigger-agents/far/usage
        POST /api/v1/trigger-agents/far/message {"content": "Hello"}
        PUT /api/v1/triggers/report {"name": "daily"}
        DELETE /api/v1/triggers/daily
        DELETE /api/v1/triggers/fares
        DELETE /api/v1/trigger-agents/far
        POST /api/v1/trigger-files {"definitions": [{"what": "agent", "file": "a.yml", "said": {"name": "near", "enabled": true}, "places": {}}]}
        POST /api/v1/trigger-files {"definitions": [{"what": "agent", "file": "a.yml", "said": {"name": "near", "enabled": true}, "places": {}}], "teardown": true}
        POST /api/v1/trigger-files {"definitions": 7}
        POST /api/v1/triggers {}
        POST /api/v1/trigger-agents {}
        GET /api/v1/triggers?nose=1
        GET /api/v1/trigger-agents?nose=1
        GET /api/v1/triggers/nothing
        GET /api/v1/trigger-agents/nobody
        GET /api/v1/trigger-agents/nobody/usage
        GET /api/v1/trigger-agents/nobody/run
        GET /api/v1/triggers/nothing/history
        PUT /api/v1/triggers/nothing {}
        PUT /api/v1/trigger-agents/nobody {}
        POST /api/v1/triggers/nothing/rotate {}
        POST /api/v1/triggers/nothing/run
        POST /api/v1/trigger-agents/nobody/clear
        POST /api/v1/trigger-agents/nobody/message {"content": "Hello"}
        DELETE /api/v1/triggers/nothing
        DELETE /api/v1/trigger-agents/nobody
        DELETE /agents/worker
        DELETE /workflows/hook
        DELETE /workflows/hook
        DELETE /workflows/asks
        DELETE /agents/worker
        DELETE /agents/nobody
        """)


async def _workflow_routes(story: Story, engine: Engine) -> None:
    plan = (story.root / "plan.org").read_text()
    words = plan[plan.index("* Words") : plan.index("* TODO")]
    await story.ask("POST", "/api/workflow", {"org": words})
    await story.ask("POST", "/api/workflow?plan=1", {"org": words})
    await story.ask("POST", "/api/workflow", {"org": "* Nothing"})
    await story.ask("POST", "/api/workflow", {})
    made = await story.ask("POST", "/api/run", {"task": "Say it", "agent": "moss"})
    run = made.json()["id"]
    await story.ask("GET", f"/api/run/{run}")
    await story.stream(f"/api/run/{run}/stream", lines=99)
    await story.type("""
        POST /api/run {"task": "Say it", "agent": "nobody"}
        POST /api/run {"task": "Say it"}
        POST /api/run
        GET /api/run/nothing
        GET /api/run/nothing/stream
        """)


async def _on_the_port(story: Story, engine: Engine) -> None:
    """Ask over the port, where a token is needed."""
    token = (story.root / ".horae" / "token").read_text().strip()
    right, wrong = {"Authorization": f"Bearer {token}"}, {"Authorization": "Bearer nothing"}
    link = (await story.ask("POST", "/api/v1/login", {})).json()["url"]
    _, _, host, _, code = link.split("/")
    for _ in "12":
        await story.ask("GET", f"/login/{code}", headers={"Host": host}, port=True)
    found = (await story.ask("GET", "/api/v1/sessions")).json()["sessions"]
    for each in found:
        await story.ask("POST", f"/api/v1/sessions/{each['id']}/end", {})
    for headers in ({}, wrong, right, {**right, "Host": "evil.example"}):
        for path in ("/healthz", "/api/v1/status?limit=1", "/_activity", "/nowhere"):
            await story.ask("GET", path, headers=headers, port=True)
    made = await story.ask("POST", "/api/v1/tokens", {"name": "ops", "scopes": "read"})
    ops = {"Authorization": f"Bearer {made.json()['token']}"}
    await story.ask("GET", "/api/v1/gate", headers=ops, port=True)
    await story.ask("POST", "/api/v1/entries/ask/run", {}, headers=ops, port=True)
    await story.type("""
        GET /api/v1/tokens
        GET /api/v1/tokens?nose=1
        POST /api/v1/tokens {"name": "ops", "scopes": "read"}
        POST /api/v1/tokens {"name": "odd", "scopes": "fly"}
        POST /api/v1/tokens/ops/revoke
        POST /api/v1/tokens/nobody/revoke
        """)
    await story.ask("GET", "/api/v1/gate", headers=ops, port=True)
    for path in ("/api/v1/entries/ask/run", "/webhooks/hook"):
        await story.ask("POST", path, {}, port=True)
        await story.ask(
            "POST", path, {}, headers={**right, "Origin": "http://evil.example"}, port=True
        )


# Parts of the product without an engine


async def board(story: Story) -> None:
    story.plan("house")
    await story.type("""
        horae task list --json
        horae task list --status todo --search wood --json
        horae task summary --json
        horae task health --json
        horae task recycle --json
        horae task list --json
        horae task show 1 --json
        horae task show 99 --json
        horae task next --json
        horae task next 1 -n 2 --json
        horae task add "Buy nails" --priority high --assignee moss --tag wood --depends-on 3 --body "Many." --json
        horae task add "Paint" --cron "0 9 * * MON" --tz Europe/Berlin --json
        horae task add "Nothing" --cron "0 9 * * FRI-MON" --json
        horae task add "Nothing" --depends-on 99 --json
        horae task schedule 2 --at 2026-07-01T09:00:00Z --json
        horae task schedule 2 --at tomorrow --json
        horae task schedule 2 --cron "0 9 1 * *" --tz Europe/Berlin --catchup latest --until 2026-12-31 --json
        horae task schedule 2 --clear --at 2026-07-01T09:00:00Z --json
        horae task schedule 2 --clear --json
        horae task schedule 2 --json
        horae task schedule 99 --clear --json
        horae task edit 2 --title "A fence" --priority low --tag yard --blocked-on rain --json
        horae task edit 2 --clear-blocked --set size=3 --json
        horae task edit 2 --unset size --assignee moss --depends-on 3 --depends-on 1 --json
        horae task edit 3 --depends-on 2 --json
        horae task edit 2 --set id=9 --json
        horae task transition 1 in-progress --json
        horae task transition 1 review --json
        horae task transition 1 done --json
        horae task transition 1 todo --json
        horae task transition 3 nothing --json
        horae task assign 2 --execution-owner wren --review-owner moss --json
        horae task archive 3 --json
        horae task archive 3 --json
        horae task health --json
        batty board list
        batty board list --status todo
        batty board summary
        batty task schedule 4 --at 2026-07-02T09:00:00-04:00
        batty task schedule 4 --cron "0 9 * * MON"
        batty task schedule 4 --clear
        batty task schedule 99 --clear
        batty task transition 4 todo
        batty task transition 4 done
        batty task assign 4 --execution-owner moss --review-owner wren
        """)
    story.write("board/tasks/007-again.md", "---\nid: 2\ntitle: Again\nstatus: todo\n---\n")
    story.write("board/tasks/008-odd.md", "---\nid: [\n---\n")
    await story.type("""
        horae task health --json
        horae task list --json
        horae task show 2 --json
        horae check --json
        batty task schedule 2 --clear
        """)
    story.files("after all", "plan/board")


async def claims(story: Story) -> None:
    """Record what is written into plans, under git and without it."""
    plan = """#+TODO: TODO(t) DOING WAIT | DONE(d!)
* TODO Sow the beans
:PROPERTIES:
:ID: beans
:END:
* TODO Pay the rent
SCHEDULED: <2026-06-01 Mon +1m>
:PROPERTIES:
:ID: rent
:END:
* TODO Mow
DEADLINE: <2026-06-06 Sat .+1w>
* TODO Mow
* TODO Void
:PROPERTIES:
:ID: void
stray
:END:
"""
    script = """
        horae claim plan.org beans --agent wren --json
        horae claim plan.org beans --agent moss --json
        horae claim plan.org rent --agent wren --ttl 2h --json
        horae release plan.org beans --agent moss --json
        horae release plan.org beans --agent wren --json
        horae release plan.org beans --agent wren --json
        horae claim plan.org nothing --agent wren --json
        horae claim plan.org Mow --agent wren --json
        horae claim plan.org Void --agent wren --json
        horae claim nowhere.org beans --agent wren --json
        horae done plan.org rent --json
        horae done plan.org beans --at 2026-06-05T10:00:00Z --tz Europe/Berlin --json
        horae done plan.org beans --json
        horae done plan.org Mow --json
        horae done plan.org nothing --json
        horae done plan.org void --json
        horae query plan.org --json
        """
    story.write("plan.org", plan)
    await story.type(script)
    story.files("without git", "plan")
    story.write("plan.org", plan)
    story.git("init", "-q")
    story.git("add", "-A")
    story.git("commit", "-qm", "Begin")
    await story.type(script)
    story.files("under git", "plan")
    for run, text in {"7": "kept\n", "8": "other\n"}.items():
        story.git("switch", "-qc", f"horae-work/wren/{run}")
        story.write("kept.txt", text)
        story.git("add", "kept.txt")
        story.git("commit", "-qm", f"Keep {run}")
        story.git("switch", "-q", "-")
    await story.type("""
        horae agent work list --json
        horae agent work show wren/7 --json
        horae agent work show moss --json
        horae agent work take wren/7 --json
        horae agent work take wren/8 --json
        horae agent work drop wren --json
        horae agent work list --json
        """)
    story.log("commits without an origin")
    story.write("plan.org", plan)
    story.git("init", "-q", "--bare", str(story.side / "origin.git"))
    story.git("remote", "add", "origin", str(story.side / "origin.git"))
    story.git("commit", "-qam", "Again")
    story.git("push", "-q", "-u", "origin", "main")
    await story.type("""
        horae claim plan.org beans --agent wren --json
        horae claim plan.org beans --agent wren --local --json
        horae release plan.org beans --agent wren --local --json
        """)
    story.log("commits with an origin")


async def triggers(story: Story) -> None:
    """Record the commands about triggers and agents: first without an engine, then with one."""
    story.write("plan.org", "* Nothing\n")
    story.write("horae.toml", SETTINGS + '[agent]\ncommand = ["cat"]\n')
    story.write("prompt.txt", "Look at {{title}}.")
    making = """
        horae trigger add daily --agent worker --cron "0 9 * * *" --tz Europe/Berlin --prompt "Go." --json
        horae trigger add daily --agent worker --cron "0 9 * * *" --prompt "Go." --json
        horae trigger add later --agent worker --at 2026-06-05T12:30:00Z --prompt "Now." --json
        horae trigger add hook --agent worker --webhook whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw --prompt-file prompt.txt --json
        horae trigger add hub --agent worker --webhook secret --scheme github --prompt "x" --json
        horae trigger add made --agent worker --webhook "" --prompt "x" --json
        horae trigger add asked --agent worker --manual --prompt "x" --disabled --json
        horae trigger add follows --agent worker --after daily --prompt "x" --json
        horae trigger add issues --agent worker --issues owner/repo --label bug --every 300 --prompt "{{title}}" --json
        horae trigger add pulls --agent worker --pulls owner/repo --requires gpu --prompt "x" --json
        horae trigger add events --agent worker --on completed --prompt "x" --json
        horae trigger add odd --agent nobody --manual --prompt "x" --json
        horae trigger add odd --agent worker --manual --cron "* * * * *" --prompt "x" --json
        horae trigger add odd --agent worker --cron "never" --prompt "x" --json
        horae trigger add odd --agent worker --manual --prompt "x" --tools "{" --json
        horae trigger add opts --agent worker --cron "0 1 * * *" --prompt "x" --api "read run" --catchup latest --overlap queue --retry "2 1m" --timeout 5m --jitter 1m --pause-after 3 --until 2026-12-31 --json
        """
    looking = """
        horae trigger list --json
        horae trigger list -n 1 --offset 1 --json
        horae trigger show daily --json
        horae trigger show nothing --json
        horae trigger edit daily --name morning --prompt "Go on." --json
        horae trigger edit nothing --name x --json
        horae trigger edit opts --cron "0 2 * * *" --tz Europe/Berlin --agent worker --catchup none --overlap skip --retry "1 1m" --timeout 6m --jitter 2m --pause-after 4 --until 2027-01-01 --requires gpu --prompt-file prompt.txt --tools '{"mode": "allow_all"}' --json
        horae trigger edit opts --at 2027-01-01T00:00:00Z --json
        horae trigger edit opts --manual --api read --json
        horae trigger edit opts --after morning --json
        horae trigger edit opts --webhook secret --scheme github --json
        horae trigger edit opts --issues owner/repo --label bug --every 600 --json
        horae trigger edit opts --pulls owner/repo --json
        horae trigger edit opts --on completed --json
        horae trigger edit opts --cron "0 1 * * *" --json
        horae trigger disable morning --json
        horae trigger enable morning --json
        horae trigger rotate hook --json
        horae trigger rotate hook --secret whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSx --json
        horae trigger rotate hook --end --json
        horae trigger rotate morning --json
        horae trigger run morning --title now --body "all of it" --key k --json
        horae trigger run asked --json
        horae trigger history morning --json
        horae trigger history nothing --json
        horae trigger history morning -n 1 --offset 1 --json
        """
    ending = """
        horae trigger history morning --json
        horae trigger remove morning --json
        horae trigger remove morning --json
        horae agent list --json
        horae agent show worker --json
        """
    words = """
        agent --json orchestrator create-agent --name worker --command cat --model small --env A=b --system-prompt "You work."
        agent --json orchestrator create-agent --name worker
        agent --json orchestrator list-agents
        agent --json orchestrator list-agents --status stopped
        agent --json orchestrator get-agent worker
        agent --json orchestrator get-agent nobody
        agent --json orchestrator set-model worker large
        agent --json orchestrator set-policy worker '{"mode": "allow_all"}'
        agent --json orchestrator set-policy worker '{"mode": "odd"}'
        agent --json orchestrator get-policy worker
        agent --json orchestrator add-dir worker /tmp
        agent --json orchestrator remove-dir worker /tmp
        agent --json orchestrator clear-context worker
        agent --json orchestrator health
        agent --json orchestrator logs worker
        agent --json orchestrator attach worker
        agent --json orchestrator stream worker
        agent --json orchestrator usage worker
        agent --json orchestrator validate-template "Look at {{title}}."
        agent --json orchestrator validate-template "Look at {{nose}}."
        agent --json orchestrator create-workflow --name c --agent-name worker --trigger-type cron --cron-expression "0 9 * * *" --prompt-template "Go."
        agent --json orchestrator create-workflow --name d --agent-name worker --trigger-type delay --run-at 2026-06-05T12:10:00Z --prompt-template "Go."
        agent --json orchestrator create-workflow --name e --agent-name worker --trigger-type cron --prompt-template "Go."
        agent --json orchestrator list-workflows
        agent --json orchestrator get-workflow c
        agent --json orchestrator get-workflow nothing
        agent --json orchestrator update-workflow c --prompt-template "Go on." --enabled false
        agent --json orchestrator update-workflow c --enabled true
        agent --json orchestrator trigger-workflow c --title now --body x
        agent --json orchestrator dispatch-history c
        agent --json orchestrator workflow-history c
        agent --json orchestrator list-approvals
        agent --json orchestrator approve 999
        agent --json orchestrator deny 999 --reason no
        agent --json orchestrator send-message worker "Hello"
        agent --json orchestrator send-message worker "Hello again"
        agent --json orchestrator create-agent --name full --working-dir . --prompt "Hi" --tool-policy '{"mode": "deny_all"}' --add-dir /tmp --auto-clear-threshold 5 --user ada --shell sh --worktree --network-policy none --docker-image none --cpu-limit 1 --memory-limit 512 --mount /tmp:/tmp:ro --interactive
        agent --json orchestrator create-agent --name told --prompt-file prompt.txt
        agent --json orchestrator create-workflow --name hook2 --agent-name worker --trigger-type webhook --webhook-secret s --prompt-template-file prompt.txt --disabled --tool-policy '{"mode": "allow_all"}'
        agent --json orchestrator create-workflow --name issue2 --agent-name worker --trigger-type github-issues --owner o --repo r --labels bug --state open --poll-interval 60 --prompt-template "{{title}}"
        agent --json orchestrator create-workflow --name after2 --agent-name worker --trigger-type dispatch-result --source-workflow-id c --status completed --prompt-template x
        agent --json orchestrator create-workflow --name life2 --agent-name worker --trigger-type agent-lifecycle --event completed --prompt-template x
        agent --json orchestrator create-workflow --name zoned --agent-id worker --trigger-type cron --cron-expression "0 9 * * *" --timezone Europe/Berlin --prompt-template x
        agent --json orchestrator update-workflow zoned --name zone2 --agent-name worker --cron-expression "0 8 * * *" --timezone UTC --poll-interval 30 --tool-policy '{"mode": "allow_all"}' --prompt-template-file prompt.txt
        agent --json orchestrator update-workflow d --run-at 2026-06-05T12:20:00Z
        agent --json orchestrator validate-template --file prompt.txt
        agent --json orchestrator usage --name worker
        agent --json orchestrator attach --name worker
        agent --json orchestrator stream --name worker
        agent --json orchestrator logs --name worker --tail 1
        agent orchestrator list-workflows
        """
    going = """
        agent --json orchestrator delete-workflow d
        agent --json orchestrator delete-workflow c
        agent --json orchestrator delete-workflow c
        agent --json orchestrator delete-agent nobody
        """
    await story.type(words + making + looking + ending + going)
    for name in ("agents/bell.yml", "workflows/chime.yml"):
        source = PLANS / "house/.agentd" / name
        story.write(f".agentd/{name}", source.read_text())
    files = """
        horae trigger apply .agentd --dry-run --json
        horae trigger apply .agentd --json
        horae trigger apply .agentd --json
        agent --json apply .agentd --dry-run
        agent --json apply .agentd
        horae check --json
        horae trigger teardown .agentd --dry-run --json
        horae trigger teardown .agentd --json
        agent --json teardown .agentd --dry-run
        agent --json teardown .agentd
        horae trigger apply nowhere --json
        """
    await story.type(files)
    story.write("empty/agents/.keep", "")
    story.write("wrong/workflows/odd.yml", "name: odd\nagent: nobody\nsource: {type: moon}\n")
    story.write("wrong/agents/odd.yml", "name: &a odd\ncommand: *a\n")
    await story.type("""
        horae trigger apply empty --json
        horae trigger apply wrong --json
        agent --json apply wrong
        """)
    async with story.up() as engine:
        await story.type(words)
        await story.type(making + looking)
        await pass_by(engine, HOUR, step=15 * MINUTE)
        await story.type(ending + going + files)
        await story.type("!agent orchestrator logs worker\nagent --json orchestrator usage worker")
    story.files("after all", "plan")


async def rules(story: Story) -> None:
    """Record what single rules and lines mean, and what is wrong with them."""
    story.plan("house")
    for what in (
        *("0 9 * * MON-FRI", "*/5 * * * *", "@daily", "0 9 31 2 *", "0 9 * * FRI-MON", "* * * *"),
        *(
            "<2026-06-06 Sat 09:00 +1w>",
            "<2026-06-06 Sat 09:00 ++1d>",
            "<2026-02-30>",
            "[2026-06-06]",
        ),
        *(
            "<2026-06-06 Sat +0d>",
            "plan.org:3",
            "plan.org:37",
            "plan.org:999",
            "nowhere.org:1",
            "30 2 * * *",
        ),
    ):
        await story.call("horae", "explain", what, "--tz", "Europe/Berlin", "--json")
    await story.type("""
        horae next --cron "0 9 * * MON" -n 3 --json
        horae next --cron "0 9 * * MON" -n 3 --tz America/New_York --from 2026-10-30 --jsonl
        horae next --cron "nothing" --json
        horae next --at tomorrow --json
        horae next --tz Berlin --json
        horae next -n 0 --json
        horae agenda --days 400000 --json
        horae query --tag nothing --json
        horae query --state TODO --overdue --at 2026-06-05 --json
        horae query --prop ID=digest --jsonl
        horae query --prop ID --json
        horae query nowhere.org --json
        horae check --tz Europe/Berlin --at 2026-03-01 --jsonl
        horae agent lifecycle day.org --json
        horae agent lifecycle day.org --from write 1 --outcomes failed,no_work --every 45s --next 3 --json
        horae agent lifecycle day.org --from nothing --json
        horae agent lifecycle plan.org --json
        horae agent lifecycle day.org --every never --json
        horae simulate plan.org --days 3 --from 2026-06-01 --outage 2026-06-02T00:00/1d --json
        horae export ics plan.org --from 2026-06-01 --to 2026-06-03 -o out.ics
        horae export ics plan.org -o plan.org
        !horae export crontab plan.org --cron-tz --program /usr/bin/horae
        horae export systemd plan.org -o units
        horae export systemd plan.org -o units
        horae nothing --json
        horae --json
        horae next --nothing --json
        HORAE_OUTPUT=xml horae next
        HORAE_OUTPUT=json horae next --cron "0 9 * * MON" -n 1
        HORAE_ZONE=Berlin horae config --json
        HORAE_GATE_SLOTS=many horae config --json
        WB_KEEPER_INTERVAL_MS=60000 horae config keeper.interval --show-origin --json
        """)
    story.files("exports", "plan/units", "plan/out.ics")
    at = "--at 2026-06-06T00:00:00Z"
    await story.type(f"""
        horae agenda plan.org {at} --tz Europe/Berlin --json
        horae due plan.org {at} --tz Europe/Berlin --days 1 --json
        horae next plan.org --view due {at} --tz Europe/Berlin --days 1 --json
        horae explain '0 9 * * *' {at} --json
        !horae export crontab plan.org {at} --tz Europe/Berlin
        !horae export ics plan.org {at} --tz Europe/Berlin --days 1
        !horae export systemd plan.org {at} --tz Europe/Berlin --program /usr/bin/horae
        horae export systemd plan.org -o units --force
        horae query --scheduled --json
        horae simulate plan.org --days 1 --from 2026-06-01 --tz Europe/Berlin --trace trace.jsonl --json
        horae task list {at} --json
        horae task health {at} --json
        horae task recycle {at} --json
        horae task list {at} --status todo --search wood --json
        horae task next {at} --json
        horae task show 1 {at} --json
        horae task add "At a time" --at 2026-07-01T09:00:00Z --status todo --json
        horae agent run moss --prompt x --dir agents --timeout 1m --model large --json
        horae agent run moss --prompt x --timeout never --json
        horae status {at} --json
        horae history {at} --json
        horae why digest {at} --json
        horae run garden.org --resume 120000-000000 --json
        """)
    await story.call("horae", "query", "-", "--json", stdin="* TODO From stdin\n")
    await story.call("wb", "tangle", "-", stdin="* World :workflow:\n")
    for name, text in WRONG.items():
        story.write(f"wrong/{name}.org", text)
        await story.type(f"horae check wrong/{name}.org --json\nhorae due wrong/{name}.org --json")
    await story.type("""
        horae next wrong --json
        horae why Odd --root wrong --json
        horae agent list --root wrong --json
        horae run Odd --root wrong --json
        """)


def entry(*properties: str, planning: str = "") -> str:
    """Return a headline with a drawer."""
    drawer = "".join(f"{each}\n" for each in properties)
    return f"* Odd\n{planning}:PROPERTIES:\n{drawer}:END:\n"


_ON = ":SCHEDULE: 0 9 * * *"
WRONG = {
    "after": entry(":AFTER: sometimes", ":COMMAND: true"),
    "agent": "* Twice :agent:\n:PROPERTIES:\n:COMMAND: cat\n:END:\n** System prompt\nx\n* Twice :agent:\n",
    "command": entry(_ON, ":COMMAND: echo 'open"),
    "cron": entry(":SCHEDULE: 0 9 * * FRI-MON", ":COMMAND: true"),
    "duration": entry(_ON, ":COMMAND: true", ":TIMEOUT: soon"),
    "empty": "",
    "misspelt": entry(":SHEDULE: 0 9 * * *", ":COMAND: true"),
    "nothing": entry(_ON),
    "policy": entry(_ON, ":COMMAND: true", ":OVERLAP: maybe", ":CATCHUP: some"),
    "range": entry(":COMMAND: true", planning="SCHEDULED: <2026-06-06 Sat>--<2026-06-07 Sun>\n"),
    "repeater": entry(":COMMAND: true", planning="SCHEDULED: <2026-06-06 Sat 09:00 +0d>\n"),
    "shell": entry(_ON, ":COMMAND: true && false"),
    "stray": "* Odd\n:PROPERTIES:\n:SCHEDULE: 0 9 * * *\nstray\n:END:\n",
    "timestamp": entry(":COMMAND: true", planning="SCHEDULED: <2026-02-30 Mon 25:00>\n"),
    "tools": "* Odd :agent:\n:PROPERTIES:\n:TOOLS: {\n:END:\n** System prompt\nx\n",
    "zone": entry(_ON, ":TZ: Berlin", ":COMMAND: true"),
}


async def errors(story: Story) -> None:
    """Record error codes that no other story meets."""
    story.write("plan.org", entry(":COMMAND: true"))
    story.write("nul.org", "* A\0\n")
    story.write("stamp.org", "* TODO Odd\nSCHEDULED: <2026-06-06 Sat +0d>\n* Plain\n")
    (story.root / "latin.org").write_bytes(b"* \xe4\n")
    twice = "* Twice :agent:\n:PROPERTIES:\n:COMMAND: cat\n:END:\n** System prompt\nx\n"
    story.write("twice/a.org", twice)
    story.write("twice/b.org", twice)
    story.write("crew/horae.toml", SETTINGS + '[crew]\ndef = "crew.org"\n')
    story.write("crew/crew.org", "* Nobody\n")
    story.write("yaml/.agentd/agents/odd.yml", "name: &a odd\ncommand: *a\n")
    story.write("yaml/plan.org", "* Nothing\n")
    story.write("flow/board/tasks/001-flow.md", "---\n{id: 1, title: Flow, status: todo}\n---\n")
    story.write("tools/a.org", WRONG["tools"])
    await story.type("""
        horae query nul.org --json
        horae query latin.org --json
        horae query . --json
        horae done stamp.org Odd --json
        horae claim stamp.org Plain --agent wren --json
        horae agent list --root twice --json
        horae agent list --root tools --json
        horae agent show Odd --root tools --json
        horae agent tick Nobody --root crew --json
        horae check crew --json
        horae check yaml --json
        horae next yaml --json
        horae task schedule 1 --cron "0 9 * * *" --root flow --json
        horae task list --json
        horae task health --json
        horae task show 1 --json
        horae status --root nowhere --json
        HORAE_OUTPUT=json horae up nowhere --seconds 1
        horae run x --root nowhere --json
        horae agent list --root nowhere --json
        HORAE_OUTPUT=json horae cluster worker --log json --seconds 1
        HORAE_OUTPUT=json horae demo --keep . --seconds 1
        HORAE_OUTPUT=json horae token show
        HORAE_OUTPUT=json horae token new
        horae run Odd --json
        horae history --since tomorrow --json
        horae pause Odd --until never --json
        horae prune --before never --json
        horae backfill Odd --from never --json
        HORAE_OUTPUT=json horae token show
        HORAE_OUTPUT=json horae token show --root yaml
        horae run Odd --root twice --data .horae --json
        horae import crontab nul.org --json
        HORAE_OUTPUT=jsonl horae query nowhere.org
        """)
    story.write("lone/plan.org", entry(":COMMAND: true"))
    await story.type("horae run Odd --root lone --json")
    (story.root / "lone/plan.org").unlink()
    await story.type("horae run Odd --root lone --json\nhorae status --root lone --json")
    with closing(sqlite3.connect(story.root / "lone/.horae/ledger.db")) as other:
        other.execute("PRAGMA user_version = 99")
    await story.type("horae status --root lone --json\nhorae run Odd --root lone --json")
    story.git("init", "-q")
    story.git("add", "plan.org")
    story.git("commit", "-qm", "Begin")
    story.git("config", "core.fsmonitor", "./program")
    await story.type("horae claim plan.org Odd --agent wren --json")
    book = story.root / ".horae" / "ledger.db"
    for data in (b"", b"no ledger"):
        book.write_bytes(data)
        await story.type("horae status --json\nhorae doctor --restore --json")
    book.unlink()
    await story.type("horae status --json\nhorae run Odd --json")


STORIES: dict[str, Callable[[Story], Coroutine[None, None, None]]] = {
    "nightly": nightly,
    "pipelines": pipelines,
    "adopt": adopt,
    "demo": demo,
    "init": init,
    "house": house,
    "ledger": ledger,
    "routes": routes,
    "board": board,
    "claims": claims,
    "triggers": triggers,
    "rules": rules,
    "errors": errors,
}
