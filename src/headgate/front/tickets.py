"""Reads what a client asks about the delivery of its call, wherever it wrote it."""

from typing import Final
from uuid import uuid4

from msgspec import DecodeError, Raw
from msgspec.json import decode

from headgate.domain.care import Priority
from headgate.domain.ticket import Ticket
from headgate.wire.rmcp import META, META_ALIAS, Asked, take_asked
from headgate.wire.violations import INVALID_PARAMS, Violation

KEY: Final = "io.headgate/idempotencyKey"
ON_DOUBT: Final = "io.headgate/onDoubt"
PRIORITY: Final = "io.headgate/priority"
KEY_HEADER: Final = b"idempotency-key"
_OURS = frozenset({META, META_ALIAS, KEY, ON_DOUBT, PRIORITY})
_LONGEST = 255
# Keys that the gateway makes itself begin with this.
_RESERVED = "headgate:"
_LONGEST_TIMEOUT_MS = 7_200_000
_NOTHING = Asked()
_ONE_NAME = (META,)
_BOTH_NAMES = (META, META_ALIAS)


def take_ticket(
    meta: dict[str, Raw], header: bytes | None, features: frozenset[str], id: bytes = b"null"
) -> Ticket | None:
    """What came beside the arguments, taken out of `_meta`; None for a plain call. Raises Violation.

    `header` is that of HTTP, if it is there, and `features` are those of rmcp that the client shares with us.
    """
    if header is None and not features and _OURS.isdisjoint(meta):
        # Nearly always.
        return None
    by_alias = bool(features) and META_ALIAS in meta and META not in meta
    try:
        asked = take_asked(meta)
        own, doubt = _text(meta, KEY), _text(meta, ON_DOUBT)
        priority = _priority(_text(meta, PRIORITY))
        if asked is None and own is doubt is priority is None and header is None:
            return Ticket(features=features) if features else None
        said = asked or _NOTHING
        return Ticket(
            key=_one_key(said.idempotency_key, own, _of_header(header)),
            retries_doubt=_retries(said.on_doubt) or _retries(doubt),
            timeout_seconds=_seconds(said.timeout_ms),
            priority=priority,
            transaction=_short(said.transaction_id, "transaction_id"),
            sequence=said.sequence,
            # Whoever speaks of delivery is spoken to of it, also when it gave its request no name.
            request_id=_short(said.request_id, "request_id") or (str(uuid4()) if asked else ""),
            features=features,
            rmcp_names=_BOTH_NAMES if by_alias else _ONE_NAME,
        )
    except ValueError as error:
        raise Violation(INVALID_PARAMS, f"Invalid params: {error}", id=id) from error


def _text(meta: dict[str, Raw], name: str) -> str | None:
    raw = meta.pop(name, None)
    if raw is None:
        return None
    try:
        return decode(raw, type=str)
    except (DecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"_meta[{name!r}] must be a text") from error


def _of_header(header: bytes | None) -> str | None:
    if header is None:
        return None
    if not header.isascii():
        # Clients write other characters in different ways, and so one key would be two.
        raise ValueError(f"the header Idempotency-Key is ASCII; give any other key in _meta[{KEY!r}]")
    return header.decode()


def _one_key(*given: str | None) -> str:
    """The key, which may be said in several places, but not differently."""
    keys = [key for key in given if key is not None]
    if not keys:
        return ""
    if len(set(keys)) > 1:
        raise ValueError("the idempotency key is not the same in all places where it is given")
    key = keys[0]
    if not 1 <= len(key) <= _LONGEST or not key.isprintable():
        raise ValueError(f"an idempotency key has 1 to {_LONGEST} printable characters")
    if key.startswith(_RESERVED):
        raise ValueError(f"an idempotency key does not begin with {_RESERVED!r}")
    return key


def _retries(on_doubt: str | None) -> bool:
    if on_doubt not in (None, "retry"):
        raise ValueError('on_doubt can only be "retry"; without it a call in doubt is not made again')
    return on_doubt is not None


def _seconds(timeout_ms: int | None) -> float | None:
    if timeout_ms is None:
        return None
    if not 1 <= timeout_ms <= _LONGEST_TIMEOUT_MS:
        raise ValueError(f"timeout_ms is 1 to {_LONGEST_TIMEOUT_MS}")
    return timeout_ms / 1000


def _priority(named: str | None) -> Priority | None:
    if named is None:
        return None
    if named not in Priority.__members__.values():
        raise ValueError(f"_meta[{PRIORITY!r}] is one of {', '.join(Priority)}")
    return Priority(named)


def _short(text: str | None, what: str) -> str:
    if text is not None and (not 1 <= len(text) <= _LONGEST or not text.isprintable()):
        raise ValueError(f"{what} has 1 to {_LONGEST} printable characters")
    return text or ""
