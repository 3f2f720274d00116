"""Export registered versions as directories that other engines load."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import NamedTuple

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.core.store.artifacts import Store
from clawpipe.core.store.files import MANIFEST
from clawpipe.core.store.home import Home
from clawpipe.core.store.open import open_store
from clawpipe.core.store.permissions import give_to_user
from clawpipe.core.store.refs import ModelRef
from clawpipe.errors import ConfigError
from clawpipe.model.policy.base import copy_companions
from clawpipe.model.policy.spec import PolicySpec, policy_spec
from clawpipe.record.registry.package import Package, name_base, restore_policy, verify_package
from clawpipe.record.registry.tracking import Tracking
from clawpipe.record.registry.versions import ModelVersionInfo, download
from clawpipe.serve.export.forms import GGUF_FORMS, Form
from clawpipe.serve.export.ollama import Episode


class Written(NamedTuple):
    """What is known of an export.

    Attributes:
        distance: how far the written weights are from the policy, see `clawpipe.serve.export.measured`; None where files were
        copied.
        left_out: what the files do not hold, a sentence each.
    """

    distance: JsonObject | None = None
    left_out: tuple[str, ...] = ()


def export_version(home: Home, name: str, form: Form, directory: Path) -> JsonObject:
    """Write a registered version into `directory`, see `write_files`.

    Args:
        name: `NAME@champion`, `NAME@3`, or the `models:/` URI of either.

    Raises:
        ConfigError: see `write_files`.
        NotFoundError, DataError: see `clawpipe.record.registry.versions.download`.
    """
    package, info = download(Tracking.of(home, "none"), name)  # which holds the model's name
    store = open_store(home)
    policy = restore_policy(store, package)
    written = write_files(store, policy, form, directory, _episode(verify_package(package), info))
    summary = {"name": info.name, "version": info.version, "format": form, "directory": str(directory)}
    return summary | {"policy_version": policy.policy_version, **written._asdict()}


def write_files(store: Store, policy: ModelRef, form: Form, directory: Path, episode: Episode = Episode()) -> Written:  # noqa: B008
    """Write a policy into `directory`, which appears when it is complete.

    Args:
        form: `adapter` as peft reads it, `merged` weights in full precision, or `quantized`: the merged weights in the bits
            that were evaluated, as transformers and vLLM read them (bitsandbytes or torchao tensors in safetensors); `gguf-...`:
            the merged weights as one GGUF file of that type, with an Ollama Modelfile.
        episode: how the policy's episodes began, for the Modelfile.

    Raises:
        ConfigError: the directory exists, or the policy has no such form.
        TrainingError: the weights say something else than the policy; nothing is left of them.
    """
    if directory.exists():
        raise ConfigError("it is there already", str(directory), "name a directory that does not exist")
    _require(policy, form)
    spec = policy_spec(store, policy)
    if form in GGUF_FORMS:
        _require_family(Path(spec.base))
    staging = directory.with_name(f".{directory.name}.partial")
    shutil.rmtree(staging, ignore_errors=True)
    staging.mkdir(parents=True)
    try:
        written = _fill(staging, policy, spec, form, episode)
        give_to_user(staging)
        os.replace(staging, directory)
        return written
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def _require(policy: ModelRef, form: Form) -> None:
    if form == "adapter" and not policy.adapter:
        raise ConfigError("this version is whole weights and has no adapter", "--format", "export it merged")
    if form == "quantized" and (policy.adapter or policy.quantization == "none"):
        raise ConfigError(
            "no quantized weights of this version were evaluated",
            "--format",
            "export it merged, or run a night with serving.artifact=merged and a serving.quantization",
        )


def _require_family(base: Path) -> None:
    from clawpipe.serve.export.gguf.write import require_writable  # loads torch, which other forms do not need

    require_writable(base)


def _episode(package: Package, info: ModelVersionInfo) -> Episode:
    return Episode(f"{info.name} version {info.version}", package.tools, package.preamble)


def _fill(directory: Path, policy: ModelRef, spec: PolicySpec, form: Form, episode: Episode) -> Written:
    if form == "adapter":
        assert spec.adapter
        _copy(Path(spec.adapter), directory)
        name_base(directory, policy)
        return Written()
    if form == "merged" and not spec.adapter:
        _copy(Path(spec.base), directory)
        return Written()
    return _made(directory, spec, form, episode)


def _made(directory: Path, spec: PolicySpec, form: Form, episode: Episode) -> Written:
    """Write weights that are not in the store, and measure them."""
    from clawpipe.model.policy.load import load_base, resolve_device
    from clawpipe.play.workers.merge import merge
    from clawpipe.serve.export.gguf.policy import write_measured  # loads torch, which other forms do not need
    from clawpipe.serve.export.measured import require_same

    if form in GGUF_FORMS:
        return Written(*write_measured(spec, form, directory, episode))
    if form == "quantized":
        model = load_base(Path(spec.base), spec.dtype, resolve_device("auto"), quantization=spec.quantization)
        model.save_pretrained(directory)
        copy_companions(Path(spec.base), directory)
    else:
        assert spec.adapter
        merge(Path(spec.base), Path(spec.adapter), spec.dtype, directory)
    return Written(require_same(spec, directory, quantized=form == "quantized"))


def _copy(source: Path, directory: Path) -> None:
    shutil.copytree(source, directory, dirs_exist_ok=True, ignore=shutil.ignore_patterns(MANIFEST))
