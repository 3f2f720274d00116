"""What a night is: its settings, the models and data that it starts from, and the draws that follow from its name."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from clawpipe.core.config.engine import EngineSpec
from clawpipe.core.config.night import Drawn, NightConfig, Rollouts
from clawpipe.core.config.training import Train
from clawpipe.core.store.home import Home
from clawpipe.core.store.refs import DatasetRef, ModelRef
from clawpipe.learn.evaluation.verdict.looks import Looks, SeveralLooks
from clawpipe.learn.evaluation.verdict.verdict import Tally
from clawpipe.play.workers.episodes import derive_seed
from clawpipe.record.nights.compared import compared
from clawpipe.record.nights.journal import Journal
from clawpipe.record.nights.record import Incumbent
from clawpipe.record.registry.night_summary import NightSummary


class Past(NamedTuple):
    """A round that was rolled out and scored."""

    trajectories: DatasetRef
    scores: DatasetRef
    trained: str | None = None  # policy version
    night: str = ""  # "": tonight
    items: DatasetRef | None = None  # of an earlier night, as far as the store has them
    sampled: str | None = None  # digest of the base of the policies that sampled it; None: another model did, or nobody knows


@dataclass(frozen=True)
class Night:
    """The inputs of `the_night`. The same settings and champion give equal objects, for a run and for a plan."""

    config: NightConfig
    night: str
    label: str  # seeds the draws of items and all random numbers
    base: ModelRef
    champion: Incumbent | None
    stored: list[DatasetRef]
    scores: list[DatasetRef]  # scores of the stored trajectories
    pairs: list[DatasetRef]
    history: list[DatasetRef]  # trajectories of earlier nights, used only to find near-duplicates
    teacher: ModelRef | None  # None: the policy of each round
    ledger: Looks | SeveralLooks
    earlier: tuple[Tally, ...]  # evidence of earlier nights that adds up with tonight's
    seen: dict[str, int]  # by held-out identity, how many earlier nights have looked at it
    past: list[Past] = field(default_factory=list, kw_only=True)  # rounds of earlier nights, newest first
    reviews: DatasetRef | None = field(default=None, kw_only=True)  # people's decisions about rows; None: there are none

    @property
    def draw(self) -> str:
        """The name of the draw of held-out items, shared by nights that answer the same items."""
        return self.config.draw or self.night

    @property
    def start(self) -> ModelRef:
        """The policy that the first round starts from."""
        return self.champion.policy if self.champion and self.config.train.start_from == "champion" else self.base

    @property
    def earlier_policies(self) -> list[ModelRef]:
        """Return the policies from before the night, any of which may have sampled the stored trajectories."""
        return [self.base, self.champion.policy] if self.champion else [self.base]

    @property
    def training_numerics(self) -> Train:
        """The settings that decide how the model computes in training, without learning rates and losses."""
        train = self.config.train
        return Train(
            backend=train.backend, adapter=train.adapter, lora=train.lora, gradient_checkpointing=train.gradient_checkpointing
        )

    @property
    def drawn(self) -> Drawn:
        """The environments' settings with a seed derived from the label: a night with another label draws other items."""
        config = self.config.drawn
        return config.model_copy(update={"seed": derive_seed(config.seed, self.label)})

    @property
    def rollouts(self) -> Rollouts:
        """Return the sampling settings of the night's own policies: a night on stored data has the defaults, one whose rollouts
        come from an endpoint with the embedded engine."""
        rollouts = self.config.rollouts or Rollouts()
        return rollouts.model_copy(update={"engine": EngineSpec()}) if rollouts.engine.is_endpoint else rollouts

    def seed(self, purpose: str, *parts: int) -> int:
        """Return the seed for a purpose; each purpose and label has another one."""
        return derive_seed(self.config.seed, self.label, purpose, *parts)

    def contenders(self, candidate: ModelRef) -> dict[str, ModelRef]:
        """Return the models to evaluate, by role."""
        champion = {"champion": self.champion.policy} if self.champion else {}
        return {"base": self.base, **champion, "candidate": candidate}

    @property
    def replayed(self) -> list[Past]:
        """The rounds of the earlier nights that are learnt from again."""
        nights = list(dict.fromkeys(one.night for one in self.past))[: self.config.curation.sampling.replay_nights]
        return [one for one in self.past if one.night in nights]

    @property
    def external_artifacts(self) -> list[ModelRef | DatasetRef]:
        """The policies and datasets from before the night, for its lineage."""
        others = [self.champion.policy] if self.champion else []
        looked_back_at = [ref for one in self.past for ref in (one.trajectories, one.scores)]
        reviews = [self.reviews] if self.reviews else []
        data = [*self.stored, *self.scores, *self.pairs, *self.history, *looked_back_at, *reviews]
        return [self.base, *others, *([self.teacher] if self.teacher else []), *data]

    @property
    def compared(self) -> str:
        """Return one sentence about the data that the night learns from and the models that it compares."""
        return compared(self.config, self.stored, self.pairs, self.champion.title if self.champion else None)

    @property
    def summary(self) -> NightSummary:
        """The night as the registry stores it."""
        return NightSummary(
            night=self.night,
            compared=self.compared,
            champion=self.champion.version if self.champion and not self.champion.model else None,
            model_name=self.config.registry.model_name,
            config=self.config.settings(),
        )


@dataclass(frozen=True)
class OpenNight(Night):
    """A night that runs, with its home and its journal."""

    home: Home
    journal: Journal
