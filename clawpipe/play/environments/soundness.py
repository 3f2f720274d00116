"""Check, without a model, that an environment keeps its protocol: what a night leans on and cannot see."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any, Literal, NamedTuple

from clawpipe.core.basics.json_types import JsonObject, Options
from clawpipe.core.conversation.messages import Message, ToolCall
from clawpipe.core.user_code.extensions import in_one_line
from clawpipe.errors import DataError
from clawpipe.play.environments.base import Outcome, TaskItem
from clawpipe.play.environments.demonstration import play_out, solution_of
from clawpipe.play.environments.ending import Ending, outcome_of
from clawpipe.play.environments.hosted import HostedEnvironment

Status = Literal["ok", "note", "fault"]
_MOST_TURNS = 8
_SEED = 7
_SILENT, _SHOWS = "says nothing", "shows the demonstration"
_TELLING = 4  # characters of a truth's text that cannot stand in a question by chance


class Finding(NamedTuple):
    """What one check found; a note is for a person to judge."""

    check: str
    status: Status
    what: str


@dataclass(frozen=True)
class Tried:
    """An episode that was played with a scripted policy."""

    policy: str
    item: TaskItem
    messages: list[Message]
    ending: Ending
    outcome: Outcome | None = None
    error: str = ""

    @property
    def recorded(self) -> JsonObject:
        """What two equal episodes have in common, as JSON."""
        messages = [message.as_dict() for message in self.messages]
        return {"messages": messages, "outcome": self.outcome and asdict(self.outcome)} | self.ending.as_row()


@dataclass
class Checkup:
    """The checks of an environment.

    Attributes:
        episodes: that were played, and how many of them a second.
    """

    findings: list[Finding] = field(default_factory=list[Finding])
    episodes: int = 0
    per_second: float = 0.0

    @property
    def sound(self) -> bool:
        return not any(one.status == "fault" for one in self.findings)


def check_environment(name: str, options: Options, count: int, seconds: float, python: str | None = None) -> Checkup:
    """Check an environment on its first `count` train and held-out items.

    Args:
        seconds: deadline of each call.
        python: that the environment runs in; None: this one.

    Raises:
        ClawpipeError: it cannot be made.
    """
    made = partial(HostedEnvironment, name, options, seconds, python)
    with closing(made()) as hosted:
        try:
            items = [*hosted.items("train", count, _SEED), *hosted.items("heldout", count, _SEED)]
        except DataError as error:
            return Checkup([Finding("it makes items", "fault", f"{error.what}: {error.fix}")])
        done = Checkup(list(_of_items(hosted, items, count)))
    first, left, slowest = _played(made, items, done)
    again, *_ = _played(made, items, Checkup())
    done.findings += [*_of_episodes(first), *_of_outcomes(first), _of_determinism(first, again), _of_orphans(left)]
    done.findings.append(_of_deadlines(slowest, seconds))
    return done


def _played(
    made: Callable[[], HostedEnvironment], items: Sequence[TaskItem], done: Checkup
) -> tuple[list[Tried], list[str], dict[str, float]]:
    """Play and verify every item with every scripted policy, in new processes."""
    with closing(made()) as hosted:
        begun = time.monotonic()
        tried = [_tried(hosted, item, script) for item in items for script in _scripts(hosted, item)]
        done.episodes, done.per_second = len(tried), len(tried) / max(time.monotonic() - begun, 1e-9)
    return tried, hosted.left_running, hosted.slowest


class Script(NamedTuple):
    """A policy that says these messages, one a turn, and then is silent, or begins again.

    Attributes:
        error: what was raised where the messages were asked for; such a policy cannot play.
    """

    policy: str
    says: Sequence[Message]
    repeats: bool = True
    error: str = ""

    def turn(self, number: int) -> Message | None:
        """Return the message of a turn, from 0; None after the last one."""
        if number >= len(self.says) and not self.repeats:
            return None
        return self.says[number % len(self.says)]


def _scripts(hosted: HostedEnvironment, item: TaskItem) -> Iterator[Script]:
    """Yield what is played: one that says nothing, one that calls wrongly, and the demonstration, where there is one."""
    yield Script(_SILENT, [Message("assistant", "")])
    for tool in hosted.tools()[:1]:
        calls = ToolCall("c", tool.name, "{", malformed=True), ToolCall("c", tool.name, "{}"), ToolCall("c", "no_such_tool", "{}")
        yield Script("calls wrongly", [Message("assistant", "", (call,)) for call in calls])
    try:
        replies, error = solution_of(hosted, item), ""
    except Exception as raised:  # of a user's code
        replies, error = [], f"hindsight: {in_one_line(raised)}"
    if replies or error:
        yield Script(_SHOWS, replies, repeats=False, error=error)


def _tried(hosted: HostedEnvironment, item: TaskItem, script: Script) -> Tried:
    if script.error:
        return Tried(script.policy, item, [], Ending(), error=script.error)
    messages, ending = play_out(hosted, item, script.turn, _MOST_TURNS)
    return _verified(hosted, Tried(script.policy, item, messages, ending))


def _verified(hosted: HostedEnvironment, tried: Tried) -> Tried:
    """Verify an episode twice: what is pure says the same."""
    try:
        one, two = (outcome_of(hosted, tried.item, tried.messages, tried.ending) for _ in range(2))
    except Exception as error:  # of a user's code
        return replace(tried, error=in_one_line(error))
    return replace(tried, outcome=one, error="" if one == two else "verify said two things of one record")


def _of_items(environment: HostedEnvironment, items: Sequence[TaskItem], count: int) -> Iterator[Finding]:
    again = [*environment.items("train", count, _SEED), *environment.items("heldout", count, _SEED)]
    yield _finding("items are equal for equal arguments", again == list(items), "two calls gave different items")
    fewer = environment.items("train", max(count // 2, 1), _SEED)
    grows = fewer == list(items[: len(fewer)])
    yield _finding("a larger count adds to the items", grows, "the first items of a larger count are others")
    sides = ({item.identity for item in items if item.split == split} for split in ("train", "heldout"))
    both = set.intersection(*sides)
    yield _finding("no identity is on both sides", not both, f"train and heldout share {', '.join(sorted(both)[:3])}")
    named = len({item.item_id for item in items}) == len(items)
    yield _finding("each item has an id of its own", named, "two items share an id")
    telling = [item for item in items if any(text in _shown(environment, item) for text in _texts(json.loads(item.truth)))]
    yield Finding("the truth is not in the prompt", "note" if telling else "ok", _leak(telling, len(items)))


def _leak(telling: Sequence[TaskItem], count: int) -> str:
    return f"{len(telling)} of {count} prompts hold a text of their truth, e.g. {telling[0].item_id}" if telling else ""


def _shown(environment: HostedEnvironment, item: TaskItem) -> str:
    return "\n".join(message.content for message in (*environment.preamble(), *item.messages))


def _texts(truth: Any) -> Iterator[str]:
    """Yield the texts in a truth that are long enough to tell."""
    if isinstance(truth, str) and len(truth) >= _TELLING:
        yield truth
    for inner in truth.values() if isinstance(truth, dict) else truth if isinstance(truth, list) else ():
        yield from _texts(inner)


def _of_episodes(tried: Sequence[Tried]) -> Iterator[Finding]:
    failed = [one for one in tried if one.error]
    what = f"{len(failed)} of {len(tried)}; a policy that {failed[0].policy}: {failed[0].error}" if failed else ""
    yield _finding("episodes end and are verified without an error", not failed, what)


def _of_outcomes(tried: Sequence[Tried]) -> Iterator[Finding]:
    outcomes = [(one.policy, one.outcome) for one in tried if one.outcome]
    outside = [outcome.value for _, outcome in outcomes if not 0 <= outcome.value <= 1]
    yield _finding("rewards are from 0 to 1", not outside, f"{len(outside)} are not, e.g. {outside[:1]}")
    lucky = [outcome for policy, outcome in outcomes if policy == _SILENT and outcome.success]
    yield _finding("who says nothing does not succeed", not lucky, f"{len(lucky)} episodes without a word are successes")
    shown = [outcome for policy, outcome in outcomes if policy == _SHOWS]
    failed = sum(not outcome.success or outcome.value != 1 for outcome in shown)
    if shown:
        yield _finding("demonstrations succeed", not failed, f"{failed} of {len(shown)} do not, with a reward of 1")


def _of_determinism(first: Sequence[Tried], again: Sequence[Tried]) -> Finding:
    """Compare episodes and outcomes with those of other processes: the same seed, the same policy."""
    other = [one for one, two in zip(first, again, strict=True) if one.recorded != two.recorded]
    what = (
        f"{len(other)} of {len(first)} differ when played again, e.g. {other[0].item.item_id} ({other[0].policy})" if other else ""
    )
    return _finding("equal episodes give equal outcomes", not other, what)


def _of_orphans(left: Sequence[str]) -> Finding:
    what = f"{len(left)} processes were left, e.g. {left[0]}" if left else ""
    return _finding("close ends what an episode has started", not left, what)


def _of_deadlines(slowest: dict[str, float], seconds: float) -> Finding:
    call = max(slowest, key=lambda name: slowest[name])
    what = f"{call} took {slowest[call]:.1f} s of {seconds:g} s"
    return Finding("calls keep their deadline", "ok" if slowest[call] < seconds else "fault", what)


def _finding(check: str, holds: bool, otherwise: str) -> Finding:
    return Finding(check, "ok" if holds else "fault", "" if holds else otherwise)
