"""The record of a night: its identity, what it is compared with, and its progress, in files that a person can read.

runs/<night>/night.json     label, number in its curriculum, the champion in service when the night began
runs/<night>/config.json    every setting, with defaults filled in
runs/<night>/times.json     how long each step took in the run that did it
runs/<night>/status.json    steps, held-out figures, verdict, model: what `clawpipe status` prints
runs/<night>/tracking.json  what has been sent to trackers
runs/<night>/logs/          one file per process
runs/<night>/lineage.json, report.html
"""

from __future__ import annotations

import datetime
import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TypeVar
from zoneinfo import ZoneInfo

from pydantic import BaseModel, ConfigDict, Field, computed_field

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.core.config.block import renamed
from clawpipe.core.config.engine import TIS_CAP, EngineSpec
from clawpipe.core.config.night import Measure, NightConfig
from clawpipe.core.store.digests import sha256_json
from clawpipe.core.store.files import write_atomic
from clawpipe.core.store.home import Home
from clawpipe.core.store.refs import ModelRef, Ref, StepResult
from clawpipe.errors import ConfigError, DataError, NotFoundError
from clawpipe.learn.evaluation.rounds import Choice
from clawpipe.learn.evaluation.verdict.verdict import Tally

_BY_DIGEST: Mapping[str, tuple[str, ...]] = {}  # settings that name all datasets by their digests
LINEAGE, REPORT = "lineage.json", "report.html"
DATE = "{date}"  # in a label
Parsed = TypeVar("Parsed", bound=BaseModel)


class Incumbent(BaseModel):
    """The champion that a night has to beat."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    version: str
    night: str = Field(description="night that produced it")
    policy: ModelRef
    model: str | None = Field(default=None, description="the registered model that it is of; None: the night's own")

    @property
    def title(self) -> str:
        """What people call the version."""
        return f"{self.version} of {self.model}" if self.model else self.version


class PastRound(BaseModel):
    """What an earlier night has of one of its rounds, by digest."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    night: str
    trajectories: str = Field(description="its rollouts")
    scores: str
    trained: str | None = Field(description="policy version that the round trained; None: it trained none")
    items: str | None = Field(default=None, description="the items that were drawn for it; None: the night's, in their order")


class NightRecord(BaseModel):
    """Written once, when a night first starts, so that a rerun trains the same and is compared with the same champion."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    night: str
    label: str
    champion: Incumbent | None
    number: int = Field(default=1, ge=1, description="number of the night in its curriculum")
    datasets: dict[str, tuple[str, ...]] = Field(
        default_factory=dict, description="digests by setting, where the settings name datasets by a word"
    )
    past: tuple[PastRound, ...] = Field(default=(), description="rounds of earlier nights that it looks back at, newest first")
    earlier: tuple[Tally, ...] = Field(
        default=(), description="the evidence of this model's nights since its last promotion, where evidence adds up"
    )
    reviews: str | None = Field(default=None, description="digest of people's decisions about rows; None: there were none")

    def resolve(self, config: NightConfig) -> NightConfig:
        """Fill in the settings that are decided when the night starts."""
        config = _with_correction(config.model_copy(update=self.datasets))
        curation, sampling = config.curation, config.curation.sampling
        if not sampling.curriculum or sampling.night is not None:
            return config
        numbered = curation.model_copy(update={"sampling": sampling.model_copy(update={"night": self.number})})
        return config.model_copy(update={"curation": numbered})


def _with_correction(config: NightConfig) -> NightConfig:
    """Set truncated importance weights where engine and trainer compute differently, unless the settings decide it."""
    engine, train = config.rollouts.engine if config.rollouts else EngineSpec(), config.train
    is_set = train.loss.tis_cap is not None or train.loss.icepop is not None
    if is_set or not train.spec.uses_ratios or not engine.differs(config.model.dtype):
        return config
    loss = train.loss.model_copy(update={"tis_cap": TIS_CAP})
    return config.model_copy(update={"train": train.model_copy(update={"loss": loss})})


class StepEntry(BaseModel):
    """A finished step in the journal."""

    name: str
    state: str = Field(description="ran or cached")
    seconds: float = Field(description="of the run that did the work; of work that another night did, the time to look it up")
    accelerator_seconds: float | None = Field(
        default=None, description="for which it occupied accelerators, summed over them; None: none, or not measured"
    )
    rows_in: int
    rows_out: int
    filtered: dict[str, int] = renamed("set_aside", "filtered", description="rows by the reason for which they were left out")
    key: str | None
    digest: str | None
    artifacts: dict[str, Ref] = renamed(
        "artefacts", "artifacts", default_factory=dict, description="what the step made, by role: output, quarantine ..."
    )
    details: JsonObject = Field(default_factory=dict)


class Figures(BaseModel):
    """Held-out success of one model with its Wilson interval."""

    success: float
    low: float
    high: float
    n: int
    log_prob: float | None = Field(default=None, description="of a night that compares likelihoods; see ModelSummary")


class EvidenceLeft(BaseModel):
    """How many more nights can ask about identities that no night has looked at."""

    model_config = ConfigDict(frozen=True)

    available: int | None = Field(description="identities that a verdict may use; None: unlimited")
    looked_at: int = Field(description="identities that some night has looked at")
    a_night: int = Field(description="items that a night asks for")
    environment: str = Field(default="", description="of several environments the one that runs out first; empty: there is one")

    @computed_field
    @property
    def fresh(self) -> int | None:
        return None if self.available is None else max(self.available - self.looked_at, 0)

    @computed_field
    @property
    def nights(self) -> float | None:
        return None if self.fresh is None else self.fresh / self.a_night

    def sentence(self) -> str:
        """Return the evidence left as one sentence."""
        if self.fresh is None or self.nights is None:
            return "as many fresh held-out items as a night asks for, every night"
        of = f" of {self.environment}" if self.environment else ""
        if not self.fresh:
            return f"all {self.available} held-out identities{of} have been asked about: the next night needs new ones"
        rest = (
            f"enough for {int(self.nights)} nights of {self.a_night} items"
            if self.nights >= 1
            else f"a night asks for {self.a_night}"
        )
        return f"{self.fresh} of {self.available} held-out identities{of} are fresh, {rest}"


class RegisteredModel(BaseModel):
    name: str
    version: str
    digest: str
    aliases: list[str]


class JudgeCounts(BaseModel):
    """What a judge said of a night's turns; of one that ranks, of rollouts."""

    turns: int = 0
    praised: int = 0
    blamed: int = 0
    neutral: int = 0
    unread: int = Field(default=0, description="turns of which no vote could be read")
    abstained: int = Field(default=0, description="turns of which it says nothing")
    rules: dict[str, int] = Field(default_factory=dict, description="turns by the rule that decided them")
    models: dict[str, dict[str, int]] = Field(default_factory=dict, description="votes by model, and by what they say")
    rollouts: int = 0
    ranked: int = 0
    pairs: int = Field(default=0, description="pairs of an item's rollouts that both the judge and the verifier tell apart")
    agreeing_pairs: int = Field(default=0, description="of these, those whose better one is the same")


class NightJudges(BaseModel):
    """What the judges of a night said and spent."""

    said: dict[str, JudgeCounts] = Field(default_factory=dict)
    agreement: list[JsonObject] = Field(default_factory=list, description="with verifiers, users and other judges, beyond chance")
    spent: list[JsonObject] = Field(default_factory=list, description="requests, tokens, money and seconds by judge")


class ReviewedRows(BaseModel):
    """How many of a night's rows a person decided about in one way."""

    verdict: str = Field(description="approved, rejected or edited")
    by: str
    rows: int
    first: str = Field(description="when the first of them was decided, in UTC")
    last: str


class NightStatus(BaseModel):
    """The output of `status --json`, and of `run --json` after the id of the run."""

    night: str
    compared: str = Field(default="", description="method, data, models and held-out items, in one sentence")
    measure: Measure = Field(default="success", description="what the held-out figures count")
    verdict: str | None = None
    reasons: list[str] = Field(default_factory=list)
    steps: list[StepEntry] = Field(default_factory=list)
    heldout: dict[str, Figures | None] = Field(default_factory=lambda: dict.fromkeys(("base", "champion", "candidate")))
    benchmark: dict[str, Figures] = Field(default_factory=dict, description="by role, on the benchmark items, the same every night")
    evidence_left: EvidenceLeft | None = Field(default=None, description="None: the environment does not say how many items it has")
    choice: Choice | None = Field(default=None, description="the round whose policy is the candidate; None: no choice was made")
    model: RegisteredModel | None = None
    policy_version: str | None = None
    judges: NightJudges | None = Field(default=None, description="None: the night has no judges")
    reviews: list[ReviewedRows] = Field(default_factory=list, description="what people decided about the night's rows")
    warnings: list[str] = Field(default_factory=list, description="problems that did not stop the night")
    error: str | None = Field(default=None, description="the error that ended the night before its verdict, and what helps")
    exit_code: int | None = Field(default=None, description="of that error; None in records of earlier versions")
    seconds: float = Field(default=0.0, description="total of the runs that did the work")
    rerun_seconds: float | None = Field(default=None, description="of the last run, if all work was done before")
    trace_id: str | None = Field(default=None, description="of the last run's OpenTelemetry trace; None: tracking.otel is off")
    run_dir: str = ""

    @property
    def lineage_page(self) -> str | None:
        """Prefect's page with the lineage: an address, or a path on this home's server. None: the night ran without Prefect."""
        return next((step.details.get("page") for step in self.steps if step.name == "publish_lineage"), None)


def night_label(config: NightConfig, moment: datetime.datetime | None = None, zone: str | None = None) -> str:
    """Return the label with a date filled in: that of a moment, or today's, in a time zone, or in that of the settings."""
    local = (moment or datetime.datetime.now(datetime.UTC)).astimezone(ZoneInfo(zone or config.timezone))
    return config.night.replace(DATE, local.date().isoformat())


def night_id(config: NightConfig) -> str:
    """Return an id of the label and all settings that change results: the same wherever and whenever the night runs."""
    return f"{night_label(config)}-{settings_digest(config)}"


def settings_digest(config: NightConfig) -> str:
    """Return ten hex digits that stand for all settings that change results."""
    return sha256_json(config)[:10]


def run_dir(home: Home, night: str) -> Path:
    """Return the directory of a night.

    Raises:
        NotFoundError: a night cannot have this name.
        ConfigError: the file system's encoding cannot write the name.
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
    """Return the record of a night that has been started, else None.

    Raises:
        DataError: the file is damaged.
    """
    path = run_dir(home, night) / "night.json"
    if not path.exists():
        return None
    return _parsed(NightRecord, path, "remove the file to start the night anew; finished steps stay cached")


def new_record(
    home: Home,
    config: NightConfig,
    champion: Incumbent | None,
    datasets: Mapping[str, tuple[str, ...]] = _BY_DIGEST,
    past: tuple[PastRound, ...] = (),
    earlier: tuple[Tally, ...] = (),
    reviews: str | None = None,
) -> NightRecord:
    """Return the record of a night that starts now; a night that was started before keeps its number.

    Args:
        datasets: see `NightRecord.datasets`.

    Raises:
        DataError: the existing record is damaged.
    """
    known = read_record(home, night_id(config))
    number = known.number if known else _number(home, config)
    return NightRecord(
        night=night_id(config),
        label=night_label(config),
        champion=champion,
        number=number,
        datasets=dict(datasets),
        past=past,
        earlier=earlier,
        reviews=reviews,
    )


def create_record(
    home: Home,
    config: NightConfig,
    champion: Incumbent | None,
    datasets: Mapping[str, tuple[str, ...]] = _BY_DIGEST,
    past: tuple[PastRound, ...] = (),
    earlier: tuple[Tally, ...] = (),
    reviews: str | None = None,
) -> NightRecord:
    """Write the record of a night that starts, and a status without steps. Call it while holding the night lock."""
    record = new_record(home, config, champion, datasets, past, earlier, reviews)
    directory = run_dir(home, record.night)
    write_atomic(directory / "config.json", record.resolve(config).model_dump_json(indent=2, exclude={"notify"}).encode())
    write_status(NightStatus(night=record.night, run_dir=str(directory)))
    write_atomic(directory / "night.json", record.model_dump_json(indent=2).encode())
    return record


def read_status(home: Home, night: str) -> NightStatus:
    """Read the status of a night.

    Raises:
        NotFoundError: the night never ran here.
        DataError: the file is damaged.
    """
    path = run_dir(home, night) / "status.json"
    if not path.exists():
        raise NotFoundError(f"no night {night!r}", str(home.runs), "`clawpipe status` lists the nights of this home")
    status = _parsed(NightStatus, path, "run the night again: it writes the file anew")
    status.run_dir = str(path.parent)  # the home may have been moved since
    return status


def has_verdict(home: Home, night: str) -> bool:
    """Return whether the night has once reached its end, even if it runs again: its lineage is written last."""
    return (run_dir(home, night) / LINEAGE).exists()


def _number(home: Home, config: NightConfig) -> int:
    """Return 1 plus the highest number of a finished night with the same curriculum and model; at most the curriculum's length."""
    sampling = config.model_dump(mode="json")["curation"]["sampling"]
    if not sampling["curriculum"]:
        return 1
    course = config.registry.model_name, sampling["curriculum"]
    earlier = [_number_in(home, night, course) for night in list_nights(home) if has_verdict(home, night)]
    return min(1 + max(earlier, default=0), len(sampling["curriculum"]))


def _number_in(home: Home, night: str, course: tuple[str, list[dict[str, float]]]) -> int:
    """Return the number of an earlier night with this model and curriculum, else 0. Unreadable settings of another version count
    as 0, since they must not keep this night from starting."""
    try:
        settings = json.loads((run_dir(home, night) / "config.json").read_bytes())
        sampling = settings["curation"]["sampling"]
        return int(sampling["night"] or 1) if (settings["registry"]["model_name"], sampling["curriculum"]) == course else 0
    except (OSError, ValueError, KeyError, TypeError):
        return 0


def clear_leftovers(home: Home, night: str) -> None:
    """Remove hidden files that a killed writer left in the night's directory. Call it while holding the night lock."""
    for left in run_dir(home, night).glob(".*"):
        if not left.is_dir():
            left.unlink()


def list_nights(home: Home) -> list[str]:
    """Return the nights of this home, the most recently written last."""
    directories = [path.parent for path in home.runs.glob("*/night.json")]
    return [directory.name for directory in sorted(directories, key=lambda directory: directory.stat().st_mtime_ns)]


def write_status(status: NightStatus) -> None:
    write_atomic(Path(status.run_dir) / "status.json", status.model_dump_json(indent=2).encode())


def nothing_learnt(step: StepEntry) -> str | None:
    """Return why a training step taught the policy nothing; None if it taught something, or is no training."""
    why = step.details.get("nothing_learnt")
    return f"{step.name}: {why}" if why else None


def entry(
    name: str, cached: bool, seconds: float, key: str | None, result: StepResult, accelerator_seconds: float = 0.0
) -> StepEntry:
    return StepEntry(
        name=name,
        state="cached" if cached else "ran",
        seconds=round(seconds, 3),
        accelerator_seconds=round(accelerator_seconds, 3) or None,
        rows_in=result.rows_in,
        rows_out=result.rows_out,
        filtered=result.filtered,
        key=key,
        digest=result.output.digest if result.output else None,
        artifacts=({"output": result.output} if result.output else {}) | result.extras,
        details=result.details,
    )


def _parsed(model: type[Parsed], path: Path, fix: str) -> Parsed:
    try:
        return model.model_validate(json.loads(path.read_bytes()))
    except ValueError as error:
        raise DataError(f"the file is damaged: {error}", str(path), fix) from None
