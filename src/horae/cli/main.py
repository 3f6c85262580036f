"""`horae`: finds the command, runs it, and turns every ending into an exit code."""

from __future__ import annotations

import sys

from horae import __version__


def main() -> None:
    if sys.argv[1:] == ["--version"]:  # answered before anything else is loaded
        sys.stdout.write(f"horae {__version__}\n")
        return
    from horae.cli.group import horae  # see above
    from horae.cli.run import run

    sys.exit(run(horae, name="horae"))


if __name__ == "__main__":
    main()
