"""Environments and settings as an agent chooses them: what it may change, what is locked, and what a later process finds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from clawpipe.core.config import load_config
from clawpipe.core.services.stack import project_directory
from clawpipe.core.store.home import Home
from clawpipe.start.mcp.desk import Desk
from clawpipe.start.mcp.protocol import call
from clawpipe.start.mcp.tools import tools_of

TINY = project_directory() / "configs" / "tiny.yaml"
OWN = '''
from typing import Literal
from pydantic import BaseModel, Field
from clawpipe.play.environments.letters import LettersEnvironment

class Own(LettersEnvironment):
    """An environment of a user's."""
    name, kind = "own", "chat"
    class Config(BaseModel):
        size: int = Field(3, ge=1, description="How large.")
        command: str = Field("ls", description="A program.")
        fixed: int = Field(7, json_schema_extra={"locked": True})
        mood: Literal["calm", "loud"] = "calm"
    def __init__(self, config): super().__init__()
'''


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    (tmp_path / "environments").mkdir()
    (tmp_path / "environments" / "own.py").write_text(OWN)
    return Desk(Home(tmp_path / "home"), TINY, folders=[tmp_path / "environments"])


def ask(desk: Desk, tool: str, **arguments: Any) -> dict[str, Any]:
    answer, failed = call(tools_of(desk), tool, arguments)
    return answer | {"failed": failed}


def test_environments_of_a_folder_are_listed_beside_the_built_in(desk, tmp_path):
    found = {one["name"]: one for one in ask(desk, "rl_list_environments")["environments"]}
    assert {"shop", "letters", "own"} <= found.keys()
    assert found["own"] == {
        "name": "own",
        "class_name": "Own",
        "file_path": str(tmp_path / "environments" / "own.py"),
        "description": "An environment of a user's.",
    }


def test_no_file_that_is_not_listed_can_be_selected(desk, tmp_path):
    (tmp_path / "evil.py").write_text("raise SystemExit('imported')")
    refused = ask(desk, "rl_select_environment", name=f"{tmp_path}/evil.py:Evil")
    assert refused["failed"]
    assert refused["error"] == f"no environment '{tmp_path}/evil.py:Evil'"
    assert "own" in refused["available"]


def test_without_an_environment_there_is_nothing_to_change(desk):
    for tool, arguments in (("rl_get_current_config", {}), ("rl_start_training", {})):
        assert ask(desk, tool, **arguments)["error"] == "no environment is selected"


def test_numbers_and_choices_may_be_changed_and_texts_not(desk):
    ask(desk, "rl_select_environment", name="own")
    shown = ask(desk, "rl_get_current_config")
    open_, locked = ({one["name"]: one for one in shown[f"{kind}_fields"]} for kind in ("configurable", "locked"))
    assert open_["environment.options.size"] == {
        "name": "environment.options.size",
        "type": "integer",
        "default": 3,
        "description": "How large.",
        "current_value": 3,
    }
    assert {"train.learning_rate", "train.method", "rounds", "rollouts.temperature", "environment.options.mood"} <= open_.keys()
    assert locked["environment.options.fixed"]["locked_value"] == 7
    assert {"environment.options.command", "model.base", "runtime.device", "rollouts.engine.python", "night"} <= locked.keys()


@pytest.mark.parametrize(
    "name", ["gate.alpha", "gate.slice_margin", "evaluation.heldout_share", "curation.quotas.per_user", "curation.approved_only"]
)
def test_an_agent_does_not_ease_its_own_examination(desk, name):
    ask(desk, "rl_select_environment", name="own")
    refused = ask(desk, "rl_edit_config", field=name, value=1)
    assert refused["error"].startswith(f"{name} is locked")
    assert "locked_value" in refused


def test_a_change_is_there_for_the_next_process(desk):
    ask(desk, "rl_select_environment", name="own")
    assert ask(desk, "rl_edit_config", field="environment.options.size", value=5)["value"] == 5
    assert ask(desk, "rl_edit_config", field="train.optimizer_steps", value=2)["config"]["train.optimizer_steps"] == 2
    later = Desk(desk.home, TINY, folders=desk.folders)
    path, settings = later.write_config(later.settings())
    assert (settings.environment.options, settings.train.optimizer_steps) == ({"size": 5}, 2)
    assert load_config(path) == settings
    assert yaml.safe_load(path.read_text())["night"].startswith("own-")


def test_options_go_with_their_environment_and_learning_stays(desk):
    ask(desk, "rl_select_environment", name="own")
    ask(desk, "rl_edit_config", field="environment.options.size", value=5)
    ask(desk, "rl_edit_config", field="rounds", value=1)
    ask(desk, "rl_select_environment", name="letters")
    settings = desk.settings()
    assert (settings.environment.name, settings.environment.options, settings.rounds) == ("letters", {}, 1)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("environment.options.size", 0),
        ("environment.options.size", "five"),
        ("environment.options.mood", "cross"),
        ("train.learning_rate", "fast"),
        ("train.learning_rate", float("nan")),
        ("train.method", "magic"),
        ("rollouts.items", 10**6),
    ],
)
def test_a_value_that_does_not_fit_changes_nothing(desk, name, value):
    ask(desk, "rl_select_environment", name="own")
    before = desk.settings()
    refused = ask(desk, "rl_edit_config", field=name, value=value)
    assert refused["failed"]
    assert "\n" not in refused["error"]
    assert desk.settings() == before


def test_an_unknown_field_names_those_that_there_are(desk):
    ask(desk, "rl_select_environment", name="own")
    refused = ask(desk, "rl_edit_config", field="learning_rate", value=1e-4)
    assert "train.learning_rate" in refused["available_fields"]
    assert "gate.alpha" not in refused["available_fields"]


def test_a_field_of_hermes_is_answered_with_its_name_here(desk):
    ask(desk, "rl_select_environment", name="letters")
    told = ask(desk, "rl_edit_config", field="group_size", value=4)["error"]
    assert told == "no field 'group_size'; Hermes and Atropos's group_size is rollouts.group_size"
