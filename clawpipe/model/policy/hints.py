"""Hints: hindsight added to a prompt, so that the frozen policy becomes its own teacher.

The recorded ids are appended unchanged to the ids of the hinted prompt, so positions correspond by construction, and
nothing is tokenized twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from clawpipe.core.config.methods import Opd
from clawpipe.core.conversation.messages import Message

if TYPE_CHECKING:
    from clawpipe.model.policy.renderer import Renderer


@dataclass(frozen=True)
class Hint:
    """One candidate: a note in words, or a demonstration, the turns that would have been right (assistant, tool, assistant ...)."""

    text: str = ""
    demonstration: tuple[Message, ...] = ()


def candidates(texts: Iterable[str], demonstration: Sequence[Message], config: Opd) -> list[Hint]:
    """Return the candidates for a row, of the kind that `config.hint` names: distinct texts, shortest first, at most
    `config.candidates`; or the demonstration alone. Empty if the row has no hint of this kind."""
    if config.hint == "demonstration":
        return [Hint(demonstration=tuple(demonstration))] if demonstration else []
    distinct = dict.fromkeys(stripped for text in texts if (stripped := text.strip()))
    return [Hint(text) for text in sorted(distinct, key=len)[: config.candidates]]  # sorted is stable for texts of equal length


def hints_by_trajectory(scores: Iterable[Mapping[str, Any]], config: Opd) -> dict[str, list[Hint]]:
    """Return candidates by trajectory id, without trajectories that have none: the hints of all scores of the whole trajectory
    together, and the first demonstration among them.

    Args:
        scores: rows of `scores` with trajectory_id, turn, hints and demonstration.
    """
    texts: dict[str, list[str]] = {}
    shown: dict[str, list[Message]] = {}
    for score in scores:
        if score["turn"] is not None:  # see `hints_by_turn`
            continue
        texts.setdefault(score["trajectory_id"], []).extend(score["hints"] or ())
        if score["demonstration"]:
            shown.setdefault(score["trajectory_id"], [Message.from_dict(message) for message in score["demonstration"]])
    found = {name: candidates(texts[name], shown.get(name, ()), config) for name in texts}
    return {name: hints for name, hints in found.items() if hints}


def hints_by_turn(scores: Iterable[Mapping[str, Any]], config: Opd) -> dict[str, dict[int, list[Hint]]]:
    """Return candidates by trajectory id and turn: the hints in words of all scores of that turn together.

    Args:
        scores: rows of `scores` with trajectory_id, turn and hints.
    """
    texts: dict[tuple[str, int], list[str]] = {}
    for score in scores if config.hint == "text" else ():
        if score["turn"] is not None:
            texts.setdefault((score["trajectory_id"], score["turn"]), []).extend(score["hints"] or ())
    found: dict[str, dict[int, list[Hint]]] = {}
    for (name, turn), notes in texts.items():
        if hints := candidates(notes, (), config):
            found.setdefault(name, {})[turn] = hints
    return found


def note_of(hint: Hint) -> str:
    """Return a hint in words as the policy reads it."""
    return f"<hint>\n{hint.text}\n</hint>"


def hinted_messages(messages: Sequence[Message], hint: Hint | None, repeats: int) -> list[Message]:
    """Return a task item's messages with the hint added; unchanged without a hint.

    A text becomes a tagged note at the end of the last user message, or a new user message if there is none. A demonstration
    is shown as an earlier dialogue, question and right turns, `repeats` times.
    """
    if hint is None:
        return list(messages)
    if hint.demonstration:
        return [*[*messages, *hint.demonstration] * repeats, *messages]
    note = note_of(hint)
    for place in reversed(range(len(messages))):
        if messages[place].role == "user":
            noted = replace(messages[place], content=f"{messages[place].content}\n\n{note}")
            return [*messages[:place], noted, *messages[place + 1 :]]
    return [*messages, Message("user", note)]


def hinted_ids(renderer: Renderer, prompt: Sequence[Message], token_ids: Sequence[int], prompt_tokens: int) -> list[int]:
    """Return the ids of a hinted prompt, then the recorded ids after the prompt of `prompt_tokens` tokens, unchanged."""
    return [*renderer.prompt(prompt), *token_ids[prompt_tokens:]]


def hinted_turn(renderer: Renderer, hint: Hint, token_ids: Sequence[int], start: int, end: int) -> tuple[list[int], int] | None:
    """Return the recorded ids up to the end of a turn, with the hint as a user message before the turn, and the number of tokens
    that were inserted; None if the turn's header is not found. The ids before the turn stay unchanged as well.

    Args:
        start, end: range of the turn's tokens.
    """
    place = renderer.header_place(token_ids, start)
    if place is None:
        return None
    note = renderer.ids_of([Message("user", note_of(hint))])
    return [*token_ids[:place], *note, *token_ids[place:end]], len(note)
