"""The options of an environment: checked against its `Config`, and shown with what is known of them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from clawpipe.cli.main import app
from clawpipe.errors import ConfigError, NotFoundError
from clawpipe.play.environments.discovery import load_environment, show_environment
from clawpipe.play.environments.hosted import open_environment

OWN = '''
from pathlib import Path
from typing import Literal
from pydantic import BaseModel, Field
from clawpipe.play.environments.letters import LettersEnvironment
from clawpipe.core.conversation.messages import Message

class Settings(BaseModel):
    level: int = Field(3, ge=1, le=9, description="how hard")
    mode: Literal["easy", "hard"] = "easy"
    patience: float = Field(2.0, json_schema_extra={"unit": "s", "locked": True})
    words: list[str]

class Taking(LettersEnvironment):
    """Takes its settings.

    And more.
    """
    name = "taking"
    Config = Settings
    def __init__(self, config):
        super().__init__()
        self.settings = config
    def preamble(self): return [Message("system", f"{self.settings.level} {self.settings.words}")]

class Given(LettersEnvironment):
    name = "given"
    class Config(BaseModel):
        level: int = 3

class Open(LettersEnvironment):
    name = "open"
    class Config(BaseModel, extra="allow"):
        level: int = 3

class Plain(LettersEnvironment):
    def __init__(self, level: int, file: Path = Path("a"), other=(1, 2), *rest, **more):
        """Make it.

        Args:
            level: how hard it is.
        """
'''


@pytest.fixture
def own(tmp_path: Path) -> str:
    (tmp_path / "own.py").write_text(OWN)
    return f"{tmp_path}/own.py"


def test_a_config_is_given_to_the_constructor_or_set(own):
    taking = load_environment(f"{own}:Taking", {"words": ["a"], "level": 4})
    assert taking.settings.model_dump() == {"level": 4, "mode": "easy", "patience": 2.0, "words": ["a"]}  # type: ignore[attr-defined]
    assert load_environment(f"{own}:Given", {}).config.level == 3  # type: ignore[attr-defined]
    assert load_environment(f"{own}:Given", {"level": 5}).config.level == 5  # type: ignore[attr-defined]
    assert load_environment(f"{own}:Open", {"more": 1}).config.level == 3  # type: ignore[attr-defined]
    with open_environment(f"{own}:Taking", {"words": ["a"], "level": 4}, 30.0) as environment:
        assert environment.preamble()[0].content == "4 ['a']"


@pytest.mark.parametrize(
    ("name", "options", "what", "where"),
    [
        ("Taking", {"words": [], "level": "many"}, "valid integer", "environment.options.level"),
        ("Taking", {"words": [], "level": 10}, "less than or equal to 9", "environment.options.level"),
        ("Taking", {"words": [], "mode": "odd"}, "'easy' or 'hard'", "environment.options.mode"),
        ("Taking", {"words": ["a", 1]}, "valid string", "environment.options.words.1"),
        ("Taking", {}, "Field required", "environment.options.words"),
        ("Taking", {"words": [], "levle": 2}, "has no option 'levle'", "environment.options.levle"),
        ("Taking", {"words": [], "patience": 2.0}, "it is locked, and stays 2.0", "environment.options.patience"),
        ("Given", {"config": {}}, "has no option 'config'", "environment.options.config"),
    ],
)
def test_wrong_options_are_told_in_one_line(own, name, options, what, where):
    with pytest.raises(ConfigError) as caught:
        load_environment(f"{own}:{name}", options)
    assert (what in caught.value.what, caught.value.where, "\n" in caught.value.what) == (True, where, False)


def test_a_refused_value_is_not_repeated(own):
    with pytest.raises(ConfigError) as caught:
        load_environment(f"{own}:Taking", {"words": [], "level": "sk-secret"})
    assert "sk-secret" not in str(caught.value)


def test_options_are_shown_with_all_that_is_known(own):
    info, options = show_environment(f"{own}:Taking")
    assert (info.name, info.kind, info.summary, info.reference) == ("taking", "chat", "Takes its settings.", f"{own}:Taking")
    assert [(one.name, one.type, one.default, one.required, one.locked, one.unit, one.limits) for one in options] == [
        ("level", "integer", 3, False, False, "", {"maximum": 9, "minimum": 1}),
        ("mode", "'easy' | 'hard'", "easy", False, False, "", {"enum": ["easy", "hard"]}),
        ("patience", "number", 2.0, False, True, "s", {}),
        ("words", "array", None, True, False, "", {"items": {"type": "string"}}),
    ]
    assert options[0].description == "how hard"
    plain = show_environment(f"{own}:Plain")[1]
    assert [(one.name, one.type, one.default, one.required, one.description) for one in plain] == [
        ("level", "integer", None, True, "how hard it is."),
        ("file", "string", "PosixPath('a')", False, ""),
        ("other", "", (1, 2), False, ""),
    ]


def test_an_option_that_is_a_class_names_no_place_of_its_schema(tmp_path):
    kinds = "class Mode(Enum):\n    EASY = 'easy'\n\nclass Inner(BaseModel):\n    level: int = 1\n\n"
    fields = "        mode: Mode = Mode.EASY\n        inner: Inner = Inner()\n"
    config = f"class Classes(LettersEnvironment):\n    class Config(BaseModel):\n{fields}"
    (tmp_path / "own.py").write_text(f"from enum import Enum\n{OWN.partition('class Settings')[0]}{kinds}{config}")
    options = show_environment(f"{tmp_path}/own.py:Classes")[1]
    assert [(one.name, one.type, one.default, one.limits) for one in options] == [
        ("mode", "'easy'", "easy", {}),
        ("inner", "object", {"level": 1}, {}),
    ]


def test_the_command_shows_options_to_people_and_programs(own):
    shown = CliRunner().invoke(app, ["env", "show", f"{own}:Taking"])
    assert shown.exit_code == 0, shown.output
    assert shown.output.splitlines()[0] == "taking (chat): Takes its settings."
    assert "s, locked" in shown.output
    told = json.loads(CliRunner().invoke(app, ["env", "show", "tools", "--json"]).output)
    assert told["kind"] == "tool-call"
    assert {one["name"]: one["default"] for one in told["options"]}["timeout_s"] == 30.0
    assert CliRunner().invoke(app, ["env", "show", "conversations"]).output.endswith("it has no options\n")
    with pytest.raises(NotFoundError):
        show_environment("nobody")
