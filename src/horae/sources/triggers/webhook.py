"""Webhooks: the signature of a message, and its verification.

A webhook accepts one scheme, set when it is made, and looks at the headers of that scheme only:
if it took either, a message could be stripped of what one of them signs and pass as the other.

    standard   Standard Webhooks: the id, the time and the body are signed
    github     X-Hub-Signature-256: the body is signed, and nothing else
"""

from __future__ import annotations

import base64
import binascii
import hmac
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from hashlib import sha256
from typing import Any, Final

from horae.core.secret import WEBHOOK_SECRETS, names_in

STANDARD_PREFIX: Final = "whsec_"
TOLERANCE: Final = timedelta(minutes=5)  # allowed difference of the sender's clock
_KEY_BYTES: Final = range(24, 65)
_SHORTEST_SECRET: Final = 8
# No dot: else a part of the body could be moved into the id, with the same signature.
_ID: Final = re.compile(r"[!-\-/-~]{1,200}", re.ASCII)
_STAMP: Final = re.compile(r"[0-9]{1,11}", re.ASCII)
# An earlier form signed a time, a dot and the body in the same header; JSON never begins so.
_OLD_FORM: Final = re.compile(rb"[0-9]{1,11}\.")


class Scheme(StrEnum):
    STANDARD = "standard"
    GITHUB = "github"


@dataclass(frozen=True, slots=True)
class SignedCheck:
    key: str = ""
    refusal: str = ""


def scheme_of(secret: str) -> Scheme:
    """Return the scheme of a secret; one that is only named is standard."""
    is_standard = secret.startswith(STANDARD_PREFIX) or bool(names_in(secret))
    return Scheme.STANDARD if is_standard else Scheme.GITHUB


def wrong_secret(scheme: Scheme, secret: str) -> str:
    """Return why a secret does not fit its scheme, else ""; one that is only named may fit."""
    if names_in(secret):
        return ""
    if scheme is Scheme.GITHUB:
        is_short = len(secret) < _SHORTEST_SECRET
        return f"must have at least {_SHORTEST_SECRET} characters" if is_short else ""
    if _standard_key(secret):
        return ""
    return (
        f"of the scheme standard must be {STANDARD_PREFIX} followed by the base64 of 24 to 64 "
        "bytes; for any other secret, use the scheme github"
    )


def verify(
    config: Mapping[str, Any], headers: Iterable[tuple[str, str]], body: bytes, *, now: datetime
) -> SignedCheck:
    """Verify the signature of a message; a webhook without a scheme counts as missing.

    The work is the same in every case, so that its duration does not reveal which names exist.
    """
    given: dict[str, list[str]] = {}
    for name, value in headers:
        given.setdefault(name.lower(), []).append(value.strip())
    if "scheme" not in config:
        _standard((b"", b""), given, body, now)
        return SignedCheck(refusal="there is no such webhook")
    secrets = [str(config.get(name, "")) for name in WEBHOOK_SECRETS]
    if Scheme(config["scheme"]) is Scheme.STANDARD:
        return _standard([_standard_key(each) for each in secrets], given, body, now)
    return _github([each.encode() for each in secrets], given, body)


def _standard(
    keys: Sequence[bytes], given: Mapping[str, list[str]], body: bytes, now: datetime
) -> SignedCheck:
    sent, stamp, proofs = (
        _only(given, f"webhook-{name}") for name in ("id", "timestamp", "signature")
    )
    signed = f"{sent}.{stamp}.".encode() + body
    right = [base64.b64encode(hmac.digest(key, signed, "sha256")) for key in keys]
    parts = [each.removeprefix("v1,").encode() for each in proofs.split() if each[:3] == "v1,"]
    if not _is_proven(parts, right, keys):
        return SignedCheck(refusal="webhook-signature is missing or does not match the message")
    if _ID.fullmatch(sent) is None:
        return SignedCheck(refusal="webhook-id must be 1 to 200 characters without dots and spaces")
    if _STAMP.fullmatch(stamp) is None:
        return SignedCheck(refusal="webhook-timestamp is not a number of seconds")
    off = abs(now - datetime.fromtimestamp(int(stamp), UTC))
    if off > TOLERANCE:
        return SignedCheck(
            refusal=f"webhook-timestamp is {off.total_seconds():.0f} s off the server clock"
        )
    return SignedCheck(f"webhook:{sent}")


def _github(keys: Sequence[bytes], given: Mapping[str, list[str]], body: bytes) -> SignedCheck:
    """Verify a message in GitHub's scheme; `sha256=` may be left out.

    The key is a digest of the body, as only that is signed: with the same body, it is the same
    message.
    """
    proof = _only(given, "x-hub-signature-256").lower().removeprefix("sha256=")
    right = [hmac.new(key, body, sha256).hexdigest().encode() for key in keys]
    if not _is_proven([proof.encode()], right, keys):
        return SignedCheck(refusal="X-Hub-Signature-256 is missing or does not match the message")
    if _OLD_FORM.match(body):
        return SignedCheck(refusal="the message is signed in the old form with X-Horae-Timestamp")
    return SignedCheck(f"webhook:{sha256(b'.' + body).hexdigest()[:32]}")


def _is_proven(given: Sequence[bytes], right: Sequence[bytes], keys: Sequence[bytes]) -> bool:
    good = [proof for proof, key in zip(right, keys, strict=True) if key]
    # As bytes: only ASCII text can be compared in constant time.
    return any(hmac.compare_digest(proof, each) for proof in good for each in given)


def _only(given: Mapping[str, list[str]], name: str) -> str:
    values = given.get(name, [])
    return values[0] if len(values) == 1 else ""


def _standard_key(secret: str) -> bytes:
    if not secret.startswith(STANDARD_PREFIX):
        return b""
    try:
        key = base64.b64decode(secret.removeprefix(STANDARD_PREFIX), validate=True)
    except (binascii.Error, ValueError):
        return b""
    return key if len(key) in _KEY_BYTES else b""
