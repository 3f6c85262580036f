"""`check`: what is odd in plans, boards, triggers and crews, and what could not run here."""

from __future__ import annotations

import os
import shlex
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

import click

from horae.cli import moments, options
from horae.cli.output import Output, console, form_options, print_rows, safe
from horae.cli.plan_root import PlanView, When, crew_of, find_boards, roots_of
from horae.cli.sources import Sources, plan_root
from horae.config import Config, known_names, load, secrets_of
from horae.core import command, decide, secret
from horae.core.agent import agent_sections, check_agent
from horae.core.source import agent_blocks, is_entry
from horae.errors import Exit, HoraeError
from horae.extras.drift.check import check_drift
from horae.files.read import PlanFileError
from horae.org.check import SectionFinding, place_of
from horae.org.plan import Diagnostic, Plan, Severity
from horae.org.world import every, worlds
from horae.process.run_settings import unread, why_unready
from horae.sources import board, crew, triggers
from horae.sources.plans.check import CheckClock, check_plans, phrase_notes
from horae.sources.workflows.languages import language_of

if TYPE_CHECKING:
    from horae.core.entry import Entry, Unarmed
    from horae.sources.triggers.service import Triggers
    from horae.sources.triggers.source import Folder

T = TypeVar("T")
_SHOWN: Final = 80
_NAME_AGENT: Final = (
    "write :agent NAME after its language, or :AGENT: NAME in the drawer of its workflow"
)
_NOUNS: Final = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.INFO: "note"}
_STYLES: Final = {Severity.ERROR: "bold red", Severity.WARNING: "yellow", Severity.INFO: "cyan"}


@click.command()
@options.paths_argument
@options.at_option
@options.tz_option
@form_options
def check(paths: tuple[str, ...], *, at: str | None, tz: str | None, output: Output) -> int:
    """Check plan files and report problems.

    Every finding has a stable code, a severity, its position and, where there is one, a fix;
    JSON is one list of findings. The exit code is 1 if there are errors. The crew or keeper
    that horae.toml names is checked too, with its definitions and lifecycles; for a directory,
    so are its board and the agents and triggers in .agentd/.
    """
    root = plan_root(paths)
    now, zone = moments.moment_and_zone(at, tz=tz, root=root)
    boards = find_boards(paths)
    folders = [each for each in roots_of(paths) if os.path.isdir(f"{each}/{triggers.FOLDER}")]
    sources = Sources(paths, output, may_be_empty=bool(boards or folders))
    # A file that is named twice is one.
    read = [*{source.name: source.plan for source in sources}.items()]
    config = load(root)
    clock = CheckClock(zone.key, now, config.check_floor)
    found = check_plans(read, clock, extra=[check_drift])
    for name, plan in read:
        if not name.endswith(".org") and not plan.headlines:
            message, fix = "is not a plan: it has no headlines", "name an Org file (*.org)"
            found.append(Diagnostic(name, 1, 1, "no-plan", Severity.WARNING, message, fix))
    silent = output._replace(is_silent=True)  # what cannot be read is said already
    view = PlanView(paths, silent, When(now, zone.key), knows="plans", says=False)
    for name, plan in read:
        found += [*_check_programs(name, plan, config), *_check_languages(name, plan)]
        found += phrase_notes(name, plan, clock, known=view.known)
        for _, section in agent_sections(plan):
            found += check_agent(section, name)
    found += _check_blocks(read, root)
    found += _check_else(read, config)
    everything = PlanView(paths, silent, When(now, zone.key), says=False)
    found += _check_alerts(read, paths, everything)
    found += config.findings
    found += _check_crew(config)
    for each, tasks in boards.items():
        odd = board.source.check_board(tasks, now=now, crew=crew_of(each))
        found += _seen_from(each, odd)
    for each in folders:
        found += _seen_from(each, _check_triggers(each))
    beside = sum(1 for each in folders for _ in Path(each, triggers.FOLDER).rglob("*.y*ml"))
    found = [*dict.fromkeys(found)]  # a definition of the crew may be in a plan file
    found.sort(key=lambda each: (each.file, each.line, each.column, each.code))
    data = [each.data() for each in found]
    print_rows(output, data, lambda: _print(found, dict(read), beside, sources))
    has_errors = any(each.severity is Severity.ERROR for each in found)
    return sources.exit_code or (Exit.FINDINGS if has_errors else Exit.OK)


def _seen_from(root: str, found: Iterable[Diagnostic]) -> Iterator[Diagnostic]:
    for each in found:
        yield each if root == "." else each._replace(file=f"{root}/{each.file}")


def _check_alerts(
    plans: Sequence[tuple[str, Plan]], paths: Sequence[str], view: PlanView
) -> Iterator[Diagnostic]:
    alerts = []
    for name, plan in plans:
        for index, each in enumerate(plan.headlines):
            if "AFTER" in each.props and is_entry(each):
                with suppress(decide.AfterError):  # said by what reads it
                    alerts.append((name, plan, index, decide.parse_after(each.props["AFTER"]).of))
    # An agent has its work in many places.
    alerts = [each for each in alerts if each[-1] and not each[-1].startswith("agent:")]
    if not alerts or not all(map(os.path.isdir, paths or (".",))):
        return
    names = {*_names_of(view.items(), paths)}
    for _, plan in plans:
        for each in plan.headlines:
            if is_entry(each) or "agent" in each.tags:
                names |= {each.title, each.props.get("ID", ""), f"id:{each.props.get('ID')}"}
    for name, plan, index, of in alerts:
        if of not in names:
            headline = plan.headlines[index]
            message = f"no entry is called {of!r}, so this entry never runs"
            fix = "write the :ID: or the title of an entry, or all"
            at = place_of(headline, "AFTER")
            found = SectionFinding(at, "after-unknown", Severity.WARNING, message, fix)
            yield found.located(name, plan.places()[index], headline.text)


def _names_of(items: Iterable[Entry | Unarmed], paths: Sequence[str]) -> Iterator[str]:
    """Yield what entries go by, and the triggers of files that cannot be read."""
    for item in items:
        yield from (item.title, item.address, item.address.removeprefix("id:"))
    for root in roots_of(paths):
        with suppress(HoraeError):  # what cannot be read is no suggestion
            # Such a file defines a trigger, most likely of its own name.
            yield from (os.path.basename(e.file).split(".")[0] for e in _folder(root).problems)


def _check_programs(file: str, plan: Plan, config: Config) -> Iterator[Diagnostic]:
    for headline, place in zip(plan.headlines, plan.places(), strict=True):
        if "COMMAND" not in headline.props or not is_entry(headline):
            continue
        try:
            call = command.call_of(headline.props)
        except command.CommandError:
            continue  # said by what reads it
        if call is None:
            continue
        found: list[tuple[str, str, command.Unready]] = []
        is_here = "HOST" not in headline.props  # else it runs on another machine
        syntax = command.shell_syntax(headline.props["COMMAND"])
        if is_here and (syntax is None or syntax[0] != 0):  # else its first word is no program
            where, variables = os.path.dirname(file) or ".", call.variables
            why = why_unready(call.argv, directory=where, environ=os.environ, variables=variables)
            found += [] if why is None else [("COMMAND", "program", why)]
        for word in call.argv:
            name, _, text = word.partition("=")
            if secret.NAME.fullmatch(name) and secret.looks_secret(name, text):
                seen = "contains a secret that every reader of this plan can see"
                fix = f"write :ENV: {name}, and set its source in [secrets] of horae.toml"
                why = command.Unready(f"{name} in the command {seen}", fix)
                found.append(("COMMAND", "secret", why))
        if is_here and "ENV" in headline.props:
            why = unread(secrets_of(config), call.variables)
            found += [] if why is None else [("ENV", "secret", why)]
        for key, code, each in found:
            at = place_of(headline, key)
            finding = SectionFinding(at, code, Severity.WARNING, each.reason, each.fix)
            yield finding.located(file, place, headline.text)


def _check_languages(file: str, plan: Plan) -> Iterator[Diagnostic]:
    if not any("component" in each.tags for each in plan.headlines):
        return
    for component in (each for world in every(worlds(plan)) for each in world.components):
        block = component.block
        if block is None or not block.lang[:1].isalnum():
            continue  # it has no language, which is said by what reads it
        try:
            language_of(block.lang)
        except HoraeError as error:
            message, _, fix = str(error).partition("; ")
            at, text = block.span.start, plan.headlines[component.at].text
            found = SectionFinding(at, "component-language", Severity.ERROR, message, fix)
            yield found.located(file, plan.places()[component.at], text)


def _check_blocks(plans: Iterable[tuple[str, Plan]], root: str) -> Iterator[Diagnostic]:
    """Yield the agent blocks that no agent can answer; one of a file of `.agentd` is not asked."""
    blocks = [(name, plan, *each) for name, plan in plans for each in agent_blocks(plan)]
    names = {agent for *_, agent in blocks if agent}
    why: dict[str, command.Unready] = {}
    if names:
        with suppress(HoraeError):  # there is none, or another check says what is wrong with it
            names -= {each.name for each in _folder(root).agents}

        async def asking(triggers: Triggers) -> dict[str, command.Unready]:
            return {name: why for name in sorted(names) if (why := await triggers.why_agent(name))}

        why = _ask_triggers(root, asking)
    for name, plan, index, agent in blocks:
        if agent is None:
            severity, reason, fix = Severity.ERROR, "this block has no agent", _NAME_AGENT
        elif agent in why:
            severity, reason, fix = Severity.WARNING, why[agent].reason, why[agent].fix
        else:
            continue
        found = SectionFinding(0, "agent-unready", severity, reason, fix)
        yield found.located(name, plan.places()[index], plan.headlines[index].text)


def _check_else(plans: Iterable[tuple[str, Plan]], config: Config) -> Iterator[Diagnostic]:
    """Yield each `:ELSE:` that cannot answer: no agent and no program here, or the agent itself."""
    known: set[str] | None = None
    for name, plan in plans:
        for headline, place in zip(plan.headlines, plan.places(), strict=True):
            other, is_agent = headline.props.get("ELSE", "").strip(), "agent" in headline.tags
            if not other or "HOST" in headline.props or not (is_agent or is_entry(headline)):
                continue
            if known is None:
                from horae.context import find_agents

                known = {each.name for each in find_agents(config).registry}
            own = headline.props.get("ID", headline.title) if is_agent else ""
            if other == own:
                message, fix = "names the agent itself", "name another agent, or a program"
            elif other not in known and (why := _why_unready(other, config.root)) is not None:
                message = f"names neither an agent nor a program that can run here: {why.reason}"
                fix = "write the name of an agent, or install it"
            else:
                continue
            at, text = place_of(headline, "ELSE"), f":ELSE: {message}"
            found = SectionFinding(at, "else-unknown", Severity.WARNING, text, fix)
            yield found.located(name, place, headline.text)


def _why_unready(text: str, root: str) -> command.Unready | None:
    try:
        argv = shlex.split(text)
    except ValueError:
        return None  # said by what reads it
    return why_unready(argv, directory=root, environ=os.environ)


def _check_crew(config: Config) -> Iterator[Diagnostic]:
    if config.crew_def is None and config.keeper_def is None:
        return
    from horae.context import find_agents
    from horae.files.git.repository import is_repository

    for agent in (registry := find_agents(config, has_plans=False).registry):
        why = registry.obstacle(agent, environ=os.environ)
        if why is not None:
            file = os.path.normpath(Path(config.root, agent.origin.file))
            place = (file, agent.origin.line, 1)
            yield Diagnostic(*place, "agent-unready", Severity.WARNING, why.reason, why.fix)
    if not is_repository(config.root):
        file = str(config.crew_def or config.keeper_def)
        message = "the plan root is not under git, so agents work in it and share all files"
        fix = "run `git init` and commit the plan; each agent then works in a clone of it"
        yield Diagnostic(file, 1, 1, "agent-tree", Severity.INFO, message, fix)
    continuous, breather = config.keeper_continuous, config.keeper_breather
    if config.crew_def is not None:
        yield from crew.source.check_manifest(
            config.crew_def, continuous=continuous, breather=breather
        )
    elif config.keeper_def is not None:
        every = breather if continuous else config.keeper_interval
        yield from crew.source.check_keeper(config.keeper_def, config.lifecycle_def, every=every)


def _check_triggers(root: str) -> Iterator[Diagnostic]:
    try:
        folder = _folder(root)
    except triggers.source.EmptyFolderError:
        return
    except PlanFileError as error:
        yield Diagnostic(triggers.FOLDER, 1, 1, "agentd", Severity.ERROR, str(error))
        return
    yield from folder.problems
    if folder.errors:
        return  # an agent whose file is wrong would seem to be missing
    try:
        judge_files = triggers.files.judge_files
        changes, wrong = _ask_triggers(root, lambda known: judge_files(known, folder.definitions))
    except HoraeError as error:
        message = f"not compared with the ledger: {error}"
        yield Diagnostic(triggers.FOLDER, 1, 1, "agentd", Severity.INFO, message)
        return
    yield from wrong
    yield from (note for change in changes for note in change.notes)


def _folder(root: str) -> Folder:
    path, names = f"{root}/{triggers.FOLDER}", known_names(load(root))
    return triggers.source.read_folder(path, environ=names, base=root)


def _ask_triggers(root: str, work: Callable[[Triggers], Awaitable[T]]) -> T:
    from horae.cli.trigger_access import TriggerAccess

    return TriggerAccess(root=root, data=None).read_ledger(work)


def _print(
    found: Sequence[Diagnostic], plans: Mapping[str, Plan], beside: int, sources: Sources
) -> None:
    screen = console()
    for each in found:
        line = safe(f"{each.file}:{each.line}:{each.column}: ", style="dim")
        line.append(_NOUNS[each.severity], style=_STYLES[each.severity])
        line.append(f" {each.code}: ", style="bold")
        line.append(safe(each.message, style="not dim"))
        screen.print(line, soft_wrap=True)
        if each.width:  # the line that it is about, with carets under its words
            text = plans[each.file].text().split("\n")[each.line - 1].rstrip("\r")
            first = max(0, each.column - 1 - _SHOWN // 2)
            shown = text[first : first + _SHOWN].expandtabs(1)
            indent = each.column - 1 - first
            carets = " " * indent + "^" * max(1, min(each.width, len(shown) - indent))
            for row in (shown, carets):
                screen.print(safe(f"    {row}", style="dim"), soft_wrap=True)
        if each.fix is not None:
            screen.print(safe(f"    → {each.fix}", style="green"), soft_wrap=True)
    counts = [(kind, sum(each.severity is kind for each in found)) for kind in Severity]
    words = [_count(count, _NOUNS[kind]) for kind, count in counts if count]
    files = len({each.file for each in found}) or len(plans) + beside
    said = [f"{', '.join(words)} in {_count(files, 'file')}"] if words else []
    if files and not words:
        said = [f"{_count(files, 'file')} checked"]
    if sources.unread:
        said.append(f"{_count(sources.unread, 'file')} cannot be read")
    elif not words and sources.exit_code == Exit.OK:
        said = [*(said or ["no plan files"]), "no problems"]
    if said:
        screen.print(", ".join(said), soft_wrap=True)


def _count(count: int, noun: str) -> str:
    return f"{count} {noun}{'s' * (count != 1)}"
