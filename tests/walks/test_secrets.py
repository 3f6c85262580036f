"""A life with secrets of every kind, and no byte of them where it does not belong."""

from __future__ import annotations

import asyncio
import hmac
import json
import os
from contextlib import redirect_stderr, redirect_stdout
from hashlib import sha256
from io import BytesIO, StringIO, TextIOWrapper
from typing import TYPE_CHECKING

from horae.app import read_again
from horae.cli.group import horae
from horae.cli.run import run
from horae.core.receipt import Status
from horae.sources.triggers.kinds import WebhookKind
from horae.sources.triggers.rules import TriggerDefinition
from walks.stage import EIGHT, HOUR, MINUTE, engine, story

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from walks.stage import Engine, Ground

NAMES = ("FILE_KEY", "CMD_KEY", "ENV_KEY", "GH_TOKEN", "HOOK_KEY", "OPENAI_API_KEY")
VALUES = {name: f"c4nary-{name.lower().replace('_', '-')}-{n}" for n, name in enumerate(NAMES)}
GIVEN = {name: f"c4nary-{name}-given" for name in ("first", "second", "env", "agentd")}
PAGES = (
    "/", "/timeline", "/plan", "/plan/plan.org", "/crew", "/agents", "/board", "/calendar.ics",
    "/workflows", "/api/v1/status", "/api/v1/entries", "/api/v1/receipts", "/api/v1/events",
    "/api/v1/agents", "/api/v1/agenda", "/api/v1/gate", "/api/v1/approvals", "/metrics",
    "/openapi.json", "/_activity", "/nodes",
)  # fmt: skip
PLAN = """\
* Tell
:PROPERTIES:
:SCHEDULE: 0 0 1 1 *
:COMMAND: sh -c 'env; echo $MINE >&2; exit 3'
:ENV: FILE_KEY MINE=${CMD_KEY} ENV_KEY
:END:
* Steps :workflow:
:PROPERTIES:
:SCHEDULE: 0 0 1 1 *
:ENV: FILE_KEY OTHER=${CMD_KEY}
:END:
** Say :component:
#+begin_src sh
echo $FILE_KEY $OTHER
#+end_src
** Fail :component:
#+begin_src sh
cat; echo $OTHER >&2; exit 4
#+end_src
* Ask :workflow:
:PROPERTIES:
:SCHEDULE: 0 9 * * *
:END:
** Whom :component:
#+begin_src agent :agent needy
Go.
#+end_src
* Needy :agent:
:PROPERTIES:
:ID: needy
:COMMAND: sh -c 'cat; echo found $MINE'
:ENV: MINE=${GONE}
:END:
* Lost
:PROPERTIES:
:SCHEDULE: 0 9 * * *
:COMMAND: sh -c 'echo found $GONE'
:ENV: GONE
:END:
"""
OTHER = """\
* Given
:PROPERTIES:
:SCHEDULE: 0 9 * * *
:COMMAND: env API_KEY=c4nary-in-a-plan true
:END:
"""
AGENT = "name: writer\ncommand: [sh, -c, 'cat; env; env >&2; exit 5']\nenv:\n"
FILES = {
    ".agentd/agents/writer.yml": f"{AGENT}  KEY: ${{FILE_KEY}}\n  API_KEY: {GIVEN['agentd']}\n",
    ".agentd/workflows/named.yml": "name: named\nagent: writer\nprompt_template: Go.\n"
    "source: {type: webhook, secret: '${HOOK_KEY}'}\n",
    ".agentd/workflows/issues.yml": "name: issues\nagent: writer\nprompt_template: Go.\n"
    "source: {type: github_issues, owner: o, repo: r}\n",
}


def prepare(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    """Write settings, plan and files; `gh` is a program that tells whoever called it."""
    sources = {name: f"file:{ground.side}/{name}" for name in NAMES} | {
        "CMD_KEY": f"cmd:cat {ground.side}/CMD_KEY",
        "ENV_KEY": "env:ENV_KEY",
        "GONE": f"file:{ground.side}/GONE",
    }
    table = "".join(f'{name} = "{each}"\n' for name, each in sources.items())
    ground.write("horae.toml", f'zone = "UTC"\nlisten = "127.0.0.1:0"\n[secrets]\n{table}')
    ground.write("plan.org", PLAN)
    for name, text in FILES.items():
        ground.write(name, text)
    for name, value in VALUES.items():
        keep(ground.side / name, value)
    gh = ground.side / "gh"
    gh.write_text('#!/bin/sh\necho "bad credentials: $GH_TOKEN" >&2; env >&2; exit 1\n')
    gh.chmod(0o755)
    monkeypatch.setenv("PATH", f"{ground.side}:{os.environ['PATH']}")
    monkeypatch.setenv("ENV_KEY", VALUES["ENV_KEY"])
    monkeypatch.setenv("HORAE_MODEL_NAME", "small-1")


def keep(path: Path, value: str) -> None:
    path.write_text(f"{value}\n")
    path.chmod(0o600)


def signed(body: bytes, secret: str) -> dict[str, str]:
    return {"x-hub-signature-256": hmac.new(secret.encode(), body, sha256).hexdigest()}


async def said_by(here: Engine) -> str:
    """Return all that the engine answers, and what its commands print."""
    paths = [*PAGES]
    paths += [f"/receipts/{n}" for n in range(1, 7)] + [f"/runs/{n}" for n in range(1, 7)]
    paths += [f"/api/v1/runs/{n}/log" for n in range(1, 7)]
    for name in ("literal", "named", "issues"):
        paths += [f"/workflows/{name}", f"/workflows/{name}/history"]
    answers = [(path, await here.client.get(path)) for path in paths]
    assert sum(each.status_code == 200 for _, each in answers) > len(paths) * 2 / 3
    return "\n".join(each.text for _, each in answers)


@story
async def test_no_secret_is_where_it_does_not_belong_after_a_whole_life(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepare(ground, monkeypatch)
    said: list[str] = []
    async with engine(ground) as here:
        # Given with a request, and rotated.
        hook = {"type": "webhook", "scheme": "github", "secret": GIVEN["first"]}
        made = {
            "name": "literal",
            "agent": "writer",
            "prompt_template": "Go.",
            "trigger_config": hook,
        }
        env = {"OWN_KEY": GIVEN["env"], "NAMED": "${CMD_KEY}"}
        command = ["sh", "-c", "env; exit 1"]
        agent = {"name": "teller", "working_dir": ".", "env": env, "command": command}
        for path, body in (("/workflows", made), ("/agents", agent)):
            answer = await here.post(path, body)
            assert answer.status_code in {200, 201}, answer.text
            said.append(answer.text)
        rotated = await here.post("/api/v1/triggers/literal/rotate", {"secret": GIVEN["second"]})
        said.append(rotated.text)

        # Messages: with either secret, with the one that is named, with none.
        for word, secret, status in (
            ("literal", GIVEN["first"], 202),
            ("literal", GIVEN["second"], 202),
            ("named", VALUES["HOOK_KEY"], 202),
            ("named", GIVEN["first"], 401),
            ("none", GIVEN["first"], 401),
        ):
            message = json.dumps({"title": f"{word} {secret[-9:]}"}).encode()
            answer = await here.client.post(
                f"/webhooks/{word}", content=message, headers=signed(message, secret)
            )
            assert answer.status_code == status, (word, answer.text)
            said.append(answer.text)
            await here.rest()

        # Runs that tell all they know, and fail.
        for word in ("Tell", "Steps"):
            line = await here.app.service.run_now(word)
            assert (await here.over(line.receipt)).status is Status.FAILED
        said.append((await here.post("/agents/teller/message", {"content": "Hello."})).text)
        await here.rest()
        await here.advance(3 * MINUTE)  # a look at GitHub
        said.append(await said_by(here))
        everything = "\n".join(said)
        assert "MINE=[secret]" in everything
        assert "bad credentials: [secret]" in everything
        assert '"secret":"${HOOK_KEY}"' in everything

        await here.app.ledger.back_up_nightly(ground.data, now=here.now)  # type: ignore[attr-defined]

    # What is asked for on the command line.
    monkeypatch.chdir(ground.root)
    mine, other = ground.side / "mine.db", ground.side / "other"
    asked = (
        ("status", "--json"), ("history", "--json"), ("trigger", "list", "--json"),
        ("export", "ics", "."), ("why", "Tell"), ("agent", "list", "--json"), ("config",), ("check",),
        ("backup", str(mine)), ("restore", str(mine), "--data", str(other)),
    )  # fmt: skip
    said += [await asyncio.to_thread(called, *args) for args in asked]
    assert "missing: webhook literal: secret webhook-literal cannot be read" in said[-1]
    assert "missing: agent teller: secret OWN_KEY cannot be read" in said[-1]

    everything = "\n".join(said)
    for value in (*VALUES.values(), *GIVEN.values()):
        assert value not in everything
        for folder in (ground.data, other):
            holds = [each for each in files(folder) if value.encode() in each.read_bytes()]
            assert all(each.parent == ground.data / "secrets" for each in holds), (value, holds)
        assert value.encode() not in (ground.side / "mine.db").read_bytes()


def called(*args: str) -> str:
    """Return all that a command prints."""
    out, err = TextIOWrapper(BytesIO()), StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        run(horae, name="horae", args=args)
    out.seek(0)
    said = out.read()
    assert said, (args, err.getvalue())
    return said + err.getvalue()


def files(folder: Path) -> list[Path]:
    return [each for each in folder.rglob("*") if each.is_file()]


@story
async def test_a_secret_that_cannot_be_read_holds_the_run_until_it_can(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepare(ground, monkeypatch)
    (ground.side / "HOOK_KEY").chmod(0o644)
    async with engine(ground) as here:
        (ground.side / "HOOK_KEY").chmod(0o600)
        await here.until(EIGHT + HOUR)
        [held] = await here.receipts("Lost")
        why = f"secret GONE cannot be read ({ground.side}/GONE does not exist)"
        assert (held.status, held.receipt.reason) == (Status.HELD, why)
        assert why in here.app.facts().problems
        [asks] = await here.receipts("Ask")
        assert asks.receipt.reason == f"the agent needy: {why}"
        keep(ground.side / "GONE", "c4nary-back-again")
        await here.advance(MINUTE)
        assert (await here.over(held.number)).receipt.reason == "found [secret]"
        assert (await here.over(asks.number)).status is Status.DONE
        assert not here.app.facts().problems


@story
async def test_a_webhook_whose_secret_cannot_be_read_answers_as_if_it_were_not_there(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepare(ground, monkeypatch)
    async with engine(ground) as here:
        body, headers = b"{}", signed(b"{}", VALUES["HOOK_KEY"])
        (ground.side / "HOOK_KEY").chmod(0o644)
        answers = [
            await here.client.post(f"/webhooks/{name}", content=body, headers=headers)
            for name in ("named", "none")
        ]
        assert [each.status_code for each in answers] == [401, 401]
        assert answers[0].text == answers[1].text
        [problem] = here.app.facts().problems
        assert problem.startswith("secret HOOK_KEY cannot be read (other users can read ")
        (ground.side / "HOOK_KEY").chmod(0o600)
        answer = await here.client.post("/webhooks/named", content=body, headers=headers)
        assert answer.status_code == 202


# What may be named, and by whom


@story
async def test_who_asks_can_name_a_secret_but_no_file_of_ours(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepare(ground, monkeypatch)
    async with engine(ground) as here:

        async def asked(path: str, **said: object) -> str:
            answer = await here.post(path, said)
            return "" if answer.is_success else answer.json()["error"]

        def hook(name: str, secret: str) -> dict[str, object]:
            config = {"type": "webhook", "secret": secret}
            return {
                "name": name,
                "agent": "writer",
                "prompt_template": "Go.",
                "trigger_config": config,
            }

        assert not await asked("/workflows", **hook("one", GIVEN["first"]))
        [kept] = (ground.data / "secrets").glob("webhook-one-*")
        assert not await asked("/workflows", **hook("two", "${FILE_KEY}"))
        file = f"${{secrets/{kept.name}}}"
        for secret, why in (
            (file, "the name of a secret cannot contain a slash"),
            ("${HORAE_TOKEN}", "reserved for the engine"),
            ("${GONE}", "secret GONE cannot be read"),
            ("${NOTHING}", "the variable NOTHING is not set, and is not defined in [secrets]"),
            (GIVEN["first"], "webhook 'one' has the same secret"),
            (VALUES["FILE_KEY"], "webhook 'two' has the same secret"),
            ("${HOOK_KEY}", "webhook 'named' has the same secret"),
        ):
            assert why in await asked("/workflows", **hook("three", secret)), secret
        for named in (file, "${HORAE_STORE}"):
            assert await asked("/agents", name="thief", working_dir=".", env={"X": named})
        assert [each.name for each in (ground.data / "secrets").glob("webhook-*")] == [kept.name]

        # As often as a file is applied, nothing changes; what is no longer used is removed.
        before = sorted((ground.data / "secrets").iterdir())
        for name, text in FILES.items():
            ground.write(name, f"{text}\n")
        await read_again(here.app)
        assert sorted((ground.data / "secrets").iterdir()) == before
        agent = FILES[".agentd/agents/writer.yml"]
        ground.write(".agentd/agents/writer.yml", agent.replace(GIVEN["agentd"], "${FILE_KEY}"))
        await read_again(here.app)
        assert (await here.client.delete("/workflows/one")).is_success
        assert not list((ground.data / "secrets").iterdir())

        # As a ledger that several machines share may still hold it.
        kind = WebhookKind(scheme="github", secret=GIVEN["first"])
        old = TriggerDefinition("old", "writer", kind, "Go.")
        assert await here.app.context.trigger_store.insert("1", old, now=here.now)
        [said] = await here.app.triggers.given_secrets()
        assert said.startswith("webhook old: its secret is stored in the ledger; use ${NAME}")


def test_check_tells_of_a_secret_that_stands_in_a_file_and_of_a_name_that_names_nothing(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepare(ground, monkeypatch)
    monkeypatch.chdir(ground.root)
    mine = f"source: {{type: webhook, secret: {GIVEN['first']}}}\nprompt_template: Use it.\n"
    ground.write(".agentd/workflows/mine.yml", f"name: mine\nagent: writer\n{mine}")
    wrong = "env: {A: '${NOTHING}', B: '${HORAE_TOKEN}', C: '${GONE}'}\n"
    ground.write(".agentd/agents/other.yml", f"name: other\n{wrong}")
    ground.write("other.org", OTHER)
    said = called("check")
    for each in (
        "other.org:4:11: warning secret: API_KEY in the command contains a secret that every",
        "writer.yml:3:1: warning agentd: API_KEY contains a secret that everyone",
        "mine.yml:3:1: warning agentd: secret contains a secret that everyone",
        "other.yml:2:1: error agentd: A needs the variable NOTHING, which is not set",
        "other.yml:2:1: error agentd: B names HORAE_TOKEN: names that begin with HORAE_",
        "plan.org:38:7: warning secret: secret GONE cannot be read",
    ):
        assert each in said
    assert "c4nary" not in said.replace(str(ground.side), "")
