"""A request in progress, and the record that is made of it."""

from __future__ import annotations

import time
from dataclasses import dataclass

from clawpipe.capture.records import Ending, LogprobsKind, Turn
from clawpipe.gateway.adapters import AdapterVersion
from clawpipe.gateway.answers import NO_TOKENS, ClientOptions, Collected
from clawpipe.gateway.attribution import Attribution
from clawpipe.gateway.forms import Form
from clawpipe.gateway.keys import Key
from clawpipe.gateway.upstream import Capabilities, Reply, Upstream
from clawpipe.json_types import JsonObject

IDENTITY = ("x-clawpipe-model-version", "x-clawpipe-digest", "x-clawpipe-policy-version")  # headers of `clawpipe serve`
_PENALTIES = ("frequency_penalty", "presence_penalty", "min_p", "logit_bias")  # 0 or empty changes nothing


@dataclass(frozen=True)
class Asked:
    """One request, ready for the engine.

    Attributes:
        body: what the engine is sent, without questions for tokens.
        request: the same as a chat's, as it is recorded.
        uncaptured: why it is not captured; None if it is.
        version: that answers it, where the gateway follows an alias.
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

    @property
    def client_options(self) -> ClientOptions:
        return self.form.client_options(self.body)

    @property
    def captured(self) -> bool:
        return self.uncaptured is None


def turn_of(asked: Asked, reply: Reply, collected: Collected, ending: Ending) -> Turn:
    """Return the record of a turn."""
    whose, capabilities = asked.whose, asked.capabilities
    no_tokens = collected.no_tokens() if capabilities.tokens else NO_TOKENS
    temperature = asked.body.get("temperature")
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
        response_id=collected.response_id,
        model=collected.model or asked.model,
        upstream=asked.upstream.url,
        prompt_token_ids=collected.prompt if no_tokens is None else None,
        no_tokens=no_tokens,
        logprobs_kind=_kind(asked, policy is not None and not asked.version) if no_tokens is None else "none",
        temperature=float(temperature) if isinstance(temperature, int | float) else capabilities.temperature,
        usage=collected.usage,
        policy_version=policy,
        model_version=version,
        digest=digest,
        api=asked.form.api,
    )


def _kind(asked: Asked, is_own_engine: bool) -> LogprobsKind:
    """Return the kind of a turn's log-probs.

    Tempered ones are of no use where tokens were penalised or cut off: a trainer computes them over the whole vocabulary, and vLLM
    gives them over what was left. `clawpipe serve`, which names its policy version, gives them over the whole.
    """
    kind, body = asked.capabilities.logprobs_kind, asked.body
    cut = body.get("top_p", 1) not in (1, None) or body.get("top_k", -1) not in (-1, 0, None)
    changed = any(body.get(name) for name in _PENALTIES) or body.get("repetition_penalty", 1) not in (1, None)
    return "none" if kind == "tempered" and (changed or (cut and not is_own_engine)) else kind
