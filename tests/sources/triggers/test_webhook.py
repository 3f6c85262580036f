"""How a message for a webhook is signed, in either scheme."""

from __future__ import annotations

import hmac
from datetime import UTC, datetime, timedelta

import pytest

from horae.sources.triggers.webhook import Scheme, verify, wrong_secret

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
STANDARD = {"scheme": "standard", "secret": SECRET}
# As the libraries of Standard Webhooks have it in their tests.
AT = datetime.fromtimestamp(1_614_265_330, UTC)
BODY = b'{"test": 2432232314}'
HEADERS = {
    "webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
    "webhook-timestamp": "1614265330",
    "webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
}


def test_a_message_of_the_standard_is_taken_by_its_id() -> None:
    verdict = verify(STANDARD, HEADERS.items(), BODY, now=AT)
    assert (verdict.key, verdict.refusal) == ("webhook:msg_p5jXN8AQM9LWM0D4loKWxJek", "")
    upper = {name.title(): f" {value} " for name, value in HEADERS.items()}
    assert verify(STANDARD, upper.items(), BODY, now=AT).key


@pytest.mark.parametrize(("seconds", "is_taken"), [(300, True), (301, False)])
@pytest.mark.parametrize("sign", [1, -1])
def test_a_clock_may_be_five_minutes_off(seconds: int, sign: int, is_taken: bool) -> None:
    now = AT + sign * timedelta(seconds=seconds)
    verdict = verify(STANDARD, HEADERS.items(), BODY, now=now)
    assert (bool(verdict.key), "301 s off" in verdict.refusal) == (is_taken, not is_taken)


def test_one_of_several_signatures_is_enough() -> None:
    wrong = "v1,Ceo5qEr07ixe2NLpvHk3FH9bwy/WavXrAFQ/9tdO6mc="
    several = f"{wrong} v1a,{'A' * 86}== {HEADERS['webhook-signature']} {wrong}"
    headers = {**HEADERS, "webhook-signature": several}
    assert verify(STANDARD, headers.items(), BODY, now=AT).key
    headers["webhook-signature"] = wrong
    assert not verify(STANDARD, headers.items(), BODY, now=AT).key


def test_a_webhook_that_is_not_there_takes_nothing() -> None:
    empty = hmac.new(b"", BODY, "sha256").hexdigest()
    for headers in (HEADERS, {"x-hub-signature-256": empty}):
        assert not verify({}, headers.items(), BODY, now=AT).key
    config = {"scheme": "github", "secret": "s3cret-s3cret"}
    assert not verify(config, [("x-hub-signature-256", empty)], BODY, now=AT).key, "no old secret"


def test_a_message_of_github_is_taken_by_its_body() -> None:
    config = {"scheme": "github", "secret": "s3cret-s3cret"}
    right = hmac.new(b"s3cret-s3cret", BODY, "sha256").hexdigest()
    keys = {
        verify(config, [("X-Hub-Signature-256", each), ("X-Id", each)], BODY, now=AT).key
        for each in (f"sha256={right}", right.upper())
    }
    assert len(keys) == 1
    assert keys != {""}
    for wrong in ("", "sha256=", right[:-1], "ü" * 64, f"sha1={right}", "0" * 64):
        assert not verify(config, [("X-Hub-Signature-256", wrong)], BODY, now=AT).key


@pytest.mark.parametrize(
    "secret",
    [
        "",
        "whsec_",
        SECRET.removeprefix("whsec_"),
        f"{SECRET[:-4]}",  # 21 bytes
        f"whsec_{'A' * 88}",  # 66 bytes
        f"{SECRET[:-1]}!",
        f"{SECRET[:-1]}ü",
        f"{SECRET}\n",
    ],
)
def test_a_secret_of_the_standard_is_its_prefix_and_base64(secret: str) -> None:
    assert "24 to 64 bytes" in wrong_secret(Scheme.STANDARD, secret)
    assert not wrong_secret(Scheme.STANDARD, SECRET)
