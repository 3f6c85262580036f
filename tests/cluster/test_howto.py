"""The how-to for several machines does what it says, on servers as an operator has them."""

from __future__ import annotations

import re
import time
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Final

from cluster.audit import audit
from cluster.pair import Pair, PairStage
from cluster.stage import entry, horae

PAGE: Final = Path(__file__).parents[2] / "docs/how-to/machines.md"
LEASE: Final = 15  # seconds
NAMES: Final = ("east", "west")


def blocks(heading: str, language: str) -> list[str]:
    """Return the examples under a heading of the page, in order."""
    _, found, rest = PAGE.read_text().partition(f"\n## {heading}\n")
    assert found, heading
    text = rest.partition("\n## ")[0]
    fences = re.findall(rf"^( *)```{language}\n(.*?)^ *```", text, re.MULTILINE | re.DOTALL)
    return [re.sub(rf"^{indent}", "", body, flags=re.MULTILINE) for indent, body in fences]


def typed(pair: Pair, text: str) -> str:
    """Return an example with the addresses and directories of the servers here."""
    host = f"host={pair.hosts[0]},{pair.hosts[1]}&target_session_attrs=read-write"
    text = text.replace("@db.example/horae?sslmode=verify-full", f"@/horae?{host}")
    for name, place in (("db1", pair.hosts[0]), ("db2", pair.hosts[1])):
        text = text.replace(f"{name}.example", str(place))
    return text.replace("/var/lib/postgresql", str(pair.home)).replace("box2", NAMES[1])


def by_horae(stage: PairStage, text: str) -> str:
    """Do the commands of Horae in an example, and return what they say."""
    said = ""
    for line in typed(stage.pair, text).replace("$(mktemp -d)", str(stage.place)).splitlines():
        words = [each.strip("'\"") for each in line.split()[1:]]
        code, answer = horae(stage, *words)
        assert code == 0, f"{line}: {answer}"
        said += answer
    return said


def test_a_cluster_is_set_up_drained_failed_over_and_restored_as_the_page_says(
    tmp_path: Path,
) -> None:
    with closing(Pair()) as pair:
        create, grant = blocks("Set up a cluster", "sql")
        pair.sql(create)
        with closing(PairStage(tmp_path, pair, lease=LEASE)) as stage:
            [migrate] = [each for each in blocks("Set up a cluster", "text") if "migrate" in each]
            by_horae(stage, migrate)
            pair.sql(grant, database="horae", user="horae_owner")
            plan = [
                entry(f"Steady {name}", stage.effect(f"steady{name}", 600), host=name)
                for name in NAMES
            ]
            plan.append(entry("Count", stage.effect("count"), catch_up="all"))
            stage.write({"plan.org": "".join(plan)})
            for name in NAMES:
                stage.member(name).joined()
            stage.until(lambda: {each.node for each in stage.happened()} == set(NAMES))

            # A node is drained, and used again.
            drain, use = blocks("Stop a node", "sh")
            by_horae(stage, use)
            [upgrade] = blocks("Upgrade node by node", "sh")
            assert "the tables are up to date" in by_horae(stage, upgrade)

            fail_over(stage)
            restore(stage)
            for node in stage.members.values():
                node.kill()
            assert drain.split() == ["horae", "cluster", "drain", "box2", "--wait"]


def fail_over(stage: PairStage) -> None:
    """Let the primary end in the middle of work, and the standby go on in its place."""
    pair = stage.pair
    begin, change = blocks("Fail over to a standby", "sh")
    [wait] = blocks("Fail over to a standby", "sql")
    copied, started = typed(pair, begin).splitlines()
    pair.do(copied)
    pair.settings(pair.standby, pair.hosts[1])
    pair.do(started)
    pair.sql(wait)
    state = "SELECT sync_state FROM pg_stat_replication"
    stage.until(lambda: pair.sql(state) == "sync\n")
    at = stage.count("status = 'done'")
    stage.until(lambda: stage.count("status = 'done'") > at + 2)
    before = stage.living_runs()
    generations = stage.do("SELECT name, generation FROM member ORDER BY name")

    began = time.monotonic()
    pair.do(typed(pair, change))
    stage.until(lambda: stage.leader() in NAMES)
    at = stage.count("status = 'done'")
    stage.until(lambda: stage.count("status = 'done'") > at + 5)
    print(f"at work {time.monotonic() - began:.1f} s after the primary was stopped")
    assert stage.do("SELECT name, generation FROM member ORDER BY name") == generations, (
        stage.said()
    )
    steady = [each for each in stage.happened() if each.whose.startswith("steady")]
    assert [each.what for each in steady] == ["begun", "begun"]  # they go on
    assert set(before) & set(stage.living_runs()) == {each.run for each in steady}
    audit(stage)  # nothing twice, and nothing lost


def restore(stage: PairStage) -> None:
    """Let the database be as it was some time ago; what has run since does not run again."""
    pair = stage.pair
    dump, back = blocks("Restore the database", "sh")
    pair.do(typed(pair, dump))
    at = stage.count("status = 'done'")
    stage.until(lambda: stage.count("status = 'done'") > at + 3)
    code, said = horae(stage, "cluster", "restored")
    assert (code, "nodes are up: east, west" in said) == (6, True)
    for node in stage.members.values():
        assert node.stop() == 0
    ran = Counter((each.entry, each.key) for each in stage.happened() if each.what == "begun")
    [[last]] = stage.do("SELECT max(number) FROM run")

    restored, told = typed(pair, back).splitlines()
    pair.do(restored)
    # In a backup of seconds ago the leases of the nodes have not ended.
    stage.until(lambda: not stage.do("SELECT 1 FROM member WHERE until > clock_timestamp()"))
    assert "scheduled times that have passed do not run" in by_horae(stage, told)
    again = Counter(stage.do("SELECT entry::text, key, status FROM receipt WHERE decided_at > 0"))
    assert not [each for each in again if each[2] in {"waiting", "running", "starting"}]
    for name in NAMES:
        stage.member(name).joined()
    newest = "SELECT count(*) FROM run WHERE number > %s AND outcome = 'done'"
    stage.until(lambda: stage.do(newest, last + 1_000_000)[0][0] > 3)
    now = Counter((each.entry, each.key) for each in stage.happened() if each.what == "begun")
    assert all(now[each] == count for each, count in ran.items()), "something ran a second time"
    numbers = Counter(each.run for each in stage.happened() if each.what == "begun")
    assert max(numbers.values()) == 1
