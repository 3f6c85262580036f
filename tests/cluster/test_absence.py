"""A database that is away: runs go on while no node reaches it, and none starts twice."""

from __future__ import annotations

import json
import signal
import time
from contextlib import ExitStack, closing, contextmanager
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import TYPE_CHECKING, Final, Self

from cluster.audit import audit
from cluster.stage import Stage, entry, free_port, horae
from scale import scaled
from store.server import server

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

LEASE: Final = 15  # seconds
LONG: Final = 600  # seconds of a run: longer than every fault and than the whole test
TITLES: Final = ("north", "east", "south", "west")
# How the server ends, and how long it is away: for the longest part of a lease, and for a moment.
ABSENCES: Final = ((signal.SIGINT, 5.0), *((signal.SIGQUIT, 0.1 * n) for n in range(1, 5)))


def decides_again(stage: Stage) -> None:
    """Return when something was decided for three more seconds."""
    query = "SELECT coalesce(max(decided_at), 0) FROM receipt"
    at = stage.do(query)[0][0]
    stage.until(lambda: stage.do(query)[0][0] >= at + 3_000_000)


def test_a_short_absence_of_the_database_ends_no_run_and_doubles_none(tmp_path: Path) -> None:
    with closing(Stage(tmp_path, lease=LEASE)) as stage:
        plan = "".join(entry(each, stage.effect(each, LONG)) for each in TITLES[:2])
        plan += "".join(entry(each, stage.effect(each, LONG), retry="3 1s") for each in TITLES[2:])
        stage.write({"plan.org": plan})
        for name in ("one", "two"):
            stage.member(name).joined()
        stage.until(lambda: stage.count("status = 'running'") == len(TITLES))
        stage.until(lambda: len(stage.living_runs()) == len(TITLES))
        before = stage.living_runs()

        for how, away in ABSENCES[: max(1, scaled(len(ABSENCES) * 4))]:
            server().halt(how)
            time.sleep(away)
            server().start()
            for node in stage.members.values():
                node.joined()
            decides_again(stage)
            assert stage.open_runs() == before, stage.said()
            assert stage.living_runs() == before

        assert stage.count("status = 'interrupted'") == 0
        assert not [each for each in stage.happened() if each.company == "beside"]
        assert len(stage.happened()) == len(TITLES)


# For longer than a lease

PATIENT: Final = 120  # seconds
SHORT: Final = 6  # seconds of a lease: some time on a busy machine, and the test is over soon


class Absence:
    """A cluster whose members have a long run each, and what becomes of them."""

    def __init__(self, place: Path, *names: str, patience: int = PATIENT) -> None:
        self.stage = Stage(place, lease=SHORT)
        self.names = names
        # The plan stays as it is: to look for a newer one each second costs as much as all else.
        self.settings = {"HORAE_CLUSTER_PATIENCE": f"{patience}s", "HORAE_WATCH_POLL": "10s"}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        server().start()
        self.stage.close()

    def begin(self, *, is_bound: bool = True) -> list[str]:
        """Return the runs that go on, one on each member, once each member has listed all."""
        self.start(is_bound=is_bound)
        return self.begun()

    def start(self, *, is_bound: bool = True) -> None:
        stage, plan = self.stage, ""
        for name in self.names:
            wants = {"host": name} if is_bound else {}
            plan += entry(name, stage.effect(name, LONG), **wants)
        stage.write({"plan.org": plan})
        for name in self.names:
            if name not in stage.members:
                stage.member(name, settings=self.settings)

    def begun(self) -> list[str]:
        stage = self.stage
        for name in self.names:
            stage.members[name].joined()
        stage.until(lambda: len(stage.living_runs()) == len(self.names))
        stage.until(lambda: stage.count("status = 'running'") == len(self.names))
        stage.until(self.is_listed)
        return stage.living_runs()

    def is_listed(self) -> bool:
        """Tell whether the database knows that each member has listed all."""
        rows = self.stage.do("SELECT generation, peers FROM member")
        known = {row[0] for row in rows}
        return all(row[1] is not None and known <= {*row[1]} for row in rows)

    def first(self, title: str) -> tuple[str, str]:
        """Return how the first receipt of an entry that has run stands, and why."""
        query = "SELECT status, reason FROM filed WHERE title = %s AND attempts > 0"
        query += " ORDER BY number LIMIT 1"
        [row] = self.stage.do(query, title)
        return row[0], row[1]

    def stays(self, runs: list[str], *, seconds: float) -> None:
        """Return after some time in which the same runs were alive at every moment."""
        stay({self: runs}, seconds=seconds)

    def is_over(self, count: int) -> bool:
        return sum(each.what == "over" for each in self.stage.happened()) == count

    def check(self) -> None:
        """Check that what is alive is what is open, and that nothing came twice."""
        self.stage.until(lambda: self.stage.living_runs() == self.stage.open_runs())
        audit(self.stage)


def stay(runs: Mapping[Absence, list[str]], *, seconds: float) -> None:
    """Return after some time in which each cluster had the same runs at every moment."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for absence, alive in runs.items():
            assert absence.stage.living_runs() == alive, absence.stage.said()
        time.sleep(0.2)


@contextmanager
def several(place: Path, *hows: str) -> Iterator[dict[str, Absence]]:
    """Give a cluster of two for each fault: what they wait for they wait for together."""
    with ExitStack() as stack:
        absences = {}
        for how in hows:
            (place / how).mkdir()
            absences[how] = stack.enter_context(Absence(place / how, "one", "two"))
        yield absences


def test_runs_outlive_an_absence_of_several_leases_and_end_once(tmp_path: Path) -> None:
    with Absence(tmp_path, "one", "two", "three") as absence:
        stage = absence.stage
        before = absence.begin()
        generations = stage.do("SELECT name, generation FROM member ORDER BY name")
        server().halt(signal.SIGINT)
        absence.stays(before, seconds=3 * SHORT)
        stage.finish(*absence.names)
        stage.until(lambda: absence.is_over(3))  # and nothing can record it
        server().start()
        for name in absence.names:
            stage.until(lambda name=name: absence.first(name)[0] == "done")  # type: ignore[misc]
            assert absence.first(name)[1] == f"{name} on {name}"
        assert stage.do("SELECT name, generation FROM member ORDER BY name") == generations
        absence.check()
        assert stage.count("status = 'interrupted'") == 0


def test_runs_outlive_a_database_that_says_nothing(tmp_path: Path) -> None:
    with several(tmp_path, "silent", "half-open") as absences:
        for absence in absences.values():
            absence.start()
        before = {absence: absence.begun() for absence in absences.values()}
        for how, absence in absences.items():
            for node in absence.stage.members.values():
                node.wire.hold_up(there=how == "silent")
        stay(before, seconds=2 * SHORT)
        for absence in absences.values():
            for node in absence.stage.members.values():
                node.wire.mend()
        for absence, runs in before.items():
            decides_again(absence.stage)
            assert absence.stage.living_runs() == runs
            absence.check()


def test_a_member_that_is_cut_off_alone_ends_its_runs_at_the_lease(tmp_path: Path) -> None:
    with Absence(tmp_path, "one", "two", "three") as absence:
        stage = absence.stage
        before = absence.begin()
        cut = next(each for each in stage.members.values() if each.name != stage.leader())
        [lost] = cut.living()
        cut.wire.cut()
        began = time.monotonic()
        stage.until(lambda: not cut.living())
        assert time.monotonic() - began < SHORT + 1
        stage.until(lambda: absence.first(cut.name)[0] == "interrupted")
        assert absence.first(cut.name)[1] == f"{cut.name} was lost during the run"
        assert stage.living_runs() == [each for each in before if each != lost]
        cut.wire.mend()
        absence.check()


def test_runs_end_when_patience_is_over(tmp_path: Path) -> None:
    with Absence(tmp_path, "one", "two", patience=6) as absence:
        stage = absence.stage
        before = absence.begin()
        server().halt(signal.SIGINT)
        absence.stays(before, seconds=6)
        stage.until(lambda: not stage.living_runs(), within=2 * SHORT)
        server().start()
        words = "the node did not reach the database in time to renew its lease"
        for name in absence.names:
            stage.until(lambda name=name: absence.first(name)[0] == "interrupted")  # type: ignore[misc]
            assert absence.first(name)[1] == words
        absence.check()


def test_an_end_that_cannot_be_recorded_survives_its_engine(tmp_path: Path) -> None:
    """What still ran when its engine was killed has ended with it."""
    with Absence(tmp_path, "one", "two") as absence:
        stage = absence.stage
        absence.begin()
        server().halt(signal.SIGINT)
        stage.finish("one")
        stage.until(lambda: absence.is_over(1))
        stage.until(lambda: list(stage.members["one"].data.glob("runs/*/*/end.json")))
        assert stage.members["two"].living()
        for node in stage.members.values():
            node.kill()
        server().start()
        for name in absence.names:
            stage.member(name, settings=absence.settings)
        stage.until(lambda: absence.first("one")[0] == "done")
        assert absence.first("one")[1] == "one on one"
        stage.until(lambda: absence.first("two")[0] == "interrupted")
        absence.check()


def test_a_peer_that_does_not_give_its_word_counts_as_reaching_the_database(
    tmp_path: Path,
) -> None:
    hows = ("refuses", "is-silent", "is-half-open", "lies")
    with several(tmp_path, *hows) as absences, closing(Liar()) as liar:
        between = {}
        for how, absence in absences.items():
            port = free_port()
            between[how] = absence.stage.exchange.wire(f"127.0.0.1:{port}")
            where = liar.port if how == "lies" else between[how].port
            listed = {**absence.settings, "HORAE_CLUSTER_ADDRESS": f"127.0.0.1:{where}"}
            absence.stage.member("two", "cluster worker", settings=listed, port=port)
            absence.start()
        for absence in absences.values():
            absence.begun()
        own = {each: each.stage.members["two"].living() for each in absences.values()}
        assert [len(runs) for runs in own.values()] == [1] * len(hows)
        for how, wire in between.items():
            if how == "refuses":
                wire.cut()
            else:
                wire.hold_up(there=how == "is-silent")
        server().halt(signal.SIGINT)
        for absence in absences.values():
            one = absence.stage.members["one"]
            absence.stage.until(lambda one=one: not one.living(), within=SHORT + 2)  # type: ignore[misc]
        stay(own, seconds=SHORT)  # to whom the other has given its word
        assert liar.asked > 0
        server().start()
        for absence in absences.values():
            absence.stage.until(lambda each=absence: each.first("one")[0] == "interrupted")  # type: ignore[misc]
            absence.check()


def test_who_joins_meanwhile_gives_no_work_away_before_patience_is_over(tmp_path: Path) -> None:
    """Two members are cut off together, and a third that they have not listed begins to lead."""
    with Absence(tmp_path, "one", "two", patience=30) as absence:
        stage = absence.stage
        before = absence.begin(is_bound=False)
        for node in stage.members.values():
            node.wire.cut()
        stage.member("three", settings=absence.settings).joined()
        stage.until(lambda: stage.leader() == "three")
        absence.stays(before, seconds=2.5 * SHORT)
        assert len(stage.happened()) == 2
        stage.until(lambda: not stage.members["one"].living() + stage.members["two"].living())
        stage.until(lambda: len(stage.members["three"].living()) == 2)
        absence.check()
        assert stage.count("status = 'interrupted'") == 2


def test_what_is_shown_meanwhile_is_the_last_known_state(tmp_path: Path) -> None:
    with Absence(tmp_path, "one", "two") as absence:
        stage = absence.stage
        before = absence.begin()
        one = stage.members["one"]
        place = ("--root", str(one.root), "--data", str(one.data))
        server().halt(signal.SIGINT)
        stage.until(lambda: one.ask("/healthz")[0] == 503)
        time.sleep(2 * SHORT)

        health = json.loads(one.ask("/healthz")[1])
        assert (health["ok"], health["ledger_writable"]) == (False, False)
        [words] = health["problems"]
        assert words.startswith("one has not reached the database since ")
        assert "its runs continue for at most 1m" in words
        assert words.endswith("This is the last known state.")
        code, said = one.ask("/api/v1/status")
        status = json.loads(said)
        assert (code, status["stall"][:70]) == (200, words[:70])  # until when runs continue
        assert [(each["title"], each["status"]) for each in status["running"]] == [
            ("one", "running")
        ]
        nodes = json.loads(one.ask("/api/v1/nodes")[1])["nodes"]
        assert [(each["node"], each["state"]) for each in nodes] == [("one", "up"), ("two", "up")]
        code, said = one.ask("/api/v1/entries")
        assert (code, json.loads(said)["code"]) == (503, "no_leader")
        code, page = one.ask("/", accept="text/html")
        assert (code, b"Last known state" in page, b"two" in page) == (200, True, True)

        code, text = horae(stage, "status", *place, HORAE_STORE=stage.url(one.wire))
        assert (code, "This is the last known state." in text) == (0, True), text
        code, text = horae(stage, "status", *place, "--json", HORAE_STORE=stage.url(one.wire))
        assert [each["title"] for each in json.loads(text)["running"]] == ["one"]
        server().start()
        stage.until(lambda: one.ask("/healthz")[0] == 200)
        assert stage.living_runs() == before
        stage.until(lambda: one.ask("/api/v1/status")[0] == 200)  # once there is a leader again
        assert json.loads(one.ask("/api/v1/status")[1])["stall"] is None


class Liar:
    """Answers every question as a node would that does not reach the database, but for the proof."""

    def __init__(self) -> None:
        self.asked = 0
        liar = self

        class Answer(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                liar.asked += 1
                body = sha256(self.path.encode()).hexdigest().encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Answer)
        self.port = self._server.server_address[1]
        Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
