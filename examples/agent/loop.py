"""A whole agent in thirty lines: it asks, runs the tools that the answer calls, and asks again, until an answer calls none.

It knows nothing of clawpipe: where to ask, and with which key, stands in the variables that OpenAI's clients read.
"""

import json
import os
import sys
import urllib.request


def look(what: str) -> str:
    return f"There is nothing about {what}."


TOOLS = [{"type": "function", "function": {"name": "look", "description": "Look something up.",
          "parameters": {"type": "object", "properties": {"what": {"type": "string"}}}}}]  # fmt: skip


def ask(messages: list) -> dict:
    body = {"model": os.environ.get("OPENAI_MODEL", "gpt-5"), "messages": messages, "tools": TOOLS}
    head = {"authorization": f"Bearer {os.environ['OPENAI_API_KEY']}", "content-type": "application/json"}
    request = urllib.request.Request(f"{os.environ['OPENAI_BASE_URL']}/chat/completions", json.dumps(body).encode(), head)
    with urllib.request.urlopen(request, timeout=600) as answer:
        return json.load(answer)["choices"][0]["message"]


messages = [{"role": "user", "content": sys.stdin.read()}]
messages.append(ask(messages))
while calls := messages[-1].get("tool_calls"):
    for call in calls:
        found = look(**json.loads(call["function"]["arguments"]))
        messages.append({"role": "tool", "tool_call_id": call["id"], "content": found})
    messages.append(ask(messages))
print(messages[-1]["content"])
