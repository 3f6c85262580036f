"""Usage limits with real processes that replay what programs have said."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections import Counter
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from commands import is_healthy, start_command
from horae.app import build, keep
from horae.client import connect
from horae.config import load
from horae.core.clock import SystemClock
from horae.core.explain import run_words
from horae.core.ports import receipts_of
from horae.core.receipt import FINAL, ReasonCode, Status
from horae.core.views import attempts
from horae.sources.agents import limits, programs
from scale import scaled
from waiting import until, wait_until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine

    from horae.app import App
    from horae.core.receipt import Filed

DATA = Path(__file__).parents[2] / "data" / "programs"
HOUR = timedelta(hours=1)
# What a program prints first is what it was let say; then it answers.
PROGRAM = """\
#!/bin/sh
cat > {side}/told
echo "$HORAE_AGENT {name}" >> {side}/starts
[ -e {side}/{name}.open ] && cat {good} && exit 0
cat {side}/{name}.says
exit 1
"""


def story(test: Callable[..., Coroutine[object, object, None]]) -> Callable[..., None]:
    @wraps(test)
    def told(*args: object, **kwargs: object) -> None:
        asyncio.run(test(*args, **kwargs))

    return told


class AheadClock(SystemClock):
    """The clock of the machine, and what a test adds to it."""

    def __init__(self) -> None:
        self.by = timedelta()

    def now(self) -> datetime:
        return super().now() + self.by

    def elapsed(self) -> timedelta:
        return super().elapsed() + self.by


class Ground:
    """A plan root with agents whose programs replay streams."""

    def __init__(self, place: Path) -> None:
        self.root, self.side = place / "plan", place / "side"
        self.clock = AheadClock()
        for each in (self.root, self.side):
            each.mkdir()
        (self.root / "horae.toml").write_text('zone = "UTC"\n[crew]\ndef = "crew.org"\n')
        (self.root / "crew.org").write_text("")

    def program(self, name: str, says: str, good: str = "claude-stream-tools.jsonl") -> None:
        path = self.side / name
        text = PROGRAM.format(side=self.side, name=name, good=DATA / good)
        path.write_text(text)
        path.chmod(0o755)
        (self.side / f"{name}.says").write_text(says)

    def open(self, name: str) -> None:
        (self.side / f"{name}.open").touch()

    def member(self, name: str, command: str, *lines: str) -> None:
        drawer = "".join(f"{each}\n" for each in (f":COMMAND: {command}", *lines))
        text = f"* {name} :agent:\n:PROPERTIES:\n{drawer}:END:\n** System prompt\nWork.\n"
        (self.root / f"{name}.org").write_text(text)
        with (self.root / "crew.org").open("a") as crew:
            crew.write(f"* {name}\n:PROPERTIES:\n:DEF: {name}.org\n:INTERVAL: 24h\n:END:\n")

    def starts(self) -> Counter[str]:
        path = self.side / "starts"
        return Counter(path.read_text().splitlines() if path.exists() else ())

    @asynccontextmanager
    async def kept(self) -> AsyncIterator[App]:
        stop, turned = asyncio.Event(), asyncio.Event()
        async with build(load(self.root), clock=self.clock) as app:
            keeping = asyncio.create_task(keep(app, stop=stop, turned=turned.set))
            try:
                async with asyncio.timeout(60):
                    await turned.wait()
                yield app
            finally:
                stop.set()
                await keeping

    def pass_by(self, app: App, length: timedelta) -> None:
        self.clock.by += length
        app.engine.poke()


@pytest.fixture
def ground(tmp_path: Path) -> Ground:
    return Ground(tmp_path)


def rejected(resets_at: datetime) -> str:
    """Return the stream of a Claude Code whose account is over its limit."""
    info = {"status": "rejected", "resetsAt": int(resets_at.timestamp())}
    event = json.dumps({"type": "rate_limit_event", "rate_limit_info": info})
    return f"{event}\n{(DATA / 'claude-stream-limited.jsonl').read_text()}"


async def ticked(app: App, *names: str) -> None:
    for name in names:
        await app.service.tick(name)


async def standing(app: App, status: Status) -> list[Filed]:
    return await receipts_of(app.ledger, (status,))


async def are(app: App, status: Status, count: int) -> list[Filed]:
    async def look() -> bool:
        return len(await standing(app, status)) == count

    await until(look)
    return await standing(app, status)


async def ended(app: App, count: int) -> list[Filed]:
    async def look() -> list[Filed]:
        page = await app.ledger.receipts(statuses=FINAL, limit=1000)
        return list(page.receipts) if len(page.receipts) == count else []

    found: list[Filed] = await until(look)
    return found


@story
async def test_a_closed_window_costs_one_process_and_no_attempt_across_engines(
    ground: Ground,
) -> None:
    resets_at = ground.clock.now().replace(microsecond=0) + 3 * HOUR
    ground.program("claude", rejected(resets_at))
    names = [f"m{number}" for number in range(scaled(100, few=10))]
    for name in names:
        ground.member(name, f"{ground.side}/claude")
    async with ground.kept() as app:
        await ticked(app, names[0])
        [first] = await are(app, Status.HELD, 1)
        until_at = f"{resets_at:%Y-%m-%dT%H:%M:%S}Z"
        assert first.receipt.reason == f"until {until_at}: usage limit of claude"
        await ticked(app, *names[1:])
        held = await are(app, Status.HELD, len(names))
        assert {each.attempts for each in held} == {0}
        [run] = await app.ledger.runs_of(first.number)
        assert (run.outcome, run.facts["account"]) == (Status.LIMITED, "claude")
    async with ground.kept() as app:  # another engine knows of it
        assert await are(app, Status.HELD, len(names))
        ground.pass_by(app, 2 * HOUR)
        assert ground.starts() == Counter({f"{names[0]} claude": 1})
        ground.open("claude")
        ground.pass_by(app, HOUR)
        over = await ended(app, len(names))
        assert {(each.status, each.attempts) for each in over} == {(Status.DONE, 1)}
        begun = [(await app.ledger.runs_of(each.number))[-1].started_at for each in over]
        assert timedelta(0) <= min(begun) - resets_at < timedelta(seconds=60)
        assert sum(ground.starts().values()) == 1 + len(names)
        assert await app.ledger.limits() == []


def test_a_limit_and_what_it_holds_outlive_an_engine_that_is_killed(ground: Ground) -> None:
    resets_at = ground.clock.now().replace(microsecond=0) + 3 * HOUR
    ground.program("claude", rejected(resets_at))
    names = [f"m{number}" for number in range(10)]
    for name in names:
        ground.member(name, f"{ground.side}/claude")
    environ = {**os.environ, "HORAE_LISTEN": "127.0.0.1:0"}
    with (ground.side / "up.log").open("wb") as said, Path(os.devnull).open() as nothing:
        files = (nothing.fileno(), said.fileno(), said.fileno())
        engine = start_command(("horae", "up", str(ground.root)), environ=environ, files=files)
    try:
        wait_until(lambda: is_healthy(ground.root / ".horae"))
        client = connect(ground.root)

        def held() -> int:
            return sum(1 for each in client.history().receipts if each.status == "held")

        client.tick(names[0])
        wait_until(lambda: held() == 1)
        for name in names[1:]:
            client.tick(name)
        wait_until(lambda: held() == len(names))
    finally:
        engine.kill()
        engine.wait(60)

    async def after() -> None:
        async with ground.kept() as app:
            held = await are(app, Status.HELD, len(names))
            assert {each.attempts for each in held} == {0}
            ground.open("claude")
            ground.pass_by(app, 2 * HOUR)
            assert ground.starts() == Counter({f"{names[0]} claude": 1})
            ground.pass_by(app, HOUR)
            over = await ended(app, len(names))
            assert {(each.status, each.attempts) for each in over} == {(Status.DONE, 1)}
            assert sum(ground.starts().values()) == 1 + len(names)

    asyncio.run(after())


@story
async def test_a_tick_without_room_in_the_budget_of_its_agent_is_skipped_and_a_task_is_held(
    ground: Ground,
) -> None:
    ground.program("agent", "", "llm-no-work.txt")
    ground.open("agent")
    ground.member("wren", f"{ground.side}/agent", ":BUDGET: 1 run/day")
    board = ground.root / "board" / "tasks"
    board.mkdir(parents=True)
    async with ground.kept() as app:
        await ticked(app, "wren")
        await ended(app, 1)
        await ticked(app, "wren")
        [tick, _] = await ended(app, 2)
        assert (tick.status, tick.receipt.reason.code) == (Status.SKIPPED, ReasonCode.BUDGET)
        (board / "1.md").write_text("---\nid: 1\ntitle: Sow\nstatus: todo\n---\nSow.\n")
        ground.pass_by(app, timedelta(seconds=8))
        [work] = await are(app, Status.HELD, 1)
        assert (work.title, work.receipt.reason.code) == ("Sow", ReasonCode.BUDGET)
        assert "status: todo" in (board / "1.md").read_text()
        assert ground.starts() == Counter({"wren agent": 1})


def message(tokens: tuple[int, int], part: str = "tool_use") -> str:
    """Return what Claude Code prints of one message, at $3 and $15 for a million tokens."""
    usage = dict(zip(("input_tokens", "output_tokens"), tokens, strict=True))
    said = {"id": "msg_1", "model": "claude-sonnet-4-5", "content": [{"type": part}]}
    return json.dumps({"type": "assistant", "message": said | {"usage": usage}}) + "\n"


@pytest.mark.parametrize(
    ("prints", "why", "cost"),
    [
        (
            message((100_000, 50_000), "text"),
            "the run exceeded the budget $1/day of agent:wren: $1.05 spent",
            1.05,
        ),
        (
            message((100_000, 20_000)),
            "the next message of the run would exceed the budget $1/day of agent:wren: $0.60 spent",
            0.6,
        ),
        # It has ended itself, since it was told with --max-budget-usd what is left.
        ((DATA / "claude-stream-budget.jsonl").read_text(), "Reached maximum budget ($0.1)", 0.375),
    ],
)
@story
async def test_a_run_is_ended_at_its_budget(
    ground: Ground, prints: str, why: str, cost: float
) -> None:
    ground.program("claude", prints)
    rest = "exit 1" if "Reached" in why else "exec sleep 60"
    script = ground.side / "claude"
    script.write_text(script.read_text().replace("exit 1", rest))
    ground.member("wren", f"{ground.side}/claude", ":BUDGET: $1/day")
    async with ground.kept() as app:
        await ticked(app, "wren")
        [over] = await ended(app, 1)
        reason = over.receipt.reason
        assert (over.status, reason, reason.code) == (Status.KILLED, why, ReasonCode.BUDGET)
        [run] = await app.ledger.runs_of(over.number)
        assert run.facts["cost"] == cost


@story
async def test_two_accounts_of_one_program_do_not_hold_each_other(ground: Ground) -> None:
    ground.program("claude", rejected(ground.clock.now() + HOUR))
    ground.member("wren", f"{ground.side}/claude")
    ground.member("moss", f"{ground.side}/claude", ":ACCOUNT: work")
    ground.member("fern", f"{ground.side}/claude", ":ACCOUNT: work")
    async with ground.kept() as app:
        await ticked(app, "wren")
        await are(app, Status.HELD, 1)
        ground.open("claude")
        await ticked(app, "moss", "fern")
        assert {each.title for each in await ended(app, 2)} == {"moss", "fern"}
        assert [each.account for each in await app.ledger.limits()] == ["claude"]


@story
async def test_at_the_end_of_a_limit_one_goes_first_and_if_it_is_limited_again_no_other(
    ground: Ground,
) -> None:
    limited = (DATA / "codex-stream-limited.jsonl").read_text()
    ground.program("codex", limited.replace(" or try again at 6:20 PM", ""))
    for name in ("wren", "moss", "fern"):
        ground.member(name, f"{ground.side}/codex")
    async with ground.kept() as app:
        await ticked(app, "wren")
        await are(app, Status.HELD, 1)
        await ticked(app, "moss", "fern")
        await are(app, Status.HELD, 3)
        for tries in (1, 2, 3):
            [limit] = await app.ledger.limits()
            assert limit.until_at - ground.clock.now() <= timedelta(minutes=2 ** (tries - 1))
            ground.pass_by(app, limit.until_at - ground.clock.now())

            async def look(tries: int = tries) -> bool:
                [limit] = await app.ledger.limits()
                return limit.tries == tries and len(await standing(app, Status.HELD)) == 3

            await until(look)
        assert sum(ground.starts().values()) == 4


@story
async def test_else_answers_in_the_same_receipt_after_a_limit_and_not_after_a_failure(
    ground: Ground,
) -> None:
    ground.program("claude", rejected(ground.clock.now() + HOUR))
    ground.program("codex", "", "codex-stream-tools.jsonl")
    ground.open("codex")
    ground.member("wren", f"{ground.side}/claude", f":ELSE: {ground.side}/codex exec")
    ground.member("moss", f"{ground.side}/claude", f":ELSE: {ground.side}/codex exec")
    async with ground.kept() as app:
        await ticked(app, "wren")
        [wren] = await ended(app, 1)
        assert (wren.status, wren.attempts) == (Status.DONE, 1)
        assert wren.receipt.reason.endswith(f"(answered by {ground.side}/codex exec)")
        first, second = await app.ledger.runs_of(wren.number)
        assert (first.outcome, second.outcome) == (Status.LIMITED, Status.DONE)
        assert second.facts["by"] == f"{ground.side}/codex exec"
        words = [run_words(each, "UTC") for each in attempts([first, second], "UTC")]
        assert [each.partition(": started")[0] for each in words] == [
            f"run {first.number}",  # it was limited, and used no attempt
            f"attempt 1 (run {second.number})",
        ]
        await ticked(app, "moss")  # the limit is known: it is not asked again
        await ended(app, 2)
        assert ground.starts() == Counter({"wren claude": 1, "wren codex": 1, "moss codex": 1})


@story
async def test_an_error_of_the_provider_is_answered_by_else_and_a_failure_is_not(
    ground: Ground,
) -> None:
    failed = (DATA / "claude-stream-failed.jsonl").read_text()
    ground.program("claude", failed)
    ground.program("codex", "", "codex-stream-tools.jsonl")
    ground.open("codex")
    ground.member("wren", f"{ground.side}/claude", f":ELSE: {ground.side}/codex exec")
    ground.program("plain", "", "llm-no-work.txt")
    ground.open("plain")
    ground.member("moss", f"{ground.side}/claude", f":ELSE: {ground.side}/plain")
    async with ground.kept() as app:
        await ticked(app, "wren")
        [wren] = await ended(app, 1)
        assert (wren.status, wren.attempts) == (Status.FAILED, 1)
        refused = failed.replace('"api_error_status":400', '"api_error_status":502')
        ground.program("claude", refused)
        await ticked(app, "wren")
        [wren, _] = await ended(app, 2)
        assert (wren.status, wren.attempts) == (Status.DONE, 1)
        [first, _] = await app.ledger.runs_of(wren.number)
        assert first.reason.code == ReasonCode.PROVIDER_ERROR
        await ticked(app, "moss")
        [moss, *_] = await ended(app, 3)
        assert moss.receipt.reason.endswith(f"(answered by {ground.side}/plain)")


# What is read


@pytest.mark.parametrize(
    ("says", "resets_at"),
    [
        ("You've hit your session limit · resets 3:10am (America/Bogota)", "2026-11-19T08:10Z"),
        ("You've hit your limit · resets Jan 18, 11:30am (Asia/Calcutta)", "2027-01-18T06:00Z"),
        (
            "You've hit your usage limit. Try again in 3 days 6 hours 8 minutes.",
            "2026-11-22T04:08Z",
        ),
        ("You’ve hit your usage limit, try again at Dec 1st, 2026 12:30 AM.", "2026-12-01T00:30Z"),
        ("Claude AI usage limit reached|1795000000", "2026-11-18T11:06:40Z"),
        ('{"type": "usage_limit_reached", "resets_in_seconds": 90}', "2026-11-18T22:01:30Z"),
        (
            "You have exhausted your capacity. Your quota will reset after 1h2m3s.",
            "2026-11-18T23:02:03Z",
        ),
        ("rate_limit_error: This request would exceed your account's rate limit.", None),
    ],
)
def test_a_limit_is_read_with_the_time_at_which_it_is_over(
    says: str, resets_at: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert limits.fault_in(says) is limits.Fault.LIMIT
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    found = limits.reset_in(says, now=datetime(2026, 11, 18, 22, tzinfo=UTC))
    assert found == (None if resets_at is None else datetime.fromisoformat(resets_at))


@pytest.mark.parametrize("name", ["claude", "codex"])
def test_a_recorded_stream_says_that_the_account_is_limited(name: str) -> None:
    printed, now = (DATA / f"{name}-stream-limited.jsonl").read_text(), datetime.now(UTC)
    found = programs.read_answer(printed, programs.Answers(name), now=now, code=1)
    assert found.fault is limits.Fault.LIMIT
    assert (found.resets_at is not None) == (name == "codex")


def test_a_limit_that_did_not_end_the_run_is_none() -> None:
    info = {"status": "allowed_warning", "resetsAt": 1795000000}
    told = json.dumps({"type": "rate_limit_event", "rate_limit_info": info})
    for name, event in (
        ("claude-stream-tools.jsonl", rejected),
        ("claude-stream-failed.jsonl", None),
    ):
        printed = (DATA / name).read_text()
        known = told if event is None else event(datetime.now(UTC)).splitlines()[0]
        found = programs.read_answer(
            f"{known}\n{printed}", programs.Answers.CLAUDE, now=datetime.now(UTC)
        )
        assert found.fault is None
