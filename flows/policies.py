"""The policies that exist before a night: base, champion and teacher. Missing ones are fetched, converted or restored."""

from __future__ import annotations

from pathlib import Path

from clawpipe.core.config.night import Model, NightConfig
from clawpipe.core.store.artifacts import Store
from clawpipe.core.store.refs import ModelRef
from clawpipe.errors import ConfigError, DataError
from clawpipe.learn.training.methods import weights_of
from clawpipe.model.policy.base import is_ready, resolve_base
from clawpipe.model.policy.spec import policy_spec
from clawpipe.model.policy.version import base_ref
from clawpipe.model.policy.vocabulary import require_one_vocabulary
from clawpipe.play.workers.pool import WorkerPool
from clawpipe.play.workers.request import Job, ResolveRequest
from clawpipe.record.nights.record import Incumbent
from clawpipe.record.registry.champions import restore
from clawpipe.record.registry.tracking import Tracking

UNFETCHED = "unfetched"
_TEACHER = "train.opd.teacher"


def untrained(model: Model) -> ModelRef:
    """Return the base model as a policy; the digest of a model that is not fetched yet is UNFETCHED."""
    ready = model.elsewhere or is_ready(model.base)
    digest = resolve_base(model.base, model.elsewhere).digest if ready else UNFETCHED
    return base_ref(model.base, digest, model.tool_call_format, model.dtype, model.quantization, model.elsewhere)


def teacher_of(config: NightConfig, base: ModelRef, champion: Incumbent | None) -> ModelRef | None:
    """Return the teacher of all rounds; None where there is no teacher, or each round's policy teaches itself.

    Raises:
        ConfigError: the champion should teach, and there is none.
    """
    name = config.train.opd.teacher
    if name == "start" or not weights_of(config.train)[1]:
        return None
    if name == "base":
        return base
    if name != "champion":
        return untrained(config.model.model_copy(update={"base": name}))
    if champion is None:
        raise ConfigError("there is no champion to teach", _TEACHER, "use start or base until a night has made one")
    return champion.policy


def bring_policies(config: NightConfig, tracking: Tracking, store: Store, pool: WorkerPool, champion: Incumbent | None) -> None:
    """Fetch, convert or restore the policies that are missing.

    Raises:
        ConfigError: the teacher does not exist, or has another vocabulary than the base.
        DataError: the champion is lost.
    """
    if champion is not None:
        _bring_champion(tracking, store, pool, champion)
    if not config.model.elsewhere:
        _bring_base(pool, config.model.base)
    teacher = teacher_of(config, untrained(config.model), champion)
    if teacher is not None:
        if not teacher.stored:
            _bring_base(pool, teacher.base_name)
        _require_one_vocabulary(store, config, champion)


def _require_one_vocabulary(store: Store, config: NightConfig, champion: Incumbent | None) -> None:
    student = untrained(config.model)
    teacher = teacher_of(config, student, champion)  # its base is fetched by now, so its digest is known
    if teacher is not None:
        require_one_vocabulary(*(Path(policy_spec(store, policy).base) for policy in (student, teacher)), where=_TEACHER)


def _bring_base(pool: WorkerPool, name: str) -> None:
    """Fetch or convert a missing base model in a worker, because it takes much memory."""
    if not is_ready(name):
        pool.run(Job(request=ResolveRequest(name=name)))


def _bring_champion(tracking: Tracking, store: Store, pool: WorkerPool, champion: Incumbent) -> None:
    policy = champion.policy
    if not policy.weights and not policy.elsewhere:  # merged weights need no base
        _bring_base(pool, policy.base_name)
    if policy.stored and not store.intact(policy) and not restore(tracking, store, champion):
        raise DataError(
            f"the champion that this night is compared with (version {champion.version}) is lost",
            str(Path(store.path(policy))),
            "restore the registry's artifacts, or remove the night's night.json to compare with today's champion",
        )
