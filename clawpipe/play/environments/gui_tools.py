"""What the policy of the environment `gui` is told: its tools, and examples of their use."""

from __future__ import annotations

import json

from clawpipe.core.conversation.messages import Message, ToolCall, ToolSpec

SYSTEM = "You work on a web page. Its elements are listed with their ids. Do what the user asks, one call at a time."
TOOLS = (
    ToolSpec("click", "Click an element.", {"id": "string"}),
    ToolSpec("type", "Replace the text of an element.", {"id": "string", "text": "string"}),
    ToolSpec("select", "Choose an option of a list.", {"id": "string", "option": "string"}),
    ToolSpec("press", "Press a key, such as Enter, Tab or Control+A.", {"key": "string"}),
    ToolSpec("scroll", "Scroll an element up or down.", {"id": "string", "direction": "string"}),
)
TRAVEL = ToolSpec("go", "Open another page of this site.", {"url": "string"})


def _call(number: int, tool: str, **arguments: str) -> list[Message]:
    return [Message("assistant", "", (ToolCall(f"call_{number}", tool, json.dumps(arguments)),))]


def _shown(number: int, tool: str, page: str) -> list[Message]:
    return [Message("tool", page, tool_call_id=f"call_{number}", name=tool)]


_FORM = '1 textbox "Name"{}\n2 combobox "Town"\n3 button "Save"'
EXAMPLES = (
    Message("user", 'Press the button Later.\n\n1 heading "News"\n2 button "Now"\n3 button "Later"'),
    *_call(0, "click", id="3"),
    *_shown(0, "click", "The task has ended."),
    Message("user", "Enter Ada as the name, then save.\n\n" + _FORM.format("")),
    *_call(1, "type", id="1", text="Ada"),
    *_shown(1, "type", _FORM.format(": Ada")),
    *_call(2, "click", id="3"),
    *_shown(2, "click", "The task has ended."),
)
