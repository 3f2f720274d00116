"""What every HTTP request to clawpipe's model servers may have: a compressed body, and an id of its own."""

from __future__ import annotations

import re
import uuid
import zlib

REQUEST_ID = "x-request-id"
ANTHROPIC_ID = "request-id"  # the same, as Anthropic's clients read it
ENCODINGS = ("gzip", "deflate")
_OWN_ID = re.compile(r"[!-~]{1,128}")
_ANY_HEADER = 32 + zlib.MAX_WBITS  # zlib's word for: gzip's or its own header


class EncodingError(ValueError):
    """A body that cannot be read. `status` is the HTTP status that says so."""

    def __init__(self, status: int, what: str) -> None:
        super().__init__(what)
        self.status, self.what = status, what


class Body:
    """Puts a request's body together from its parts, decompressed, and counts bytes as they come.

    Neither a client's stated length nor a compressed body says how large it is, so no more than one byte above `most` is ever
    decompressed.

    Args:
        encoding: the header Content-Encoding.
        most: bytes that the body may have, decompressed.

    Raises:
        EncodingError: 415, nobody here reads this encoding.
    """

    def __init__(self, encoding: str, most: int) -> None:
        named = encoding.strip().lower()
        if named not in ("", "identity", *ENCODINGS):
            raise EncodingError(415, f"content-encoding: {named[:40]!r} is not read here; send {' or '.join(ENCODINGS)}")
        self._data, self._most, self._is_plain = bytearray(), most, named in ("", "identity")
        self._decoder = zlib.decompressobj(_ANY_HEADER)

    def add(self, data: bytes) -> None:
        """Raises EncodingError: 413, the body is too large; 400, it is not compressed as it says."""
        while data:
            data = self._take(data)
            if len(self._data) > self._most:
                raise EncodingError(413, f"the request is larger than {self._most} bytes")

    def whole(self) -> bytes:
        """Return the body. Raises EncodingError: 400, its end is missing."""
        if not self._is_plain and not self._decoder.eof:
            raise EncodingError(400, "the compressed body has no end")
        return bytes(self._data)

    def _take(self, data: bytes) -> bytes:
        """Take some data, and return what is left of it."""
        if self._is_plain:
            self._data += data
            return b""
        if self._decoder.eof:  # gzip's files may follow one another
            self._decoder = zlib.decompressobj(_ANY_HEADER)
        try:
            self._data += self._decoder.decompress(data, self._most + 1 - len(self._data))
        except zlib.error:
            raise EncodingError(400, "the body is not compressed as its content-encoding says") from None
        return self._decoder.unconsumed_tail or self._decoder.unused_data


def request_id(given: str | None) -> str:
    """Return the id of a request: the client's own where a header can carry it back, else a new one."""
    return given if given and _OWN_ID.fullmatch(given) else f"req_{uuid.uuid4().hex}"


def id_headers(path: str, of_request: str) -> dict[str, str]:
    """Return the headers of an answer that carry the id of its request, by the names of the interface that was asked."""
    names = (REQUEST_ID, ANTHROPIC_ID) if path.startswith("/v1/messages") else (REQUEST_ID,)
    return dict.fromkeys(names, of_request)
