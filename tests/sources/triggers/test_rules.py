"""A trigger is judged as a whole, becomes an entry, and its order is filled in at its time."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from horae.core.agent import PromptOrder, read_order
from horae.core.entry import (
    CatchUp,
    CronRule,
    Entry,
    OnceRule,
    OnDemandRule,
    Overlap,
    Unarmed,
    Work,
)
from horae.core.receipt import RECEIPT_STATUSES, Status
from horae.core.tool_policy import Mode, ToolPolicy
from horae.sources.triggers.kinds import (
    KINDS,
    GithubPullKind,
    TriggerError,
    TriggerTask,
    WebhookDelivery,
    WebhookKind,
    kind_of,
    read_delivery,
    read_polled,
)
from horae.sources.triggers.rules import (
    Trigger,
    TriggerDefinition,
    checked,
    checked_task,
    dispatch_status,
    order_of,
    parse_tools,
    scanned,
)

ID = "550e8400-e29b-41d4-a716-446655440001"
NINE = datetime(2026, 4, 1, 9, tzinfo=UTC)
CONFIGS: dict[str, dict[str, Any]] = {
    "cron": {"type": "cron", "expression": "0 9 * * MON-FRI"},
    "delay": {"type": "delay", "run_at": "2026-04-01T05:00:00-04:00"},
    "github_issues": {"type": "github_issues", "owner": "o", "repo": "r"},
    "github_pull_requests": {"type": "github_pull_requests", "owner": "o", "repo": "r"},
    "agent_lifecycle": {"type": "agent_lifecycle", "event": "session_start"},
    "dispatch_result": {"type": "dispatch_result"},
    "webhook": {"type": "webhook", "secret": "s3cret-s3cret"},
    "manual": {"type": "manual"},
}


def made(kind: str = "cron", template: str = "Report.", **changes: Any) -> TriggerDefinition:
    definition = TriggerDefinition("daily-report", "worker", kind_of(CONFIGS[kind]), template)
    if "config" in changes:
        changes["kind"] = kind_of(changes.pop("config"))
    return checked(replace(definition, **changes))


def kept(definition: TriggerDefinition, *, times: int = 1) -> Trigger:
    return Trigger(ID, definition, times, NINE, NINE)


def told(definition: TriggerDefinition, *, key: str, task: TriggerTask | None = None) -> str:
    """Return what the agent is told at nine, as the order goes through the ledger."""
    text = order_of(kept(definition), task).text()
    return read_order(text).prompt(key=key, planned_at=NINE)


# Judging


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_trigger_can_be_made_and_knows_its_names(kind: str) -> None:
    template = " ".join(f"{{{{{name}}}}}" for name in KINDS[kind].variables())
    definition = made(kind, template)
    assert definition.kind.type == kind
    again = TriggerDefinition.of(
        definition.name, json.loads(json.dumps(definition.data())), is_enabled=True
    )
    assert again == definition


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"type": "cron"}, "Cron trigger requires a non-empty 'expression'"),
        ({"type": "cron", "expression": " "}, "Cron trigger requires a non-empty 'expression'"),
        (
            {"type": "cron", "expression": "not a cron"},
            "the cron expression 'not a cron' is not valid: ",
        ),
        ({"type": "cron", "expression": "60 * * * *"}, "minute 60 is outside 0-59"),
        (
            {"type": "cron", "expression": "5-1 * * * *"},
            "the cron expression '5-1 * * * *' is not valid: ",
        ),
        (
            {"type": "cron", "expression": "*/0 * * * *"},
            "the cron expression '*/0 * * * *' is not valid: ",
        ),
        ({"type": "cron", "expression": "0 0 30 2 *"}, "it matches no date"),
        ({"type": "cron", "expression": "0 9 * * *", "timezone": "Mars/Base"}, "Mars/Base"),
        ({"type": "delay"}, "Delay trigger requires a non-empty 'run_at' datetime"),
        (
            {"type": "delay", "run_at": "2026-04-01"},
            "'2026-04-01' is not an RFC 3339 time (has no time of day; write it like",
        ),
        ({"type": "delay", "run_at": "2026-04-01T09:00:00"}, "is not an RFC 3339 time"),
        ({"type": "delay", "run_at": "0001-01-01T00:00:00Z"}, "the years 2 to 9998"),
        ({"type": "delay", "run_at": 7}, "'run_at' must be a string"),
        ({"type": "github_issues", "owner": "o"}, "requires non-empty 'owner' and 'repo'"),
        ({"type": "github_issues", "owner": "-o", "repo": "r"}, "is not a valid name"),
        ({"type": "github_issues", "owner": "o", "repo": "../r"}, "is not a valid name"),
        ({**CONFIGS["github_issues"], "state": "odd"}, "'state' must be open, closed or all"),
        ({**CONFIGS["github_issues"], "labels": ["--web"]}, "is not a label"),
        ({**CONFIGS["github_issues"], "labels": 7}, "'labels' must be a list of strings"),
        (
            {"type": "agent_lifecycle", "event": "birth"},
            "there is no event 'birth'; the events are session_start, session_end, context_clear",
        ),
        ({"type": "dispatch_result", "status": "odd"}, "there is no status 'odd'"),
        ({"type": "webhook"}, "Webhook trigger requires a 'secret'"),
        ({"type": "webhook", "secret": "short"}, "at least 8 characters"),
        (
            {"type": "webhook", "secret": "whsec_short"},
            "whsec_ followed by the base64 of 24 to 64 bytes",
        ),
        (
            {"type": "webhook", "secret": "s3cret-s3cret", "scheme": "standard"},
            "whsec_ followed by the",
        ),
        ({"type": "webhook", "secret": "s3cret-s3cret", "scheme": "own"}, "standard, github"),
        ({"type": "webhook", "secret": "s3cret-s3cret", "old_secret": "short"}, "'old_secret'"),
        ({"type": "comet"}, "there is no trigger type 'comet'; the types are cron, delay"),
        ({}, "trigger_config needs a 'type'"),
    ],
)
def test_a_trigger_that_could_never_fire_is_refused(config: dict[str, Any], said: str) -> None:
    with pytest.raises(TriggerError) as caught:
        checked(TriggerDefinition("w", "worker", kind_of(config), "Go."))
    assert said in str(caught.value)


@pytest.mark.parametrize(
    "expression",
    [
        "* * * * *",
        "*/5 * * * *",
        "0 * * * *",
        "0 9 * * *",
        "0 9 * * MON-FRI",
        "0 0 * * *",
        "0 12 1 * *",
        "30 4 * * SUN",
        "0 */6 * * *",
        "0 0 1 1 *",
        "* * * * * *",
    ],
)
def test_every_common_expression_can_be_used(expression: str) -> None:
    definition = made(config={"type": "cron", "expression": expression})
    assert isinstance(scanned(kept(definition)).item, Entry)


def test_a_template_is_judged_by_the_names_of_its_own_trigger() -> None:
    with pytest.raises(
        TriggerError, match="the prompt template is not valid: the template is empty"
    ):
        made(template=" ")
    with pytest.raises(TriggerError, match=r"unknown template variable '{{run_at}}'"):
        made("cron", "{{run_at}}")
    with pytest.raises(TriggerError, match="unclosed template placeholder at position 0"):
        made("delay", "{{run_at")
    assert made("delay", "{{ run_at }}").template == "{{ run_at }}"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"name": ""}, "the workflow has no name"),
        ({"name": "a b"}, "may contain only letters"),
        ({"agent": "../x"}, "may contain only letters"),
        ({"poll_interval": 0}, "poll_interval_secs"),
        ({"options": {"catchup": "some"}}, "catchup some: write all, latest or none"),
        ({"options": {"retry": "often"}}, "retry often"),
    ],
)
def test_what_else_is_wrong_is_said(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(TriggerError, match=said):
        made(**changes)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ([], "an object with a 'mode'"),
        ({"mode": "auto"}, "is not a mode"),
        ({"tools": ["Read"]}, "'mode' is missing; write one of allow_all"),
        ({"mode": "allow_list"}, "needs `tools`"),
    ],
)
def test_a_tool_policy_that_says_nothing_is_refused(data: Any, said: str) -> None:
    with pytest.raises(TriggerError, match=said):
        parse_tools(data)


@pytest.mark.parametrize("mode", Mode)
def test_all_modes_of_a_tool_policy_go_through_the_order(mode: Mode) -> None:
    tools = parse_tools({"mode": mode.value, "tools": ["Bash(git *)", "WebFetch"]})
    order = read_order(order_of(kept(made(tools=tools))).text())
    assert order.tools == tools
    assert order.needs_approval is (mode is Mode.REQUIRE_APPROVAL)
    is_left_to_people = mode in {Mode.ALLOW_ALL, Mode.REQUIRE_APPROVAL}
    assert order.enforced == (None if is_left_to_people else tools)


# Entries


def test_a_cron_trigger_is_in_utc_unless_it_names_a_zone_and_makes_nothing_good() -> None:
    entry = scanned(kept(made())).item
    assert isinstance(entry, Entry)
    assert isinstance(entry.rule, CronRule)
    assert (entry.zone, entry.work, entry.agents) == ("UTC", Work.PROMPT, ("worker",))
    assert (entry.policy.catchup, entry.policy.overlap) == (CatchUp.NONE, Overlap.SKIP)
    config = {**CONFIGS["cron"], "timezone": "Europe/Berlin"}
    local = scanned(kept(made(config=config))).item
    assert isinstance(local, Entry)
    assert local.zone == "Europe/Berlin"


def test_a_trigger_may_say_how_it_wants_to_be_kept() -> None:
    options = {
        "catchup": "latest",
        "retry": "3 30s",
        "timeout": "15m",
        "pause_after": "5",
        "requires": "gpu berlin",
    }
    entry = scanned(kept(made(options=options))).item
    assert isinstance(entry, Entry)
    assert entry.policy.catchup is CatchUp.LATEST
    assert entry.policy.retry is not None
    assert (entry.policy.timeout, entry.policy.pause_after) == (timedelta(minutes=15), 5)
    assert entry.policy.requires == ("gpu", "berlin")


def test_a_delay_goes_by_its_id_and_by_how_often_it_was_enabled() -> None:
    for times, name in ((0, ID), (1, ID), (2, f"{ID}:2"), (3, f"{ID}:3")):
        entry = scanned(kept(made("delay"), times=times)).item
        assert isinstance(entry, Entry)
        assert entry.rule == OnceRule(NINE, name)
        assert entry.policy.overlap is Overlap.QUEUE


@pytest.mark.parametrize("kind", sorted(set(KINDS) - {"cron", "delay"}))
def test_what_waits_for_an_event_has_no_moment_of_its_own(kind: str) -> None:
    entry = scanned(kept(made(kind))).item
    assert isinstance(entry, Entry)
    assert entry.rule == OnDemandRule()


def test_a_disabled_trigger_is_known_and_not_armed() -> None:
    item = scanned(kept(made(is_enabled=False))).item
    assert isinstance(item, Unarmed)
    assert item.reason == "the trigger is disabled"


# Orders


def test_a_cron_prompt_knows_its_time_its_expression_and_its_key() -> None:
    names = ("fire_time", "cron_expression", "source_id", "title", "body", "url", "labels")
    template = "|".join(f"{{{{{name}}}}}" for name in (*names, "assignee", "trigger_type"))
    assert told(made(template=template), key="cron:2026-04-01T09:00:00Z").split("|") == [
        "2026-04-01T09:00:00Z",
        "0 9 * * MON-FRI",
        "cron:2026-04-01T09:00:00Z",
        "Cron trigger: 0 9 * * MON-FRI",
        *[""] * 4,
        "cron",
    ]
    assert told(made(template="{{metadata}}"), key="cron:x") == (
        "cron_expression: 0 9 * * MON-FRI\nfire_time: 2026-04-01T09:00:00Z"
    )


def test_a_delay_prompt_knows_its_moment_in_utc_and_its_workflow() -> None:
    template = "{{run_at}}|{{workflow_id}}|{{source_id}}|{{title}}"
    assert told(made("delay", template), key=f"delay:{ID}").split("|") == [
        "2026-04-01T09:00:00Z",
        ID,
        f"delay:{ID}",
        "Delay trigger: 2026-04-01T09:00:00Z",
    ]


def test_what_is_handed_over_fills_places_and_changes_nothing_else() -> None:
    task = TriggerTask("{{body}}", "Do\n{{title}}", "u", ("bug", "auth"), "wren", {"team": "a\nb"})
    template = "{{title}}|{{body}}|{{labels}}|{{assignee}}|{{metadata.team}}|{{workflow_id}}"
    assert told(made("manual", template), key="manual:1", task=task).split("|") == [
        "{{body}}",
        "Do\n{{title}}",
        "bug, auth",
        "wren",
        "a b",
        ID,
    ]
    forged = TriggerTask(metadata={"cron_expression": "x", "workflow_id": "x", "source_id": "x"})
    template = "{{cron_expression}}|{{workflow_id}}|{{source_id}}|{{title}}"
    assert told(made(template=template), key="manual:1", task=forged).split("|") == [
        "0 9 * * MON-FRI",
        ID,
        "manual:1",
        "Cron trigger: 0 9 * * MON-FRI",
    ]


@settings(deadline=None)
@given(st.text(), st.dictionaries(st.text(max_size=5), st.text(max_size=9), max_size=3))
def test_an_order_is_the_same_after_the_ledger(template: str, values: dict[str, str]) -> None:
    order = PromptOrder(template, values, values, ToolPolicy(Mode.DENY_ALL))
    assert read_order(order.text()) == order


@settings(deadline=None)
@given(st.sampled_from(["", "#!horae-order ", "#!horae-order {}\n"]), st.text(max_size=20))
def test_no_template_is_mistaken_for_more_than_a_template(head: str, rest: str) -> None:
    definition = TriggerDefinition("w", "worker", kind_of(CONFIGS["manual"]), head + rest)
    order = read_order(order_of(kept(definition)).text())
    assert (order.template, order.tools.mode) == (head + rest, Mode.ALLOW_ALL)


def test_an_approval_is_asked_for_and_given_in_the_order_itself() -> None:
    policy = parse_tools({"mode": "require_approval"})
    order = order_of(kept(made(tools=policy)))
    until = datetime(2026, 4, 1, 9, 5, tzinfo=UTC)
    asked = order.asked(until=until)
    agreed = asked.approved(by="fern", at=until - timedelta(minutes=1))
    stands = [(each.needs_approval, each.is_asked) for each in (order, asked, agreed)]
    assert stands == [(True, False), (True, True), (False, False)]
    assert asked.asked_until == until
    for each in (order, asked, agreed):  # and that is so after the ledger, too
        assert read_order(each.text()) == each
        assert each.enforced is None
    assert agreed.approval["by"] == "fern"
    assert not order_of(kept(made())).asked(until=until).is_asked  # nobody need be asked


def test_a_plain_template_is_its_own_order() -> None:
    assert order_of(kept(made(template="Water the garden."))).text() == "Water the garden."


@pytest.mark.parametrize(
    "data", [[], {"title": 7}, {"metadata": []}, {"metadata": {"a": 1}}, {"body": "x" * 70_000}]
)
def test_what_somebody_hands_over_is_text_of_bearable_size(data: Any) -> None:
    with pytest.raises(TriggerError):
        checked_task(data)
    assert checked_task(None) == TriggerTask()


def test_a_receipt_stands_where_the_words_of_the_api_say() -> None:
    assert {each: dispatch_status(each).value for each in RECEIPT_STATUSES} == {
        Status.WAITING: "pending",
        Status.HELD: "pending",
        Status.STARTING: "pending",
        Status.RUNNING: "dispatched",
        Status.DONE: "completed",
        Status.NO_WORK: "completed",
        Status.FAILED: "failed",
        Status.KILLED: "failed",
        Status.INTERRUPTED: "failed",
        Status.SKIPPED: "skipped",
        Status.COALESCED: "skipped",
        Status.MISSED: "skipped",
    }


# Messages


def test_an_issue_a_pull_request_and_anything_else_are_told_apart() -> None:
    issue = {
        "title": "It leaks",
        "body": "Here",
        "html_url": "https://example.org/7",
        "number": 7,
        "labels": [{"name": "bug"}, {"name": "auth"}, 3],
        "assignee": {"login": "wren"},
    }

    def said(data: object, event: str = "") -> WebhookDelivery:
        return read_delivery(json.dumps(data).encode(), event=event, delivery="d-1", now=NINE)

    found = said({"action": "opened", "issue": issue}, "issues")
    assert (found.event, found.action) == ("issues", "opened")
    assert (found.task.title, found.task.labels, found.task.assignee) == (
        "It leaks",
        ("bug", "auth"),
        "wren",
    )
    assert found.task.metadata["issue_number"] == "7"
    pull = said({"action": "closed", "pull_request": issue}, "pull_request")
    assert pull.task.metadata["pr_number"] == "7"
    assert said({"ref": "main"}, "push").task.title == "GitHub event: push"
    assert said({"subject": "Hello"}).task.title == "Hello"
    assert said([1]).task.title == "Webhook payload"
    odd = read_delivery(b"\xff{" + b"[" * 100_000, event="", delivery="", now=NINE)
    assert odd.task.title == "Webhook payload"


def test_without_a_word_of_github_the_body_says_which_event_it_tells_of() -> None:
    body = b'{"type": "contact.created", "subject": "Wren"}'
    found = read_delivery(body, event="", delivery="msg_1", now=NINE)
    assert (found.event, found.task.title) == ("contact.created", "Wren")
    assert "github_event" not in found.task.metadata


def test_a_webhook_without_a_scheme_is_read_as_one_of_github() -> None:
    new = made("webhook")
    assert new.kind.data()["scheme"] == "github", "as its secret has it"
    data = new.data()
    old = {**data, "config": {"type": "webhook", "secret": "whsec_of-before"}}
    assert TriggerDefinition.of("hook", old, is_enabled=True).kind.data()["scheme"] == "github"
    standard = {"type": "webhook", "secret": f"whsec_{'A' * 32}"}
    assert made("webhook", config=standard).kind.data()["scheme"] == "standard"


def test_a_webhook_hears_only_what_it_lists() -> None:
    opened = WebhookDelivery(TriggerTask(), "issues", "opened")
    assert WebhookKind(secret="x").wants(opened)
    assert WebhookKind(secret="x", events=["issues"], actions=["opened"]).wants(opened)
    assert not WebhookKind(secret="x", events=["push"]).wants(opened)
    assert not WebhookKind(secret="x", actions=["closed"]).wants(opened)


def test_gh_is_asked_with_words_and_never_through_a_shell() -> None:
    config = {**CONFIGS["github_pull_requests"], "labels": ["good first; rm -rf /"]}
    kind = made("github_pull_requests", config=config).kind
    assert isinstance(kind, GithubPullKind)
    call = kind.poll_command()
    assert call[:7] == ["gh", "pr", "list", "--repo", "o/r", "--state", "open"]
    assert call[-2:] == ["--label", "good first; rm -rf /"]
    assert "isDraft" in call[call.index("--json") + 1]


def test_what_gh_lists_comes_oldest_first() -> None:
    rows = [
        {"number": 9, "title": "New", "isDraft": True, "assignees": [{"login": "wren"}]},
        {"number": 7, "title": "Old", "headRefName": "fix"},
        {"title": "without a number"},
    ]
    found = read_polled(json.dumps(rows))
    assert [number for number, _ in found] == ["7", "9"]
    assert found[0][1].metadata == {"head_ref": "fix"}
    assert (found[1][1].metadata, found[1][1].assignee) == ({"is_draft": "true"}, "wren")
    for wrong in ("", "{}", "[" * 100_000):
        with pytest.raises(TriggerError, match="did not return a list"):
            read_polled(wrong)
