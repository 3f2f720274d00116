"""A plugin of Hermes (0.19) that tells clawpipe's gateway whose turn each request is.

Requests to the gateway, and no others, carry the session's id, its parent's for a sub-agent, and `side` for turns that no user
asked for. The gateway is told when a session has ended. Only the standard library and what Hermes hands over are used.

    CLAWPIPE_GATEWAY_URL  the gateway's base URL; http://127.0.0.1:8100/v1 unless set
    CLAWPIPE_API_KEY      the key that ends sessions; else `model.api_key` of Hermes' config, while its `base_url` is the gateway's
"""

from __future__ import annotations

import logging
import os
import threading
import urllib.error
import urllib.request
from collections import OrderedDict
from typing import Any
from urllib.parse import quote

log = logging.getLogger(__name__)
_DEFAULT_URL = "http://127.0.0.1:8100/v1"
_SECONDS = 2.0  # Hermes waits for its hooks, also while it exits
_MOST_PARENTS = 4096
_REVIEW_THREAD = (
    "bg-review"  # Hermes reviews a conversation under the conversation's own session id, see agent/background_review.py
)
_REVIEW_TEXT = "Review the conversation above and "


class Plugin:
    """The hooks, and which sessions have a parent or have asked the gateway."""

    def __init__(self) -> None:
        self._parents: OrderedDict[str, str] = OrderedDict()
        self._asked: OrderedDict[str, None] = OrderedDict()

    def llm_request(
        self, request: dict[str, Any], session_id: str = "", base_url: str = "", **context: Any
    ) -> dict[str, Any] | None:
        """Add headers to a request to the gateway. None leaves a request as it is."""
        if not session_id or _plain(base_url) != gateway_url():
            return None
        _remember(self._asked, session_id, None)
        headers = {"X-Session-Id": session_id}
        if parent := self._parents.get(session_id):
            headers["X-Parent-Session-Id"] = parent
        if is_side(request, str(context.get("platform") or "")):
            headers["X-Turn-Type"] = "side"
        return {"request": {**request, "extra_headers": {**(request.get("extra_headers") or {}), **headers}}}

    def subagent_start(self, child_session_id: str | None = None, parent_session_id: str | None = None, **_: Any) -> None:
        """Remember whose sub-agent a session is."""
        if child_session_id and parent_session_id:
            _remember(self._parents, child_session_id, parent_session_id)

    def subagent_stop(self, child_session_id: str | None = None, **_: Any) -> None:
        """End the session of a sub-agent."""
        self._end(child_session_id)

    def on_session_finalize(self, session_id: str | None = None, platform: str = "", reason: str = "", **_: Any) -> None:
        """End a session. One that Hermes' gateway only leaves to restart goes on."""
        if not (platform == "gateway" and reason == "shutdown"):
            self._end(session_id)

    def _end(self, session: str | None) -> None:
        if session and session in self._asked:  # others have never been at the gateway
            self._asked.pop(session, None)
            self._parents.pop(session, None)
            end_session(session)


def gateway_url() -> str:
    return _plain(os.environ.get("CLAWPIPE_GATEWAY_URL", "") or _DEFAULT_URL)


def is_side(request: dict[str, Any], platform: str) -> bool:
    """Return whether no user asked for a turn: a cron job, or Hermes' own review of a conversation."""
    if platform == "cron" or threading.current_thread().name == _REVIEW_THREAD:
        return True
    messages = request.get("messages") or []
    asked = next((one.get("content") for one in reversed(messages) if isinstance(one, dict) and one.get("role") == "user"), None)
    return isinstance(asked, str) and asked.lstrip().startswith(_REVIEW_TEXT)


def end_session(session: str) -> None:
    """Tell the gateway that a session has ended. A failure is logged: the gateway ends it by itself when it has been idle."""
    url = f"{gateway_url()}/sessions/{quote(session, safe='')}/done"
    request = urllib.request.Request(url, data=b"{}", method="POST", headers={"content-type": "application/json"})
    if key := _key():
        request.add_unredirected_header("authorization", f"Bearer {key}")
    try:
        urllib.request.urlopen(request, timeout=_SECONDS).close()
    except (OSError, ValueError) as error:
        log.warning("the gateway was not told that a session has ended: %s", type(error).__name__)


def register(ctx: Any) -> None:
    """Called by Hermes when it loads the plugin."""
    plugin = Plugin()
    ctx.register_middleware("llm_request", plugin.llm_request)
    for hook in ("subagent_start", "subagent_stop", "on_session_finalize"):
        ctx.register_hook(hook, getattr(plugin, hook))


def _key() -> str:
    if key := os.environ.get("CLAWPIPE_API_KEY", "").strip():
        return key
    try:
        from hermes_cli.config import load_config  # what Hermes itself reads

        model = load_config().get("model")
    except Exception as error:
        log.debug("no key from Hermes' config: %s", type(error).__name__)
        return ""
    if not isinstance(model, dict) or _plain(str(model.get("base_url") or "")) != gateway_url():
        return ""
    return str(model.get("api_key") or "").strip()


def _plain(url: str) -> str:
    return url.strip().rstrip("/")


def _remember(kept: OrderedDict[str, Any], name: str, value: Any) -> None:
    """Keep a value by its name, of the last few thousand names."""
    kept[name] = value
    kept.move_to_end(name)
    while len(kept) > _MOST_PARENTS:
        kept.popitem(last=False)
