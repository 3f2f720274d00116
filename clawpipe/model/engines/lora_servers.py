"""A policy on servers that hold its base model and load its adapter: what vLLM and SGLang have in common.

Each policy's adapter is loaded under a name of its own, which holds the policy version, and is never replaced by another one.
"""

from __future__ import annotations

import os
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import httpx

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.core.config.engine import EngineSpec
from clawpipe.core.config.quantization import Quantization
from clawpipe.errors import BusyError, ClawpipeError, ConfigError, DataError
from clawpipe.model.engines.base import Completion, Sampling
from clawpipe.model.engines.histories import Histories
from clawpipe.model.engines.servers import RefusedRequestError, Servers, Where, server_of, told
from clawpipe.model.engines.witness import Witness

_MODELS = "/v1/models"
_PREFIX = "clawpipe-"  # of adapters' names
SOON = 10.0  # seconds in which a server tells what it holds
_PATIENCE = 60.0  # seconds in which it draws a token
_FEW_TRIES = 2  # where other servers are there

Card = JsonObject
"""A model in a server's list: `id`, `parent` (of an adapter, its base) and `max_model_len`."""


class LostError(BusyError):
    """A server does not hold the policy's adapter any more; `where` is its URL."""


class Facts(NamedTuple):
    """What a server says about itself.

    context: the most tokens of a history with its turn.
    version: of its program.
    weights: version of the base's weights; None: it tells it with its answers alone.
    """

    context: int
    version: str
    weights: str | None = None


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

    A server that does not answer, refuses the key, or answers what is no turn of the policy, is left out while others are there. It
    comes back once it answers, holds the adapter, and shows that it computes as the policy does (`require`).

    Raises:
        ConfigError: a server does not serve the base model by this name, or takes no adapter.
        BusyError: no server answers.
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
        self._urls = urls = [url.rstrip("/").removesuffix("/v1") for url in server.url]
        key = os.environ.get(self.key, "")
        self._servers = Servers(urls, key, self.key, server.timeout, concurrency=server.concurrency)
        self._adapter, self._name, self._asked_for = adapter, f"{_PREFIX}{version}", server.model
        self._model, self._weights, self._witness = self._name, dict[str, str | None](), None
        self._context: int | None = None
        self._reloading, self._entered = threading.Lock(), dict[str, float]()
        self._servers.balance.proof = self._admit
        try:
            found = self._open(urls)
            self._context = min(facts.context for facts in found)
            self.described: JsonObject = {"name": self.name, "version": found[0].version, "dtype": server.dtype or dtype}
        except BaseException:
            self._servers.close()
            raise

    def require(self, witness: Witness) -> None:
        """Compare each server with the policy, and from now on every server that comes back.

        Raises:
            DataError: a server computes something else.
        """
        if witness != self._witness:
            self._witness = witness
            for url in self._servers.balance.here():
                self._compare(url)

    def each(self) -> dict[str, Any]:
        """Return the servers that answer by their URLs, each as an engine. Raises BusyError where none does."""
        if not (here := self._servers.balance.here()):
            raise BusyError("no server answers", ", ".join(self._urls), "start them, or try again later")
        return {url: OneServer(self, url) for url in here}

    @property
    def context(self) -> int:
        """The most tokens that a history may have, at every server."""
        assert self._context is not None
        return self._context

    def begin(self, prompts: Sequence[Sequence[int]]) -> Histories:
        """Start a batch of conversations; prompts are token ids, of different lengths, each of at least one token."""
        return Histories(self.map_generate, prompts)

    def generate(self, ids: Sequence[int], seed: int, sampling: Sampling, at: str | None = None) -> Completion:
        """Sample one turn after a history, at one server or whichever would answer first.

        Raises:
            DataError: the answer is no turn with a log-prob per token, or of other weights than the server had.
            ConfigError, BusyError: see `Servers.post`.
        """
        for _ in self._urls:
            begun = time.monotonic()
            try:
                return self._turn(ids, seed, sampling, Where(at))
            except LostError as lost:
                self._reload(lost.where, begun)
            except (ConfigError, DataError) as error:
                if at or isinstance(error, RefusedRequestError) or not self._evict(error):
                    raise
        return self._turn(ids, seed, sampling, Where(at))

    @abstractmethod
    def _turn(self, ids: Sequence[int], seed: int, sampling: Sampling, where: Where) -> Completion:
        """Sample one turn. Raises as `generate`; LostError if a server does not hold the adapter."""

    def map_generate(
        self, asked: Sequence[tuple[Sequence[int], int]], sampling: Sampling, at: str | None = None
    ) -> list[Completion]:
        """Sample a turn after each history, with its seed."""
        return self._servers.map(lambda pair: self.generate(*pair, sampling, at), asked)

    def close(self) -> None:
        """Unload the policy's adapter, where the servers are there. Safe to call twice."""
        for url in self._servers.balance.here() if self._adapter and not self._servers.closed else ():
            with suppress(ClawpipeError):
                body = {"lora_name": self._name}
                self._servers.post(self.unload, body, at=url, allowed=(400, 404), tries=1, timeout=SOON)
        self._servers.close()

    @abstractmethod
    def _facts(self, url: str, card: Card) -> Facts:
        """Ask a server about itself, given the base model's card there."""

    def _open(self, urls: Sequence[str]) -> list[Facts]:
        """Return the facts of the servers that answer; the others are left out."""
        found, silent = list[Facts](), list[BusyError]()
        for url, opened in zip(urls, self._servers.map(partial(self._opened, alone=len(urls) == 1), urls), strict=True):
            if isinstance(opened, BusyError):
                silent.append(opened)
                self._servers.leave_out(url, opened.what)
            else:
                found.append(opened)
        if not found:
            raise silent[0]
        return found

    def _opened(self, url: str, alone: bool) -> Facts | BusyError:
        try:
            return self._enter(url, None if alone else _FEW_TRIES)
        except BusyError as error:
            return error

    def _admit(self, url: str) -> None:
        """Let a server come back that has been away.

        Raises:
            ConfigError, DataError: it serves another base, takes no adapter, or computes something else.
            BusyError: it does not answer.
        """
        self._weights.pop(url, None)
        self._enter(url, 1)
        self._entered[url] = time.monotonic()
        self._compare(url)

    def _enter(self, url: str, tries: int | None) -> Facts:
        """Let a server hold the adapter, and return what it says about itself."""
        card = self._base_at(url, self._asked_for, tries)
        self._model = self._name if self._adapter else card["id"]
        facts = self._facts(url, card)
        if self._context and facts.context < self._context:
            what = f"its context of {facts.context} tokens is shorter than the {self._context} that others have"
            raise ConfigError(what, url, "start all servers with one --max-model-len")
        self._require_weights(url, facts.weights)
        if self._adapter:
            self._load(url)
        return facts

    def _reload(self, url: str, begun: float) -> None:
        """Admit a server anew that has lost the adapter since `begun`: it may have been started with another base."""
        with self._reloading:
            if self._entered.get(url, begun) > begun:  # another thread did
                return
            try:
                self._admit(url)
            except ClawpipeError as error:
                if len(self._urls) == 1:
                    raise
                self._servers.leave_out(url, error.what)

    def _evict(self, error: ClawpipeError) -> bool:
        """Leave out the server that an error is of. False if there is no other one."""
        here = self._servers.balance.here()
        url = next((one for one in self._urls if f"{error.where}/".startswith(f"{one}/")), None)
        if url is None or not set(here) - {url}:
            return False
        if url in here:  # else another thread did
            self._servers.leave_out(url, error.what)
        return True

    def _compare(self, url: str) -> None:
        if witness := self._witness:
            where = Where(url, 1, _PATIENCE)
            witness.require([self._turn(ids, seed, witness.sampling(), where) for ids, seed in witness.asked()], url)

    def _require_weights(self, url: str, version: str | None) -> None:
        """Raise if the base of a server has other weights than before."""
        if version is not None and self._weights.setdefault(url, version) != version:
            what = "the weights of its base model have changed"
            raise DataError(what, url, "let nobody else change the weights of a server from which a night samples")

    def _lost(self, answer: httpx.Response) -> LostError:
        return LostError(f"it has lost the adapter: {described(answer)}", server_of(answer), "let nobody else unload it")

    def _base_at(self, url: str, name: str | None, tries: int | None) -> Card:
        """Return the card of the base model at a server."""
        cards = self._cards(url, tries)
        bases = [card for card in cards if not card.get("parent") and (name is None or card["id"] == name)]
        if len(bases) == 1 and isinstance(bases[0].get("max_model_len"), int):
            return bases[0]
        served = ", ".join(card["id"] for card in cards if not card.get("parent")) or "none"
        raise ConfigError(
            f"it serves no one base model {name or ''}".rstrip(), url, f"set rollouts.engine.model; it serves {served}"
        )

    def _cards(self, url: str, tries: int | None = None) -> list[Card]:
        answer = self._servers.get(_MODELS, at=url, tries=tries, timeout=SOON)
        try:
            return [card for card in answer.json()["data"] if card["id"]]
        except (ValueError, KeyError, TypeError) as error:
            fix = f"name the URL of a server of {self.title}, without a path"
            raise ConfigError(f"no server of {self.title}: {told(answer, 200)!r}", url, fix) from error

    def _load(self, url: str) -> None:
        """Load the adapter at a server that does not hold it. The server reads the directory, so it must see the same files."""
        body = {"lora_name": self._name, "lora_path": str(self._adapter)}
        answer = self._servers.post(self.load, body, at=url, allowed=(400, 403, 404, 405))
        if not answer.is_success and all(card["id"] != self._name for card in self._cards(url)):
            raise ConfigError(f"it does not load the adapter {self._adapter}: {described(answer)}", url, self.to_load)


class OneServer(NamedTuple):
    """One of a policy's servers, as an engine."""

    of: LoraServers
    url: str

    @property
    def context(self) -> int:
        return self.of.context

    def begin(self, prompts: Sequence[Sequence[int]]) -> Histories:
        """See `LoraServers.begin`."""
        return Histories(partial(self.of.map_generate, at=self.url), prompts)


def described(answer: httpx.Response) -> str:
    """Return what a server answered, as the rest of a sentence."""
    return f"it answers {answer.status_code}: {told(answer)}"
