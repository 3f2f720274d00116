"""Token ids to text: as a stream, and one by one."""

from __future__ import annotations

import re
from typing import Any

from tokenizers import Tokenizer, decoders, normalizers, pre_tokenizers

_UNFINISHED = "\ufffd"  # what a character whose last bytes have not come yet decodes to
_UNICODE = (normalizers.NFC, normalizers.NFD, normalizers.NFKC, normalizers.NFKD)
_COMPOSED = 4  # bytes that a normaliser makes one of, at most: a mathematical letter becomes an ASCII one (NFKC)
_BYTE = re.compile(r"<0x([0-9A-F]{2})>")


class TextStream:
    """Token ids in, text out, whole characters at a time; everything it gives, joined, is the text of all ids."""

    def __init__(self, backend: Tokenizer) -> None:
        self._backend = backend
        self._ids: list[int] = []
        self._context = 0  # a token's text may depend on the one before it (a leading space), so decoding starts a step back
        self._given = 0

    def push(self, token: int) -> str:
        self._ids.append(token)
        fresh = self.rest()
        if fresh.endswith(_UNFINISHED):
            return ""
        self._context, self._given = self._given, len(self._ids)
        return fresh

    def rest(self) -> str:
        """What has not been given yet, unfinished characters included."""
        known = self._decode(self._context, self._given)
        return self._decode(self._context, len(self._ids))[len(known) :]

    def _decode(self, start: int, end: int) -> str:
        return self._backend.decode(self._ids[start:end], skip_special_tokens=False)


class TokenSpelling:
    """How OpenAI's log-probs name a token: its text, and its bytes where a token can be part of a character."""

    def __init__(self, backend: Tokenizer) -> None:
        self._backend = backend
        self._added = {index: token.content for index, token in backend.get_added_tokens_decoder().items()}
        self._bytes = _letters() if isinstance(backend.decoder, decoders.ByteLevel) else {}

    def body(self, token: int, logprob: float) -> dict[str, Any]:
        spelt = self._spelt(token)
        return {"token": spelt.decode("utf-8", "replace"), "logprob": logprob, "bytes": list(spelt)}

    def longest(self) -> int | None:
        """Bytes of text that one token stands for at most; None where it may be any number: an unknown word is one token, or
        a normaliser leaves text out."""
        backend, written = self._backend, self._backend.normalizer
        if not self._bytes and not getattr(backend.model, "byte_fallback", False):
            return None
        if written is not None and not isinstance(written, _UNICODE):
            return None
        pieces = backend.get_vocab(with_added_tokens=False)  # a byte-level one has a letter a byte
        longest = max(len(piece if self._bytes else piece.encode()) for piece in pieces)
        return longest if written is None else longest * _COMPOSED

    def _spelt(self, token: int) -> bytes:
        if token in self._added:
            return self._added[token].encode()
        piece = self._backend.id_to_token(token) or ""  # a model's vocabulary may be padded beyond its tokenizer's
        if self._bytes:
            return bytes(self._bytes[letter] for letter in piece)
        if match := _BYTE.fullmatch(piece):
            return bytes([int(match[1], 16)])
        return piece.replace("\u2581", " ").encode()  # the mark that SentencePiece writes for a space


def _letters() -> dict[str, int]:
    """Byte by letter of byte-level vocabularies: printable bytes are their own letter, the others follow from 256 on, in order."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    own = {letter: ord(letter) for letter in letters if ord(letter) < 256}
    others = sorted(set(range(256)) - set(own.values()))
    return own | dict(zip(letters[len(own) :], others, strict=True))
