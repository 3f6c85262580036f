"""`python -m horae.cli.agent_words` is `agent`."""

from horae.cli.agent_words import main

if __name__ == "__main__":
    main()
