"""The rule pack: what counts as a secret or as personal data. `rules.yaml` beside this module is meant to be read."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Literal, Self

import duckdb
import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

import clawpipe.privacy
from clawpipe.errors import ConfigError
from clawpipe.plain_yaml import parse_yaml


@dataclass(frozen=True)
class Rule:
    """One kind of secret: what stands before it, itself, and what follows; RE2 without capturing groups.

    `ships`: it is one of the rule pack, and not of a home's own.
    """

    name: str
    why: str
    secret: str
    before: str
    after: str = ""
    unless: str | None = None
    check: str | None = None
    ships: bool = True

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


class RuleText(BaseModel):
    """A rule as YAML has it. Patterns are in RE2, and Python's `re` must understand them, too."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = Field(pattern=r"^[a-z][a-z0-9\-]*$")
    why: str
    secret: str | list[str] = Field(description="what is replaced; of a list any")
    before: str = Field(default="<edge>", description="what stands before it; `<edge>` is the start of a word")
    after: str = ""
    unless: str | None = Field(default=None, description="a secret that matches this as a whole stays")
    check: Literal["luhn", "iban"] | None = None

    @property
    def any_secret(self) -> str:
        return self.secret if isinstance(self.secret, str) else "|".join(self.secret)

    def rule(self, edge: str, allow: Sequence[str], ships: bool) -> Rule:
        stays = "|".join([*([self.unless] if self.unless else []), *allow])
        before = self.before.replace("<edge>", edge)
        return Rule(self.name, self.why, self.any_secret, before, self.after, stays or None, self.check, ships)


class HomeRules(BaseModel):
    """What a home's `privacy.yaml` adds to the rules that ship, and what it leaves out."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    without: list[str] = Field(default=[], description="names of rules that do not apply")
    allow: list[str] = Field(default=[], description="patterns; a secret that matches one as a whole stays, whatever rule found it")
    rules: list[RuleText] = Field(default=[], description="apply after those that ship")

    @model_validator(mode="after")
    def _makes_sense(self) -> Self:
        shipped = [one.name for one in _shipped()[1]]
        if unknown := sorted(set(self.without) - set(shipped)):
            raise ValueError(f"without: there is no rule {unknown[0]!r}, but {', '.join(shipped)}")
        if twice := sorted({one.name for one in self.rules} & set(shipped)):
            raise ValueError(f"rules: {twice[0]!r} is a rule that ships; take another name")
        for pattern in (
            *self.allow,
            *(part for one in self.rules for part in (one.any_secret, one.before, one.after, one.unless or "")),
        ):
            _check_pattern(pattern)
        if empty := [one.name for one in self.rules if re.fullmatch(one.any_secret, "")]:
            raise ValueError(f"rules: the secret of {empty[0]!r} may be nothing at all, which is everywhere")
        return self


def _check_pattern(pattern: str) -> None:
    try:
        duckdb.execute("select regexp_matches('', ?)", [pattern])
        groups = re.compile(pattern).groups
    except (duckdb.Error, re.error) as error:
        raise ValueError(f"{pattern!r} is no pattern: {str(error).splitlines()[0]}") from None
    if groups:
        raise ValueError(f"{pattern!r} has a capturing group; write (?: instead of (")


@cache
def _shipped() -> tuple[str, tuple[RuleText, ...]]:
    """The edge, and the rules of the pack."""
    pack = yaml.safe_load((resources.files(clawpipe.privacy) / "rules.yaml").read_text(encoding="utf-8"))
    return pack["edge"], tuple(RuleText(**fields) for fields in pack["rules"])


def load_rules(own: HomeRules | None = None) -> tuple[Rule, ...]:
    """The rules in the order in which they apply, as somebody's own change them."""
    own, (edge, shipped) = own or HomeRules(), _shipped()
    kept = [one for one in shipped if one.name not in own.without]
    return (
        *(one.rule(edge, own.allow, ships=True) for one in kept),
        *(one.rule(edge, own.allow, ships=False) for one in own.rules),
    )


def rules_of(home: Path) -> tuple[Rule, ...]:
    """The rules that ship, as `privacy.yaml` in a home's directory changes them; without such a file, as they are.

    Raises:
        ConfigError: the file cannot be read, or says what it may not.
    """
    file = home / "privacy.yaml"
    try:
        return load_rules(HomeRules.model_validate(parse_yaml(file.read_bytes()) or {}))
    except FileNotFoundError:
        return load_rules()
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise ConfigError(
            first["msg"], f"{file}: {place}" if place else str(file), "docs/privacy.md says what it may hold"
        ) from None
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ConfigError(f"cannot be read as YAML: {' '.join(str(error).split())}", str(file)) from None
