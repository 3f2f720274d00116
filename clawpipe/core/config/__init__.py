"""The settings of a night."""

from clawpipe.core.config.load import load_config
from clawpipe.core.config.night import NightConfig

__all__ = ["NightConfig", "load_config"]
