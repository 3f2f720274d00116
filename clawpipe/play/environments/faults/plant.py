"""Plant faults into a package, one at a time, and keep those that some of its tests notice and others do not."""

from __future__ import annotations

import io
import tarfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from clawpipe.errors import DataError
from clawpipe.play.environments.faults.edits import Fault, faults
from clawpipe.play.environments.faults.packages import Tree
from clawpipe.play.environments.split import stable_hash
from clawpipe.play.environments.swe.reports import Key, Status
from clawpipe.play.environments.swe.workbench import Place, TestRun, Workbench
from clawpipe.play.sandbox.base import put, restore

_CLEAN = "git reset -q --hard && exec git clean -fdxq"
_LEAST_SECONDS, _TIMES_AS_LONG = 10.0, 5.0  # than without a fault: after that a run counts as one that does not end


@dataclass(frozen=True)
class Planted:
    """A fault that tests notice.

    Attributes:
        fails: tests that fail because of it, as pytest names them.
        passes: tests that pass all the same.
    """

    tree: Tree
    path: str
    fault: Fault
    fails: tuple[str, ...]
    passes: tuple[str, ...]

    @property
    def identity(self) -> str:
        """Faults in one function are on one side of the split."""
        return f"{self.tree.name}/{self.path}::{self.fault.function}"


def plant(tree: Tree, place: Place, seed: int) -> Iterator[Planted]:
    """Yield the faults of a package that count: at least one test fails because of it, and at least one passes.

    Equal arguments give equal faults, in one order: one of each function first.

    Raises:
        DataError: the package's tests do not run, or none passes.
    """
    with Workbench(place) as bench:
        restore(bench.sandbox, _archive(tree))
        bench.commit()
        passing, seconds = _passing(bench, tree)
    patient = replace(place, seconds=max(_LEAST_SECONDS, _TIMES_AS_LONG * seconds))
    with Workbench(patient) as bench:
        restore(bench.sandbox, _archive(tree))
        bench.commit()
        for path, fault in _ordered(tree, seed):
            if planted := _tried(bench, tree, path, fault, passing):
                yield planted


def _passing(bench: Workbench, tree: Tree) -> tuple[dict[Key, str], float]:
    """Return the tests that pass twice, by key, and the seconds of a run."""
    begun = time.monotonic()
    first, second = (bench.run_tests(tree.tests, tree.name) for _ in range(2))
    seconds = (time.monotonic() - begun) / 2
    stable = [key for key, status in first.report.items() if status == second.report.get(key) == "passed"]
    if not stable:
        raise DataError(f"none of its tests passes: {first.said.strip()[-200:]}", tree.name)
    return {key: name for key in stable if (name := _test_of(key, tree.tests))}, seconds


def _test_of(key: Key, files: Sequence[str]) -> str | None:
    """Return a test's name as files of tasks have it."""
    for file in files:
        module = file.removesuffix(".py").replace("/", ".")
        if key[0] == module or key[0].startswith(f"{module}."):
            classes = filter(None, key[0][len(module) + 1 :].split("."))
            return "::".join((file, *classes, key[1]))
    return None


def _tried(bench: Workbench, tree: Tree, path: str, fault: Fault, passing: dict[Key, str]) -> Planted | None:
    """Return a fault with what tests say of it; None if none fails, or none passes, or they do not end."""
    bench.require(_CLEAN)
    put(bench.sandbox, path, fault.source.encode())
    run = bench.run_tests(tree.tests, fault.source)
    if run.ended or not run.sound:
        return None
    fails, passes = _sides(run, passing)
    return Planted(tree, path, fault, fails, passes) if fails and passes else None


def _sides(run: TestRun, passing: dict[Key, str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    statuses: dict[str, Status] = {name: run.report.get(key, "missing") for key, name in passing.items()}
    fails = tuple(name for name, status in statuses.items() if status != "passed")
    return fails, tuple(name for name, status in statuses.items() if status == "passed")


def _ordered(tree: Tree, seed: int) -> list[tuple[str, Fault]]:
    """Return all faults of a package, in an order that the seed decides: one of each function, then a second one of each."""
    found = [(path, fault) for path in tree.sources for fault in faults(tree.files[path].decode())]
    found.sort(key=lambda one: stable_hash(f"{seed}/{tree.name}/{one[0]}/{one[1].kind}/{one[1].source}"))
    laps = Counter[tuple[str, str]]()
    places: list[tuple[int, int]] = []
    for number, (path, fault) in enumerate(found):
        places.append((laps[path, fault.function], number))
        laps[path, fault.function] += 1
    return [found[number] for _, number in sorted(places)]


def _archive(tree: Tree) -> bytes:
    written = io.BytesIO()
    with tarfile.open(fileobj=written, mode="w", format=tarfile.GNU_FORMAT) as archive:
        for path, content in sorted(tree.files.items()):
            member = tarfile.TarInfo(path)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return written.getvalue()
