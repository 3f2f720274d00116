"""Settings of curation: the choice of training rows, and their weights.

By default nothing is filtered beyond what a method needs: each filter, quota and share has to be set.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from clawpipe.core.config.block import Block, Fraction, renamed
from clawpipe.core.config.methods import Method
from clawpipe.core.conversation.endings import Ending

Script = Literal[
    "Latin", "Cyrillic", "Greek", "Arabic", "Hebrew", "Devanagari", "Bengali", "Tamil", "Thai",
    "Han", "Hiragana", "Katakana", "Hangul",
]  # fmt: skip
Source = Literal["rollout", "captured", "imported"]


class Near(Block):
    """Filters of near-duplicates. All are off by default: items from one environment resemble each other, and an item's rollouts
    even more."""

    duplicates: bool = Field(default=False, description="filter trajectories that nearly repeat an earlier one")
    heldout: bool = Field(default=False, description="filter trajectories that quote a held-out question or nearly repeat one")
    history: tuple[str, ...] = Field(
        default=(), description="digests of stored trajectory datasets of earlier nights, to compare with and not to train on"
    )
    threshold: float = Field(
        default=0.8, ge=0.8, le=1, description="least Jaccard similarity of word 5-grams; below 0.8 the search would miss too many"
    )
    heldout_words: int = Field(default=13, ge=5, description="words in a row of a held-out question that may not be repeated")


class Pairs(Block):
    """Preference pairs of one item's rollouts; the chosen one is always a success."""

    strategy: Literal["best-worst", "all-margin", "length-balanced", "on-policy", "same-prefix"] = Field(
        default="all-margin", description="rule that pairs a group's successes and failures; see docs/curation.md"
    )
    margin: float = Field(default=0.1, ge=0, description="smallest difference in reward of a pair")
    per_group: int = Field(default=3, ge=1, description="most pairs per group, largest margin first")
    length_ratio: float | None = Field(
        default=None, ge=1, description="greatest length ratio of a pair's replies; null: no limit, and 1.25 for length-balanced"
    )
    corrections: bool = Field(default=False, description="whether a reply that a user corrected is also paired with the next reply")


class Filters(Block):
    """Filters of trajectories, for every method; null means no limit."""

    success_only: bool = Field(default=False, description="keep only trajectories that a verifier calls a success")
    min_score: float | None = Field(default=None, description="lowest verifier score")
    max_score: float | None = Field(default=None, description="highest verifier score")
    endings: tuple[Ending, ...] = Field(
        default=(),
        description="allowed endings of an attempt; empty: any of own rollouts, completed and partial ones of what others recorded",
    )
    min_tokens: int | None = Field(default=None, ge=1, description="fewest tokens of a trajectory; curation.max_tokens is the most")
    min_turns: int | None = Field(default=None, ge=1, description="fewest assistant turns")
    max_turns: int | None = Field(default=None, ge=1, description="most assistant turns")
    scripts: tuple[Script, ...] = Field(default=(), description="Unicode scripts that replies are written in; empty: any")
    script_share: Fraction = Field(default=0.8, description="least share of the replies' letters in those scripts")
    max_repetition: Fraction | None = Field(default=None, description="greatest share of repeated n-grams in a reply")
    repetition_words: int = Field(default=4, ge=1, description="words per n-gram")
    max_tool_error_rate: Fraction | None = Field(default=None, description="greatest share of failed tool calls")

    @model_validator(mode="after")
    def _no_least_is_above_its_most(self) -> Filters:
        for name in ("score", "turns"):
            least, most = getattr(self, f"min_{name}"), getattr(self, f"max_{name}")
            if least is not None and most is not None and least > most:
                raise ValueError(f"nothing passes: min_{name} ({least}) exceeds max_{name} ({most})")
        return self


class Quotas(Block):
    """Limits of the rows from one user, session, item or source, so that none dominates training; null means no limit."""

    per_session: int | None = Field(default=None, ge=1, description="most rows of one session")
    per_user: int | None = Field(default=None, ge=1, description="most rows of one user")
    per_item: int | None = Field(default=None, ge=1, description="most rows of one item")
    per_source: int | None = Field(default=None, ge=1, description="most rows of one source")
    captured: int | None = Field(default=None, ge=0, description="captured trajectories per night")
    session_share: float | None = Field(default=None, gt=0, le=1, description="greatest share of the batch from one session")


class Band(Block):
    """Pass rates from `low` to `high`, both included."""

    low: Fraction = Field(default=0.0, description="least pass rate")
    high: Fraction = Field(default=1.0, description="greatest pass rate")

    @model_validator(mode="after")
    def _low_is_not_above_high(self) -> Band:
        if self.low > self.high:
            raise ValueError(f"low ({self.low}) exceeds high ({self.high})")
        return self


class Sampling(Block):
    """Selection of the batch from the rows that could be trained on."""

    difficulty: Band | None = Field(default=None, description="allowed pass rates of a row's group; null: any")
    curriculum: tuple[Band, ...] = Field(
        default=(), description="one band of pass rates per night, in place of difficulty; the last one stays"
    )
    night: int | None = Field(default=None, ge=1, description="number of this night in the curriculum; null: counted")
    balance: Literal["environment", "kind", "slice"] | None = Field(
        default=None, description="property whose values get equal numbers of rows"
    )
    mixture: dict[Source, float] = Field(default_factory=dict, description="weight of each source; empty: no weighting")
    replay: Fraction | None = Field(
        default=None,
        description="greatest share of rows from policies older than the newest; slices with the fewest rows have them first",
    )
    replay_nights: int = Field(
        default=0,
        ge=0,
        description="earlier nights of the same environment and base whose rollouts are learnt from again, as far as "
        "`replay` allows",
    )
    rows: int | None = Field(default=None, ge=1, description="most rows of a batch; null: all")

    def result_fields(self) -> frozenset[str]:
        return super().result_fields() - (set() if self.replay_nights else {"replay_nights"})

    @property
    def band(self) -> Band:
        """The band of pass rates for this night."""
        if self.curriculum:
            return self.curriculum[min(self.night or 1, len(self.curriculum)) - 1]
        return self.difficulty or Band()

    @model_validator(mode="after")
    def _has_a_valid_mixture(self) -> Sampling:
        if self.mixture and (min(self.mixture.values()) < 0 or not sum(self.mixture.values())):
            raise ValueError("weights of a mixture are at least 0, and one of them is more")
        if self.replay_nights and not self.replay:
            raise ValueError("`replay_nights` needs a share: set `replay`, e.g. to 0.2")
        if self.curriculum and self.difficulty:
            raise ValueError("set either difficulty or curriculum")
        return self


class Demonstrations(Block):
    """The environment's own solutions, as rows to imitate, of task items that no rollout of the round solved."""

    share: Fraction = Field(default=0.0, description="greatest share of the rows, or pairs, to train on; 0: none, 1: any")
    weight: float = Field(default=0.5, gt=0, le=1, description="factor of a demonstration's loss, beside 1 of a rollout's")


class Compress(Block):
    """Shortening of trajectories that are too long, for methods that imitate or compare text; see docs/compression.md."""

    max_tokens: int | None = Field(
        default=None, ge=8, description="tokens to which a longer trajectory is shortened; null: curation.max_tokens"
    )
    keep_first: int = Field(default=1, ge=1, description="turns at the beginning that stay whole, with all that is before them")
    keep_last: int = Field(default=2, ge=1, description="turns at the end that stay whole")
    by: Literal["rule", "endpoint"] = Field(
        default="rule", description="who summarises the turns that are cut: a rule, or the model at `url`"
    )
    url: str | None = Field(default=None, description="OpenAI-compatible endpoint that summarises, up to and with /v1")
    model: str | None = Field(default=None, description="model at the endpoint; its key is in OPENAI_API_KEY")
    summary_tokens: int = Field(default=256, ge=16, description="most tokens of an endpoint's summary")

    @model_validator(mode="after")
    def _names_an_endpoint(self) -> Compress:
        if self.by == "endpoint" and not (self.url and self.model):
            raise ValueError("`by: endpoint` needs `url` and `model`: set both, or `by` to rule")
        if self.by == "rule" and (self.url or self.model):
            raise ValueError("`url` and `model` have no effect by rule: leave them out, or set `by` to endpoint")
        return self


class Curation(Block):
    max_tokens: int = Field(
        default=4096, ge=8, description="most tokens of a trajectory; longer ones are shortened by `compress`, or else filtered"
    )
    compress: Compress | None = Field(default=None, description="how longer trajectories are shortened; null: they are filtered")
    max_staleness: int | None = Field(
        default=None, ge=0, description="most policy versions between sampling and training; null: no limit"
    )
    drop_zero_variance_groups: bool = renamed(
        "drop_constant_groups",
        "drop_zero_variance_groups",
        default=True,
        description="whether groups with equal rewards are left out",
    )
    advantage: Literal["group", "none", "batch", "parts"] = Field(
        default="group",
        description="divisor of the centred rewards: the standard deviation of the group or of the batch, or none; parts: each "
        "part of the reward is centred and divided in its group, and the parts' advantages are added",
    )
    part_weights: dict[str, Annotated[float, Field(ge=0)]] = Field(
        default_factory=dict, description="factor of each part's advantage for advantage: parts; 1 for one that is not named"
    )
    baseline: Literal["mean", "leave-one-out"] = Field(
        default="mean", description="reward baseline: the group's mean, or the mean of the group's other rollouts"
    )
    credit: Literal["group", "turn", "step"] = Field(
        default="group",
        description="unit whose scores give advantages. group: the trajectory's reward is compared within its group; turn: each "
        "turn's score is its advantage, without groups, and neutral turns are masked out; step: each turn's score is compared with "
        "those of the group's other attempts at the same step",
    )
    step_weight: float = Field(
        default=0.0, ge=0, description="weight of a trajectory's mean turn score in the reward that methods compare within groups"
    )
    turn_baseline: float | None = Field(
        default=None,
        gt=0,
        lt=1,
        description="decay of the running mean that is subtracted from turn scores; null: nothing is subtracted",
    )
    negative_weight: float = Field(
        default=1.0, gt=0, le=1, description="factor of negative turn scores in the advantages of credit: turn"
    )
    level_users: bool = Field(
        default=False,
        description="whether praise of turns counts for less from users who praise more often than all together, and blame alike",
    )
    approved_only: bool = Field(
        default=False, description="whether only rows that a person approved teach (`clawpipe review`); the others wait"
    )
    min_samples: int = Field(
        default=1,
        ge=1,
        description="fewest rows that a round trains on; a night in which no round has as many ends without a candidate",
    )
    imitate: Literal["success", "chosen", "any"] = Field(
        default="success",
        description="trajectories that sft imitates: every success, each group's best rollout, or all not known to have failed",
    )
    demonstrations: Demonstrations = Demonstrations()
    slice_weights: Literal["balanced"] | dict[str, Annotated[float, Field(gt=0)]] = Field(
        default_factory=dict,
        description="factor of each slice of the task items in the loss, 1 for one that is not named; balanced: equal shares",
    )
    canaries: tuple[Annotated[str, Field(min_length=1)], ...] = Field(
        default=(), description="item ids and strings that must never be trained on"
    )
    pairs: Pairs = Pairs()
    filters: Filters = Filters()
    quotas: Quotas = Quotas()
    near: Near = Near()
    sampling: Sampling = Sampling()

    @model_validator(mode="after")
    def _has_parts_to_weigh(self) -> Curation:
        if self.part_weights and self.advantage != "parts":
            raise ValueError("`part_weights` belongs to `advantage: parts`: set both, or leave it out")
        if self.advantage == "parts" and (self.step_weight or self.credit != "group"):
            raise ValueError("`advantage: parts` compares parts of whole rewards: set `step_weight` to 0 and `credit` to group")
        return self

    @model_validator(mode="after")
    def _compresses_enough(self) -> Curation:
        if self.compress and self.budget > self.max_tokens:
            raise ValueError(f"`compress.max_tokens` exceeds `max_tokens` ({self.max_tokens}), above which rows are filtered")
        return self

    @model_validator(mode="after")
    def _leaves_a_length(self) -> Curation:
        if (self.filters.min_tokens or 0) > self.max_tokens:
            raise ValueError(
                f"nothing passes: filters.min_tokens ({self.filters.min_tokens}) exceeds max_tokens ({self.max_tokens})"
            )
        return self

    @property
    def budget(self) -> int:
        """The tokens to which a longer trajectory is shortened."""
        return (self.compress and self.compress.max_tokens) or self.max_tokens

    def unweighed_by(self, method: Method, w_rl: float) -> str:
        """Return why a method does not look at a reward with weighed turns; "" if it does.

        Args:
            w_rl: the weight of the rewards' part, where the method has no weights of its own.
        """
        if method.critic:
            return f"{method.name} takes the score of each turn as a reward of its own"
        if not (method.weights[0] if method.weights else w_rl):
            return f"{method.name} learns from hints alone"
        if method.judged and not method.pairs and (method.name, self.imitate) != ("sft", "chosen"):
            return f"{method.name} looks at the outcome alone"
        if not method.judged and self.credit != "group":
            return f"credit {self.credit} looks at the scores of turns alone"
        return ""

    def result_fields(self) -> frozenset[str]:
        # In no key while off: keys of nights before stay.
        later = {"step_weight": 0.0, "negative_weight": 1.0, "slice_weights": {}, "part_weights": {}}
        later |= {"approved_only": False, "compress": None, "level_users": False}
        unused = {name for name, off in later.items() if getattr(self, name) == off}
        unused |= set() if self.demonstrations.share else {"demonstrations"}
        return super().result_fields() - unused - {"min_samples"}  # which changes no row

    @property
    def named_slices(self) -> list[str]:
        """The slices with a weight of their own."""
        return sorted(self.slice_weights) if isinstance(self.slice_weights, dict) else []

    @property
    def needs_versions(self) -> bool:
        """Whether the age of a policy version matters to any setting."""
        return self.max_staleness is not None or self.sampling.replay is not None or self.pairs.strategy == "on-policy"
