"""Demonstrations: what an environment would have said at an item, played in an episode, so that its world answers as it does."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from clawpipe.core.conversation.messages import Message
from clawpipe.core.user_code.extensions import in_one_line
from clawpipe.errors import ConfigError
from clawpipe.play.environments.base import TaskItem
from clawpipe.play.environments.ending import Ending, Judges, hindsight_of
from clawpipe.play.environments.play import Play, Plays
from clawpipe.play.environments.several import OpenEnvironments, World

_SEED = 7


def solution_of(environment: Judges, item: TaskItem) -> list[Message]:
    """Return the policy's turns of the environment's demonstration of an item that nobody has tried; none if it has none."""
    shown = hindsight_of(environment, item, item.messages, Ending())
    return [message for message in shown.demonstration if message.role == "assistant"] if shown else []


def play_out(environment: Plays, item: TaskItem, turn: Callable[[int], Message | None], most: int) -> tuple[list[Message], Ending]:
    """Play an episode with given turns, at most so many; return its messages and how it ended.

    Args:
        turn: the policy's message of a turn, from 0; None after the last one.
    """
    play, messages = Play(environment, item, _SEED), list(item.messages)
    try:
        for number in range(most):
            if play.over or (said := turn(number)) is None:
                break
            messages.append(said)
            answer = play.answer(messages)
            messages += answer.messages
            if answer.done:
                play.end("done")
        play.end("max_turns")
    finally:
        play.close()
    return messages, play.ending


def play_solution(environment: Plays, item: TaskItem, says: Sequence[Message]) -> tuple[list[Message], Ending]:
    """Play an episode with the turns of a solution."""
    return play_out(environment, item, lambda number: says[number] if number < len(says) else None, len(says))


def demonstration_note(environments: OpenEnvironments) -> str | None:
    """Return one line about environments that do not demonstrate their first train item; None if all do.

    Raises:
        ConfigError: the `hindsight` of one raises.
    """
    silent = [environment.name for environment in environments if not _demonstrates(environment)]
    if not silent:
        return None
    return (
        f"curation.demonstrations has no effect with {' and '.join(silent)}: no demonstration of its first train item comes from "
        "`hindsight` (docs/environments.md)"
    )


def _demonstrates(environment: World) -> bool:
    items = environment.items("train", 1, 0)
    try:
        return any(solution_of(environment, item) for item in items)
    except Exception as error:  # of a user's code
        what = f"its hindsight raised {in_one_line(error)}"
        raise ConfigError(what, environment.name, "fix it: clawpipe env check plays its demonstrations") from error
