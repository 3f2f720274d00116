"""A request in progress, and the record that is made of it."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field, replace
from typing import Any

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.data.capture.records import Ending, LogprobsKind, Turn
from clawpipe.data.wire.dialects.writing import Writer
from clawpipe.data.wire.draw import changes_the_draw, number_of
from clawpipe.serve.gateway.adapters import AdapterVersion
from clawpipe.serve.gateway.answers import ClientOptions, Collected
from clawpipe.serve.gateway.attribution import Attribution
from clawpipe.serve.gateway.capabilities import KIND_HEADER, KINDS, Capabilities
from clawpipe.serve.gateway.forms import Form
from clawpipe.serve.gateway.keys import Key
from clawpipe.serve.gateway.passing import IDENTITY
from clawpipe.serve.gateway.upstream import Reply, Upstream
from clawpipe.serve.serving.evidence import Asker

_NEUTRAL: JsonObject = {}


@dataclass(frozen=True)
class Asked:
    """One request, ready for the engine.

    Attributes:
        body: what the engine is sent, without questions for tokens.
        request: the same as a chat's, as it is recorded.
        uncaptured: why it is not captured; None if it is.
        version: that answers it, where the gateway follows an alias.
        given: what the client sent.
        writer: of the answer; None: the client gets the engine's own.
        query, headers: of the client, that the engine gets, too.
    """

    form: Form
    body: JsonObject
    request: JsonObject
    model: str
    key: Key
    whose: Attribution
    uncaptured: str | None
    upstream: Upstream
    capabilities: Capabilities
    began: float
    turn: str
    version: AdapterVersion | None = None
    given: JsonObject = field(default_factory=dict)
    writer: Writer | None = None
    query: str = ""
    headers: dict[str, str] = field(default_factory=dict)

    @property
    def client_options(self) -> ClientOptions:
        return self.form.client_options(self.body)

    @property
    def asker(self) -> Asker:
        return Asker(self.key.name, self.whose.session)

    @property
    def captured(self) -> bool:
        return self.uncaptured is None


def turn_of(asked: Asked, reply: Reply, collected: Collected, ending: Ending) -> Turn:
    """Return the record of a turn."""
    whose, capabilities = asked.whose, asked.upstream.found.current(asked.model, asked.capabilities)
    no_tokens = collected.no_tokens() if capabilities.tokens else capabilities.why
    said = reply.headers.get(KIND_HEADER)
    defaults, default = (_NEUTRAL, 1.0) if said in KINDS else (capabilities.defaults, capabilities.temperature)
    identity = asked.version.headers if asked.version else reply.headers
    version, digest, policy = (identity.get(name) or None for name in IDENTITY)
    return Turn(
        id=asked.turn,
        time=time.time(),
        key=asked.key.name,
        session=whose.session,
        session_from=whose.session_from,
        turn_type=whose.turn_type,
        turn_type_from=whose.turn_type_from,
        request={name: value for name, value in asked.request.items() if name != "user"},
        answers=collected.answers(no_tokens is None),
        ending=ending,
        seconds=time.time() - asked.began,
        parent=whose.parent,
        user=whose.user,
        done=whose.done,
        response_id=asked.writer.id if asked.writer else collected.response_id,
        model=collected.model or asked.model,
        upstream=asked.upstream.url,
        prompt_token_ids=collected.prompt if no_tokens is None else None,
        no_tokens=no_tokens,
        logprobs_kind=_kind(replace(asked, capabilities=capabilities), said, defaults) if no_tokens is None else "none",
        temperature=_temperature(asked.body.get("temperature"), default),
        usage=collected.usage,
        policy_version=policy,
        model_version=version,
        digest=digest,
        api=asked.form.api,
    )


def _temperature(asked: Any, default: float | None) -> float | None:
    """Return the temperature that a request names, also in a text that engines take for a number; None if it is neither."""
    if asked is None:
        return default
    value = number_of(asked)
    return value if math.isfinite(value) else None


def _kind(asked: Asked, said: str | None, engine_defaults: JsonObject | None = _NEUTRAL) -> LogprobsKind:
    """Return the kind of a turn's log-probs.

    Args:
        asked: the request, with what was found out of the engine.
        said: the kind that the answer's own header says; None if it says none.
        engine_defaults: see `changes_the_draw`.
    """
    if said == "none" or changes_the_draw(asked.body, engine_defaults):
        return "none"
    return KINDS.get(said or "", asked.capabilities.logprobs_kind)
