"""Who may do what with the database, what is refused, and how that is said."""

from __future__ import annotations

import shutil
import subprocess
from ssl import PROTOCOL_TLS_SERVER, SSLContext
from typing import TYPE_CHECKING

import pytest

from cluster.stage import HORAE, Stage, entry, git, horae
from store.server import server

if TYPE_CHECKING:
    from pathlib import Path


def test_a_role_without_rights_on_the_schema_is_enough_for_a_member(stage: Stage) -> None:
    role = stage.name.replace("c", "r", 1)
    stage.do(f"CREATE ROLE {role} LOGIN")
    stage.write({"plan.org": entry("Count", stage.effect("count"))})
    code, said = horae(stage, "up", str(stage.service), HORAE_STORE=stage.url(user=role))
    assert code == 1
    assert (
        "the database role cannot change it; run `horae cluster migrate` once with a role" in said
    )

    code, said = horae(stage, "cluster", "migrate", "--root", str(stage.service), "--table")
    assert (code, said.startswith("the tables are up to date; ")) == (0, True)
    stage.do(f"GRANT USAGE ON SCHEMA horae TO {role}")
    stage.do(f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA horae TO {role}")
    stage.do(f"GRANT USAGE ON ALL SEQUENCES IN SCHEMA horae TO {role}")
    east = stage.member("east", url=stage.url(user=role)).joined()
    stage.until(lambda: stage.count("status = 'done'") > 1)
    assert east.stop() == 0
    stage.do(f"DROP OWNED BY {role}; DROP ROLE {role}")


def test_members_of_mixed_versions_are_refused(stage: Stage) -> None:
    assert horae(stage, "cluster", "migrate", "--root", str(stage.service))[0] == 0
    stage.do("UPDATE term SET version = version + 1, oldest = version + 1")
    code, said = horae(stage, "up", str(stage.service), HORAE_CLUSTER_NAME="old")
    assert code != 0
    assert "use the newer horae that wrote it, on every node" in said


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("postgresql://nobody@127.0.0.1:1/none", "the database cannot be reached"),
        ("postgresql://127.0.0.1:port/none", "write it like postgresql://user@host:5432/database"),
        ("mysql://127.0.0.1/none", "is not"),
    ],
)
def test_a_wrong_address_is_said_without_a_traceback(stage: Stage, url: str, words: str) -> None:
    code, said = horae(stage, "up", str(stage.service), HORAE_STORE=url)
    assert code != 0
    assert words in said
    assert "Traceback" not in said


def test_a_plan_that_machines_cannot_share_is_refused(stage: Stage, tmp_path: Path) -> None:
    alone = tmp_path / "alone"
    alone.mkdir()
    (alone / "horae.toml").write_text('zone = "UTC"\n')
    code, said = horae(stage, "up", str(alone))
    assert (code, "this directory has no origin" in said) == (2, True)

    (stage.service / "horae.toml").write_text(f'[git]\nlocal = ["{stage.origin}"]\n')
    code, said = horae(stage, "up", str(stage.service))
    assert (code, "set `zone` in horae.toml" in said) == (2, True)

    code, said = horae(stage, "cluster", "nodes", "--root", str(alone), HORAE_STORE="")
    assert (code, "no database is set" in said) == (2, True)
    code, said = horae(stage, "cluster", "drain", "nobody", "--root", str(alone))
    assert (code, "there is no node called 'nobody'; nodes: none" in said) == (4, True)


def test_a_ledger_moves_to_the_database_and_goes_on_there(stage: Stage) -> None:
    stage.write({"plan.org": entry("Count", stage.effect("count"))})
    east = stage.place / "old"
    git(stage.place, "clone", "--quiet", str(stage.origin), str(east))
    subprocess.run(
        [str(HORAE), "up", str(east), "--seconds", "3"],
        check=True,
        capture_output=True,
        env={"PATH": "/usr/bin:/bin", "TZ": "UTC"},
        timeout=60,
    )
    before = len(stage.happened()) // 2
    assert before
    code, said = horae(stage, "cluster", "migrate", "--root", str(east), "--table")
    assert code == 0, said
    assert "rows, equal" in said
    code, said = horae(stage, "cluster", "migrate", "--root", str(east))
    assert code != 0  # there is a ledger by now
    assert "Traceback" not in said

    stage.member("east").joined()
    done = stage.count("status = 'done'")
    assert done >= before
    stage.until(lambda: stage.count("status = 'done'") > done)
    assert len(stage.do("SELECT 1 FROM entry")) == 1
    per_key = [(each.entry, each.key) for each in stage.happened() if each.what == "begun"]
    assert len(per_key) == len(set(per_key))


@pytest.mark.skipif(not shutil.which("openssl"), reason="openssl is not there to make certificates")
def test_tls_is_verified_by_name_and_authority(stage: Stage) -> None:
    # The PostgreSQL of the tests was built without SSL, so the wire before it speaks it.
    good, bad = _certificate(stage.place / "good"), _certificate(stage.place / "bad")
    context = SSLContext(PROTOCOL_TLS_SERVER)
    context.load_cert_chain(good, good.with_suffix(".key"))
    wire = stage.exchange.wire(server().socket, tls=context)
    tail = f":{wire.port}/{stage.name}?sslmode=verify-full&sslrootcert="
    place = f"postgresql://postgres@localhost{tail}"
    stage.write({"plan.org": entry("Count", stage.effect("count"))})
    for url, words in (
        (f"{place}{bad}", "certificate verify failed"),
        (f"postgresql://postgres@127.0.0.1{tail}{good}", "does not match host name"),
    ):
        code, said = horae(stage, "cluster", "nodes", HORAE_STORE=url)
        assert code != 0
        assert words in said
        assert "check the certificate, or sslmode and sslrootcert in the address" in said
        assert "Traceback" not in said

    stage.member("east", url=f"{place}{good}").joined()
    stage.until(lambda: stage.count("status = 'done'") > 1)


def _certificate(place: Path) -> Path:
    """Return a certificate for localhost that nobody but itself vouches for."""
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"),
            *("-nodes", "-days", "2", "-subj", f"/CN=localhost/O={place.name}"),
            *("-addext", "subjectAltName=DNS:localhost"),
            *("-keyout", f"{place}.key", "-out", f"{place}.crt"),
        ],
        check=True,
        capture_output=True,
    )
    return place.with_suffix(".crt")
