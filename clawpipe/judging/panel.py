"""Settings of the scorer `prm`: judges, votes, sampling and budget."""

from __future__ import annotations

from pydantic import Field, model_validator

from clawpipe.config.block import Block, Fraction
from clawpipe.policy.base import resolve_base


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


class PrmOptions(Block):
    """Options of the scorer `prm`. A key comes from the environment: OPENAI_API_KEY."""

    url: str = Field(default="", description="URL of the only judge's endpoint; empty: its model runs in this process")
    model: str = Field(
        default="", description="model of the only judge: its name at the endpoint, or a local directory; empty with `jury`"
    )
    jury: tuple[Member, ...] = Field(
        default=(), description="several judges in place of one, each with model, weight and optional url"
    )
    votes: int = Field(default=3, ge=1, le=64, description="votes of each judge on a turn")
    consensus: Fraction = Field(
        default=0.6, description="least share of the valid votes, by weight, for a score; below it a turn gets none"
    )
    temperature: float = Field(default=0.6, ge=0, description="sampling temperature of the judges")
    max_tokens: int = Field(default=1024, ge=16, description="most tokens of one answer")
    candidates: int = Field(default=3, ge=0, description="most hints per turn; 0: none")
    failed_share: Fraction = Field(default=0.2, description="greatest share of turns without a valid vote; above it the night ends")
    budget_tokens: int | None = Field(default=None, ge=1, description="most prompt and reply tokens of one night; null: no limit")
    budget: float | None = Field(
        default=None, gt=0, description="most money of one night, in the unit of the prices; null: no limit"
    )
    prompt_price: float = Field(default=0.0, ge=0, description="price of a million prompt tokens")
    reply_price: float = Field(default=0.0, ge=0, description="price of a million reply tokens")
    concurrency: int = Field(default=16, ge=1, description="requests at once")
    timeout: float = Field(default=120.0, gt=0, description="seconds that a request may take")

    @property
    def judges(self) -> tuple[Member, ...]:
        return self.jury or (Member(url=self.url, model=self.model),)

    @model_validator(mode="after")
    def _has_judges(self) -> PrmOptions:
        if bool(self.jury) == bool(self.url or self.model) or (self.url and not self.model):
            raise ValueError("set `model` of a judge, with its `url` unless it is a local one, or else `jury`")
        if self.budget and not (self.prompt_price or self.reply_price):
            raise ValueError("a budget of money needs prices: set prompt_price and reply_price")
        return self
