"""The settings that are proposed, and why."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import yaml

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.core.config.load import with_settings
from clawpipe.core.config.night import NightConfig
from clawpipe.core.config.training import ONE_OF


@dataclass
class Proposal:
    """Settings to start from, by their blocks, and the reason for each block."""

    settings: JsonObject
    reasons: dict[str, str] = field(default_factory=dict)
    found: list[str] = field(default_factory=list)  # sentences about the data

    def add(self, block: str, value: Any, reason: str = "") -> None:
        """Set a block, or the fields of one, and say why."""
        if isinstance(value, dict):
            value = self.settings.get(block, {}) | value
        self.settings[block] = value
        if reason:
            self.reasons[block] = "; ".join(filter(None, [self.reasons.get(block), reason]))

    def give_way(self, overrides: Sequence[str]) -> None:
        """Leave out what says the same thing as a setting that the user gives as `train.field=value`."""
        words = (one.partition("=") for one in overrides)
        given = {name.removeprefix("train.") for name, _, value in words if value.strip() not in ("", "~", "null")}
        said = {name for names in ONE_OF if given.intersection(names) for name in names}
        self.settings["train"] = {name: value for name, value in self.settings["train"].items() if name not in said}

    def config(self) -> NightConfig:
        """Return the settings with all defaults filled in.

        Raises:
            ConfigError: they contradict each other.
        """
        return with_settings(NightConfig(), self.settings)

    def text(self) -> str:
        """Return a YAML file with the reasons as comments."""
        lines = [f"# {sentence}" for sentence in self.found]
        for block, value in self.settings.items():
            lines += ["", *([f"# {self.reasons[block]}"] if block in self.reasons else [])]
            lines.append(yaml.safe_dump({block: value}, sort_keys=False, allow_unicode=True).rstrip())
        return "\n".join(lines) + "\n"
