"""Settings of curation: which rows are learnt from, and what each of them counts.

What the blocks in `Curation` say by default changes nothing: each filter, quota and share has to be asked for.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from clawpipe.config.block import Block, Fraction, renamed

Ending = Literal["completed", "partial", "truncated", "aborted"]
Script = Literal[
    "Latin", "Cyrillic", "Greek", "Arabic", "Hebrew", "Devanagari", "Bengali", "Tamil", "Thai",
    "Han", "Hiragana", "Katakana", "Hangul",
]  # fmt: skip
Source = Literal["rollout", "captured", "imported"]


class Near(Block):
    """Everything is off by default: items that an environment makes resemble each other, and rollouts of an item all the more."""

    duplicates: bool = Field(default=False, description="set aside what says nearly the same as an earlier trajectory")
    heldout: bool = Field(default=False, description="set aside what is near to a held-out question, or quotes one")
    history: tuple[str, ...] = Field(
        default=(), description="digests of stored trajectory datasets of earlier nights: compared with, not trained on"
    )
    threshold: float = Field(
        default=0.8, ge=0.8, le=1, description="least Jaccard similarity of word 5-grams; below 0.8 the search would miss too many"
    )
    heldout_words: int = Field(default=13, ge=5, description="words in a row of a held-out question that may not be repeated")


class Pairs(Block):
    """Preference pairs of the rollouts of one item; the chosen one is always a success."""

    strategy: Literal["best-worst", "all-margin", "length-balanced", "on-policy", "same-prefix"] = "all-margin"
    margin: float = Field(default=0.1, ge=0, description="smallest difference in reward")
    per_group: int = Field(default=3, ge=1, description="most pairs of a group, largest margin first")
    length_ratio: float | None = Field(
        default=None, ge=1, description="how many times longer one reply may be; null: any, and 1.25 for length-balanced"
    )
    corrections: bool = Field(default=False, description="pairs too of a reply that a user corrected and the reply after that")


class Filters(Block):
    """What is not learnt from, whatever the method. null: no limit."""

    success_only: bool = Field(default=False, description="only what a verifier calls a success")
    min_score: float | None = Field(default=None, description="least verifier's score")
    max_score: float | None = Field(default=None, description="greatest verifier's score")
    endings: tuple[Ending, ...] = Field(default=(), description="how an attempt must have ended; empty: in any way")
    min_tokens: int | None = Field(default=None, ge=1, description="fewest tokens of a trajectory; curation.max_tokens is the most")
    min_turns: int | None = Field(default=None, ge=1, description="fewest turns of the policy")
    max_turns: int | None = Field(default=None, ge=1, description="most turns of the policy")
    scripts: tuple[Script, ...] = Field(default=(), description="Unicode scripts that replies are written in; empty: any")
    script_share: Fraction = Field(default=0.8, description="least share of a trajectory's reply letters in those scripts")
    max_repetition: Fraction | None = Field(default=None, description="greatest share of repeated n-grams in a reply")
    repetition_words: int = Field(default=4, ge=1, description="words an n-gram")
    max_tool_error_rate: Fraction | None = Field(default=None, description="greatest share of failed tool calls")


class Quotas(Block):
    """Most rows of one user, session, item or source, so that none of them decides what is learnt. null: no limit."""

    per_session: int | None = Field(default=None, ge=1)
    per_user: int | None = Field(default=None, ge=1)
    per_item: int | None = Field(default=None, ge=1)
    per_source: int | None = Field(default=None, ge=1)
    captured: int | None = Field(default=None, ge=0, description="captured trajectories a night")
    session_share: float | None = Field(default=None, gt=0, le=1, description="greatest share of the batch that is one session's")


class Band(Block):
    """Pass rates, both ends included."""

    low: Fraction = 0.0
    high: Fraction = 1.0

    @model_validator(mode="after")
    def _has_an_inside(self) -> Band:
        if self.low > self.high:
            raise ValueError(f"low ({self.low}) exceeds high ({self.high})")
        return self


class Sampling(Block):
    """Which of the rows that could be learnt from make up the batch."""

    difficulty: Band | None = Field(default=None, description="pass rate that a row's group must have; null: any")
    curriculum: tuple[Band, ...] = Field(default=(), description="the band of each night in turn, instead; the last one stays")
    night: int | None = Field(default=None, ge=1, description="number of this night in the curriculum; null: counted")
    balance: Literal["environment", "kind", "slice"] | None = Field(default=None, description="what all have equally many rows of")
    mixture: dict[Source, float] = Field(default_factory=dict, description="weight of each source; empty: as they come")
    replay: Fraction | None = Field(default=None, description="greatest share of rows by policies older than the newest")
    rows: int | None = Field(default=None, ge=1, description="most rows of a batch; null: all")

    @property
    def band(self) -> Band:
        """The band of pass rates of this night."""
        if self.curriculum:
            return self.curriculum[min(self.night or 1, len(self.curriculum)) - 1]
        return self.difficulty or Band()

    @model_validator(mode="after")
    def _can_be_mixed(self) -> Sampling:
        if self.mixture and (min(self.mixture.values()) < 0 or not sum(self.mixture.values())):
            raise ValueError("weights of a mixture are at least 0, and one of them is more")
        if self.curriculum and self.difficulty:
            raise ValueError("set either difficulty or curriculum")
        return self


class Curation(Block):
    max_tokens: int = Field(default=4096, ge=8, description="longer trajectories are set aside")
    max_staleness: int | None = Field(default=None, ge=0, description="policy versions between sampling and training; null: any")
    drop_zero_variance_groups: bool = renamed("drop_constant_groups", "drop_zero_variance_groups", default=True)
    advantage: Literal["group", "none", "batch"] = Field(default="group", description="what the centred rewards are divided by")
    baseline: Literal["mean", "leave-one-out"] = Field(default="mean", description="what is subtracted from a group's rewards")
    credit: Literal["group", "turn"] = Field(
        default="group", description="turn: no groups, each turn's own score is its advantage and neutral turns are masked out"
    )
    turn_baseline: float | None = Field(default=None, gt=0, lt=1, description="decay of a running mean to centre turn scores by")
    imitate: Literal["success", "chosen", "any"] = Field(
        default="success", description="sft: every success, each group's best rollout, or all that is not known to have failed"
    )
    canaries: tuple[Annotated[str, Field(min_length=1)], ...] = Field(
        default=(), description="what must never be learnt: item ids, and strings that no message may hold"
    )
    pairs: Pairs = Pairs()
    filters: Filters = Filters()
    quotas: Quotas = Quotas()
    near: Near = Near()
    sampling: Sampling = Sampling()

    @property
    def needs_versions(self) -> bool:
        """Whether the age of a policy version decides about anything."""
        return self.max_staleness is not None or self.sampling.replay is not None or self.pairs.strategy == "on-policy"
