"""Steps export and measure_fidelity: make the policy to serve, and measure how far it is from the trained one."""

from __future__ import annotations

from clawpipe.core.config.night import Runtime
from clawpipe.core.config.quantization import Quantization
from clawpipe.core.store.home import Home
from clawpipe.core.store.open import open_store
from clawpipe.core.store.refs import DatasetRef, ModelRef, StepResult
from clawpipe.play.workers.pool import open_workers
from clawpipe.serve.export.served import export_policy
from clawpipe.serve.export.served import measure_fidelity as measure
from tasks.step import step


@step(anywhere=True)
def export(policy: ModelRef, quantization: Quantization, runtime: Runtime) -> StepResult:
    """Merge the trained policy into whole weights, quantized as they are served."""
    home = Home.from_env()
    with open_workers(runtime, home.logs) as pool:
        return export_policy(open_store(home), pool, policy, quantization)


@step(anywhere=True)
def measure_fidelity(trained: ModelRef, served: ModelRef, base: ModelRef, heldout: DatasetRef, runtime: Runtime) -> StepResult:
    """Measure the KL divergences of the served policy and of the base from the trained policy."""
    home = Home.from_env()
    with open_workers(runtime, home.logs) as pool:
        return measure(open_store(home), pool, trained, served, base, heldout)
