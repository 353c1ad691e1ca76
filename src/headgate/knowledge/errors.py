"""Errors of the document server: its arguments, entities, searches and imports."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import ClassVar, Final, NamedTuple

from headgate.domain.errors import KnowledgeError

# The number of suggestions.
_MAX_LISTED = 20


class InvalidKnowledgeArgument(KnowledgeError):
    """An argument of a knowledge tool that cannot be used; the message says what is allowed."""

    code = "INVALID_PARAMS"


class QueryTooLong(KnowledgeError):
    """A query with more characters than are taken."""

    code = "QUERY_TOO_LONG"

    def __init__(self, longest: int) -> None:
        super().__init__(
            f"Query too long (max {longest})", hint=f"shorten the query to {longest} characters or fewer"
        )


class VendorNotFound(KnowledgeError):
    """No entity has this name or alias."""

    code = "VENDOR_NOT_FOUND"

    def __init__(self, name: str, nearest: list[str], other: "EntityMatch | None" = None) -> None:
        """`other` is an entity of that name that is no vendor."""
        hint = f"names like it: {', '.join(nearest)}" if nearest else "search for it with semantic_search"
        if other is not None:
            article = "an" if other.type[:1].upper() in set("AEIOU") else "a"
            hint = f"'{other.name}' is {article} {other.type}, not a vendor: use neighbours"
        super().__init__(
            f"Vendor '{name}' not found. Try using semantic_search first to find exact vendor names and IDs "
            "in the knowledge graph.",
            hint=hint,
            hinted=bool(nearest) or other is not None,
        )
        self.nearest = nearest


class EntityMatch(NamedTuple):
    """One of several matches, with the fields that distinguish it."""

    id: int
    name: str
    type: str
    # The id that an import gave it.
    external_id: str = ""
    aliases: tuple[str, ...] = ()
    attributes: Mapping[str, str] = MappingProxyType({})

    def __str__(self) -> str:
        known = [self.type, f"id {self.id}"]
        known += [self.external_id] if self.external_id else []
        known += [f"also '{alias}'" for alias in self.aliases]
        known += [f"{name}: {value}" for name, value in self.attributes.items()]
        return f"'{self.name}' ({', '.join(known)})"


class EntityAmbiguous(KnowledgeError):
    """Several entities of any type have this name or alias; they are listed and none is guessed."""

    code = "VENDOR_AMBIGUOUS"
    # What is looked for, and the argument that names it.
    _kind: ClassVar = ("Entity", "entity")

    def __init__(self, name: str, matches: list[EntityMatch]) -> None:
        kind, argument = self._kind
        # The word before an id separates it from ids of imports.
        choice = f"the id of the one that is meant as {argument}, such as 'id {matches[0].id}'"
        listed = _listed([str(match) for match in matches])
        super().__init__(
            f"{kind} '{name}' is ambiguous: {len(matches)} matches: {listed}. Call again with {choice}.",
            hint=f"call again with {choice}",
        )
        self.matches = matches[:_MAX_LISTED]


class VendorAmbiguous(EntityAmbiguous):
    """As EntityAmbiguous, of vendors."""

    _kind = ("Vendor", "vendor_name")


def _listed(matches: list[str]) -> str:
    """A list short enough to choose from."""
    more = len(matches) - _MAX_LISTED
    return ", ".join(matches[:_MAX_LISTED]) + (f" and {more} more" if more > 0 else "")


class EntityNotFound(KnowledgeError):
    """No entity or chunk has this name or id."""

    code = "RESULT_NOT_FOUND"

    def __init__(self, message: str, *, hint: str, nearest: Sequence[str] = ()) -> None:
        """`nearest` are names that may have been meant."""
        hint = f"names like it: {', '.join(nearest)}" if nearest else hint
        super().__init__(message, hint=hint, hinted=bool(nearest))
        self.nearest = list(nearest)


class TokenBudgetExceeded(KnowledgeError):
    """The caller's tokens of the day do not suffice for this answer."""

    code = "RATE_LIMIT"
    retryable = True

    def __init__(
        self, left: int, total: int, needed: int, *, hint: str, retry_after_seconds: float | None = None
    ) -> None:
        super().__init__(
            f"Not enough of the token budget: {left} of {total} tokens are left for the next 24 hours "
            f"and this answer may take {needed}; {hint}",
            hint=hint,
            retry_after_seconds=retry_after_seconds,
        )
        # Without a time there is nothing to wait for: a whole day's tokens are too few.
        self.retryable = retry_after_seconds is not None


class SearchFailed(KnowledgeError):
    """A search that ended in an error of ours; the log has it under `entry`."""

    code = "SEARCH_FAILED"
    retryable = True

    def __init__(self, entry: str) -> None:
        super().__init__(
            f"Search failed, retry in 5s or look for {entry} in the log",
            hint="retry in 5 seconds; if it persists, report it with the entry of the log",
            retry_after_seconds=5.0,
        )


class VectorSearchUnavailable(KnowledgeError):
    """A search by meaning alone that cannot be made now; the message says what to do instead."""

    code = "SERVICE_UNAVAILABLE"
    retryable = True

    def __init__(self, reason: str, remedy: str, *, retry_after_seconds: float = 5.0) -> None:
        super().__init__(
            f"Strategy 'vector' is unavailable: {reason}. Use strategy 'bm25' or 'hybrid', or {remedy}.",
            hint=f"use strategy 'bm25' or 'hybrid', or {remedy}",
            retry_after_seconds=retry_after_seconds,
        )


class InvalidGraph(KnowledgeError):
    """A file of entities and relationships that cannot be imported; the message says where and why."""

    code = "INVALID_PARAMS"
    hint_for_operators = True


class UnresolvedEndpoint(NamedTuple):
    """An end of an imported relationship that matches no entity, or several."""

    # The number of the relationship in the import, from 1.
    row: int
    # The whole relationship in words, and the end as it was given.
    relationship: str
    end: str
    fitting: int

    def __str__(self) -> str:
        found = f"{self.end!r} fits {self.fitting} entities"
        return f"({self.relationship}): {found if self.fitting else f'no entity is called {self.end!r}'}"


class UnresolvedEndpoints(InvalidGraph):
    """Relationships of an import whose ends are not certain."""

    def __init__(self, ends: Sequence[UnresolvedEndpoint], file: str = "", lines: Sequence[int] = ()) -> None:
        """`lines` has the line of the file on which each relationship begins, where that is known."""
        self.ends = tuple(ends)
        places = [
            f"line {lines[end.row - 1]}" if end.row <= len(lines) else f"relationship {end.row}"
            for end in self.ends
        ]
        descriptions = [f"{place} {end}" for place, end in zip(places, self.ends, strict=True)]
        what = f"{file}, {descriptions[0]}" if file else f"{descriptions[0][:1].upper()}{descriptions[0][1:]}"
        if (count := len(descriptions)) > 1:
            what = f"{file or 'The graph'} has {count} ends of relationships that are not certain: "
            what += _listed(descriptions)
        advice = " ".join(
            _ENDPOINT_ADVICE[several] for several in sorted({end.fitting > 0 for end in self.ends})
        )
        super().__init__(
            # Another file of the same command may have been.
            f"{what}. {advice} Nothing {f'of {file} ' if file else ''}was imported.",
            hint=f"{advice[:1].lower()}{advice[1:].rstrip('.')}",
        )


# Ends without a match, and ends with several.
_ENDPOINT_ADVICE: Final = {
    False: "Add it to the entities that are imported, or give the name, alias or id of one that is known.",
    True: "Give the external id of the one that is meant, or a name that no other has.",
}
