"""How much of each large number a run goes through: all of it, or about a twentieth."""

import os
from typing import Final

SCALE: Final = float(os.environ.get("HORAE_SCALE", "0.05"))


def scaled(full: int) -> int:
    """Return *full* under `make torture`, about a twentieth of it under `make test`."""
    return max(1, round(full * SCALE))
