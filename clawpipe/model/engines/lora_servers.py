"""A policy on servers that hold its base model and load its adapter: what vLLM and SGLang have in common.

Each policy's adapter is loaded under a name of its own, which holds the policy version, and is never replaced by another one.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import ClassVar, NamedTuple

import httpx

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.core.config.engine import EngineSpec
from clawpipe.core.config.quantization import Quantization
from clawpipe.errors import ClawpipeError, ConfigError
from clawpipe.model.engines.base import Completion, Sampling
from clawpipe.model.engines.histories import Histories
from clawpipe.model.engines.servers import Servers, told

_MODELS = "/v1/models"
_PREFIX = "clawpipe-"  # of adapters' names

Card = JsonObject
"""A model in a server's list: `id`, `parent` (of an adapter, its base) and `max_model_len`."""


class Facts(NamedTuple):
    """What servers say about themselves.

    context: the most tokens of a history with its turn, at every server.
    version: of the first server's program.
    """

    context: int
    version: str


class LoraServers(ABC):
    """One policy on servers of one kind.

    Args:
        server: where they are, and how they are asked.
        version: the policy's version.

    Attributes:
        name: of the engine in the settings.
        key: environment variable with the servers' key.
        title: of the server, for people.
        load, unload: its routes for adapters.
        to_load: how a server is started that loads adapters.

    Raises:
        ConfigError: a server does not serve the base model by this name, or takes no adapter.
        BusyError: a server does not answer.
    """

    name: ClassVar[str]
    key: ClassVar[str]
    title: ClassVar[str]
    load: ClassVar[str]
    unload: ClassVar[str]
    to_load: ClassVar[str]

    def __init__(
        self,
        base: Path,
        adapter: Path | None,
        dtype: str,
        device: str,
        quantization: Quantization,
        *,
        server: EngineSpec,
        version: str,
    ) -> None:
        self._urls = [url.rstrip("/").removesuffix("/v1") for url in server.url]
        key = os.environ.get(self.key, "")
        self._servers = Servers(self._urls, key, self.key, server.timeout, concurrency=server.concurrency)
        self._adapter, self._name = adapter, f"{_PREFIX}{version}"
        try:
            found = [self._base_at(url, server.model) for url in self._urls]
            self._model = self._name if adapter else found[0]["id"]
            self._context, released = self._facts(found)
            self.described: JsonObject = {"name": self.name, "version": released, "dtype": server.dtype or dtype}
            if adapter:
                self._load()
        except BaseException:
            self._servers.close()
            raise

    @property
    def context(self) -> int:
        """The most tokens that a history may have."""
        return self._context

    def begin(self, prompts: Sequence[Sequence[int]]) -> Histories:
        """Start a batch of conversations; prompts are token ids, of different lengths, each of at least one token."""
        return Histories(self.map_generate, prompts)

    @abstractmethod
    def generate(self, ids: Sequence[int], seed: int, sampling: Sampling) -> Completion:
        """Sample one turn after a history. Raises DataError if the answer is no turn with a log-prob per token."""

    def map_generate(self, asked: Sequence[tuple[Sequence[int], int]], sampling: Sampling) -> list[Completion]:
        """Sample a turn after each history, with its seed."""
        return self._servers.map(lambda pair: self.generate(*pair, sampling), asked)

    def close(self) -> None:
        """Unload the policy's adapter, where the servers are there. Safe to call twice."""
        for url in self._urls if self._adapter and not self._servers.closed else ():
            with suppress(ClawpipeError):
                self._servers.post(self.unload, {"lora_name": self._name}, at=url, allowed=(400, 404), tries=1)
        self._servers.close()

    @abstractmethod
    def _facts(self, cards: Sequence[Card]) -> Facts:
        """Ask the servers about themselves, given the base model's card at each."""

    def _base_at(self, url: str, name: str | None) -> Card:
        """Return the card of the base model at a server."""
        cards = self._cards(url)
        bases = [card for card in cards if not card.get("parent") and (name is None or card["id"] == name)]
        if len(bases) == 1 and isinstance(bases[0].get("max_model_len"), int):
            return bases[0]
        served = ", ".join(card["id"] for card in cards if not card.get("parent")) or "none"
        raise ConfigError(
            f"it serves no one base model {name or ''}".rstrip(), url, f"set rollouts.engine.model; it serves {served}"
        )

    def _cards(self, url: str) -> list[Card]:
        answer = self._servers.get(_MODELS, at=url)
        try:
            return [card for card in answer.json()["data"] if card["id"]]
        except (ValueError, KeyError, TypeError) as error:
            fix = f"name the URL of a server of {self.title}, without a path"
            raise ConfigError(f"no server of {self.title}: {told(answer, 200)!r}", url, fix) from error

    def _load(self) -> None:
        """Load the adapter at every server that does not hold it. The server reads the directory, so it must see the same files."""
        body = {"lora_name": self._name, "lora_path": str(self._adapter)}
        for url in self._urls:
            answer = self._servers.post(self.load, body, at=url, allowed=(400, 403, 404, 405))
            if not answer.is_success and all(card["id"] != self._name for card in self._cards(url)):
                raise ConfigError(f"it does not load the adapter {self._adapter}: {described(answer)}", url, self.to_load)


def described(answer: httpx.Response) -> str:
    """Return what a server answered, as the rest of a sentence."""
    return f"it answers {answer.status_code}: {told(answer)}"
