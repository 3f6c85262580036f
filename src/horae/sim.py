"""`python -m horae.sim` is `horae simulate`."""

from horae.cli.run import run
from horae.cli.simulate import simulate

if __name__ == "__main__":
    raise SystemExit(run(simulate, name="horae simulate"))
