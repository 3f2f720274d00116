"""`python -m clawpipe`: the command line, for when its script is not on the path."""

from clawpipe.cli.main import main

if __name__ == "__main__":
    main()
