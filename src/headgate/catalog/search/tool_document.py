"""The search document of one tool: its fields, their term impacts (BM25F) and its vector."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from math import sqrt
from typing import Any, Final

import msgspec

from headgate.catalog.definition_text import read_tool
from headgate.schema.keywords import as_list, as_object, as_text, properties_of
from headgate.search.bm25 import Bm25
from headgate.search.lexicon import MAX_QUANTIZED, VECTOR_LENGTH, ZERO_POINT, Lexicon, TextVector, unit_vector
from headgate.search.text_analysis import terms

ToolKey = tuple[str, str]
# Deeper than any hand-written schema.
_DEEPEST: Final = 8
# Time zones and country codes come in hundreds and would dominate the rest.
_MOST_CHOICES: Final = 64


class ToolDocument(msgspec.Struct, frozen=True):
    """The indexed texts of one tool."""

    # The server, and its own name of the tool.
    key: ToolKey
    public_name: str
    name: str
    title: str = ""
    description: str = ""
    parameters: str = ""
    # Descriptions and possible values of the parameters.
    parameter_texts: str = ""
    read_only: bool = False


def document_of(server: str, name: str, public_name: str, definition: bytes) -> ToolDocument:
    """The document of a tool; malformed members of its definition are ignored."""
    tool = read_tool(definition)
    annotations = as_object(tool.annotations)
    names: list[str] = []
    texts: list[str] = []
    for parameter, schema in _parameters(tool.inputSchema, _DEEPEST):
        names.append(parameter)
        for part in (schema, as_object(schema.get("items"))):
            choices = as_list(part.get("enum"))[:_MOST_CHOICES]
            texts += filter(None, map(as_text, [part.get("description"), *choices]))
    return ToolDocument(
        key=(server, name),
        public_name=public_name,
        name=name,
        title=as_text(tool.title) or as_text(annotations.get("title")),
        description=tool.text,
        parameters=" ".join(names),
        parameter_texts=" ".join(texts),
        read_only=annotations.get("readOnlyHint") is True,
    )


def _parameters(schema: Any, depth: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every parameter, including those of nested objects and arrays."""
    for name, inner in properties_of(schema).items():
        yield name, as_object(inner)
        if depth and isinstance(inner, dict):
            yield from _parameters(inner, depth - 1)
            yield from _parameters(inner.get("items"), depth - 1)


class SearchField(msgspec.Struct, frozen=True):
    """One field of a document: its weight, and how much its length counts against it."""

    name: str
    weight: float
    length_share: float
    usual_length: float


SEARCH_FIELDS: Final = (
    SearchField("name", 2.0, 0.4, 3.0),
    SearchField("server", 2.0, 0.2, 2.0),
    SearchField("description", 1.0, 0.85, 20.0),
    SearchField("parameters", 0.5, 0.75, 6.0),
    SearchField("parameter descriptions", 0.4, 0.75, 30.0),
)
# Lengths count field by field, before the frequencies of the fields are added up.
_BM25F: Final = Bm25(k1=0.9, b=0.0)
# The largest impact. Small integers are shared objects, and an index has hundreds of thousands of them; sums
# of integers do not depend on the order of addition.
MAX_IMPACT: Final = 255


def field_terms(document: ToolDocument) -> tuple[list[str], ...]:
    """The terms of each field, in the order of SEARCH_FIELDS."""
    name, title = document.name, document.title
    texts = (
        name if title == name else f"{name} {title}",
        document.key[0],
        document.description,
        document.parameters,
        document.parameter_texts,
    )
    return tuple(map(terms, texts))


def term_impacts(fields: Sequence[Sequence[str]]) -> dict[str, int]:
    """The impact of every term of a document, from 1 to 255."""
    frequencies: dict[str, float] = defaultdict(float)
    for field, found in zip(SEARCH_FIELDS, fields, strict=True):
        relative = len(found) / field.usual_length
        each = field.weight / (1 - field.length_share + field.length_share * relative)
        for term in found:
            frequencies[term] += each
    weight = MAX_IMPACT / _BM25F.highest_score(1.0)
    return {term: max(1, round(_BM25F.score(weight, frequency))) for term, frequency in frequencies.items()}


# Shifts a component to the range of text vectors, and rounds it.
_ROUNDING_OFFSET: Final = ZERO_POINT + 0.5
# Name, server, description, parameters, their descriptions: the purpose counts more than the parameters.
_VECTOR_FIELD_WEIGHTS: Final = (1.0, 0.5, 1.0, 0.2, 0.1)
# The purpose of a tool is at the beginning.
_MOST_FIELD_TERMS: Final = 200


def vector_of_fields(fields: Sequence[Sequence[str]], lexicon: Lexicon) -> TextVector | None:
    """The vector of a tool by the terms of its fields; None if none of its words is known."""
    weights: dict[str, float] = {}
    for weight, found in zip(_VECTOR_FIELD_WEIGHTS, fields, strict=True):
        if not found:
            continue
        each = weight / sqrt(min(len(found), _MOST_FIELD_TERMS))
        for term in found[:_MOST_FIELD_TERMS]:
            weights[term] = weights.get(term, 0.0) + each

    direction = unit_vector(weights.items(), lexicon)
    if direction is None:
        return None
    numbers = [int(number * VECTOR_LENGTH + _ROUNDING_OFFSET) for number in direction]
    if min(numbers) < 1 or max(numbers) > MAX_QUANTIZED:
        numbers = [max(1, min(MAX_QUANTIZED, number)) for number in numbers]
    return bytes(numbers)
