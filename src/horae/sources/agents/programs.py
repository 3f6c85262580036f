"""Known agent programs: how each is called, and how its answer is parsed.

Each row was checked with the version of the program that it names. Untrusted text never becomes an
option: a value follows a `=`, or is a word that cannot begin with a dash.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import lru_cache
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from horae.core.budget import NOTHING, Usage, usage_of
from horae.core.ports import as_table, as_text, read_json
from horae.core.tool_policy import BASH, GIT, GREP, READ, Mode, Pattern, ToolPolicy
from horae.sources.agents.limits import Fault, at_epoch, fault_in, reset_in

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from datetime import datetime
    from pathlib import Path

PROMPT_FILE: Final = "{prompt_file}"  # in a command: the path of the file with the prompt
SESSION: Final = "{session}"  # in a row: the id of a session
_LAST: Final = 4000  # characters of an output that are searched for a limit
_CANDIDATES: Final = 64  # places where an answer may begin, from the end
_MOST: Final = 10**12  # of any count
_MODEL: Final = re.compile(r"[A-Za-z0-9@][\w.:/@+-]{0,199}", re.ASCII)


class Reach(StrEnum):
    PATTERNS = "patterns"  # each tool, and patterns
    READING = "reading"  # only that nothing is written
    NOTHING = "nothing"  # nothing: the policy is only part of the prompt


class Answers(StrEnum):
    TEXT = "text"  # the answer is the output
    CLAUDE = "claude"  # a line of JSON per event, the last one with `result`
    CODEX = "codex"  # a line of JSON per event
    GEMINI = "gemini"  # a line of JSON per event, or one object with `response`
    AIDER = "aider"  # text, with a line about tokens and cost
    LLM = "llm"  # text, with a line about tokens
    MODEL = "model"  # our own: one turn per line, and a file with the answer


@dataclass(frozen=True, slots=True)
class Program:
    name: str
    checked: str  # the version of the program
    always: tuple[str, ...] = ()  # options added unless the command has them
    model: str = ""  # the option for the model
    budget: str = ""  # the option for the budget, in dollars
    directory: str = ""  # the option for the working directory, which all get anyway
    prompt_option: str = ""  # the option for the file with the prompt; without it, stdin
    last: tuple[str, ...] = ()  # at the end of the command
    answers: Answers = Answers.TEXT
    reach: Reach = Reach.NOTHING
    reading: tuple[str, ...] = ()  # options that allow only reading
    outside: tuple[str, ...] = ()  # options for a directory outside of a repository
    short: tuple[tuple[str, str], ...] = (("--model", "-m"),)  # other spellings of options
    # Options by which a command sets its own tool policy, so that ours cannot be enforced.
    decides: frozenset[str] = frozenset()
    logins: tuple[str, ...] = ()  # variables that determine the login
    resume: tuple[str, ...] = ()  # options that resume a session, before the end


EVENTS: Final = frozenset({Answers.CLAUDE, Answers.CODEX, Answers.GEMINI, Answers.MODEL})
STREAMS: Final = frozenset({Answers.CLAUDE})  # report usage during the run
_CLAUDE_DECIDES: Final = frozenset({
    "--dangerously-skip-permissions", "--allow-dangerously-skip-permissions", "--allowedTools",
    "--allowed-tools", "--permission-mode", "--permission-prompt-tool", "--settings",
    "--setting-sources", "--mcp-config", "--plugin-dir", "--tools", "--agents", "--agent",
    "--add-dir",
})  # fmt: skip
_CODEX_DECIDES: Final = frozenset({
    "--dangerously-bypass-approvals-and-sandbox", "--dangerously-bypass-hook-trust", "--yolo",
    "--full-auto", "--approve-for-me", "--sandbox", "-s", "--config", "-c", "--profile", "-p",
    "--enable", "--search", "--add-dir",
})  # fmt: skip
_AIDER_OPTIONS: Final = (
    "--yes-always", "--no-stream", "--no-pretty", "--no-fancy-input", "--no-check-update",
    "--no-show-release-notes", "--no-analytics",
    "--no-detect-urls",  # it would fetch each, as all questions are answered with yes
    "--no-suggest-shell-commands", "--no-gitignore",
    "--chat-history-file=/dev/null", "--input-history-file=/dev/null",
)  # fmt: skip
UNKNOWN: Final = Program("", "")
# fmt: off
_PROGRAMS: Final = (
    Program("claude", "Claude Code 2.1.197",
            always=("-p", "--output-format=stream-json", "--verbose"), model="--model",
            budget="--max-budget-usd",
            answers=Answers.CLAUDE, reach=Reach.PATTERNS,
            short=(("-p", "--print"), ("--allowedTools", "--allowed-tools"), ("--resume", "-r")),
            decides=_CLAUDE_DECIDES, resume=(f"--resume={SESSION}",),
            logins=("CLAUDE_CONFIG_DIR", "ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN",
                    "ANTHROPIC_BASE_URL", "CLAUDE_CODE_OAUTH_TOKEN")),
    Program("codex", "Codex CLI 0.169.0", always=("exec", "--json", "--skip-git-repo-check"),
            model="--model", directory="--cd", last=("-",), answers=Answers.CODEX,
            reach=Reach.READING,
            reading=("--sandbox=read-only", '--config=web_search="disabled"'),
            short=(("--model", "-m"), ("--cd", "-C"), ("exec", "e")), decides=_CODEX_DECIDES,
            resume=("resume", SESSION),
            logins=("CODEX_HOME", "CODEX_API_KEY", "OPENAI_API_KEY", "OPENAI_BASE_URL")),
    # It refuses a directory that is not trusted interactively. Settings in its directory
    # count, and it can always search the web, so it enforces no policy.
    Program("gemini", "Gemini CLI 0.61.0", always=("--output-format=stream-json", "--skip-trust"),
            model="--model", answers=Answers.GEMINI, reading=("--approval-mode=plan",),
            short=(("--model", "-m"), ("--output-format", "-o")),
            decides=frozenset({"--approval-mode", "--yolo", "-y"}),
            logins=("GEMINI_API_KEY", "GOOGLE_API_KEY", "GOOGLE_CLOUD_PROJECT")),
    # Without --no-git it creates a missing repository.
    Program("aider", "aider 0.86.2", always=_AIDER_OPTIONS, model="--model",
            prompt_option="--message-file", answers=Answers.AIDER, outside=("--no-git",),
            short=(("--message-file", "-f"),)),
    Program("llm", "llm 0.30", always=("--no-stream", "--usage"), model="--model",
            answers=Answers.LLM, short=(("--model", "-m"), ("--usage", "-u"))),
)
# fmt: on
ROWS: Final = {row.name: row for row in _PROGRAMS}


@dataclass(frozen=True, slots=True)
class Result:
    text: str = ""
    error: str = ""  # why it failed, according to the answer
    is_read: bool = False  # whether the text is an answer, rather than the whole output
    tokens_in: int | None = None
    tokens_out: int | None = None
    cost: float | None = None  # in US dollars, as reported
    steps: int | None = None
    model: str = ""
    session: str = ""  # to resume
    is_estimate: bool = False  # whether the cost is computed from the tokens
    fault: Fault | None = None  # of the provider, if it is the cause of a failure
    resets_at: datetime | None = None  # the end of a limit

    def facts(self) -> dict[str, object]:
        counts = [each for each in (self.tokens_in, self.tokens_out) if each is not None]
        names = ("tokens_in", "tokens_out", "cost", "steps", "model", "session")
        facts: dict[str, object] = {"tokens": sum(counts) if counts else None}
        facts |= {name: getattr(self, name) for name in names}
        facts |= {"is_estimate": True} if self.is_estimate else {}
        return {name: value for name, value in facts.items() if value not in {None, ""}}

    def priced(self) -> Result:
        if self.cost is not None or not self.model or self.tokens_in is None:
            return self
        cost = price(self.model, TokenCounts(self.tokens_in, got=self.tokens_out or 0))
        return self if cost is None else replace(self, cost=cost, is_estimate=True)


@dataclass(frozen=True, slots=True)
class Called:
    argv: tuple[str, ...]
    answers: Answers
    wants_file: bool  # whether the prompt is in a file and not on stdin


def program_of(command: tuple[str, ...]) -> Program:
    """Return the row of a command's program, or an empty one if it is unknown.

    A command with a tool policy of its own cannot enforce another.

    >>> program_of(("/usr/bin/claude", "-p")).name, program_of(("my-agent",)).name
    ('claude', '')
    >>> program_of(("claude", "--permission-mode=acceptEdits")).reach.value
    'nothing'
    """
    row = ROWS.get(command[0].rpartition("/")[2] if command else "", UNKNOWN)
    if any(word.partition("=")[0] in row.decides for word in command[1:]):
        return replace(row, reach=Reach.NOTHING, reading=())
    return row


def is_model(name: str) -> bool:
    """Return whether a text is valid as the name of a model.

    >>> is_model("openai/gpt-5:free"), is_model("--yolo"), is_model("")
    (True, False, False)
    """
    return _MODEL.fullmatch(name) is not None


def can_keep(program: Program, policy: ToolPolicy) -> bool:
    if policy.is_open:
        return True
    if policy.mode is Mode.REQUIRE_APPROVAL or program.reach is Reach.NOTHING:
        return False
    return program.reach is Reach.PATTERNS or _only_reads(policy)


def call(
    command: tuple[str, ...],
    *,
    model: str | None,
    policy: ToolPolicy,
    work: Path,
    prompt_file: Path,
    left: str = "",  # of its budget, in dollars
    session: str = "",  # to resume
) -> Called:
    """Return the complete command; its own options take precedence over those of the row."""
    row = program_of(command)
    known = {PROMPT_FILE: str(prompt_file), "{model}": model or "", "{dir}": str(work)}
    argv = [known.get(word, word) for word in command]
    wants_file = PROMPT_FILE in command
    added = [word for word in row.always if not _has(command, word, row)]
    if model and row.model and not _has(command, row.model, row) and "{model}" not in command:
        added.append(f"{row.model}={model}")
    if left and row.budget and not _has(command, row.budget, row):
        added.append(f"{row.budget}={left}")
    if row.directory and not _has(command, row.directory, row):
        added.append(f"{row.directory}={work}")
    if row.prompt_option and not wants_file and not _has(command, row.prompt_option, row):
        added.append(f"{row.prompt_option}={prompt_file}")
        wants_file = True
    if row.outside and not any((each / ".git").exists() for each in (work, *work.parents)):
        added += [word for word in row.outside if not _has(command, word, row)]
    if not policy.is_open:
        is_spelled = row.reach is Reach.PATTERNS and can_keep(row, policy)
        added += _claude_limits(policy) if is_spelled else row.reading * _only_reads(policy)
    last = [] if wants_file else [word for word in row.last if word not in command]
    if session and row.resume and not _has(command, row.resume[0], row):
        last = [*(word.replace(SESSION, session) for word in row.resume), *last]
    # A subcommand must follow the program.
    verbs = [word for word in added if not word.startswith("-") and word in row.always]
    options = added[len(verbs) :]
    whole = (argv[0], *verbs, *argv[1:], *options, *last)
    answers = row.answers if _is_as_asked(command, row) else Answers.TEXT
    return Called(whole, answers, wants_file)


def account_of(command: tuple[str, ...], given: Mapping[str, str], login: str = "") -> str:
    """Return the account of a command: its program, and the login that it is *given*.

    Messages about limits are only known of some programs, and of those with a *login*.

    >>> account_of(("my-agent",), {}), account_of(("my-agent",), {}, "work")
    ('', 'my-agent (work)')
    >>> account_of(("/usr/bin/claude", "-p"), {}), account_of(("codex",), {}, "work")
    ('claude', 'codex (work)')
    >>> account_of(("claude",), {"CLAUDE_CONFIG_DIR": "/home/ada/work"})
    'claude (CLAUDE_CONFIG_DIR 501097)'
    """
    name = command[0].rpartition("/")[2] if command else ""
    row = ROWS.get(name, UNKNOWN)
    # A key is a secret, so only a part of its digest is shown.
    known = [f"{each} {_digest(given[each])}" for each in row.logins if given.get(each)]
    login = login or ", ".join(known)
    return f"{name} ({login})" if login else row.name


def read_answer(printed: str, answers: Answers, *, now: datetime, code: int | None = 0) -> Result:
    reader = _READERS.get(answers)
    found = None if reader is None else reader(printed)
    if found is None:
        found = _cut(printed) if answers in EVENTS else Result(printed.strip())
        if reader is not None and code != 0 and fault_in(printed[-_LAST:]) is not None:
            # It failed before an answer, and its whole output is the message.
            found = replace(found, text="", error=_last_line(printed), is_read=True)
    if not found.error:
        return replace(found, fault=None, resets_at=None)
    fault = found.fault or fault_in(found.error)
    resets_at = None if fault is not Fault.LIMIT else found.resets_at
    if fault is Fault.LIMIT and resets_at is None:
        resets_at = reset_in(printed[-_LAST:], now=now)
    return replace(found, fault=fault, resets_at=resets_at)


def _has(command: tuple[str, ...], option: str, row: Program) -> bool:
    name = option.partition("=")[0]
    forms = {name, dict(row.short).get(name, name), name.replace("--no-", "--", 1)}
    return any(word.partition("=")[0] in forms for word in command[1:])


def _is_as_asked(command: tuple[str, ...], row: Program) -> bool:
    form = next((word for word in row.always if word.startswith("--output-format")), None)
    if form is None or not _has(command, form, row):
        return True
    name = form.partition("=")[0]
    words = " ".join(command)
    for each in (name, dict(row.short).get(name, name)):
        given = words.replace(f"{each} ", f"{each}=").split()
        if not {f"{each}=stream-json", f"{each}=json"}.isdisjoint(given):
            return True
    return False


def _only_reads(policy: ToolPolicy) -> bool:
    tools = {each.tool for each in policy.tools}
    return policy.mode is Mode.ALLOW_LIST and bool(tools) and tools <= {READ, GREP}


def _claude_limits(policy: ToolPolicy) -> list[str]:
    # Settings in the working directory, which an agent can write, do not count. There is no user
    # to ask, so what is not allowed is denied.
    options = ["--setting-sources=user", "--strict-mcp-config"]
    spelled = [each for pattern in policy.tools for each in _in_claude(pattern)]
    if policy.mode is Mode.DENY_LIST:
        return [*options, "--disallowedTools", *spelled]
    spelled = spelled if policy.mode is Mode.ALLOW_LIST else []
    names = dict.fromkeys(each.partition("(")[0] for each in spelled)
    options += [f"--tools={','.join(names)}", "--permission-mode=dontAsk"]
    return [*options, "--allowedTools", *spelled] if spelled else options


def _in_claude(pattern: Pattern) -> tuple[str, ...]:
    if pattern.tool == GIT:
        return (f"{BASH}(git add:*)", f"{BASH}(git commit:*)")
    if pattern.tool == BASH and pattern.argument and not pattern.argument.startswith("* "):
        return (f"{BASH}({re.sub(r' [*]$', ':*', pattern.argument)})",)
    return (str(pattern),)


_SENT: Final = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")


def _claude(printed: str) -> Result | None:
    said = _last_object(printed, lambda each: each.get("type") == "result")
    if said is None:
        return None
    limit = _rejected(printed)
    # The tokens of `usage` lack side queries, which are only in the cost and in `modelUsage`.
    models = [as_table(each) for each in as_table(said.get("modelUsage")).values()]
    usage = as_table(said.get("usage"))
    of_model = ("inputTokens", "cacheCreationInputTokens", "cacheReadInputTokens")
    sent = _sum(each.get(kind) for each in models for kind in of_model)
    got = _sum(each.get("outputTokens") for each in models)
    text = as_text(said.get("result"))
    has_failed = said.get("is_error") is True or said.get("subtype", "success") != "success"
    errors = said.get("errors")
    listed = "; ".join(filter(None, map(as_text, errors if isinstance(errors, list) else [])))
    why = (
        text
        or listed
        or as_text(said.get("subtype"))
        or "the agent reported a failure without a reason"
    )
    fault = fault_in("", status=_count(said.get("api_error_status")))
    if said.get("subtype") == "error_max_budget_usd":
        fault = Fault.BUDGET
    return Result(
        text,
        why if has_failed else "",
        is_read=True,
        tokens_in=_sum(usage.get(kind) for kind in _SENT) if sent is None else sent,
        tokens_out=_count(usage.get("output_tokens")) if got is None else got,
        cost=_cost(said.get("total_cost_usd")),
        steps=(turns := _count(said.get("num_turns"))),
        model=_only(as_table(said.get("modelUsage"))),
        # It reports the session that it was to resume, even if it does not know it.
        session="" if turns == 0 else _session(said.get("session_id")),
        fault=Fault.LIMIT if limit else fault,
        resets_at=at_epoch(limit.get("resetsAt")),
    )


class TokenCounts(NamedTuple):
    sent: int = 0
    written: int = 0  # of these, written to a cache
    read: int = 0  # and read from a cache
    got: int = 0


@dataclass(slots=True)
class Meter:
    """The usage of a program so far, from its stream of events."""

    goes_on: bool = False  # whether the last message calls a tool, so that another one follows
    _of: dict[str, tuple[str, TokenCounts]] = field(default_factory=dict)  # with their models

    def feed(self, printed: str) -> bool:
        """Read printed lines; return whether any of them reports usage."""
        is_told = False
        for event in _events(printed):
            message = as_table(event.get("message"))
            usage = as_table(message.get("usage"))
            if event.get("type") != "assistant" or not usage:
                continue
            plain, written, read, got = (
                _count(usage.get(kind)) or 0 for kind in (*_SENT, "output_tokens")
            )
            # A message has an event for each of its parts, each with the whole usage.
            name = as_text(message.get("id")) or str(len(self._of))
            counts = TokenCounts(plain + written + read, written, read, got)
            self._of[name] = as_text(message.get("model")), counts
            parts = message.get("content")
            kinds = (
                [as_table(part).get("type") for part in parts] if isinstance(parts, list) else []
            )
            self.goes_on, is_told = "tool_use" in kinds, True
        return is_told

    def ahead(self, named: str = "") -> Usage:
        """Return what the next message may use, if there is one: as much as any before it."""
        if not self.goes_on:
            return NOTHING
        costs = [price(model or named, counts) or 0.0 for model, counts in set(self._of.values())]
        tokens = max(counts.sent + counts.got for _, counts in self._of.values())
        return usage_of({"cost": max(costs), "tokens": tokens})

    def total(self, named: str = "") -> Result:
        """Return the tokens and their cost; *named* is the model where an event names none."""
        of: dict[str, TokenCounts] = {}
        for model, counts in self._of.values():
            was = of.get(model or named, TokenCounts())
            of[model or named] = TokenCounts(*map(sum, zip(was, counts, strict=True)))
        costs = [each for each in map(price, of, of.values()) if each is not None]
        return Result(
            tokens_in=sum(each.sent for each in of.values()) if of else None,
            tokens_out=sum(each.got for each in of.values()) if of else None,
            cost=sum(costs) if costs else None,
            model=_only(of),
            is_estimate=bool(costs),
        )


@lru_cache(maxsize=1024)  # a look-up takes 0.4 ms, and a watched run asks again and again
def price(model: str, counts: TokenCounts) -> float | None:
    try:
        from genai_prices import Usage as Priced, calc_price
    except ImportError:  # the extra `model` is not installed
        return None
    usage = Priced(
        input_tokens=counts.sent,
        cache_write_tokens=counts.written,
        cache_read_tokens=counts.read,
        output_tokens=counts.got,
    )
    try:
        return _cost(float(calc_price(usage, model).total_price))
    except (LookupError, ValueError):
        return None


def _cut(printed: str) -> Result:
    meter = Meter()
    meter.feed(printed)
    names = (event.get("session_id") or event.get("thread_id") for event in _events(printed))
    session = next(filter(None, map(_session, names)), "")
    return replace(meter.total(), text=printed.strip(), session=session)


def _rejected(printed: str) -> Mapping[str, object]:
    """Return the last limit that rejected Claude Code; others are only warnings."""
    events = _events(printed)
    told = [
        as_table(e.get("rate_limit_info")) for e in events if e.get("type") == "rate_limit_event"
    ]
    return next((each for each in reversed(told) if each.get("status") == "rejected"), {})


def _codex(printed: str) -> Result | None:
    found = Result()
    steps = 0
    for event in _events(printed):
        kind, item = as_text(event.get("type")), as_table(event.get("item"))
        what = as_text(item.get("type"))
        if kind == "thread.started":
            found = replace(found, session=_session(event.get("thread_id")))
        elif kind == "item.completed" and what in {"agent_message", "assistant_message"}:
            found = replace(found, text=as_text(item.get("text")), is_read=True)
        elif kind == "item.completed" and what not in {"reasoning", "error"}:
            steps += 1
        elif kind == "turn.completed":
            usage = as_table(event.get("usage"))
            sent = _sum([found.tokens_in, usage.get("input_tokens")])
            got = _sum([found.tokens_out, usage.get("output_tokens")])
            found = replace(found, error="", is_read=True, tokens_in=sent, tokens_out=got)
        elif kind in {"turn.failed", "error"}:
            why = as_table(event.get("error")).get("message") or event.get("message")
            said = _plain(why) or "the agent reported a failure"
            found = replace(found, error=said, is_read=True)
    return replace(found, steps=steps) if found.is_read else None


def _gemini(printed: str) -> Result | None:
    events = list(_events(printed))
    ends = [event for event in events if event.get("type") == "result"]
    if not ends:
        return _gemini_whole(printed)
    text, session = "", ""
    for event in events:
        match event.get("type"):
            case "init":
                session = _session(event.get("session_id"))
            case "tool_use":
                text = ""  # the text after the last tool call is the answer
            case "message" if event.get("role") == "assistant":
                text += as_text(event.get("content"))
    stats, error = as_table(ends[-1].get("stats")), as_table(ends[-1].get("error"))
    return Result(
        text,
        _plain(error.get("message")) or ("the agent reported a failure" if error else ""),
        is_read=True,
        tokens_in=_count(stats.get("input_tokens")),
        tokens_out=_count(stats.get("output_tokens")),
        steps=_count(stats.get("tool_calls")),
        model=_only(as_table(stats.get("models"))),
        session=session,
    )


def _gemini_whole(printed: str) -> Result | None:
    said = _last_object(printed, lambda each: "response" in each or "error" in each)
    if said is None:
        return None
    stats, error = as_table(said.get("stats")), as_table(said.get("error"))
    models = as_table(stats.get("models"))
    spent = [as_table(as_table(each).get("tokens")) for each in models.values()]
    return Result(
        as_text(said.get("response")),
        _plain(error.get("message")) or ("the agent reported a failure" if error else ""),
        is_read=True,
        tokens_in=_sum(each.get("prompt") for each in spent),
        tokens_out=_sum(each.get(kind) for each in spent for kind in ("candidates", "thoughts")),
        steps=_count(as_table(stats.get("tools")).get("totalCalls")),
        model=_only(models),
    )


_AIDER: Final = re.compile(
    r"^Tokens: ([\d.,]+)([kM]?) sent,[^\n]{0,200}? ([\d.,]+)([kM]?) received\."
    r"(?: Cost: \$([\d.]+) message, \$([\d.]+) session\.)?[^\n]*$",
    re.MULTILINE,
)
_AIDER_HEAD: Final = re.compile(
    r"^Aider v\d[^\n]*\n(?:[^\n]*\n){0,20}?Repo-map: [^\n]*\n"
    r"(?:Added [^\n]* to the chat\.?\n|Restored previous conversation history\.\n|[ \t]*\n)*",
    re.MULTILINE,
)
_AIDER_ERROR: Final = re.compile(r"^litellm\.\w*(?:Error|Exception)\b[^\n]*", re.MULTILINE)
_LLM: Final = re.compile(r"^Token usage: ([\d,]+) input, ([\d,]+) output[^\n]*$", re.MULTILINE)


def _aider(printed: str) -> Result | None:
    """Return the result after the opening lines; errors do not change the exit code."""
    head = _AIDER_HEAD.search(printed)
    if head is None:
        return None
    body = printed[head.end() :]
    said = list(_AIDER.finditer(body))
    end = said[-1].end() if said else 0
    wrong = _AIDER_ERROR.search(body, end)
    text = re.sub(r"\n{3,}", "\n\n", _AIDER.sub("", body)).strip()
    error = (
        wrong[0] if wrong else "" if said else text or "the agent ended before the model answered"
    )
    spent = said[-1][6] if said else None
    return Result(
        text,
        error,
        is_read=True,
        tokens_in=_sum(_thousands(each[1], each[2]) for each in said),
        tokens_out=_sum(_thousands(each[3], each[4]) for each in said),
        cost=_cost(spent and spent.rstrip(".")),
        steps=len(said),
    )


def _llm(printed: str) -> Result | None:
    said = _LLM.search(printed)
    if said is None:
        return None
    text = (printed[: said.start()] + printed[said.end() :]).strip()
    sent, got = (_count(said[group].replace(",", "")) for group in (1, 2))
    return Result(text, is_read=True, tokens_in=sent, tokens_out=got, steps=1)


def _model(printed: str) -> Result | None:
    """Return the result that our program reported last; a killed one may have reported nothing."""
    said = read_json(printed, dict) or {}
    known: dict[str, Any] = {name: as_text(said.get(name)) for name in ("text", "error", "model")}
    known |= {name: _count(said.get(name)) for name in ("tokens_in", "tokens_out", "steps")}
    resets_at = at_epoch(said.get("resets_at"))
    status = _count(said.get("status"))
    fault = None if status is None else fault_in("", status=status)
    known |= {"cost": _cost(said.get("cost")), "fault": fault, "resets_at": resets_at}
    return Result(**known, is_read=True) if said else None


_READERS: Final[Mapping[Answers, Callable[[str], Result | None]]] = {
    Answers.CLAUDE: _claude,
    Answers.CODEX: _codex,
    Answers.GEMINI: _gemini,
    Answers.AIDER: _aider,
    Answers.LLM: _llm,
    Answers.MODEL: _model,
}


def _last_object(
    printed: str, is_it: Callable[[Mapping[str, object]], bool]
) -> Mapping[str, object] | None:
    # Warnings may surround it.
    decoder = json.JSONDecoder(parse_constant=lambda _: None)
    starts = [found.start() for found in re.finditer(r"^[{\[]", printed, re.MULTILINE)]
    for start in reversed(starts[:1] + starts[1:][-_CANDIDATES:]):
        try:
            said, _ = decoder.raw_decode(printed, start)
        except (ValueError, RecursionError):
            continue
        whole = said if isinstance(said, list) else [said]
        for each in reversed(whole):
            if isinstance(each, dict) and is_it(each):
                return each
    return None


def _events(printed: str) -> Iterator[Mapping[str, object]]:
    lines = (line for line in printed.splitlines() if line.startswith('{"'))
    yield from (read_json(line, dict) or {} for line in lines)


def _digest(text: str) -> str:
    return sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:6]


def _last_line(printed: str) -> str:
    lines = [line for line in map(str.strip, printed.splitlines()) if line]
    wrong = [line for line in lines if fault_in(line) is not None]
    return (wrong or lines)[-1]


def _session(value: object) -> str:
    """Return the id of a session if it is safe as a word of a command.

    >>> _session("9e2e182e-e249"), _session("--yolo"), _session(7)
    ('9e2e182e-e249', '', '')
    """
    text = as_text(value)
    return text if _MODEL.fullmatch(text) else ""


def _plain(value: object) -> str:
    """Return the message of an error; programs pass on the JSON of their provider.

    >>> _plain('[API Error: {"error": {"message": "no such model"}}]')
    'no such model'
    """
    said = as_text(value)
    passed_on = said[said.find("{") : said.rfind("}") + 1]
    inside = as_table((read_json(passed_on, dict) or {}).get("error"))
    return as_text(inside.get("message")) or said


def _count(value: object) -> int | None:
    if isinstance(value, str) and value.isascii() and value.isdecimal() and len(value) < 13:
        value = int(value)
    is_count = isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _MOST
    return value if is_count and isinstance(value, int) else None


def _sum(values: Iterator[object] | list[object]) -> int | None:
    known = [count for count in map(_count, values) if count is not None]
    return sum(known) if known else None


def _cost(value: object) -> float | None:
    try:
        amount = float("" if isinstance(value, bool) else value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        return None
    return round(amount, 6) if math.isfinite(amount) and 0 <= amount <= _MOST else None


def _thousands(number: str, unit: str) -> int | None:
    """Parse a count such as `1.2k`.

    >>> _thousands("1.2", "k"), _thousands("2,345", "")
    (1200, 2345)
    """
    amount = _cost(number.replace(",", "").rstrip("."))
    return None if amount is None else round(amount * {"k": 1000, "M": 1_000_000}.get(unit, 1))


def _only(named: Mapping[str, object]) -> str:
    names = [name for name in named if is_model(name)]
    return names[0] if len(named) == 1 and names else ""
