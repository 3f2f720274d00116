"""Files at URLs: http(s) by httpx; S3 and any other storage by fsspec, which finds credentials where the storage's own tools do.

A file is copied to this machine before it is read: what takes long to read would outlast the connection, and tables need to seek.
Secrets in a URL (user, password, query) go to its server and nowhere else: `name_of` is what everything else calls it.
"""

from __future__ import annotations

import logging
import re
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import IO, Any, NamedTuple
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import httpx

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.core.store.digests import sha256_bytes
from clawpipe.core.store.storages import storage_at, storage_error
from clawpipe.errors import BusyError, ClawpipeError, ConfigError, NotFoundError

_URL = re.compile(r"[a-z][a-z0-9+.-]*://", re.IGNORECASE)
_PATTERN = re.compile(r"[*?\[]")
_DIGEST = re.compile(r"sha256:[0-9a-f]{8}")
_SIGNS = re.compile(  # signature parameters of a query; they change although the file does not
    r"x-(amz|goog|ms)-.*|(.*[-_])?(secret|sig|signature|password|auth|authorization|credentials?|expires|policy)"
    r"|((access|auth|id|refresh|session|security|bearer|sas)[-_]?)?token|api[-_]?key|key[-_]pair[-_]id|(aws)?access[-_]?key[-_]?(id)?"
    r"|s[eprvt]|spr|skoid|sktid|sk[estv]",
    re.IGNORECASE,
)
_WHAT = "the storage"
_PATIENCE = httpx.Timeout(60, connect=30)  # seconds without an answer, or without one more byte
_BLOCK = 1 << 20
_LATER = (408, 425, 429)
_LOGGERS = ("httpx", "httpcore")  # they log whole URLs


class Copy(NamedTuple):
    """A local copy of a URL's content; `broken` is the error if the download ended early."""

    path: str
    broken: OSError | None


def is_url(name: str) -> bool:
    return _URL.match(name) is not None


def name_of(url: str) -> str:
    """Return a URL without user, password and fragment; such a name stays as it is.

    A digest replaces the query, without its signature, because a query may name the file.

    Raises:
        ConfigError: it is no URL.
    """
    try:
        parts = urlsplit(url)
    except ValueError as error:
        raise ConfigError(f"this is no URL: {error}", fix="write it as https://host/path") from None
    host = parts.netloc.rpartition("@")[2]
    if not _is_http(url):
        return urlunsplit(parts._replace(netloc=host))
    if _DIGEST.fullmatch(parts.query):
        return urlunsplit((parts.scheme, host, parts.path, parts.query, ""))
    asked = [pair for pair in parse_qsl(parts.query, keep_blank_values=True) if not _SIGNS.fullmatch(pair[0])]
    digest = f"sha256:{sha256_bytes(urlencode(asked).encode())[:8]}" if asked else ""
    return urlunsplit((parts.scheme, host, parts.path, digest, ""))


def files_at(url: str, counts: Callable[[str], bool]) -> list[str]:
    """Return the URLs of the files behind a URL: a storage expands patterns and folders; any other URL stands for itself.

    Raises:
        ConfigError, BusyError: the storage refuses, or does not answer.
    """
    if _is_http(url):
        return [url]
    system, path = storage_at(url, name_of(url), _WHAT)
    with _asked(url):
        if _PATTERN.search(path):
            globbed: JsonObject = system.glob(path, detail=True)  # pyright: ignore[reportAssignmentType]
            found = [file for file, properties in globbed.items() if properties["type"] == "file"]
        else:
            below = [str(file) for file in system.find(path)]
            found = below if below == [path] else list(filter(counts, below))
    return [str(system.unstrip_protocol(file)) for file in sorted(found)]


def version_of(url: str) -> str | None:
    """Return the version of a file: its ETag, else its time and size; None if the server reports neither.

    Raises:
        ConfigError, BusyError: the storage refuses, or does not answer.
    """
    properties = _http_headers(url) if _is_http(url) else _storage_info(url)
    etag, *others = (properties.get(name) for name in ("etag", "last-modified", "content-length"))
    return str(etag) if etag else " ".join(map(str, others)) if all(others) else None


@contextmanager
def copied(url: str) -> Iterator[Copy]:
    """Yield a temporary copy of a URL; of an interrupted download, the part that arrived.

    Raises:
        NotFoundError: there is nothing.
        ConfigError: no URL, or credentials are missing or refused.
        BusyError: no answer, not now, or nowhere to put it.
    """
    with _room():
        folder = tempfile.TemporaryDirectory(prefix="clawpipe-")
    with folder as path:
        target = Path(path) / f"copy{PurePosixPath(urlsplit(url).path).suffix}"
        with _room(), target.open("wb") as file:
            broken = (_get if _is_http(url) else _read)(url, file)
        yield Copy(str(target), broken)


def _is_http(url: str) -> bool:
    return url.lower().startswith(("http://", "https://"))


def _get(url: str, file: IO[bytes]) -> OSError | None:
    headers = {"Accept-Encoding": "identity"}  # packed files are recognised by their first bytes
    with _client(url) as client, client.stream("GET", url, headers=headers) as answer:
        if answer.is_error:
            raise _refused(answer.status_code, url)
        return _copy(answer.iter_raw(), file, httpx.TransportError)


def _read(url: str, file: IO[bytes]) -> OSError | None:
    system, path = storage_at(url, name_of(url), _WHAT)
    with _asked(url), system.open(path, "rb", block_size=8 * _BLOCK) as source:
        return _copy(iter(lambda: source.read(_BLOCK), b""), file, Exception)  # each backend raises what its library does


def _copy(blocks: Iterator[Any], file: IO[bytes], unreadable: type[Exception]) -> OSError | None:
    """Write the blocks, and return the error that ended them early; an error before the first block is raised."""
    while True:
        try:
            block = next(blocks, None)
        except unreadable as error:
            if not file.tell():
                raise
            return ConnectionError(type(error).__name__)
        if block is None:
            return None
        with _room():
            file.write(block)


@contextmanager
def _room() -> Iterator[None]:
    """Raise errors of the local disk as clawpipe's errors."""
    try:
        yield
    except OSError as error:
        what = f"no room for a download: {error.strerror}"
        raise BusyError(what, tempfile.gettempdir(), "free space there, or set TMPDIR") from None


def _http_headers(url: str) -> JsonObject:
    """Return the response headers of a file; empty if the server fails, which reading will report."""
    with _client(url) as client:
        try:
            answer = client.head(url)
        except httpx.TransportError:
            return {}
    return {} if answer.is_error else dict(answer.headers)


def _storage_info(url: str) -> JsonObject:
    system, path = storage_at(url, name_of(url), _WHAT)
    with _asked(url):
        properties = system.info(path)
    when = next(
        (properties[name] for name in ("LastModified", "last_modified", "updated", "mtime", "created") if properties.get(name)),
        None,
    )
    return {
        "etag": properties.get("ETag") or properties.get("etag"),
        "last-modified": when,
        "content-length": properties.get("size"),
    }


@contextmanager
def _client(url: str) -> Iterator[httpx.Client]:
    """Yield a client that follows redirects and logs nothing, and raise its errors as clawpipe's."""
    levels = {name: logging.getLogger(name).level for name in _LOGGERS}
    try:
        for name in _LOGGERS:
            logging.getLogger(name).setLevel(logging.WARNING)
        with httpx.Client(follow_redirects=True, timeout=_PATIENCE) as client:
            yield client
    except (httpx.InvalidURL, httpx.UnsupportedProtocol, httpx.TooManyRedirects) as error:
        raise ConfigError(f"cannot be asked for: {type(error).__name__}", name_of(url), "check the URL") from None
    except httpx.TransportError as error:
        raise BusyError(f"the server does not answer: {type(error).__name__}", name_of(url), "try again once it does") from None
    finally:
        for name, level in levels.items():
            logging.getLogger(name).setLevel(level)


def _refused(status: int, url: str) -> ClawpipeError:
    if status in (404, 410):
        return NotFoundError(f"nothing is there: HTTP {status}", name_of(url), "check the URL")
    if status in _LATER or status >= 500:
        return BusyError(f"the server does not give it now: HTTP {status}", name_of(url), "try again later")
    fix = "sign in by https://USER:PASSWORD@HOST/, or sign the URL anew, where it is a signed one"
    return ConfigError(f"the server refuses: HTTP {status}", name_of(url), fix)


@contextmanager
def _asked(url: str) -> Iterator[None]:
    """Raise errors of any storage as clawpipe's errors."""
    try:
        yield
    except ClawpipeError:
        raise
    except FileNotFoundError as error:
        raise NotFoundError(f"nothing is there: {error}", name_of(url), "check bucket and key") from None
    except ValueError as error:
        raise ConfigError(f"cannot be asked for: {error}", name_of(url), "check bucket and pattern") from None
    except PermissionError as error:
        fix = "set credentials that may list and read there, in the variables that the storage's own tools read"
        raise ConfigError(f"the storage refuses: {error}", name_of(url), fix) from None
    except Exception as error:  # each backend raises what its library does
        raise storage_error(name_of(url), error, _WHAT) from error
