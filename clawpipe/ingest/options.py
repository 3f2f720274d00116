"""What a person says about files besides their names."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from clawpipe.errors import ConfigError
from clawpipe.extensions import file_of, is_reference
from clawpipe.importers.mapping import Mapping, read_mapping
from clawpipe.importers.read import AUTO
from clawpipe.store.digests import sha256_file, sha256_json

_VERSION = re.compile(r"[A-Za-z0-9._:-]{1,128}")

Told = Literal["tempered", "raw"]


@dataclass(frozen=True)
class Options:
    """How files are read.

    Attributes:
        format: name of their format, or a reference to one's own; "auto" tells each line's by its content.
        policy_version: of whoever sampled the tokens in them.
        labels: file of labels, joined by prompt and occurrence.
        user: whose sessions they are, where they do not say.
        temperature: that tokens were sampled at, where they do not say.
        map: words TARGET=PATH that say where records of another form hold what.
        logprobs: what their log-probs are, whatever the format says: "tempered", at the sampling temperature, or "raw", at 1.
    """

    format: str = AUTO
    policy_version: str | None = None
    labels: Path | None = None
    user: str | None = None
    temperature: float | None = None
    logprobs: Told | None = None
    map: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.policy_version is not None and not _VERSION.fullmatch(self.policy_version):
            fix = "up to 128 letters, digits, '.', '_', ':' and '-'"
            raise ConfigError(f"{self.policy_version!r} cannot name a policy version", "--policy-version", fix)
        if self.temperature is not None and not 0 <= self.temperature < math.inf:
            raise ConfigError(f"{self.temperature} is no sampling temperature", "--temperature", "a number, at least 0")
        if self.logprobs not in (None, *get_args(Told)):
            raise ConfigError(f"there are no {self.logprobs!r} log-probs", "--logprobs", f"one of {', '.join(get_args(Told))}")
        read_mapping(self.map)

    @property
    def mapping(self) -> Mapping:
        """Where records hold what."""
        return read_mapping(self.map)

    @property
    def name(self) -> str:
        """Equal options continue one log of datasets; others would make other rows of the same lines, so they begin their own.

        Raises:
            ConfigError: the file of labels cannot be read.
        """
        try:
            labels = sha256_file(self.labels) if self.labels else None
        except OSError as error:
            raise ConfigError(f"labels cannot be read: {error.strerror}", str(self.labels), "name a JSON Lines file") from error
        sampling = [self.temperature, self.logprobs]
        told: list[Any] = sampling if sampling != [None, None] else []  # logs that are there already keep their names
        told += [sorted(self.map)] if self.map else []
        importer = file_of(self.format) if is_reference(self.format) else None
        told += [sha256_file(importer)] if importer and importer.is_file() else []  # it may read the same lines otherwise
        return sha256_json([self.format, self.policy_version, labels, self.user, *told])[:16]
