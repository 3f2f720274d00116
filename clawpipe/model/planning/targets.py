"""The modules that `train.lora.target_modules` names: whether a model has them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from clawpipe.core.basics.patterns import OUT_OF_TIME, fits
from clawpipe.core.config.training import Lora
from clawpipe.errors import ConfigError
from clawpipe.model.planning.architecture import config_file, has_experts, known_architecture

_WEIGHT = ".weight"
_LAYERS = "model.layers."  # begins the names of layers in a file of weights that names them as the loaded model does


def require_targets(base: str, lora: Lora) -> None:
    """Raise if a setting names a module that the base model does not have. A model whose modules are not known is not checked.

    Raises:
        ConfigError: it lists the modules that exist.
    """
    modules = _modules_of(base)
    if isinstance(lora.target_modules, str) and not any(name.startswith(_LAYERS) for name in modules):
        return  # a pattern is for the whole name, of which a file may hold a part
    wanted = [lora.target_modules] if isinstance(lora.target_modules, str) else [(name,) for name in lora.target_modules]
    idle = [target for target in wanted if modules and not any(is_target(target, module) for module in modules)]
    if idle:
        names = ", ".join(repr(target if isinstance(target, str) else target[0]) for target in idle)
        raise ConfigError(
            f"{names} matches no module of {base}",
            "train.lora.target_modules",
            f"use all-linear, names of a list ([{', '.join(_ends(modules))}]), or one pattern for the whole name",
        )


def is_target(target_modules: str | tuple[str, ...], module: str) -> bool:
    """Return whether an adapter is put on a linear module, by PEFT's rules: a string is a regular expression for the whole name, a
    list holds endings of names.

    Raises:
        ConfigError: the expression takes too long, as it would in PEFT.
    """
    if target_modules == "all-linear":
        return True
    if isinstance(target_modules, str):
        if (found := fits(target_modules, module)) is None:
            raise ConfigError(
                f"{target_modules!r}: {OUT_OF_TIME}", "train.lora.target_modules", "write a simpler one, or a list of names"
            )
        return found
    return any(f".{module}".endswith(f".{name}") for name in target_modules)


def _modules_of(base: str) -> list[str]:
    """Return the names of a model's modules with a matrix of weights, from its files or for a model in the table; none if they are
    not known. The files of a mixture of experts name these otherwise than the loaded model does."""
    try:
        if has_experts(base):
            return []
    except ConfigError:  # of a config that cannot be read
        return []
    file, known = config_file(base), known_architecture(base)
    if file and (written := _written(file.parent)):
        return [*written, "lm_head"]  # of which no file holds a weight that the embedding shares
    if known is None:
        return []
    layers = [f"{_LAYERS}{layer}.{name}" for layer in range(known.layers) for name in known.linears]
    return [*layers, "model.embed_tokens", "lm_head"]


def _written(directory: Path) -> list[str]:
    """Return the names of the modules whose matrices the files of a model hold; none if a file cannot be read."""
    from safetensors import SafetensorError, safe_open

    found: list[str] = []
    try:
        for file in sorted(directory.glob("*.safetensors")):
            with safe_open(file, framework="numpy") as stored:
                names = [name for name in stored.keys() if name.endswith(_WEIGHT)]  # noqa: SIM118  # it is no mapping
                found += [name.removesuffix(_WEIGHT) for name in names if len(stored.get_slice(name).get_shape()) > 1]
    except (OSError, SafetensorError):
        return []
    return found


def _ends(modules: Iterable[str]) -> list[str]:
    """Return the last part of the names of modules in layers, each once."""
    return list(dict.fromkeys(name.rpartition(".")[2] for name in modules if any(part.isdigit() for part in name.split("."))))
