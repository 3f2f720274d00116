"""Draw a night's held-out items, tasks of an environment or stored conversations and pairs, and compare the models on them."""

from __future__ import annotations

from dataclasses import dataclass, replace

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.core.config.methods import METHODS
from clawpipe.core.config.night import JudgeSpec
from clawpipe.core.store.refs import DatasetRef, ModelRef, StepResult
from clawpipe.learn.evaluation.heldout.conversations import SIGNS
from clawpipe.play.workers.episodes import derive_seed
from flows.night import Night
from tasks.data import render, score
from tasks.evaluation import answer_turns, evaluate, prefer, replay_calls, score_conversations, score_pairs
from tasks.items import draw_conversations, draw_heldout, draw_pairs, hold_out, make_benchmark, make_items
from tasks.recorded import fit_vocabulary


@dataclass(frozen=True)
class HeldOut:
    """The held-out items on which the models are compared.

    Attributes:
        items: the train items; none where the night has no tasks.
        drawn: result of the step that drew the held-out items.
        benchmark: held-out items that are the same every night.
        training: the stored trajectories and preference pairs without what is held out.
    """

    items: DatasetRef
    drawn: StepResult
    benchmark: DatasetRef | None
    training: tuple[list[DatasetRef], list[DatasetRef]]


def draw(night: Night) -> HeldOut:
    """Make the train items, and draw the held-out items on which the night's models are compared."""
    items = make_items(environment=night.drawn).dataset
    if night.config.measure != "success":
        return _draw_stored(night, items)
    config = night.config.drawn
    benchmark = make_benchmark(environment=config).dataset if config.benchmark_items else None
    drawn = draw_heldout(items=items, benchmark=benchmark, environment=night.drawn, seen=night.seen)
    return HeldOut(items, drawn, benchmark, (night.stored, night.pairs))


def without_heldout(night: Night, heldout: HeldOut) -> Night:
    """Return the night with its stored data but for the held-out part, as its rounds may use it."""
    stored, pairs = heldout.training
    return replace(night, stored=stored, pairs=pairs)


def compare(night: Night, heldout: HeldOut, contenders: dict[str, ModelRef]) -> dict[str, StepResult]:
    """Evaluate each model on the held-out items, the base first; results by role."""
    judge = night.config.evaluation.judge
    if judge and night.config.measure == "judged":
        return _compare_answers(night, heldout, contenders, judge)
    results: dict[str, StepResult] = {}
    for role, model in contenders.items():
        results[role] = _answer(night, heldout, model, f"evaluate/{role}", results.get("base"))
    return results


def _compare_answers(night: Night, heldout: HeldOut, contenders: dict[str, ModelRef], judge: JudgeSpec) -> dict[str, StepResult]:
    """Let each model answer, and compare its answers with its rival's. The incumbent's rival is the candidate; the rival of all
    other models is the incumbent."""
    rows, runtime = heldout.drawn.extra("conversations"), night.config.runtime
    answers = {
        role: answer_turns.named(f"answer/{role}")(conversations=rows, policy=model, runtime=runtime)
        for role, model in contenders.items()
    }
    incumbent = "champion" if "champion" in contenders else "base"
    rivals = {role: "candidate" if role == incumbent else incumbent for role in contenders}
    return {
        role: prefer.named(f"evaluate/{role}")(
            conversations=rows, own=answers[role], other=answers[rivals[role]], policy=model, judge=judge
        )
        for role, model in contenders.items()
    }


def show_trend(night: Night, benchmark: DatasetRef, contenders: dict[str, ModelRef]) -> None:
    """Evaluate the contenders on the benchmark, whose items and seeds never change; results of earlier nights are reused."""
    for role, model in contenders.items():
        _try_tasks(night, benchmark, model, f"benchmark/{role}", derive_seed(night.config.seed, "benchmark"))


def _draw_stored(night: Night, items: DatasetRef) -> HeldOut:
    """Hold out a share of each stored dataset, and draw from it."""
    config = night.config
    share, one_user = config.evaluation.heldout_share, config.registry.is_of_one_user
    split = [[hold_out(rows=rows, share=share, one_user=one_user) for rows in kind] for kind in (night.stored, night.pairs)]
    conversations, pairs = ([result.extra("heldout") for result in kind] for kind in split)
    limits: JsonObject = {"max_tokens": config.curation.max_tokens, "count": config.environment.heldout_items, "seen": night.seen}
    limits |= {"one_user": one_user}
    if night.reviews or config.curation.approved_only:  # an unused argument must not change a step's key
        limits |= {"reviews": night.reviews, "approved_only": config.curation.approved_only}
    if config.measure == "preference accuracy":
        drawn = draw_pairs(pairs=pairs, policy=night.base, **limits)
    else:
        readable = [_readable(night, dataset) for dataset in conversations]
        scores = [] if config.measure == "judged" else [*night.scores, *_judged(night, items, readable)]
        within = (config.curation.filters.min_score, config.curation.filters.max_score)
        limits |= {"within": within} if scores and within != (None, None) else {}
        drawn = draw_conversations(
            conversations=readable, scores=scores, imitate=_imitated(night), measure=config.measure, **limits
        )
    return HeldOut(items, drawn, None, ([result.dataset for result in split[0]], [result.dataset for result in split[1]]))


def _imitated(night: Night) -> str:
    """Return what a held-out conversation is a good one by: what training takes it for."""
    imitate = night.config.curation.imitate
    return SIGNS if METHODS[night.config.train.method].labels and imitate == "success" else imitate


def _readable(night: Night, conversations: DatasetRef) -> DatasetRef:
    """Return the held-out conversations that the model can read, with token ids."""
    valid = fit_vocabulary(trajectories=conversations, policy=night.base).dataset
    return render(trajectories=valid, policy=night.base, environment=night.config.drawn).dataset


def _judged(night: Night, items: DatasetRef, conversations: list[DatasetRef]) -> list[DatasetRef]:
    """Return the judges' scores of held-out conversations: only those with good replies are evidence."""
    scorers, environment = night.config.scorers, night.config.drawn
    asked = conversations if scorers else []
    return [score(trajectories=each, items=items, environment=environment, scorers=scorers).dataset for each in asked]


def _answer(night: Night, heldout: HeldOut, model: ModelRef, name: str, base: StepResult | None) -> StepResult:
    config, drawn = night.config, heldout.drawn
    if config.measure == "success":
        return _try_tasks(night, drawn.dataset, model, name, night.seed("heldout"))  # the same seed for every model
    rows = drawn.extra("conversations")
    if config.measure == "preference accuracy":
        return score_pairs.named(name)(pairs=rows, policy=model, runtime=config.runtime)
    if config.measure == "tool calls":
        return replay_calls.named(name)(conversations=rows, policy=model, runtime=config.runtime)
    baseline = base.dataset if base else None
    return score_conversations.named(name)(conversations=rows, policy=model, baseline=baseline, runtime=config.runtime)


def _try_tasks(night: Night, items: DatasetRef, model: ModelRef, name: str, seed: int) -> StepResult:
    return evaluate.named(name)(
        items=items,
        policy=model,
        environment=night.config.drawn,
        config=night.rollouts.once(night.config.evaluation.temperature),
        seed=seed,
        runtime=night.config.runtime,
    )
