"""Runs pytest in a sandbox: `python run_tests.py [ARGUMENT ...]` in the folder of a repository, with this file's folder `packages`.

pytest and what it needs are imported before the repository can be: a module in it with such a name is not taken for them.
"""

import sys
from pathlib import Path


def main() -> int:
    own = Path(__file__).resolve().parent
    sys.path[0] = str(own / "packages")
    try:
        import _pytest.junitxml  # noqa: F401  # pyright: ignore[reportUnusedImport]
        import pytest
    except ImportError:
        print("this Python has no pytest", file=sys.stderr)
        return 3
    repository = Path.cwd()
    sys.path[:0] = [str(place) for place in (repository, repository / "src", repository / "lib") if place.is_dir()]
    return int(pytest.main(sys.argv[1:]))


if __name__ == "__main__":
    sys.exit(main())
