"""Posts a message: `python -m horae.sources.plans.post`, the message on its input.

The address and the headers that sign the message are in HORAE_POST as JSON. Only a response of 200
to 299 is a success, and redirects are not followed: a signed message goes where the plan says.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Final
from urllib.error import HTTPError, URLError
from urllib.request import HTTPRedirectHandler, ProxyHandler, Request, build_opener

WAIT: Final = 20.0  # seconds for a response


class _NoRedirect(HTTPRedirectHandler):
    def redirect_request(self, *_: object) -> None: ...


def post(address: str, body: bytes, headers: dict[str, str]) -> tuple[bool, str]:
    sent = {"Content-Type": "application/json", "User-Agent": "horae", **headers}
    request = Request(address, data=body, headers=sent, method="POST")  # noqa: S310 - http(s) only
    try:
        with build_opener(_NoRedirect(), ProxyHandler()).open(request, timeout=WAIT) as answer:
            return True, f"{answer.status} {answer.reason}"
    except HTTPError as error:
        return False, f"the address answered {error.code} {error.reason}"
    except (URLError, OSError, ValueError) as error:
        return False, f"the address could not be reached: {getattr(error, 'reason', error)}"


def main() -> int:
    order = json.loads(os.environ["HORAE_POST"])
    taken, words = post(order["address"], sys.stdin.buffer.read(), order["headers"])
    sys.stdout.write(words + "\n" if taken else f"FAILED: {words}\n")
    return 0 if taken else 1


if __name__ == "__main__":
    sys.exit(main())
