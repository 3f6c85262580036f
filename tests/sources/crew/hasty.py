"""`horae` whose agents wait a third of a second after a start instead of a minute."""

import functools
import sys
from datetime import timedelta

from horae.cli.main import main
from horae.core.clock import SystemClock
from horae.sources.crew import source
from horae.timing import duration

if __name__ == "__main__":
    vars(duration)["FIRST_WAIT"] = timedelta(milliseconds=300)
    made = functools.partial(source.CrewSource, clock=SystemClock().now)
    vars(source)["CrewSource"] = made
    sys.argv[0] = "horae"
    main()
