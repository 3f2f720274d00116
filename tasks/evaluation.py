"""Steps evaluate and gate: measure the models on held-out items, and decide on the candidate."""

from __future__ import annotations

from collections.abc import Sequence

from clawpipe.core.basics.json_types import Row
from clawpipe.core.config.night import Gate, Generation, JudgeSpec, Measure, Played, Runtime
from clawpipe.core.store.artifacts import Store
from clawpipe.core.store.datasets import dataset_files, publish_files, read_dataset
from clawpipe.core.store.home import Home
from clawpipe.core.store.open import open_store
from clawpipe.core.store.refs import DatasetRef, ModelRef, Ref, StepResult
from clawpipe.core.store.spread import in_parts, is_spread
from clawpipe.core.user_code.user_errors import LOG
from clawpipe.learn.evaluation.heldout import answers, likelihood, preference, replay
from clawpipe.learn.evaluation.heldout.heldout import RollOut, probe_policies
from clawpipe.learn.evaluation.heldout.heldout import evaluate as evaluate_policy
from clawpipe.learn.evaluation.verdict.evidence import build_evidence, user_slices
from clawpipe.learn.evaluation.verdict.gate import decide
from clawpipe.learn.evaluation.verdict.hacking import training_of
from clawpipe.learn.evaluation.verdict.verdict import Fidelity, Freshness, Tally
from clawpipe.play.judging.base import SCORERS
from clawpipe.play.rollouts.generate import item_rows, shards_of
from clawpipe.play.rollouts.generate import roll_out as roll_out_items
from clawpipe.play.workers.pool import open_workers
from tasks.step import step


@step()
def evaluate(
    items: DatasetRef,
    policy: ModelRef,
    environment: Played,
    config: Generation,
    seed: int,
    runtime: Runtime,
) -> StepResult:
    """Run a policy on the held-out items; the output has one result per item."""
    home = Home.from_env()
    roll_out = _rolled_out_by(environment, config, seed, runtime)
    return evaluate_policy(open_store(home), roll_out, items, policy, environment, home.logs / LOG)


@step()
def probe(
    items: DatasetRef,
    ordinals: list[int],
    kept: dict[str, Ref],
    environment: Played,
    config: Generation,
    seed: int,
    runtime: Runtime,
) -> StepResult:
    """Try the policies among what a training kept on train items that no round takes; the details are a curve."""
    home = Home.from_env()
    policies = {name: ref for name, ref in kept.items() if isinstance(ref, ModelRef)}
    roll_out = _rolled_out_by(environment, config, seed, runtime)
    return probe_policies(open_store(home), roll_out, items, ordinals, policies, environment, home.logs / LOG)


def _rolled_out_by(environment: Played, config: Generation, seed: int, runtime: Runtime) -> RollOut:
    def roll_out(items: DatasetRef, split: str, ordinals: Sequence[int], policy: ModelRef) -> DatasetRef:
        store, same = open_store(Home.from_env()), {"items": items, "split": split, "policy": policy, "environment": environment}
        same |= {"config": config, "seed": seed, "runtime": runtime}
        parts = _parts(item_rows(store, items, split, ordinals), ordinals, environment, config)
        runs = list(in_parts(store, roll_out_part, [same | {"ordinals": part} for part in parts]))
        files = (file for run in runs for file in dataset_files(store, run))
        return runs[0] if len(runs) == 1 else publish_files(store, runs[0].name, files, parents=runs[0].parents)

    return roll_out


def _parts(rows: Sequence[Row], ordinals: Sequence[int], environment: Played, config: Generation) -> list[list[int]]:
    """Return all items as one part, whose shards this machine's workers share; or each shard as one, for those of a cluster."""
    if not is_spread() or not rows:
        return [list(ordinals)]
    return [[ordinals[place] for place in places] for _, places in shards_of(rows, environment, config)]


def roll_out_part(
    store: Store,
    items: DatasetRef,
    split: str,
    ordinals: list[int],
    policy: ModelRef,
    environment: Played,
    config: Generation,
    seed: int,
    runtime: Runtime,
) -> DatasetRef:
    """Roll out some items once each."""
    home = Home.from_env()
    with open_workers(runtime, home.logs) as pool:
        return roll_out_items(store, pool, home.work, items, split, ordinals, policy, environment, config, seed)


@step(anywhere=True)
def score_conversations(conversations: DatasetRef, policy: ModelRef, baseline: DatasetRef | None, runtime: Runtime) -> StepResult:
    """Compute the likelihood of held-out conversations under a policy, and compare it with the base's, `baseline`."""
    home = Home.from_env()
    with open_workers(runtime, home.logs) as pool:
        return likelihood.score_conversations(open_store(home), pool, conversations, policy, baseline)


@step(anywhere=True)
def replay_calls(conversations: DatasetRef, policy: ModelRef, runtime: Runtime) -> StepResult:
    """Let a policy make tool calls of held-out conversations anew; the output has one result per conversation."""
    home = Home.from_env()
    with open_workers(runtime, home.logs) as pool:
        return replay.replay_calls(open_store(home), pool, conversations, policy)


@step(anywhere=True)
def answer_turns(conversations: DatasetRef, policy: ModelRef, runtime: Runtime) -> StepResult:
    """Let a policy answer turns of held-out conversations anew; the output has one conversation for each."""
    home = Home.from_env()
    with open_workers(runtime, home.logs) as pool:
        return answers.answer_turns(open_store(home), pool, conversations, policy)


@step()
def prefer(conversations: DatasetRef, own: StepResult, other: StepResult, policy: ModelRef, judge: JudgeSpec) -> StepResult:
    """Let a judge compare a policy's answers with another's; the output has one result per conversation."""
    made = SCORERS.make(judge.name, judge.options)
    return preference.prefer(open_store(Home.from_env()), conversations, own, other, policy, made)


@step(anywhere=True)
def score_pairs(pairs: DatasetRef, policy: ModelRef, runtime: Runtime) -> StepResult:
    """Compute which sides of held-out preference pairs are likelier under a policy."""
    home = Home.from_env()
    with open_workers(runtime, home.logs) as pool:
        return likelihood.score_pairs(open_store(home), pool, pairs, policy)


@step()
def gate(
    policies: dict[str, ModelRef],
    drawn: StepResult,
    results: dict[str, StepResult],
    scored: list[StepResult],
    config: Gate,
    confidence: float,
    fidelity: StepResult | None,
    max_divergence: float,
    measure: Measure = "success",
    earlier: list[Tally] | None = None,
    seen: list[str] | None = None,
) -> StepResult:
    """Decide on the candidate. `drawn` is the result of the step that drew the held-out items, `results` those of the evaluations,
    by role, and `scored` those of the steps that filter and score rows, in the night's order; `fidelity` is the result of
    measure_fidelity, None where the trained policy is served as it is. `earlier` and `seen`: see Evidence."""
    store = open_store(Home.from_env())
    tables = {role: read_dataset(store, result.dataset) for role, result in results.items()}
    served = policies["candidate"].policy_version
    measured = Fidelity.model_validate(fidelity.details) if fidelity else None
    rows = read_dataset(store, drawn.dataset, ["item_id", "identity", "user_id"]).to_pylist()
    evidence = build_evidence(
        tables["base"],
        tables.get("champion"),
        tables["candidate"],
        served,
        confidence,
        measured,
        max_divergence,
        freshness=Freshness(**{name: drawn.details[name] for name in Freshness.model_fields}),
        identities={row["item_id"]: row["identity"] for row in rows},
        measure=measure,
        training=training_of(scored, results),
        earlier=earlier or (),
        seen=seen or (),
        slices=user_slices(rows) if config.by_user else {},
    )
    verdict = decide(evidence, config)
    return StepResult(rows_in=drawn.dataset.rows, rows_out=len(evidence.candidate.items), details=verdict.model_dump(mode="json"))
