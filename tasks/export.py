"""export and measure_fidelity: the artefact that is served, and how far it is from what was trained."""

from __future__ import annotations

from clawpipe.config.quantization import Quantization
from clawpipe.export.produce import export_policy
from clawpipe.export.produce import measure_fidelity as measure
from clawpipe.store.refs import DatasetRef, ModelRef, StepResult
from tasks.resources import resources
from tasks.step import step

_LIBRARIES = ("torch", "transformers", "peft")


@step(module=("clawpipe.export.produce", "clawpipe.rollouts.worker"), libraries=_LIBRARIES)
def export(policy: ModelRef, quantization: Quantization) -> StepResult:
    """The trained policy as whole weights, held as they are served."""
    night = resources()
    return export_policy(night.store, night.pool, policy, quantization)


@step(module=("clawpipe.export.produce", "clawpipe.rollouts.worker"), libraries=_LIBRARIES)
def measure_fidelity(trained: ModelRef, served: ModelRef, base: ModelRef, heldout: DatasetRef) -> StepResult:
    """KL divergences of what is served, and of the base, from what was trained."""
    night = resources()
    return measure(night.store, night.pool, trained, served, base, heldout)
