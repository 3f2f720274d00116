"""Versions of a registered model as adapters of vLLM servers: `clawpipe gateway NAME@champion`.

The engines hold the base model. Each version is loaded beside the others under a name of its own, which is never used for other
weights: under a name that is loaded anew, vLLM would go on with prefixes that the old weights computed. The engines read the
adapter's directory themselves, so they have to see the files of this home.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import orjson

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.errors import BusyError, ClawpipeError, DataError
from clawpipe.serve.gateway.answers import Collected
from clawpipe.serve.gateway.events import loaded
from clawpipe.serve.gateway.upstream import CHAT, Upstream
from clawpipe.serve.gateway.upstreams import Upstreams
from clawpipe.serve.serving.errors import ApiError
from clawpipe.serve.serving.evidence import Asker
from clawpipe.serve.serving.follow import LOOK_SECONDS, Follower, Registry
from clawpipe.serve.serving.versions import SESSION_SECONDS, Version, Versions

if TYPE_CHECKING:
    from clawpipe.serve.serving.found import Served

log = logging.getLogger("clawpipe.gateway")
_MODELS, _LOAD, _UNLOAD = "/v1/models", "/v1/load_lora_adapter", "/v1/unload_lora_adapter"
_TO_LOAD = "start it with --enable-lora --max-lora-rank R --max-loras 3, and VLLM_ALLOW_RUNTIME_LORA_UPDATING=1 in its environment"
_CANARY_TOKENS = 8
_LIMITS = ("max_tokens", "max_completion_tokens", "max_output_tokens")  # fields by which a client limits its answer


class AdapterVersion(Version):
    """A registered version that the engines have loaded as an adapter.

    Attributes:
        model: its name at the engines.
    """

    def __init__(self, served: Served, model: str, engines: Engines) -> None:
        super().__init__(served)
        self.model, self._engines = model, engines
        self._running, self._unused = 0, asyncio.Event()
        self._unused.set()

    @contextmanager
    def answering(self) -> Iterator[None]:
        """Keep the version at the engines while it answers a request."""
        self._running += 1
        self._unused.clear()
        try:
            yield
        finally:
            self._running -= 1
            if not self._running:
                self._unused.set()

    async def restore(self, upstream: Upstream) -> None:
        """Load the version at an engine that was started anew. Raises ApiError (503) if it cannot be loaded."""
        try:
            await self._engines.restore(upstream, self)
        except DataError as error:
            raise ApiError(503, error.what, code="model_not_loaded", headers={"retry-after": "30"}) from None

    def count_answer(self, collected: Collected | None, failed: bool, asker: Asker, request: JsonObject) -> None:
        """Count an answer by its kinds: failed, empty, or ended at a limit, which may be the request's own. The follower goes back
        when one of them becomes more frequent."""
        answers = collected.answers(with_tokens=False) if collected and not collected.uncaptured() else []
        at_limit, limited = any(one.finish_reason == "length" for one in answers), any(request.get(name) for name in _LIMITS)
        cut, runaway = at_limit and limited, at_limit and not limited
        silent = bool(answers) and not any(one.message.get("content") or one.message.get("tool_calls") for one in answers)
        self.count({"total": True, "failed": failed, "empty": silent and not cut, "runaway": runaway, "cut": cut}, asker)

    async def close_when_unused(self) -> None:
        """Wait for the last answers of a version that gets no new requests, then unload it."""
        await self._unused.wait()
        await self.close()

    async def close(self) -> None:
        """Unload the version."""
        if self.served.spec.adapter:
            await self._engines.unload(self.model)

    def cancel(self) -> None:
        """Do nothing: an answer ends when its client's connection ends."""

    def keep_ended(self, keep: bool) -> None:
        """Do nothing: a vLLM server manages its own cache."""


class Engines:
    """Loads and unloads adapters at all engines of the gateway."""

    def __init__(self, upstreams: Upstreams) -> None:
        self._upstreams = upstreams

    async def load(self, served: Served) -> AdapterVersion:
        """Load a version at every engine and let it answer a fixed prompt.

        Raises:
            DataError: it has whole weights, an engine refuses it, or it does not answer the prompt.
            BusyError: an engine does not answer.
        """
        try:
            return await self._loaded(served)
        except ApiError as error:
            raise BusyError(error.message, _where(served), "it is tried again") from None

    async def _loaded(self, served: Served) -> AdapterVersion:
        version = AdapterVersion(served, _name(served), self)
        if not served.spec.adapter:
            if not served.is_base:
                raise DataError(
                    "it has whole weights, and an engine loads adapters alone", _where(served), "start an engine with it"
                )
            version.model = await self._base()
        for upstream in self._upstreams.answering():
            await self.restore(upstream, version)
            await _try_out(upstream, version)
        return version

    async def restore(self, upstream: Upstream, version: AdapterVersion) -> None:
        """Load a version at one engine, if it does not hold it. Raises DataError if the engine refuses."""
        if not version.served.spec.adapter or await _holds(upstream, version.model):
            return
        status, text = await _asked(upstream, _LOAD, {"lora_name": version.model, "lora_path": version.served.spec.adapter})
        if status != 200 and not await _holds(upstream, version.model):
            raise DataError(f"the engine does not load it: it answers {status}: {text}", _where(version.served), _TO_LOAD)

    async def unload(self, model: str) -> None:
        """Unload an adapter wherever it is loaded."""
        for upstream in self._upstreams.answering():
            with suppress(ApiError):
                await _asked(upstream, _UNLOAD, {"lora_name": model})

    async def _base(self) -> str:
        """Return what the engines call their base model. Raises DataError if they hold none, or not the same."""
        found = {str(card["id"]) for one in self._upstreams.answering() for card in await _cards(one) if not card.get("parent")}
        if len(found) != 1:
            raise DataError(f"the engines hold no one base model: {', '.join(sorted(found)) or 'none'}", str(self._upstreams))
        return found.pop()


class Following:
    """Choose the version that answers a request, and follow the registry's alias.

    Args:
        name: the registered model, for which clients ask.
        registry: what the alias names.
        shares: of new sessions, that a new version answers until it is known to be no worse, and of requests that it answers unseen
            before that.
        session_seconds: how long a silent session keeps its version.
    """

    def __init__(
        self,
        name: str,
        registry: Registry,
        upstreams: Upstreams,
        shares: tuple[float, float] = (1.0, 0.0),
        session_seconds: float = SESSION_SECONDS,
    ) -> None:
        self.name, self._registry, self._shares, self._session_seconds = name, registry, shares, session_seconds
        self._engines = Engines(upstreams)
        self._shadows: set[asyncio.Task[None]] = set()  # answers that nobody sees
        self._versions: Versions[AdapterVersion] | None = None

    async def run(self) -> None:
        """Put the version in service that the alias names, as soon as the engines answer, and follow the alias until cancelled."""
        while self._versions is None:
            try:
                self._versions = await self._first()
            except ClawpipeError as error:
                log.error("no version of %s is in service: %s", self.name, error)
                await asyncio.sleep(LOOK_SECONDS)
        follower = Follower(self._versions, self._registry, self._engines.load, *self._shares)
        try:
            await follower.run()
        finally:
            for task in self._shadows:
                task.cancel()
            await follower.close()

    async def _first(self) -> Versions[AdapterVersion]:
        number = await asyncio.to_thread(self._registry.version)
        first = await self._engines.load(await asyncio.to_thread(self._registry.find, number))
        log.warning("version %s of %s is in service", number, self.name)
        return Versions(first, self._session_seconds)

    def of(self, model: str, session: str) -> AdapterVersion | None:
        """Return the version that answers a session's request; None if it asks for another model.

        Raises:
            ApiError: 503, none is in service yet.
        """
        if model != self.name:
            return None
        if self._versions is None:
            what = f"no version of {self.name} is in service yet"
            raise ApiError(503, what, code="model_not_loaded", headers={"retry-after": "5"})
        return self._versions.of_session(session)

    def shadow_request(self, version: AdapterVersion, upstream: Upstream, body: JsonObject, asker: Asker) -> None:
        """Send a share of chat requests to the version on trial as well. The client does not wait for this answer; it is only
        counted."""
        if self._versions and (shadow := self._versions.shadow_of(version)):
            unseen = body | {"model": shadow.model, "stream": False}
            task = asyncio.create_task(_answer_unseen(shadow, upstream, unseen, asker))
            self._shadows.add(task)
            task.add_done_callback(self._shadows.discard)

    def record_response(self, response: str, version: AdapterVersion, asker: Asker) -> None:
        """Record which version produced a response, and who asked, so that feedback can be counted for it."""
        if self._versions:
            self._versions.record_response(response, version, asker)

    def rate(self, response: str, value: float) -> bool:
        """Count feedback for the version that produced a response; False if that version is unknown."""
        return self._versions is not None and self._versions.rate(response, value)

    def end_session(self, session: str) -> None:
        if self._versions:
            self._versions.end_session(session)


async def _answer_unseen(shadow: AdapterVersion, upstream: Upstream, body: JsonObject, asker: Asker) -> None:
    body.pop("stream_options", None)
    with shadow.answering(), suppress(ApiError):  # an engine that is away says nothing of the version
        status, text = await _asked(upstream, CHAT, body)
        answer, collected = loaded(text.encode()), Collected()
        if isinstance(answer, dict):
            collected.add(answer)
        broken = status == 200 and collected.ending("marked") == "broken"
        shadow.count_answer(collected, status >= 500 or broken, asker, body)


async def _try_out(upstream: Upstream, version: AdapterVersion) -> None:
    """Let a version answer a fixed prompt at an engine. Raises DataError if it does not."""
    asked: JsonObject = {"model": version.model, "messages": [{"role": "user", "content": "Hello."}]}
    status, text = await _asked(upstream, CHAT, asked | {"max_tokens": _CANARY_TOKENS, "temperature": 0})
    body, collected = loaded(text.encode()), Collected()
    if isinstance(body, dict):
        collected.add(body)
    if status != 200 or collected.ending("marked") == "broken":
        raise DataError(f"it does not answer a fixed prompt: {status}: {text[:200]}", _where(version.served))


async def _holds(upstream: Upstream, model: str) -> bool:
    return any(card["id"] == model for card in await _cards(upstream))


async def _cards(upstream: Upstream) -> list[JsonObject]:
    reply = await upstream.ask("GET", _MODELS)
    body = loaded(await reply.read())
    cards = body.get("data") if isinstance(body, dict) else None
    return [card for card in cards if isinstance(card, dict) and "id" in card] if isinstance(cards, list) else []


async def _asked(upstream: Upstream, path: str, body: JsonObject) -> tuple[int, str]:
    """Return status and text of an engine's answer. An error that holds the engine's key has no text: it may be logged."""
    reply = await upstream.ask("POST", path, orjson.dumps(body))
    text = (await reply.read()).decode(errors="replace")
    return reply.status, "" if reply.status != 200 and upstream.secret.is_in(text) else text


def _name(served: Served) -> str:
    return f"{served.name}-{served.version}-{served.digest[:12]}"


def _where(served: Served) -> str:
    return f"version {served.version} of {served.name}"
