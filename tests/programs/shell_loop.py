"""An agent that needs Python alone: what the policy says is run by the shell, and what that wrote is said back."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from urllib.request import Request, urlopen


def asked(messages: list[dict[str, str]]) -> str:
    body = json.dumps({"model": "policy", "messages": messages}).encode()
    headers = {"authorization": f"Bearer {os.environ['OPENAI_API_KEY']}", "content-type": "application/json"}
    with urlopen(Request(f"{os.environ['OPENAI_BASE_URL']}/chat/completions", body, headers)) as answer:
        return json.load(answer)["choices"][0]["message"]["content"]


messages = [{"role": "user", "content": sys.stdin.read()}]
while (said := asked(messages)) != "done":
    wrote = subprocess.run(["sh", "-c", said], check=False, capture_output=True, text=True)
    messages += [{"role": "assistant", "content": said}, {"role": "user", "content": wrote.stdout + wrote.stderr}]
