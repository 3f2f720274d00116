"""Refuse what cannot become a night before anything starts: within seconds, and without Prefect."""

from __future__ import annotations

import pyarrow.compute as pc

from clawpipe.core.config.methods import METHODS
from clawpipe.core.config.night import NightConfig
from clawpipe.core.store.datasets import dataset_batches, dataset_ref
from clawpipe.core.store.home import Home
from clawpipe.core.store.open import open_store
from clawpipe.core.system.devices import expected_device
from clawpipe.core.user_code.extensions import is_reference
from clawpipe.errors import ConfigError
from clawpipe.learn.training.backends import require_backend
from clawpipe.learn.training.methods import weights_of
from clawpipe.model.planning.plan import distributed_by
from clawpipe.model.planning.targets import require_targets
from clawpipe.model.policy.base import require_base
from clawpipe.model.policy.quantization import require
from clawpipe.play.environments.demonstration import demonstration_note
from clawpipe.play.environments.discovery import ENVIRONMENTS
from clawpipe.play.environments.several import open_environments
from flows.datasets import NothingNewError, named_datasets
from tasks.keys import extensions_of

_OF_THE_NIGHT = ("start", "base", "champion")  # teachers that are no model by name


def refuse_early(home: Home, config: NightConfig) -> None:
    """Raise what would end a night before its first step, as far as it is known without a worker or a server.

    Raises:
        ConfigError, NotFoundError: a setting, a base model, an environment, or a method for which the stored rows have no tokens.
        DataError: a stored dataset is lost.
    """
    require_settings(config)
    require_base(config.model.base, "model.base")
    teacher = config.train.opd.teacher
    if weights_of(config.train)[1] and teacher not in _OF_THE_NIGHT:
        require_base(teacher, "train.opd.teacher")
    _require_tokens(home, config)


def require_settings(config: NightConfig) -> None:
    """Raise ConfigError for settings that this machine cannot run."""
    require_loadable(config)
    device = expected_device(config.runtime.device)
    require(config.model.quantization, device, "model.quantization")
    require(config.serving.quantization, device, "serving.quantization")


def require_loadable(config: NightConfig) -> None:
    """Raise ConfigError for settings that no machine can run."""
    with open_environments(config.drawn):  # they can be made, those of the user's in processes of their own
        pass
    for point, name in extensions_of(config):
        if point is not ENVIRONMENTS:
            point.load(name) if is_reference(name) else point.place(name)
    require_backend(config)
    if config.runtime.accelerate:
        distributed_by(config.runtime.accelerate)  # it can be read; the trainer comes after the rollouts
    if config.train.adapter == "lora" and config.train.backend.is_local:
        require_targets(config.model.base, config.train.lora)


def undemonstrated(config: NightConfig) -> str | None:
    """Return one line about environments that show none of the demonstrations that the settings ask for.

    Raises:
        ConfigError, NotFoundError: an environment cannot be made, or its `hindsight` raises.
    """
    if not (config.rollouts and config.curation.demonstrations.share):
        return None
    with open_environments(config.drawn) as environments:
        return demonstration_note(environments)


def _require_tokens(home: Home, config: NightConfig) -> None:
    """Raise if the method learns from recorded tokens alone, nothing is rolled out, and no stored row has any."""
    method = METHODS[config.train.method]
    if method.text != "none" or method.pairs or config.rollouts is not None:
        return
    store = open_store(home)
    try:
        digests = {"trajectories": config.trajectories, **named_datasets(home, config)}["trajectories"]
    except NothingNewError:
        return  # which is no mistake: the night says it, and its run is recorded
    refs = [dataset_ref(store, "trajectories", digest) for digest in digests]
    rows = sum(ref.rows for ref in refs)
    columns = (batch["tokens"] for ref in refs for batch in dataset_batches(store, ref, ["tokens"]))
    if rows and all(pc.all(pc.equal(column, "none")).as_py() for column in columns):  # pyright: ignore[reportAttributeAccessIssue]  # made at run time
        texts = " or ".join(name for name, one in METHODS.items() if one.text != "none" or one.pairs)
        what = f"{config.train.method} learns from recorded tokens, and none of the {rows} stored trajectories has them"
        raise ConfigError(what, "train.method", f"take {texts}, or roll out: `rollouts: {{}}`")
