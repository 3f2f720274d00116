"""An agent in thirty lines for benchmarks/learns.py: it asks, looks things up in a shop over HTTP, and asks again.

    python learns_loop.py shown.json < task      with SHOP_URL, and what OpenAI's clients read, in its environment

It begins with the messages of shown.json and offers the tools there. It knows nothing of clawpipe.
"""

import json
import os
import sys
import urllib.error
import urllib.request

MOST = 3  # answers


def post(url: str, body: dict) -> dict:
    head = {"authorization": f"Bearer {os.environ['OPENAI_API_KEY']}", "content-type": "application/json"}
    with urllib.request.urlopen(urllib.request.Request(url, json.dumps(body).encode(), head), timeout=600) as answer:
        return json.load(answer)


def look_up(call: dict) -> str:
    try:
        return post(f"{os.environ['SHOP_URL']}/call", call["function"])["result"]
    except urllib.error.HTTPError as error:
        return f"error: {error.reason}"


with open(sys.argv[1]) as file:
    shown = json.load(file)
messages = [*shown["messages"], {"role": "user", "content": sys.stdin.read()}]
for _ in range(MOST):
    body = {"model": os.environ["OPENAI_MODEL"], "messages": messages, "tools": shown["tools"]}
    messages.append(post(f"{os.environ['OPENAI_BASE_URL']}/chat/completions", body)["choices"][0]["message"])
    if not messages[-1].get("tool_calls"):
        break
    messages += [{"role": "tool", "tool_call_id": call["id"], "content": look_up(call)} for call in messages[-1]["tool_calls"]]
