"""Builds the tool result of a job: text blocks, the notice in structuredContent, sizes and `_meta`."""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
from msgspec import Raw

from headgate.protocol.jsonrpc import encode_object
from headgate.results.content import character_count
from headgate.results.jobs import META_KEY, JobResult
from headgate.results.parsed_result import ParsedResult
from headgate.results.result_structure import compact_size, top_level_members
from headgate.results.token_estimate import estimate_tokens
from headgate.schema.notice_compatibility import NOTICE_MEMBER


def text_block(text: bytes) -> bytes:
    return msgspec.json.encode({"type": "text", "text": text.decode(errors="replace")})


def with_notice(structured: bytes, notice_fields: Mapping[str, Any]) -> bytes:
    """The object with the notice as its first member, in place of one that it has."""
    members = top_level_members(structured)
    members.pop(NOTICE_MEMBER, None)
    return encode_object({NOTICE_MEMBER: Raw(msgspec.json.encode(notice_fields)), **members})


def size_facts(
    parsed: ParsedResult, cache_id: str, texts: Iterable[bytes], structured: bytes | None
) -> dict[str, Any]:
    """The id of a result, its size, and the size of a reply with these texts and this structuredContent."""
    size, tokens = reply_size(texts, structured)
    return {
        "cache_id": cache_id,
        "original_size": parsed.size,
        "processed_size": size,
        "original_tokens": parsed.tokens,
        "processed_tokens": tokens,
    }


def reply_size(texts: Iterable[bytes], structured: bytes | None) -> tuple[int, int]:
    """The characters and estimated tokens that a model reads of a reply, notices included.

    Text and structuredContent mostly repeat each other, and clients show one of them: the larger counts.
    """
    read = list(texts)
    structured_bytes = structured or b""
    return (
        max(sum(map(character_count, read)), compact_size(Raw(structured_bytes))),
        max(sum(map(estimate_tokens, read)), estimate_tokens(structured_bytes)),
    )


def job_result(
    members: Mapping[str, Raw], blocks: Iterable[bytes], facts: Mapping[str, Any], metadata: dict[str, Any]
) -> JobResult:
    """The result with these members and blocks; `facts`, which include `size_facts`, go to `_meta`."""
    content = {"content": Raw(b"[" + b",".join(blocks) + b"]")}
    # In its place, if it has one.
    replaced = {**members, **content} if "content" in members else {**content, **members}
    # Beside what the upstream put there.
    is_object = bytes(members.get("_meta", b""))[:1] == b"{"
    meta = top_level_members(members["_meta"]) if is_object else {}
    meta[META_KEY] = Raw(msgspec.json.encode(facts))
    return JobResult(
        result=encode_object(replaced | {"_meta": Raw(encode_object(meta))}),
        original_size=facts["original_size"],
        processed_size=facts["processed_size"],
        original_tokens=facts["original_tokens"],
        processed_tokens=facts["processed_tokens"],
        metadata=metadata,
        typed="resultType" in members,
    )
