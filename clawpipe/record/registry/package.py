"""The model package: a directory with everything about one trained policy, whose every byte can be checked.

    adapter_model.safetensors, adapter_config.json   an adapter; or
    model.safetensors, config.json, tokenizer.json   a whole model, which any engine can load
    manifest.json                                    of the artifact in the store; its sha256 is the artifact's digest
    README.md                                        model card
    MLmodel                                          the signature that MLflow shows
    clawpipe.json                                    the `Package` below, with the sha256 of every other file

So the policy version follows from the bytes: a package that loads is the one that was evaluated, or it is refused. One file
differs from the artifact's: its adapter_config.json names the base by digest, the package's by hub id and revision or by
directory, so that other tools find it. Restoring changes it back to the artifact's bytes.
"""

from __future__ import annotations

import hmac
import json
import shutil
from pathlib import Path
from typing import Annotated, Any

import msgspec
import yaml
from jinja2 import Environment, StrictUndefined
from pydantic import BaseModel, ConfigDict, Field, PlainSerializer, PlainValidator, ValidationError
from safetensors import SafetensorError, safe_open

import clawpipe
from clawpipe.core.basics.json_types import JsonObject
from clawpipe.core.conversation.messages import Message, ToolSpec
from clawpipe.core.store.artifacts import Store
from clawpipe.core.store.digests import canonical_json, sha256_bytes, sha256_file
from clawpipe.core.store.files import MANIFEST, read_manifest
from clawpipe.core.store.refs import DatasetRef, ModelRef
from clawpipe.errors import DataError
from clawpipe.learn.evaluation.verdict.verdict import Verdict
from clawpipe.model.policy.spec import Origin, base_name, origin_of
from clawpipe.model.policy.version import policy_version, renderer_digest

INDEX, CARD, MLMODEL = "clawpipe.json", "README.md", "MLmodel"
ALLOWED = (".safetensors", ".json", ".md", ".txt", ".jinja", ".model")
_CONFIG = "adapter_config.json"
_BY_DIGEST = "sha256:"
_SIGNATURE = {  # messages in, an answer out, as an MLflow signature
    "inputs": [
        {
            "name": "messages",
            "type": "array",
            "items": {
                "type": "object",
                "properties": {name: {"type": "string", "required": True} for name in ("role", "content")},
            },
            "required": True,
        }
    ],
    "outputs": [{"name": "content", "type": "string", "required": True}],
}
_SHOWN = (  # settings shown on the card
    *("train.method", "train.start_from", "rounds", "rollouts.items", "rollouts.group_size", "rollouts.temperature"),
    *("train.learning_rate", "train.epochs", "train.adapter", "train.lora.rank", "train.lora.alpha", "train.lora.variant", "seed"),
)
_TEMPLATE = Path(__file__).with_name("model_card.md.jinja")


def _message(value: Any) -> Message:
    try:
        return value if isinstance(value, Message) else msgspec.convert(value, Message)
    except msgspec.ValidationError as error:
        raise ValueError(str(error)) from None


def _tool(value: Any) -> ToolSpec:
    """Read a tool, whose parameters are JSON in a text, since JSON with sorted keys would lose their order; or as older packages
    have them, the type of each argument by name."""
    if isinstance(value, ToolSpec):
        return value
    try:
        name, description, parameters = value["name"], value["description"], value["parameters"]
        return ToolSpec(name, description, json.loads(parameters) if isinstance(parameters, str) else parameters)
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"no tool: {error!r}") from None


def _tool_row(tool: ToolSpec) -> JsonObject:
    return {"name": tool.name, "description": tool.description, "parameters": json.dumps(tool.parameters, ensure_ascii=False)}


_Tool = Annotated[ToolSpec, PlainValidator(_tool), PlainSerializer(_tool_row)]
_Message = Annotated[Message, PlainValidator(_message), PlainSerializer(Message.as_dict)]


class Package(BaseModel):
    """The contents of a package's index, clawpipe.json."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    key: str = Field(pattern=r"^[A-Za-z0-9._-]+$", description="idempotency key: two packages with one key are one model version")
    model_name: str
    night: str
    compared: str = Field(default="", description="one sentence that says what was learnt from and compared")
    policy: ModelRef
    environment: str
    tools: tuple[_Tool, ...] = Field(description="tools, needed to render a conversation")
    preamble: tuple[_Message, ...] = Field(default=(), description="messages at the beginning of every episode")
    datasets: dict[str, DatasetRef] = Field(description="by role, e.g. training and evaluation")
    config: JsonObject = Field(description="the night's settings, with defaults filled in")
    verdict: Verdict
    renderer: str = ""
    code: str = clawpipe.__version__
    files: dict[str, str] = Field(default_factory=dict, description="sha256 by file name")


def write_package(directory: Path, store: Store, package: Package) -> Package:
    """Write the package of a trained policy into `directory`, which must be empty or absent. Equal inputs give equal bytes.

    Returns:
        `package` with `renderer` and `files` filled in.

    Raises:
        DataError: the policy is untrained, or its artifact is missing, damaged, or holds a file that is not allowed.
    """
    if not package.policy.stored:
        raise DataError("the untrained base cannot be registered", package.policy.policy_version)
    shutil.copytree(store.require(package.policy), directory, dirs_exist_ok=True)
    package = package.model_copy(update={"renderer": renderer_digest(package.policy.tool_call_format)})
    if package.policy.adapter:
        name_base(directory, package.policy)
    (directory / CARD).write_text(_model_card(package), encoding="utf-8")
    (directory / MLMODEL).write_text(_mlmodel(package), encoding="utf-8")
    package = package.model_copy(update={"files": {name: sha256_file(directory / name) for name in _names(directory)}})
    (directory / INDEX).write_bytes(canonical_json(package))
    return verify_package(directory)


def verify_package(directory: Path, digest: str | None = None) -> Package:
    """Check every byte, header and digest of a package.

    Args:
        directory: the package.
        digest: sha256 that its `clawpipe.json` must have, from a more trusted source than the directory.

    Raises:
        DataError: anything is missing, damaged, unexpected, or not allowed.
    """
    where = str(directory)
    names = _names(directory)
    package = _read_index(directory)
    if digest is not None and not hmac.compare_digest(package_digest(directory), digest):
        raise DataError(f"{INDEX} is not the one that was registered", where)
    if set(names) != set(package.files):
        raise DataError(f"files {sorted(set(names) ^ set(package.files))} are missing, or not listed in {INDEX}", where)
    for name in names:
        if not hmac.compare_digest(sha256_file(directory / name), package.files[name]):
            raise DataError(f"{name} is damaged: its sha256 is not the one in {INDEX}", where)
        _check_content(directory / name)
    _check_policy(directory, package)
    return package


def package_digest(directory: Path) -> str:
    """Return the digest of a package: that of its index, which holds the digests of all other files."""
    return sha256_file(directory / INDEX)


def restore_policy(store: Store, directory: Path) -> ModelRef:
    """Put the artifact of a package back into the store, with the same digest.

    Raises:
        DataError: see `verify_package`.
    """
    policy = verify_package(directory).policy

    def fill(target: Path) -> JsonObject:
        manifest = read_manifest(directory)
        for entry in manifest.pop("files"):
            shutil.copyfile(directory / entry["path"], target / entry["path"])
        if policy.adapter:
            (target / _CONFIG).write_bytes(_as_trained(directory, policy))
        return manifest

    digest, _ = store.publish(policy.name, fill)
    if digest != policy.digest:
        raise DataError("the artifact does not have the digest that its package names", str(directory))
    return policy


def _names(directory: Path) -> list[str]:
    """Return the names of the files, without the index.

    Raises:
        DataError: there is a folder, a link, or a file of a kind that is not allowed.
    """
    entries = sorted(directory.iterdir()) if directory.is_dir() else []
    for entry in entries:
        if entry.is_symlink() or not entry.is_file() or (entry.suffix not in ALLOWED and entry.name != MLMODEL):
            raise DataError(f"{entry.name!r} is not allowed in a model package", str(directory), f"only files {', '.join(ALLOWED)}")
    return [entry.name for entry in entries if entry.name != INDEX]


def _read_index(directory: Path) -> Package:
    try:
        return Package.model_validate_json((directory / INDEX).read_bytes())
    except FileNotFoundError:
        raise DataError(f"no model package: {INDEX} is missing", str(directory)) from None
    except ValidationError as error:
        raise DataError(f"{INDEX} is damaged: {error.errors()[0]['msg']}", str(directory)) from None


def _check_content(file: Path) -> None:
    """Check that a file has the format of its suffix, before another library reads it."""
    try:
        if file.suffix == ".safetensors":
            with safe_open(file, framework="numpy") as tensors:
                tensors.keys()
        elif file.suffix == ".json":
            json.loads(file.read_bytes())
        elif file.suffix in (".txt", ".jinja"):
            file.read_text(encoding="utf-8")
    except (SafetensorError, ValueError) as error:
        raise DataError(f"{file.name} is no {file.suffix[1:]} file: {error}", str(file.parent)) from None


def _check_policy(directory: Path, package: Package) -> None:
    """Check that the policy version follows from the bytes."""
    policy = package.policy
    if MANIFEST not in package.files or sha256_file(directory / MANIFEST) != policy.digest:
        raise DataError("the artifact is not the one that the package names", str(directory))
    listed = {entry["path"]: entry["sha256"] for entry in read_manifest(directory)["files"]}
    files = {name: sha for name, sha in package.files.items() if name not in (MANIFEST, CARD, MLMODEL)}
    if policy.adapter and _CONFIG in files:
        config = _as_trained(directory, policy)
        files[_CONFIG] = sha256_bytes(config)
        if json.loads(config).get("base_model_name_or_path") != f"{_BY_DIGEST}{policy.base}":
            raise DataError(f"{_CONFIG} does not name the base {policy.base[:12]} that the policy was trained on", str(directory))
    if files != listed or (policy.adapter and _CONFIG not in listed):
        raise DataError("the package's files are not those of its artifact", str(directory))
    if policy.adapter == policy.weights or policy_version(policy) != policy.policy_version:
        raise DataError(
            "the policy version does not follow from base, weights, quantization and renderer",
            str(directory),
            "it was made with another version of clawpipe, which renders conversations differently",
        )


def name_base(directory: Path, policy: ModelRef) -> None:
    """Write the base's location and revision into an adapter's config, so that peft and transformers find it."""
    config, origin = directory / _CONFIG, origin_of(policy.base_name, policy.elsewhere)
    if origin:
        settings = json.loads(config.read_bytes())
        config.write_bytes(_written(settings | {"base_model_name_or_path": origin.location, "revision": origin.revision}))


def _as_trained(directory: Path, policy: ModelRef) -> bytes:
    """Return the adapter's config with the base named by its digest, as in the artifact."""
    data = (directory / _CONFIG).read_bytes()
    settings = json.loads(data)
    if str(settings.get("base_model_name_or_path")).startswith(_BY_DIGEST):
        return data
    return _written(settings | {"base_model_name_or_path": f"{_BY_DIGEST}{policy.base}", "revision": None})


def _written(settings: JsonObject) -> bytes:
    """Return the bytes that clawpipe.learn.training.model.adapter writes."""
    return (json.dumps(settings, indent=2, sort_keys=True) + "\n").encode()


def _mlmodel(package: Package) -> str:
    signature = {side: json.dumps(schema) for side, schema in _SIGNATURE.items()}
    flavor = {"policy_version": package.policy.policy_version, "kind": "adapter" if package.policy.adapter else "weights"}
    return yaml.safe_dump({"flavors": {"clawpipe": flavor}, "signature": {**signature, "params": None}}, sort_keys=True)


def _model_card(package: Package) -> str:
    template = Environment(undefined=StrictUndefined, keep_trailing_newline=True, trim_blocks=True).from_string(
        _TEMPLATE.read_text()
    )
    policy = package.policy
    name = base_name(policy.base_name)
    shown = origin_of(policy.base_name, policy.elsewhere) or Origin(title=name, location=name, revision=None, licence="other")
    precision = policy.dtype + ("" if policy.quantization == "none" else f", linear layers in {policy.quantization}")
    settings = {setting: value for setting in _SHOWN if (value := _looked_up(package.config, setting)) is not None}
    return template.render(package=package, base=shown, precision=precision, percent=_percent, settings=settings)


def _looked_up(settings: JsonObject, name: str) -> Any:
    """Return a setting by its dotted name; None if it does not exist."""
    found: Any = settings
    for part in name.split("."):
        found = found.get(part) if isinstance(found, dict) else None
    return found


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.1f} %"
