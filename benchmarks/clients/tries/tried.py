"""What the tries of one client share: each is a function, what it raises is what is wrong, and one line of JSON a try says so.

    python CLIENT.py URL KEY MODEL calls

With the word `calls`, the engine calls a tool whenever the prompt says so; else a free turn is text.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from typing import Any

URL, KEY, MODEL = sys.argv[1:4]
ROOT = URL.removesuffix("/v1")
CALLS = "calls" in sys.argv[4:]
ORDER = 'call weather {"city": "Oslo"}'
LIMIT = 200  # tokens of an answer
CITY = {"type": "string", "enum": ["Oslo", "Bergen"]}
PARAMETERS = {"type": "object", "properties": {"city": CITY}, "required": ["city"], "additionalProperties": False}
SKY = {"type": "object", "properties": {"sky": {"type": "string", "enum": ["dry", "wet"]}}, "required": ["sky"]}
SKY |= {"additionalProperties": False}
os.environ |= {"OPENAI_API_KEY": KEY, "OPENAI_BASE_URL": URL, "ANTHROPIC_API_KEY": KEY, "ANTHROPIC_BASE_URL": ROOT}


class Asked:
    """The tool of the tries, and which cities it was asked for."""

    def __init__(self) -> None:
        self.cities: list[str] = []

    def weather(self, city: str) -> str:
        self.cities.append(city)
        return "dry"

    def check(self, said: Any) -> None:
        """Raises AssertionError if the tool was not called where the engine calls it, or nothing was said in the end."""
        assert said, "nothing was said"
        assert self.cities == ["Oslo"] or not CALLS, f"the tool was asked for {self.cities}"


def check_arguments(arguments: str | dict[str, Any]) -> None:
    """Raises AssertionError if a forced call does not fit its schema."""
    given = json.loads(arguments) if isinstance(arguments, str) else arguments
    assert given.get("city") in CITY["enum"], f"the call does not fit: {given}"


def check_sky(value: str | dict[str, Any]) -> None:
    given = json.loads(value) if isinstance(value, str) else value
    assert given.get("sky") in SKY["properties"]["sky"]["enum"], f"the answer does not fit: {given}"


def check_parts(parts: list[str]) -> None:
    assert sum(map(bool, parts)) > 1, f"{len(parts)} parts"


def run(tries: dict[str, Callable[[], Any]]) -> None:
    for name, one in tries.items():
        try:
            one()
            print(json.dumps({"try": name, "ok": True}), flush=True)
        except BaseException as error:
            why = " ".join(f"{type(error).__name__}: {error}".split())[:400]
            print(json.dumps({"try": name, "ok": False, "why": why}), flush=True)
