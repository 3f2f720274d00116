"""Finding environments without importing them, and loading the one that is asked for."""

import os

import pytest

from clawpipe.errors import ConfigError, NotFoundError
from clawpipe.play.environments import module_sources
from clawpipe.play.environments.discovery import environment_name, inputs_digest, list_environments, load_environment, source_digest
from clawpipe.play.environments.shop import ShopEnvironment

OWN = '''
from dataclasses import dataclass
from typing import ClassVar
from clawpipe.play.environments.base import Outcome
from clawpipe.play.environments.letters import LettersEnvironment

@dataclass
class Mine:
    """Says yes.

    To everything.
    """

    name = "mine"
    kind: ClassVar[str] = "chat"
    answer: str = "yes"

    def tools(self): return []
    def preamble(self): return []
    def items(self, split, count, seed): return LettersEnvironment().items(split, count, seed)
    def start(self, item): return LettersEnvironment().start(item)
    def verify(self, item, messages): return Outcome(1.0, True, self.answer, {})

class Half:
    name = "half"
    kind = "chat"
    def items(self, split, count, seed): return []
    def start(self, item): return None
    def verify(self, item, messages): return None

class Odd(Mine):
    kind = "dance"

class Helper:
    pass
'''


@pytest.fixture
def own(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(OWN)
    return file


def test_the_built_in_ones_by_name():
    assert isinstance(load_environment("shop", {"inventory_seed": 3}), ShopEnvironment)
    listed = {info.reference: (info.name, info.kind) for info in list_environments()}
    chats = {name: (name, "chat") for name in ("letters", "stories", "tastes", "conversations", "prompts")}
    assert listed == {name: (name, "tool-call") for name in ("shop", "tools", "agent")} | chats | {
        name: (name, name) for name in ("terminal", "swe", "gui")
    }


def test_an_own_file_is_loaded_with_its_options(own):
    environment = load_environment(f"{own}:Mine", {"answer": "no"})
    (item,) = environment.items("train", 1, 0)
    assert environment.verify(item, []).reason == "no"


def test_an_edited_file_is_loaded_anew(own):
    before = source_digest(f"{own}:Mine")
    load_environment(f"{own}:Mine", {})
    own.write_text(OWN.replace('"yes"', '"perhaps"'))
    assert load_environment(f"{own}:Mine", {}).answer == "perhaps"
    assert source_digest(f"{own}:Mine") != before
    assert source_digest("shop") != source_digest("letters")


def test_listing_imports_nothing(own, tmp_path):
    ran = tmp_path / "ran"
    own.write_text(f"open({str(ran)!r}, 'w').close()\n" + OWN)
    (tmp_path / "broken.py").write_text("class Mine(:")
    (tmp_path / "binary.py").write_bytes(b"\x00\xff")
    mine, half, odd = (info for info in list_environments([tmp_path]) if ":" in info.reference)
    assert (mine.name, mine.kind, mine.reference, mine.summary) == ("mine", "chat", f"{own}:Mine", "Says yes.")
    assert (half.name, odd.kind, odd.summary.partition(":")[0]) == ("half", "dance", "cannot be played")
    assert not ran.exists()


@pytest.mark.parametrize(
    ("name", "error", "said"),
    [
        ("shpo", NotFoundError, "letters, prompts, shop"),
        ("{own}:Nobody", NotFoundError, "Mine, Half"),
        ("{own}x:Mine", NotFoundError, "no such file"),
        ("{own}:Half", ConfigError, "tools, preamble"),
        ("{own}:Odd", ConfigError, "'dance' is no kind"),
    ],
)
def test_what_is_wrong_and_where(own, name, error, said):
    with pytest.raises(error, match=said):
        load_environment(name.format(own=own), {})


def test_options_that_it_does_not_take(own):
    with pytest.raises(ConfigError, match="it takes inventory_seed"):
        load_environment("shop", {"colour": "red"})


def test_a_file_that_does_not_import(own):
    own.write_text("import nothing_of_this_name")
    with pytest.raises(ConfigError, match="ModuleNotFoundError") as caught:
        load_environment(f"{own}:Mine", {})
    assert caught.value.where == f"{own}:1"


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ("x = 1\nclass Mine(:\n", 2, "SyntaxError: invalid syntax"),
        ("def one():\nreturn 1\n", 2, "IndentationError"),
        ("\n\n1 / 0\n", 3, "ZeroDivisionError: division by zero"),
    ],
)
def test_a_mistake_in_the_file_is_one_line_with_its_place(own, text, line, said):
    own.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load_environment(f"{own}:Mine", {})
    assert caught.value.where == f"{own}:{line}"
    assert said in caught.value.what
    assert "\n" not in caught.value.what
    assert [path.name for path in own.parent.iterdir()] == [own.name]  # nothing is written beside it


def test_a_constructor_that_raises_is_named_with_its_line(own):
    own.write_text(f"{OWN}\nclass Broken(Mine):\n    def __init__(self):\n        raise OSError('no inventory')\n")
    with pytest.raises(ConfigError, match=r"OSError: no inventory \(mine.py, line \d+\)"):
        load_environment(f"{own}:Broken", {})


def test_a_directory_that_does_not_exist(tmp_path):
    with pytest.raises(NotFoundError, match="no such directory"):
        list_environments([tmp_path / "nowhere"])


INHERITS = """
import world as w
from clawpipe.play.environments import letters
from clawpipe.play.environments.single_turn import SingleTurn
from abc import abstractmethod

class Base(w.World):
    name, kind = "base", "terminal"

class Child(Base):
    async def start(self, item): ...

class Named(w.World):
    \"\"\"Named when it is made.\"\"\"
    def __init__(self):
        self.name = "named"
        self.kind: str = "swe"

class Assigned:
    name = "assigned"
    kind = "gui"
    items = start = w.World.items
    def __init__(self, how):
        self.verify = how

class Loud(letters.LettersEnvironment):
    name = "loud"

class Abstract(SingleTurn[int]):
    name = "abstract"
    def check(self, answer, truth): return {}

class Whole(Abstract):
    name = "whole"
    def question(self, draw): ...

class Nameless(w.World):
    kind = "chat"

class Foreign(w.somewhere.Else):
    name, kind = "foreign", "chat"
    def start(self, item): ...
    def verify(self, item, messages): ...

class Partly(w.somewhere.Else):
    name, kind = "partly", "chat"
    def verify(self, item, messages): ...

class Strange(w.World):
    name, kind = "strange", "web"

class Circle(Circle):
    name, kind = "circle", "chat"
"""
WORLD = """
class World:
    def items(self, split, count, seed): ...
    def start(self, item): ...
    def verify(self, item, messages): ...
"""


def test_members_may_be_inherited_or_set_in_init(tmp_path):
    (tmp_path / "mine.py").write_text(INHERITS)
    (tmp_path / "world.py").write_text(WORLD)
    found = {(info.name, info.kind) for info in list_environments([tmp_path]) if ":" in info.reference}
    assert found == {
        ("base", "terminal"),  # of Base, and of Child
        ("named", "swe"),
        ("assigned", "gui"),
        ("loud", "chat"),
        ("whole", "chat"),
        ("foreign", "chat"),
        ("strange", "web"),  # which says why it cannot be played
    }
    names = [info.reference.rpartition(":")[2] for info in list_environments([tmp_path]) if ":" in info.reference]
    assert names == ["Base", "Child", "Named", "Assigned", "Loud", "Whole", "Foreign", "Strange"]
    [strange] = [info for info in list_environments([tmp_path]) if info.name == "strange"]
    assert strange.summary.startswith("cannot be played: its kind is none of tool-call, ")
    assert environment_name(f"{tmp_path}/mine.py:Child") == "base"
    assert environment_name(f"{tmp_path}/mine.py:Named") == "named"


def test_a_module_that_is_not_found_in_time_has_no_digest(monkeypatch: pytest.MonkeyPatch):
    """Without its source in the key, rollouts of a changed module would be taken for those of the old one."""
    monkeypatch.setattr(module_sources, "_TO_ANSWER", 0.0)
    with pytest.raises(ConfigError, match="did not say within 0 seconds where the module 'wave' lies"):
        module_sources.module_digest("wave", None)


def test_folders_of_the_sandbox_are_inputs(tmp_path):
    """An agent is made of them: prompts and scripts beside the one that the command names."""
    agent = tmp_path / "an agent"
    (agent / "prompts").mkdir(parents=True)
    (agent / "index.js").write_text("ask()")
    (agent / "prompts" / "system.yaml").write_text("be brief")
    options = {"command": ["in-the-image"], "sandbox_options": {"paths": [str(agent)]}}
    first = inputs_digest("agent", options)
    (agent / "__pycache__").mkdir()
    (agent / "__pycache__" / "x.pyc").write_text("made by running it")
    assert inputs_digest("agent", options) == first
    (agent / "prompts" / "system.yaml").write_text("be long!")
    second = inputs_digest("agent", options)
    (agent / "lib.js").symlink_to("index.js")
    (agent / os.fsdecode(b"\xe9.txt")).write_text("no UTF-8")
    third = inputs_digest("agent", options)
    (agent / "large.bin").write_bytes(bytes(3 << 20))
    assert len({first, second, third, inputs_digest("agent", options)}) == 4
    moved = agent.rename(tmp_path / "elsewhere")
    there = {"command": ["in-the-image"], "sandbox_options": {"paths": [str(moved), "/not/there", "~nobody-of-this-name/x", 3]}}
    (moved / "large.bin").unlink()
    assert inputs_digest("agent", there) == third


@pytest.mark.parametrize("shown", ["venv", "venv/lib/python3.11/site-packages"])
def test_an_environment_of_python_is_its_packages(tmp_path, shown):
    shown = tmp_path / shown
    packages = tmp_path / "venv" / "lib" / "python3.11" / "site-packages"
    (packages / "rich-14.0.dist-info").mkdir(parents=True)
    (tmp_path / "venv" / "pyvenv.cfg").write_text("home = /usr/bin")
    (packages / "rich.py").write_text("print()")
    options = {"sandbox_options": {"paths": [str(shown)]}}
    first = inputs_digest("terminal", options)
    (packages / "rich.py").write_text("print(1)")
    assert inputs_digest("terminal", options) == first
    (packages / "rich-14.0.dist-info").rename(packages / "rich-14.1.dist-info")
    assert inputs_digest("terminal", options) != first
