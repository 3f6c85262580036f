"""`agent`: the spellings of the document on schedule triggers, thin over the same functions.

    agent orchestrator create-workflow --name daily-report --agent-name worker …
    agent apply .agentd/

Each family of words has a module of its own, which adds them to the groups of `words` when
one of them is said.
"""

from __future__ import annotations

import sys

from horae.cli.run import run
from horae.sources.triggers.agent_cli.words import AgentCommandError, agent

__all__ = ["AgentCommandError", "agent", "main"]


def main() -> None:
    """Run the command line."""
    sys.exit(run(agent, name="agent"))
