"""`python -m horae.sources.triggers.agent_cli` is `agent`."""

from horae.sources.triggers.agent_cli import main

if __name__ == "__main__":
    main()
