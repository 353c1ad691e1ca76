"""The keys of the ledger as hashes, in a form that also proves that a key is absent.

The index of a damaged file may miss a key that exists. So every key is stored a second time, as a hash in one
of a fixed number of buckets. Each bucket always exists and has a checksum: a missing or changed bucket is
damage, and an intact one proves which keys there are.
"""

import zlib
from collections import defaultdict
from collections.abc import Iterable, Iterator
from hashlib import blake2b
from sqlite3 import Connection
from typing import Final

import msgspec

from headgate.delivery.ledger import LedgerDamaged

# With a million keys a bucket has 4 KB; without any, all buckets together have about 50 KB.
BUCKETS: Final = 4096
HASH_BYTES: Final = 16
# Kinds of keys: those of calls, and the ids of transactions.
CALL: Final = "call"
TRANSACTION: Final = "transaction"

OwnedKey = tuple[str, str, str]
_encode = msgspec.msgpack.Encoder().encode


def hash_of(kind: str, owned_key: OwnedKey) -> bytes:
    """The hash of a key or an id of a tenant and a principal."""
    return blake2b(_encode((kind, *owned_key)), digest_size=HASH_BYTES).digest()


def insert_buckets(connection: Connection) -> None:
    connection.executemany(
        "INSERT OR IGNORE INTO key_hashes VALUES (?, ?, x'')",
        ((bucket, _checksum(bucket, b"")) for bucket in range(BUCKETS)),
    )


def contains(connection: Connection, hashed: bytes) -> bool:
    """Whether the key exists; raises LedgerDamaged when its bucket is damaged."""
    return _position(_read(connection, _bucket(hashed)), hashed) >= 0


def add(connection: Connection, hashed: bytes) -> bool:
    """Add a key; False when it exists. Raises LedgerDamaged."""
    bucket = _bucket(hashed)
    hashes = _read(connection, bucket)
    if _position(hashes, hashed) >= 0:
        return False
    _write(connection, bucket, hashes + hashed)
    return True


def remove(connection: Connection, removed: Iterable[bytes]) -> None:
    """Remove keys; raises LedgerDamaged when one of them does not exist."""
    by_bucket: defaultdict[int, list[bytes]] = defaultdict(list)
    for hashed in removed:
        by_bucket[_bucket(hashed)].append(hashed)
    for bucket, some in by_bucket.items():
        hashes = _read(connection, bucket)
        for hashed in some:
            at = _position(hashes, hashed)
            if at < 0:
                raise LedgerDamaged("a recorded call is not among the known keys")
            hashes = hashes[:at] + hashes[at + HASH_BYTES :]
        _write(connection, bucket, hashes)


def verified_buckets(connection: Connection) -> Iterator[bytes]:
    """The hashes of each bucket in order; raises LedgerDamaged at a damaged one."""
    expected = 0
    rows = connection.execute("SELECT bucket, checksum, hashes FROM key_hashes ORDER BY bucket")
    for bucket, checksum, hashes in rows:
        if bucket != expected or checksum != _checksum(bucket, hashes) or len(hashes) % HASH_BYTES:
            raise _damaged(expected)
        expected += 1
        yield hashes
    if expected != BUCKETS:
        raise _damaged(expected)


def split_hashes(hashes: bytes) -> Iterator[bytes]:
    return (hashes[at : at + HASH_BYTES] for at in range(0, len(hashes), HASH_BYTES))


def _bucket(hashed: bytes) -> int:
    return int.from_bytes(hashed[:2]) % BUCKETS


def _position(hashes: bytes, hashed: bytes) -> int:
    at = hashes.find(hashed)
    while at > 0 and at % HASH_BYTES:
        at = hashes.find(hashed, at + 1)
    return at


def _read(connection: Connection, bucket: int) -> bytes:
    found = connection.execute(
        "SELECT checksum, hashes FROM key_hashes WHERE bucket = ?", (bucket,)
    ).fetchone()
    if found is None or not isinstance(found[1], bytes) or found[0] != _checksum(bucket, found[1]):
        raise _damaged(bucket)
    hashes: bytes = found[1]
    return hashes


def _write(connection: Connection, bucket: int, hashes: bytes) -> None:
    connection.execute(
        "UPDATE key_hashes SET checksum = ?, hashes = ? WHERE bucket = ?",
        (_checksum(bucket, hashes), hashes, bucket),
    )


def _checksum(bucket: int, hashes: object) -> int:
    return zlib.crc32(hashes, bucket + 1) if isinstance(hashes, bytes) else -1


def _damaged(bucket: int) -> LedgerDamaged:
    return LedgerDamaged(f"row {bucket} of the known keys is missing or changed")
