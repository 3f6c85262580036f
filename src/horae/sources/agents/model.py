"""Calls a model until it is done: `python -I -m horae.sources.agents.model`, its input the order.

The text of the model, its tool calls and their results are printed as they come, one turn of the
transcript per line; a report is written to a file at the end.
"""

from __future__ import annotations

import asyncio
import ctypes
import json
import os
import signal
import sys
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from horae.core import tool_policy
from horae.core.clock import SystemClock
from horae.core.private import private_file
from horae.core.receipt import shown
from horae.errors import Exit, HoraeError
from horae.process.output import spellings_of
from horae.sources.agents.limits import retry_after
from horae.sources.agents.tools import Toolbox
from horae.sources.agents.transcript import Turn, TurnKind, counted, end_of, written

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pydantic_ai import Tool
    from pydantic_ai.usage import RunUsage


STEPS: Final = 60  # answers of the model in a run
TOKENS: Final = 2_000_000
CALL_SECONDS: Final = 300  # for an answer of the model
RETRIES: Final = 2  # of a call that the provider rejected as overloaded
DONE: Final = "Done"

_PR_SET_DUMPABLE: Final = 4


class MissingExtraError(HoraeError, code="missing_extra"):
    def __init__(self) -> None:
        self.reason = "the model runner needs the extra `model`"
        self.fix = "install Horae with the extra model: `pip install '.[model]'` in its clone"
        super().__init__(f"{self.reason}: {self.fix}")


@dataclass(frozen=True, slots=True)
class ModelOrder:
    """The order for a model; `key` and `secrets` are names of variables, never values."""

    agent: str
    model: str
    url: str
    key: str
    system: str
    prompt: str
    tools: dict[str, object]
    result: str  # the file of the report
    secrets: Sequence[str] = ()
    steps: int = STEPS
    tokens: int = TOKENS
    retries: int = RETRIES


@dataclass(frozen=True, slots=True)
class Report:
    text: str = ""
    error: str = ""
    model: str = ""
    steps: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    cost: float | None = None
    status: int | None = None  # of the provider's refusal
    resets_at: float | None = None  # the end of a limit, in seconds since 1970


def require_extra() -> None:
    try:
        import openai  # noqa: F401 - only whether it is there
        import pydantic_ai  # noqa: F401
    except ImportError:
        raise MissingExtraError from None


async def work(
    order: ModelOrder, *, environ: Mapping[str, str], work_in: Path, say: Callable[[Turn], None]
) -> Report:
    from pydantic_ai.usage import RunUsage

    secrets = [environ[name] for name in (order.key, *order.secrets) if environ.get(name)]
    raw = (each.encode("utf-8", "surrogateescape") for each in secrets)
    spellings = spellings_of(frozenset(raw))
    box = Toolbox(
        work_in,
        policy := tool_policy.parse_policy(order.tools),
        # Commands do not get the key of the model.
        environment={name: value for name, value in environ.items() if name != order.key},
        spellings=spellings,
        agent=order.agent,
        say=say,
    )
    say(Turn(TurnKind.START, order.model))
    usage = RunUsage()
    text, error, refused = "", "", _Refused()
    try:
        text = await _answer(order, box, policy, usage, key=environ.get(order.key, ""))
    except asyncio.CancelledError:
        error = "the run was terminated"
    except Exception as failure:  # a library has many errors, and each ends the run
        error, refused = _words(failure, order), _refused(failure)
    finally:
        box.close()
    return Report(
        text=box.mask(text),
        error=box.mask(error),
        model=order.model,
        steps=usage.requests,
        tokens_in=usage.input_tokens,
        tokens_out=usage.output_tokens,
        cost=_cost(order, usage),
        status=refused.status,
        resets_at=refused.resets_at,
    )


async def _answer(
    order: ModelOrder, box: Toolbox, policy: tool_policy.ToolPolicy, usage: RunUsage, *, key: str
) -> str:
    from openai import AsyncOpenAI
    from pydantic_ai import Agent, ToolOutput
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider
    from pydantic_ai.usage import UsageLimits

    def done(text: str) -> str:
        """End the run with a last word; if there was nothing to do, it begins with NO-WORK."""
        return text

    async with AsyncOpenAI(
        base_url=order.url, api_key=key or "none", max_retries=order.retries, timeout=CALL_SECONDS
    ) as client:
        agent = Agent(
            OpenAIChatModel(order.model, provider=OpenAIProvider(openai_client=client)),
            output_type=[str, ToolOutput(done, name=DONE)],
            instructions=order.system,
            deps_type=type(None),
            tools=_offered(box, policy),
            retries=2,
        )
        limits = UsageLimits(request_limit=order.steps, total_tokens_limit=order.tokens)
        async with agent.iter(order.prompt, usage_limits=limits, usage=usage) as run:
            said = None
            async for node in run:
                if agent.is_call_tools_node(node) and (said := node.model_response.text):
                    box.tell(TurnKind.TEXT, said)
        assert run.result is not None, "it has come to its end"
        answer = run.result.output
        if answer != said:  # it is in the last call
            box.tell(TurnKind.TEXT, answer)
        return answer


def _offered(box: Toolbox, policy: tool_policy.ToolPolicy) -> list[Tool[None]]:
    from pydantic_ai import Tool

    actions: dict[str, Callable[..., Any]] = {
        tool_policy.BASH: box.bash,
        tool_policy.READ: box.read,
        tool_policy.WRITE: box.write,
        tool_policy.EDIT: box.edit,
        tool_policy.GREP: box.grep,
        tool_policy.FETCH: box.web_fetch,
        tool_policy.GIT: box.git,
    }
    return [
        Tool(action, name=name, takes_ctx=False, sequential=True)
        for name, action in actions.items()
        if is_offered(policy, name)
    ]


def is_offered(policy: tool_policy.ToolPolicy, tool: str) -> bool:
    """Return whether a model gets a tool: WebFetch only if a pattern allows it by name."""
    if tool == tool_policy.FETCH:
        return policy.names(tool_policy.FETCH)
    is_in_part = any(pattern.tool == tool and pattern.argument for pattern in policy.tools)
    return is_in_part or tool_policy.decide(policy, tool, "x") is not tool_policy.Answer.DENY


def _cost(order: ModelOrder, usage: RunUsage) -> float | None:
    from decimal import Decimal

    from genai_prices import calc_price

    try:
        price = calc_price(usage, order.model, provider_api_url=order.url).total_price
    except (LookupError, ValueError):
        return None
    return float(round(Decimal(price), 6))


class _Refused(NamedTuple):
    status: int | None = None
    resets_at: float | None = None


def _refused(failure: Exception) -> _Refused:
    from openai import APIConnectionError, APIStatusError
    from pydantic_ai.exceptions import ModelHTTPError

    cause = failure.__cause__
    if isinstance(cause, APIConnectionError):
        return _Refused(502)  # like a gateway that cannot reach it
    if not isinstance(failure, ModelHTTPError) or not isinstance(cause, APIStatusError):
        return _Refused()
    over = retry_after(cause.response.headers, now=SystemClock().now())
    return _Refused(failure.status_code, None if over is None else over.timestamp())


def _words(failure: Exception, order: ModelOrder) -> str:
    from pydantic_ai.exceptions import ModelHTTPError, UnexpectedModelBehavior, UsageLimitExceeded

    if isinstance(failure, UsageLimitExceeded):
        is_steps = "request_limit" in str(failure)
        most = f"{order.steps} steps" if is_steps else f"{order.tokens} tokens"
        return f"not finished after {most}"
    if isinstance(failure, ModelHTTPError):
        body = failure.body
        said = body.get("message", body) if isinstance(body, dict) else body
        return shown(f"the model {order.model} answered {failure.status_code}: {said}")
    said = shown(str(failure)) or type(failure).__name__
    if isinstance(failure, UnexpectedModelBehavior):
        return shown(f"the model {order.model} returned an invalid answer: {said}")
    return shown(f"the model {order.model} could not be called: {said}")


def main() -> int:
    """Run the order in the input; SIGTERM ends it, and the report is still written."""
    # Other processes of the user must not read our variables, where that can be prevented.
    with suppress(OSError, AttributeError):  # only Linux
        ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
    order = ModelOrder(**json.load(sys.stdin.buffer))

    def say(turn: Turn) -> None:
        sys.stdout.write(f"{written(turn)}\n")
        sys.stdout.flush()

    async def run() -> Report:
        task = asyncio.ensure_future(work(order, environ=os.environ, work_in=Path.cwd(), say=say))
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
        return await task

    try:
        require_extra()
        report = asyncio.run(run())
    except MissingExtraError as error:
        report = Report(error=str(error), model=order.model)
    # Without a report the run fails with that reason.
    with suppress(OSError), private_file(order.result) as file:
        file.write(json.dumps(asdict(report)).encode())
    if report.error:
        say(Turn(TurnKind.ERROR, report.error))
    say(
        end_of(counted(report.steps, "step"), report.tokens_in, report.tokens_out, cost=report.cost)
    )
    return Exit.FINDINGS if report.error else Exit.OK


if __name__ == "__main__":
    sys.exit(main())
