"""`function`: a scorer that calls a user's Python function with a turn's request, its answer and the messages that follow."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from clawpipe.core.user_code.extensions import ExtensionPoint
from clawpipe.errors import ConfigError
from clawpipe.play.judging.base import Origin, Row, Score, with_mean
from clawpipe.play.judging.exchanges import Exchange, exchanges_of

FUNCTIONS = ExtensionPoint("reward function", "scorers: function: options.function")
Arguments = tuple[str, str, str]


@dataclass(frozen=True)
class FunctionJudge:
    """Scores each main turn with what a function returns, and the trajectory with the mean of its turns.

    Args of the function: the user's request, the turn's text with its calls, and what came next: results and the user's words.
    It returns a number, or None where it says nothing. With `batched` it takes a list of such triples, and returns as many.
    """

    function: Callable[..., Any]
    batched: bool = False
    name: str = "function"
    origin: Origin = "judge"

    def score(self, item: Row, trajectory: Row) -> Iterator[Score]:
        turns = exchanges_of(trajectory)
        values = zip(turns, self._values([_arguments(turn) for turn in turns]), strict=True)
        yield from with_mean(Score(_number(value), turn=turn.turn) for turn, value in values if value is not None)

    def _values(self, triples: Sequence[Arguments]) -> Sequence[Any]:
        if not self.batched:
            return [self.function(*triple) for triple in triples]
        values = list(self.function(list(triples))) if triples else []
        if len(values) != len(triples):
            raise ValueError(f"{len(values)} rewards for {len(triples)} turns")
        return values


def make_function(function: str, batched: bool = False) -> FunctionJudge:
    """Return the judge that a config names.

    Args:
        function: path/to/file.py:compute_reward, or module:NAME.
        batched: whether it takes a list of triples.

    Raises:
        NotFoundError: there is no such file, module or function.
        ConfigError: it cannot be called.
    """
    found = FUNCTIONS.load(function)
    if not callable(found):
        raise ConfigError(f"{function} is no function", FUNCTIONS.setting, "name a function of (prompt, response, next_feedback)")
    if inspect.iscoroutinefunction(found):
        raise ConfigError(f"{function} is asynchronous", FUNCTIONS.setting, "write a plain function")
    return FunctionJudge(found, batched)


def _number(value: Any) -> float:
    """Return what the function returned. Raises ValueError if it is no finite number."""
    if hasattr(value, "__float__") and math.isfinite(number := float(value)):
        return number
    raise ValueError(f"the function returned {value!r}, and not a finite number or None")


def _arguments(turn: Exchange) -> Arguments:
    calls = [f"{call.name}({call.arguments})" for call in turn.reply.tool_calls]
    following = [*(result.content for result in turn.results), *([turn.following] if turn.following else [])]
    return turn.request, "\n".join([turn.reply.content, *calls]).strip(), "\n".join(following)
