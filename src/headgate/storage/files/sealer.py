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
# Authenticated with every token, so that a later format cannot be taken for this one.
_FORM = b"headgate seal 1 "
_SIGNED_FORM = b"headgate sign 1 "
_SIGNATURE_BYTES = 32
_SALT_BYTES = 16


class SealInvalid(ValueError):
    """A token that is foreign, for another purpose, or changed."""


class SealExpired(SealInvalid):
    """A valid token that has expired."""


class Sealer:
    """Seals with the first key and opens with every key, so that keys can be replaced one at a time."""

    def __init__(self, keys: Sequence[bytes], clock: Callable[[], float] = time.time) -> None:
        if not keys or any(len(key) != KEY_BYTES for key in keys):
            raise ValueError(f"a seal needs keys of {KEY_BYTES} bytes")
        self._keys = tuple(keys)
        # Derived, because one key must not serve two purposes.
        self._signing_keys = tuple(hmac.digest(key, _SIGNED_FORM, "sha256") for key in keys)
        self._clock = clock
        self._ciphers: tuple[AESGCM, ...] = ()

    def seal(self, purpose: str, content: bytes, seconds: float) -> str:
        """An encrypted, URL-safe token that `open` accepts for so long."""
        nonce = secrets.token_bytes(_NONCE_BYTES)
        expiry = _EXPIRY.pack(self._clock() + seconds)
        sealed = self._load_ciphers()[0].encrypt(nonce, expiry + content, _FORM + purpose.encode())
        return _encoded(nonce + sealed)

    def open(self, purpose: str, token: str) -> bytes:
        """The content sealed for this purpose; raises SealInvalid or SealExpired."""
        from cryptography.exceptions import InvalidTag  # noqa: PLC0415 (see below)

        sealed, bound = _decoded(token), _FORM + purpose.encode()
        for cipher in self._load_ciphers():
            with suppress(InvalidTag, ValueError):
                content = cipher.decrypt(sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], bound)
                break
        else:
            raise SealInvalid("the token was not sealed here, not for this, or was changed")
        return self._unexpired(content)

    def sign(self, purpose: str, content: bytes, seconds: float) -> str:
        """A signed, URL-safe token whose content the client may read; it needs no cipher library."""
        # Salted, so that two tokens of the same content differ.
        salted = secrets.token_bytes(_SALT_BYTES) + _EXPIRY.pack(self._clock() + seconds) + content
        return _encoded(_signature(self._signing_keys[0], purpose, salted) + salted)

    def verify(self, purpose: str, token: str) -> bytes:
        """The content signed for this purpose; raises SealInvalid or SealExpired."""
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

    def _load_ciphers(self) -> "tuple[AESGCM, ...]":
        if not self._ciphers:
            # Imported late: it would take the largest part of a start.
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
    # Only the canonical encoding: the decoder skips unknown characters and ignores unused bits.
    if len(sealed) < _NONCE_BYTES or urlsafe_b64encode(sealed).rstrip(b"=") != plain:
        raise SealInvalid("the token is not one of ours")
    return sealed


def load_seal_key(directory: Path) -> bytes:
    """The key in the data directory, created at the first start; raises ConfigError for a broken one."""
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
    # Complete before it gets its name, and linked once: two starts at a time use the same key.
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
