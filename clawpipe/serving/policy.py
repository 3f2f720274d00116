"""The served policy: turn a request into a prompt, and its answers into rows of the engine's batch."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import cast

from clawpipe.config.night import EngineSpec, Registry
from clawpipe.engines.base import open_engine
from clawpipe.engines.continuous import ContinuousBatch
from clawpipe.engines.embedded import EmbeddedEngine
from clawpipe.engines.rows import Row, memory_of
from clawpipe.engines.sampling import TurnSampling
from clawpipe.json_types import JsonObject
from clawpipe.messages import Message, ToolSpec
from clawpipe.policy.calls import ToolCallFormat, codec
from clawpipe.policy.load import load_tokenizer
from clawpipe.policy.renderer import Renderer
from clawpipe.policy.spec import PolicySpec, policy_spec
from clawpipe.registry.package import restore_policy, verify_package
from clawpipe.registry.tracking import Tracking
from clawpipe.registry.versions import download
from clawpipe.serving.choice import Choice
from clawpipe.serving.conversation import to_messages, to_tools
from clawpipe.serving.errors import ApiError
from clawpipe.serving.fields import SamplingFields
from clawpipe.serving.grammar import JsonGrammar
from clawpipe.serving.protocol import ChatRequest, RequestMessage
from clawpipe.serving.tokens import TextStream, TokenSpelling
from clawpipe.serving.turn import Plain, Reading, Turn, WithTools
from clawpipe.store.home import Home
from clawpipe.store.open import open_store

_RENDERERS = 8  # one per set of tools; each copies the tokenizer


@dataclass(frozen=True)
class Served:
    """A registered model version on this machine.

    Attributes:
        digest: digest of the evaluated artifact.
        tools, preamble: tools and preamble of the model's episodes; shown to clients, never added to a request.
    """

    name: str
    version: str
    digest: str
    spec: PolicySpec
    tools: tuple[ToolSpec, ...] = ()
    preamble: tuple[Message, ...] = ()


@dataclass(frozen=True)
class Prepared:
    """A request prepared for the engine.

    Attributes:
        client: whose it is; clients take turns.
        count: number of answers, of which the i-th is sampled with `seed + i`.
        top: number of likeliest tokens to report per token.
        every: whether tokens that are no part of the text are reported, too.
        schema: JSON Schema that the answers fit.
    """

    prompt: list[int]
    client: str
    count: int
    seed: int
    sampling: TurnSampling
    stops: list[str]
    reading: Reading
    top: int
    every: bool
    schema: JsonObject | None = None


class ServedPolicy:
    """A loaded model that answers requests."""

    def __init__(self, served: Served, device: str = "auto") -> None:
        self.served = served
        self._format: ToolCallFormat = cast(ToolCallFormat, served.spec.calls)
        self._tokenizer = load_tokenizer(Path(served.spec.base))
        self._engine = cast(EmbeddedEngine, open_engine(EngineSpec(), served.spec, device))
        self._renderer = lru_cache(_RENDERERS)(self._make_renderer)
        self.spelling = TokenSpelling(self._tokenizer.backend_tokenizer)
        self._longest = self.spelling.longest()
        self._engine.score([self._renderer("[]").eos_id] * 2, 1)  # a model that the engine cannot run fails here, not in a request
        self._size: int = self._engine.model.config.get_text_config().vocab_size
        self._grammar = JsonGrammar(self._tokenizer, self._renderer("[]").eos_id, self._size)
        self.batch = ContinuousBatch(self._engine, memory_of(self._engine))

    @property
    def context(self) -> int:
        """Number of tokens of prompt and answer together."""
        return self._engine.context

    def check_size(self, request: ChatRequest) -> None:
        """Refuse a request whose text is too long, before seconds go into tokenizing it.

        Raises:
            ApiError (400): tools are invalid, or the text cannot fit the context, however it is tokenized.
        """
        described = codec(self._format, to_tools(request.offered, self._format)).describe()
        texts = [described, *(text for message in request.messages for text in _texts(message))]
        size = sum(len(text.encode()) for text in texts)
        if self._longest is not None and size > self._longest * self.context:
            what = f"{size} bytes of messages do not fit the context of {self.context} tokens"
            raise ApiError(400, what, "messages", "context_length_exceeded")

    def prepare(self, request: ChatRequest, client: str = "") -> Prepared:
        """Render a request.

        Raises:
            ApiError (400): messages or tools are invalid, or do not fit the context.
            ClawpipeError: the policy's tool-call format cannot write the messages.
        """
        tools = to_tools(request.offered, self._format)
        messages = to_messages(request.messages)
        renderer = self._renderer(json.dumps([asdict(tool) for tool in tools]))
        turn = sum(message.role == "assistant" for message in messages)
        reading = WithTools(self._format, tools, turn) if tools else Plain()
        return self._prepared(request, renderer.prompt(messages), request.limit, reading, client, request.answer_schema)

    def choices(self, prepared: Prepared) -> list[Choice]:
        """Return the answers to be sampled. Raises ApiError (400) if they cannot be kept to the schema."""
        return [self._choice(prepared, (prepared.seed + index) % 2**64) for index in range(prepared.count)]

    def _choice(self, prepared: Prepared, seed: int) -> Choice:
        constraint = self._grammar.constraint(prepared.schema) if prepared.schema is not None else None
        row = Row(prepared.prompt, prepared.sampling, seed, prepared.top, prepared.client, constraint)
        stream = TextStream(self._tokenizer.backend_tokenizer)
        return Choice(row, Turn(stream, prepared.stops, prepared.reading, prepared.every))

    def _prepared(
        self,
        request: SamplingFields,
        prompt: list[int],
        limit: int | None,
        reading: Reading,
        client: str = "",
        schema: JsonObject | None = None,
    ) -> Prepared:
        return Prepared(
            prompt=prompt,
            client=client,
            count=request.n or 1,
            seed=secrets.randbits(63) if request.seed is None else request.seed % 2**64,
            sampling=self._sampling(request, self._answer_limit(len(prompt), limit)),
            stops=request.stop or [],
            reading=reading,
            top=request.top or 0,
            every=bool(request.return_token_ids),
            schema=schema,
        )

    def _sampling(self, request: SamplingFields, limit: int) -> TurnSampling:
        return TurnSampling(
            temperature=1.0 if request.temperature is None else request.temperature,
            max_new_tokens=limit,
            stop_id=self._renderer("[]").eos_id,
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

    def _make_renderer(self, tools: str) -> Renderer:
        """Return the renderer for tools given as JSON, which unlike specs can be a cache key."""
        return Renderer(self._tokenizer, self._format, [ToolSpec(**tool) for tool in json.loads(tools)])

    def _answer_limit(self, prompt: int, limit: int | None) -> int:
        """Return how many tokens the answer may have."""
        if prompt + (limit or 1) > self.context:
            wanted = f"{prompt} tokens of messages and {limit or 1} of answer do not fit the context of {self.context} tokens"
            raise ApiError(400, wanted, "messages", "context_length_exceeded")
        return limit or self.context - prompt


def _texts(message: RequestMessage) -> Iterator[str]:
    yield message.text
    for call in message.tool_calls or ():
        yield call.function.arguments


def find(home: Home, uri: str) -> Served:
    """Download and verify the model version that `uri` names, and restore its artifact into the store.

    Raises:
        ConfigError, NotFoundError: the version does not exist.
        DataError: its files, or its base model, are not the ones that were evaluated.
    """
    directory, info = download(Tracking.of(home, Registry().model_name), uri)  # the name in `uri` decides
    package = verify_package(directory)
    store = open_store(home)
    policy = restore_policy(store, directory)
    return Served(info.name, info.version, policy.digest, policy_spec(store, policy), package.tools, package.preamble)
