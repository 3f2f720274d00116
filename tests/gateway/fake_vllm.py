"""A fake of vLLM's OpenAI server, as a process: its documented shapes, and the answers that a test asks for.

    python fake_vllm.py SOCKET_FD [--raw] [--ignorant] [--strict] [--picky] [--litellm] [--slow SECONDS]

It answers withthe words of the last user message, one token a word. The id of a token is 100 + its place, of the prompt's
tokens 1, 2, 3 and so on. Log-probs are those of a distribution of three tokens with logits 2, 1, 0; it samples the first.
`--ignorant` takes the questions for tokens and does not answer them, `--lora` knows the model `base-model` and the adapters
that it was told to load (`POST /fake/forget` unloads all), `--strict` refuses what OpenAI does not name, `--litellm` puts ids
where LiteLLM does, `--picky` refuses the questions for tokens beside a message of the words "an odd one", and a message of the
words "leak 401" is answered by that status and the key. `GET /fake/asked` returns all requests, and which of them were
cancelled.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import socket
from pathlib import Path

import aiohttp.web as web

LOGITS = {"a": 2.0, "b": 1.0, "c": 0.0}
STRICT = {"return_token_ids", "include_reasoning", "top_k"}
arguments = argparse.ArgumentParser()
arguments.add_argument("fd", type=int)
for name in ("raw", "ignorant", "strict", "picky", "litellm", "hang", "broken", "lora"):
    arguments.add_argument(f"--{name}", action="store_true")
arguments.add_argument("--slow", type=float, default=0.0)
arguments.add_argument("--default", type=float, default=1.0)
told = arguments.parse_args()
asked: list[dict] = []
opinions: list[dict] = []
adapters: dict[str, str] = {}
release = asyncio.Event()


def logprobs(temperature: float) -> dict[str, float]:
    heat = 1.0 if told.raw else temperature
    total = math.log(sum(math.exp(value / heat) for value in LOGITS.values()))
    return {token: value / heat - total for token, value in LOGITS.items()}


def content(message: dict) -> str:
    given = message.get("content") or ""
    return given if isinstance(given, str) else "".join(part.get("text", "") for part in given)


def spoken(body: dict) -> list[str]:
    last = next((content(one) for one in reversed(body["messages"]) if one["role"] in ("user", "tool")), "nothing")
    return [word + " " for word in last.split()][: body.get("max_tokens") or body.get("max_completion_tokens") or 10**6]


def prompt_ids(body: dict) -> list[int]:
    """One id a message, by its text: a history that continues another one's begins with its tokens."""
    ids: list[int] = []
    for message in body["messages"]:
        if message["role"] == "assistant":
            ids += [100 + place for place, _ in enumerate(content(message).split())]
        else:
            ids.append(1 + sum(content(message).encode()) % 90)
    return ids


def entry(body: dict) -> dict:
    found = logprobs(body.get("temperature", told.default))
    top = [{"token": token, "logprob": value} for token, value in found.items()][: body.get("top_logprobs") or 0]
    return {"token": "a", "logprob": found["a"], "top_logprobs": top}


def tokens_of(body: dict, ids: list[int]) -> dict:
    """The fields of a choice that tell of its tokens, if they were asked for."""
    if told.ignorant:
        return {"logprobs": None}
    fields: dict = {"logprobs": {"content": [entry(body) for _ in ids]} if body.get("logprobs") else None}
    if body.get("return_token_ids"):
        fields |= {"provider_specific_fields": {"token_ids": ids}} if told.litellm else {"token_ids": ids}
    return fields


def head(body: dict, kind: str) -> dict:
    return {"id": f"chatcmpl-{len(asked)}", "object": kind, "created": 1, "model": body["model"]}


def message_of(body: dict, words: list[str]) -> dict:
    message: dict = {"role": "assistant", "content": "".join(words)}
    if body.get("include_reasoning") is not False and "think" in words[0]:
        message["reasoning_content"] = "Hmm."
    if body.get("tools"):
        message["tool_calls"] = [{"id": "call_1", "type": "function", "function": {"name": "look", "arguments": '{"at": 1}'}}]
    return message


def whole(body: dict) -> dict:
    words = spoken(body)
    ids = [100 + place for place, _ in enumerate(words)]
    choices = [
        {"index": index, "message": message_of(body, words), "finish_reason": "stop", "stop_reason": None, **tokens_of(body, ids)}
        for index in range(body.get("n") or 1)
    ]
    answer = head(body, "chat.completion") | {"choices": choices, "usage": usage(body, len(ids) * len(choices))}
    if body.get("return_token_ids") and not told.ignorant:
        answer["prompt_token_ids"] = prompt_ids(body)
    return answer


def usage(body: dict, completion: int) -> dict:
    prompt = len(prompt_ids(body))
    return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}


def chunks(body: dict):
    start, words = head(body, "chat.completion.chunk"), spoken(body)
    first: dict = start | {"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}, "logprobs": None}]}
    if body.get("return_token_ids") and not told.ignorant:
        first["prompt_token_ids"] = prompt_ids(body)
    yield first
    if body.get("include_reasoning") is not False and "think" in words[0]:
        yield start | {"choices": [{"index": 0, "delta": {"reasoning_content": "Hmm."}, "logprobs": None, "finish_reason": None}]}
    for place, word in enumerate(words):
        choice = {"index": 0, "delta": {"content": word}, "finish_reason": None, **tokens_of(body, [100 + place])}
        yield start | {"choices": [choice]}
    if body.get("tools"):
        for delta in ({"id": "call_1", "type": "function", "function": {"name": "look", "arguments": ""}},
                      {"function": {"arguments": '{"at"'}}, {"function": {"arguments": ": 1}"}}):  # fmt: skip
            yield start | {"choices": [{"index": 0, "delta": {"tool_calls": [{"index": 0, **delta}]}, "logprobs": None}]}
    yield start | {"choices": [{"index": 0, "delta": {}, "logprobs": None, "finish_reason": "stop"}]}
    if (body.get("stream_options") or {}).get("include_usage"):
        yield start | {"choices": [], "usage": usage(body, len(words))}


async def chat(request: web.Request) -> web.StreamResponse:
    body = await request.json()
    asked.append({"body": body, "key": request.headers.get("authorization"), "cancelled": False})
    mine = asked[-1]
    if told.strict and (foreign := STRICT & body.keys()):
        return web.json_response({"error": {"message": f"unknown: {sorted(foreign)}"}}, status=400)
    if body["model"] == "missing" or (told.lora and body["model"] not in ("base-model", *adapters)):
        return web.json_response({"error": {"message": "no such model", "type": "NotFoundError"}}, status=404)
    if told.picky and content(body["messages"][-1]) == "an odd one" and "return_token_ids" in body:
        return web.json_response({"error": {"message": "not beside this"}}, status=400)
    if (last := content(body["messages"][-1])).startswith("leak "):
        return leaking(int(last.split()[1]), request.headers["authorization"])
    if last.startswith("confess"):
        return await confessing(request, bool(body.get("stream")))
    if not body.get("stream"):
        return web.json_response(whole(body))
    response = web.StreamResponse(headers={"content-type": "text/event-stream", "x-clawpipe-policy-version": "f" * 16})
    await response.prepare(request)
    try:
        for number, chunk in enumerate(chunks(body)):
            await response.write(f"data: {json.dumps(chunk)}\n\n".encode())
            await asyncio.sleep(told.slow)
            if told.hang and number == 2:
                await release.wait()
            if told.broken and number == 2:
                request.transport.abort()
    except (asyncio.CancelledError, ConnectionError):
        mine["cancelled"] = True
        raise
    await response.write(b"data: [DONE]\n\n")
    return response


def leaking(status: int, key: str) -> web.Response:
    error = {"message": f"Incorrect API key provided: {key}", "type": "invalid_request_error", "code": "invalid_api_key"}
    headers = {"x-request-id": f"for {key}", "retry-after": "7", "x-ratelimit-limit-requests": "60"}
    return web.json_response({"error": error}, status=status, headers=headers)


async def confessing(request: web.Request, stream: bool) -> web.StreamResponse:
    """An error that holds the key in an answer with the status 200."""
    error = {"error": {"message": f"refused: {request.headers['authorization']}", "type": "x", "code": 401}}
    if not stream:
        return web.json_response(error)
    response = web.StreamResponse(headers={"content-type": "text/event-stream"})
    await response.prepare(request)
    await response.write(f"data: {json.dumps(error)}\n\ndata: [DONE]\n\n".encode())
    return response


async def tell(_: web.Request) -> web.Response:
    return web.json_response(asked)


async def take_opinion(request: web.Request) -> web.Response:
    opinions.append(await request.json())
    return web.json_response({}, status=201)


async def tell_opinions(_: web.Request) -> web.Response:
    return web.json_response(opinions)


async def go_on(_: web.Request) -> web.Response:
    release.set()
    return web.json_response({})


async def healthy(_: web.Request) -> web.Response:
    return web.Response()


async def models(_: web.Request) -> web.Response:
    if told.lora:
        loaded = [{"id": name, "object": "model", "parent": "base-model", "root": path} for name, path in adapters.items()]
        base = {"id": "base-model", "object": "model", "max_model_len": 4096}
        return web.json_response({"object": "list", "data": [base, *loaded]})
    return web.json_response({"object": "list", "data": [{"id": "agent", "object": "model"}]})


async def load_adapter(request: web.Request) -> web.Response:
    body = await request.json()
    if body["lora_name"] in adapters or not Path(body["lora_path"], "adapter_model.safetensors").exists():
        return web.json_response({"error": {"message": "it is loaded, or there is no such adapter"}}, status=400)
    adapters[body["lora_name"]] = body["lora_path"]
    return web.json_response({})


async def unload_adapter(request: web.Request) -> web.Response:
    known = adapters.pop((await request.json())["lora_name"], None)
    return web.json_response({}, status=200 if known else 404)


async def forget(_: web.Request) -> web.Response:
    adapters.clear()
    return web.json_response({})


async def echo(request: web.Request) -> web.Response:
    sent = {name.lower(): value for name, value in request.headers.items()}
    return web.json_response({"path": request.path_qs, "body": await request.json(), "headers": sent})


async def completions(request: web.Request) -> web.StreamResponse:
    """Text completions in vLLM's shape: ids in the choice, log-probs as lists."""
    body = await request.json()
    asked.append({"body": body, "key": request.headers.get("authorization"), "cancelled": False})
    words = [word + " " for word in str(body["prompt"]).split()]
    start = {"id": f"cmpl-{len(asked)}", "object": "text_completion", "created": 1, "model": body["model"]}

    def choice(parts: list[str], first: int, reason: str | None) -> dict:
        found: dict = {"index": 0, "text": "".join(parts), "finish_reason": reason, "logprobs": None}
        if body.get("logprobs") is not None:
            found["logprobs"] = {
                "tokens": parts,
                "token_logprobs": [logprobs(body.get("temperature", told.default))["a"]] * len(parts),
            }
        if body.get("return_token_ids"):
            found |= {"token_ids": [100 + first + place for place, _ in enumerate(parts)]}
            found |= {"prompt_token_ids": [7, 8] if first == 0 else None}
        return found

    if not body.get("stream"):
        said = {"prompt_tokens": 2, "completion_tokens": len(words), "total_tokens": 2 + len(words)}
        return web.json_response(start | {"choices": [choice(words, 0, "stop")], "usage": said})
    response = web.StreamResponse(headers={"content-type": "text/event-stream"})
    await response.prepare(request)
    for place, word in enumerate(words):
        reason = "stop" if place == len(words) - 1 else None
        await response.write(f"data: {json.dumps(start | {'choices': [choice([word], place, reason)]})}\n\n".encode())
    await response.write(b"data: [DONE]\n\n")
    return response


def response_of(body: dict, output: list[dict], status: str) -> dict:
    said = {"input_tokens": 5, "output_tokens": 3, "total_tokens": 8} if status == "completed" else None
    return {"id": f"resp_{len(asked)}", "object": "response", "created_at": 1, "model": body["model"], "status": status,
            "output": output, "usage": said, "tools": body.get("tools", [])}  # fmt: skip


def response_items(body: dict) -> list[dict]:
    last = body["input"] if isinstance(body["input"], str) else body["input"][-1]
    text = last if isinstance(last, str) else last.get("output") or content(last)
    parts = [{"type": "output_text", "text": text, "annotations": []}]
    said = {"id": "msg_1", "type": "message", "role": "assistant", "status": "completed", "content": parts}
    call = {
        "id": "fc_1",
        "type": "function_call",
        "call_id": "call_1",
        "name": "look",
        "arguments": '{"at": 1}',
        "status": "completed",
    }
    return [said, *([call] if body.get("tools") and text != "4" else [])]


def response_events(body: dict):
    yield {"type": "response.created", "response": response_of(body, [], "in_progress")}
    items = response_items(body)
    for place, item in enumerate(items):
        yield {"type": "response.output_item.added", "output_index": place, "item": item | {"content": []}}
        for word in item["content"][0]["text"].split(" ") if "content" in item else ():
            yield {
                "type": "response.output_text.delta",
                "output_index": place,
                "item_id": "msg_1",
                "content_index": 0,
                "delta": word,
            }
        yield {"type": "response.output_item.done", "output_index": place, "item": item}
    yield {"type": "response.completed", "response": response_of(body, items, "completed")}


async def responses(request: web.Request) -> web.StreamResponse:
    """OpenAI's Responses API, as hosted services and vLLM have it: items, named events, no `[DONE]`."""
    body = await request.json()
    asked.append({"body": body, "key": request.headers.get("authorization"), "cancelled": False})
    if not body.get("stream"):
        return web.json_response(response_of(body, response_items(body), "completed"))
    response = web.StreamResponse(headers={"content-type": "text/event-stream"})
    await response.prepare(request)
    for number, event in enumerate(response_events(body)):
        data = json.dumps(event | {"sequence_number": number})
        await response.write(f"event: {event['type']}\ndata: {data}\n\n".encode())
        if told.broken and number == 3:
            request.transport.abort()
    return response


async def moved(_: web.Request) -> web.Response:
    return web.Response(status=302, headers={"location": "http://127.0.0.1:1/"})


app = web.Application(client_max_size=64 << 20)
app.add_routes([
    web.post("/v1/chat/completions", chat), web.get("/v1/models", models), web.get("/fake/asked", tell),
    web.post("/v1/feedback", take_opinion), web.get("/fake/opinions", tell_opinions),
    web.post("/fake/go", go_on), web.post("/v1/completions", completions), web.post("/v1/embeddings", echo),
    web.post("/v1/responses", responses), web.get("/v1/models/moved", moved), web.post("/pause", echo),
    web.post("/v1/load_lora_adapter", load_adapter), web.post("/v1/unload_lora_adapter", unload_adapter),
    web.post("/fake/forget", forget), web.get("/health", healthy),
])  # fmt: skip

if __name__ == "__main__":
    web.run_app(app, sock=socket.socket(fileno=told.fd), print=None, handler_cancellation=True)
