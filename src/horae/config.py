"""Settings: default < `horae.toml` < environment < flag, each with the place it came from.

`core/settings.py` declares them. In the environment the name is `HORAE_` and the setting's name in
capitals; the older `WB_` name, where there is one, is weaker, and counts in milliseconds where it
says so. An empty variable counts as not set.
"""

from __future__ import annotations

import json
import os
import re
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from msgspec import Struct, ValidationError
from msgspec.structs import force_setattr

from horae.core.guarded import DOTS, FILE, LIMIT, Values, as_values, in_force, leaves_of
from horae.core.settings import (
    MILLISECONDS,
    PATH,
    PATHS,
    SECRETS,
    SETTINGS,
    Setting,
    Settings,
    Way,
    meant_setting,
    plain,
)
from horae.errors import Exit, HoraeError
from horae.files.git.layout import arrivals_at, remember
from horae.files.read import PlanFileError, PlanMissingError, read_plan
from horae.org.plan import Diagnostic, Severity

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from horae.core.secret import SecretSource
    from horae.process.run_settings import NamedSecrets

_BOARD: Final = "board"  # the agent that runs `board.command`, and the first part of its names


class SettingError(HoraeError, code="setting", exit_code=Exit.USAGE):
    def __init__(
        self, origin: str, reason: str, *, setting: str | None = None, value: object = None
    ) -> None:
        self.origin, self.reason = origin, reason
        self.setting, self.value = setting, plain(value)
        what = f"{setting} {_short(self.value)} " if setting else ""
        super().__init__(f"{origin}: {what}{reason}")


class SettingsChangedError(HoraeError, code="settings_changed", exit_code=Exit.CONFLICT):
    def __init__(self) -> None:
        super().__init__(f"{FILE} has changed since it was shown; run `horae config trust` again")


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]}…"


class Overridden(NamedTuple):
    """A value as it is written in one place."""

    origin: str
    value: object

    @property
    def is_stronger(self) -> bool:
        """Whether a file does not change it."""
        return self.origin.startswith(("flag ", "environment "))

    @property
    def is_milliseconds(self) -> bool:
        return self.origin.startswith("environment ") and self.origin.endswith("_MS")

    def shown(self, each: Setting) -> Overridden:
        """Return the value as it may be shown, with its unit."""
        value = f"{self.value}ms" if self.is_milliseconds else self.value
        return self._replace(value=each.shown(value))


class SettingOrigin(NamedTuple):
    name: str
    value: object
    origin: str
    overrides: tuple[Overridden, ...]


def outdated_words(name: str, kept: object) -> str:
    """Say that a setting counts as it was until a restart; None: nothing was set."""
    said = kept if isinstance(kept, str) else json.dumps(kept)
    said = "its default" if kept is None else said
    return f"{name} is changed in {FILE}; the engine keeps {said} until it is restarted"


class Config(Settings, frozen=True, eq=False, kw_only=True):
    """All settings, frozen but for what a person confirms while an engine runs."""

    root: str
    home: str  # where the `horae.toml` is of which guarded settings count
    trusted: Values  # those of them that are in force
    findings: tuple[Diagnostic, ...]  # what `horae.toml` says that no setting is
    secrets: dict[str, SecretSource]  # where the value of each is, by name
    given: dict[str, tuple[Overridden, ...]]  # of each field the strongest first

    def __repr__(self) -> str:
        rows = ", ".join(f"{row.name}={row.value!r}" for row in self.origins())
        return f"Config({self.root!r}, {rows})"

    @property
    def board_members(self) -> tuple[str, ...]:
        """The names under which `board.command` gets tasks; a crew gets them instead."""
        if self.board_command is None or self.crew_def is not None:
            return ()
        return (_BOARD, *(f"{_BOARD}-{number}" for number in range(2, self.board_max + 1)))

    @property
    def node_name(self) -> str:
        """The name of this node of a cluster; empty if there is none."""
        host = os.uname().nodename.partition(".")[0] or "node"
        return "" if self.store is None else self.cluster_name or host

    def accept(self, written: Values) -> None:
        file = _File(f"{self.home}/{FILE}", {way: json.loads(v) for way, v in written.items()}, {})
        secrets = dict(_secrets(file, self.home, os.environ.get("HOME", "")))
        for each in filter(lambda each: each.is_hot, SETTINGS):
            *others, default = self.given[each.field]
            kept = [one for one in others if one.is_stronger]
            if each.path in file.values:
                kept.append(Overridden(file.name, file.values[each.path]))
            found = (*kept, default)
            # An error is raised before anything has changed.
            force_setattr(self, each.field, _value(each, found[0]))
            self.given[each.field] = found
        force_setattr(self, "trusted", written)
        self.secrets.clear()  # others have it, too
        self.secrets.update(secrets)

    def outdated(self, written: Config) -> Iterator[tuple[str, object]]:
        """Yield what a file sets otherwise by now, of what an engine reads at its start.

        Each is a name, and the value that counts until a restart.
        """
        for each in SETTINGS:
            own, new = self.given[each.field][0], written.given[each.field][0]
            is_changed = getattr(self, each.field) != getattr(written, each.field)
            is_of_file = not (own.is_stronger or new.is_stronger)
            if each.is_of_engine and is_changed and is_of_file:
                yield each.name, own.shown(each).value

    def origins(self) -> tuple[SettingOrigin, ...]:
        rows = []
        for each in SETTINGS:
            best, *rest = (found.shown(each) for found in self.given[each.field])
            rows.append(SettingOrigin(each.name, best.value, best.origin, tuple(rest)))
        for name, source in sorted(self.secrets.items()):
            rows.append(SettingOrigin(f"{SECRETS}.{name}", str(source), source.origin, ()))
        return tuple(rows)


def _value(each: Setting, given: Overridden, *, root: str = "", home: str = "") -> Any:
    """Return a written value as it is used; a relative path in a file is from *root*."""
    if given.value is None:
        return None  # only a setting that is optional has no default
    kind = each.kind
    if given.is_milliseconds:
        kind = MILLISECONDS._replace(make=lambda count: each.kind.read(f"{count}ms"))
    # A run in a clone of the plan is told these paths, and must find the same places.
    base = os.path.abspath(root) if kind is PATHS else "" if given.is_stronger else root
    try:
        value = kind.read(given.value)
        if kind is PATH:
            return _placed(value, base, home)
        return tuple(_placed(part, base, home) for part in value) if kind is PATHS else value
    except ValueError as error:
        said = "" if isinstance(error, ValidationError) else str(error)
        like = not said.startswith("did you mean")  # else that is the example
        words = kind.words if like else kind.words.partition(" such as ")[0]
        reason = f"is not {words}{said and f'; {said}'}"
        shown = each.shown(given.value)
        raise SettingError(given.origin, reason, setting=each.name, value=shown) from None


def _placed(path: Path, base: str, home: str) -> Path:
    if not str(path).startswith("~"):
        return Path(base) / path
    if path.parts[0] != "~" or not home:
        raise ValueError("write it without ~")
    return Path(home, *path.parts[1:])


def load(
    root: str | os.PathLike[str] = ".",
    *,
    environ: Mapping[str, str] | None = None,
    flags: Mapping[str, object] | None = None,
    own: Config | None = None,
    with_file: bool = True,
) -> Config:
    """Return the settings in force for the plans beneath *root*, with those in its file or without.

    *flags* go by the setting's name, such as `gate.slots`; None means that it was not given.
    Guarded settings that arrived by a pull do not count until they are confirmed, and none of a
    clone of the plan do, where *own* has the engine's.
    """
    variables = os.environ if environ is None else environ
    options = flags or {}
    if unknown := options.keys() - {each.name for each in SETTINGS}:
        raise KeyError(f"no such setting: {', '.join(sorted(unknown))}")
    base = os.fspath(root)
    file = _read_file(base) if with_file else _File(f"{base}/{FILE}", {}, {})
    source = base if own is None else own.home
    trusted = in_force(as_values(file.values), arrivals_at(base)) if own is None else own.trusted
    file = file.with_guarded(trusted, os.path.normpath(f"{source}/{FILE}") + " as last trusted")
    home = variables.get("HOME", "")
    given: dict[str, tuple[Overridden, ...]] = {}
    for each in SETTINGS:
        names = filter(variables.get, each.variables)
        found = [Overridden(f"environment {name}", variables[name]) for name in names]
        if options.get(each.name) is not None:
            found.insert(0, Overridden(f"flag {each.flag}", options[each.name]))
        if each.path in file.values:
            found.append(Overridden(file.origin(each.path), file.values[each.path]))
        given[each.field] = (*found, Overridden("default", each.default))
    values: dict[str, Any] = {}
    errors: list[SettingError] = []
    for each in SETTINGS:
        try:
            values[each.field] = _value(each, given[each.field][0], root=base, home=home)
        except SettingError as error:
            errors.append(error)
    if errors:
        errors[0].args = ("\n".join(map(str, errors)),)
        raise errors[0]
    return Config(
        root=base,
        home=source,
        trusted=trusted,
        findings=tuple(_unknown(file)),
        secrets=dict(_secrets(file, source, home)),
        given=given,
        **values,
    )


# Guarded settings that a person has not confirmed


class UnconfirmedSetting(Struct, frozen=True):
    name: str
    trusted: Any  # what counts; None if nothing is set
    written: Any
    commit: str | None  # that it arrived with; None: it was edited here

    def __str__(self) -> str:
        if self.commit:
            said = f"commit {self.commit[:12]} changes {self.name} in {FILE}"
            return f"{said}; it takes effect after `horae config trust`"
        return (
            f"{self.name} is changed in {FILE}; it takes effect after a restart of the engine"
            " or after `horae config trust`"
        )


class WaitingSettings(Struct, frozen=True):
    digest: str  # of all guarded values in the file
    waiting: tuple[UnconfirmedSetting, ...]


class TrustReport(WaitingSettings, frozen=True):
    after_restart: tuple[str, ...] = ()
    until_restart: bool = False


def guarded_in(config: Config) -> Values:
    return as_values(_read_file(config.root).values)


def untrusted(config: Config, written: Values | None = None) -> WaitingSettings:
    """Return which guarded settings in the file, or in *written*, do not count yet."""
    from hashlib import sha256

    trusted = config.trusted
    written = guarded_in(config) if written is None else written
    digest = sha256(repr(sorted(written.items())).encode()).hexdigest()
    arrivals = arrivals_at(config.root) if trusted != written else None
    waits = []
    for way in sorted(trusted.keys() | written.keys()):
        was, now = trusted.get(way), written.get(way)
        if was != now:
            old, new = (_shown_at(way, text) for text in (was, now))
            commit = None if arrivals is None else arrivals.commit_of(way, now) or None
            waits.append(UnconfirmedSetting(".".join(way), old, new, commit))
    return WaitingSettings(digest, tuple(waits))


def _shown_at(way: Way, text: str | None) -> object:
    """Return a guarded value as it may be shown; what names no source may be a secret itself."""
    if text is None:
        return None
    raw = json.loads(text)
    for each in SETTINGS:
        if each.path == way:
            return each.shown(raw)
    if way[0] != SECRETS:
        return plain(raw)
    from horae.core.secret import parse_source  # most roots have none

    try:
        parse_source(raw if isinstance(raw, str) else "")
    except ValueError:
        return "***"
    return raw


def confirm(config: Config, digest: str) -> WaitingSettings:
    written = guarded_in(config)
    found = untrusted(config, written)
    if found.digest != digest:
        raise SettingsChangedError
    config.accept(written)
    if config.home == config.root:
        remember(config.root, None)
    return found


# The file


class _File(NamedTuple):
    name: str
    values: Mapping[Way, object]
    lines: Mapping[Way, int]
    former: Mapping[Way, str] = {}  # where values are from that the text has not

    def line(self, path: Way) -> int | None:
        ways = (path[:length] for length in range(len(path), 0, -1))
        return next((self.lines[way] for way in ways if way in self.lines), None)

    def with_guarded(self, trusted: Values, source: str) -> _File:
        written = as_values(self.values)
        ways = written.keys() | trusted.keys()
        odd = {way for way in ways if written.get(way) != trusted.get(way)}
        kept = {way: value for way, value in self.values.items() if way not in odd}
        former = {way: json.loads(trusted[way]) for way in odd if way in trusted}
        return self._replace(values=kept | former, former=dict.fromkeys(former, source))

    def origin(self, path: Way) -> str:
        if path in self.former:
            return self.former[path]
        line = self.line(path)
        return f"{self.name}:{line}" if line else self.name


def _read_file(root: str) -> _File:
    path = f"{root.removesuffix('/')}/{FILE}"
    name = os.path.normpath(path)
    try:
        text = read_plan(path, root=root, limit=LIMIT).text
    except PlanMissingError:
        return _File(name, {}, {})
    except PlanFileError as error:
        place = name if error.line is None else f"{name}:{error.line}:{error.column}"
        raise SettingError(place, error.reason) from None
    import tomllib

    text = text.removeprefix("\ufeff")
    if dots := re.search(DOTS, text):
        line = text.count("\n", 0, dots.start()) + 1
        words = "100 dots in one line; the name of a setting has at most one"
        raise SettingError(f"{name}:{line}", words)
    try:
        tables = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        words = "too many nested brackets" if isinstance(error, RecursionError) else str(error)
        problem, _, place = words.partition(" (at ")
        where = name  # a number of 5,000 digits, or 1,000 brackets
        if place:
            found = re.fullmatch(r"line (\d+), column (\d+)\)", place)
            end = (text.count("\n") + 1, len(text) - text.rfind("\n"))  # of the document
            last, column = map(int, found.groups()) if found else end
            where = f"{name}:{last}:{column}"
            before = [way for way, line in _statements(text) if line <= last]
            if before and before[-1] in before[:-1]:
                raise SettingError(where, f"{'.'.join(before[-1])} is set twice") from None
        raise SettingError(
            where, f'{problem}; write a setting as in gate.slots = 4 or zone = "UTC"'
        ) from None
    sections = {(SECRETS,), *(each.path[:-1] for each in SETTINGS)}
    leaves = {
        way: value for way, value in leaves_of(tables).items() if value != {} or way not in sections
    }
    # Of a table that is written in parts the first counts.
    return _File(name, leaves, dict(reversed([*_statements(text)])))


# Compiled when there is a file to read; most roots have none.
_PART: Final = r"""(?:[A-Za-z0-9_-]+|"(?:[^"\\\n]|\\.)*"|'[^'\n]*')"""
_KEY: Final = rf"{_PART}(?:[ \t]*\.[ \t]*{_PART})*"
_STATEMENT: Final = rf"(?:\s++|\#[^\n]*+)*(?:\[\[?[ \t]*({_KEY})[ \t]*\]\]?|({_KEY})[ \t]*=)"
_VALUE: Final = r"""(?xs)
    \"{3}(?:\\.|[^\\])*?\"{3,5} | '{3}.*?'{3,5} | "(?:\\.|[^"\\]++)*" | '[^']*' | \#[^\n]*
    | (?P<open>[\[{]) | (?P<close>[\]}]) | (?P<end>\n) | [^"'\#\[\]{}\n]++
"""


def _statements(text: str) -> Iterator[tuple[Way, int]]:
    r"""Yield each table and key of a text with its line, as far as the text is TOML.

    >>> [*_statements("zone = 'UTC'\n[gate]\nslots = 4")]
    [(('zone',), 1), (('gate',), 2), (('gate', 'slots'), 3)]
    """
    table: Way = ()
    position, line = 0, 1
    statements, tokens = re.compile(_STATEMENT), re.compile(_VALUE)
    while statement := statements.match(text, position):
        header, key = statement.groups()
        path = tuple(part.strip("\"'") for part in re.findall(_PART, header or key))
        line += text.count("\n", position, statement.end())
        position = statement.end()
        if header:
            table = path
        yield path if header else table + path, line
        depth, end = 0, position
        while (token := tokens.match(text, end)) and (depth or not token["end"]):
            depth += bool(token["open"]) - bool(token["close"])
            end = token.end()
        line += text.count("\n", position, end)
        position = end


def _unknown(file: _File) -> Iterator[Diagnostic]:
    known = {each.path for each in SETTINGS}
    strange = [path for path in file.values if path not in known and path[0] != SECRETS]
    for count, (line, path) in enumerate(sorted((file.line(path) or 1, path) for path in strange)):
        name = ".".join(path)
        # To look for a name takes a millisecond.
        meant = meant_setting(name) if count < 20 else None
        fix = f"did you mean {meant}?" if meant else None
        message = f"there is no setting {_short(name)}; it is ignored"
        yield Diagnostic(file.name, line, 1, "setting-unknown", Severity.WARNING, message, fix)


def settings_hint(root: str) -> str:
    if os.path.isfile(f"{root}/{FILE}"):
        return f"set agent.command in {FILE}"
    return f"create {FILE} in the plan root and set agent.command in it"


# Secrets


def _secrets(file: _File, root: str, home: str) -> Iterator[tuple[str, SecretSource]]:
    for path, raw in file.values.items():
        if path[0] != SECRETS:
            continue
        from horae.core.secret import SecretSource, SourceKind, parse_source, why_no_name

        name, origin = ".".join(path[1:]), file.origin(path)
        try:
            why = 'secrets is a table; write [secrets] and below it NAME = "file:PATH"'
            if why := why_no_name(name) if name else why:
                raise ValueError(why)  # noqa: TRY301 - told as those below
            source = parse_source(raw if isinstance(raw, str) else "")
            words = source.words
            if source.kind is SourceKind.FILE:
                words = (os.path.abspath(_placed(PATH.read(words[0]), root, home)),)
        except ValueError as error:
            said = ".".join(filter(None, (SECRETS, name[:60])))
            raise SettingError(f"{origin}: {said}", str(error)) from None
        yield name, SecretSource(source.kind, words, origin)


def secrets_of(
    config: Config, *, may_call: bool = True, environ: Mapping[str, str] | None = None
) -> NamedSecrets:
    from horae.process.run_settings import NamedSecrets
    from horae.store import database

    data = Path(os.path.abspath(config.data))
    is_shared = config.store is not None
    return NamedSecrets(
        config.secrets,
        os.environ if environ is None else environ,
        root=Path(config.root).absolute(),
        data=data,
        store=config.store,
        may_call=may_call,
        keeps=None if is_shared else partial(database.keep, data),
        forgets=None if is_shared else partial(database.forget, data),
    )


def known_names(config: Config) -> dict[str, str]:
    return {**os.environ, **dict.fromkeys(config.secrets, "")}


def state_directory() -> Path:
    base = os.environ.get("XDG_STATE_HOME", "")
    home = Path(base) if base.startswith("/") else Path.home() / ".local" / "state"
    return home / "horae"
