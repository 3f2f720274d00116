"""Write planted faults as tasks in the schema of SWE-bench, and each package as a bundle of git with a commit a fault."""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path, PurePosixPath

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.errors import DataError
from clawpipe.play.environments.faults.packages import Tree
from clawpipe.play.environments.faults.plant import Planted, plant
from clawpipe.play.environments.swe.workbench import Place

TASKS, REPOSITORIES = "tasks.jsonl", "repositories"
_SHOWN = 5  # failing tests that a task names
_WHO = "clawpipe <clawpipe@localhost> 0 +0000"


@dataclass(frozen=True)
class Written:
    """What was written: the number of tasks of each package."""

    file: Path
    counts: dict[str, int]


def write_tasks(
    folder: Path, trees: Sequence[Tree], place: Place, count: int, seed: int, progress: Callable[[str], None]
) -> Written:
    """Plant faults into packages until there are `count`, an equal share in each where it has so many, and write them as tasks.

    Raises:
        DataError: the folder has tasks already, or the packages have too few faults that tests notice.
    """
    if (folder / TASKS).exists():
        raise DataError("there are tasks already", str(folder / TASKS), "name another folder")
    (folder / REPOSITORIES).mkdir(parents=True, exist_ok=True)
    rows: list[JsonObject] = []
    counts: dict[str, int] = {}
    for number, tree in enumerate(trees):
        share = -(-(count - len(rows)) // (len(trees) - number))
        found = list(islice(plant(tree, place, seed), share))
        rows += _with_repository(found, folder / REPOSITORIES) if found else []
        counts[tree.name] = len(found)
        progress(f"{tree.name} {tree.version}: {len(found)} tasks")
    if len(rows) < count:
        raise DataError(f"{count} tasks wanted, {len(rows)} to be had", ", ".join(counts), "ask for fewer, or for more packages")
    text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    (folder / TASKS).write_text(text, encoding="utf-8")
    return Written(folder / TASKS, counts)


def _with_repository(found: Sequence[Planted], folder: Path) -> list[JsonObject]:
    """Write the bundle of a package with its faults; return their rows."""
    tree = found[0].tree
    with tempfile.TemporaryDirectory() as scratch:
        git, marks = Path(scratch, "git"), Path(scratch, "marks")
        _run(["git", "init", "--quiet", "--bare", str(git)])
        _git(git, "fast-import", "--quiet", f"--export-marks={marks}", stdin=_history(found))
        _git(git, "bundle", "create", "--quiet", str((folder / f"pypi__{tree.name}.bundle").absolute()), "--all")
        commits = dict(line.lstrip(":").split() for line in marks.read_text().splitlines())
        return [_row(git, one, commits["1"], commits[str(number)]) for number, one in enumerate(found, start=2)]


def _history(found: Sequence[Planted]) -> bytes:
    """Return what `git fast-import` reads: the package as it is, and a commit with each fault. Its commits have one date."""
    tree = found[0].tree
    written = [_commit("main", 1, f"{tree.name} {tree.version}", tree.files)]
    for number, one in enumerate(found, start=2):
        changed = {one.path: one.fault.source.encode()}
        written.append(_commit(f"fault-{number - 1}", number, f"fault {number - 1}", changed, parent=1))
    return b"".join(written)


def _commit(branch: str, mark: int, message: str, files: dict[str, bytes], parent: int = 0) -> bytes:
    head = f"commit refs/heads/{branch}\nmark :{mark}\nauthor {_WHO}\ncommitter {_WHO}\ndata {len(message)}\n{message}\n"
    head += f"from :{parent}\n" if parent else ""
    bodies = (b"M 100644 inline %s\ndata %d\n%s\n" % (path.encode(), len(text), text) for path, text in sorted(files.items()))
    return head.encode() + b"".join(bodies) + b"\n"


def _row(git: Path, one: Planted, whole: str, faulty: str) -> JsonObject:
    patch = _git(git, "diff", "--no-color", "--full-index", faulty, whole, "--", one.path).decode()
    return {
        "instance_id": f"pypi__{one.tree.name}-{faulty[:12]}",
        "repo": f"pypi/{one.tree.name}",
        "version": one.tree.version,
        "base_commit": faulty,
        "problem_statement": _problem(one),
        "patch": patch,
        "test_patch": "",
        "FAIL_TO_PASS": list(one.fails),
        "PASS_TO_PASS": list(one.passes),
        "identity": one.identity,
        "fault": one.fault.kind,
    }


def _problem(one: Planted) -> str:
    shown = "\n".join(f"- {test}" for test in one.fails[:_SHOWN])
    more = f"\n- and {len(one.fails) - _SHOWN} more" if len(one.fails) > _SHOWN else ""
    where = str(PurePosixPath(one.path).parent)
    place = "" if where == "." else f" below {where}"
    return f"These tests of {one.tree.name} fail:\n{shown}{more}\n\nThe fault is in its source{place}, not in the tests."


def _git(git: Path, *arguments: str, stdin: bytes = b"") -> bytes:
    return _run(["git", f"--git-dir={git}", *arguments], stdin)


def _run(command: Sequence[str], stdin: bytes = b"") -> bytes:
    done = subprocess.run(command, input=stdin, capture_output=True)
    if done.returncode:
        raise DataError(f"git failed: {done.stderr.decode(errors='replace').strip()[-200:]}", " ".join(command[2:4]))
    return done.stdout
