"""Every block of docs/extending.md is a whole file of at most 40 lines that does what the page says."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from clawpipe.core.config.night import EngineSpec, Model, NightConfig
from clawpipe.core.config.training import Loss
from clawpipe.core.conversation.messages import Message
from clawpipe.core.store.artifacts import Store
from clawpipe.core.store.datasets import read_dataset
from clawpipe.core.user_code.extensions import ExtensionPoint
from clawpipe.data.importers.read.user import load_format
from clawpipe.errors import ConfigError
from clawpipe.learn.training.losses.policy import policy_loss
from clawpipe.model.engines.base import Sampling, open_engine
from clawpipe.model.engines.vllm import VllmEngine
from clawpipe.model.policy.spec import untrained_spec
from clawpipe.play.environments.base import TaskItem, Verdict
from clawpipe.play.environments.discovery import load_environment
from clawpipe.play.environments.ending import outcome_of
from clawpipe.play.environments.hosted import open_environment
from clawpipe.play.environments.play import Play
from clawpipe.play.judging.base import SCORERS
from clawpipe.play.judging.scoring import score_dataset
from clawpipe.play.judging.verifier import VerifierScorer
from tests.fake_vllm import FakeVllm, serving

PAGE = Path("docs/extending.md").read_text(encoding="utf-8")
FILES: dict[str, str] = dict(re.findall(r"```python\n# (\S+\.py)\n(.*?)```", PAGE, re.DOTALL))
SETTINGS: dict[str, Any] = {}
WRITTEN: list[dict[str, Any]] = [yaml.safe_load(text) for text in re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)]
[_, SERVER] = (written for written in WRITTEN if "rollouts" in written)
for written in WRITTEN:
    if written is SERVER:
        continue
    SETTINGS |= {name: SETTINGS.get(name, {}) | block if name == "train" else block for name, block in written.items()}


@pytest.fixture
def files(tmp_path: Path) -> Path:
    for name, body in FILES.items():
        (tmp_path / name).write_text(body)
    return tmp_path


def placed(files: Path, name: str) -> str:
    """A reference as the page writes it, in the directory of the files."""
    return f"{files}/{name}"


def test_the_page_has_a_file_for_each_kind_and_none_is_long():
    assert set(FILES) == {
        "sums.py",
        "notes.py",
        "brevity.py",
        "dialogs.py",
        "shorter.py",
        "theirs.py",
        "soft_clip.py",
        "by_command.py",
    }
    assert {name: len(body.splitlines()) for name, body in FILES.items() if len(body.splitlines()) > 40} == {}


def test_the_settings_are_settings_of_a_night():
    config = NightConfig.model_validate(SETTINGS)
    assert [(scorer.name, scorer.weight) for scorer in config.scorers] == [("brevity.py:Brevity", 0.2)]
    assert config.rollouts is not None
    assert config.rollouts.engine == EngineSpec(name="shorter.py:Shorter", options={"context": 256})
    assert config.train.loss.objective == "soft_clip.py:soft_clip"
    assert config.train.backend.options == {"command": ["ssh", "trainer", "./train.sh"]}
    assert [(part.name, part.weight) for part in config.environments] == [("shop", 3.0), ("notes.py:Notes", 1.0)]


def test_the_environment_asks_and_checks(files: Path):
    environment = load_environment(placed(files, "sums.py:Sums"), {})
    [item] = environment.items("train", 1, 0)
    a, b = map(int, re.findall(r"\d+", item.messages[0].content))
    outcome = environment.verify(item, [*item.messages, Message("assistant", f"I think that it is {a + b}")])
    assert (outcome.success, outcome.value) == (True, pytest.approx(1 / 1.2))


def test_the_world_is_asked_in_a_python_of_its_own(files: Path, tmp_path: Path):
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "own"], check=True)
    python = str(tmp_path / "own" / "bin" / "python")
    with open_environment(placed(files, "notes.py:Notes"), {}, 30.0, python) as environment:
        [item] = environment.items("heldout", 1, 0)
        word = json.loads(item.truth)["truth"]
        for said, success in ((f"Noted: {word}", True), ("Nothing", False)):
            play, messages = Play(environment, item, 0), [*item.messages, Message("assistant", said)]
            assert play.answer(messages).done
            play.end("done")
            assert play.ending.verdict == Verdict({"note": said})
            assert outcome_of(environment, item, item.messages, play.ending).success is success


def test_the_scorer_is_part_of_the_reward_by_its_weight(files: Path, tmp_path: Path):
    import pyarrow as pa

    from clawpipe.core.contracts.schema import schema_of
    from clawpipe.core.store.datasets import publish_dataset
    from clawpipe.play.environments.letters import LettersEnvironment

    [written] = NightConfig.model_validate(SETTINGS).scorers
    scorer = SCORERS.make(placed(files, written.name), written.options)
    environment, store = LettersEnvironment(), Store(tmp_path / "store")
    [item] = environment.items("train", 1, 0)
    messages = [*item.messages, Message("assistant", " ".join(["word"] * 24))]
    fields = {"trajectory_id": "t", "item_id": item.item_id, "source": "rollout", "messages": [one.as_dict() for one in messages]}
    schema = schema_of("trajectories")
    row = {name: fields.get(name) for name in schema.names}
    items = publish_dataset(store, "task_items", [pa.Table.from_pylist([item.as_row()], schema=schema_of("task_items"))])
    made = publish_dataset(store, "trajectories", [pa.Table.from_pylist([row], schema=schema)])
    scorers = [VerifierScorer(environment), scorer]
    result = score_dataset(store, made, items, scorers, weights={scorer.name: written.weight})
    scores = {row["scorer"]: row for row in read_dataset(store, result.dataset).to_pylist()}
    verdict = environment.verify(TaskItem.from_row(item.as_row()), messages)
    assert scores["brevity"]["value"] == 0.5
    assert scores["verifier/letters"]["value"] == pytest.approx(verdict.value + 0.2 * 0.5)
    assert scores["verifier/letters"]["success"] == verdict.success
    assert '"brevity": 0.1' in scores["verifier/letters"]["evidence"]


def test_the_importer_reads_its_lines_and_leaves_others(files: Path):
    from clawpipe.data.importers.strict_json import RefusedError

    read = load_format(placed(files, "dialogs.py:read")).read
    assert read is not None
    [found] = read({"dialog": [{"from": "human", "text": "q"}, {"from": "bot", "text": "a"}], "stars": 4})
    assert [message.content for message in found.messages] == ["q", "a"]  # type: ignore[union-attr]
    with pytest.raises(RefusedError, match="not of the importer's format"):
        list(read({"other": 1}))


def test_the_engine_samples_within_its_context(files: Path):
    options = NightConfig.model_validate(SETTINGS).rollouts.engine.options  # type: ignore[union-attr]
    spec = EngineSpec(name=placed(files, "shorter.py:Shorter"), options=options)
    engine = open_engine(spec, untrained_spec(Model(base="random")), "cpu")
    assert engine.context == 256
    [turn] = engine.begin([[65, 66]]).sample({0: 1}, Sampling(1.0, 4)).values()
    assert len(turn.ids) == len(turn.logprobs) == 4


def test_the_server_is_one_that_loads_adapters_by_its_own_routes(files: Path):
    policy = untrained_spec(Model(base="random"))
    with serving(FakeVllm(Path(policy.base))) as url:
        spec = EngineSpec(**SERVER["rollouts"]["engine"] | {"name": placed(files, "theirs.py:Theirs"), "url": url})
        engine = open_engine(spec, policy, "cpu")
        assert isinstance(engine, VllmEngine)
        [turn] = engine.begin([[65, 66]]).sample({0: 1}, Sampling(1.0, 4)).values()
        engine.close()
    assert len(turn.ids) == len(turn.logprobs) == 4
    assert (engine.load, engine.key, spec.differs("float32")) == ("/adapters/load", "THEIR_API_KEY", True)


def test_the_loss_equals_its_formula_and_keeps_ratio_metrics(files: Path):
    generator = torch.Generator().manual_seed(0)
    logprobs, behaviour, advantages = torch.randn(3, 12, generator=generator, dtype=torch.float64)
    rows = torch.arange(12) // 4
    config = Loss(objective=placed(files, "soft_clip.py:soft_clip"), clip_high=0.3)
    loss, metrics = policy_loss(logprobs.requires_grad_(), behaviour, advantages, rows, config)
    ratio = (logprobs - behaviour).exp()
    torch.testing.assert_close(loss, -(1 + 0.3 * ((ratio - 1) / 0.3).tanh()) * advantages)
    assert metrics["ratio_mean"].item() == pytest.approx(ratio.mean().item())
    assert torch.autograd.gradcheck(lambda x: policy_loss(x, behaviour, advantages, rows, config)[0], logprobs)


def test_a_loss_of_another_shape_is_refused(tmp_path: Path):
    (tmp_path / "mean.py").write_text("def mean(tokens, config):\n    return tokens.ratio.mean()\n")
    ones = torch.ones(3)
    with pytest.raises(ConfigError, match=r"one loss per token, \[3\], not \[\]"):
        policy_loss(ones, ones, ones, torch.zeros(3, dtype=torch.long), Loss(objective=f"{tmp_path / 'mean.py'}:mean"))


def test_the_groups_of_the_page_are_those_that_are_read():
    declared = tomllib.loads("\n".join(re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)))["project"]["entry-points"]
    groups = {ExtensionPoint(kind, "").group for kind in ("environment", "scorer", "importer", "engine", "loss", "backend")}
    assert set(declared) <= groups
    assert all(f"`{group}`" in PAGE for group in groups)
