"""The record of a night: what it is, what it was compared with, how far it came. Files a person can read.

runs/<night>/night.json     label, number in its curriculum, the champion that was in service when the night began
runs/<night>/config.json    every setting, resolved
runs/<night>/times.json     how long each step took in the run that did it
runs/<night>/status.json    steps, held-out figures, verdict, model: what `clawpipe status` prints
runs/<night>/tracking.json  what trackers have been told
runs/<night>/logs/          one file a process
runs/<night>/lineage.json, report.html
"""

from __future__ import annotations

import datetime
import json
import os
import sys
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, computed_field

from clawpipe.config.night import NightConfig
from clawpipe.errors import ConfigError, DataError, NotFoundError
from clawpipe.store.digests import sha256_json
from clawpipe.store.files import write_atomic
from clawpipe.store.home import Home
from clawpipe.store.refs import ModelRef, Ref, StepResult

LINEAGE, REPORT = "lineage.json", "report.html"
Parsed = TypeVar("Parsed", bound=BaseModel)


class Incumbent(BaseModel):
    """The champion that a night has to beat."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    version: str
    night: str = Field(description="night that made it")
    policy: ModelRef


class NightRecord(BaseModel):
    """Written once, when the night first starts, so that a rerun learns the same and is compared with the same champion."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    night: str
    label: str
    champion: Incumbent | None
    number: int = Field(default=1, ge=1, description="in its curriculum")

    def resolve(self, config: NightConfig) -> NightConfig:
        """The settings with what only the night's start decides filled in."""
        curation, sampling = config.curation, config.curation.sampling
        if not sampling.curriculum or sampling.night is not None:
            return config
        numbered = curation.model_copy(update={"sampling": sampling.model_copy(update={"night": self.number})})
        return config.model_copy(update={"curation": numbered})


class StepEntry(BaseModel):
    """A finished step in the journal."""

    name: str
    state: str = Field(description="ran or cached")
    seconds: float = Field(description="in the run that did the work; of work that another night did, the time to find it")
    rows_in: int
    rows_out: int
    set_aside: dict[str, int]
    key: str | None
    digest: str | None
    artefacts: dict[str, Ref] = Field(default_factory=dict, description="what it made, by role: output, quarantine ...")
    details: dict[str, Any] = Field(default_factory=dict)


class Figures(BaseModel):
    """Held-out success of one model with its Wilson interval."""

    success: float
    low: float
    high: float
    n: int


class EvidenceLeft(BaseModel):
    """How long a night's environment can go on asking about what nobody has looked at."""

    model_config = ConfigDict(frozen=True)

    available: int | None = Field(description="identities that a verdict may rest on; None: as many as one likes")
    looked_at: int = Field(description="those of them that some night has looked at")
    a_night: int = Field(description="items that a night asks for")

    @computed_field
    @property
    def fresh(self) -> int | None:
        return None if self.available is None else max(self.available - self.looked_at, 0)

    @computed_field
    @property
    def nights(self) -> float | None:
        return None if self.fresh is None else self.fresh / self.a_night

    def told(self) -> str:
        """For people."""
        if self.fresh is None or self.nights is None:
            return "as many fresh held-out items as a night asks for, every night"
        return f"{self.fresh} of {self.available} held-out identities are fresh: {self.nights:.1f} nights of {self.a_night}"


class RegisteredModel(BaseModel):
    name: str
    version: str
    digest: str
    aliases: list[str]


class NightStatus(BaseModel):
    """What `run --json` and `status --json` print."""

    night: str
    compared: str = Field(default="", description="method, data, models and held-out items, in one sentence")
    verdict: str | None = None
    reasons: list[str] = Field(default_factory=list)
    steps: list[StepEntry] = Field(default_factory=list)
    heldout: dict[str, Figures | None] = Field(default_factory=lambda: dict.fromkeys(("base", "champion", "candidate")))
    benchmark: dict[str, Figures] = Field(default_factory=dict, description="by role, on the items that are the same every night")
    evidence_left: EvidenceLeft | None = Field(default=None, description="None where nobody says how much there is")
    model: RegisteredModel | None = None
    policy_version: str | None = None
    warnings: list[str] = Field(default_factory=list, description="what did not stop the night but its owner should know")
    error: str | None = Field(default=None, description="what ended the night before its verdict, and what helps")
    seconds: float = Field(default=0.0, description="of the runs that did the work, all together")
    rerun_seconds: float | None = Field(default=None, description="of the last run, where it found all of the work done")
    run_dir: str = ""

    @property
    def lineage_page(self) -> str | None:
        """Where Prefect draws the lineage: an address, or the path on a server of this home. None: it ran without Prefect."""
        return next((step.details.get("page") for step in self.steps if step.name == "publish_lineage"), None)


def night_label(config: NightConfig) -> str:
    """The label with today's date filled in."""
    return config.night.replace("{date}", datetime.date.today().isoformat())


def night_id(config: NightConfig) -> str:
    """Label and settings, without those that change no result: the same night wherever and whenever it runs."""
    return f"{night_label(config)}-{sha256_json(config)[:10]}"


def run_dir(home: Home, night: str) -> Path:
    """The directory of a night.

    Raises:
        NotFoundError: the name is none that a night can have.
        ConfigError: no file of this environment can have it.
    """
    if not night or "/" in night or night.startswith("."):
        raise NotFoundError(f"{night!r} cannot be a night", fix="`clawpipe status` lists them")
    try:
        os.fsencode(night)
    except UnicodeEncodeError:
        encoding = sys.getfilesystemencoding()
        fix = "set PYTHONUTF8=1, or choose a label in ASCII"
        raise ConfigError(f"files are named in {encoding} here, which cannot write {night!r}", "night", fix) from None
    return home.runs / night


def read_record(home: Home, night: str) -> NightRecord | None:
    """The record of a night that has been started, else None.

    Raises:
        DataError: it is damaged.
    """
    path = run_dir(home, night) / "night.json"
    if not path.exists():
        return None
    return _parsed(NightRecord, path, "remove the file to start the night anew; finished steps stay cached")


def new_record(home: Home, config: NightConfig, champion: Incumbent | None) -> NightRecord:
    """The record of a night that would start now; of one that was started, its number stays.

    Raises:
        DataError: there is a damaged one.
    """
    known = read_record(home, night_id(config))
    number = known.number if known else _number(home, config)
    return NightRecord(night=night_id(config), label=night_label(config), champion=champion, number=number)


def create_record(home: Home, config: NightConfig, champion: Incumbent | None) -> NightRecord:
    """Write the record of a night that starts, and a status of no steps. Call under the night lock."""
    record = new_record(home, config, champion)
    directory = run_dir(home, record.night)
    write_atomic(directory / "config.json", record.resolve(config).model_dump_json(indent=2).encode())
    write_status(NightStatus(night=record.night, run_dir=str(directory)))
    write_atomic(directory / "night.json", record.model_dump_json(indent=2).encode())
    return record


def read_status(home: Home, night: str) -> NightStatus:
    """The status of a night.

    Raises:
        NotFoundError: it never ran here.
        DataError: the file is damaged.
    """
    path = run_dir(home, night) / "status.json"
    if not path.exists():
        raise NotFoundError(f"no night {night!r}", str(home.runs), "`clawpipe status` lists the nights of this home")
    status = _parsed(NightStatus, path, "run the night again: it writes the file anew")
    status.run_dir = str(path.parent)  # the home may have been moved since
    return status


def has_verdict(home: Home, night: str) -> bool:
    """Whether the night once came to its end, even if it is running again: its lineage is written last."""
    return (run_dir(home, night) / LINEAGE).exists()


def _number(home: Home, config: NightConfig) -> int:
    """The one after the furthest that a night with a verdict had in the same curriculum for the same model; at most the last."""
    sampling = config.model_dump(mode="json")["curation"]["sampling"]
    if not sampling["curriculum"]:
        return 1
    course = config.registry.model_name, sampling["curriculum"]
    earlier = [_number_in(home, night, course) for night in list_nights(home) if has_verdict(home, night)]
    return min(1 + max(earlier, default=0), len(sampling["curriculum"]))


def _number_in(home: Home, night: str, course: tuple[str, list[dict[str, float]]]) -> int:
    """The number of an earlier night, if it had this model and curriculum, else 0. Its settings may be another version's, or
    damaged, which must not keep this night from starting."""
    try:
        settings = json.loads((run_dir(home, night) / "config.json").read_bytes())
        sampling = settings["curation"]["sampling"]
        return int(sampling["night"] or 1) if (settings["registry"]["model_name"], sampling["curriculum"]) == course else 0
    except (OSError, ValueError, KeyError, TypeError):
        return 0


def clear_leftovers(home: Home, night: str) -> None:
    """Remove what a killed writer left in the night's directory, and no folder of somebody else's. Call under the night lock."""
    for left in run_dir(home, night).glob(".*"):
        if not left.is_dir():
            left.unlink()


def list_nights(home: Home) -> list[str]:
    """Nights of this home, the one that has last written anything last."""
    directories = [path.parent for path in home.runs.glob("*/night.json")]
    return [directory.name for directory in sorted(directories, key=lambda directory: directory.stat().st_mtime_ns)]


def write_status(status: NightStatus) -> None:
    write_atomic(Path(status.run_dir) / "status.json", status.model_dump_json(indent=2).encode())


def nothing_learnt(step: StepEntry) -> str | None:
    """Why a step, a training, taught the policy nothing; None: it did, or is no training."""
    why = step.details.get("nothing_learnt")
    return f"{step.name}: {why}" if why else None


def entry(name: str, cached: bool, seconds: float, key: str | None, result: StepResult) -> StepEntry:
    return StepEntry(
        name=name,
        state="cached" if cached else "ran",
        seconds=round(seconds, 3),
        rows_in=result.rows_in,
        rows_out=result.rows_out,
        set_aside=result.set_aside,
        key=key,
        digest=result.output.digest if result.output else None,
        artefacts=({"output": result.output} if result.output else {}) | result.extras,
        details=result.details,
    )


def _parsed(model: type[Parsed], path: Path, fix: str) -> Parsed:
    try:
        return model.model_validate(json.loads(path.read_bytes()))
    except ValueError as error:
        raise DataError(f"the file is damaged: {error}", str(path), fix) from None
