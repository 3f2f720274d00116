"""Whether a GPU has room for the trainer. The driver's tool is a fake that prints what the real one prints."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from clawpipe.core.config.night import Model, Runtime
from clawpipe.core.config.training import Train
from clawpipe.errors import BusyError
from clawpipe.model.planning.free_memory import require_free_memory
from clawpipe.model.policy.spec import PolicySpec, untrained_spec


@pytest.fixture(scope="module")
def start() -> PolicySpec:
    return untrained_spec(Model(base="random"))


@pytest.fixture
def gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Let `nvidia-smi` print these lines."""

    def print_lines(*lines: str) -> None:
        (tool := tmp_path / "nvidia-smi").write_text("#!/bin/sh\n" + "".join(f"echo '{line}'\n" for line in lines))
        tool.chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)

    return print_lines


def test_a_gpu_that_a_server_holds_is_not_taken(gpus, start):
    gpus("0, 300, 81559")
    with pytest.raises(BusyError, match=r"GPU 0 has 0\.3 of 79\.6 GiB free") as raised:
        require_free_memory(start, Train(), Runtime())
    assert raised.value.exit_code == 75
    assert "vLLM sleep" in raised.value.fix


@pytest.mark.parametrize(
    ("lines", "device"),
    [
        ((), "auto"),
        (("0, 40000, 81559",), "auto"),
        (("0, 300, 310",), "auto"),  # too small when empty: the planner has said so
        (("0, 300, 81559",), "cpu"),
        (("0, [N/A], [N/A]",), "auto"),  # slices
        (("0, 300, 81559", "1, 40000, 81559"), "cuda:1"),
    ],
)
def test_who_is_let_through(gpus, start, lines, device):
    gpus(*lines)
    require_free_memory(start, Train(), Runtime(device=device))


def test_a_model_whose_memory_is_not_estimated_is_let_through(gpus, tmp_path):
    """A mixture of experts: it was refused once, even on a CPU."""
    gpus("0, 300, 81559")
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "gpt_oss", "num_local_experts": 4}))
    start = PolicySpec(base=str(tmp_path), adapter=None, dtype="float32", tool_call_format="harmony", policy_version="v")
    require_free_memory(start, Train(), Runtime())


def test_only_the_gpus_that_it_takes_are_asked_about(gpus, start, monkeypatch):
    gpus("0, 40000, 81559", "1, 300, 81559")
    require_free_memory(start, Train(), Runtime())
    with pytest.raises(BusyError, match="GPU 1"):
        require_free_memory(start, Train(), Runtime(train_processes=2))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    with pytest.raises(BusyError, match="GPU 1"):
        require_free_memory(start, Train(), Runtime())
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-8f6e")
    require_free_memory(start, Train(), Runtime())
