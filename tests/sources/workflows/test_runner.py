"""A workflow runs its blocks in order, says how each ended and where it is written, and leaves nothing."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import shutil
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path

import pytest
from msgspec import to_builtins

from horae.core.ports import Ended, Held, RunError, Runner, Unreleased
from horae.core.receipt import Status
from horae.process.logs import RunLog, clear, tidy
from horae.process.processes import LOG_NAME, can_kill_trees
from horae.sources.workflows.record import RECORD, read_record
from process.stage import HOSTILE
from reasons import because
from scale import scaled
from sources.workflows.stage import flow, job, marked, only, step, tasks, yard
from store.ledger_suite import story
from waiting import until, wait_until

pytestmark = pytest.mark.skipif(not can_kill_trees(), reason="looks into /proc, needs pidfds")

QUIET = HOSTILE.replace("yes hostile", "yes hostile >/dev/null")  # no flood: that has its own end
EXAMPLES = Path(__file__).parents[3] / "examples" / "digest"


def needs(*programs: str) -> pytest.MarkDecorator:
    missing = [each for each in programs if shutil.which(each) is None]
    return pytest.mark.skipif(bool(missing), reason=f"this machine has no {', '.join(missing)}")


# What flows


@story
async def test_each_step_is_given_what_its_producer_put_out_and_the_first_the_input(
    tmp_path: Path,
) -> None:
    text = flow(
        step("Last", "sh", "sed s/^/3/", ":in b"),
        step("First", "sh", "sed s/^/1/", ":out a"),
        step("Middle", "python", "print('2' + input())", ":in a :out b"),
        step("Alone", "sh", "cat", ":out c"),
    )
    async with yard(tmp_path) as place:
        record = await place.run(text, input=b"x\n")
        assert tasks(record) == {"Last": "321x", "First": "1x", "Middle": "21x", "Alone": "x"}
        assert (record.outcome, record.reason) == (Status.DONE, "4 steps")
        data = to_builtins(record)
    assert list(data)[:5] == ["workflow", "schedule", "exports", "tasks", "sub_workflows"]
    assert (data["workflow"], data["exports"]) == ("Flow", ["c"])
    assert read_record(place.data / "runs" / f"{record.started_at:%Y-%m-%d}" / "r1")


@story
async def test_pipes_carry_exact_bytes_and_records_trimmed_text_or_base64(tmp_path: Path) -> None:
    raw = bytes(range(256)) * 300
    emit = "import sys; sys.stdout.buffer.write(bytes(range(256)) * 300)"
    check = "import sys; d = sys.stdin.buffer.read(); print(d == bytes(range(256)) * 300)"
    text = flow(
        step("Emit", "python", emit, ":out raw"),
        step("Check", "python", check, ":in raw"),
        step("Blank", "sh", "printf '\\n  kept  \\n\\n'", ":out blank"),
        step("Count", "sh", "wc -c", ":in blank"),
    )
    async with yard(tmp_path) as place:
        record = await place.run(text)
    found = tasks(record)
    assert found["Check"] == "True"
    assert found["Emit"] == base64.b64encode(raw).decode()
    assert (only(record, "Emit").encoding, only(record, "Emit").size) == ("base64", len(raw))
    assert (found["Blank"], found["Count"]) == ("kept", "11")


@story
async def test_a_step_works_in_a_scratch_directory_with_few_variables_and_its_facts(
    tmp_path: Path,
) -> None:
    script = "touch kept; pwd; env; ls"
    text = "* Flow :workflow:\n:PROPERTIES:\n:ENV: SECRET\n:END:\n"
    async with yard(tmp_path) as place:
        plain = await place.run(flow(step("Env", "sh", script, ":uses workbook:vfs/query")))
        asked = await place.run(text + step("Env", "sh", 'echo "$SECRET"'))
        said = tasks(plain)["Env"] or ""
        assert "SECRET" not in said
        assert "HORAE_STEP=Env" in said
        assert "HORAE_USES=workbook:vfs/query" in said
        assert f"HORAE_PLAN_DIR={place.root}" in said
        assert not Path(said.splitlines()[0]).exists(), "the scratch is gone"
        assert tasks(asked)["Env"] == "s3cret"
        assert all(name.endswith(("/record.json", "/output.log")) for name in place.left())


UNTIDY = {
    "a file in its directory": "touch left",
    "a directory": "mkdir -p left/deep",
    "a name that is hidden": "touch .left",
    "a file beside its own": "touch ../left",
    "other rights": "chmod 755 .",
    "no rights": "chmod 000 .",
    "no directory": "rmdir ../.work",
    "a link in place of its directory": "rmdir ../.work; ln -s /tmp ../.work",
    "a directory in place of its file": "rm ../block.sh; mkdir ../block.sh",
    "no file": "rm ../block.sh",
    "words": "echo aside >&2",
    "nothing": "true",
}


@pytest.mark.parametrize("script", UNTIDY.values(), ids=UNTIDY.keys())
@story
async def test_no_step_finds_what_another_has_left(tmp_path: Path, script: str) -> None:
    look = "echo $(ls -A) $(stat -c %a .) $(ls -A ..)\n"
    text = flow(*(step(f"S{n}", "sh", look + script, f":in o{n - 1} :out o{n}") for n in range(5)))
    async with yard(tmp_path) as place:
        record = await place.run(text)
        assert record.is_good, record.reason
        assert set(tasks(record).values()) == {"700 .work block.sh"}
        assert all(name.endswith(("/record.json", "/output.log")) for name in place.left())


@story
async def test_a_chain_of_steps_needs_few_directories_and_one_supervisor(tmp_path: Path) -> None:
    script = "pwd; cut -d' ' -f4 /proc/$PPID/stat >/dev/null; echo $PPID"
    text = flow(*(step(f"S{n}", "sh", script, f":in o{n - 1} :out o{n}") for n in range(20)))
    async with yard(tmp_path) as place:
        said = [(each or "").splitlines() for each in tasks(await place.run(text)).values()]
    assert len({supervisor for _, supervisor in said}) == 1
    assert len({directory for directory, _ in said}) <= 2


def chain(*scripts: str) -> str:
    """Return steps of which each takes what the one before it puts out."""
    return flow(
        *(step(f"S{n}", "sh", body, f":in o{n - 1} :out o{n}") for n, body in enumerate(scripts))
    )


@pytest.mark.parametrize("bad", [0, 1, 7])
@story
async def test_in_a_chain_nothing_begins_after_a_step_that_failed(tmp_path: Path, bad: int) -> None:
    effects = tmp_path / "effects"
    scripts = [f"cat; echo {n} | tee -a {effects}" for n in range(10)]
    scripts[bad] = "exit 3"
    async with yard(tmp_path) as place:
        record = await place.run(chain(*scripts))
        states = [str(each.status) for each in record.all_steps()]
    assert states == ["done"] * bad + ["failed"] + ["skipped"] * (9 - bad)
    done = effects.read_text().split() if effects.exists() else []
    assert done == [str(n) for n in range(bad)]
    if bad:
        assert (tasks(record)[f"S{bad - 1}"] or "").split() == done


@story
async def test_whenever_a_chain_is_cancelled_only_what_is_said_to_have_begun_has(
    tmp_path: Path,
) -> None:
    async with yard(tmp_path, grace=timedelta(0)) as place:
        for turn in range(scaled(100)):
            effects = tmp_path / f"effects-{turn}"
            run = await place.held(chain(*(f"echo {n} >> {effects}" for n in range(30))))
            run.go()
            await until(effects.exists, within=20)
            await asyncio.sleep(turn * 0.0007)
            run.cancel("enough")
            assert (await run.ended()).outcome in {Status.KILLED, Status.DONE}
            assert not marked(place.data)
            begun = [n for n, each in enumerate(run.record.all_steps()) if each.started_at]
            assert [int(each) for each in effects.read_text().split()] in (begun, begun[:-1])


@story
async def test_a_chain_ends_with_the_wall_clock_of_its_run(tmp_path: Path) -> None:
    async with yard(tmp_path, timeout=timedelta(seconds=1)) as place:
        record = await place.run(chain(*["sleep 0.3"] * 20))
        states = [str(each.status) for each in record.all_steps()]
        assert record.outcome is Status.KILLED
        assert states.count("killed") <= 1
        assert states[-10:] == ["skipped"] * 10
        assert not marked(place.data)


@pytest.mark.parametrize("size", [1 << 15, (1 << 15) + 1])
@story
async def test_short_and_long_input_and_output_are_the_same_to_a_step(
    tmp_path: Path, size: int
) -> None:
    text = flow(
        step("A", "sh", "cat", ":out a"),
        step("B", "sh", "cat; exit 3", ":in a :out b"),
        step("C", "sh", "sha256sum | cut -d' ' -f1", ":in a"),
    )
    data = os.urandom(size)
    async with yard(tmp_path) as place:
        record = await place.run(text, input=data)
        kept = place.data / "runs" / f"{record.started_at:%Y-%m-%d}" / "r1"
        assert tasks(record)["C"] == sha256(data).hexdigest() == only(record, "A").sum
        # It failed, so what was done is kept: it can be taken up again.
        assert (kept / (only(record, "A").output or "")).read_bytes() == data
        again = await place.run(text, input=data, resume=kept)
    assert only(again, "A").status == "reused"


@story
async def test_steps_of_a_wave_run_at_the_same_time(tmp_path: Path) -> None:
    meet = "touch ../../{me}; until test -e ../../{other}; do sleep 0.01; done"
    text = flow(
        step("A", "sh", meet.format(me="a", other="b")),
        step("B", "sh", meet.format(me="b", other="a")),
    )
    async with yard(tmp_path) as place:
        assert (await place.run(text)).outcome is Status.DONE


@story
async def test_workflows_inside_a_workflow_come_after_it_with_the_same_input(
    tmp_path: Path,
) -> None:
    inner = step("Inner", "sh", "cat").replace("** ", "*** ")
    text = flow(step("Outer", "sh", "sed s/^/o/")) + f"** Child :workflow:\n{inner}"
    async with yard(tmp_path) as place:
        record = await place.run(text, input=b"x")
        child = to_builtins(record)["sub_workflows"][0]
        assert (child["workflow"], child["tasks"], child["status"]) == (
            "Child",
            {"Inner": "x"},
            "done",
        )
        assert place.told.index(("Outer", "done")) < place.told.index(("Inner", "running"))


@story
async def test_only_a_run_by_time_leaves_out_children_with_a_clock_of_their_own(
    tmp_path: Path,
) -> None:
    inner = step("Inner", "sh", "echo ran").replace("** ", "*** ")
    child = "** {} :workflow:\nSCHEDULED: {}\n" + inner
    text = flow(step("Outer", "sh", "cat"))
    text += child.format("Armed", "<2026-06-06 Sat 06:00 +1d>")
    text += child.format("Noted", "[2026-06-06 Sat 06:00 +1d]")
    statuses = {}
    async with yard(tmp_path) as place:
        for number, key in enumerate(
            ["cron:2026-06-06T06:00:00Z", "at:2026-06-06T06:00:00Z", "manual:1"]
        ):
            held = await place.runner().hold(job(text, key=key, number=number))
            held.go()
            record = (await held.ended()).facts["record"]
            assert isinstance(record, dict)
            statuses[key[:3]] = [each["status"] for each in record["sub_workflows"]]
    assert statuses == {
        "cro": ["skipped", "done"],
        "at:": ["skipped", "done"],
        "man": ["done", "done"],
    }


@story
async def test_what_its_one_sink_says_first_is_what_a_workflow_says(tmp_path: Path) -> None:
    source = step("Look", "sh", "echo NO-WORK yet", ":out a")
    async with yard(tmp_path) as place:
        idle = await place.run(flow(source, step("Say", "sh", "cat", ":in a")))
        busy = await place.run(flow(source, step("Say", "sh", "echo two letters", ":in a")))
        sorry = await place.run(flow(step("Say", "sh", "echo FAILED: no post today")))
        two = await place.run(flow(source, step("Other", "sh", "echo NO-WORK")))
        none = await place.run("* Flow :workflow:\n")
    assert (idle.outcome, idle.reason) == (Status.NO_WORK, "NO-WORK yet")
    assert (busy.outcome, busy.reason) == (Status.DONE, "two letters")
    assert (sorry.outcome, sorry.reason) == (Status.FAILED, "no post today")
    assert two.outcome is Status.DONE
    assert (none.outcome, none.reason) == (Status.DONE, "no steps")


# What goes wrong


@story
async def test_a_step_that_fails_is_named_with_its_line_and_only_what_hangs_on_it_is_skipped(
    tmp_path: Path,
) -> None:
    text = flow(
        step(
            "Bad", "python", "\nimport sys\nprint('part')\nraise ValueError('no beans')", ":out a"
        ),
        step("Next", "sh", "cat", ":in a :out b"),
        step("Last", "sh", "cat", ":in b"),
        step("Other", "sh", "echo fine"),
    )
    async with yard(tmp_path) as place:
        record = await place.run(text)
    assert record.outcome is Status.FAILED
    assert record.reason == "Bad (plan.org:7): exit code 1: ValueError: no beans"
    bad = only(record, "Bad")
    assert (bad.line, bad.error_line, bad.exit_code) == (3, 7, 1)
    assert "Traceback" in (bad.stderr or "")
    assert tasks(record) == {"Bad": None, "Next": None, "Last": None, "Other": "fine"}
    later = [only(record, name) for name in ("Next", "Last")]
    assert {each.status for each in later} == {"skipped"}
    assert {each.error for each in later} == {"depends on Bad (plan.org:3), which failed"}


@story
async def test_a_missing_tool_is_said_before_anything_runs(tmp_path: Path) -> None:
    mark = tmp_path / "ran"
    text = flow(step("First", "sh", f"touch {mark}", ":out a"), step("Go", "go", "x", ":in a"))
    tools = tmp_path / "bin"
    tools.mkdir()
    for each in ("sh", "touch"):
        (tools / each).symlink_to(shutil.which(each) or "")
    async with yard(tmp_path, path=str(tools)) as place:
        record = await place.run(text)
    assert not mark.exists()
    assert record.reason == (
        f"Go (plan.org:7): a go block needs go: not found in the PATH ({tools});"
        " install Go (https://go.dev)"
    )
    assert only(record, "First").status == "skipped"


@needs("cc")
@story
async def test_a_block_that_does_not_compile_is_shown_with_its_line_in_the_plan(
    tmp_path: Path,
) -> None:
    text = flow(step("C", "c", "int main(void) {\n  return beans;\n}"))
    async with yard(tmp_path) as place:
        record = await place.run(text)
    found = only(record)
    assert (found.status, found.line, found.error_line) == ("failed", 3, 5)
    assert record.reason.startswith("C (plan.org:5): does not compile: block.c:2:")
    assert "beans" in (found.stderr or "")


@story
async def test_the_record_says_what_is_odd_in_the_wiring(tmp_path: Path) -> None:
    wires = (("A", ":in raw :out x"), ("B", ":out x"))
    text = flow(*(step(name, "sh", "true", args) for name, args in wires))
    async with yard(tmp_path) as place:
        record = await place.run(text)
    assert record.notes == [
        "A: input 'raw' is not the output of any component, so the step gets the input of its workflow",
        "A: 'x' is also an output of 'B'; the later one is used",
    ]


@story
async def test_what_can_never_run_is_refused_before_it_is_made(tmp_path: Path) -> None:
    plans = {
        flow(step("A", "sh", "", ":in b :out a"), step("B", "sh", "", ":in a :out b")): (
            "plan.org:11: these steps depend on each other: A → B → A; remove one :in"
        ),
        "* F :workflow:\n** C :component:\nProse.\n": "plan.org:11: component 'C' has no source block; write one",
        flow(
            step("C", "", "cat")
        ): "plan.org:11: component 'C' has a source block with no language; write one",
        flow(
            step("C", "sh", "cat", drawer=":MEMORY: lots\n")
        ): "plan.org:11: :MEMORY: lots: write a size such as 512M or 2G",
        "* Prose\n": "plan.org:10: the entry has no workflow",
    }
    async with yard(tmp_path) as place:
        for text, reason in plans.items():
            with pytest.raises(RunError) as told:
                await place.runner().hold(job(text, line=10))
            assert told.value.reason == reason
        with pytest.raises(RunError, match="100 levels deep"):
            await place.runner().hold(
                job("".join("*" * n + " W :workflow:\n" for n in range(1, 120)))
            )


@story
async def test_an_unknown_language_and_an_agent_without_agents_say_what_is_missing(
    tmp_path: Path,
) -> None:
    async with yard(tmp_path) as place:
        cobol = await place.run(flow(step("Old", "cobol", "DISPLAY 'X'.")))
        agent = await place.run(flow(step("Wren", "agent", "Be brief.")))
    assert cobol.reason.startswith(
        "Old (plan.org:3): blocks in 'cobol' cannot be run; supported languages: python, sh"
    )
    assert agent.reason == (
        "Wren (plan.org:3): an agent block needs an agent, and none is configured for this run"
    )


@story
async def test_a_step_that_takes_too_long_is_killed_and_the_run_fails(tmp_path: Path) -> None:
    text = flow(
        step("Slow", "sh", QUIET, ":out a", ":TIMEOUT: 200ms\n"),
        step("Next", "sh", "cat", ":in a"),
    )
    async with yard(tmp_path) as place:
        record = await place.run(text)
        assert marked(place.data) == []
    assert record.outcome is Status.FAILED
    assert record.reason == "Slow (plan.org:6): exceeded the time limit of 200ms"
    assert (only(record).status, only(record, "Next").status) == ("killed", "skipped")


@story
async def test_a_run_that_takes_too_long_is_killed_with_all_its_steps(tmp_path: Path) -> None:
    text = flow(
        step("A", "sh", "sleep 1000", ":out a"),
        step("B", "sh", "sleep 1000"),
        step("C", "sh", "sleep 1000"),
    )
    async with yard(tmp_path, timeout=timedelta(seconds=1)) as place:
        record = await place.run(text)
        assert marked(place.data) == []
    assert (record.outcome, record.reason) == (
        Status.KILLED,
        "exceeded the time limit of 1s",
    )
    assert sorted(each.status for each in record.all_steps()) == ["killed", "killed", "skipped"]


@story
async def test_a_flood_is_cut_off_at_the_limit_and_said(tmp_path: Path) -> None:
    ignore = "import signal, sys\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    stubborn = (
        ignore + "while True:\n    try: sys.stdout.write('x' * 65536)\n    except OSError: pass"
    )
    fits = "head -c 1048576 /dev/zero"
    text = flow(
        step("Flood", "sh", "yes", ":out a"),
        step("Stubborn", "python", stubborn),
        step("Fits", "sh", fits),
        step("Next", "sh", "cat", ":in a"),
    )
    async with yard(tmp_path, output=1 << 20) as place:
        record = await place.run(text)
        assert marked(place.data) == []
    flood = only(record, "Flood")
    assert (flood.status, flood.error) == (
        "killed",
        "the output is larger than the limit of 1 MiB",
    )
    assert only(record, "Stubborn").status == "killed"
    assert (only(record, "Fits").status, only(record, "Fits").size) == ("done", 1 << 20)
    assert only(record, "Next").status == "skipped"
    assert record.reason.startswith(
        "Flood (plan.org:3): the output is larger than the limit of 1 MiB"
    )


@story
async def test_a_step_that_reads_nothing_or_floods_its_stderr_is_well(tmp_path: Path) -> None:
    text = flow(
        step("Big", "sh", "head -c 3000000 /dev/zero", ":out a"),
        step("Deaf", "sh", "echo heard nothing", ":in a :out b"),
        step("Loud", "sh", "head -c 9000000 /dev/zero >&2; echo end >&2; echo said", ":in b"),
    )
    async with yard(tmp_path) as place:
        record = await place.run(text)
    assert (record.outcome, record.reason) == (Status.DONE, "said")
    assert (only(record, "Loud").stderr or "").endswith("end\n")
    assert len(only(record, "Loud").stderr or "") <= 4096
    assert (only(record, "Big").cut, len(tasks(record)["Big"] or "")) == (True, 1 << 20)


@story
async def test_children_that_a_step_leaves_behind_are_killed_and_do_not_hold_its_output(
    tmp_path: Path,
) -> None:
    text = flow(
        step("Forks", "sh", "setsid sleep 1000 & (sleep 1000 &) & echo gone", ":out a"),
        step("Next", "sh", "cat", ":in a"),
    )
    async with yard(tmp_path) as place:
        record = await place.run(text)
        assert marked(place.data) == []
    assert (record.outcome, tasks(record)["Next"]) == (Status.DONE, "gone")


@story
async def test_a_step_has_only_so_much_memory(tmp_path: Path) -> None:
    text = flow(step("Greedy", "python", "x = bytearray(1 << 30)", drawer=":MEMORY: 256M\n"))
    async with yard(tmp_path) as place:
        record = await place.run(text)
    assert record.reason == "Greedy (plan.org:7): exit code 1: MemoryError"


# Held, cancelled, looked back at


@story
async def test_nothing_runs_before_the_go_and_a_run_is_a_held_run_of_the_engine(
    tmp_path: Path,
) -> None:
    mark = tmp_path / "ran"
    async with yard(tmp_path) as place:
        runner: Runner = place.runner()
        held: Held = await runner.hold(job(flow(step("A", "sh", f"touch {mark}; env"))))
        assert held.process.pid == os.getpid()
        await asyncio.sleep(0.05)
        assert not mark.exists()
        held.go()
        held.go()
        ended = await held.ended()
    assert mark.exists()
    assert ended.outcome is Status.DONE
    record = ended.facts["record"]
    assert isinstance(record, dict)
    assert (record["run"], record["file"], record["line"]) == (7, "plan.org", 1)
    assert "HORAE_RUN=7\n" in record["tasks"]["A"]
    json.dumps(dict(ended.facts))


@story
async def test_a_cancel_ends_every_step_and_one_before_the_go_ends_without_running(
    tmp_path: Path,
) -> None:
    text = flow(step("A", "sh", QUIET), step("B", "sh", QUIET), step("C", "sh", QUIET))
    async with yard(tmp_path) as place:
        held = await place.held(text)
        held.go()
        await until(lambda: len(marked(place.data)) > 8, within=10)
        held.cancel("enough")
        ended = await held.ended()
        assert marked(place.data) == []
        assert (ended.outcome, ended.reason) == (Status.KILLED, "enough")
        statuses = sorted(each.status for each in held.record.all_steps())
        assert statuses == ["killed", "killed", "skipped"]
        early = await place.held(flow(step("A", "sh", f"touch {tmp_path}/ran")))
        early.cancel("never mind")
        assert await early.ended() == Ended(Status.KILLED, because("never mind"))
        early.go()
        assert not (tmp_path / "ran").exists()


@story
async def test_who_cancels_the_call_ends_all_that_it_started(tmp_path: Path) -> None:
    async with yard(tmp_path) as place:
        task = asyncio.create_task(place.run(flow(step("A", "sh", QUIET))))
        await until(lambda: len(marked(place.data)) > 4, within=10)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert marked(place.data) == []


@story
async def test_looking_back_tells_unreleased_ended_and_unknown_apart(tmp_path: Path) -> None:
    text = flow(step("A", "sh", "echo done"))
    async with yard(tmp_path) as place:
        runner = place.runner()
        asked = job(text)
        directory = place.place.directory_of(asked.run)

        async def back() -> Ended | Unreleased | None:
            return await runner.look_back(asked.filed, asked.run)

        assert await back() is None
        held = await runner.hold(asked)
        assert await back() == Unreleased()
        record = read_record(directory)
        assert record is not None
        # Written before another start of the machine, it may be older than what happened.
        (directory / RECORD).write_text(json.dumps(record | {"boot": "another"}))
        assert await back() is None
        held.go()
        assert await back() is None
        ended = await held.ended()
        assert await back() == ended
        (directory / RECORD).write_text(json.dumps(record | {"run": 8}))
        assert await back() is None
        (directory / RECORD).write_text('{"cut')
        assert await back() is None


@story
async def test_a_run_whose_record_cannot_be_written_runs_nothing(tmp_path: Path) -> None:
    async with yard(tmp_path) as place:
        held = await place.held(flow(step("A", "sh", f"touch {tmp_path}/ran")))
        clear(place.data / "runs")
        held.go()
        ended = await held.ended()
        assert ended.outcome is Status.FAILED
        assert "record of the run cannot be written" in ended.reason
        assert not (tmp_path / "ran").exists()


@story
async def test_a_disk_that_fails_is_a_failed_run_and_not_a_failed_engine(tmp_path: Path) -> None:
    async with yard(tmp_path) as place:
        descriptors = Path("/proc/self/fd")
        before = len(list(descriptors.iterdir()))
        held = await place.held(flow(step("A", "sh", "cat")))
        held.go()
        clear(place.data / "runs")
        ended = await held.ended()
        assert ended.outcome is Status.FAILED
        assert "No such file or directory" in ended.reason
        assert len(list(descriptors.iterdir())) == before


def test_steps_die_with_their_engine_and_leave_no_end(tmp_path: Path) -> None:
    script = (
        "import asyncio, sys\nfrom pathlib import Path\n"
        "from sources.workflows.stage import flow, job, step, yard\nfrom sources.workflows.test_runner import QUIET\n"
        "async def main():\n"
        "    async with yard(Path(sys.argv[1])) as place:\n"
        "        held = await place.runner().hold(job(flow(step('A', 'sh', QUIET))))\n"
        "        held.go(); await held.ended()\n"
        "asyncio.run(main())\n"
    )
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    engine = subprocess.Popen([sys.executable, "-c", script, str(tmp_path)], env=env)
    wait_until(lambda: len(marked(tmp_path / "data")) > 4, within=20)
    engine.kill()
    engine.wait()
    wait_until(lambda: not marked(tmp_path / "data"), within=10)

    async def look() -> None:
        async with yard(tmp_path) as place:
            asked = job("")
            assert await place.runner().look_back(asked.filed, asked.run) is None

    asyncio.run(look())


@story
async def test_a_large_record_stays_beside_the_run_and_the_ledger_is_told_where(
    tmp_path: Path,
) -> None:
    async with yard(tmp_path) as place:
        held = await place.runner().hold(job(flow(step("A", "sh", "yes | head -c 100000"))))
        held.go()
        ended = await held.ended()
        path = Path(str(ended.facts["record_file"]))
    assert len(json.loads(path.read_text())["tasks"]["A"]) == 99999


@story
async def test_the_long_output_of_a_run_is_packed_when_the_run_has_ended(tmp_path: Path) -> None:
    async with yard(tmp_path) as place:
        held = await place.runner().hold(job(flow(step("A", "sh", "yes | head -c 100000 >&2"))))
        runs, now = place.data / "runs", datetime.now(UTC)
        (running,) = runs.glob("*/*")
        (running / LOG_NAME).write_bytes(b"x" * 100_000)
        assert tidy(runs, now=now, keep=timedelta(days=9)) > 100_000  # the run has not ended
        held.go()
        await held.ended()
        assert tidy(runs, now=now, keep=timedelta(days=9)) < 10_000
        assert RunLog(running / LOG_NAME).end > 200_000


# Taken up again


@story
async def test_a_run_is_taken_up_where_it_was_left_unless_text_or_input_changed(
    tmp_path: Path,
) -> None:
    count = f"echo x >> {tmp_path}/times; cat"

    def plan(last: str, first: str = count) -> str:
        return flow(step("Costly", "sh", first, ":out a"), step("Last", "sh", last, ":in a"))

    def times() -> int:
        return len((tmp_path / "times").read_text().split())

    async with yard(tmp_path) as place:
        bad = await place.run(plan("exit 1"), input=b"beans")
        directory = next((place.data / "runs").glob("*/r1"))
        assert (bad.outcome, times()) == (Status.FAILED, 1)
        good = await place.run(plan("tr a-z A-Z"), input=b"beans", resume=directory)
        assert [each.status for each in good.all_steps()] == ["reused", "done"]
        assert (tasks(good)["Last"], times()) == ("BEANS", 1)
        other = await place.run(plan("cat"), input=b"peas", resume=directory)
        assert (tasks(other)["Last"], times()) == ("peas", 2)
        await place.run(plan("cat", first=count + "\n"), input=b"beans", resume=directory)
        assert times() == 3
        with pytest.raises(RunError, match="no record of a run"):
            await place.run(plan("cat"), resume=tmp_path)


@story
async def test_a_good_run_keeps_only_what_is_to_persist(tmp_path: Path) -> None:
    text = flow(
        step("Kept", "sh", "printf 'a\\nb\\n'", ":persist :out a"),
        step("Not", "sh", "cat", ":in a"),
    )
    async with yard(tmp_path) as place:
        record = await place.run(text)
        directory = next((place.data / "runs").glob("*/r1"))
        name = only(record, "Kept").output
        assert name is not None
        assert (directory / name).read_bytes() == b"a\nb\n"
        assert only(record, "Not").output is None
        again = await place.run(text, resume=directory)
        assert [each.status for each in again.all_steps()] == ["reused", "done"]
        assert sorted(each.name for each in directory.iterdir()) == [name, "output.log", RECORD]


@story
async def test_the_log_of_a_run_tells_each_step_and_what_it_said(tmp_path: Path) -> None:
    async with yard(tmp_path) as place:
        await place.run(flow(step("A", "sh", "echo careful >&2")))
        log = next((place.data / "runs").glob("*/r1/output.log"))
        head, said = log.read_text().splitlines()
        assert head.startswith("A (plan.org:3): done in ")
        assert said == "careful"
        assert log.stat().st_mode & 0o777 == 0o600


# Examples


@story
async def test_the_examples_run(tmp_path: Path) -> None:
    async with yard(tmp_path) as place:
        report = await place.run(
            (EXAMPLES / "weekly-report.org").read_text(), input=b"web 12\nmail 0\nsearch 7\n"
        )
    assert tasks(report) == {
        "Services": "web 12\nmail 0\nsearch 7",
        "Total": "19 requests per second",
        "Idle services": "mail",
    }
    assert [*report.children[0].tasks.values()] == ["3"]


@needs("node")
@story
async def test_the_example_without_a_compiler_runs(tmp_path: Path) -> None:
    async with yard(tmp_path) as place:
        text = (EXAMPLES / "top-words.org").read_text()
        record = await place.run(text, input=b"to be or not to be")
    assert tasks(record)["Draw"] == "be       ##\nto       ##\nnot      #\nor       #"


@needs("node", "rustc", "go")
@story
async def test_the_example_of_three_languages_runs(tmp_path: Path) -> None:
    text = (EXAMPLES / "nightly-digest.org").read_text()
    async with yard(tmp_path) as place:
        record = await place.run(text, input=b"login a\n# remark\n\nlogin b\nsale c\n")
    assert tasks(record)["Send"] == "Subject: Nightly digest\n\nLast night: 2 login, 1 sale."


@needs("node", "rustc")
@story
async def test_the_example_of_three_languages_runs_up_to_its_last_step(tmp_path: Path) -> None:
    text = (EXAMPLES / "nightly-digest.org").read_text().partition("** Send")[0]
    async with yard(tmp_path) as place:
        record = await place.run(text, input=b"login a\n# remark\n\nlogin b\nsale c\n")
        assert tasks(record)["Summarize"] == "2 login, 1 sale"
        again = await place.run(text, input=b"")
        assert tasks(again)["Summarize"] == "a quiet night"
        assert len(list((place.data / "cache" / "blocks").iterdir())) == 1
