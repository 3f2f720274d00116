"""Backends: what trains a policy, here or elsewhere. Imports no heavy library.

A backend is made by `factory(url, model, **options)`: in the process of the night, which asks it what it can do, and in the child
process of each training (`python -m clawpipe.learn.training`), which calls `train`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol, runtime_checkable

from clawpipe.core.config.backend import BackendSpec
from clawpipe.core.config.methods import METHODS
from clawpipe.core.config.quantization import Quantization
from clawpipe.core.config.training import Train
from clawpipe.core.user_code.extensions import ExtensionPoint
from clawpipe.errors import ConfigError
from clawpipe.learn.training.methods import needs

if TYPE_CHECKING:
    from clawpipe.core.config.night import NightConfig
    from clawpipe.learn.training.request import TrainRequest

OnStep = Callable[[dict[str, float]], None]
# Named in full, so that every training's key holds it; a service's code is in the keys of the trainings that name it.
_LOCAL = "clawpipe.learn.training.local:LocalBackend"
_SERVICES = {"tinker": "remote.tinker:TinkerBackend", "fireworks": "remote.fireworks:FireworksBackend"}
BACKENDS = ExtensionPoint(
    "backend",
    "train.backend",
    {"local": _LOCAL, **{name: f"{__package__}.{place}" for name, place in _SERVICES.items()}},
    members=("can", "train"),
)


@dataclass(frozen=True)
class Capabilities:
    """What a backend can do; what a night's settings ask beyond it is refused before the night starts.

    Attributes:
        methods: values of `train.method` that it trains.
        adapters: values of `train.adapter`: what it returns, an adapter or whole weights.
        elsewhere: it trains on another machine: neither this one's memory nor the base's weights here are needed.
        starts_from_adapter: training can start from an adapter that is given as files.
        goes_on: a night's later round goes on from what the round before it left in the outcome's `optimizer` directory.
        snapshots: it keeps the policy after every `train.probe_steps` optimizer steps.
        resumes: a training that was killed goes on where it was; else it starts again.
    """

    methods: frozenset[str] = frozenset(METHODS)
    adapters: frozenset[str] = frozenset({"lora"})
    elsewhere: bool = True
    starts_from_adapter: bool = False
    goes_on: bool = False
    snapshots: bool = False
    resumes: bool = False


class Refusal(NamedTuple):
    """A setting that a backend cannot train with.

    Attributes:
        why: in a few words, e.g. "the service gives log-probs at temperature 1".
        instead: as it would be written on the command line, e.g. `rollouts.temperature=1`.
    """

    why: str
    instead: str


class Backend(Protocol):
    """Trains policies."""

    can: Capabilities

    def train(self, request: TrainRequest, work: Path, on_step: OnStep) -> None:
        """Train, and commit the outcome by `clawpipe.learn.training.outcome.commit_outcome`.

        Args:
            request: rows and settings, as files and values.
            work: directory that only this training uses, and finds again after a kill.
            on_step: to be called with the metrics of each optimizer step.

        Raises:
            ConfigError, DataError, TrainingError, BusyError: see clawpipe.errors; the last one means that a later try goes on.
        """
        ...


@runtime_checkable
class Refuses(Protocol):
    """A backend that cannot train with every value of every setting."""

    def refusals(self, train: Train, temperature: float, quantization: Quantization) -> Iterator[Refusal]:
        """Yield what it cannot do; all of it is told at once.

        Args:
            temperature: the one at which rollouts are sampled.
            quantization: of the base, on this machine.
        """
        ...


@runtime_checkable
class Scores(Protocol):
    """A backend that computes log-probs of given tokens: before a night, they are compared with those of the model here."""

    def logprobs(self, request: TrainRequest, rows: Sequence[Sequence[int]]) -> list[list[float]]:
        """Return natural log-probs at temperature 1 of each row's tokens from its second on, under the base of the request."""
        ...


def open_backend(spec: BackendSpec) -> Backend:
    """Return the backend that the settings name.

    Raises:
        NotFoundError, ConfigError: no such backend, or it does not take these options, see `ExtensionPoint.make`.
    """
    return BACKENDS.make(spec.name, spec.options, spec.url, spec.model)


def require_backend(config: NightConfig) -> None:
    """Check that the night's backend can train as the settings ask.

    Raises:
        NotFoundError, ConfigError: see `open_backend`; or it cannot.
    """
    train, rollouts = config.train, config.rollouts
    temperature = rollouts.temperature if rollouts else 1.0
    backend = open_backend(train.backend)
    _refuse(train.backend, [*_beyond(backend.can, config), *_own(backend, train, temperature, config.model.quantization)])


def require_request(request: TrainRequest) -> None:
    """Check the same of one training, which may belong to no night.

    Raises:
        NotFoundError, ConfigError: see `require_backend`.
    """
    backend = open_backend(request.config.backend)
    own = _own(backend, request.config, 1.0, request.quantization)  # which rows can be used is for the backend to see
    _refuse(request.config.backend, [*_of_training(backend.can, request.config), *own])


def _refuse(spec: BackendSpec, refusals: list[Refusal]) -> None:
    if refusals:
        why = "; ".join(refusal.why for refusal in refusals)
        fix = "set " + " ".join(dict.fromkeys(refusal.instead for refusal in refusals)) + ", or train.backend=local"
        raise ConfigError(f"{spec.name} cannot train as the settings ask: {why}", "train.backend", fix)


def _own(backend: Backend, train: Train, temperature: float, quantization: Quantization) -> Iterator[Refusal]:
    if isinstance(backend, Refuses):
        yield from backend.refusals(train, temperature, quantization)


def _of_training(can: Capabilities, train: Train) -> Iterator[Refusal]:
    if train.method not in can.methods:
        yield Refusal(f"it has no {train.method}", f"train.method={'|'.join(sorted(can.methods))}")
    if train.adapter not in can.adapters:
        yield Refusal(f"it does not train train.adapter {train.adapter}", f"train.adapter={'|'.join(sorted(can.adapters))}")
    if train.probe_steps and not can.snapshots:
        yield Refusal("it keeps no policy between optimizer steps", "train.probe_steps=null")


def _beyond(can: Capabilities, config: NightConfig) -> Iterator[Refusal]:
    yield from _of_training(can, config.train)
    if config.rounds > 1 and not can.goes_on:
        yield Refusal("it cannot go on from an earlier round", "rounds=1")
    if config.train.start_from == "champion" and not can.starts_from_adapter:
        yield Refusal("it cannot start from an adapter that lies here", "train.start_from=base")
    if config.model.elsewhere:
        yield from _without_weights(config)
    if can.elsewhere and (config.runtime.train_processes > 1 or config.runtime.accelerate):
        yield Refusal("no process of this machine trains", "runtime.train_processes=1 runtime.accelerate=null")


def _without_weights(config: NightConfig) -> Iterator[Refusal]:
    """Yield what takes log-probs of policies whose weights are not on this machine."""
    scored = " and ".join(sorted(needs(config.train)))
    if scored:
        why = f"the base's weights are elsewhere, and the log-probs of the {scored} policy are computed here"
        yield Refusal(why, "train.method=grpo train.loss.kl_coef=0, or sft")
    if (config.trajectories or config.curation.sampling.replay_nights) and config.train.spec.uses_ratios:
        why = "the base's weights are elsewhere, and recorded log-probs are compared with them here"
        yield Refusal(why, "train.method=sft, or trajectories=[] curation.sampling.replay_nights=0")
