"""Reads one page of an upstream's listing, leniently: one odd item must not cost the others."""

import msgspec
from msgspec import DecodeError, Raw

from headgate.domain.kind import Kind
from headgate.wire.elements import elements
from headgate.wire.reserved import UnreadableMeta, may_be_reserved, without_reserved
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
    """One page, without what only the gateway says in the `_meta` of a definition; raises ValueError."""
    try:
        page = _DECODERS[kind].decode(result)
    except (DecodeError, RecursionError):
        page = _skimmed(kind, result)
    if may_be_reserved(result):
        page.items = [_cleaned(item) for item in page.items]
    return page


def _cleaned(item: Raw) -> Raw:
    try:
        return Raw(without_reserved(bytes(item)))
    except UnreadableMeta:
        # What cannot be opened is left out by whoever takes it in.
        return item


def _skimmed(kind: Kind, result: bytes) -> Page:
    """A page that no parser takes, cut at its members."""
    skimmer = Skimmer()
    skimmer.feed(result)
    values = {key: result[start:end] for key, (start, end) in skimmer.finish().items()}
    cursor = msgspec.json.decode(values.get("nextCursor", b"null"), type=str | None)
    items = [Raw(item) for item in elements(values.get(kind.member, b""))]
    return Page(items, cursor, meta=Raw(values.get("_meta", b"")))
