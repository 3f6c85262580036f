"""Languages are rows: each is found, built and run, or what is missing is said."""

from __future__ import annotations

import shutil
import time
from datetime import timedelta
from itertools import chain
from typing import TYPE_CHECKING

import pytest

from horae.core.clock import SystemClock
from horae.core.ports import RunError
from horae.core.receipt import Status
from horae.process.processes import can_kill_trees
from horae.sources.workflows.languages import (
    AGENT,
    LANGUAGES,
    BuildCache,
    Tool,
    filled,
    is_new_enough,
    language_of,
    missing,
    telling,
)
from sources.workflows.stage import flow, job, marked, only, step, tasks, yard
from store.ledger_suite import story

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.skipif(not can_kill_trees(), reason="needs pidfds")

needs_shell = pytest.mark.skipif(shutil.which("bash") is None, reason="this machine has no bash")

# One program in each language: what it reads, in capitals.
SHOUTS = {
    "python": "import sys\nsys.stdout.write(sys.stdin.read().upper())",
    "sh": "tr a-z A-Z",
    "bash": 'read -r line; echo "${line^^}"',
    "js": "console.log(require('fs').readFileSync(0, 'utf8').toUpperCase())",
    "ts": (
        "import { readFileSync } from 'node:fs';\n"
        "const text: string = readFileSync(0, 'utf8');\nconsole.log(text.toUpperCase());"
    ),
    "rust": (
        "use std::io::Read;\nfn main() {\n let mut s = String::new();\n"
        ' std::io::stdin().read_to_string(&mut s).unwrap();\n println!("{}", s.to_uppercase());\n}'
    ),
    "go": (
        'package main\nimport ("fmt"; "io"; "os"; "strings")\n'
        "func main() {\n b, _ := io.ReadAll(os.Stdin)\n fmt.Println(strings.ToUpper(string(b)))\n}"
    ),
    "c": (
        "#include <ctype.h>\n#include <stdio.h>\n"
        "int main(void) { int c; while ((c = getchar()) != EOF) putchar(toupper(c)); }"
    ),
    "c++": (
        "#include <cctype>\n#include <cstdio>\n"
        "int main() { for (int c; (c = std::getchar()) != EOF;) std::putchar(std::toupper(c)); }"
    ),
    "ruby": "puts STDIN.read.upcase",
    "perl": "print uc while <STDIN>;",
    "lua": "print(io.read('a'):upper())",
    "java": (
        "public class Shout {\n public static void main(String[] a) throws Exception {\n"
        "  System.out.println(new String(System.in.readAllBytes()).toUpperCase());\n }\n}"
    ),
}


def test_every_language_has_a_name_of_its_own_and_a_program_here() -> None:
    names = list(chain.from_iterable((row.name, *row.aliases) for row in LANGUAGES))
    assert len(names) == len(set(names))
    assert {row.name for row in LANGUAGES} == {*SHOUTS, AGENT}
    assert language_of("CPP").name == "c++"
    with pytest.raises(
        RunError, match="blocks in 'brainfuck' cannot be run; supported languages: python"
    ):
        language_of("brainfuck")


@pytest.mark.parametrize("name", SHOUTS)
def test_a_block_of_each_language_runs_where_its_tool_is(name: str, tmp_path: Path) -> None:
    @story
    async def shout() -> None:
        async with yard(tmp_path) as place:
            text = flow(step("Shout", name, SHOUTS[name]))
            record = await place.run(text, input=b"beans\n")
            if f"a {name} block needs" in record.reason:
                pytest.skip(record.reason)
            assert record.outcome is Status.DONE, only(record).stderr
            assert tasks(record)["Shout"] == "BEANS"

    shout()


# One program in each language that goes wrong on its third line; a shell does not say where.
FALLS = {
    "python": "import sys\n\nraise ValueError('oops')",
    "js": "const a = 1;\n\nthrow new Error('oops');",
    "ts": "const a: number = 1;\n\nthrow new Error('oops');",
    "rust": 'fn main() {\n\n panic!("oops");\n}',
    "go": 'package main\nfunc main() {\n panic("oops")\n}',
    "ruby": "a = 1\n\nraise 'oops'",
    "perl": "my $a = 1;\n\ndie 'oops';",
    "lua": "local a = 1\n\nerror('oops')",
    "java": (
        "public class Fall {\n public static void main(String[] a) {\n"
        '  throw new RuntimeException("oops");\n }\n}'
    ),
}
# And what is wrong with it before it begins.
WRONG = {
    "python": "a = 1\n\nb = = 1",
    "js": "let a;\n\nlet b = (;",
    "ts": "let a: number;\n\nlet b = (;",
    "rust": 'fn main() {\n\n let a: u8 = "x";\n}',
    "go": "package main\nfunc main() {\n x := 1\n}",
    "c": "int a;\n\nint main(void) { return b; }",
    "c++": "int a;\n\nint main() { return b; }",
    "ruby": "a = 1\n\nb = = 1",
    "perl": "my $a;\n\nif ((;",
    "lua": "local a\n\nlocal b = = 1",
    "java": ('public class Wrong {\n public static void main(String[] a) {\n  int x = "a";\n }\n}'),
}


@pytest.mark.parametrize(
    ("name", "body"),
    [*FALLS.items(), *WRONG.items()],
    ids=[*(f"{name}-falls" for name in FALLS), *(f"{name}-wrong" for name in WRONG)],
)
def test_the_line_at_which_a_block_goes_wrong_is_found_in_what_its_tool_says(
    name: str, body: str, tmp_path: Path
) -> None:
    @story
    async def fall() -> None:
        async with yard(tmp_path) as place:
            record = await place.run(flow(step("Fall", name, body)))
            if f"a {name} block needs" in record.reason:
                pytest.skip(record.reason)
            note = only(record)
            assert note.status == "failed"
            assert note.error_line == note.line + 3, note.stderr
            if name in FALLS and body == FALLS[name]:
                assert "oops" in (note.error or ""), note.stderr

    fall()


@pytest.mark.parametrize(
    ("said", "first", "words"),
    [
        ("", False, ""),
        ("one\ntwo\n", False, "two"),
        ("/tmp/7/block.sh: 2: no such thing", False, "block.sh: 2: no such thing"),
        (
            "# command-line-arguments\n./block.go:3:2: x declared\n",
            True,
            "block.go:3:2: x declared",
        ),
        (
            "block.java:3: error: types\n  int x;\n      ^\n1 error\n",
            True,
            "block.java:3: error: types",
        ),
        ("Node.js v20.1.0\n", False, "Node.js v20.1.0"),  # better than nothing
        ("warning: a\nblock.c:2: error: b\nblock.c:9: error: c\n", True, "block.c:2: error: b"),
    ],
)
def test_of_what_a_tool_says_the_line_is_shown_that_tells_most(
    said: str, first: bool, words: str
) -> None:
    assert telling(said, first=first) == words


@pytest.mark.parametrize("unit", ["^\n", "x", "a/", "at x\n", "  ^\n\n", "'", "file://"])
def test_what_a_tool_says_may_be_long(unit: str) -> None:
    start = time.process_time()
    telling(unit * (4_000_000 // len(unit)))
    assert time.process_time() - start < 20  # a quadratic reader takes hours


@needs_shell
@story
async def test_the_line_of_a_shell_is_found_where_it_says_one(tmp_path: Path) -> None:
    async with yard(tmp_path) as place:
        for lang in ("sh", "bash"):
            note = only(await place.run(flow(step("A", lang, "true\n\nno-such-program\nexit 1"))))
            assert note.error_line == note.line + 3, note.stderr
            assert "no-such-program" in (note.error or "")


# A package of each language that comes with it, or is laid beside the plan.
PACKAGES = {
    "python": "json",
    "sh": "sed",
    "bash": "sed",
    "js": "kleur",
    "ts": "kleur",
    "ruby": "json",
    "perl": "File::Spec",
    "lua": "string",
}


@pytest.mark.parametrize("name", PACKAGES)
def test_a_package_that_is_there_is_found_and_one_that_is_not_is_named(
    name: str, tmp_path: Path
) -> None:
    @story
    async def look() -> None:
        async with yard(tmp_path) as place:
            lay_package(place.root)
            text = flow(step("Shout", name, SHOUTS[name], f":deps {PACKAGES[name]}"))
            record = await place.run(text, input=b"beans\n")
            if f"a {name} block needs" in record.reason:
                pytest.skip(record.reason)
            if "deno" in str(only(record).tool):
                pytest.skip("packages are not looked for with deno")
            assert record.outcome is Status.DONE, only(record).stderr
            assert tasks(record)["Shout"] == "BEANS"
            record = await place.run(flow(step("A", name, SHOUTS[name], ":deps nosuchthing")))
            assert (only(record).error or "").startswith(":deps nosuchthing: not found")

    look()


def lay_package(root: Path) -> None:
    home = root / "node_modules" / "kleur"
    home.mkdir(parents=True)
    (home / "package.json").write_text('{"name": "kleur", "version": "1.0.0", "main": "a.js"}')
    (home / "a.js").write_text("module.exports = {}")


@pytest.mark.parametrize("tool", [tool.program for tool in language_of("ts").tools])
def test_typescript_runs_with_each_of_its_tools(tool: str, tmp_path: Path) -> None:
    if shutil.which(tool) is None:
        pytest.skip(f"{tool} is not on this machine")
    tools = tmp_path / "bin"
    tools.mkdir()
    for each in ("sh", "env", *(("node",) if tool == "tsx" else ()), tool):
        (tools / each).symlink_to(shutil.which(each) or each)

    @story
    async def shout() -> None:
        async with yard(tmp_path, path=str(tools)) as place:
            record = await place.run(flow(step("A", "ts", SHOUTS["ts"])), input=b"beans\n")
            if "a ts block needs" in record.reason:
                pytest.skip(record.reason)
            assert record.outcome is Status.DONE, only(record).stderr
            assert (tasks(record)["A"], only(record).tool.split()[0]) == (  # type: ignore[union-attr]
                "BEANS",
                str(tools / tool),
            )

    shout()


def test_what_is_missing_is_said_with_what_to_do() -> None:
    assert missing(language_of("js"), "/opt") == (
        "a js block needs node or bun: not found in the PATH (/opt);"
        " install Node.js (https://nodejs.org)"
    )
    assert "only node v20.1" in missing(language_of("ts"), "/opt", ["node v20.1"])


def test_a_version_is_compared_by_its_numbers() -> None:
    tool = Tool("node", least=(22, 6))
    told = ["v22.6.0", "v22.10", "v23", "v22.5.9", "v9.9", "no number"]
    assert [is_new_enough(tool, each) for each in told] == [True, True, True, False, False, False]


def test_a_command_is_filled_word_by_word() -> None:
    command = ("cc", "-o", "{program}", "{sources}", "{flags}")
    whole = filled(command, program="a b", sources=("x.c", "y.c"), flags=())
    assert whole == ("cc", "-o", "a b", "x.c", "y.c")


needs_c = pytest.mark.skipif(shutil.which("cc") is None, reason="this machine has no cc")
C = '#include <stdio.h>\nint main(void) { printf("%s", WORD); }'


@needs_c
@story
async def test_what_was_built_is_kept_by_all_that_it_is_made_from(tmp_path: Path) -> None:
    text = flow(step("C", "c", '#include "word.h"\n' + C, ":deps word.h"))
    async with yard(tmp_path) as place:
        kept = place.data / "cache" / "blocks"

        async def said() -> str | None:
            return tasks(await place.run(text))["C"]

        (place.root / "word.h").write_text('#define WORD "one"\n')
        assert [await said(), await said()] == ["one", "one"]
        first = {each.name: each.stat().st_ino for each in kept.iterdir()}
        assert len(first) == 1
        (place.root / "word.h").write_text('#define WORD "two"\n')
        assert await said() == "two"
        assert len(list(kept.iterdir())) == 2
        assert first.items() <= {each.name: each.stat().st_ino for each in kept.iterdir()}.items()


@needs_c
@story
async def test_of_what_is_kept_the_longest_unused_goes_when_there_is_no_room(
    tmp_path: Path,
) -> None:
    async with yard(tmp_path) as place:
        runner = place.runner()
        size = 0
        for number in range(4):
            text = flow(step("C", "c", f"int main(void) {{ return {number} - {number}; }}"))
            runner.cache = BuildCache(
                place.data / "cache",
                clock=SystemClock(),
                environ=place.place.environ,
                room=int(size * 2.5) or 1 << 30,
            )
            held = await runner.hold(job(text, number=number))
            held.go()
            assert (await held.ended()).outcome is Status.DONE
            size = next((place.data / "cache" / "blocks").iterdir()).stat().st_size
        assert len(list((place.data / "cache" / "blocks").iterdir())) == 2


@story
async def test_files_beside_the_plan_can_be_named_and_nothing_outside_the_root(
    tmp_path: Path,
) -> None:
    (tmp_path / "outside.py").write_text("WORD = 'stolen'\n")
    async with yard(tmp_path) as place:
        (place.root / "words.py").write_text("WORD = 'beans'\n")
        (place.root / "link.py").symlink_to(tmp_path / "outside.py")

        async def why(deps: str, lang: str = "python") -> str | None:
            body = "import words; print(words.WORD)"
            record = await place.run(flow(step("P", lang, body, f":deps {deps}")))
            return tasks(record)[only(record).name] if record.is_good else only(record).error

        assert await why("words.py,json,") == "beans"
        assert await why("../outside.py") == ":deps ../outside.py: no such file next to the plan"
        assert await why("lib/gone.py") == ":deps lib/gone.py: no such file next to the plan"
        assert "is outside the plan root" in (await why("link.py") or "")
        assert await why("no_such_module") == (
            ":deps no_such_module: not found; for python it must be a file next to the plan, or among"
            " the modules that Python can import; horae does not install packages"
        )
        assert "programs in the PATH" in (await why("no-such-program", "sh") or "")


@story
async def test_a_directory_is_where_a_block_works_and_an_empty_block_is_the_program_in_it(
    tmp_path: Path,
) -> None:
    async with yard(tmp_path) as place:
        home = place.root / "tool"
        home.mkdir()
        (home / "main.py").write_text("import helper; print(helper.WORD)\n")
        (home / "helper.py").write_text("WORD = 'helped'\n")
        text = flow(
            step("Where", "sh", "pwd; ls", ":dir tool"),
            step("Program", "python", "", ":dir tool"),
        )
        record = await place.run(text)
        assert tasks(record) == {"Where": f"{home}\nhelper.py\nmain.py", "Program": "helped"}
        gone = await place.run(flow(step("A", "sh", "pwd", ":dir gone")))
        assert only(gone).error == ":dir gone: no such directory next to the plan"
        none = await place.run(
            flow(step("A", "js" if shutil.which("node") else "sh", "", ":dir tool"))
        )
        assert "contains no " in (only(none).error or "")
        out = await place.run(flow(step("A", "sh", "pwd", ":dir ..")))
        assert "is outside the plan root" in (only(out).error or "")


@story
async def test_a_tool_that_does_not_answer_ends_the_run_and_not_the_engine(tmp_path: Path) -> None:
    tools = tmp_path / "bin"
    tools.mkdir()
    (tools / "sh").symlink_to("/bin/sh")
    (tools / "lua").write_text("#!/bin/sh\necho broken >&2\nexit 7\n")
    (tools / "lua").chmod(0o755)
    async with yard(tmp_path, path=str(tools)) as place:
        record = await place.run(flow(step("L", "lua", "print(1)")))
        assert only(record).error == f"{tools}/lua did not report its version: exit code 7: broken"
        (tools / "lua").write_text("#!/bin/sh\nsleep 1000\n")
    async with yard(tmp_path, path=str(tools) + ":/bin", timeout=timedelta(seconds=1)) as place:
        record = await place.run(flow(step("L", "lua", "print(1)")))
        assert marked(place.data) == []
    assert (record.outcome, record.reason) == (
        Status.KILLED,
        "exceeded the time limit of 1s",
    )
    assert only(record).error == "the run exceeded the time limit of 1s"
