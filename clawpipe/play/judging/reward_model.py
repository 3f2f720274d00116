"""`reward-model`: a scorer that runs a sequence-classification checkpoint with one logit, such as preference training makes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from pydantic import Field, ValidationError
from transformers import AutoConfig, AutoModelForSequenceClassification, PreTrainedModel, PreTrainedTokenizerFast

from clawpipe.core.config.block import Block
from clawpipe.core.config.load import explained
from clawpipe.core.conversation.messages import Message
from clawpipe.errors import ConfigError
from clawpipe.model.policy.base import resolve_base, verify_base
from clawpipe.model.policy.load import resolve_device
from clawpipe.model.policy.vocabulary import load_tokenizer
from clawpipe.play.judging.base import Origin, Row, Score, with_mean
from clawpipe.play.judging.exchanges import Exchange, exchanges_of

_WHERE, _FIX = "scorers: reward-model", "see docs/judges.md"


class RewardModelOptions(Block):
    """Options of the scorer `reward-model`."""

    model: str = Field(description="a directory with the checkpoint, or its name on the hub")
    batch: int = Field(default=8, ge=1, description="turns at once")
    longest: int = Field(default=4096, ge=1, description="tokens of a turn with its request; a longer one gets no score")
    device: str = Field(default="auto", description="as runtime.device")


@dataclass
class RewardModel:
    """Scores each main turn with the model's only logit, which has no bounds, and the trajectory with the mean of its turns.

    The model sees the user's request and, as one answer, what was done about it up to the end of the turn; not what came next.
    """

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerFast
    batch: int = 8
    longest: int = 4096
    name: str = "reward-model"
    origin: Origin = "judge"
    _values: dict[tuple[int, ...], float] = field(default_factory=dict[tuple[int, ...], float])

    def prepare(self, trajectories: Sequence[Row]) -> None:
        """Score all turns of these trajectories, those of like length together."""
        tokens = {self._tokens(turn) for trajectory in trajectories for turn in exchanges_of(trajectory)}
        asked = sorted((one for one in tokens if len(one) <= self.longest), key=lambda one: (len(one), one))
        self._values = {}
        for start in range(0, len(asked), self.batch):
            some = asked[start : start + self.batch]
            self._values |= dict(zip(some, self._logits(some), strict=True))

    def score(self, item: Row, trajectory: Row) -> Iterator[Score]:
        values = ((turn, self._values.get(self._tokens(turn))) for turn in exchanges_of(trajectory))
        scores = (Score(value, turn=turn.turn) for turn, value in values if value is not None)
        yield from with_mean(scores, says_success=False)

    def _tokens(self, turn: Exchange) -> tuple[int, ...]:
        messages = [{"role": "user", "content": turn.request}, {"role": "assistant", "content": _answer(turn)}]
        text = str(self.tokenizer.apply_chat_template(messages, tokenize=False))
        return tuple(self.tokenizer(text, add_special_tokens=False)["input_ids"])

    @torch.inference_mode()
    def _logits(self, rows: Sequence[Sequence[int]]) -> list[float]:
        """Return the model's value of each row of tokens."""
        width, pad = max(map(len, rows)), self.tokenizer.pad_token_id
        tokens = torch.tensor([[*row, *[pad] * (width - len(row))] for row in rows], device=self.model.device)
        mask = torch.tensor([[1] * len(row) + [0] * (width - len(row)) for row in rows], device=self.model.device)
        return self.model(input_ids=tokens, attention_mask=mask).logits[:, 0].float().tolist()


def make_reward_model(**options: Any) -> RewardModel:
    """Return the scorer with these options.

    Raises:
        ConfigError: an option is wrong, or the checkpoint gives no single number, or has no chat template or padding token.
        NotFoundError: there is no such checkpoint.
        DataError: one of its files has changed since it was resolved.
    """
    try:
        wanted = RewardModelOptions.model_validate(options)
    except ValidationError as error:
        raise ConfigError(explained(error, RewardModelOptions), _WHERE, _FIX) from None
    model, tokenizer = _load(wanted)
    return RewardModel(model, tokenizer, wanted.batch, wanted.longest)


def _load(wanted: RewardModelOptions) -> tuple[PreTrainedModel, PreTrainedTokenizerFast]:
    path = resolve_base(wanted.model).path
    verify_base(path)
    config, tokenizer = AutoConfig.from_pretrained(path, trust_remote_code=False), load_tokenizer(path)
    _require(any("SequenceClassification" in name for name in config.architectures or ()), wanted, "is no sequence classifier")
    _require(config.num_labels == 1, wanted, f"has {config.num_labels} labels, not 1")
    _require(bool(tokenizer.chat_template), wanted, "has no chat template")
    _require(tokenizer.pad_token_id is not None, wanted, "has no padding token")
    config.get_text_config().pad_token_id = tokenizer.pad_token_id  # the last token that differs from it is the one that counts
    model = AutoModelForSequenceClassification.from_pretrained(
        path, config=config, dtype=torch.float32, use_safetensors=True, trust_remote_code=False
    )
    return model.to(resolve_device(wanted.device)).eval(), tokenizer


def _require(condition: bool, wanted: RewardModelOptions, what: str) -> None:
    if not condition:
        raise ConfigError(f"{wanted.model} {what}", _WHERE, _FIX)


def _answer(turn: Exchange) -> str:
    return "\n".join(_text(message) for message in (*turn.earlier, turn.reply)).strip()


def _text(message: Message) -> str:
    calls = [f"{call.name}({call.arguments})" for call in message.tool_calls]
    return "\n".join(text for text in (message.content, *calls) if text)
