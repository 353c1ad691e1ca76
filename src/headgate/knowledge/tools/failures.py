"""What a client gets of an error, as structured content."""

from typing import Any

from headgate.domain.errors import (
    EntityAmbiguous,
    EntityNotFound,
    KnowledgeError,
    Match,
    VendorAmbiguous,
    VendorNotFound,
)
from headgate.domain.redaction import cleaned


def failure(error: KnowledgeError) -> dict[str, Any]:
    """What is wrong, what to do and the code; who may have been meant, and when to try again, where known."""
    told: dict[str, Any] = {
        "error": cleaned(error.sentence),
        "action": cleaned(error.hint),
        "code": error.code,
    }
    if error.retry_after_seconds is not None:
        told["retry_after_seconds"] = error.retry_after_seconds
    if isinstance(error, VendorAmbiguous):
        told["matches"] = [
            {"vendor_id": one.id, "vendor_name": one.name, "vendor_type": one.type, **_apart(one)}
            for one in error.matches
        ]
    if isinstance(error, EntityAmbiguous):
        told["matches"] = [
            {"entity_id": one.id, "name": one.name, "entity_type": one.type, **_apart(one)}
            for one in error.matches
        ]
    if isinstance(error, VendorNotFound) or (isinstance(error, EntityNotFound) and error.nearest):
        told["suggestions"] = error.nearest
    return told


def _apart(match: Match) -> dict[str, Any]:
    """What it has besides."""
    known = {
        "external_id": match.external_id,
        "aliases": list(match.aliases),
        "attributes": dict(match.attributes),
    }
    return {name: value for name, value in known.items() if value}
