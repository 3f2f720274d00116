"""The W&B tracker. The library is an extra, imported when there is something to log."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from clawpipe.core.store.digests import sha256_json
from clawpipe.errors import ConfigError
from clawpipe.learn.evaluation.verdict.verdict import Verdict
from clawpipe.record.registry.night_summary import final_metrics, run_title
from clawpipe.record.tracking.names import PROBE_STEP
from clawpipe.record.tracking.tracker import Marks

_ID_DIGITS = 24
_INIT_SECONDS = 30.0
_KEYLESS = ("offline", "disabled", "dryrun")


class WandbSink:
    """One run per night, whose id follows from the night's, so that a resumed night continues it.

    An online run knows what it holds; for an offline run, whose files wait in `directory` for `wandb sync`, the
    night's marks do. The key comes from WANDB_API_KEY only: there is no prompt, and no file is read for it.

    Args:
        project: "project" or "entity/project".
        night: the night's id.
        settings: the night's nested config.
        run_dir: the night's directory; W&B's files lie in `wandb` below it.
    """

    name = "W&B"
    away = "look at the network and at WANDB_BASE_URL, or set WANDB_MODE=offline and upload with `wandb sync`"

    def __init__(self, project: str, night: str, settings: Mapping[str, Any], run_dir: Path) -> None:
        self._entity, _, self._project = project.rpartition("/")
        self._night, self._settings, self._run_dir = night, dict(settings), run_dir

    def open(self, attempt: int) -> int:
        wandb = _library(self._run_dir / "wandb")
        self._run = wandb.init(
            entity=self._entity or None,
            project=self._project,
            id=run_id(self._night, attempt),
            name=run_title(self._night, self._settings),
            config=self._settings,
            resume="allow",
            dir=str(self._run_dir),
            settings=wandb.Settings(
                silent=True,  # stdout and stderr belong to the night
                console="off",
                disable_git=True,
                disable_code=True,
                x_disable_meta=True,  # host and command line are private
                x_disable_stats=True,
                x_sync_dir_suffix=str(time.time_ns()),  # two runs opened within a second would share a file and lose rows
                init_timeout=_INIT_SECONDS,
            ),
        )
        logged = self._run.summary.get("step") or 0
        return max(int(logged), Marks.read(self._run_dir).steps.get(self.name, 0))

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        self._run.log({**metrics, "step": step}, step=step, commit=True)

    def probed(self, curve: Mapping[int, Mapping[str, float]]) -> None:
        """Log the probes on an axis of their own, since W&B takes nothing for a step that it has."""
        self._run.define_metric("probe/*", step_metric=PROBE_STEP)
        for step, metrics in sorted(curve.items()):
            self._run.log({**metrics, PROBE_STEP: step})

    def keep(self, part: str, directory: Path) -> None:
        """Do nothing: adapters are kept in MLflow only."""

    def conclude(self, verdict: Verdict) -> None:
        figures = {name: value for name, value in final_metrics(verdict).items() if value is not None}
        self._run.summary.update({**figures, "verdict": str(verdict.decision)})

    def close(self, *, failed: bool) -> None:
        self._run.finish(exit_code=int(failed))


def run_id(night: str, attempt: int = 1) -> str:
    """Return W&B's id of the night's run."""
    return sha256_json([night, attempt])[:_ID_DIGITS]


def _library(directory: Path) -> Any:
    """Return the wandb module, which may not write outside `directory`.

    Raises:
        ConfigError: wandb is not installed, or has no key although it needs one.
    """
    for name in ("WANDB_CACHE_DIR", "WANDB_CONFIG_DIR", "WANDB_DATA_DIR"):
        os.environ.setdefault(name, str(directory / name.removeprefix("WANDB_").removesuffix("_DIR").lower()))
    os.environ.setdefault("WANDB_DISABLE_WEAVE", "true")  # it would print an advertisement to stderr
    try:
        import wandb
    except ImportError:
        raise ConfigError("wandb is not installed", "tracking.wandb", "pip install 'clawpipe[wandb]' -c constraints.txt") from None
    if os.environ.get("WANDB_MODE", "online") not in _KEYLESS and not os.environ.get("WANDB_API_KEY"):
        fix = "export WANDB_API_KEY, or WANDB_MODE=offline to upload later with `wandb sync`"
        raise ConfigError("W&B has no key", "WANDB_API_KEY", fix)
    return wandb
