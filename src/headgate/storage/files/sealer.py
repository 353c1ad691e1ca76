"""Signs and encrypts values that clients keep for the gateway, with the key in the data directory."""

import binascii
import hmac
import logging
import os
import secrets
import struct
import time
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from headgate.domain.errors import ConfigError
from headgate.domain.regular_file import read_regular

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

log = logging.getLogger("headgate.storage")

KEY_BYTES = 32
_NONCE_BYTES = 12
_EXPIRY = struct.Struct(">d")
# Bound to every token, so that a later form of them cannot be taken for this one.
_FORM = b"headgate seal 1 "
_SIGNED_FORM = b"headgate sign 1 "
_SIGNATURE_BYTES = 32
_SALT_BYTES = 16


class SealInvalid(ValueError):
    """Not sealed by us, not for this purpose, or changed since."""


class SealExpired(SealInvalid):
    """Sealed by us, but too long ago."""


class Sealer:
    """Seals with the first key and opens with every key, so that keys can be replaced one at a time."""

    def __init__(self, keys: Sequence[bytes], clock: Callable[[], float] = time.time) -> None:
        if not keys or any(len(key) != KEY_BYTES for key in keys):
            raise ValueError(f"a seal needs keys of {KEY_BYTES} bytes")
        self._keys = tuple(keys)
        # Never one key for two purposes.
        self._signing_keys = tuple(hmac.digest(key, _SIGNED_FORM, "sha256") for key in keys)
        self._clock = clock
        self._ciphers: tuple[AESGCM, ...] = ()

    def seal(self, purpose: str, content: bytes, seconds: float) -> str:
        """A token of visible, URL-safe characters that opens to `content` for so long."""
        nonce = secrets.token_bytes(_NONCE_BYTES)
        expiry = _EXPIRY.pack(self._clock() + seconds)
        sealed = self._load_ciphers()[0].encrypt(nonce, expiry + content, _FORM + purpose.encode())
        return _encoded(nonce + sealed)

    def open(self, purpose: str, token: str) -> bytes:
        """What was sealed for this purpose; raises SealBroken or SealExpired."""
        sealed = _decoded(token)
        content = self._decrypted(sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], _FORM + purpose.encode())
        return self._unexpired(content)

    def sign(self, purpose: str, content: bytes, seconds: float) -> str:
        """The same for what the client may well read, without the library that sealing needs."""
        # Two tokens of the same content are two.
        salted = secrets.token_bytes(_SALT_BYTES) + _EXPIRY.pack(self._clock() + seconds) + content
        return _encoded(_signature(self._signing_keys[0], purpose, salted) + salted)

    def verify(self, purpose: str, token: str) -> bytes:
        """What was signed for this purpose; raises SealBroken or SealExpired."""
        signed = _decoded(token)
        signature, salted = signed[:_SIGNATURE_BYTES], signed[_SIGNATURE_BYTES:]
        if len(salted) < _SALT_BYTES + _EXPIRY.size or not any(
            hmac.compare_digest(signature, _signature(key, purpose, salted)) for key in self._signing_keys
        ):
            raise SealInvalid("the token was not signed here, not for this, or was changed")
        return self._unexpired(salted[_SALT_BYTES:])

    def _unexpired(self, dated: bytes) -> bytes:
        (expiry,) = _EXPIRY.unpack_from(dated)
        if self._clock() > expiry:
            raise SealExpired("the token has expired")
        return dated[_EXPIRY.size :]

    def _decrypted(self, nonce: bytes, sealed: bytes, bound: bytes) -> bytes:
        from cryptography.exceptions import InvalidTag  # noqa: PLC0415 (see below)

        for cipher in self._load_ciphers():
            try:
                return cipher.decrypt(nonce, sealed, bound)
            except (InvalidTag, ValueError):
                continue
        raise SealInvalid("the token was not sealed here, not for this, or was changed")

    def _load_ciphers(self) -> "tuple[AESGCM, ...]":
        if not self._ciphers:
            # Not at the top: it would be the largest part of the start of a gateway that seals nothing yet.
            from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: PLC0415

            self._ciphers = tuple(AESGCM(key) for key in self._keys)
        return self._ciphers


def _signature(key: bytes, purpose: str, salted: bytes) -> bytes:
    return hmac.digest(key, purpose.encode() + b"\0" + salted, "sha256")


def _encoded(content: bytes) -> str:
    return urlsafe_b64encode(content).rstrip(b"=").decode("ascii")


def _decoded(token: str) -> bytes:
    try:
        plain = token.encode("ascii")
        sealed = urlsafe_b64decode(plain + b"=" * (-len(plain) % 4))
    except (UnicodeEncodeError, binascii.Error) as error:
        raise SealInvalid("the token is not one of ours") from error
    # One spelling only: the decoder skips what it does not know, and unused bits could be anything.
    if len(sealed) < _NONCE_BYTES or urlsafe_b64encode(sealed).rstrip(b"=") != plain:
        raise SealInvalid("the token is not one of ours")
    return sealed


def load_seal_key(directory: Path) -> bytes:
    """The key in the data directory, made at the first start; raises ConfigError when it is no key."""
    path = directory / "seal.key"
    try:
        key = _read_or_create(directory, path)
    except OSError as error:
        log.warning(
            "seal key not kept, so no client session survives a restart",
            extra={"path": str(path), "reason": str(error)},
        )
        return secrets.token_bytes(KEY_BYTES)
    if len(key) != KEY_BYTES:
        raise ConfigError(
            f"{path} holds {len(key)} bytes, and a key has {KEY_BYTES}",
            hint="delete it: the next start makes another, and clients begin new sessions",
        )
    return key


def _read_or_create(directory: Path, path: Path) -> bytes:
    try:
        return read_regular(path, KEY_BYTES + 1)
    except FileNotFoundError:
        directory.mkdir(parents=True, exist_ok=True)
    # Whole before it has its name, and a name is given once: of two starts at a time one wins for both.
    draft = directory / f"seal.key.{secrets.token_hex(8)}"
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(secrets.token_bytes(KEY_BYTES))
            file.flush()
            os.fsync(file.fileno())
        with suppress(FileExistsError):
            os.link(draft, path)
    finally:
        draft.unlink(missing_ok=True)
    return read_regular(path, KEY_BYTES + 1)
