"""What a night fixes when it starts, so that a rerun does the same: its champion, datasets, number and past."""

from __future__ import annotations

import datetime
import json
from collections.abc import Mapping

from pydantic import BaseModel, ConfigDict, Field

from clawpipe.core.config.engine import TIS_CAP, EngineSpec
from clawpipe.core.config.night import NightConfig
from clawpipe.core.store.files import write_atomic
from clawpipe.core.store.home import Home
from clawpipe.core.store.refs import ModelRef
from clawpipe.learn.evaluation.verdict.verdict import Tally
from clawpipe.record.nights.files import has_verdict, list_nights, night_id, night_label, parsed, run_dir
from clawpipe.record.nights.status import NightStatus, write_status

_BY_DIGEST: Mapping[str, tuple[str, ...]] = {}  # settings that name all datasets by their digests


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
    items: str | None = Field(default=None, description="the items of which its rollouts are, with their slices")
    sampled: str | None = Field(
        default=None,
        description="digest of the base of the policies that sampled it here; None: another model did, or nobody knows",
    )


class NightRecord(BaseModel):
    """Written once, when a night first starts, so that a rerun trains the same and is compared with the same champion."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    began: str = Field(default="", description="ISO 8601, UTC; first, since `files.began` reads no more. Empty in older records")
    night: str
    label: str
    champion: Incumbent | None
    number: int = Field(default=1, ge=1, description="number of the night in its curriculum")
    datasets: dict[str, tuple[str, ...]] = Field(
        default_factory=dict, description="digests by setting, where the settings name datasets by a word"
    )
    past: tuple[PastRound, ...] = Field(default=(), description="rounds of earlier nights that it looks back at, newest first")
    earlier: tuple[Tally, ...] = Field(
        default=(), description="the evidence of this model's nights against the same incumbent, where evidence adds up"
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


def read_record(home: Home, night: str) -> NightRecord | None:
    """Return the record of a night that has been started, else None.

    Raises:
        DataError: the file is damaged.
    """
    path = run_dir(home, night) / "night.json"
    if not path.exists():
        return None
    return parsed(NightRecord, path, "remove the file to start the night anew; finished steps stay cached")


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
        began=datetime.datetime.now(datetime.UTC).isoformat(timespec="microseconds"),
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
