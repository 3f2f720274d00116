"""A backend of the user's trains through the same seam as the local one; what it cannot do is refused before a night starts."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest
from pydantic import ValidationError

from clawpipe.core.config import NightConfig
from clawpipe.core.config.backend import BackendSpec
from clawpipe.core.config.training import Train
from clawpipe.core.store.digests import sha256_json
from clawpipe.errors import ConfigError, TrainingError
from clawpipe.learn.training.backends import BACKENDS, require_backend
from clawpipe.learn.training.produce import run_training
from tasks.keys import content_key, extensions_of

PAGE = Path("docs/extending.md").read_text(encoding="utf-8")
[BY_COMMAND] = re.findall(r"```python\n# by_command.py\n(.*?)```", PAGE, re.DOTALL)
PROGRAM = """
import json, shutil, sys
from pathlib import Path
from clawpipe.learn.training.request import TrainRequest
from clawpipe.learn.training.run import train

request, adapter = TrainRequest.model_validate_json(Path(sys.argv[1]).read_bytes()), Path(sys.argv[2])
there = adapter.with_name("there")
there.mkdir(exist_ok=True)
config = request.config.model_copy(update={"backend": type(request.config.backend)()})
told = lambda step: print(json.dumps(step | {"rows": 16}))
train(request.model_copy(update={"output": str(there / "outcome"), "config": config}), there, told)
shutil.copytree(there / "outcome" / "adapter", adapter)
"""


@pytest.fixture
def by_command(tmp_path):
    """Settings of the page's backend, and of a program that trains as the local one does."""
    (tmp_path / "by_command.py").write_text(BY_COMMAND)
    (tmp_path / "program.py").write_text(PROGRAM)
    command = [sys.executable, str(tmp_path / "program.py")]
    return {"name": f"{tmp_path}/by_command.py:ByCommand", "options": {"command": command}}


@pytest.mark.usefixtures("quick_scripts")
def test_a_users_backend_trains_as_the_local_one_does(request_for, tmp_path, here, by_command):
    short = {"optimizer_steps": 1, "epochs": 2}
    local, steps = here(request_for("local", train=short)), []
    request = request_for("own", train=short | {"backend": by_command})
    outcome = run_training(request, tmp_path / "own", 300, steps.append)
    assert (outcome / "adapter" / "adapter_model.safetensors").read_bytes() == (
        local / "adapter" / "adapter_model.safetensors"
    ).read_bytes()
    assert [step["step"] for step in steps] == [1, 2]
    summary, expected = (json.loads((one / "summary.json").read_text()) for one in (outcome, local))
    assert (summary["samples"], summary["steps"], summary["grad_norm_max"]) == (16, 2, expected["grad_norm_max"])
    assert run_training(request, tmp_path / "own", 300, steps.append) == outcome  # finished: no process is started
    assert len(steps) == 2


@pytest.mark.usefixtures("quick_scripts")
def test_a_backend_without_an_outcome_is_an_error(request_for, tmp_path):
    (tmp_path / "idle.py").write_text(
        "from clawpipe.learn.training.backends import Capabilities\n"
        "class Idle:\n"
        "    can = Capabilities()\n"
        "    def __init__(self, url, model): ...\n"
        "    def train(self, request, work, on_step): ...\n"
    )
    request = request_for("idle", train={"backend": f"{tmp_path}/idle.py:Idle"})
    with pytest.raises(TrainingError, match="left no complete outcome"):
        run_training(request, tmp_path / "idle", 300, lambda step: None)


@pytest.mark.parametrize(
    ("settings", "what", "fix"),
    [
        ({"train": {"method": "dpo"}}, "it has no dpo", "train.method=grpo|sft"),
        ({"train": {"adapter": "full"}}, "it does not train train.adapter full", "train.adapter=lora"),
        ({"train": {"probe_steps": 2}}, "it keeps no policy between optimizer steps", "train.probe_steps=null"),
        ({"rounds": 2}, "it cannot go on from an earlier round", "rounds=1"),
        ({"train": {"start_from": "champion"}}, "cannot start from an adapter", "train.start_from=base"),
        ({"runtime": {"train_processes": 2}}, "no process of this machine trains", "runtime.train_processes=1"),
    ],
)
def test_settings_beyond_a_backend_are_refused_in_one_line(by_command, settings, what, fix):
    train = settings.get("train", {}) | {"backend": by_command}
    config = NightConfig.model_validate({"rounds": 1} | settings | {"train": train})
    with pytest.raises(ConfigError, match=re.escape(what)) as caught:
        require_backend(config)
    assert fix in caught.value.fix
    assert "\n" not in caught.value.what
    require_backend(NightConfig.model_validate(settings))  # the local one can


def test_all_that_is_refused_is_told_at_once(by_command):
    config = NightConfig.model_validate({"rounds": 2, "train": {"method": "kto", "adapter": "full", "backend": by_command}})
    with pytest.raises(ConfigError, match=r"it has no kto; it does not train train\.adapter full; it cannot go on"):
        require_backend(config)


@pytest.mark.parametrize(
    ("spec", "what"),
    [
        ({"url": "http://127.0.0.1:1"}, "trains on this machine"),
        ({"name": "tinker"}, "set `model`"),
        ({"name": "x.py:X", "url": "http://user:word@host"}, "a URL in the settings holds no secret"),
        ({"name": "x.py:X", "url": "host:1"}, "is no URL"),
    ],
)
def test_a_backend_that_cannot_be_is_refused(spec, what):
    with pytest.raises(ValidationError, match=what) as caught:
        BackendSpec.model_validate(spec)
    assert "word" not in str(caught.value.errors()[0]["msg"])


def _key(train: Train) -> str:
    def step(config: Train) -> None: ...

    return content_key("train", step, {"config": train})


def test_which_model_is_trained_by_what_is_in_the_key(by_command, tmp_path):
    specs = [{}, by_command, by_command | {"model": "m"}, by_command | {"options": {"command": ["other"]}}]
    keys = [_key(Train.model_validate({"backend": spec})) for spec in specs]
    assert len(set(keys)) == len(keys)
    assert _key(Train.model_validate({"backend": by_command | {"url": "http://127.0.0.1:1"}})) == keys[1]
    before = [sha256_json(Train()), keys[1]]
    (tmp_path / "by_command.py").write_text(BY_COMMAND.replace("returncode", "returncode "))
    assert _key(Train.model_validate({"backend": by_command})) != before[1]
    assert before[0] == sha256_json(Train(backend=BackendSpec()))


def test_a_training_is_another_where_its_backend_is(request_for, by_command):
    own = request_for("a", train={"backend": by_command}).identity()
    moved = request_for("a", train={"backend": by_command | {"url": "http://127.0.0.1:1"}}).identity()
    other = request_for("a", train={"backend": by_command | {"model": "m"}}).identity()
    assert own == moved != other
    assert own["code"] != request_for("a").identity()["code"]


def test_a_backend_is_an_extension_of_the_night(by_command):
    config = NightConfig.model_validate({"train": {"backend": by_command}})
    assert (BACKENDS, by_command["name"]) in list(extensions_of(config))
