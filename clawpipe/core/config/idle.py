"""Settings that a night does not look at, because of others: they do no harm, but whoever wrote them meant something by them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from pydantic import BaseModel

from clawpipe.core.config.environment import CONVERSATIONS
from clawpipe.core.config.load import settings_of
from clawpipe.core.config.methods import MethodSettings
from clawpipe.core.config.night_fields import NightFields


class _Rule(NamedTuple):
    """Settings, or blocks of them, and a function that says why a night does not look at them; "" if it does."""

    names: Sequence[str]
    why_not: Callable[[NightFields], str]


def idle_note(night: NightFields) -> str | None:
    """Return one line about the settings that differ from their defaults and have no effect in this night; None if all have one."""
    found = [f"{', '.join(names)} ({why})" for names, why in _idle(night)]
    return f"no effect in this night: {'; '.join(found)}" if found else None


def _idle(night: NightFields) -> Iterator[tuple[list[str], str]]:
    for rule in _RULES:
        why = rule.why_not(night)
        names = [name for given in rule.names for name in _changed(night, given)] if why else []
        if names:
            yield names, why


def _changed(night: NightFields, name: str) -> Iterator[str]:
    """Yield the settings with this name, or in the block of this name, that differ from their defaults."""
    *blocks, field = name.split(".")
    block: BaseModel = night
    for one in blocks:
        block = getattr(block, one)
    value = getattr(block, field)
    if value == type(block).model_fields[field].get_default(call_default_factory=True):
        return
    inner = list(settings_of(type(value))) if isinstance(value, BaseModel) else []
    yield from (found for one in inner for found in _changed(night, f"{name}.{one}")) if inner else [name]


def _of_method(block: str) -> _Rule:
    return _Rule(
        [f"train.{block}"], lambda night: "" if block in night.train.spec.blocks else f"train.method is {night.train.method}"
    )


def _no_ratio(night: NightFields) -> str:
    """Say why the settings of a ratio's loss are not looked at."""
    method = night.train.spec
    return f"the loss of {method.name} has no such terms" if method.likelihood or method.judged else ""


def _no_advantages(night: NightFields) -> str:
    method = night.train.spec
    return f"{method.name} has no advantages within groups" if method.judged or method.critic else ""


def _levels_nothing(night: NightFields) -> str:
    method = night.train.spec
    if method.judged or method.critic or not method.learns_from_scores:
        return f"{method.name} has no advantages of turns to level"
    return "curation.credit is group" if night.curation.credit == "group" else ""


def _unless(holds: Callable[[NightFields], object], why: str) -> Callable[[NightFields], str]:
    return lambda night: "" if holds(night) else why


_RULES = (
    _Rule(["train.lora"], _unless(lambda night: night.train.adapter == "lora", "train.adapter is full")),
    *map(_of_method, MethodSettings.model_fields),
    _Rule([f"train.loss.{name}" for name in ("objective", "level", "clip_low", "clip_high", "dual_clip")], _no_ratio),
    _Rule(["train.patience"], _unless(lambda night: night.train.validation, "train.validation is 0")),
    _Rule(["curation.pairs"], _unless(lambda night: night.train.spec.pairs, "the method learns from no pairs")),
    _Rule(["preferences"], _unless(lambda night: night.train.spec.pairs, "the method learns from no pairs")),
    _Rule(
        ["curation.imitate"],
        _unless(lambda night: night.train.method == "sft" or night.measure != "success", "train.method is not sft"),
    ),
    _Rule(["curation.advantage", "curation.baseline", "curation.drop_zero_variance_groups"], _no_advantages),
    _Rule(
        ["curation.turn_baseline", "curation.negative_weight"],
        _unless(lambda night: night.curation.credit == "turn", "curation.credit is not turn"),
    ),
    _Rule(["curation.level_users"], _levels_nothing),
    _Rule(["curation.demonstrations.weight"], _unless(lambda night: night.curation.demonstrations.share, "their share is 0")),
    _Rule(["curation.demonstrations.share"], _unless(lambda night: night.rollouts, "`rollouts` is null, so no rollout can fail")),
    _Rule(["curation.filters.script_share"], _unless(lambda night: night.curation.filters.scripts, "no scripts are named")),
    _Rule(
        ["curation.filters.repetition_words"],
        _unless(lambda night: night.curation.filters.max_repetition is not None, "max_repetition is null"),
    ),
    _Rule(["curation.near.history"], _unless(lambda night: night.curation.near.duplicates, "near.duplicates is false")),
    _Rule(["curation.near.heldout_words"], _unless(lambda night: night.curation.near.heldout, "near.heldout is false")),
    _Rule(
        ["curation.near.threshold"],
        _unless(lambda night: night.curation.near.duplicates or night.curation.near.heldout, "near finds neither kind"),
    ),
    _Rule(["curation.sampling.night"], _unless(lambda night: night.curation.sampling.curriculum, "there is no curriculum")),
    _Rule(["scores"], _unless(lambda night: night.trajectories, "no `trajectories` are named")),
    _Rule(
        ["environment.train_items", "environment.benchmark_items"],
        _unless(lambda night: night.environment.name != CONVERSATIONS or night.environments, "conversations have no tasks"),
    ),
    _Rule(
        ["evaluation.heldout_share", "evaluation.replay_calls"],
        _unless(lambda night: night.measure != "success", "the verdict is about tasks of the environment"),
    ),
    _Rule(
        ["evaluation.temperature"],
        _unless(lambda night: night.measure == "success", "the verdict is about no tasks of an environment"),
    ),
    _Rule(
        ["gate.promote_on_likelihood"],
        _unless(lambda night: night.measure == "likelihood", "the verdict is not about likelihoods"),
    ),
    _Rule(
        ["serving.max_divergence"],
        _unless(lambda night: night.serving.artifact == "merged", "serving.artifact is adapter"),
    ),
    _Rule(
        [f"rollouts.engine.{name}" for name in ("arguments", "concurrency", "timeout")],
        _unless(lambda night: not night.rollouts or night.rollouts.engine.name != "embedded", "the engine is in this process"),
    ),
)
