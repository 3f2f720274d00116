"""Write an Ollama Modelfile: the weights, how Ollama writes a conversation, what ends a turn, and how episodes began.

A policy has to read what it was trained on, so the template is made of the frame and the tool-call format that rendered its rows,
not of the model's own chat template. Ollama's templates are Go's; it joins messages of one role that follow each other before.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from clawpipe.core.conversation.messages import Message, ToolCall, ToolCallFormat, ToolSpec, WrittenFormat
from clawpipe.model.policy.calls import codec
from clawpipe.model.policy.formats.common import Marker, written_json
from clawpipe.model.policy.frames import Frame, RoleFrame, frame_of
from clawpipe.model.policy.template import open_renderer, written_format
from clawpipe.model.policy.vocabulary import load_tokenizer

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

_READ_BY_OLLAMA = ("hermes", "llama3", "mistral")  # formats whose calls are JSON objects, the only ones that Ollama finds in a text
_ONE, _OTHER = "\ue000", "\ue001"  # stand for what differs between two calls, tools or messages
_TOOL = (
    '{"type": "function", "function": {"name": {{ json .Function.Name }}, "description": {{ json .Function.Description }}, '
    '"parameters": {{ json .Function.Parameters }}}}'
)
_ARGUMENTS = (
    '{{ "{" }}{{ $more := false }}{{ range $name, $value := .Function.Arguments }}'
    "{{ if $more }}, {{ end }}{{ json $name }}: {{ json $value }}{{ $more = true }}{{ end }}}"
)
_QUOTES = '"""'


class Episode(NamedTuple):
    """How a policy's episodes began."""

    title: str = "a policy"
    tools: tuple[ToolSpec, ...] = ()
    preamble: tuple[Message, ...] = ()


class Modelfile(NamedTuple):
    """The lines of a Modelfile after its first, and what they do not hold, a sentence each."""

    lines: list[str]
    left_out: list[str]


def write_modelfile(directory: Path, weights: str, base: Path, calls: ToolCallFormat, episode: Episode) -> list[str]:
    """Write `Modelfile` into a directory.

    Args:
        weights: name of the file of weights beside it.
        base: directory with the tokenizer.
        calls: the policy's tool-call format.

    Returns:
        What it does not hold, a sentence each. They are comments in it, too.
    """
    tokenizer = load_tokenizer(base)
    made = _of_own_template(tokenizer, episode) if calls == "own" else _of_format(tokenizer, calls, episode)
    notes = [f"# {note}" for note in (f"{episode.title}: ollama create NAME -f Modelfile", *made.left_out)]
    text = "\n".join([*notes, f"FROM ./{weights}", *made.lines])
    (directory / "Modelfile").write_text(text + "\n", encoding="utf-8")
    return made.left_out


def _of_own_template(tokenizer: PreTrainedTokenizerFast, episode: Episode) -> Modelfile:
    ends = tokenizer.convert_ids_to_tokens(list(open_renderer(tokenizer, "own", ()).stop_ids))
    left_out = ["no TEMPLATE: Ollama runs the model's own chat template, which is in the file of weights"]
    opening = _opening(_first_system(episode), written_format(tokenizer, "own"), episode, left_out)
    return Modelfile([*_stops([str(end) for end in ends]), *opening], left_out)


def _of_format(tokenizer: PreTrainedTokenizerFast, calls: WrittenFormat, episode: Episode) -> Modelfile:
    frame = frame_of(tokenizer, calls)
    assert isinstance(frame, RoleFrame)  # a family with another frame is not written as GGUF
    openings = [frame.opening] if isinstance(frame.opening, Marker) else []
    lines = [f"TEMPLATE {_quoted(template_of(frame, calls))}", *_stops([*frame.ends, *openings])]
    left_out: list[str] = []
    system = _first_system(episode)
    if calls not in _READ_BY_OLLAMA and episode.tools:
        system = _with_tools(frame, calls, episode)
        left_out.append(f"Ollama reads no calls in {calls}: they stay in the answer's text, and SYSTEM describes the tools")
    return Modelfile([*lines, *_opening(system, calls, episode, left_out)], left_out)


def template_of(frame: RoleFrame, calls: WrittenFormat) -> str:
    """Return the Go template of a frame and a tool-call format: what `clawpipe.model.policy.renderer` writes, for Ollama.

    JSON is as Go writes it: the schema of a tool has no spaces, keys have the order of the alphabet.
    """
    header, end = _header(frame, "{{ .Role }}"), f"{frame.last}{frame.gap}"
    system = f"{_header(frame, 'system')}{{{{ if $system }}}}{{{{ .Content }}}}{{{{ end }}}}{_tools(calls)}{end}"
    result = f"{_header(frame, frame.tool_role)}{_result(calls)}"
    other = f"{header}{{{{ .Content }}}}{_calls(calls)}"
    return (
        '{{- range $place, $message := .Messages }}{{ $system := and (eq $place 0) (eq .Role "system") }}'
        f"{{{{ if or $system (and (eq $place 0) $.Tools) }}}}{system}{{{{ end }}}}"
        f'{{{{ if eq .Role "tool" }}}}{result}{end}{{{{ else if not $system }}}}{other}{end}{{{{ end }}}}'
        f"{{{{ end }}}}{_header(frame, 'assistant')}"
    )


def _header(frame: RoleFrame, role: str) -> str:
    return f"{frame.opening}{role}{frame.after_role or ''}{frame.header_end}"


def _tools(calls: WrittenFormat) -> str:
    """Return the part that describes the tools in a system message; nothing where Ollama would not read their calls."""
    if calls not in _READ_BY_OLLAMA:
        return ""
    one, other = (ToolSpec(name, "", {"type": "object"}) for name in (_ONE, _OTHER))
    start, between, rest = _around(
        codec(calls, (one, other)).describe(), *(written_json(tool.as_function()) for tool in (one, other))
    )
    several = f"{{{{ range $number, $tool := $.Tools }}}}{{{{ if $number }}}}{between}{{{{ end }}}}{_TOOL}{{{{ end }}}}"
    return f"{{{{ if $.Tools }}}}{{{{ if $system }}}}\n{{{{ end }}}}{start}{several}{rest}{{{{ end }}}}"


def _calls(calls: WrittenFormat) -> str:
    """Return the part that writes a turn's calls.

    Ollama looks for calls behind the first text that stands within `if .ToolCalls`, so the format's tag comes first there.
    """
    if calls not in _READ_BY_OLLAMA:
        return ""
    pair = [ToolCall(name, name, f'{{"{name}": 0}}') for name in (_ONE, _OTHER)]
    key = "parameters" if calls == "llama3" else "arguments"
    bodies = [f'"{call.name}", "{key}": {call.arguments}' for call in pair]
    start, between, rest = _around("".join(codec(calls, ()).write(Message("assistant", "", tuple(pair)))), *bodies)
    body = f'{{{{ json .Function.Name }}}}, "{key}": {_ARGUMENTS}'
    several = f"{{{{ range $number, $call := .ToolCalls }}}}{{{{ if $number }}}}{between}{{{{ end }}}}{body}{{{{ end }}}}"
    gap = "{{ if .Content }}{{ with .ToolCalls }}\n{{ end }}{{ end }}"
    return f"{gap}{{{{ if .ToolCalls }}}}{start}{several}{rest}{{{{ end }}}}"


def _result(calls: WrittenFormat) -> str:
    """Return the part that writes a tool's result."""
    text = "".join(codec(calls, ()).result(Message("tool", _ONE)))
    return text.replace(written_json(_ONE), "{{ json .Content }}").replace(_ONE, "{{ .Content }}")


def _around(text: str, one: str, other: str) -> tuple[str, str, str]:
    """Return what stands before, between and after two texts."""
    start, _, rest = text.partition(one)
    between, _, rest = rest.partition(other)
    return start, between, rest


def _with_tools(frame: Frame, calls: WrittenFormat, episode: Episode) -> str:
    told = _first_system(episode)
    messages = [Message("system", told)] if told else []
    return frame.with_tools(messages, codec(calls, episode.tools).describe())[0].content


def _first_system(episode: Episode) -> str:
    first = episode.preamble[:1]
    return first[0].content if first and first[0].role == "system" else ""


def _opening(system: str, calls: WrittenFormat, episode: Episode, left_out: list[str]) -> list[str]:
    """Return the lines of the messages before a question; none if Ollama would read one of them as something else."""
    said = [("SYSTEM", system)] if system else []
    examples = _examples(calls, episode)
    if examples is None:
        left_out.append("the examples at the beginning of an episode: they hold results of tools, which a Modelfile cannot")
    said += [(f"MESSAGE {role}", text) for role, text in examples or ()]
    if any(_QUOTES in text for _, text in said):
        left_out.append("the messages at the beginning of an episode: one holds three quotes in a row, which would end it")
        return []
    return [f"{instruction} {_quoted(text)}" for instruction, text in said]


def _examples(calls: WrittenFormat, episode: Episode) -> list[tuple[str, str]] | None:
    """Return role and text of the messages between the first system message and the question; None if one has another role."""
    rest = episode.preamble[bool(_first_system(episode)) :]
    if any(message.role not in ("user", "assistant") for message in rest):
        return None
    spoken = codec(calls, episode.tools)
    return [(message.role, "".join(spoken.write(message)) if message.role == "assistant" else message.content) for message in rest]


def _stops(markers: Sequence[str]) -> list[str]:
    return [f'PARAMETER stop "{marker}"' for marker in dict.fromkeys(markers)]


def _quoted(text: str) -> str:
    """Return a text as a value of several lines."""
    return f"{_QUOTES}{text}{_QUOTES}"
