"""Read what LiteLLM logs of a call, its `StandardLoggingPayload`: what its callbacks for files, S3, GCS and so on write.

    {"id", "trace_id", "call_type", "status", "messages", "response", "end_user", "model", "model_parameters", "metadata"}

    {"request_id", "call_type", "spend", "messages", "response", "proxy_server_request", "session_id", "user"}

The second is a row of its database's `LiteLLM_SpendLogs`. `trace_id` is the session, `end_user` the user, else the one whose key it
was. A call that failed is refused.
"""

from __future__ import annotations

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.data.importers.formats.traces.sides import answered_of, asked_of, read_log
from clawpipe.data.importers.record import Conversation
from clawpipe.data.importers.strict_json import RefusedError
from clawpipe.data.importers.values import name_of, object_of, text_of, without

_MARKS = ("call_type", "response_cost", "model_parameters")
_SPENT = ("request_id", "call_type", "spend")
_TAKEN = ("messages", "response", "end_user", "trace_id", "session_id", "model_parameters", "proxy_server_request")


def is_litellm(record: JsonObject) -> bool:
    return "response" in record and (_is_spent(record) or ("messages" in record and sum(name in record for name in _MARKS) > 1))


def _is_spent(record: JsonObject) -> bool:
    return all(name in record for name in _SPENT)


def read_litellm(record: JsonObject) -> list[Conversation]:
    """Read a logged call.

    Raises:
        RefusedError: it failed, or holds no messages, or blanked ones (`turn_off_message_logging`).
    """
    if record.get("status") not in ("success", None):
        raise RefusedError("a call in LiteLLM's log that failed")
    sent = object_of(record.get("proxy_server_request"))
    asked, answer = asked_of(record.get("messages")) or asked_of(sent), answered_of(record["response"])
    if asked is None or answer is None:
        raise RefusedError("a call in LiteLLM's log without messages, or without an answer")
    metadata, parameters = object_of(record.get("metadata")), object_of(record.get("model_parameters")) or _settings(sent)
    known = {
        "session_id": name_of(record, "trace_id", "session_id"),
        "user": name_of(record, "end_user")
        or name_of(metadata, "user_api_key_end_user_id", "user_api_key_user_id")
        or (name_of(record, "user") if _is_spent(record) else None),
        "model": text_of(record.get("model")),
    }
    named = {name: value for name, value in known.items() if value}
    rest = without(record, *_TAKEN)
    sampling = {name: value for name, value in parameters.items() if name not in asked and value is not None}
    return read_log("a call in LiteLLM's log", named | {"request": sampling | asked, "response": answer, "export": rest})


def _settings(sent: JsonObject) -> JsonObject:
    """Return what a request said beside its messages; a row of the database has it in the request that the proxy got."""
    return without(sent, "messages", "input", "metadata", "user", "litellm_metadata")
