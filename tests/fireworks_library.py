"""Stands in for `fireworks.training.sdk`: Tinker's library, whose classes and methods that one copies.

`python_with_it` makes a Python in which it is found under the library's name.
"""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import tinker

types = tinker.types


class FiretitanServiceClient:
    training_session_name = "accounts/mine/trainingSessions/ts-1"

    def __init__(self, base_url: str) -> None:
        self._client = tinker.ServiceClient(base_url=base_url)

    def create_training_client(self, base_model: str, lora_rank: int, lora_alpha: int, seed: int, train_unembed: bool) -> Any:
        assert lora_alpha == 32  # of the fake
        made = self._client.create_lora_training_client(base_model, rank=lora_rank, seed=seed, train_unembed=train_unembed)
        return _Training(self._client, made.result(timeout=60))


class _Training:
    """A training client whose saved state is loaded into it, as Fireworks has it."""

    def __init__(self, service: Any, client: Any) -> None:
        self._service, self._client = service, client

    def load_state_with_optimizer(self, path: str) -> Any:
        self._client = self._service.create_training_client_from_state_with_optimizer(path).result(timeout=60)
        return SimpleNamespace(result=lambda timeout: None)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)


def python_with_it(directory: Path) -> Path:
    """Make a program that is this Python with the stand-in installed under the library's name."""
    package = directory / "packages" / "fireworks" / "training"
    package.mkdir(parents=True)
    (package / "sdk.py").write_text("from tests.fireworks_library import *\nfrom tests.fireworks_library import types\n")
    program, root = directory / "python", Path(__file__).parent.parent
    path = os.pathsep.join([str(directory / "packages"), str(root)])
    program.write_text(f'#!/bin/sh\nPYTHONPATH="{path}" exec "{sys.executable}" "$@"\n')
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return program
