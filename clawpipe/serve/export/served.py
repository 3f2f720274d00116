"""Make the policy to serve from the trained one, and measure how far the two are from each other."""

from __future__ import annotations

from pathlib import Path

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.core.config.quantization import Quantization
from clawpipe.core.store.artifacts import Store
from clawpipe.core.store.refs import DatasetRef, ModelRef, StepResult
from clawpipe.errors import DataError, TrainingError
from clawpipe.learn.evaluation.heldout.turns import heldout_tokens
from clawpipe.learn.evaluation.verdict.verdict import Fidelity
from clawpipe.model.policy.spec import policy_spec
from clawpipe.model.policy.version import quantized_ref, weights_ref
from clawpipe.play.workers.pool import WorkerPool
from clawpipe.play.workers.request import DivergenceRequest, Job, MergeRequest, choose_contexts

POSITIONS = 256  # number of sampled tokens on which policies are compared


def export_policy(store: Store, pool: WorkerPool, policy: ModelRef, quantization: Quantization) -> StepResult:
    """Merge the policy to whole weights, in the form in which they will be served.

    The stored weights have full precision; every load quantizes them, always to the same bits.
    """
    whole = _merged(store, pool, policy) if policy.adapter else policy
    return StepResult(output=quantized_ref(whole, quantization), rows_in=1, rows_out=1)


def measure_fidelity(
    store: Store, pool: WorkerPool, trained: ModelRef, served: ModelRef, base: ModelRef, heldout: DatasetRef
) -> StepResult:
    """Measure the distance of the served policy from the trained one, and of the trained one from the base.

    Args:
        heldout: trajectories of the served policy on held-out items; the policies are compared on their sampled tokens.

    Raises:
        TrainingError: a policy gives log-probs that are not finite.
        DataError: the trajectories hold no sampled token.
    """
    contexts = choose_contexts(heldout_tokens(store, heldout), POSITIONS)
    if not contexts:
        fix = "evaluate with an engine that records tokens"
        raise DataError("no sampled token to compare the served policy on", heldout.digest, fix)
    before, after, untrained = (policy_spec(store, policy) for policy in (trained, served, base))
    request = DivergenceRequest(reference=before, others=(after, untrained), contexts=tuple(contexts))
    divergence, learnt = pool.run(Job(request=request))
    if divergence is None or learnt is None:
        raise TrainingError(
            "log-probs of the policy to be served are not finite", served.policy_version, "hold more bits: serving.quantization"
        )
    fidelity = Fidelity(
        trained=trained.policy_version,
        served=served.policy_version,
        divergence=divergence,
        learnt=learnt,
        positions=sum(len(context.positions) for context in contexts),
    )
    return StepResult(rows_in=len(contexts), rows_out=len(contexts), details=fidelity.model_dump(mode="json"))


def _merged(store: Store, pool: WorkerPool, policy: ModelRef) -> ModelRef:
    spec = policy_spec(store, policy)

    def fill(directory: Path) -> JsonObject:
        pool.run(Job(request=MergeRequest(policy=spec), output=str(directory)))
        return {"kind": "model", "name": "model", "base": policy.base, "calls": policy.tool_call_format, "dtype": policy.dtype}

    digest, _ = store.publish("model", fill)
    return weights_ref(policy, digest, [policy.digest])
