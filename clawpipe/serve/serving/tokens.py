"""Convert token ids to text, as a stream and one by one."""

from __future__ import annotations

import re

from tokenizers import Tokenizer, decoders, normalizers, pre_tokenizers

from clawpipe.core.basics.json_types import JsonObject

_UNFINISHED = "\ufffd"  # decoded from a character whose last bytes are missing
_UNICODE = (normalizers.NFC, normalizers.NFD, normalizers.NFKC, normalizers.NFKD)
_COMPOSED = 4  # most bytes that a normalizer turns into one: NFKC makes a mathematical letter an ASCII one
_BYTE = re.compile(r"<0x([0-9A-F]{2})>")


class TextStream:
    """Decodes a stream of token ids into whole characters; its pieces, joined, are the text of all ids."""

    def __init__(self, backend: Tokenizer) -> None:
        self._backend = backend
        self._ids: list[int] = []
        self._context = 0  # a token's text may depend on the one before it (a leading space), so decoding starts one step back
        self._given = 0

    def push(self, token: int) -> str:
        self._ids.append(token)
        fresh = self.rest()
        if fresh.endswith(_UNFINISHED):
            return ""
        self._context, self._given = self._given, len(self._ids)
        return fresh

    def rest(self) -> str:
        """Return the text not yet returned, including unfinished characters."""
        known = self._decode(self._context, self._given)
        return self._decode(self._context, len(self._ids))[len(known) :]

    def _decode(self, start: int, end: int) -> str:
        return self._backend.decode(self._ids[start:end], skip_special_tokens=False)


class TokenSpelling:
    """Spells tokens as in OpenAI's log-probs: text, and bytes, since a token can be part of a character."""

    def __init__(self, backend: Tokenizer) -> None:
        self._backend = backend
        self._added = {index: token.content for index, token in backend.get_added_tokens_decoder().items()}
        self._bytes = _letters() if isinstance(backend.decoder, decoders.ByteLevel) else {}

    def body(self, token: int, logprob: float) -> JsonObject:
        spelt = self._spelt(token)
        return {"token": spelt.decode("utf-8", "replace"), "logprob": logprob, "bytes": list(spelt)}

    def longest(self) -> int | None:
        """Return how many bytes of text one token stands for at most; None if unlimited, because an unknown word is one token or a
        normalizer drops text."""
        backend, written = self._backend, self._backend.normalizer
        if not self._bytes and not getattr(backend.model, "byte_fallback", False):
            return None
        if written is not None and not isinstance(written, _UNICODE):
            return None
        pieces = backend.get_vocab(with_added_tokens=False)  # byte-level pieces have one letter per byte
        longest = max(len(piece if self._bytes else piece.encode()) for piece in pieces)
        return longest if written is None else longest * _COMPOSED

    def _spelt(self, token: int) -> bytes:
        if token in self._added:
            return self._added[token].encode()
        piece = self._backend.id_to_token(token) or ""  # a model's vocabulary may be larger than its tokenizer's
        if self._bytes:
            return bytes(self._bytes[letter] for letter in piece)
        if match := _BYTE.fullmatch(piece):
            return bytes([int(match[1], 16)])
        return piece.replace("\u2581", " ").encode()  # SentencePiece's mark for a space


def _letters() -> dict[str, int]:
    """Return byte by letter of byte-level vocabularies: printable bytes keep their letter, the others follow from 256 in order."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    printable = {letter: ord(letter) for letter in letters if ord(letter) < 256}
    others = sorted(set(range(256)) - set(printable.values()))
    return printable | dict(zip(letters[len(printable) :], others, strict=True))
