"""A user's environment in another Python: one with a package of its own, and without any of those that clawpipe needs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from clawpipe.core.conversation.messages import Message, ToolCall
from clawpipe.errors import ConfigError, NotFoundError
from clawpipe.play.environments.discovery import environment_name, source_digest
from clawpipe.play.environments.ending import Ending, hindsight_of, outcome_of
from clawpipe.play.environments.hosted import open_environment
from clawpipe.play.environments.interpreter import interpreter
from clawpipe.play.environments.play import Play

SOURCE = """
import importlib.util, json, os, sys
import ownlib
from clawpipe.play.environments.base import Hindsight, Outcome, Verdict, question_item
from clawpipe.core.conversation.messages import Message, ToolCall, ToolSpec

ABSENT = [name for name in ("pydantic", "msgspec", "torch", "duckdb", "pyarrow") if importlib.util.find_spec(name)]

class Own:
    name = "own"
    kind = "tool-call"
    def __init__(self, word="w"): self.word = word
    def tools(self): return [ToolSpec("say", sys.prefix, {"a": "integer"})]
    def preamble(self): return [Message("system", ownlib.VERSION), Message("assistant", "", (ToolCall("1", "say", "{}"),))]
    def items(self, split, count, seed):
        if count > 2500: raise LookupError("no more")
        ids = [f"{self.word}{n}" for n in range(count)]
        return [question_item(self, split, n, identity=i, part="all", question=i, truth={"n": n}) for n, i in enumerate(ids)]
    def distinct_items(self, split): return 7
    def warnings(self): return ["one line was left out"]
    def start(self, item, seed): return Episode(seed)
    def verify(self, item, messages, verdict):
        return Outcome(1.0, True, sys.prefix, {**verdict.evidence, "absent": ABSENT})
    def hindsight(self, item, messages): return Hindsight((sys.prefix,), (Message("assistant", "7"),))

class Episode:
    def __init__(self, seed): self.seed = seed
    def respond(self, messages): return [Message("tool", sys.prefix, tool_call_id="1", name="say")]
    def finish(self, reason): return Verdict({"prefix": sys.prefix, "path": os.environ.get("PYTHONPATH")})
    def close(self): pass
"""


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python with the package ownlib and no other."""
    folder = tmp_path_factory.mktemp("bare")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    [packages] = folder.glob("lib/python*/site-packages")
    (packages / "ownlib.py").write_text("VERSION = '1.2'\n")
    (packages / "ownlib-1.2.dist-info").mkdir()
    (packages / "ownlib-1.2.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: ownlib\nVersion: 1.2\n")
    (packages / "bundled.py").write_text(SOURCE)
    return folder


@pytest.fixture
def python(bare: Path) -> str:
    return str(bare / "bin" / "python")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    place = tmp_path / "own.py"
    place.write_text(SOURCE)
    return place


def test_all_of_a_users_class_runs_there(monkeypatch, bare, python, file):
    """What leads to our packages does not lead it there."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, sys.path)))
    with open_environment(f"{file}:Own", {"word": "v"}, 30.0, python) as environment:
        assert (environment.name, environment.kind) == ("own", "tool-call")
        assert [tool.description for tool in environment.tools()] == [str(bare)]
        assert environment.preamble() == [Message("system", "1.2"), Message("assistant", "", (ToolCall("1", "say", "{}"),))]
        items = environment.items("train", 2500, 0)
        assert [item.identity for item in items] == [f"v{n}" for n in range(2500)]
        assert (environment.distinct_items("train"), environment.warnings()) == (7, ["one line was left out"])
        play = Play(environment, items[3], 5)
        assert [message.content for message in play.answer([*items[3].messages, Message("assistant", "7")]).messages] == [str(bare)]
        play.end("done")
        outcome = outcome_of(environment, items[3], items[3].messages, play.ending)
        assert (outcome.reason, outcome.evidence) == (str(bare), {"prefix": str(bare), "path": None, "absent": []})
        known = hindsight_of(environment, items[3], items[3].messages, Ending())
        assert known
        assert (known.hints, known.demonstration) == ((str(bare),), (Message("assistant", "7"),))


def test_the_twelve_lines_need_no_package_either(python, tmp_path):
    (tmp_path / "sums.py").write_text(
        "from clawpipe.play.environments.single_turn import Question, SingleTurn\n"
        "class Sums(SingleTurn[list[int]]):\n"
        "    name = 'sums'\n"
        "    def question(self, draw):\n"
        "        a = draw.randint(1, 99)\n"
        "        return Question(f'{a}?', truth=[a, a])\n"
        "    def check(self, answer, truth):\n"
        "        return {'right': answer == str(truth)}\n"
    )
    with open_environment(f"{tmp_path}/sums.py:Sums", {}, 30.0, python) as environment:
        [item] = environment.items("heldout", 1, 0)
        truth = json.loads(item.truth)["truth"]
        assert environment.verify(item, [Message("assistant", str(truth))], None).success


def test_a_module_of_its_packages_is_found_there(python):
    with pytest.raises(NotFoundError), open_environment("bundled:Own", {}, 30.0):
        pass
    with open_environment("bundled:Own", {}, 30.0, python) as environment:
        assert environment.items("train", 1, 0)[0].environment == "own"
    assert environment_name("bundled:Own", python) == "Own"
    assert source_digest("bundled:Own", python) != source_digest("bundled:Other", python)


def test_an_edited_module_of_its_packages_is_another_source(python, bare):
    [file] = bare.glob("lib/python*/site-packages/bundled.py")
    before, text = source_digest("bundled:Own", python), file.read_text()
    file.write_text(f"{text}# edited\n")
    try:
        assert source_digest("bundled:Own", python) != before
    finally:
        file.write_text(text)


def test_its_version_and_packages_are_known(python):
    known = interpreter(python)
    assert (known.version[:2], known.packages) == (sys.version_info[:2], (("ownlib", "1.2"),))


def test_another_version_of_a_package_is_another_source(python, file, bare):
    name = f"{file}:Own"
    own, ours = source_digest(name, python), source_digest(name)
    [packages] = bare.glob("lib/python*/site-packages")
    metadata = packages / "ownlib-1.2.dist-info" / "METADATA"
    text = metadata.read_text()
    metadata.write_text(text.replace("1.2", "1.3"))
    interpreter.cache_clear()
    try:
        assert len({own, ours, source_digest(name, python)}) == 3
    finally:
        metadata.write_text(text)
        interpreter.cache_clear()


@pytest.mark.parametrize(
    ("python", "message"),
    [
        ("/nowhere/python", "no such program: /nowhere/python"),
        ("/bin/true", "no Python that starts"),
        ("/etc", "no such program"),
    ],
)
def test_what_is_no_python_is_told_in_one_line(file, python, message):
    with pytest.raises(ConfigError, match=message) as raised, open_environment(f"{file}:Own", {}, 30.0, python):
        pass
    assert (raised.value.where, raised.value.exit_code) == ("environment.python", 2)


def test_an_old_python_is_refused(tmp_path):
    old = tmp_path / "python3.9"
    old.write_text("#!/bin/sh\necho '[[3, 9, 2], []]'\n")
    old.chmod(0o755)
    with pytest.raises(ConfigError, match=r"is Python 3\.9\.2, and an environment needs 3.11 or newer"):
        interpreter(str(old))


def test_a_package_that_is_missing_there_is_named(python, file):
    file.write_text(f"import elsewhere\n{SOURCE}")
    with pytest.raises(ConfigError) as raised, open_environment(f"{file}:Own", {}, 30.0, python):
        pass
    assert str(raised.value) == (
        f"{file}:1: it does not import: ModuleNotFoundError: No module named 'elsewhere'\n"
        f"  -> install what it needs there: {python} -m pip install ..."
    )


def test_a_built_in_environment_has_no_other_python(python):
    with pytest.raises(ConfigError, match="shop is built in"), open_environment("shop", {}, 30.0, python):
        pass


def test_what_items_raise_is_told_in_one_line(python, file):
    with open_environment(f"{file}:Own", {}, 30.0, python) as environment:
        with pytest.raises(ConfigError, match=r"its items raised LookupError: no more \(own.py, line 16\)") as raised:
            environment.items("train", 3000, 0)
        assert raised.value.where == f"{file}:Own"
        assert len(environment.items("train", 1, 0)) == 1, "and others can be asked for"


@pytest.mark.parametrize("call", ["items", "distinct_items", "warnings"])
def test_calls_before_episodes_have_a_deadline(file, call):
    hanging = SOURCE.replace("import ownlib", "import time").replace("ownlib.VERSION", "''")
    head = {"items": "self, split, count, seed", "distinct_items": "self, split", "warnings": "self"}[call]
    file.write_text(f"{hanging}\nclass Hangs(Own):\n    def {call}({head}): time.sleep(1e6)\n")
    arguments = {"items": ("train", 1, 0), "distinct_items": ("train",), "warnings": ()}[call]
    with open_environment(f"{file}:Hangs", {}, 0.5) as environment:
        with pytest.raises(ConfigError, match=f"its {call}: it took more than 0.5 s") as raised:
            getattr(environment, call)(*arguments)
        assert raised.value.fix.startswith("raise environment.call_timeout")


def test_a_class_with_async_items_is_refused(file):
    file.write_text(
        f"{SOURCE.replace('import ownlib', '')}\nclass Late(Own):\n    async def items(self, split, count, seed): ...\n"
    )
    with pytest.raises(ConfigError, match="its items is async"), open_environment(f"{file}:Late", {}, 5.0):
        pass
