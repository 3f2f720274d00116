"""What cannot become a night is refused within seconds: before a server, a worker or a file of the home."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from huggingface_hub import HfApi

from clawpipe.cli import main
from clawpipe.core.config import load_config
from clawpipe.core.config.night import NightConfig
from clawpipe.core.services import prefect_server
from clawpipe.core.store.home import Home
from clawpipe.errors import ConfigError, NotFoundError
from clawpipe.model.policy.base import require_base
from flows.refusals import refuse_early

TINY = Path("configs/tiny.yaml")
MISTAKES = {
    "model.base=/no/such/folder": "model.base",
    "environment.name=nosuch": "environment.name",
    "environment.options={nope: 1}": "environment.options",
    "rollouts.engine=nosuch.py:Engine": "nosuch.py",
    "train.lora.target_modules=[c_attn]": "train.lora.target_modules",
    "train.backend=nosuch": "train.backend",
    "runtime.accelerate=nosuch.yaml": "nosuch.yaml",
    "runtime.device=gpu": "runtime.device",
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_starts_no_server(mistake: str, home: Home, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    """A wrong base was told after 65 seconds, most of them those of a server that nobody needed."""
    monkeypatch.setattr(prefect_server, "server", None)  # starting one would fail otherwise than it is refused
    with pytest.raises(SystemExit) as end:
        main.run(["run", "-c", str(TINY), "-o", mistake])
    assert end.value.code == 2
    told = capsys.readouterr().err
    assert MISTAKES[mistake] in told
    assert "run 20" not in told
    assert not home.prefect.exists()
    assert not home.runs.exists()


def test_a_refusal_loads_no_prefect():
    script = """
import sys
from pathlib import Path
from clawpipe.core.config import load_config
from clawpipe.errors import ClawpipeError
from clawpipe.core.store.home import Home
from flows.refusals import refuse_early
try:
    refuse_early(Home(Path("/nowhere")), load_config(Path("configs/tiny.yaml"), ["model.base=/no/such/folder"]))
except ClawpipeError:
    sys.exit(any(name in sys.modules for name in ("prefect", "mlflow", "torch", "transformers")))
sys.exit(2)
"""
    assert subprocess.run([sys.executable, "-c", script], timeout=60, check=False).returncode == 0


def stored(home: Home, tmp_path: Path) -> NightConfig:
    """A night on six imported conversations, which have no tokens."""
    from clawpipe.data.ingest.intake.options import Options
    from clawpipe.data.ingest.intake.run import ingest

    lines = [
        {"messages": [{"role": "user", "content": f"q{n}"}, {"role": "assistant", "content": f"a{n}"}], "reward": n % 2}
        for n in range(6)
    ]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    ingest(home, [str(tmp_path / "a.jsonl")], Options())
    return load_config(TINY, ["rollouts=null", "trajectories=[all]", "scores=[all]"])


@pytest.mark.parametrize("method", ["grpo", "ppo"])
def test_a_method_of_tokens_is_refused_on_text(method: str, home: Home, tmp_path: Path):
    config = stored(home, tmp_path)
    config = config.model_copy(update={"train": config.train.model_copy(update={"method": method})})
    with pytest.raises(ConfigError, match="none of the 6 stored trajectories has them") as refused:
        refuse_early(home, config)
    assert refused.value.where == "train.method"
    assert "sft" in refused.value.fix
    assert "grpo" not in refused.value.fix


@pytest.mark.parametrize("method", ["sft", "kto", "dpo"])
def test_a_method_of_text_is_not_refused_on_text(method: str, home: Home, tmp_path: Path):
    config = stored(home, tmp_path)
    refuse_early(home, config.model_copy(update={"train": config.train.model_copy(update={"method": method})}))


@pytest.mark.parametrize("error", [OSError("no network"), TimeoutError("late"), ValueError("Repo id must be ...")])
def test_a_base_that_the_hub_does_not_show_is_refused(error: Exception, monkeypatch: pytest.MonkeyPatch):
    def model_info(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(HfApi, "model_info", model_info)
    with pytest.raises(NotFoundError, match=f"no base model 'no/such'.*{type(error).__name__}") as refused:
        require_base("no/such", "model.base")
    assert refused.value.where == "model.base"


def test_a_base_that_is_there_is_not_looked_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(HfApi, "model_info", None)
    for name in ("random", str(tmp_path)):
        require_base(name, "model.base")


def test_a_base_on_the_hub_is_fetched_later(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(HfApi, "model_info", lambda *_, **__: object())
    require_base("org/there", "model.base")
