"""Files of triggers that are edited, broken, mended and removed, while an engine runs or not."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

import pytest

from horae.app import read_again
from horae.core.explain import WhyQuestion
from horae.core.receipt import Status
from horae.process.processes import can_kill_trees
from horae.sources.triggers.files import apply_changes, judge_files
from horae.sources.triggers.source import read_folder
from walks.stage import DAY, EIGHT, HOUR, MINUTE, engine, story, type_, typed

if TYPE_CHECKING:
    from walks.stage import Engine, Ground

pytestmark = pytest.mark.skipif(not can_kill_trees(), reason="needs pidfds")

FILE = ".agentd/workflows/daily.yml"
DAILY = """\
name: daily
agent: reporter
source: {type: cron, expression: "0 9 * * *"}
prompt_template: Report.
"""
HOOK = DAILY.replace("daily", "hook").replace('cron, expression: "0 9 * * *"', "manual")
ALERT = """\
* Tell
:PROPERTIES:
:AFTER: broken of daily
:COMMAND: sh -c 'echo "$HORAE_AFTER_ENTRY" >> told'
:END:
"""


@pytest.fixture(autouse=True)
def project(ground: Ground) -> None:
    ground.write("horae.toml", 'zone = "UTC"\nlisten = "127.0.0.1:0"\n')
    ground.write(".agentd/agents/reporter.yml", "name: reporter\ncommand: [cat]\n")
    ground.write(FILE, DAILY)
    ground.write("plan.org", ALERT)


async def edit(here: Engine, ground: Ground, text: str, name: str = FILE) -> None:
    """Save a file and let it be read."""
    ground.write(name, text)
    await read_again(here.app)
    await here.rest()


async def problems(here: Engine) -> tuple[str, ...]:
    return (await here.app.service.status(here.app.facts(), limit=10)).problems


@pytest.mark.parametrize(
    ("text", "why"),
    [
        pytest.param(DAILY.replace("daily", "daily: x"), "line 1: ", id="YAML"),
        pytest.param(DAILY.replace("0 9 ", "0 99 "), "line 3: the cron expression", id="cron"),
        pytest.param(
            DAILY.replace("prompt_template: Report.", "prompt_template_file: ../gone.md"),
            "line 4: prompt_template_file ../gone.md: ",
            id="template",
        ),
    ],
)
@story
async def test_a_broken_file_keeps_its_last_good_trigger_and_says_so_first(
    ground: Ground, text: str, why: str
) -> None:
    async with engine(ground) as here:
        await edit(here, ground, text)
        await edit(here, ground, text.rstrip("\n") + "\n\n")
        [told] = await here.receipts("daily")
        assert told.receipt.key == "broken:2026-04-01T08:00:00Z"
        first, *others = await problems(here)
        kept = (
            f"daily ({FILE}:1) has been broken since 2026-04-01T08:00:00Z; the last valid version"
        )
        assert first.startswith(f"{kept} stays armed: {why}")
        assert not [each for each in others if FILE in each]
        assert ground.root.joinpath("told").read_text() == "daily\n"
        why_said = await here.app.service.why(WhyQuestion("daily"))
        assert str(why_said.entry.broken).startswith(why)
        await here.until(EIGHT + HOUR + MINUTE)
        assert (await here.receipts("daily"))[-1].status is Status.DONE
    async with engine(ground, now=EIGHT + 2 * HOUR) as here:
        assert (await problems(here))[0].startswith(kept)
        assert len(await here.receipts("daily")) == 2
        await edit(here, ground, DAILY)
        assert await problems(here) == ()
        assert (await here.app.service.why(WhyQuestion("daily"))).entry.broken is None
        await edit(here, ground, DAILY.replace("0 9 * *", "0 0 31 2"))
        assert (
            await here.app.service.why(WhyQuestion("daily"))
        ).entry.reason == "the trigger is disabled"
        [never] = await problems(here)
        assert never.endswith("it matches no date")
        await edit(here, ground, DAILY)
        await edit(here, ground, text)
        assert ground.root.joinpath("told").read_text() == "daily\ndaily\n"
    shown = typed(
        "horae", "next", "--at", "2026-04-02T08:00:00Z", "-n", "1", "--json", at=ground.root
    )
    [fire] = shown.data  # no engine runs, and the next one fires it
    assert (fire["title"], fire["at"]) == ("daily", "2026-04-02T09:00:00Z")


@story
async def test_a_trigger_without_a_clock_can_be_broken_too_and_one_never_good_is_not_armed(
    ground: Ground,
) -> None:
    hook, new = FILE.replace("daily", "hook"), FILE.replace("daily", "new")
    ground.write(hook, HOOK)
    async with engine(ground) as here:
        await edit(here, ground, HOOK.replace("agent: reporter", "agent: nobody"), hook)
        await edit(here, ground, DAILY.replace("daily", "new").replace("0 9 ", "0 99 "), new)
        broken, never = await problems(here)
        assert broken.startswith(f"hook ({hook}:1) has been broken since 2026-04-01T08:00:00Z")
        assert broken.endswith("line 2: Agent 'nobody' not found (referenced by workflow 'hook')")
        assert never.startswith(f".agentd: {new}:3: the cron expression")
        assert {each.mark.title for each in await here.app.ledger.entries()} == {
            *("Tell", "daily", "hook")
        }
        # What somebody disables is not armed, whatever its file says.
        said = await type_("horae", "why", "new", at=ground.root)
        assert f"new  {new}:1\nnot armed: line 3: the cron expression" in said.out
        await here.app.triggers.update("hook", {"enabled": False})
        await read_again(here.app)
        await here.rest()
        assert (await problems(here))[0].startswith(f".agentd: {hook}:2: Agent 'nobody'")


@pytest.mark.parametrize(
    "text", [pytest.param(None, id="removed"), DAILY.replace("name: daily", "name: renamed")]
)
@story
async def test_what_was_removed_while_no_engine_ran_is_no_longer_in_the_plan(
    ground: Ground, text: str | None
) -> None:
    async with engine(ground):
        pass
    ground.root.joinpath(FILE).unlink()
    if text is not None:
        ground.write(FILE, text)
    async with engine(ground, now=EIGHT + DAY) as here:
        [closed] = await here.receipts("daily")
        assert (closed.status, closed.receipt.reason) == (Status.SKIPPED, "no longer in the plan")
        assert (
            await here.app.service.why(WhyQuestion("daily"))
        ).entry.reason == "no longer in the plan"
        await edit(here, ground, DAILY)
        assert (await here.app.service.why(WhyQuestion("daily"))).entry.armed
        await edit(here, ground, f"{DAILY}enabled: false\n")
        assert (
            await here.app.service.why(WhyQuestion("daily"))
        ).entry.reason == "the trigger is disabled"


@story
async def test_files_that_are_read_twice_at_once_are_applied_once(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def judge_and_wait(*args: Any, **named: Any) -> Any:
        judged = await judge_files(*args, **named)
        await asyncio.to_thread(time.sleep, 0.05)  # as if the ledger were slow
        return judged

    monkeypatch.setattr("horae.sources.triggers.files.judge_files", judge_and_wait)
    async with engine(ground) as here:
        ground.write(".agentd/workflows/hook.yml", HOOK)
        await asyncio.gather(*(read_again(here.app) for _ in range(5)))
        assert await problems(here) == ()
        assert sorted(
            each.definition.name for each in await here.app.context.trigger_store.of_files()
        ) == ["daily", "hook"]


@story
async def test_what_the_engine_has_read_meanwhile_is_no_conflict_for_apply(ground: Ground) -> None:
    async with engine(ground) as here:
        ground.write(".agentd/workflows/hook.yml", HOOK)
        folder = read_folder(f"{ground.root}/.agentd", environ={}, base=str(ground.root))
        changes, wrong = await judge_files(here.app.triggers, folder.definitions)
        assert (changes[-1].verb, changes[-1].name, wrong) == ("create", "hook", [])
        await read_again(here.app)
        await apply_changes(here.app.triggers, changes)
        assert (await here.app.triggers.find("hook")).definition.is_enabled


@story
async def test_a_file_that_comes_while_the_folder_is_read_is_not_taken_for_one_that_is_gone(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with engine(ground) as here:

        def read_and_apply(*args: Any, **named: Any) -> Any:
            found = read_folder(*args, **named)
            ground.write(".agentd/workflows/hook.yml", HOOK)
            folder = read_folder(f"{ground.root}/.agentd", environ={}, base=str(ground.root))

            async def apply() -> None:
                changes, _ = await judge_files(here.app.triggers, folder.definitions)
                await apply_changes(here.app.triggers, changes)

            asyncio.run_coroutine_threadsafe(apply(), loop).result(30)
            return found

        loop = asyncio.get_running_loop()
        with monkeypatch.context() as patch:
            patch.setattr("horae.sources.triggers.source.read_folder", read_and_apply)
            await read_again(here.app)
        assert (await here.app.triggers.find("hook")).definition.is_enabled


@story
async def test_a_file_of_another_project_is_not_taken_for_one_of_the_plan_that_is_gone(
    ground: Ground,
) -> None:
    project = ground.side / "project"
    file = project / ".agentd/workflows/hook.yml"
    file.parent.mkdir(parents=True)
    file.write_text(HOOK)
    async with engine(ground) as here:
        words = ("trigger", "apply", ".agentd", "--root", str(ground.root))
        applied = await type_("horae", *words, at=project)
        assert applied.code == 0, applied.err
        await read_again(here.app)
        hook = (await here.app.triggers.find("hook")).definition
        assert (hook.is_enabled, hook.file) == (True, str(file))


@story
async def test_a_variable_with_a_default_or_inside_a_text_changes_nothing_when_read_again(
    ground: Ground,
) -> None:
    agent = "name: reporter\ncommand: [cat]\nenv: {A: '${NOT_SET:-x}', B: 'https://${HOME}@host'}\n"
    ground.write(".agentd/agents/reporter.yml", agent)
    async with engine(ground) as here:
        last = await here.app.ledger.newest_event()
        await read_again(here.app)
        events = await here.app.ledger.events_after(last)
        assert [each.kind for each in events if each.kind == "edited"] == []
