"""Calls as JSON objects: as Hermes, Llama 3 and Mistral models write them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from itertools import groupby

from clawpipe.core.conversation.messages import Message, ToolCall, ToolSpec
from clawpipe.data.wire.spelled import spelled_object, split_tagged_calls
from clawpipe.data.wire.thoughts import Found, content_end, split_calls
from clawpipe.model.policy.formats.common import Marker, Parsed, Pieces, before, joined, json_call, json_end, written_json


class Hermes:
    """A JSON object between `<tool_call>` tags, the format that most open models with tools were trained on."""

    markers = ()

    def __init__(self, tools: Sequence[ToolSpec]) -> None:
        self._tools = tuple(tools)

    def describe(self) -> str:
        if not self._tools:
            return ""
        return (
            "You may call one or more functions. Their signatures are within <tools></tools> tags:\n"
            f"<tools>\n{_schemas(self._tools)}\n</tools>\n"
            "For each call return a JSON object with the function's name and arguments within <tool_call></tool_call> tags:\n"
            '<tool_call>\n{"name": <function-name>, "arguments": <args-json-object>}\n</tool_call>'
        )

    def write(self, message: Message) -> Pieces:
        return [joined(message.content, [self._block(call) for call in message.tool_calls])]

    def result(self, message: Message) -> Pieces:
        return [f"<tool_response>\n{message.content}\n</tool_response>"]

    def content_end(self, text: str) -> int:
        return content_end(text, lambda rest: before(rest, "<tool_call>"))

    def parse(self, text: str, turn: int) -> Parsed:
        content, bodies = split_tagged_calls(text)
        return Parsed(content.strip(), tuple(json_call(f"call_{turn}_{index}", body) for index, body in enumerate(bodies)))

    def _block(self, call: ToolCall) -> str:
        safe = spelled_object(call).replace("</tool_call>", r"<\/tool_call>")  # the same JSON, without ending the block
        return f"<tool_call>\n{safe}\n</tool_call>"


class Llama3:
    """JSON objects with "parameters" on a line of their own, several separated by "; ": Llama 3.1 and its successors.

    A line that begins with `{"name":` is read as calls, with or without `<|python_tag|>` before it.
    """

    markers = ()
    _START = re.compile(r'^[ \t]*(?:<\|python_tag\|>\s*)?(?=\{\s*"name"\s*:)', re.MULTILINE)
    _NEXT = re.compile(r"\s*;\s*(?=\{)")
    _OPEN = re.compile(r"^[ \t]*[{<]", re.MULTILINE)

    def __init__(self, tools: Sequence[ToolSpec]) -> None:
        self._tools = tuple(tools)

    def describe(self) -> str:
        if not self._tools:
            return ""
        return (
            "You may call the functions below. To call one, answer with JSON in the format "
            '{"name": function name, "parameters": dictionary of argument name and its value}, and with nothing else. '
            f'Separate several calls by "; ".\n\n{_schemas(self._tools)}'
        )

    def write(self, message: Message) -> Pieces:
        calls = "; ".join(spelled_object(call, "parameters") for call in message.tool_calls)
        return [joined(message.content, [calls] if calls else [])]

    def result(self, message: Message) -> Pieces:
        return [written_json(message.content)]

    def content_end(self, text: str) -> int:
        return content_end(text, self._opening)

    def parse(self, text: str, turn: int) -> Parsed:
        content, bodies = split_calls(text, self._calls)
        calls = [json_call(f"call_{turn}_{index}", body, ("parameters", "arguments")) for index, body in enumerate(bodies)]
        return Parsed(content.strip(), tuple(calls))

    def _opening(self, text: str) -> int:
        found = self._OPEN.search(text)
        return found.start() if found else len(text)

    def _calls(self, text: str, place: int) -> Found | None:
        start = self._START.search(text, place)
        if start is None:
            return None
        spans = list(self._objects(text, start.end()))
        return Found(start.start(), spans[-1][1], tuple(text[begin:end].strip() for begin, end in spans))

    def _objects(self, text: str, start: int) -> Iterator[tuple[int, int]]:
        """Yield the span of each object from `start` on; what is no JSON goes on to the end of the text."""
        while (end := json_end(text, start)) is not None:
            yield start, end
            following = self._NEXT.match(text, end)
            if following is None:
                return
            start = following.end()
        yield start, len(text)


class Mistral:
    """A JSON list after `[TOOL_CALLS]`: Mistral's models from 7B v0.3 to Large 2.

    They number calls themselves; here order does, since ids are no part of what a policy samples.
    """

    markers = _CALLS, _RESULTS, _RESULTS_END = Marker("[TOOL_CALLS]"), Marker("[TOOL_RESULTS]"), Marker("[/TOOL_RESULTS]")

    def __init__(self, tools: Sequence[ToolSpec]) -> None:
        self._tools = tuple(tools)

    def describe(self) -> str:
        if not self._tools:
            return ""
        return (
            f"You may call these functions:\n{_schemas(self._tools)}\n"
            f'To call some, write {self._CALLS} [{{"name": <function-name>, "arguments": <args-json-object>}}].'
        )

    def write(self, message: Message) -> Pieces:
        pieces = [message.content] if message.content else []
        for body in self._bodies(message.tool_calls):
            pieces += [*(["\n"] if pieces else []), self._CALLS, f" {body}"]
        return pieces

    def result(self, message: Message) -> Pieces:
        return [self._RESULTS, f" {written_json({'content': message.content})}", self._RESULTS_END]

    def content_end(self, text: str) -> int:
        return content_end(text, lambda rest: before(rest, self._CALLS))

    def parse(self, text: str, turn: int) -> Parsed:
        content, bodies = split_calls(text, self._list)
        calls: list[ToolCall] = []
        for body in bodies:
            calls += self._read(body, turn, len(calls))
        return Parsed(content.strip(), tuple(calls))

    def _list(self, text: str, place: int) -> Found | None:
        start = text.find(self._CALLS, place)
        if start < 0:
            return None
        end = self._end(text, start + len(self._CALLS))
        return Found(start, end, (text[start + len(self._CALLS) : end].strip(),))

    def _bodies(self, calls: Sequence[ToolCall]) -> Iterator[str]:
        for malformed, group in groupby(calls, key=lambda call: call.malformed):
            bodies = [spelled_object(call) for call in group]
            yield from bodies if malformed else [f"[{', '.join(bodies)}]"]

    def _end(self, text: str, start: int) -> int:
        """Return where the JSON value from `start` on ends; if it is none, where the next marker begins."""
        end = json_end(text, len(text) - len(text[start:].lstrip()))
        following = text.find(self._CALLS, start)
        return end if end is not None else following if following >= 0 else len(text)

    def _read(self, body: str, turn: int, first: int) -> list[ToolCall]:
        try:
            entries = json.loads(body)
        except (ValueError, RecursionError):
            entries = None
        entries = entries if isinstance(entries, list) else []
        calls = [json_call(f"call_{turn}_{first + index}", written_json(entry)) for index, entry in enumerate(entries)]
        if calls and not any(call.malformed for call in calls):
            return calls
        return [ToolCall(f"call_{turn}_{first}", next((call.name for call in calls), ""), body, malformed=True)]


def _schemas(tools: Sequence[ToolSpec]) -> str:
    """Return OpenAI's form of each tool, one per line."""
    return "\n".join(written_json(tool.as_function()) for tool in tools)
