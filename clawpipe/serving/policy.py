"""The served policy: turn a request into a prompt, and sample a turn."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple, cast

from clawpipe.config.night import EngineSpec, Registry
from clawpipe.engines.base import Sampling, open_engine
from clawpipe.messages import Message, ToolCall, ToolSpec
from clawpipe.policy.calls import ToolCallFormat, codec
from clawpipe.policy.load import load_tokenizer
from clawpipe.policy.renderer import Renderer
from clawpipe.policy.spec import PolicySpec, policy_spec
from clawpipe.registry.package import restore_policy, verify_package
from clawpipe.registry.tracking import Tracking
from clawpipe.registry.versions import download
from clawpipe.serving.conversation import to_messages, to_tools
from clawpipe.serving.protocol import ApiError, ChatRequest, RequestMessage
from clawpipe.serving.tokens import TextStream, TokenSpelling
from clawpipe.serving.turn import Delta, Plain, Reading, Sampled, Turn, WithTools
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
    """A request prepared for the engine. `top`: number of top log-probs to report per token."""

    prompt: list[int]
    seed: int
    sampling: Sampling
    stops: list[str]
    reading: Reading
    top: int


class Ending(NamedTuple):
    """The end of a turn. `tokens` counts every sampled token, including the end marker."""

    calls: tuple[ToolCall, ...]
    finish_reason: str
    tokens: int


class ServedPolicy:
    """A loaded model that answers requests; only one thread at a time may run `events`."""

    def __init__(self, served: Served, device: str = "auto") -> None:
        self.served = served
        self._format: ToolCallFormat = cast(ToolCallFormat, served.spec.calls)
        self._tokenizer = load_tokenizer(Path(served.spec.base))
        self._engine = open_engine(EngineSpec(), served.spec, device)
        self._renderer = lru_cache(_RENDERERS)(self._make_renderer)
        self.spelling = TokenSpelling(self._tokenizer.backend_tokenizer)
        self._longest = self.spelling.longest()
        self._engine.score([self._renderer("[]").eos_id] * 2, 1)  # a model that the engine cannot run fails here, not in a request

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

    def prepare(self, request: ChatRequest) -> Prepared:
        """Render a request.

        Raises:
            ApiError (400): messages or tools are invalid, or do not fit the context.
            ClawpipeError: the policy's tool-call format cannot write the messages.
        """
        tools = to_tools(request.offered, self._format)
        messages = to_messages(request.messages)
        renderer = self._renderer(json.dumps([asdict(tool) for tool in tools]))
        prompt = renderer.prompt(messages)
        turn = sum(message.role == "assistant" for message in messages)
        return Prepared(
            prompt=prompt,
            seed=secrets.randbits(63) if request.seed is None else request.seed % 2**64,
            sampling=Sampling(
                temperature=1.0 if request.temperature is None else request.temperature,
                max_new_tokens=self._answer_limit(len(prompt), request.limit),
                stop_id=renderer.eos_id,
                top_p=1.0 if request.top_p is None else request.top_p,
            ),
            stops=request.stop or [],
            reading=WithTools(self._format, tools, turn) if tools else Plain(),
            top=request.top or 0,
        )

    def events(self, prepared: Prepared, cancelled: Callable[[], bool]) -> Generator[Delta | Ending, None, None]:
        """Sample a turn: yield deltas, then the ending; nothing more once `cancelled()`, which is called after each token."""
        turn = Turn(TextStream(self._tokenizer.backend_tokenizer), prepared.stops, prepared.reading)
        count, ended = 0, False
        with closing(self._engine.begin([prepared.prompt]).stream(0, prepared.seed, prepared.sampling, prepared.top)) as tokens:
            for token, likelihood in tokens:
                if cancelled():
                    return
                count += 1
                ended = token == prepared.sampling.stop_id
                if not ended:
                    turn.push(Sampled(token, likelihood))
                    yield turn.settled()
                if turn.stopped:
                    break
        rest, outcome = turn.end()
        yield rest
        reason = "stop" if ended or turn.stopped else "length"
        yield Ending(outcome.calls, "tool_calls" if outcome.calls and reason == "stop" else reason, count)

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
