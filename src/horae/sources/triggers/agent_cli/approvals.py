"""Approvals in the words of `agent`: listed, given, refused."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from horae.sources.triggers.agent_cli.words import Here, orchestrator, print_list, print_one

if TYPE_CHECKING:
    from collections.abc import Mapping


@orchestrator.command("list-approvals")
@click.pass_obj
def list_approvals(here: Here) -> int:
    """List the runs that wait for approval."""
    found = here.read(lambda triggers: triggers.approvals())
    empty = "No approvals found."
    return print_list(here, found, "Approvals", _approval_lines, word="approval", empty=empty)


@orchestrator.command("approve")
@click.argument("receipt", type=int)
@click.pass_obj
def approve(here: Here, receipt: int) -> int:
    """Approve a pending run."""
    done = here.write(lambda triggers: triggers.approve(receipt))
    return print_one(here, done, [f"Approval {receipt} approved."])


@orchestrator.command("deny")
@click.argument("receipt", type=int)
@click.option("--reason", default="", help="The reason, shown with the receipt.")
@click.pass_obj
def deny(here: Here, receipt: int, *, reason: str) -> int:
    """Reject a pending run."""
    done = here.write(lambda triggers: triggers.deny(receipt, reason=reason))
    return print_one(here, done, [f"Approval {receipt} denied."])


def _approval_lines(approval: Mapping[str, Any]) -> list[str]:
    names = {"ID": "receipt", "Workflow": "workflow", "Agent": "agent", "Source ID": "source_id"}
    names |= {"Expires": "expires_at", "Prompt": "prompt"}
    return [f"{label}: {approval[name]}" for label, name in names.items()]
