"""Reads one page of an upstream's listing, leniently: one odd item must not cost the others."""

import msgspec
from msgspec import DecodeError, Raw

from headgate.domain.kind import Kind
from headgate.wire.elements import elements
from headgate.wire.skim import Skimmer


class Page(msgspec.Struct, rename={"meta": "_meta"}):
    """Some of the definitions, how to get the next ones, and how long they may be believed."""

    items: list[Raw] = []
    nextCursor: str | None = None  # noqa: N815 (the protocol's spelling)
    ttlMs: int | float | None = None  # noqa: N815 (the protocol's spelling)
    cacheScope: str = "private"  # noqa: N815 (the protocol's spelling)
    meta: Raw = Raw(b"")


def _decoder(kind: Kind) -> "msgspec.json.Decoder[Page]":
    fields = [("items", list[Raw])]
    page = msgspec.defstruct("KindPage", fields, bases=(Page,), kw_only=True, rename={"items": kind.member})
    return msgspec.json.Decoder(page)


_DECODERS = {kind: _decoder(kind) for kind in Kind}


def read_page(kind: Kind, result: bytes) -> Page:
    """One page; raises ValueError."""
    try:
        return _DECODERS[kind].decode(result)
    except (DecodeError, RecursionError):
        return _skimmed(kind, result)


def _skimmed(kind: Kind, result: bytes) -> Page:
    """A page that no parser takes, cut at its members."""
    skimmer = Skimmer()
    skimmer.feed(result)
    values = {key: result[start:end] for key, (start, end) in skimmer.finish().items()}
    cursor = msgspec.json.decode(values.get("nextCursor", b"null"), type=str | None)
    items = [Raw(item) for item in elements(values.get(kind.member, b""))]
    return Page(items, cursor, meta=Raw(values.get("_meta", b"")))
