"""What a step's key knows of its code: the function's own text, what it uses, what that imports; a user's file with its modules."""

from __future__ import annotations

import importlib
import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest

from clawpipe.core.store import source
from clawpipe.core.store.source import code_digest, file_digest, function_digest, import_closure, reached_modules

FILES = {
    "__init__.py": "",
    "step.py": """
from probe import other, worth
from probe.worth import price

LIMIT = 3

def decorated(function):
    return function

@decorated
def work(x: int) -> int:
    \"\"\"What it says of itself.\"\"\"
    return min(price(x), _helper(x), LIMIT)

def _helper(x):
    from probe.late import twice
    return twice(x)

def stranger(x):
    return other.unused(x)
""",
    "worth.py": "from probe import deep\n\ndef price(x):\n    return deep.value(x)\n",
    "deep.py": "import numpy\n\ndef value(x):\n    return numpy.abs(x)\n",
    "late.py": "def twice(x):\n    return 2 * x\n",
    "other.py": "COMMAND = ['-m', 'probe.child']\n\ndef unused(x):\n    return x\n",
    "child.py": "from probe.late import twice\n",
}


@pytest.fixture
def probe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., ModuleType]]:
    """A package whose files can be edited; gives the module of its step, read anew."""
    folder, numbers = tmp_path / "probe", itertools.count()
    folder.mkdir()
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(source, "FIRST_PARTY", ("probe",))

    def edit(**changed: str) -> ModuleType:
        for name, text in (FILES | {f"{stem}.py": text for stem, text in changed.items()}).items():
            (folder / name).write_text(text)
        for name in [name for name in importlib.sys.modules if name.partition(".")[0] == "probe"]:  # type: ignore[attr-defined]
            del importlib.sys.modules[name]  # type: ignore[attr-defined]
        importlib.invalidate_caches()
        forget()
        module = folder / f"step_{next(numbers)}.py"  # linecache and bytecode go by name and time
        module.write_text((folder / "step.py").read_text())
        return importlib.import_module(f"probe.{module.stem}")

    yield edit
    forget()


def forget() -> None:
    """Let the next digest read every file again, as another process would."""
    for remembered in vars(source).values():
        if hasattr(remembered, "cache_clear"):
            remembered.cache_clear()


def test_the_digest_covers_exactly_what_a_function_reaches(probe):
    assert reached_modules(probe().work) == {"probe.worth", "probe.deep", "probe.late", "probe"}


@pytest.mark.parametrize(
    ("changed", "same"),
    [
        ({"deep": FILES["deep.py"].replace("abs", "sqrt")}, False),
        ({"late": FILES["late.py"].replace("2", "3")}, False),
        ({"step": FILES["step.py"].replace("LIMIT = 3", "LIMIT = 4")}, False),
        ({"step": FILES["step.py"].replace("return twice(x)", "return twice(x + 1)")}, False),
        ({"other": FILES["other.py"].replace("return x", "return -x")}, True),
        ({"step": FILES["step.py"].replace("other.unused(x)", "other.unused(-x)")}, True),
        ({"step": FILES["step.py"].replace("What it says of itself", "Another word")}, True),
    ],
    ids=["imported by an import", "imported inside", "a value", "a helper", "unused", "another function", "words"],
)
def test_a_function_is_another_one_when_what_it_runs_is_edited(probe, changed: dict[str, str], same: bool):
    before = function_digest(probe().work)
    assert (function_digest(probe(**changed).work) == before) is same


def test_a_child_process_counts_like_an_import(probe):
    probe()
    assert import_closure("probe.other") == {"probe.other", "probe.child", "probe.late"}


def test_another_version_of_a_computing_library_is_new_code(probe, monkeypatch: pytest.MonkeyPatch):
    probe()
    before = {name: code_digest(f"probe.{name}") for name in ("worth", "late")}
    monkeypatch.setattr(source, "_version", lambda library: f"{library} 999")
    assert code_digest("probe.worth") != before["worth"]  # reaches numpy
    assert code_digest("probe.late") == before["late"]


def test_an_import_for_types_alone_is_none(probe):
    probe(late="from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from probe import deep\n")
    assert import_closure("probe.late") == {"probe.late"}


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A user's file that imports a neighbour, a package elsewhere on the path, and an installed library."""
    texts = {
        "mine/env.py": "import json, numpy\nimport helpers\nfrom shared.rules import rule\n",
        "mine/helpers.py": "from far import away\n",
        "lib/shared/__init__.py": "",
        "lib/shared/rules.py": "rule = 1\n",
        "lib/far.py": "away = 1\n",
    }
    for name, text in texts.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.syspath_prepend(tmp_path / "lib")
    importlib.invalidate_caches()
    forget()
    yield tmp_path
    forget()


@pytest.mark.parametrize("edited", ["mine/env.py", "mine/helpers.py", "lib/shared/rules.py", "lib/far.py"])
def test_a_users_file_includes_its_local_imports(own: Path, edited: str):
    before = file_digest(own / "mine/env.py")
    (own / edited).write_text((own / edited).read_text() + "extra = 1\n")
    assert file_digest(own / "mine/env.py") != before


def test_a_broken_file_has_a_digest_too(tmp_path: Path):
    (tmp_path / "broken.py").write_text("def (")
    assert file_digest(tmp_path / "broken.py")


def test_strings_with_names_of_objects_or_packages_count():
    from clawpipe.core.store.source import import_closure

    assert "clawpipe.model.engines.embedded" in import_closure(
        "clawpipe.model.engines.base"
    )  # "clawpipe.model.engines.embedded:EmbeddedEngine"
