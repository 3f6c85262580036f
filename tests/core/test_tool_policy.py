"""Tool policies: who may use what, and that no spelling widens it."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from horae.core.tool_policy import (
    OPEN,
    TOOLS,
    Answer,
    Mode,
    Pattern,
    ToolPolicy,
    ToolPolicyError,
    decide,
    is_plain,
    parse_pattern,
    parse_policy,
    policy_of,
)
from scale import scaled

if TYPE_CHECKING:
    from pathlib import Path

ALLOW, DENY, ASK = Answer.ALLOW, Answer.DENY, Answer.ASK


def only(*patterns: str) -> ToolPolicy:
    return parse_policy({"mode": "allow_list", "tools": list(patterns)})


def all_but(*patterns: str) -> ToolPolicy:
    return parse_policy({"mode": "deny_list", "tools": list(patterns)})


# Modes


@pytest.mark.parametrize("tool", [*TOOLS, "mcp__wiki__read"])
def test_each_mode_has_its_answer(tool: str) -> None:
    assert decide(OPEN, tool, "x") is ALLOW
    assert decide(parse_policy({"mode": "deny_all"}), tool, "x") is DENY
    assert decide(parse_policy({"mode": "require_approval"}), tool, "x") is ASK
    assert decide(only(tool), tool, "x") is ALLOW
    assert decide(only("Other"), tool, "x") is DENY
    assert decide(all_but(tool), tool, "x") is DENY
    assert decide(all_but("Other"), tool, "x") is ALLOW


def test_an_empty_allow_list_denies_all_and_an_empty_deny_list_allows_all() -> None:
    assert decide(only(), "Read", "x") is DENY
    assert decide(all_but(), "Bash", "rm -rf /") is ALLOW
    assert all_but().is_open
    assert not only().is_open


@pytest.mark.parametrize(
    "data",
    [
        {},
        {"mode": "auto"},
        {"mode": "allow_list"},
        {"mode": "deny_list", "tools": "Bash"},
        {"mode": "allow_list", "tools": [1]},
        {"mode": "allow_list", "tools": ["Bash("]},
        {"mode": "allow_list", "tools": ["Bash()"]},
        {"mode": "allow_list", "tools": ["--yolo"]},
        {"mode": "allow_list", "tools": ["Read"] * 201},
        {"mode": ["allow_all"]},
    ],
)
def test_what_is_no_policy_is_refused_and_says_what_would_be(data: dict[str, object]) -> None:
    with pytest.raises(ToolPolicyError, match=r"write|needs|remove|limit"):
        parse_policy(data)


@given(st.sampled_from(Mode), st.lists(st.sampled_from(["Read", "Bash(git *)", "Git"]), max_size=3))
def test_a_policy_written_and_read_again_is_the_same(mode: Mode, tools: list[str]) -> None:
    policy = parse_policy({"mode": mode.value, "tools": tools})
    assert parse_policy(policy.data()) == policy


def test_tools_of_a_definition_are_an_allow_list_and_patterns_are_put_together_again() -> None:
    words = ("git,", "Bash(npm", "run", "*)", "fetch")
    tools = (Pattern("Git"), Pattern("Bash", "npm run *"), Pattern("WebFetch"))
    assert policy_of(words) == ToolPolicy(Mode.ALLOW_LIST, tools)
    assert policy_of(()) == OPEN


def test_names_count_in_any_case_and_by_the_older_words() -> None:
    for written, tool in (("bash", "Bash"), ("shell", "Bash"), ("search", "Grep")):
        assert decide(only(written), tool, "x") is ALLOW
        assert decide(all_but(written), tool, "x") is DENY


def test_only_an_allow_list_allows_by_name() -> None:
    assert only("Bash", "WebFetch(domain:example.org)").names("WebFetch")
    assert not OPEN.names("WebFetch")
    assert not all_but("WebFetch").names("WebFetch")


# Commands


@pytest.mark.parametrize(
    ("pattern", "allowed", "denied"),
    [
        ("Bash(*)", ["ls; rm -rf /"], []),
        ("Bash(git *)", ["git", "git log", "  git  log -1"], ["gitk", "git-x", "xgit a", ""]),
        ("Bash(git log:*)", ["git log", "git log -1"], ["git logs", "git push"]),
        ("Bash(* --version)", ["--version", "git --version"], ["git --version x"]),
        ("Bash(* test *)", ["npm test", "npm test x", "test"], ["npm testing", "contest x"]),
        ("Bash(npm ci)", ["npm ci", " npm  ci "], ["npm ci x", "npm"]),
        ("Bash(cd a && ls)", ["cd a && ls"], ["cd a", "ls", "cd a && ls x", "cd a && ls; rm x"]),
    ],
)
def test_a_pattern_is_a_beginning_an_end_a_middle_or_the_whole(
    pattern: str, allowed: list[str], denied: list[str]
) -> None:
    assert {decide(only(pattern), "Bash", line) for line in allowed} <= {ALLOW}
    assert {decide(only(pattern), "Bash", line) for line in denied} <= {DENY}


@pytest.mark.parametrize(
    "line",
    [
        "git status; rm -rf /",
        "git status && rm x",
        "git status || rm x",
        "git status & rm x",
        "git status | sh",
        "git status\nrm x",
        "git status\rrm x",
        "git log $(rm x)",
        "git log `rm x`",
        'git log "$(rm x)"',
        "git log <(rm x)",
        "git log > /etc/passwd",
        "git log < secret",
        "git log ${x:=$(rm x)}",
        "git log \\\nrm",
        "git '\\'; rm 'x' 'y",
        'git "a\\"; rm "b" "c',
        "git 'a'\\''; rm x",
        "git\u00a0log",
        "git\u2028rm",
        "git log {a,b}",
        "git $IFS",
        "git 'open",
        'git "open',
    ],
)
def test_a_pattern_never_allows_a_second_command(line: str) -> None:
    assert decide(only("Bash(git *)"), "Bash", line) is DENY
    assert not is_plain(line)


@pytest.mark.parametrize(
    "line",
    ["git commit -m 'a; b && c'", 'git log --format="%h (%s)"', "git add *.py", r"git show a\;b"],
)
def test_what_is_quoted_is_no_second_command(line: str) -> None:
    assert decide(only("Bash(git *)"), "Bash", line) is ALLOW


@pytest.mark.parametrize(
    "line",
    [
        "rm x",
        "git status; rm x",
        "git status&&rm x",
        "echo $(rm x)",
        "echo `rm x`",
        "A=1 rm x",
        "sudo rm x",
        "env -i rm x",
        "/bin/rm x",
        "'rm' x",
        r"\rm x",
        'r"m" x',
        "if true; then rm x; fi",
        "{ rm x; }",
        "(rm x)",
        "r\\\nm x",
        "ls\nrm x",
        "true | xargs rm x",
    ],
)
def test_what_is_denied_is_found_in_every_part_of_a_command(line: str) -> None:
    assert decide(all_but("Bash(rm *)"), "Bash", line) is DENY
    assert decide(all_but("Bash(rm *)"), "Bash", "git status; ls") is ALLOW


FRAGMENTS = st.sampled_from([
    "git", "git ", "evil", "evil ", " ", "\t", "\n", ";", "&", "&&", "|", "'", '"', "\\", "$",
    "(", ")", "$(evil)", "`evil`", "<", ">f", "#", "{", "}", "!", "A=b ", "$A", "*", "~", "[",
    "'evil'", "e\\vil", "-x", "then ", "if ", "\r", "\x0b", "\u00a0", "=", ":", "eval ", "\\\n",
])  # fmt: skip
LINES = st.lists(FRAGMENTS, min_size=1, max_size=7).map("".join)


@pytest.fixture(scope="module")
def sandbox(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with two programs, one of which leaves a trace."""
    home = tmp_path_factory.mktemp("sandbox")
    for name, script in (("git", "exit 0"), ("evil", f": > {home}/trace")):
        program = home / "bin" / name
        program.parent.mkdir(exist_ok=True)
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)
    (home / "work").mkdir()
    return home


def runs_evil(home: Path, line: str) -> bool:
    """Let a real shell have a command, and tell whether the other program ran."""
    subprocess.run(
        ["/bin/sh", "-c", line],
        cwd=home / "work",
        env={"PATH": str(home / "bin")},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        timeout=10,
        check=False,
    )
    trace = home / "trace"
    if trace.exists():
        trace.unlink()
        return True
    return False


@settings(
    max_examples=scaled(6000),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(line=LINES.map(lambda rest: f"git {rest}"))
def test_what_a_pattern_allows_starts_no_other_program_in_a_real_shell(
    sandbox: Path, line: str
) -> None:
    if decide(only("Bash(git *)"), "Bash", line) is ALLOW:
        assert not runs_evil(sandbox, line)


@settings(
    max_examples=scaled(3000),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(line=LINES.filter(lambda line: "$" not in line.replace("$(", "")))
def test_what_a_deny_list_lets_pass_does_not_start_it_where_all_words_are_written_out(
    sandbox: Path, line: str
) -> None:
    if "evil" in line and decide(all_but("Bash(evil *)"), "Bash", line) is ALLOW:
        assert not runs_evil(sandbox, line)


@settings(max_examples=scaled(2000))
@given(st.text(max_size=60), st.text(max_size=60))
def test_any_text_gets_an_answer(pattern: str, argument: str) -> None:
    try:
        parsed = parse_pattern(pattern)
    except ToolPolicyError:
        return
    for policy in (ToolPolicy(Mode.ALLOW_LIST, (parsed,)), ToolPolicy(Mode.DENY_LIST, (parsed,))):
        for tool in TOOLS:
            assert decide(policy, tool, argument) in {ALLOW, DENY}


# Paths and addresses


@pytest.mark.parametrize(
    ("pattern", "allowed", "denied"),
    [
        ("Read(docs/*)", ["docs/a.md", "./docs/a"], ["docs", "docs/a/b", "docs/../x", "/docs/a"]),
        ("Read(docs/**)", ["docs", "docs/a", "docs/a/b"], ["doc", "x/docs/a", "docs/../../x"]),
        ("Read(**/*.py)", ["a.py", "a/b.py"], ["a.pyc", "../a.py", "a\\..\\b.py"]),
        ("Read(a*b*c)", ["abc", "a1b2c"], ["ab", "acb", "abcd"]),
    ],
)
def test_a_path_fits_part_by_part_and_never_leads_out(
    pattern: str, allowed: list[str], denied: list[str]
) -> None:
    assert {decide(only(pattern), "Read", path) for path in allowed} == {ALLOW}
    assert {decide(only(pattern), "Read", path) for path in denied} == {DENY}


def test_a_path_that_leads_elsewhere_is_denied_by_any_pattern_that_denies() -> None:
    policy = all_but("Write(secret/*)")
    assert decide(policy, "Write", "open/x") is ALLOW
    for path in ("secret/x", "./secret//x", "open/../secret/x", "/etc/passwd"):
        assert decide(policy, "Write", path) is DENY


@pytest.mark.parametrize(
    ("pattern", "allowed", "denied"),
    [
        (
            "WebFetch(domain:example.org)",
            ["https://example.org/a", "http://EXAMPLE.org"],
            [
                "https://example.org.evil.net/",
                "https://example.org@evil.net/",
                "https://evil.net/#example.org",
                "https://a.example.org/",
                "file:///etc/passwd",
                "https://example.org\\@evil.net/",
            ],
        ),
        ("WebFetch(domain:*.example.org)", ["https://a.example.org/"], ["https://xexample.org/"]),
        (
            "WebFetch(https://example.org/docs/*)",
            ["https://example.org/docs/a"],
            [
                "http://example.org/docs/a",
                "https://example.org/docs/../x",
                "https://example.org/docs/%2e%2E/x",
                "https://example.org:8443/docs/a",
                "https://example.org/doc",
            ],
        ),
    ],
)
def test_an_address_fits_by_its_host_and_path(
    pattern: str, allowed: list[str], denied: list[str]
) -> None:
    assert {decide(only(pattern), "WebFetch", address) for address in allowed} == {ALLOW}
    assert {decide(only(pattern), "WebFetch", address) for address in denied} == {DENY}
