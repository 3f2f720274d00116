"""`python -m clawpipe`: the command line, where its script is not on the path."""

from clawpipe.cli.main import run

if __name__ == "__main__":
    run()
