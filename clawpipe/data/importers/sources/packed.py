"""Unpack files and streams; the first bytes determine the format, else the name does."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import zlib
from collections.abc import Callable
from typing import IO, NamedTuple, cast

import pyarrow


class _Packing(NamedTuple):
    suffix: str
    magic: bytes
    unpack: Callable[[IO[bytes]], IO[bytes]]


def _xz(stream: IO[bytes]) -> IO[bytes]:
    return cast(IO[bytes], lzma.open(stream))


def _zstd(stream: IO[bytes]) -> IO[bytes]:
    """Open with Arrow's reader, because zstandard's takes a truncated frame for a whole one."""
    return io.BufferedReader(cast(io.RawIOBase, pyarrow.input_stream(stream, compression="zstd")))


_PACKINGS = (
    _Packing(".gz", b"\x1f\x8b", lambda stream: cast(IO[bytes], gzip.GzipFile(fileobj=stream, mode="rb"))),
    _Packing(".bz2", b"BZh", lambda stream: cast(IO[bytes], bz2.BZ2File(stream))),
    _Packing(".xz", b"\xfd7zXZ\x00", _xz),
    _Packing(".zst", b"\x28\xb5\x2f\xfd", _zstd),
)
PACKED = tuple(packing.suffix for packing in _PACKINGS)
BROKEN = (EOFError, zlib.error, gzip.BadGzipFile, lzma.LZMAError, pyarrow.ArrowException)  # raised by unpacking, besides OSError
_BUFFER = 1 << 16
_MAGIC = max(len(packing.magic) for packing in _PACKINGS)


def is_packed(file: str) -> bool:
    """Whether a file is packed.

    Raises:
        OSError: the file cannot be read.
    """
    with open(file, "rb") as stream:
        return _packing(stream.read(_MAGIC), file) is not None


def unpacked(stream: IO[bytes], name: str) -> IO[bytes]:
    """Return the unpacked stream; the stream itself if it is not packed. `rewound` returns to its beginning, once.

    Args:
        stream: at its beginning.
        name: of the file; its suffix decides if the first bytes do not.
    """
    stream = stream if stream.seekable() else _Kept(_Beginning(stream))
    packing = _packing(stream.read(_MAGIC), name)
    stream = rewound(stream)
    if packing is None and stream.seekable():
        return stream
    return _Kept(_Beginning(packing.unpack(stream) if packing else stream))


def rewound(stream: IO[bytes]) -> IO[bytes]:
    """Return a stream of `unpacked` from its beginning."""
    if isinstance(stream, _Kept):
        return stream.again()
    stream.seek(0)
    return stream


def _packing(head: bytes, name: str) -> _Packing | None:
    by_name = (packing for packing in _PACKINGS if name.lower().endswith(packing.suffix))
    return next((packing for packing in _PACKINGS if head.startswith(packing.magic)), next(by_name, None))


class _Beginning(io.RawIOBase):
    """Wraps a stream that cannot seek. Bytes and errors are kept until `replay`, which reads them again."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream, self._kept, self._keeps = stream, io.BytesIO(), True
        self._broken: Exception | None = None

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # pyright: ignore[reportIncompatibleMethodOverride]
        data = self._kept.read(len(buffer)) or self._more(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def _more(self, size: int) -> bytes:
        if self._broken:
            raise self._broken
        try:
            data = self._stream.read1(size)  # pyright: ignore[reportAttributeAccessIssue]
        except Exception as error:
            self._broken = error
            raise
        if self._keeps:
            self._kept.write(data)
        return data

    def replay(self) -> None:
        self._keeps = False
        self._kept.seek(0)


class _Kept(io.BufferedReader):
    """A buffered `_Beginning`."""

    def __init__(self, beginning: _Beginning) -> None:
        super().__init__(beginning, _BUFFER)

    def again(self) -> IO[bytes]:
        beginning = cast(_Beginning, self.detach())
        beginning.replay()
        return _Kept(beginning)
