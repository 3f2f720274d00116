"""Settings of a night. A step's key holds the block of settings that the step takes, restricted to fields that change results.

Settings that change no result (devices, workers, time limits) are in `Runtime`, which is in no key. A block that steps take has a
module of its own, so that a step's key does not hold the others; all of them can be imported from here.
"""

from __future__ import annotations

from pydantic import model_validator

from clawpipe.core.config.contradictions import contradiction
from clawpipe.core.config.curation import Curation as Curation
from clawpipe.core.config.curation import Pairs as Pairs
from clawpipe.core.config.engine import EngineSpec as EngineSpec
from clawpipe.core.config.environment import CONVERSATIONS as CONVERSATIONS
from clawpipe.core.config.environment import Drawn as Drawn
from clawpipe.core.config.environment import EnvironmentConfig as EnvironmentConfig
from clawpipe.core.config.environment import EnvironmentSpec as EnvironmentSpec
from clawpipe.core.config.environment import Played as Played
from clawpipe.core.config.environment import WeightedEnvironment as WeightedEnvironment
from clawpipe.core.config.gate import Gate as Gate
from clawpipe.core.config.gate import Measure as Measure
from clawpipe.core.config.generation import Generation as Generation
from clawpipe.core.config.generation import Rollouts as Rollouts
from clawpipe.core.config.metrics import Metrics as Metrics
from clawpipe.core.config.model import Model as Model
from clawpipe.core.config.night_fields import Evaluation as Evaluation
from clawpipe.core.config.night_fields import NightFields
from clawpipe.core.config.night_fields import Serving as Serving
from clawpipe.core.config.night_fields import Tracking as Tracking
from clawpipe.core.config.notify import Notify as Notify
from clawpipe.core.config.runtime import Runtime as Runtime
from clawpipe.core.config.scorers import JudgeSpec as JudgeSpec
from clawpipe.core.config.scorers import ScorerSpec as ScorerSpec


class NightConfig(NightFields):
    """One night: from task items, or from stored data, to a verdict."""

    @model_validator(mode="after")
    def _is_free_of_contradictions(self) -> NightConfig:
        if why := contradiction(self):
            raise ValueError(why)
        return self
