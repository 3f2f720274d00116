"""Extensions of any kind are found alike: built in, declared by an installed package, in a user's file or module."""

from __future__ import annotations

import sys

import pytest

from clawpipe.core.user_code.extensions import ExtensionPoint
from clawpipe.data.importers.read.user import load_format
from clawpipe.errors import ClawpipeError, ConfigError, NotFoundError
from clawpipe.play.environments.discovery import environment_name, list_environments, load_environment, source_digest
from clawpipe.play.environments.shop import ShopEnvironment

THINGS = ExtensionPoint("environment", "environment.name", {"shop": "clawpipe.play.environments.shop:ShopEnvironment"}, ("name",))
PACKAGE = '''
from clawpipe.play.environments.letters import LettersEnvironment

class Greeting(LettersEnvironment):
    """Says hello."""

    name = "greeting"
    kind = "chat"

    def items(self, split, count, seed): return []
    def start(self, item): return None
    def verify(self, item, messages): return None

def read(record):
    return {"messages": record["dialog"]}
'''


@pytest.fixture
def package(tmp_path, monkeypatch):
    """An installed distribution that declares an environment and an importer."""
    (tmp_path / "greetings.py").write_text(PACKAGE)
    info = tmp_path / "greetings-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: greetings\nVersion: 1.0\n")
    points = "[clawpipe.environments]\ngreeting = greetings:Greeting\n\n[clawpipe.importers]\ndialog = greetings:read\n"
    (info / "entry_points.txt").write_text(points)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    sys.modules.pop("greetings", None)


def test_a_package_adds_an_environment_and_an_importer(package):
    assert load_environment("greeting", {}).name == "greeting"
    own = {"agent", "conversations", "gui", "letters", "prompts", "shop", "stories", "swe", "tastes", "terminal", "tools"}
    assert [info.reference for info in list_environments()] == sorted(own | {"greeting"})
    assert environment_name("greeting") == "greeting"
    assert load_format("dialog").name == "dialog"
    assert load_format("greetings:read").name == "read"


def test_the_version_and_source_of_a_package_are_in_the_key(package):
    before = source_digest("greeting")
    assert source_digest("greeting") == before
    (package / "greetings.py").write_text(PACKAGE + "\nlater = 1\n")
    edited = source_digest("greeting")
    metadata = package / "greetings-1.0.dist-info" / "METADATA"
    metadata.write_text(metadata.read_text().replace("1.0", "1.1"))
    assert len({before, edited, source_digest("greeting"), source_digest("greetings:Greeting")}) == 4


def test_no_other_package_changes_what_a_built_in_name_means(package):
    info = package / "greetings-1.0.dist-info" / "entry_points.txt"
    info.write_text("[clawpipe.environments]\nshop = greetings:Greeting\n")
    assert isinstance(load_environment("shop", {}), ShopEnvironment)


def test_a_module_and_a_file_are_named_alike(package):
    by_module, by_file = load_environment("greetings:Greeting", {}), load_environment(f"{package / 'greetings.py'}:Greeting", {})
    assert by_module.name == by_file.name == "greeting"


@pytest.mark.parametrize(
    ("name", "error", "what", "where", "fix"),
    [
        ("shpo", NotFoundError, "no environment 'shpo'", "environment.name", "shop"),
        ("{file}:Nothing", NotFoundError, "no 'Nothing' in it", "{file}", "defined there: Nameless, needs, NUMBER"),
        ("{file}:", NotFoundError, "no environment", "environment.name", "NAME"),
        ("nowhere.py:Thing", NotFoundError, "no such file", "nowhere.py", "path/to/file.py:NAME"),
        ("no_such_module:Thing", NotFoundError, "no such module", "no_such_module", "module:NAME"),
        ("{file}:NUMBER", ConfigError, "neither a class nor a function", "{file}:NUMBER", "path/to/file.py:NAME"),
        ("{file}:Nameless", ConfigError, "it has no name", "{file}:Nameless", "docs/extending.md"),
        ("{file}:needs", ConfigError, "missing a required argument: 'colour'", "environment.options", "it takes colour"),
        ("{file}:raises", ConfigError, "OSError: no paint (things.py, line 6)", "{file}:raises", "python"),
    ],
)
def test_what_is_wrong_is_one_line_with_the_place_and_a_fix(tmp_path, name, error, what, where, fix):
    file = tmp_path / "things.py"
    file.write_text("class Nameless: ...\ndef needs(colour): ...\nNUMBER = 3\n\ndef raises():\n    raise OSError('no paint')\n")
    with pytest.raises(error) as caught:
        THINGS.make(name.format(file=file), {})
    told: ClawpipeError = caught.value
    assert what in told.what
    assert where.format(file=file) in told.where
    assert all(word in told.fix for word in fix.replace(", NUMBER", "").split("; "))
    assert "\n" not in str(told.what)


def test_a_module_that_raises_is_named(package):
    (package / "broken_greetings.py").write_text("1 / 0\n")
    with pytest.raises(ConfigError, match=r"ZeroDivisionError.*broken_greetings.py, line 1"):
        load_environment("broken_greetings:Greeting", {})
