"""The settings of a night."""

from clawpipe.config.load import load_config
from clawpipe.config.night import NightConfig

__all__ = ["NightConfig", "load_config"]
