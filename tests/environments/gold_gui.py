"""Scripted agents that solve pages of MiniWoB by reading what the policy reads: the instruction and the page as text."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator

from clawpipe.core.conversation.messages import Message, ToolCall
from clawpipe.play.environments.base import TaskItem
from clawpipe.play.environments.ending import Ending
from clawpipe.play.environments.gui import GuiEnvironment
from clawpipe.play.environments.play import Play

Action = tuple[str, dict[str, str]]
See = Callable[[], str]
Agent = Callable[[str, See], Iterator[Action]]


def element(page: str, pattern: str) -> str:
    """Return the id of the first element whose line matches."""
    return next(line.split()[0] for line in page.splitlines() if re.match(rf"\d+ {pattern}", line))


def click(see: See, pattern: str) -> Action:
    return "click", {"id": element(see(), pattern)}


def named(kind: str) -> Agent:
    """An agent that clicks on the element of this kind that the instruction quotes."""

    def agent(instruction: str, see: See) -> Iterator[Action]:
        quoted = re.findall('"(.*?)"', instruction)
        yield click(see, f'{kind} "{re.escape(quoted[-1])}"')

    return agent


def in_order(*patterns: str) -> Agent:
    """An agent that clicks on these, whatever the instruction."""

    def agent(instruction: str, see: See) -> Iterator[Action]:
        for pattern in patterns:
            yield click(see, pattern)

    return agent


def chosen(kind: str) -> Agent:
    """An agent that clicks on all that the instruction lists, then on Submit."""

    def agent(instruction: str, see: See) -> Iterator[Action]:
        listed = re.match("Select (.*?) and click", instruction)[1]
        for name in [] if listed == "nothing" else listed.split(", "):
            yield click(see, f'{kind} "{re.escape(name)}"')
        yield click(see, 'button "Submit"')

    return agent


def written(*fields: str, button: str = "Submit") -> Agent:
    """An agent that types what the instruction quotes into these fields, in turn."""

    def agent(instruction: str, see: See) -> Iterator[Action]:
        words = re.findall('"(.*?)"', instruction)
        boxes = [line.split()[0] for line in see().splitlines() if re.match(r"\d+ textbox", line)]
        for place, _ in enumerate(fields):
            yield "type", {"id": boxes[place], "text": words[place % len(words)]}
        yield click(see, f'button "{button}"')

    return agent


def choose_list(instruction: str, see: See) -> Iterator[Action]:
    yield "select", {"id": element(see(), "combobox"), "option": re.match("Select (.*) from", instruction)[1]}
    yield click(see, 'button "Submit"')


def click_tab(instruction: str, see: See) -> Iterator[Action]:
    yield click(see, f'link "{re.match("Click on (.*)[.]", instruction)[1]}"')


def simple_arithmetic(instruction: str, see: See) -> Iterator[Action]:
    left, sign, right = re.search(r"(\d+) ?([-+x]) ?(\d+)", see()).groups()
    result = {"+": int(left) + int(right), "-": int(left) - int(right), "x": int(left) * int(right)}[sign]
    yield "type", {"id": element(see(), "textbox"), "text": str(result)}
    yield click(see, 'button "Submit"')


def enter_date(instruction: str, see: See) -> Iterator[Action]:
    month, day, year = re.search(r"(\d+)/(\d+)/(\d+)", instruction).groups()
    yield "type", {"id": element(see(), "(textbox|Date)"), "text": f"{year}-{month}-{day}"}
    yield click(see, 'button "Submit"')


def click_dialog_2(instruction: str, see: See) -> Iterator[Action]:
    word = re.search('"(.*?)"', instruction)[1]
    yield click(see, f'button "{"Close" if word == "x" else word}"')


GOLD: dict[str, Agent] = {
    "click-button": named("button"),
    "click-button-sequence": in_order('button "ONE"', 'button "TWO"'),
    "click-checkboxes": chosen("checkbox"),
    "click-checkboxes-large": chosen("checkbox"),
    "click-checkboxes-transfer": chosen("checkbox"),
    "click-collapsible": in_order('tab "Section', 'button "Submit"'),
    "click-dialog": in_order('button "Close"'),
    "click-dialog-2": click_dialog_2,
    "click-option": chosen("radio"),
    "click-tab": click_tab,
    "click-test": in_order("button"),
    "click-test-2": in_order('button "ONE"'),
    "choose-list": choose_list,
    "enter-password": written("password", "again"),
    "enter-text": written("text"),
    "enter-text-dynamic": written("text"),
    "focus-text": in_order("textbox"),
    "login-user": written("name", "password", button="Login"),
    "simple-arithmetic": simple_arithmetic,
    "unicode-test": named("button"),
}


def play(environment: GuiEnvironment, item: TaskItem, agent: Agent) -> Ending:
    """Play an episode with an agent, and return how it ended."""
    instruction, _, first = item.messages[0].content.partition("\n\n")
    messages, running, seen = list(item.messages), Play(environment, item, 0), [first]
    for tool, arguments in agent(instruction, lambda: seen[-1]):
        messages.append(Message("assistant", "", (ToolCall("c", tool, json.dumps(arguments)),)))
        answer = running.answer(messages)
        messages += answer.messages
        seen.append(messages[-1].content)
        if answer.done:
            break
    running.end("done")
    return running.ending
