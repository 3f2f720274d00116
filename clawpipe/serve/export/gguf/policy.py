"""Write a policy as GGUF with its Modelfile: merge, convert, read back, compare."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.model.policy.spec import PolicySpec
from clawpipe.play.workers.merge import merge
from clawpipe.serve.export.forms import GgufForm
from clawpipe.serve.export.gguf.write import FILE, write_gguf
from clawpipe.serve.export.measured import require_near
from clawpipe.serve.export.ollama import Episode, write_modelfile


def write_measured(spec: PolicySpec, form: GgufForm, directory: Path, episode: Episode) -> tuple[JsonObject, tuple[str, ...]]:
    """Write `model.gguf` and `Modelfile` into `directory`.

    Returns:
        How far the file, read back, is from the policy, and what the Modelfile does not hold, a sentence each.

    Raises:
        ConfigError: the model cannot be written as GGUF.
        TrainingError: the file is further from the policy than its bits explain.
    """
    with _whole(spec, directory) as weights:
        write_gguf(weights, form, directory, episode.title, spec.tool_call_format)
    left_out = write_modelfile(directory, FILE, Path(spec.base), spec.tool_call_format, episode)
    return require_near(spec, directory, form), tuple(left_out)


@contextmanager
def _whole(spec: PolicySpec, directory: Path) -> Iterator[Path]:
    """Give a directory of whole weights. An adapter is merged in float32, so that weights are rounded only once."""
    if spec.adapter is None:
        yield Path(spec.base)
        return
    merged = directory / "merged"
    try:
        merge(Path(spec.base), Path(spec.adapter), "float32", merged)
        yield merged
    finally:
        shutil.rmtree(merged, ignore_errors=True)
