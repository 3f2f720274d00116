"""The training that an agent prepares: the environment that it selected and the settings that it changed, kept in the home.

mcp/draft.json        the selected environment and the changes
mcp/runs/LABEL.yaml   the settings of a training that was started
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ConfigDict

from clawpipe.core.basics.json_types import Options
from clawpipe.core.config.load import load_config, with_settings
from clawpipe.core.config.names.table import meanings
from clawpipe.core.config.night import NightConfig
from clawpipe.core.store.files import exclusive, write_atomic
from clawpipe.core.store.home import Home
from clawpipe.errors import ConfigError, DataError, NotFoundError
from clawpipe.play.environments.discovery import EnvironmentInfo, check_options, list_environments, show_environment
from clawpipe.start.mcp.fields import OPTIONS, Field, fields_of

STATUS_SECONDS = 30 * 60.0


class Draft(BaseModel):
    """What an agent has chosen so far."""

    model_config = ConfigDict(frozen=True)

    environment: str | None = None
    changes: dict[str, Any] = {}


@dataclass(frozen=True)
class Desk:
    """Where an agent prepares trainings. A person decides the home, the settings to begin with and the folders of environments.

    Args:
        config, overrides: a night's settings, as `clawpipe run` takes them.
        folders: directories of environments, besides those that are built in or installed.
        status_seconds: that pass between two looks at one running training.
        data: directory whose files may be inspected and ingested; None: none.
        test_models: models that may be tried, as NAME or NAME@URL; with =VARIABLE, the key is in that variable.
    """

    home: Home
    config: Path
    overrides: Sequence[str] = ()
    folders: Sequence[Path] = ()
    status_seconds: float = STATUS_SECONDS
    data: Path | None = None
    test_models: Sequence[str] = ()

    @property
    def root(self) -> Path:
        return self.home.root / "mcp"

    @property
    def configs(self) -> Path:
        """Where the settings of started trainings lie."""
        return self.root / "runs"

    def environments(self) -> list[EnvironmentInfo]:
        """Return the environments that may be selected."""
        return list_environments(self.folders)

    def draft(self) -> Draft:
        """Return what was chosen so far, by this process or by an earlier one.

        Raises:
            DataError: the file is damaged.
        """
        try:
            return Draft.model_validate_json(self._file.read_bytes())
        except FileNotFoundError:
            return Draft()
        except ValueError:
            raise DataError("what was selected is damaged", str(self._file), "remove the file, and select again") from None

    def select(self, name: str) -> EnvironmentInfo:
        """Select an environment by its name or reference. Changes of learning stay, those of another environment's options go.

        Raises:
            NotFoundError: it is none of `environments`.
            ConfigError: it cannot be imported.
        """
        found = next((one for one in self.environments() if name in (one.name, one.reference)), None)
        if found is None:
            raise NotFoundError(f"no environment {name!r}", fix="rl_list_environments shows those that there are")
        show_environment(found.reference)  # a mistake in its file shows now
        with self.alone():
            before = self.draft()
            same = before.environment == found.reference
            kept = {key: value for key, value in before.changes.items() if same or not key.startswith(OPTIONS)}
            self._write(Draft(environment=found.reference, changes=kept))
        return found

    def fields(self) -> list[Field]:
        """Return the settings of the training as it would start now.

        Raises:
            ConfigError: no environment is selected, or the settings do not go together.
        """
        settings = self.settings()
        return fields_of(settings, show_environment(settings.environment.name)[1])

    def change(self, name: str, value: Any) -> Field:
        """Change a setting of the training that is prepared.

        Returns:
            the field with its new value.

        Raises:
            NotFoundError: there is no such setting.
            ConfigError: it is locked, or does not take this value.
        """
        with self.alone():
            field = next((one for one in self.fields() if one.name == name), None)
            if field is None:
                foreign = "".join(f"; {one}" for one in meanings(name)[:1])
                fix = "rl_get_current_config shows the fields and their current values"
                raise NotFoundError(f"no field {name!r}{foreign}", fix=fix)
            if field.locked:
                raise ConfigError(f"{name} is locked, and stays {json.dumps(field.value)}", name, "a person can change the config")
            draft = self.draft()
            changed = draft.model_copy(update={"changes": draft.changes | {name: value}})
            try:
                self._settings(changed)
            except ConfigError as error:
                raise ConfigError(error.what, name, f"its type is {field.type}; rl_get_current_config shows it") from None
            self._write(changed)
        return next(one for one in self.fields() if one.name == name)

    def settings(self) -> NightConfig:
        """Return the settings of the training as it would start now, without a label of its own.

        Raises:
            ConfigError: no environment is selected, or the settings do not go together.
        """
        return self._settings(self.draft())

    def write_config(self, settings: NightConfig) -> tuple[Path, NightConfig]:
        """Write the settings under a label that no other training has; return the file and the settings with the label."""
        name = show_environment(settings.environment.name)[0].name
        labelled = settings.model_copy(update={"night": f"{name}-{secrets.token_hex(4)}"})
        path = self.configs / f"{labelled.night}.yaml"
        text = yaml.safe_dump(labelled.model_dump(mode="json"), sort_keys=False, allow_unicode=True)
        write_atomic(path, text.encode())
        return path, load_config(path, [])

    def _settings(self, draft: Draft) -> NightConfig:
        if draft.environment is None:
            raise ConfigError(
                "no environment is selected", fix="rl_list_environments shows them, rl_select_environment selects one"
            )
        given = load_config(self.config, self.overrides)
        own = given.environment.options if given.environment.name == draft.environment else {}
        changed = {name.removeprefix(OPTIONS): value for name, value in draft.changes.items() if name.startswith(OPTIONS)}
        options: Options = own | changed
        check_options(draft.environment, options)
        changes = {name: value for name, value in draft.changes.items() if not name.startswith(OPTIONS)}
        return with_settings(given, {"environment.name": draft.environment, "environment.options": options, **changes})

    @property
    def _file(self) -> Path:
        return self.root / "draft.json"

    def alone(self) -> AbstractContextManager[None]:
        """Return what keeps other processes from changing the files of this desk meanwhile."""
        return exclusive(self.home.locks / "mcp.lock", "what an agent has selected", wait=True)

    def _write(self, draft: Draft) -> None:
        write_atomic(self._file, draft.model_dump_json().encode())
