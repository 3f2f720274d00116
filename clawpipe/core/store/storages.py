"""Open storages at the URLs that fsspec knows, and translate their errors for users."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from clawpipe.errors import BusyError, ClawpipeError, ConfigError

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem

LOCAL_TROUBLE = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS}  # errors of the local disk, where waiting does not help
_EXTRAS = {"s3": "clawpipe[s3]", "s3a": "clawpipe[s3]"}

_FORMS = "write it as s3://bucket/prefix or file:///directory"
_ON_DISK, _BUCKETS = ("file", "local"), ("s3", "s3a", "gs", "gcs")


def storage_at(url: str, called: str, what: str) -> tuple[AbstractFileSystem, str]:
    """Return the file system of a URL, and the path in it. Backends are imported only here.

    Args:
        called: the URL's name in messages: a variable, or the URL without secrets.
        what: a description of the content at the URL.

    Raises:
        ConfigError: the URL is invalid, holds a password, or needs a library that is not installed.
        BusyError: the storage does not answer.
    """
    try:
        parts = urlsplit(url)
    except ValueError:  # its message may hold the password
        parts = urlsplit("")
    if not parts.scheme or "://" not in url or "::" in url:
        raise ConfigError(f"{called} is no URL of a storage", fix=_FORMS)
    if parts.scheme in _ON_DISK and parts.netloc:  # it would be a directory of wherever the command was started
        raise ConfigError(f"{called} is no absolute path: two slashes are one too few", fix=_FORMS)
    if parts.scheme in _BUCKETS and not parts.netloc:
        raise ConfigError(f"{called} names no bucket", fix=_FORMS)
    if parts.password:
        raise ConfigError(f"{called} holds a password", fix="give credentials in the variables that the storage's own tools read")
    import fsspec

    try:
        return fsspec.url_to_fs(url)
    except ImportError as error:
        package = _EXTRAS.get(parts.scheme)
        fix = f"pip install '{package}'" if package else str(error)
        raise ConfigError(f"{what} at {parts.scheme}:// needs a library that is not installed", called, fix) from None
    except ValueError as error:
        raise ConfigError(f"{called} cannot be opened: {error}", url) from None
    except Exception as error:  # some backends connect here
        raise storage_error(url, error, what) from error


def storage_error(url: str, error: Exception, what: str) -> ClawpipeError:
    """Translate a backend's error; `what` describes the content at the URL."""
    name = type(error).__name__
    if "Credentials" in name:  # botocore's, which is not imported here
        return ConfigError(f"no credentials for {what}: {error}", url, "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY")
    return BusyError(f"{what} does not answer: {name}: {error}", url, "try again once it does")
