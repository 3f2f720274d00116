"""The keys of the gateway's clients. The home holds digests only; a key itself is shown once, when it is made."""

from __future__ import annotations

import hashlib
import secrets
import time
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from clawpipe.core.store.files import exclusive, write_atomic
from clawpipe.core.store.home import Home
from clawpipe.errors import ConfigError, DataError, NotFoundError

_PREFIX = "sk-clawpipe-"


class Key(BaseModel):
    """What is known of one key. A limit of None does not limit."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$", description="of the key")
    owner: str | None = Field(default=None, description="the user of its turns that name none")
    made: float = Field(description="seconds since 1970")
    revoked: float | None = Field(default=None, description="seconds since 1970; None while the key is good")
    capture: bool = Field(default=True, description="whether its turns are captured")
    per_minute: int | None = Field(default=None, ge=1, description="requests a minute")
    per_day: int | None = Field(default=None, ge=1, description="requests a day (UTC)")
    at_once: int | None = Field(default=None, ge=1, description="requests at a time")


class _Keys(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    keys: tuple[Key, ...] = ()


def keys_path(home: Home) -> Path:
    return home.root / "keys.json"


def read_keys(home: Home) -> tuple[Key, ...]:
    """Return all keys, the revoked ones, too, in the order in which they were made.

    Raises:
        DataError: the file is damaged.
    """
    try:
        return _Keys.model_validate_json(keys_path(home).read_bytes()).keys
    except FileNotFoundError:
        return ()
    except ValidationError as error:
        raise DataError(f"the keys are damaged: {error.errors()[0]['msg']}", str(keys_path(home)), "restore the file") from None


def make_key(home: Home, name: str, **settings: str | bool | int | None) -> str:
    """Make a key and return it: nothing can show it again. `settings` are fields of `Key`.

    Raises:
        ConfigError: the name is taken or no name, or a limit is below 1.
    """
    secret = _PREFIX + secrets.token_urlsafe(32)
    with exclusive(home.locks / "keys.lock", "the keys of this home", wait=True):
        known = read_keys(home)
        if any(key.name == name for key in known):
            raise ConfigError(f"there is, or was, a key {name!r}", str(keys_path(home)), "choose another name")
        try:
            key = Key.model_validate({"name": name, "sha256": digest_of(secret), "made": time.time(), **settings})
        except ValidationError as error:
            wrong = error.errors()[0]
            raise ConfigError(f"{'.'.join(map(str, wrong['loc']))}: {wrong['msg']}", name) from None
        _write(home, (*known, key))
    return secret


def revoke_key(home: Home, name: str) -> Key:
    """Make a key useless. A gateway that runs notices within a second.

    Raises:
        NotFoundError: there is no such key.
    """
    with exclusive(home.locks / "keys.lock", "the keys of this home", wait=True):
        known = read_keys(home)
        found = next((key for key in known if key.name == name), None)
        if found is None:
            raise NotFoundError(f"there is no key {name!r}", str(keys_path(home)), "`clawpipe keys list` shows them")
        revoked = found.model_copy(update={"revoked": found.revoked or time.time()})
        _write(home, tuple(revoked if key is found else key for key in known))
    return revoked


def digest_of(secret: str) -> str:
    """Return the sha256 of a key. Keys are random, so they need no salt."""
    return hashlib.sha256(secret.encode("utf-8", "surrogateescape")).hexdigest()


def key_of(name: str, secret: str) -> Key:
    """Return a key without limits that is not in the home."""
    return Key(name=name, sha256=digest_of(secret), made=time.time())


def _write(home: Home, keys: tuple[Key, ...]) -> None:
    write_atomic(keys_path(home), _Keys(keys=keys).model_dump_json(indent=1).encode(), mode=0o600)
