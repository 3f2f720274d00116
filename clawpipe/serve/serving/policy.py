"""The served policy: turn a request into a prompt, and its answers into rows of the engine's batch."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, cast

from clawpipe.core.config.engine import EngineSpec
from clawpipe.core.conversation.messages import Message, ToolCallFormat, ToolSpec, WrittenFormat
from clawpipe.errors import DataError
from clawpipe.model.engines.adapters import Adapter
from clawpipe.model.engines.base import open_engine
from clawpipe.model.engines.embedded import EmbeddedEngine
from clawpipe.model.engines.rows import Row
from clawpipe.model.engines.sampling import TurnSampling
from clawpipe.model.policy.calls import codec
from clawpipe.model.policy.renderer import Renderer
from clawpipe.model.policy.template import open_renderer, written_format
from clawpipe.model.policy.vocabulary import load_tokenizer
from clawpipe.serve.serving.choice import Choice
from clawpipe.serve.serving.conversation import to_messages, to_tools
from clawpipe.serve.serving.errors import ApiError
from clawpipe.serve.serving.fields import SamplingFields
from clawpipe.serve.serving.grammars.matching import Grammars, Held
from clawpipe.serve.serving.protocol import ChatRequest, RequestMessage, TextRequest
from clawpipe.serve.serving.sampler import Sampler
from clawpipe.serve.serving.served import Served
from clawpipe.serve.serving.tokens import TextStream, TokenSpelling
from clawpipe.serve.serving.turn import Plain, Reading, Rules, Turn, WithTools

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

_CANARY, _CANARY_TOKENS = "Hello! Who are you?", 8
_COLDEST = 1e-5  # lower temperatures are greedy, as at vLLM; at some a float32 cannot hold a logit divided by them
_RENDERERS = 8  # one per set of tools; each copies the tokenizer


@dataclass(frozen=True)
class Prepared:
    """A request prepared for the engine.

    Attributes:
        prompts: each gets as many answers as the others.
        client: name of the client; the engine serves clients in turn.
        count: number of all answers, those to the first prompt first, of which the i-th is sampled with `seed + i`.
        top: number of likeliest tokens to report per token.
        every: whether tokens that are no part of the text are reported, too.
        held: what the answers are held to.
    """

    prompts: list[list[int]]
    client: str
    count: int
    seed: int
    sampling: TurnSampling
    stops: list[str]
    reading: Reading
    top: int
    every: bool
    held: Held | None = None

    @property
    def prompt_tokens(self) -> int:
        return sum(map(len, self.prompts))

    def prompt_of(self, index: int) -> list[int]:
        """Return the prompt that answer `index` answers."""
        return self.prompts[index * len(self.prompts) // self.count]


class ServedPolicy:
    """A loaded model that answers requests.

    Args:
        apart: whether its adapter stays apart from the base, so that rows may have others.
        sampler: that another has opened; None: the embedded engine is loaded on `device`.
    """

    def __init__(self, served: Served, device: str = "auto", apart: bool = False, sampler: Sampler | None = None) -> None:
        self.served = served
        self._tool_call_format: ToolCallFormat = served.spec.tool_call_format
        self._tokenizer = load_tokenizer(Path(served.spec.base))
        self._format: WrittenFormat = written_format(self._tokenizer, self._tool_call_format)
        # Not of a method: a cycle would keep the engine until the garbage collector comes.
        self._renderer = lru_cache(_RENDERERS)(partial(_renderer_for, self._tokenizer, self._tool_call_format))
        self.spelling = TokenSpelling(self._tokenizer.backend_tokenizer)
        self._longest = self.spelling.longest()
        self._adapter: Adapter | None = None
        sampler = sampler or Sampler.of(self._load(device, apart))
        self.ends = tuple(dict.fromkeys([*self._renderer("[]").stop_ids, *sampler.ends]))
        self.context, self._size = sampler.context, sampler.vocabulary
        self._grammars = Grammars(self._tokenizer, self._format, self._renderer("[]").eos_id, self._size)
        self.batch = sampler.batch

    def _load(self, device: str, apart: bool) -> EmbeddedEngine:
        spec = self.served.spec.model_copy(update={"adapter": None}) if apart else self.served.spec
        self._engine = cast(EmbeddedEngine, open_engine(EngineSpec(), spec, device))
        if apart and self._engine.layout != "packed":
            raise DataError("rows of this model cannot share a pass, so it cannot have adapters side by side", self.served.name)
        self._adapter = self.load_adapter(Path(self.served.spec.adapter)) if apart and self.served.spec.adapter else None
        self._engine.score([self._renderer("[]").eos_id] * 2, 1)  # a model that the engine cannot run fails here, not in a request
        return self._engine

    def check_size(self, request: ChatRequest) -> None:
        """Refuse a request whose text is too long, before seconds go into tokenizing it.

        Raises:
            ApiError (400): tools are invalid, or the text cannot fit the context, however it is tokenized.
        """
        described = codec(self._format, to_tools(request.offered, self._format)).describe()
        self._check_bytes([described, *(text for message in request.messages for text in _texts(message))], "messages")

    def check_text_size(self, request: TextRequest) -> None:
        """Refuse a prompt that is too long, see `check_size`."""
        for prompt in request.prompt:
            self._check_bytes([prompt] if isinstance(prompt, str) else [], "prompt")

    def _check_bytes(self, texts: list[str], field: str) -> None:
        size = sum(len(text.encode()) for text in texts)
        if self._longest is not None and size > self._longest * self.context:
            what = f"{size} bytes of {field} do not fit the context of {self.context} tokens"
            raise ApiError(400, what, field, "context_length_exceeded")

    def prepare(self, request: ChatRequest, client: str = "") -> Prepared:
        """Render a request.

        Raises:
            ApiError (400): messages or tools are invalid, or do not fit the context.
            ClawpipeError: the policy's tool-call format cannot write the messages.
        """
        tools = to_tools(request.offered, self._format)
        turn = sum(message.role == "assistant" for message in request.messages)
        reading, held = self._reading(request, tools, turn), _held(request, tools)
        return self._prepared(request, [self.prompt(request)], request.limit, reading, client, held)

    def prompt(self, request: ChatRequest) -> list[int]:
        """Return the token ids of a request's messages and tools. Raises as `prepare`, but for their number."""
        return self.renderer(request).prompt(to_messages(request.messages))

    def renderer(self, request: ChatRequest) -> Renderer:
        """Return the renderer for the tools of a request. Raises as `prepare`."""
        tools = to_tools(request.offered, self._format)
        return self._renderer(json.dumps([asdict(tool) for tool in tools]))

    def prepare_text(self, request: TextRequest, client: str = "") -> Prepared:
        """Tokenize a request for plain text. Raises ApiError (400) if it does not fit the context, or an id is no token."""
        prompts = [self._tokenizer(one)["input_ids"] if isinstance(one, str) else one for one in request.prompt]
        if not all(prompt and all(0 <= token < self._size for token in prompt) for prompt in prompts):
            raise ApiError(400, f"prompt: ids must be from 0 to {self._size - 1}, and at least one", "prompt", "invalid_value")
        return self._prepared(request, list(map(list, prompts)), request.limit, Plain(), client)

    def canary(self) -> list[Choice]:
        """Return a greedy answer to a fixed prompt, with all its tokens."""
        prompt = self._renderer("[]").prompt([*self.served.preamble, Message("user", _CANARY)])
        sampling = TurnSampling(0.0, min(_CANARY_TOKENS, self.context - len(prompt)), self.ends)
        return self.choices(Prepared([prompt], "", 1, 0, sampling, [], Plain(), 0, every=True))

    def score(self, ids: list[int], start: int) -> list[float]:
        """Return the log-probs of `ids[start:]` from a plain pass; not while the version serves."""
        return self._engine.score_with(self._adapter, ids, start) if self._adapter else self._engine.score(ids, start)

    def load_adapter(self, directory: Path) -> Adapter:
        """Load an adapter of the same base, for rows of its own. Raises DataError if it does not fit."""
        return Adapter(directory, self._engine.model)

    def choices(self, prepared: Prepared, adapter: Adapter | None = None) -> list[Choice]:
        """Return the answers to be sampled, with this adapter in place of the model's own.

        Raises:
            ApiError: 400, they cannot be held to what is asked.
        """
        return [self._choice(prepared, index, adapter or self._adapter) for index in range(prepared.count)]

    def _choice(self, prepared: Prepared, index: int, adapter: Adapter | None) -> Choice:
        constraint = self._grammars.constraint(prepared.held) if prepared.held else None
        seed = (prepared.seed + index) % 2**64
        row = Row(prepared.prompt_of(index), prepared.sampling, seed, prepared.top, prepared.client, constraint, adapter)
        stream = TextStream(self._tokenizer.backend_tokenizer)
        return Choice(row, Turn(stream, prepared.stops, prepared.reading, prepared.every))

    def _reading(self, request: ChatRequest, tools: list[ToolSpec], turn: int) -> Reading:
        if not tools and self._format != "harmony":
            return Plain()
        strict = frozenset(tool.function.name for tool in request.offered if tool.function.strict)
        choosing = request.choosing
        return WithTools(self._format, tools, turn, Rules(choosing.names, strict, choosing.several))

    def _prepared(
        self,
        request: SamplingFields,
        prompts: list[list[int]],
        limit: int | None,
        reading: Reading,
        client: str = "",
        held: Held | None = None,
    ) -> Prepared:
        return Prepared(
            prompts=prompts,
            client=client,
            count=len(prompts) * (request.n or 1),
            seed=secrets.randbits(63) if request.seed is None else request.seed % 2**64,
            sampling=self._sampling(request, min(self._answer_limit(len(prompt), limit) for prompt in prompts)),
            stops=request.stop or [],
            reading=reading,
            top=request.top or 0,
            every=bool(request.return_token_ids),
            held=held,
        )

    def _sampling(self, request: SamplingFields, limit: int) -> TurnSampling:
        heat = 1.0 if request.temperature is None else request.temperature
        return TurnSampling(
            temperature=heat if heat >= _COLDEST else 0.0,
            max_new_tokens=limit,
            stop_ids=self.ends,
            top_p=1.0 if request.top_p is None else request.top_p,
            top_k=max(request.top_k or 0, 0),
            min_p=request.min_p or 0.0,
            presence=request.presence_penalty or 0.0,
            frequency=request.frequency_penalty or 0.0,
            repetition=request.repetition_penalty or 1.0,
            bias=self._bias(request.logit_bias or {}),
        )

    def _bias(self, bias: dict[str, float]) -> dict[int, float]:
        """Raises ApiError (400) for a token that the model does not have."""
        if unknown := next((token for token in bias if int(token) >= self._size), None):
            what = f"logit_bias: the model has {self._size} tokens, and {unknown} is none of them"
            raise ApiError(400, what, "logit_bias", "invalid_value")
        return {int(token): value for token, value in bias.items()}

    def _answer_limit(self, prompt: int, limit: int | None) -> int:
        """Return how many tokens the answer may have."""
        if prompt + (limit or 1) > self.context:
            wanted = f"{prompt} tokens of messages and {limit or 1} of answer do not fit the context of {self.context} tokens"
            raise ApiError(400, wanted, "messages", "context_length_exceeded")
        return limit or self.context - prompt


def _renderer_for(tokenizer: PreTrainedTokenizerFast, tool_call_format: ToolCallFormat, tools: str) -> Renderer:
    """Return the renderer for tools given as JSON, which unlike specs can be a cache key."""
    return open_renderer(tokenizer, tool_call_format, [ToolSpec(**tool) for tool in json.loads(tools)])


def _held(request: ChatRequest, tools: list[ToolSpec]) -> Held | None:
    """Return what the answers are held to: JSON, calls, or one of them; None if the draw is free."""
    choosing, schema = request.choosing, request.answer_schema
    if schema is None and not choosing.forced:
        return None
    callable_tools = [tool for tool in tools if tool.name in choosing.names]
    return Held(None if choosing.forced else schema, callable_tools, choosing.several)


def _texts(message: RequestMessage) -> Iterator[str]:
    yield from (message.text, *message.thoughts)
    for call in message.tool_calls or ():
        yield str(call.function.arguments or "")
