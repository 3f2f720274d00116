"""Mask secrets in texts that people and logs see: errors, and what is told about addresses and settings.

What somebody asks to be redacted from conversations is another matter: see `clawpipe.data.privacy`.
"""

from __future__ import annotations

import os
import re

MASK = "***"
_VARIABLES = ("WANDB_API_KEY", "MLFLOW_TRACKING_PASSWORD", "MLFLOW_TRACKING_TOKEN", "TINKER_API_KEY")
_SECRET = r"[\w.-]*(?:key|token|secret|password|passwd|passphrase|credentials?|auth_string)"
_QUOTED = r""""(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'"""
_USER = re.compile(r"://[^\s/?#]*@")
_PASSWORD = re.compile(r"(:/{1,3}[^\s/?#:]*:)(?!\d+[/?#])\S*@")  # it may hold whatever a URL must not: slashes, quotes, an @
_SCHEMELESS = re.compile(r"^[^\s/@]*:[^\s/]\S*@")  # user:password@host
_QUERY = re.compile(r"([?&;][\w.-]*(?:key|token|secret|passw|pwd|sig|auth|credential)[\w.-]*=)[^&\s#'\"]+", re.IGNORECASE)
_GIVEN = re.compile(
    rf"((?<![?&;\w.-]){_SECRET}=)(?![\"']?\$\((?:clawpipe|python -c) )(?:{_QUOTED}|\S+)", re.IGNORECASE
)  # but not $(clawpipe keys ...) and $(python -c ...), which make a key
_IN_MAPPING = re.compile(rf"""((?:[{{,]\s*{_SECRET}|["']{_SECRET}["'])\s*:\s*)(?:{_QUOTED}|[^,}}\]\n]+)""", re.IGNORECASE)


def without_secrets(text: str) -> str:
    """Return `text` without the user and password of URLs, without values of parameters and settings whose names say key, token,
    secret or password (`api_key=...`, `{token: ...}`), and without the keys that clawpipe reads from the environment."""
    for secret in filter(None, map(os.environ.get, _VARIABLES)):
        text = text.replace(secret, MASK)
    text = _USER.sub(f"://{MASK}@", _PASSWORD.sub(_without_user, text))
    for named in (_QUERY, _GIVEN):
        text = named.sub(rf"\g<1>{MASK}", text)
    before, brace, mapping = text.partition("{")
    return before + _IN_MAPPING.sub(rf"\g<1>{MASK}", brace + mapping)


def _without_user(found: re.Match[str]) -> str:
    start = found[1]
    return f"{start[: start.rindex('/') + 1]}{MASK}@"


def setting_without_secret(setting: str) -> str:
    """Return `NAME=VALUE` without a value whose name says that it is secret, and else as `without_secrets`."""
    name, _, value = setting.partition("=")
    if value and re.fullmatch(_SECRET, name, re.IGNORECASE):
        return f"{name}={MASK}"
    return without_secrets(f"{name}={_SCHEMELESS.sub(f'{MASK}@', value)}")
