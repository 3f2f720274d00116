"""Read the `rl:` block of MonoClaw's config.yaml as settings of a night.

rl:
  training: {batch_size: 4, learning_rate: 5e-5, max_length: 8192, save_steps: 100}
  wandb: {project: agent, entity: team}
"""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.core.config.load import read_yaml
from clawpipe.errors import ConfigError

_SETTINGS = {
    "batch_size": "train.batch_rows",
    "learning_rate": "train.learning_rate",
    "max_length": "curation.max_tokens",
    "save_steps": "train.checkpoint_steps",
}


class _Block(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class _Training(_Block):
    batch_size: int | None = Field(default=None, ge=1)
    learning_rate: float | None = Field(default=None, gt=0)
    max_length: int | None = Field(default=None, ge=1)
    save_steps: int | None = Field(default=None, ge=1)


class _Wandb(_Block):
    project: str | None = None
    entity: str | None = None


class _Rl(_Block):
    training: _Training = _Training()
    wandb: _Wandb = _Wandb()


def rl_settings(file: Path) -> JsonObject:
    """Return the settings of the file's `rl:` block by their dotted names; {} if it has none. The rest of the file is not read.

    Raises:
        NotFoundError: there is no such file.
        ConfigError: it is no YAML, or `rl:` says something that has no meaning here.
    """
    try:
        rl = _Rl.model_validate(read_yaml(file).get("rl") or {})
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(["rl", *map(str, first["loc"])])
        raise ConfigError(f"{place}: {first['msg']}", str(file), "known are the fields in docs/from-monoclaw.md") from None
    given = rl.training.model_dump(exclude_none=True)
    found: JsonObject = {_SETTINGS[name]: value for name, value in given.items()}
    if rl.wandb.project:
        found["tracking.wandb"] = "/".join(filter(None, [rl.wandb.entity, rl.wandb.project]))
    return found
