"""What settings of a night contradict each other, and what to do about it: one function a kind, which returns it in words."""

from __future__ import annotations

from clawpipe.core.config.block import MOST_ITEMS
from clawpipe.core.config.engine import SERVERS, EngineSpec
from clawpipe.core.config.environment import CONVERSATIONS
from clawpipe.core.config.night_fields import NightFields
from clawpipe.core.config.quantization import device_obstacle, serving_obstacle, training_obstacle
from clawpipe.core.config.several import obstacle_of


def contradiction(night: NightFields) -> str | None:
    """Return the first contradiction among the settings of a night, and what to change; None if they go together."""
    return next((why for find in _KINDS if (why := find(night))), None)


def _nothing_to_learn_from(night: NightFields) -> str | None:
    if night.rollouts is None and not night.trajectories and not night.preferences:
        return "nothing to learn from: set `rollouts`, or name stored datasets in `trajectories`"
    if night.rollouts and night.rollouts.items > night.environment.train_items:
        return f"rollouts.items ({night.rollouts.items}) exceeds environment.train_items ({night.environment.train_items})"
    return None


def _more_than_memory_holds(night: NightFields) -> str | None:
    items = night.rollouts.items if night.rollouts else 0
    factors = {"rounds": night.rounds, "rollouts.group_size": night.rollouts.group_size if night.rollouts else 0}
    many = {name: factor * items for name, factor in factors.items() if factor * items > MOST_ITEMS}
    what = next((f"rollouts.items times {name} is {product}" for name, product in many.items()), None)
    return what and f"{what}, and at most {MOST_ITEMS} fit into memory: lower one of them"


def _nothing_said_by_users(night: NightFields) -> str | None:
    if night.registry.per and not night.trajectories and not night.preferences:
        return "registry.per user learns from what each user said: name `trajectories`, such as [all]"
    return None


def _no_items_to_probe(night: NightFields) -> str | None:
    if night.train.probe_steps is None:
        return None
    if night.rollouts is None or night.rollouts.engine.is_endpoint:
        return "train.probe_steps has no effect: a night that does not sample itself has no tasks to try its policy on"
    needed = (night.rounds + 1) * night.rollouts.items
    if needed > night.environment.train_items:
        return (
            f"train.probe_steps needs train items that no round takes: set environment.train_items to {needed} or more, "
            "or take fewer rounds or rollouts.items"
        )
    return None


def _items_that_cannot_be_shared(night: NightFields) -> str | None:
    return obstacle_of(night.environment, night.environments, night.rollouts.items if night.rollouts else 0)


def _mistaken_about_conversations(night: NightFields) -> str | None:
    if night.measure != "success" and night.rollouts is not None:
        return f"the environment {CONVERSATIONS} has no tasks to roll out: set `rollouts` to null, or name another environment"
    if night.evaluation.judge and night.measure != "judged":
        return (
            f"evaluation.judge has no effect here: the verdict is about {night.measure}; it compares answers in the environment "
            f"{CONVERSATIONS}, where stored trajectories are trained on"
        )
    if night.measure in ("tool calls", "judged", "likelihood") and not night.trajectories:
        return f"{night.train.method} learns from `trajectories`, and none are named to hold conversations out from"
    return None


def _nothing_to_compare(night: NightFields) -> str | None:
    alone = night.rollouts is not None and night.rollouts.group_size == 1
    if alone and not night.trajectories and _learns_from_differences_alone(night):
        return (
            f"rollouts.group_size is 1: {night.train.method} compares the rollouts of an item with each other, and learns "
            "nothing from one alone; set it to 2 or more, train.method to ppo, or with grpo and combine curation.credit to turn"
        )
    return None


def _learns_from_differences_alone(night: NightFields) -> bool:
    """Whether all that the night's rollouts can teach are differences within a group."""
    method, curation = night.train.spec, night.curation
    if method.pairs:
        return not (night.preferences or curation.pairs.corrections or curation.demonstrations.share)
    if method.likelihood:
        return curation.imitate == "chosen"
    unhinted = method.weights is None and not night.train.combine.w_opd  # combine is then grpo
    return (method.compares or unhinted) and curation.credit != "turn"


def _turns_that_weigh_nothing(night: NightFields) -> str | None:
    if night.curation.step_weight and (why := night.curation.unweighed_by(night.train.spec, night.train.combine.w_rl)):
        return f"`curation.step_weight` has no effect: {why}; leave it out, or train with another method"
    return None


def _compressed_and_compared(night: NightFields) -> str | None:
    if night.curation.compress and night.train.spec.uses_ratios:
        return (
            f"curation.compress is not for {night.train.method}, which takes ratios of recorded tokens: nobody sampled a "
            "shortened trajectory; leave it out, or set train.method to sft, dpo or kto"
        )
    pairs = night.curation.pairs
    if night.curation.compress and night.train.spec.pairs and (pairs.corrections or pairs.strategy == "same-prefix"):
        return (
            "curation.compress cuts what such pairs of turns are compared in: leave it out, or set curation.pairs.corrections "
            "to false and curation.pairs.strategy to another one than same-prefix"
        )
    return None


def _nothing_to_replay(night: NightFields) -> str | None:
    if night.curation.sampling.replay_nights and (night.rollouts is None or not night.train.spec.learns_from_scores):
        why = "`rollouts` is null" if night.rollouts is None else f"{night.train.method} learns from hints to tonight's items alone"
        return f"curation.sampling.replay_nights replays rollouts of earlier nights, and {why}: set it to 0"
    return None


def _bits_that_cannot_be_had(night: NightFields) -> str | None:
    quantization, served, device = night.model.quantization, night.serving.quantization, night.runtime.device
    return (
        training_obstacle(quantization, night.train.adapter, night.train.lora.variant)
        or serving_obstacle(night.serving.artifact, served, night.model.dtype)
        or device_obstacle("model.quantization", quantization, device)
        or device_obstacle("serving.quantization", served, device)
    )


def _engine_that_cannot_sample_it(night: NightFields) -> str | None:
    if night.rollouts is None:
        return None
    engine, serving = night.rollouts.engine, night.serving
    if engine.text_only and night.train.spec.text != "all":
        return (
            f"{night.train.method} takes ratios with the policy that sampled, and rollouts.engine {engine.name} gives "
            "text only: set train.method to sft, dpo or kto, rollouts.engine to vllm, sglang or embedded, or "
            "rollouts.engine.tokens to true where the endpoint gives token ids and log-probs"
        )
    whole = night.train.adapter == "full" or serving.artifact == "merged" or night.model.quantization != "none"
    if engine.is_policy_server and whole:
        return (
            f"rollouts.engine {engine.name} is given adapters of one base: set train.adapter to lora, serving.artifact to "
            "adapter and model.quantization to none"
        )
    return None


def _adapters_that_the_engine_cannot_read(night: NightFields) -> str | None:
    server = SERVERS.get(night.rollouts.engine.name) if night.rollouts else None
    if night.rollouts and server and night.train.adapter == "lora" and night.train.lora.variant not in server.variants:
        return (
            f"rollouts.engine {night.rollouts.engine.name} reads no adapters of the variant {night.train.lora.variant}: set "
            f"train.lora.variant to {' or '.join(server.variants)}, or sample with another engine"
        )
    return None


def _temperature_that_a_service_has_not(night: NightFields) -> str | None:
    if night.rollouts and night.rollouts.engine.is_service and night.rollouts.temperature != 1:
        return f"rollouts.engine {night.rollouts.engine.name} has log-probs at temperature 1 alone: set rollouts.temperature to 1"
    return None


def _sampled_elsewhere_than_trained(night: NightFields) -> str | None:
    engine, backend = night.rollouts.engine if night.rollouts else EngineSpec(), night.train.backend
    if engine.is_service and (engine.name, engine.model) != (backend.name, backend.model):
        return (
            f"rollouts.engine {engine.name} samples what was trained there, from {engine.model}: set train.backend to "
            f"{{name: {engine.name}, model: {engine.model}}}, or sample with another engine"
        )
    if night.model.elsewhere and (not engine.is_service or engine.model != night.model.elsewhere):
        return (
            f"model.elsewhere says that the base's weights are at a service, as {night.model.elsewhere}: set rollouts.engine "
            f"and train.backend to {{name: tinker, model: {night.model.elsewhere}}}, or leave it out"
        )
    return None


def _adapter_on_a_merged_champion(night: NightFields) -> str | None:
    if (night.train.start_from, night.serving.artifact, night.train.adapter) == ("champion", "merged", "lora"):
        return (
            "an adapter cannot start from a merged champion: set serving.artifact to adapter, train.adapter to full, "
            "or train.start_from to base"
        )
    return None


_KINDS = (
    _nothing_to_learn_from,
    _more_than_memory_holds,
    _nothing_said_by_users,
    _no_items_to_probe,
    _items_that_cannot_be_shared,
    _mistaken_about_conversations,
    _nothing_to_compare,
    _turns_that_weigh_nothing,
    _compressed_and_compared,
    _nothing_to_replay,
    _bits_that_cannot_be_had,
    _engine_that_cannot_sample_it,
    _adapters_that_the_engine_cannot_read,
    _temperature_that_a_service_has_not,
    _sampled_elsewhere_than_trained,
    _adapter_on_a_merged_champion,
)
