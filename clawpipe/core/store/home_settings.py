"""Files with settings that people write into a home, such as `privacy.yaml`."""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

import yaml
from pydantic import BaseModel, ValidationError

from clawpipe.core.basics.plain_yaml import parse_yaml
from clawpipe.errors import ConfigError

M = TypeVar("M", bound=BaseModel)


def read_home_settings(file: Path, model: type[M], page: str) -> M:
    """Return what a YAML file in a home says; a model of defaults if there is no such file.

    Args:
        page: of the documentation, which says what it may hold.

    Raises:
        ConfigError: the file cannot be read, or is invalid.
    """
    try:
        return model.model_validate(parse_yaml(file.read_bytes()) or {})
    except FileNotFoundError:
        return model()
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise ConfigError(first["msg"], f"{file}: {place}" if place else str(file), f"{page} says what it may hold") from None
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ConfigError(f"cannot be read as YAML: {' '.join(str(error).split())}", str(file)) from None
