"""What trackers have been told, beside the night's record: `runs/<night>/tracking.json`."""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from clawpipe.store.files import write_atomic

_FILE = "tracking.json"


class Marks(BaseModel):
    """Where a night that goes on has to go on telling."""

    model_config = ConfigDict(extra="forbid")

    making: int = Field(default=1, description="how often the night was trained with different results")
    trained: dict[str, str] = Field(default_factory=dict, description="round to digest of its adapter, in this making")
    steps: dict[str, int] = Field(default_factory=dict, description="tracker to last update; for those that cannot be asked")

    @classmethod
    def read(cls, run_dir: Path) -> Marks:
        """Those of the night; new ones where there are none or they are damaged."""
        try:
            return cls.model_validate_json((run_dir / _FILE).read_bytes())
        except (OSError, ValidationError):
            return cls()

    def write(self, run_dir: Path) -> None:
        write_atomic(run_dir / _FILE, self.model_dump_json(indent=2).encode())
