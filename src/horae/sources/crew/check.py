"""Findings of `check` about a crew: its manifest, its agents' definitions and their lifecycles."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final, NamedTuple

from horae.org.plan import Diagnostic, Severity
from horae.sources.agents.rules import check_agent
from horae.sources.crew.lifecycle import check_gates, parse_lifecycle
from horae.sources.crew.rules import parse_crew

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from horae.sources.crew.rules import Member

UNREAD: Final = "member-file"  # the code of a file that an agent needs and that cannot be read


class NamedFile(NamedTuple):
    """A file that a manifest names: what it is called, and what it says or why that is unknown."""

    name: str
    text: str | None
    problem: str = ""


def check_crew(
    text: str,
    file: str,
    pages: Mapping[str, NamedFile],
    *,
    continuous: bool = False,
    breather: timedelta = timedelta(seconds=45),
) -> list[Diagnostic]:
    """Return what is odd in a manifest and in the definitions and days of its members.

    *pages* has each file by the path that the manifest writes; the rest are the settings. What
    is odd in a page that several members share is said once.
    """
    crew = parse_crew(text, file)
    found = [*crew.diagnostics]
    for member in crew.members:
        every = member.every(continuous=continuous, breather=breather)
        found += _check_member(member, file, pages, every=every)
    return sorted(
        dict.fromkeys(found), key=lambda each: (each.file, each.line, each.column, each.code)
    )


def check_day(page: NamedFile, *, every: timedelta) -> list[Diagnostic]:
    """Return what is odd in a lifecycle, for an agent that ticks this often."""
    day, found = parse_lifecycle(page.text or "", page.name)
    return [*found, *(check_gates(day, every=every) if day is not None else ())]


def _check_member(
    member: Member, file: str, pages: Mapping[str, NamedFile], *, every: timedelta
) -> Iterator[Diagnostic]:
    """Yield what is odd in the files that a member names, or that they cannot be read."""
    for key, path in (("DEF", member.definition), ("LIFECYCLE", member.lifecycle)):
        page = None if path is None else pages.get(path)
        if page is None:
            continue
        if page.text is None:
            message = f"the :{key}: of {member.name} cannot be read: {page.problem}"
            fix = "write a path relative to the manifest, or an absolute path"
            place = (file, member.line, 1)
            yield Diagnostic(*place, UNREAD, Severity.ERROR, message, fix)
        elif key == "DEF":
            yield from check_agent(page.text, page.name)
        else:
            yield from check_day(page, every=every)
