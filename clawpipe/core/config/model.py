"""The base model that a night trains."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, field_validator

from clawpipe.core.config.block import Block, renamed
from clawpipe.core.config.quantization import Quantization
from clawpipe.core.conversation.messages import ToolCallFormat

FLOAT16 = "float16 is not trained in: it has no number below 6e-8, where gradients are, nor above 65504"


class Model(Block):
    base: str = Field(default="smollm2-135m-instruct", description="built-in name, hub id or local directory of the base model")
    tool_call_format: ToolCallFormat = renamed(
        "calls", "tool_call_format", default="pythonic", description="format of the model's tool calls"
    )
    dtype: Literal["float32", "bfloat16"] = Field(default="float32", description="dtype of the weights and of the arithmetic")
    quantization: Quantization = Field(default="none", description="quantization of the frozen base in generation and training")
    elsewhere: str | None = Field(
        default=None,
        description="name of the base at the service that samples and trains; then `base` needs config and tokenizer, no weights",
    )

    def result_fields(self) -> frozenset[str]:
        """Return the fields that can change a result."""
        return super().result_fields() - (set() if self.elsewhere else {"elsewhere"})

    @field_validator("dtype", mode="before")
    @classmethod
    def _can_be_trained_in(cls, value: Any) -> Any:
        if value == "float16":
            raise ValueError(f"{FLOAT16}; bfloat16 takes as much memory")
        return value
