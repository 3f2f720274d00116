"""The options of `clawpipe ingest`."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from clawpipe.core.store.digests import sha256_file, sha256_json
from clawpipe.core.user_code.extensions import file_of, is_reference
from clawpipe.data.importers.read.mapping import Mapping, read_mapping
from clawpipe.data.importers.read.user import AUTO
from clawpipe.errors import ConfigError

_VERSION = re.compile(r"[A-Za-z0-9._:-]{1,128}")

LogprobsKind = Literal["tempered", "raw"]


@dataclass(frozen=True)
class Options:
    """Options for reading files.

    Attributes:
        format: name of the format, or a reference to a user's; "auto" recognises each line by its content.
        policy_version: the policy version that sampled the tokens.
        labels: file of labels, joined by prompt and occurrence.
        user: the user of records that name none.
        temperature: the sampling temperature of records that name none.
        map: words TARGET=PATH that map fields of records in another form.
        log: name of a log apart from that of equal options: what another log has read is read again.
        logprobs: the kind of the log-probs, whatever the format says: "tempered", at the sampling temperature, or "raw", at 1.
    """

    format: str = AUTO
    policy_version: str | None = None
    labels: Path | None = None
    user: str | None = None
    temperature: float | None = None
    logprobs: LogprobsKind | None = None
    map: tuple[str, ...] = ()
    log: str | None = None

    def __post_init__(self) -> None:
        if self.policy_version is not None and not _VERSION.fullmatch(self.policy_version):
            fix = "up to 128 letters, digits, '.', '_', ':' and '-'"
            raise ConfigError(f"{self.policy_version!r} cannot name a policy version", "--policy-version", fix)
        if self.temperature is not None and not 0 <= self.temperature < math.inf:
            raise ConfigError(f"{self.temperature} is no sampling temperature", "--temperature", "a number, at least 0")
        if self.logprobs not in (None, *get_args(LogprobsKind)):
            raise ConfigError(
                f"there are no {self.logprobs!r} log-probs", "--logprobs", f"one of {', '.join(get_args(LogprobsKind))}"
            )
        read_mapping(self.map)

    @property
    def mapping(self) -> Mapping:
        """The mapping of fields."""
        return read_mapping(self.map)

    @property
    def name(self) -> str:
        """The name of the log. Equal options continue one log; other options make other rows of the same lines, and begin a new
        log.

        Raises:
            ConfigError: the file of labels cannot be read.
        """
        if self.log:
            return self.log
        try:
            labels = sha256_file(self.labels) if self.labels else None
        except OSError as error:
            raise ConfigError(f"labels cannot be read: {error.strerror}", str(self.labels), "name a JSON Lines file") from error
        sampling = [self.temperature, self.logprobs]
        parts: list[Any] = sampling if sampling != [None, None] else []  # existing logs keep their names
        parts += [sorted(self.map)] if self.map else []
        importer = file_of(self.format) if is_reference(self.format) else None
        parts += [sha256_file(importer)] if importer and importer.is_file() else []  # its code decides what is read
        return sha256_json([self.format, self.policy_version, labels, self.user, *parts])[:16]
