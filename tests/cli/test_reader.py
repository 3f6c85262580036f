"""A reader that misreads plans: `doctor` says so, and no engine starts with it."""

from pathlib import Path

import pytest

from calling import Call
from horae.org import headline


def test_doctor_and_up_refuse_a_reader_that_misreads(
    call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(headline, "read_drawer", lambda *_: None)
    doctor = call("doctor", "--json")
    (row,) = [each for each in doctor.data if each["check"] == "reader"]
    assert (doctor.code, row["grade"]) == (1, "fail")
    assert row["found"] == "fails its self-test: id is read as None, not as 'backup'"
    up = call("up", "--seconds", "0")
    assert up.code == 1
    assert "the plan reader fails its self-test under Python" in up.err
    assert not Path(".horae").exists()
