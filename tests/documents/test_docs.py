"""The documents tell the truth: their examples run, their lists are whole, their links lead on.

How a page is written so that it can be tested:

- `org`: a plan. The last file name in the paragraph above it is the name it is saved
  under for the examples below it on the same page.
- `console`: what a person sees on a terminal that is 100 columns wide. A line with `$`
  is typed, the lines below it are the answer, to the letter; blanks at the ends of
  lines do not count. `horae`, `wb` and `echo $?` can be typed, with variables before
  and `< FILE` after them. `examples/` is there, and so are the plans above.
- A page with `<!-- story -->` in it has its files written and its commands typed for real, in
  order; `story.py` says how.
- `python`: a session with `>>>`; those of one page are one session. Where it first connects,
  an engine runs the plans above it in `ops`.
- `json`: if the paragraph above names `horae query` or `horae tangle`, a part of what
  that command says of the plan above it.
- `sh`, `text` and others are not run.
"""

import ast
import contextlib
import doctest
import importlib.util
import io
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple
from unittest import mock

import click
import pytest
import yaml

import horae
from commands import engine_up
from documents.story import Teller, agrees, answers, programs_of, stories_of, typed
from horae.cli.group import horae as horae_group
from horae.cli.run import run
from horae.cli.wb import wb as wb_group
from horae.client import Client
from horae.core.receipt import RECEIPT_STATUSES
from horae.errors import Exit
from horae.org.plan import Severity
from horae.sources.triggers.kinds import KINDS

ROOT: Final = Path(__file__).resolve().parents[2]
PAGES: Final = {
    str(path.relative_to(ROOT)): path.read_text(encoding="utf-8")
    for path in sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
}
SOURCES: Final = "\n".join(path.read_text(encoding="utf-8") for path in ROOT.glob("src/**/*.py"))
MAKEFILE: Final = (ROOT / "Makefile").read_text(encoding="utf-8")

_FENCE: Final = re.compile(r"^(`{3,})([a-z]*)[^\n`]*\n(.*?)^\1[ ]*$", re.MULTILINE | re.DOTALL)
_HEADING: Final = re.compile(r"^(#+) (.+)$", re.MULTILINE)
_LINK: Final = re.compile(r"\[[^\]\n]*\]\(([^)\s]+)\)")
_PLAN_NAME: Final = re.compile(r"`([\w.-]+\.org)`")
_MAKE: Final = re.compile(r"^make ([a-z]+)", re.MULTILINE)
_WORD: Final = re.compile(r"^- \*\*([a-z -]+)\*\*: \S.*\.$", re.MULTILINE)
_VARIABLE: Final = re.compile(r"([A-Z_]+)=(.*)")


class Block(NamedTuple):
    """A fenced example, with the paragraph that introduces it."""

    page: str
    line: int
    language: str
    text: str
    above: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def blocks_of(page: str) -> Iterator[Block]:
    text = PAGES[page]
    for fence in _FENCE.finditer(text):
        above = text[: fence.start()].rstrip().rpartition("\n\n")[2]
        line = text.count("\n", 0, fence.start()) + 1
        yield Block(page, line, fence[2], fence[3], above)


def prose_of(page: str) -> str:
    return _FENCE.sub("", PAGES[page])


def section_of(page: str, title: str) -> str:
    """Return the section of a page under the heading with exactly this title."""
    headings = [found for found in _HEADING.finditer(PAGES[page]) if found[2] == title]
    assert headings, f"{page} has no heading {title!r}"
    start = headings[0]
    rest = PAGES[page][start.end() :]
    end = re.search(rf"^#{{1,{len(start[1])}}} ", rest, re.MULTILINE)
    return rest[: end.start()] if end else rest


BLOCKS: Final = [block for page in PAGES for block in blocks_of(page)]
STORIES: Final = {
    f"{page}:{number}": story
    for page, text in PAGES.items()
    for number, story in enumerate(stories_of(text), 1)
}


def examples(language: str) -> pytest.MarkDecorator:
    found = [block for block in BLOCKS if block.language == language]
    return pytest.mark.parametrize("block", found, ids=str)


def plans_above(block: Block) -> dict[str, str]:
    """Return the plans that stand above an example on its page, by their names."""
    above = [each for each in blocks_of(block.page) if each.line < block.line]
    return {
        names[-1]: each.text
        for each in above
        if each.language == "org" and (names := _PLAN_NAME.findall(each.above))
    }


class Screen(io.TextIOWrapper):
    """A terminal without colours that remembers what was printed."""

    def __init__(self) -> None:
        self.raw = io.BytesIO()
        super().__init__(self.raw, encoding="utf-8", write_through=True)

    def isatty(self) -> bool:
        return True

    def lines(self) -> list[str]:
        return [line.rstrip() for line in self.raw.getvalue().decode().splitlines()]


class Shell:
    """Just enough of a shell to type the examples into."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.code = 0

    def type(self, line: str) -> list[str]:
        """Return what a command prints, its complaints included."""
        if line == "echo $?":
            return [str(self.code)]
        words, given = shlex.split(line), b""
        variables: dict[str, str] = {}
        while words and (variable := _VARIABLE.fullmatch(words[0])):
            variables[variable[1]] = variable[2]
            del words[0]
        if words[-2:-1] == ["<"]:
            given = (self.home / words[-1]).read_bytes()
            del words[-2:]
        command = {"horae": horae_group, "wb": wb_group}.get(words[0])
        assert command, f"{line!r} cannot be typed here; put what is not run into a `sh` block"
        screen = Screen()
        with (
            mock.patch.dict(os.environ, variables),
            mock.patch.object(sys, "stdin", io.TextIOWrapper(io.BytesIO(given))),
            contextlib.redirect_stdout(screen),
            contextlib.redirect_stderr(screen),
        ):
            self.code = run(command, name=words[0], args=words[1:])
            return screen.lines()


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with the examples in it, on a machine that is set to UTC and nothing else."""
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    for name in list(os.environ):
        if name.startswith(("HORAE_", "WB_")):
            monkeypatch.delenv(name)
    for name, value in {"TZ": "UTC", "TERM": "dumb", "COLUMNS": "100", "LINES": "40"}.items():
        monkeypatch.setenv(name, value)
    program = tmp_path / ".bin" / "logger"  # which pages take to be installed
    program.parent.mkdir()
    program.touch(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / '.bin'}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    "block",
    [each for each in BLOCKS if each.language == "console" and not stories_of(PAGES[each.page])],
    ids=str,
)
def test_a_console_example_prints_what_the_page_shows(block: Block, home: Path) -> None:
    for name, text in plans_above(block).items():
        (home / name).write_text(text, encoding="utf-8", newline="")
    shell = Shell(home)
    typed = re.split(r"^\$ ", block.text, flags=re.MULTILINE)
    assert typed[0] == "", "a console example begins with a command"
    for each in typed[1:]:
        command, *shown = each.rstrip("\n").split("\n")
        assert shell.type(command) == shown, f"{block}: $ {command}"


@pytest.mark.parametrize("name", STORIES)
def test_a_story_goes_as_the_page_tells_it(name: str) -> None:
    missing = [each for each in programs_of(STORIES[name]) if shutil.which(each) is None]
    if missing:
        pytest.skip(f"not on this machine: {', '.join(missing)}")
    with tempfile.TemporaryDirectory(prefix="h") as folder:  # short, as a socket's path must be
        assert any(part.kind == "console" for part in STORIES[name]), "something is typed"
        Teller(Path(folder)).tell(STORIES[name], name)


def test_a_story_has_no_console_example_before_it_begins() -> None:
    early = [
        page
        for page, text in PAGES.items()
        if "<!-- story -->" in text and "```console" in text.partition("<!-- story -->")[0]
    ]
    assert early == []


@pytest.mark.parametrize(
    ("shown", "said", "is_so"),
    [
        (["a … c"], ["a b c"], True),
        (["a … c"], ["a b d"], False),
        (["a", "…"], ["a"], True),
        (["a", "…", "z"], ["a", "b", "c", "z"], True),
        (["a", "…", "z"], ["a", "b"], False),
        (["a"], ["a", "b"], False),
        ([], ["a"], False),
        (["…(x)"], ["1(x)"], True),
    ],
)
def test_an_ellipsis_stands_for_any_text_and_nothing_else_does(
    shown: list[str], said: list[str], is_so: bool
) -> None:
    assert agrees(shown, said) is is_so


def test_a_moment_stands_for_any_other_unless_the_command_names_one() -> None:
    shown, said = ["2026-06-06 Sat 08:00 UTC  run 3"], ["2027-01-01 Fri 09:30:05 UTC  run 17"]
    assert answers("horae status", shown, said)
    assert not answers("horae status", shown, ["2027-01-01 Fri 09:30:05 UTC  wait 17"])
    assert not answers("horae next --at 2026-06-06", shown, said)


def test_a_typed_line_may_go_on_in_the_next() -> None:
    assert typed("$ echo one \\\n>   two\none two\n$ true\n") == [
        ("echo one two", ["one two"]),
        ("true", []),
    ]


def test_a_story_that_is_not_true_is_noticed(tmp_path: Path) -> None:
    page = "<!-- story -->\n<!-- file: a.txt -->\n```text\nhello\n```\n```console\n$ {}\n```\n"
    [right] = stories_of(page.format("wc -l < a.txt\n1"))
    [wrong] = stories_of(page.format("wc -l < a.txt\n2"))
    [failing] = stories_of(page.format("test -e b.txt"))
    for number, story in enumerate((right, wrong, failing)):
        (tmp_path / str(number)).mkdir()
        teller = Teller(tmp_path / str(number))
        if story is right:
            teller.tell(story, "page")
            continue
        with pytest.raises(AssertionError, match=r"page:6: \$ (wc|test)"):
            teller.tell(story, "page")


SESSIONS: Final = sorted({block.page for block in BLOCKS if block.language == "python"})


@pytest.mark.parametrize("page", SESSIONS)
def test_the_python_examples_of_a_page_are_one_session_that_works(page: str, home: Path) -> None:
    runner = doctest.DocTestRunner(verbose=False)
    names: dict[str, object] = {}
    with contextlib.ExitStack() as stack:
        for block in blocks_of(page):
            if block.language != "python":
                continue
            if "horae.connect(" in block.text and not (home / "ops").exists():
                (home / "ops").mkdir()
                for name, text in plans_above(block).items():
                    (home / "ops" / name).write_text(text)
                stack.enter_context(engine_up(home / "ops"))
            session = doctest.DocTestParser().get_doctest(block.text, names, page, page, block.line)
            assert session.examples, f"{block}: a python example is a session with >>>"
            runner.run(session, clear_globs=False)
            names = session.globs
    assert runner.summarize(verbose=False).failed == 0


@examples("org")
def test_a_plan_on_a_page_holds_nothing_odd_that_the_page_does_not_name(block: Block) -> None:
    found = horae.check(block.text, name=str(block))
    odd = [each for each in found if each.severity is not Severity.INFO]
    assert [str(each) for each in odd if f"`{each.code}`" not in PAGES[block.page]] == []


@examples("json")
def test_a_json_example_is_what_the_command_says(block: Block) -> None:
    shown = json.loads(block.text)
    above = [each for each in blocks_of(block.page) if each.line < block.line]
    plans = [each.text for each in above if each.language == "org"]
    if "`horae query`" in block.above:
        assert is_part(shown, horae.query(plans[-1]))
    elif "`horae tangle`" in block.above:
        assert is_part(shown, horae.tangle(plans[-1])["worlds"])


def is_part(part: object, whole: object) -> bool:
    """Tell whether *part* is *whole* with keys left out; an object may stand for a list's first."""
    if isinstance(part, dict) and isinstance(whole, list):
        return bool(whole) and is_part(part, whole[0])
    if isinstance(part, dict) and isinstance(whole, dict):
        return all(key in whole and is_part(part[key], whole[key]) for key in part)
    if isinstance(part, list) and isinstance(whole, list):
        return len(part) == len(whole) and all(map(is_part, part, whole))
    return part == whole


def test_a_part_must_be_found_and_must_be_equal() -> None:
    assert is_part({"a": 1}, [{"a": 1, "b": 2}])
    assert not is_part({"a": 2}, [{"a": 1, "b": 2}])
    assert not is_part({"c": None}, [{"a": 1, "b": 2}])
    assert not is_part({}, [])
    assert not is_part([{"a": 1}], [{"a": 1}, {"a": 1}])


def test_the_table_of_timestamps_is_what_the_classifier_says() -> None:
    section = section_of("docs/reference/plan.md", "Timestamps")
    lines = re.findall(r"^\| `[<\[].*$", section, re.MULTILINE)
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    stamps = [(stamp, *row[1:]) for row in rows for stamp in re.findall(r"`(.+?)`", row[0])]
    assert len(stamps) > len(rows) > 0
    assert [stamp for stamp, *cells in stamps if cells != cells_of(stamp)] == []


def cells_of(stamp: str) -> list[str]:
    """Return the cells of the table that belong to a stamp."""
    found = horae.parse_timestamp(stamp)
    if found is None:
        return ["no timestamp", "", ""]
    repeat = f"`{found['repeat']}`" if found["repeat"] else "null"
    return [f"`{found['at']}`", repeat, str(found["active"]).lower()]


def commands(name: str, command: click.Command) -> Iterator[tuple[str, click.Command]]:
    """Yield a command and those inside it, by the words with which they are called."""
    yield name, command
    if isinstance(command, click.Group):
        context = click.Context(command, info_name=name)
        for word in command.list_commands(context):
            inner = command.get_command(context, word)
            assert inner is not None
            yield from commands(f"{name} {word}", inner)


@pytest.mark.parametrize("group", [horae_group, wb_group], ids=["horae", "wb"])
def test_every_command_and_every_option_is_in_the_reference(group: click.Group) -> None:
    page = "docs/reference/cli.md"
    shared = section_of(page, "Every command")
    missing = [
        f"{name} {option}"
        for name, command in commands(str(group.name), group)
        for param in command.get_params(click.Context(command))
        if isinstance(param, click.Option)
        for option in (*param.opts, *param.secondary_opts)
        if not re.search(rf"[ `]{option}(?![\w-])", described(page, name) + shared)
    ]
    assert missing == []


def described(page: str, name: str) -> str:
    """Return what a page says about a command: its section, or its row in that of its group."""
    for title in (found[2] for found in _HEADING.finditer(PAGES[page])):
        if f"`{name}`" in title:
            return section_of(page, title)
    group = described(page, name.rpartition(" ")[0])
    row, own = re.compile(r"\| `(horae|wb) "), re.compile(rf"\| `{name}[ `]")
    lines = group.partition("\n#")[0].splitlines()
    assert any(map(own.match, lines)), f"{page} says nothing about {name}"
    return "\n".join(each for each in lines if own.match(each) or not row.match(each))


def test_every_exit_code_has_a_row_that_says_what_to_do() -> None:
    page = PAGES["docs/reference/exit-codes.md"]
    assert [code.name for code in Exit if f"| {code.value} |" not in page] == []


def test_every_file_that_an_engine_leaves_is_in_the_reference(tmp_path: Path) -> None:
    (tmp_path / "plan.org").write_text(
        "* A\n:PROPERTIES:\n:SCHEDULE: * * * * * *\n:COMMAND: true\n:END:\n"
    )
    with tempfile.TemporaryDirectory(prefix="h") as folder:
        teller = Teller(Path(folder))
        teller.here = tmp_path
        teller.start("horae up")
        try:
            teller.ask("ls -d .horae/runs/*/1/end.json", [".horae/runs/…/1/end.json"])
            found = {path.name for path in (tmp_path / ".horae").iterdir()}
            found |= {path.name for path in (tmp_path / ".horae").glob("runs/*/1/*")}
        finally:
            teller.end(signal.SIGINT)
    assert {"ledger.db", "runs", "end.json"} <= found
    page = PAGES["docs/reference/files.md"]
    assert sorted(name for name in found if f"`{name}" not in page) == []


def test_every_word_for_an_error_is_in_the_reference() -> None:
    codes = set(re.findall(r'^    code(?:: ClassVar\[str\])? = "(\w+)"', SOURCES, re.MULTILINE))
    codes |= set(re.findall(r'^class \w+\([^)]*\bcode="(\w+)"', SOURCES, re.MULTILINE))
    codes |= set(re.findall(r'\bHoraeError\([^)]*\bcode="(\w+)"', SOURCES))
    codes |= set(re.findall(r'\{"code": "(\w+)", "exit_code"', SOURCES))
    rows = section_of("docs/reference/cli.md", "Error codes")
    assert "plan_missing" in codes
    assert sorted(code for code in codes if f"| `{code}` |" not in rows) == []


def test_every_variable_that_is_read_is_in_the_reference() -> None:
    names = set(re.findall(r"\bHORAE_[A-Z_]*[A-Z]\b", SOURCES))
    pages = "\n".join(text for page, text in PAGES.items() if "/reference/" in page)
    assert "HORAE_DEBUG" in names
    assert sorted(name for name in names if f"`{name}" not in pages) == []


@pytest.mark.parametrize("name", horae.__all__)
def test_every_public_name_is_in_the_reference_with_an_example(name: str) -> None:
    section = section_of("docs/reference/python.md", f"`{name}`")
    session = "".join(fence[3] for fence in _FENCE.finditer(section) if fence[2] == "python")
    assert re.search(rf"\b{name}\b", session)


@pytest.mark.parametrize(("name", "kind"), [("Cron", horae.Cron), ("connect", Client)])
def test_every_method_in_the_reference_exists(name: str, kind: type) -> None:
    section = section_of("docs/reference/python.md", f"`{name}`")
    rows = re.findall(r"^\| (`.*?) \|", section, re.MULTILINE)
    methods = {method for row in rows for method in re.findall(r"`(\w+)\(", row)}
    assert methods
    assert methods <= {*dir(kind)}


@pytest.mark.parametrize("page", PAGES)
def test_every_link_leads_somewhere(page: str) -> None:
    targets = [link for link in _LINK.findall(prose_of(page)) if "://" not in link]
    assert [link for link in targets if not leads_somewhere(page, link)] == []


def leads_somewhere(page: str, link: str) -> bool:
    path, _, anchor = link.partition("#")
    target = (ROOT / page).parent / path if path else ROOT / page
    if not target.exists() or not anchor:
        return target.exists()
    name = str(target.resolve().relative_to(ROOT))
    headings = {anchor_of(found[2]) for found in _HEADING.finditer(PAGES[name])}
    return anchor in headings or f'<a id="{anchor}"></a>' in PAGES[name]


def anchor_of(title: str) -> str:
    """Return the anchor that a heading gets where these pages are shown."""
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


def test_a_link_must_lead_to_a_file_and_to_a_heading_in_it() -> None:
    assert leads_somewhere("docs/README.md", "../README.md")
    assert leads_somewhere("docs/README.md", "reference/cli.md#exit-codes")
    assert not leads_somewhere("docs/README.md", "reference/cli.md#no-such-heading")
    assert not leads_somewhere("docs/README.md", "README.org")


@pytest.mark.parametrize("page", [page for page in PAGES if page.startswith("docs/")])
def test_every_page_is_on_the_map(page: str) -> None:
    links = [(ROOT / "docs" / link).resolve() for link in _LINK.findall(PAGES["docs/README.md"])]
    assert page == "docs/README.md" or (ROOT / page) in links


def site() -> dict[str, object]:
    read = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
    assert isinstance(read, dict)
    return read


def pages_in(nav: object) -> list[str]:
    """Return the pages of a navigation, at any depth."""
    if isinstance(nav, dict):
        return [page for inner in nav.values() for page in pages_in(inner)]
    if isinstance(nav, list):
        return [page for inner in nav for page in pages_in(inner)]
    return [str(nav)]


def test_the_site_lists_every_page_once() -> None:
    listed = pages_in(site()["nav"])
    pages = [page.removeprefix("docs/") for page in PAGES if page.startswith("docs/")]
    assert sorted(listed) == sorted(pages)


def titles_in(nav: object) -> dict[str, str]:
    """Return the title of each page of a navigation, at any depth."""
    if isinstance(nav, list):
        return {page: title for inner in nav for page, title in titles_in(inner).items()}
    assert isinstance(nav, dict)
    return {
        page: title
        for name, inner in nav.items()
        for page, title in ({inner: name} if isinstance(inner, str) else titles_in(inner)).items()
    }


def test_a_page_has_one_title_on_the_page_in_the_navigation_and_on_the_map() -> None:
    listed = titles_in(site()["nav"])
    linked = dict(re.findall(r"\[([^\]]+)\]\(([^)#]+)\)", PAGES["docs/README.md"]))
    on_map = {page: title for title, page in linked.items()}
    headed = {page: PAGES[f"docs/{page}"].partition("\n")[0] for page in listed}
    assert [page for page, title in listed.items() if headed[page] != f"# {title}"] == []
    del listed["README.md"]  # the map itself
    assert [page for page, title in listed.items() if on_map[page] != title] == []


def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    if importlib.util.find_spec("mkdocs") is None:
        pytest.skip("no mkdocs here; install it with `pip install -e '.[docs]'`, or `make site`")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr
    assert (tmp_path / "project" / "architecture" / "index.html").exists()


def test_every_picture_is_small_and_is_shown() -> None:
    pictures = sorted((ROOT / "docs" / "pictures").iterdir())
    assert pictures
    assert [path.name for path in pictures if path.stat().st_size > 300_000] == []
    shown = "".join(PAGES.values())
    assert [path.name for path in pictures if f"pictures/{path.name}" not in shown] == []


def differences() -> Iterator[str]:
    """Yield the tests that walk the documents and say that something is different here."""
    for path in sorted((ROOT / "tests" / "walks").glob("test_*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            if "Different here" in (ast.get_docstring(node) or ""):
                yield node.name


def test_every_place_where_we_differ_on_purpose_is_listed() -> None:
    page = PAGES["docs/differences.md"]
    assert [name for name in differences() if f"`{name}`" not in page] == []


def test_the_glossary_has_at_most_forty_terms_in_alphabetical_order() -> None:
    words = _WORD.findall(PAGES["docs/glossary.md"])
    assert len(words) == PAGES["docs/glossary.md"].count("\n- ") <= 40
    assert words == sorted(set(words))


@pytest.mark.parametrize("word", _WORD.findall(PAGES["docs/glossary.md"]))
def test_a_term_of_the_glossary_is_used_on_another_page(word: str) -> None:
    others = (text for page, text in PAGES.items() if page != "docs/glossary.md")
    assert any(re.search(rf"\b{word}", text, re.IGNORECASE) for text in others)


def test_every_status_of_a_receipt_is_explained() -> None:
    page = PAGES["docs/concepts/receipts.md"]
    assert [status.value for status in RECEIPT_STATUSES if f"`{status.value}`" not in page] == []


def test_the_variables_of_a_prompt_are_those_that_each_kind_of_trigger_knows() -> None:
    section = section_of("docs/how-to/triggers.md", "Variables of a prompt")
    common, own = re.findall(r"^\|---.*\n((?:\|.*\n)+)", section, re.MULTILINE)
    every = re.findall(r"\{\{(\w+)\}\}", common)
    rows = dict(re.findall(r"^\| `--\w+` \| `(\w+)` \| (.*) \|$", own, re.MULTILINE))
    found = {kind: {*every, *re.findall(r"\{\{(\w+)\}\}", row)} for kind, row in rows.items()}
    assert every[0] == "title"
    assert found == {name: set(kind.variables()) for name, kind in KINDS.items()}


def test_every_target_of_make_is_in_the_guide_for_contributors() -> None:
    targets = re.findall(r"^([a-z]+):.*##", MAKEFILE, re.MULTILINE)
    assert "torture" in targets
    assert [name for name in targets if f"`make {name}`" not in PAGES["CONTRIBUTING.md"]] == []


@pytest.mark.parametrize("page", PAGES)
def test_every_target_of_make_that_a_page_names_exists(page: str) -> None:
    shown = "".join(block.text for block in blocks_of(page) if block.language == "sh")
    named = {*re.findall(r"`make ([a-z]+)`", PAGES[page]), *_MAKE.findall(shown)}
    assert [name for name in named if not re.search(rf"^{name}:", MAKEFILE, re.MULTILINE)] == []
