"""The rule pack: what counts as a secret or as personal data. `rules.yaml` beside this module is meant to be read."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib import resources

import yaml

import clawpipe.privacy


@dataclass(frozen=True)
class Rule:
    """One kind of secret: what stands before it, itself, and what follows; RE2 without capturing groups."""

    name: str
    why: str
    secret: str
    before: str
    after: str = ""
    unless: str | None = None
    check: str | None = None

    @property
    def pattern(self) -> str:
        """The three parts as groups 1 to 3."""
        return f"({self.before})({self.secret})({self.after})"

    @property
    def anywhere(self) -> str:
        """The same without groups, which tells faster whether it occurs."""
        return f"(?:{self.before})(?:{self.secret})(?:{self.after})"

    @property
    def placeholder(self) -> str:
        """What stands in the secret's place."""
        return f"[REDACTED:{self.name}]"


@cache
def load_rules() -> tuple[Rule, ...]:
    """The rules in the order in which they apply."""
    pack = yaml.safe_load((resources.files(clawpipe.privacy) / "rules.yaml").read_text(encoding="utf-8"))
    return tuple(Rule(**{"before": pack["edge"], **fields}) for fields in pack["rules"])
