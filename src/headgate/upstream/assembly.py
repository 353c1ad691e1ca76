"""Puts one message together from the pieces it arrives in: in memory while it is small, on disk beyond."""

import codecs
from pathlib import Path

import msgspec
from msgspec import DecodeError, Raw, ValidationError

from headgate.domain.payload import Payload
from headgate.upstream.spool import CHUNK_BYTES, SpooledValue, SpoolFile
from headgate.wire.envelope import Envelope, decode_envelope
from headgate.wire.members import members
from headgate.wire.skim import NotAnObject, Skimmer


class TooLarge(Exception):
    """A message that is larger than the gateway accepts."""

    def __init__(self, limit: int) -> None:
        super().__init__(f"a message of more than {limit // 2**20} MiB")


class Garbled(ValueError):
    """Bytes that are not a message; `evidence` is their start and end, to tell whose answer they were."""

    def __init__(self, what: str, evidence: bytes = b"") -> None:
        super().__init__(what)
        self.evidence = evidence


_EVIDENCE_BYTES = 4096


def _evidence(data: bytes) -> bytes:
    return data if len(data) <= 2 * _EVIDENCE_BYTES else data[:_EVIDENCE_BYTES] + data[-_EVIDENCE_BYTES:]


class Message(msgspec.Struct):
    """An upstream's message: its envelope and, when it carries a result, the result."""

    envelope: Envelope
    result: Payload = b""


class Limits(msgspec.Struct, frozen=True):
    """How large a message may get, from which size it is kept on disk, and where."""

    largest: int
    spool_above: int
    spool_directory: Path


class Assembly:
    """Collects the pieces of one message at a time."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._pieces: list[bytes] = []
        self._size = 0
        self._spool: _Spooling | None = None

    def __bool__(self) -> bool:
        return self._size > 0

    def add(self, piece: bytes) -> None:
        """The next bytes of the message; raises TooLarge."""
        self._size += len(piece)
        if self._size > self._limits.largest:
            self.discard()
            raise TooLarge(self._limits.largest)
        if self._spool is not None:
            self._spool.add(piece)
            return
        self._pieces.append(piece)
        if self._size > self._limits.spool_above:
            self._spool = _Spooling(self._limits.spool_directory)
            for kept in self._pieces:
                self._spool.add(kept)
            self._pieces.clear()

    def finish(self) -> Message:
        """The message that is complete now; raises Garbled."""
        pieces, spool = self._pieces, self._spool
        self._pieces, self._spool, self._size = [], None, 0
        if spool is not None:
            return spool.finish()
        return read(b"".join(pieces) if len(pieces) != 1 else pieces[0])

    def text(self) -> str:
        """What has come so far, where it is no message but a short text."""
        return b"".join(self._pieces).decode("latin-1")

    def discard(self) -> None:
        """Forget what has come so far."""
        if self._spool is not None:
            self._spool.close()
        self._pieces, self._spool, self._size = [], None, 0


def read(data: bytes) -> Message:
    """One whole message in memory; raises Garbled."""
    try:
        if not data.isascii():
            data.decode()
        envelope = decode_envelope(data)
    except RecursionError:
        return _skimmed(data)
    except ValidationError as error:
        raise Garbled(f"JSON that is not a message ({error})", _evidence(data)) from error
    except UnicodeDecodeError as error:
        raise Garbled("text that is not UTF-8", _evidence(data)) from error
    except DecodeError as error:
        return _half_characters(data, error)
    return Message(envelope, bytes(envelope.result))


def _half_characters(data: bytes, error: DecodeError) -> Message:
    """A message that the parser refuses for an escaped half of a character, which JavaScript writes."""
    text = data.decode()
    try:
        values = {member.key: text[member.start : member.end].encode() for member in members(text)}
    except (ValueError, RecursionError):
        raise Garbled(f"text that is not JSON ({error})", _evidence(data)) from error
    return Message(_envelope(values), values.get("result", b""))


def _skimmed(data: bytes) -> Message:
    """A message that is nested too deep for a parser: cut at its members and carried as it is."""
    skimmer = Skimmer()
    try:
        for start in range(0, len(data), CHUNK_BYTES):
            skimmer.feed(data[start : start + CHUNK_BYTES])
        spans = skimmer.finish()
    except NotAnObject as error:
        raise Garbled(f"text that is not JSON ({error})", _evidence(data)) from error
    values = {key: data[start:end] for key, (start, end) in spans.items()}
    return Message(_envelope(values), values.get("result", b""))


def _envelope(values: dict[str, bytes]) -> Envelope:
    """The envelope of a message whose result is kept apart."""
    small = {key: Raw(value) for key, value in values.items() if key in ("id", "error", "params")}
    try:
        method = msgspec.json.decode(values.get("method", b'""'), type=str)
    except (DecodeError, UnicodeDecodeError) as error:
        raise Garbled("a method that is not a text") from error
    # Whoever is not "2.0" is told so, and nothing else.
    version = "2.0" if values.get("jsonrpc", b'"2.0"') == b'"2.0"' else ""
    return Envelope(jsonrpc=version, method=method, **small)


class _Spooling:
    """One message on its way to disk, skimmed and checked as it passes."""

    # An error or the params of a notification; what is larger is nothing that we act on.
    _MOST_IN_MEMORY = 1024 * 1024

    def __init__(self, directory: Path) -> None:
        self._file = SpoolFile(directory)
        self._skimmer = Skimmer()
        self._text = codecs.getincrementaldecoder("utf-8")()
        self._problem: str | None = None

    def add(self, piece: bytes) -> None:
        self._file.append(piece)
        if self._problem is None:
            try:
                if not piece.isascii() or self._text.getstate()[0]:
                    self._text.decode(piece)
                self._skimmer.feed(piece)
            except UnicodeDecodeError:
                self._problem = "text that is not UTF-8"
            except NotAnObject as error:
                self._problem = f"text that is not JSON ({error})"

    def finish(self) -> Message:
        try:
            return self._message()
        except Garbled as error:
            head = self._file.read(0, _EVIDENCE_BYTES)
            error.evidence = head + self._file.read(self._file.size - _EVIDENCE_BYTES, _EVIDENCE_BYTES)
            self.close()
            raise

    def _message(self) -> Message:
        if self._problem is not None:
            raise Garbled(self._problem)
        try:
            spans = self._skimmer.finish()
        except NotAnObject as error:
            raise Garbled(f"text that is not JSON ({error})") from error
        small: dict[str, bytes] = {}
        for key in ("id", "method", "error", "params"):
            start, end = spans.get(key, (0, 0))
            if end - start > self._MOST_IN_MEMORY:
                raise Garbled(f"a {key} of {(end - start) // 2**20} MiB")
            if end > start:
                small[key] = self._file.read(start, end - start)
        envelope = _envelope(small)
        if "result" not in spans:
            self.close()
            return Message(envelope)
        return Message(envelope, SpooledValue(self._file, *spans["result"]))

    def close(self) -> None:
        self._file.close()
