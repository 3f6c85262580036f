"""`horae`, but an agent's first tick need not wait for a minute; the rest is the real thing."""

from __future__ import annotations

import sys
from datetime import timedelta

from horae.cli.main import main
from horae.timing import backoff

if __name__ == "__main__":
    vars(backoff)["GRACE"] = timedelta(milliseconds=300)
    sys.argv[0] = "horae"
    main()
