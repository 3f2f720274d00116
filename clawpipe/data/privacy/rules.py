"""Load the rules for secrets and personal data. People should read `rules.yaml` beside this module."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Literal, Self

import duckdb
from pydantic import BaseModel, ConfigDict, Field, model_validator

import clawpipe.data.privacy
from clawpipe.core.basics.patterns import fits
from clawpipe.core.basics.plain_yaml import parse_yaml
from clawpipe.core.store.home_settings import read_home_settings
from clawpipe.data.privacy.finders import patterns_elsewhere

_EDGE = "<edge>"  # the part that stands for the start of a word
_NESTED = 3  # parts may name parts
_KNOWN = "What detect-secrets knows and the rules above do not: keys of IBM, Artifactory, Twilio and others."


@dataclass(frozen=True)
class Rule:
    """One kind of secret: patterns before it, of itself, and after it, in RE2 without capturing groups.

    Attributes:
        ships: whether the rule comes with clawpipe, and not from a home's `privacy.yaml`.
        finder: a name in `FINDERS`, of what finds the secrets in texts in which the patterns match; else the patterns find them.
        hints: patterns of which one matches wherever the rule's do: simpler ones, or parts that are searched for faster.
    """

    name: str
    why: str
    secret: str
    before: str
    after: str = ""
    unless: str | None = None
    check: str | None = None
    ships: bool = True
    finder: str | None = None
    hints: tuple[str, ...] = ()

    @property
    def pattern(self) -> str:
        """The pattern with the three parts as groups 1 to 3."""
        return f"({self.before})({self.secret})({self.after})"

    @property
    def anywhere(self) -> str:
        """The pattern without groups, which searches faster."""
        return f"(?:{self.before})(?:{self.secret})(?:{self.after})"

    @property
    def placeholder(self) -> str:
        """The text that replaces the secret."""
        return f"[REDACTED:{self.name}]"


class RuleText(BaseModel):
    """A rule in YAML. Patterns are in RE2, and must also be valid in Python's `re`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = Field(pattern=r"^[a-z][a-z0-9\-]*$")
    why: str
    secret: str | list[str] = Field(description="what is replaced; of a list any")
    before: str = Field(default=_EDGE, description="what stands before it; `<edge>` is the start of a word")
    after: str = ""
    unless: str | None = Field(default=None, description="a secret that matches this as a whole stays")
    check: Literal["luhn", "iban", "random"] | None = None

    @property
    def any_secret(self) -> str:
        return self.secret if isinstance(self.secret, str) else "|".join(self.secret)

    def rule(self, parts: Mapping[str, str], allow: Sequence[str]) -> Rule:
        """Return the rule of a home, with the parts that its patterns name."""
        before, after, stays = (_filled(one, parts) for one in (self.before, self.after, self.unless or ""))
        stays = "|".join([*([stays] if stays else []), *allow])
        return Rule(self.name, self.why, self.any_secret, before, after, stays or None, self.check, ships=False)


def _filled(pattern: str, parts: Mapping[str, str]) -> str:
    """Replace the names of parts in a pattern, also those within parts."""
    for _ in range(_NESTED):
        for name, part in parts.items():
            pattern = pattern.replace(f"<{name}>", part)
    return pattern


class ShippedRule(RuleText):
    """A rule in the YAML file that ships, perhaps with a finder, and with a pattern that hints at it."""

    finder: str | None = None
    hint: str | None = None

    def shipped(self, parts: Mapping[str, str], allow: Sequence[str]) -> Rule:
        rule = replace(self.rule(parts, allow), ships=True, finder=self.finder)
        return replace(rule, hints=(_filled(self.hint, parts),) if self.hint else tuple(self._hints(rule)))

    def _hints(self, rule: Rule) -> Iterator[str]:
        """Yield a pattern for each secret, wherever it begins: with an edge before them, a search takes three times as long."""
        before = "" if self.before == _EDGE else rule.before
        for secret in [self.secret] if isinstance(self.secret, str) else self.secret:
            yield replace(rule, secret=secret, before=before).anywhere


class HomeRules(BaseModel):
    """The changes of a home's `privacy.yaml` to the rules that ship."""

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
        if empty := [one.name for one in self.rules if fits(one.any_secret, "") is not False]:
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
def _shipped() -> tuple[dict[str, str], tuple[ShippedRule, ...]]:
    """Load the parts of patterns, and the rules that ship; those of detect-secrets come last."""
    pack = parse_yaml((resources.files(clawpipe.data.privacy) / "rules.yaml").read_text(encoding="utf-8"))
    known = ShippedRule(name="known-key", why=_KNOWN, before="", secret=patterns_elsewhere(), finder="known_elsewhere")
    return pack["parts"], (*(ShippedRule(**fields) for fields in pack["rules"]), known)


def load_rules(home: HomeRules | None = None) -> tuple[Rule, ...]:
    """Return the rules in the order in which they apply, with the changes of a home."""
    home, (parts, shipped) = home or HomeRules(), _shipped()
    kept = [one for one in shipped if one.name not in home.without]
    return (
        *(one.shipped(parts, home.allow) for one in kept),
        *(one.rule(parts, home.allow) for one in home.rules),
    )


def rules_of(root: Path) -> tuple[Rule, ...]:
    """Load the rules that ship, with the changes of `privacy.yaml` in a home's directory if there is one.

    Raises:
        ConfigError: the file cannot be read, or is invalid.
    """
    return load_rules(read_home_settings(root / "privacy.yaml", HomeRules, "docs/privacy.md"))
