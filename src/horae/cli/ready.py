"""What `check` says of plans and crews that could not run here, as the engine would find it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from horae.config import known_names, load, secrets_of
from horae.core.command import CommandError, call_of, shell_syntax
from horae.core.decide import AfterError, parse_after
from horae.core.headline import agent_blocks, is_entry
from horae.core.secret import NAME, looks_secret
from horae.errors import HoraeError
from horae.org.check.finding import SectionFinding, place_of
from horae.org.plan import Diagnostic, Severity
from horae.org.world import every, worlds
from horae.process.ready import unread, why_unready
from horae.sources.workflows.languages import language_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from horae.config import Config
    from horae.core.command import Unready
    from horae.org.plan import Headline, Plan
    from horae.sources.triggers.service import Triggers

_UNNAMED = SectionFinding(
    0,
    "agent-unready",
    Severity.ERROR,
    "this block has no agent",
    "write :agent NAME after its language, or :AGENT: NAME in the drawer of its workflow",
)


def check_ready(plans: Sequence[tuple[str, Plan]], root: str, config: Config) -> list[Diagnostic]:
    """Return what in plans, or in the crew that the settings name, could not run here."""
    return [
        *(each for name, plan in plans for each in _check_programs(name, plan, config)),
        *(each for name, plan in plans for each in _check_languages(name, plan)),
        *_check_blocks(plans, root),
        *_check_keepers(config),
    ]


def check_alerts(plans: Sequence[tuple[str, Plan]], paths: Sequence[str]) -> Iterator[Diagnostic]:
    """Yield the alerts of something that is nowhere in the directories that are named."""
    alerts = [
        (name, plan, index, of)
        for name, plan in plans
        for index, each in enumerate(plan.headlines)
        if "AFTER" in each.props and is_entry(each) and (of := _followed(each))
    ]
    if not alerts or not all(map(os.path.isdir, paths or (".",))):
        return
    from horae.cli.plan_root import names_beside

    names = names_beside(paths)
    for _, plan in plans:
        for each in plan.headlines:
            if is_entry(each) or "agent" in each.tags:
                names |= {each.title, each.props.get("ID", ""), f"id:{each.props.get('ID')}"}
    for name, plan, index, of in alerts:
        if of not in names:
            headline = plan.headlines[index]
            message = f"no entry is called {of!r}, so this alert never runs"
            fix = "write the :ID: or the title of an entry, or all"
            at = place_of(headline, "AFTER")
            found = SectionFinding(at, "after-unknown", Severity.WARNING, message, fix)
            yield found.located(name, plan.places()[index], headline.text)


def _followed(headline: Headline) -> str:
    """Return the one entry that an alert waits for; an agent has its work in many places."""
    try:
        of = parse_after(headline.props["AFTER"]).of
    except AfterError:
        return ""  # said by what reads it
    return "" if of.startswith("agent:") else of


def _check_programs(file: str, plan: Plan, config: Config) -> Iterator[Diagnostic]:
    """Yield the commands of a plan whose program, or a secret that it needs, is not there."""
    calling = [each for each in plan.headlines if "COMMAND" in each.props and is_entry(each)]
    if not calling:
        return
    places = dict(zip(map(id, plan.headlines), plan.places(), strict=True))
    for headline in calling:
        why = _why_not(headline, os.path.dirname(file) or ".")
        if why is not None:
            at = place_of(headline, "COMMAND")
            found = SectionFinding(at, "program", Severity.WARNING, why.reason, why.fix)
            yield found.located(file, places[id(headline)], headline.text)
        for name in _given_secrets(headline):
            message = (
                f"{name} in the command contains a secret that every reader of this plan can see"
            )
            fix = f"write :ENV: {name}, and set its source in [secrets] of horae.toml"
            found = SectionFinding(
                place_of(headline, "COMMAND"), "secret", Severity.WARNING, message, fix
            )
            yield found.located(file, places[id(headline)], headline.text)
        if (why := _unread(headline, config)) is not None:
            at = place_of(headline, "ENV")
            found = SectionFinding(at, "secret", Severity.WARNING, why.reason, why.fix)
            yield found.located(file, places[id(headline)], headline.text)


def _why_not(headline: Headline, directory: str) -> Unready | None:

    if "HOST" in headline.props:
        return None  # it runs on another machine
    try:
        call = call_of(headline.props)
    except CommandError:
        return None  # said by what reads it
    syntax = shell_syntax(headline.props["COMMAND"])
    if call is None or (syntax is not None and syntax[0] == 0):
        return None  # its first word is no program, and that is said
    variables, environ = call.variables, os.environ
    return why_unready(call.argv, directory=directory, environ=environ, variables=variables)


def _given_secrets(headline: Headline) -> list[str]:
    """Return the variables that a command sets itself to what looks like a secret."""
    try:
        call = call_of(headline.props)
    except CommandError:
        return []  # said by what reads it
    words = () if call is None else (each.partition("=") for each in call.argv)
    return [name for name, _, text in words if NAME.fullmatch(name) and looks_secret(name, text)]


def _unread(headline: Headline, config: Config) -> Unready | None:
    """Return which secret cannot be read here that a headline asks for."""
    if "ENV" not in headline.props or "HOST" in headline.props:
        return None

    try:
        call = call_of(headline.props)
    except CommandError:
        return None  # said by what reads it
    return None if call is None else unread(secrets_of(config), call.variables)


def _check_languages(file: str, plan: Plan) -> Iterator[Diagnostic]:
    """Yield the components whose block is in a language that cannot be run."""
    if not any("component" in each.tags for each in plan.headlines):
        return

    for world in every(worlds(plan)):
        for component in world.components:
            block = component.block
            if block is None or not block.lang[:1].isalnum():
                continue  # it has no language, which is said by what reads it
            try:
                language_of(block.lang)
            except HoraeError as error:
                message, _, fix = str(error).partition("; ")
                at = block.span.start
                found = SectionFinding(at, "component-language", Severity.ERROR, message, fix)
                headline = plan.headlines[component.at]
                yield found.located(file, plan.places()[component.at], headline.text)


def _check_blocks(plans: Iterable[tuple[str, Plan]], root: str) -> Iterator[Diagnostic]:
    """Yield the agent blocks of plans that nobody can answer to."""
    blocks = [(name, plan, *each) for name, plan in plans for each in agent_blocks(plan)]
    why = _unready_agents({agent for *_, agent in blocks if agent}, root)
    for name, plan, index, agent in blocks:
        found = _UNNAMED
        if agent is not None:
            if agent not in why:
                continue
            unready = why[agent]
            found = SectionFinding(
                0, "agent-unready", Severity.WARNING, unready.reason, unready.fix
            )
        yield found.located(name, plan.places()[index], plan.headlines[index].text)


def _unready_agents(names: set[str], root: str) -> dict[str, Unready]:
    """Return which agents cannot run; one that comes with a file of `.agentd` is not asked."""
    from horae.cli.trigger_access import TriggerAccess
    from horae.sources.triggers.source import read_folder

    if not names:
        return {}
    try:
        folder = read_folder(f"{root}/.agentd", environ=known_names(load(root)), base=root)
        names = names - {each.name for each in folder.agents}
    except HoraeError:
        pass  # there is none, or what is wrong with it is said by whoever checks it

    async def asking(triggers: Triggers) -> dict[str, Unready]:
        return {name: why for name in sorted(names) if (why := await triggers.why_agent(name))}

    return TriggerAccess(root=root, data=None).read(asking)


def _check_keepers(config: Config) -> Iterator[Diagnostic]:
    """Yield those of the crew, or the single keeper, that nothing can run."""
    if config.crew_def is None and config.keeper_def is None:
        return
    from horae.context import find_agents

    for agent in (registry := find_agents(config, has_plans=False).registry):
        why = registry.obstacle(agent, environ=os.environ)
        if why is not None:
            place = (agent.origin.file, agent.origin.line, 1)
            yield Diagnostic(*place, "agent-unready", Severity.WARNING, why.reason, why.fix)
