"""A scripted engine that speaks chat completions, as a process: `python engine.py PORT`. It does what a good model would do.

What was said since the last answer decides. `call NAME {...}` calls that tool, if it is offered; a forced call and a JSON Schema
are answered with the least that fits; after a tool's result, and to anything else, it says a sentence. A client that ends its work
by a forced tool (`final_answer`, `final_result`) is given that call. It says the tokens of its answers as vLLM does, one a word.
"""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Iterator
from typing import Any

from aiohttp import web

_ORDER = re.compile(r"call (\w+) (\{.*?\})\s*(?:\n|$|<|\")")
_LOGPROB = math.log(0.5)


def least(schema: dict[str, Any], root: dict[str, Any]) -> Any:
    """Return the least value that fits a JSON Schema."""
    if "$ref" in schema:
        return least(root["$defs"][schema["$ref"].rpartition("/")[2]], root)
    for name in ("const", "enum", "anyOf", "oneOf", "allOf"):
        if name in schema:
            given = schema[name]
            return given if name == "const" else given[0] if name == "enum" else least(given[0], root)
    kind = schema.get("type", "string")
    if kind == "object":
        return {name: least(schema["properties"][name], root) for name in schema.get("required", ())}
    return {"array": [], "integer": 1, "number": 1, "boolean": True, "null": None}.get(kind, "dry")


def text_of(message: dict[str, Any]) -> str:
    content = message.get("content") or ""
    return content if isinstance(content, str) else "\n".join(part.get("text", "") for part in content)


def recent(body: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the messages since the last answer: what a person or tools said, and reminders of the client beside it."""
    later: list[dict[str, Any]] = []
    for message in body["messages"]:
        later = [] if message["role"] == "assistant" else [*later, message]
    return later


def results_of(body: dict[str, Any]) -> list[str]:
    return [text_of(message) for message in recent(body) if message["role"] == "tool"]


def call_of(body: dict[str, Any]) -> dict[str, Any] | None:
    """Return the function that the answer calls; None if it says something."""
    tools = {tool["function"]["name"]: tool["function"].get("parameters") or {"type": "object"} for tool in body.get("tools") or ()}
    choice = body.get("tool_choice", "auto")
    if not tools or choice == "none":
        return None
    order = None if results_of(body) else _ORDER.search("\n".join(map(text_of, recent(body))))
    if order and order[1] in tools:
        return {"name": order[1], "arguments": order[2]}
    if choice == "auto":
        return None
    is_later = any(message["role"] == "assistant" for message in body["messages"])
    final = [name for name in tools if name.startswith("final_")] if is_later else []
    name = choice["function"]["name"] if isinstance(choice, dict) else [*final, *tools][0]
    return {"name": name, "arguments": json.dumps(least(tools[name], tools[name]))}


def answer_of(body: dict[str, Any]) -> tuple[list[str], dict[str, Any] | None]:
    """Return the words of the answer, and the function that it calls."""
    if call := call_of(body):
        return ["I ", "look. "], call
    wanted = body.get("response_format") or {}
    if wanted.get("type") == "json_schema":
        schema = wanted["json_schema"]["schema"]
        return [json.dumps(least(schema, schema))], None
    if wanted.get("type") == "json_object":
        return ["{}"], None
    results = results_of(body)
    seen = f"The tool says {results[-1]}" if results else "It is dry in Oslo."
    return [f"{word} " for word in seen.split()], None


def choice_of(body: dict[str, Any], place: str, said: dict[str, Any], ids: list[int], reason: str | None) -> dict[str, Any]:
    choice: dict[str, Any] = {"index": 0, place: said, "finish_reason": reason, "logprobs": None}
    if body.get("logprobs"):
        top = {"token": "x", "logprob": _LOGPROB, "bytes": [120]}
        choice["logprobs"] = {"content": [top | {"top_logprobs": [top][: body.get("top_logprobs") or 0]} for _ in ids]}
    return choice | ({"token_ids": ids} if body.get("return_token_ids") else {})


def usage_of(body: dict[str, Any], sampled: int) -> dict[str, int]:
    prompt = len(body["messages"])
    return {"prompt_tokens": prompt, "completion_tokens": sampled, "total_tokens": prompt + sampled}


def head_of(body: dict[str, Any], kind: str) -> dict[str, Any]:
    ids = {"prompt_token_ids": list(range(len(body["messages"])))} if body.get("return_token_ids") else {}
    return {"id": "chatcmpl-1", "object": kind, "created": 1, "model": body["model"], **ids}


def whole(body: dict[str, Any]) -> dict[str, Any]:
    words, function = answer_of(body)
    ids = [100 + place for place in range(len(words) + bool(function))]
    said: dict[str, Any] = {"role": "assistant", "content": "".join(words)}
    said |= {"tool_calls": [{"id": "call_1", "type": "function", "function": function}]} if function else {}
    choice = choice_of(body, "message", said, ids, "tool_calls" if function else "stop")
    return head_of(body, "chat.completion") | {"choices": [choice], "usage": usage_of(body, len(ids))}


def chunks(body: dict[str, Any]) -> Iterator[dict[str, Any]]:
    words, function = answer_of(body)
    head = head_of(body, "chat.completion.chunk")
    for place, word in enumerate(words):
        delta = ({"role": "assistant"} if place == 0 else {}) | {"content": word}
        yield head | {"choices": [choice_of(body, "delta", delta, [100 + place], None)]}
    if function:
        call = {"index": 0, "id": "call_1", "type": "function", "function": function}
        yield head | {"choices": [choice_of(body, "delta", {"tool_calls": [call]}, [100 + len(words)], None)]}
    yield head | {"choices": [choice_of(body, "delta", {}, [], "tool_calls" if function else "stop")]}
    if (body.get("stream_options") or {}).get("include_usage"):
        yield head | {"choices": [], "usage": usage_of(body, len(words) + bool(function))}


async def chat(request: web.Request) -> web.StreamResponse:
    body = await request.json()
    if not body.get("stream"):
        return web.json_response(whole(body))
    response = web.StreamResponse(headers={"content-type": "text/event-stream"})
    await response.prepare(request)
    for chunk in chunks(body):
        await response.write(f"data: {json.dumps(chunk)}\n\n".encode())
    await response.write(b"data: [DONE]\n\n")
    return response


async def models(_: web.Request) -> web.Response:
    card = {"id": "agent", "object": "model", "created": 1, "owned_by": "script", "max_model_len": 262_144}
    return web.json_response({"object": "list", "data": [card]})


if __name__ == "__main__":
    app = web.Application(client_max_size=64 << 20)
    app.add_routes([web.post("/v1/chat/completions", chat), web.get("/v1/models", models)])
    web.run_app(app, host="127.0.0.1", port=int(sys.argv[1]), print=None)
