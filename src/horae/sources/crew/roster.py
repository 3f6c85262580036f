"""Who the members of a crew are, as their manifest and their definitions say now."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from horae.core.entry import Origin
from horae.core.ports import RunError
from horae.files.read import PlanFileError, read_plan
from horae.sources.agents.rules import AgentError, parse_agent
from horae.sources.agents.runner import Agent
from horae.sources.crew.rules import parse_crew

if TYPE_CHECKING:
    from pathlib import Path

    from horae.sources.crew.rules import Member


@dataclass(frozen=True, slots=True)
class Roster:
    """The members of a manifest, or of a text that stands for one."""

    manifest: Path  # relative paths of members begin beside it
    text: str | None = None

    def members(self) -> tuple[Member, ...]:
        """Return the members in their order; raises PlanFileError if that cannot be read."""
        text = read_plan(self.manifest).text if self.text is None else self.text
        return parse_crew(text, str(self.manifest)).members

    def agent(self, member: Member) -> Agent:
        """Return who a member is, as its definition says now; raises RunError."""
        path = self.beside(member.definition)
        try:
            definition = parse_agent(read_plan(path).text, str(path))
        except (PlanFileError, AgentError) as error:
            raise RunError(str(error)) from None
        return Agent(member.name, definition, Origin(str(path), 1), variables=definition.variables)

    def beside(self, path: str) -> Path:
        """Return where a path of the manifest leads."""
        return self.manifest.parent / path
