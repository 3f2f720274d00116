"""Settings of scorers that ask language models, `prm` and `group`: judges, sampling, budget."""

from __future__ import annotations

from typing import Self

from pydantic import Field, ValidationError, model_validator

from clawpipe.core.basics.json_types import Options
from clawpipe.core.basics.masking import without_secrets
from clawpipe.core.config.block import Block, Fraction
from clawpipe.core.config.load import explained
from clawpipe.errors import ConfigError
from clawpipe.model.policy.base import resolve_base
from clawpipe.play.judging.spending import Budget

BUDGET_TOKENS = 20_000_000  # of a night, unless the settings say another number


class Member(Block):
    """One model of a jury."""

    url: str = Field(
        default="", description="URL of an OpenAI-compatible endpoint, ending with /v1; empty: the model runs in this process"
    )
    model: str = Field(
        min_length=1, description="model's name at the endpoint; without a url a directory, a built-in name or a hub id"
    )
    weight: float = Field(default=1.0, gt=0, description="weight of each vote of this model")

    @property
    def identity(self) -> str:
        """The identity of the model in the keys of votes: its endpoint and its name there, since many a judge is called `judge`, or
        the digest of a local model's files."""
        return f"{self.url.rstrip('/')} {self.model}" if self.url else resolve_base(self.model).digest

    @property
    def title(self) -> str:
        """The name of the model in messages and counts."""
        return without_secrets(f"{self.model} at {self.url.rstrip('/')}" if self.url else self.model)


class PanelOptions(Block):
    """Options of scorers that ask language models. A key comes from the environment: OPENAI_API_KEY."""

    url: str = Field(default="", description="URL of the only judge's endpoint; empty: its model runs in this process")
    model: str = Field(
        default="", description="model of the only judge: its name at the endpoint, or a local directory; empty with `jury`"
    )
    jury: tuple[Member, ...] = Field(
        default=(), description="several judges in place of one, each with model, weight and optional url"
    )
    votes: int = Field(default=3, ge=1, le=64, description="votes of each judge on a question")
    rubric: str = Field(default="", max_length=8000, description="what is good, in your words; the judge reads it first")
    temperature: float = Field(default=0.6, ge=0, description="sampling temperature of the judges")
    max_tokens: int = Field(default=1024, ge=16, description="most tokens of one answer")
    failed_share: Fraction = Field(
        default=0.2, description="greatest share of questions without a valid vote of each judge; above it the night ends"
    )
    budget_tokens: int | None = Field(
        default=BUDGET_TOKENS, ge=1, description="most prompt and reply tokens of all judges of a night; null: no limit"
    )
    budget: float | None = Field(
        default=None, gt=0, description="most money of all judges of a night, in the unit of the prices; null: no limit"
    )
    prompt_price: float = Field(default=0.0, ge=0, description="price of a million prompt tokens")
    reply_price: float = Field(default=0.0, ge=0, description="price of a million reply tokens")
    concurrency: int = Field(default=16, ge=1, description="requests at once")
    timeout: float = Field(default=45.0, gt=0, description="seconds that a request may take, to its last byte")

    calibration: str = Field(
        default="", description="file of conversations with people's verdicts, which the judge has to agree with"
    )
    floor: float = Field(default=0.4, ge=-1, le=1, description="least kappa of judge and people on the calibration file")

    @property
    def judges(self) -> tuple[Member, ...]:
        return self.jury or (Member(url=self.url, model=self.model),)

    @property
    def limits(self) -> Budget:
        return Budget(self.budget_tokens, self.budget, self.prompt_price, self.reply_price)

    @classmethod
    def read(cls, options: Options, name: str) -> Self:
        """Return the options of a scorer. Raises ConfigError if one is wrong."""
        try:
            return cls.model_validate(options)
        except ValidationError as error:
            raise ConfigError(explained(error, cls), f"scorers: {name}", "see docs/judges.md") from None

    @model_validator(mode="after")
    def _has_judges(self) -> Self:
        if bool(self.jury) == bool(self.url or self.model) or (self.url and not self.model):
            raise ValueError("set `model` of a judge, with its `url` unless it is a local one, or else `jury`")
        if self.budget and not (self.prompt_price or self.reply_price):
            raise ValueError("a budget of money needs prices: set prompt_price and reply_price")
        return self


class PrmOptions(PanelOptions):
    """Options of the scorer `prm`."""

    consensus: Fraction = Field(
        default=0.6, description="least share of the valid votes, by weight, for a score; below it a turn gets none"
    )
    candidates: int = Field(default=3, ge=0, description="most hints per turn; 0: none")


class GroupOptions(PanelOptions):
    """Options of the scorer `group`."""

    votes: int = Field(default=1, ge=1, le=64, description="rankings of each judge of a group, each in another order")
    shown: int = Field(
        default=48_000, ge=20_000, description="bytes of rollouts in one question; larger groups are ranked in parts"
    )
