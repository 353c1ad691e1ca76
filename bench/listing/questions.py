"""Requests for tools, as a user might write them."""

import random
from collections.abc import Sequence

import msgspec

from bench.retrieval.synthetic import template_questions
from headgate.catalog.search.tool_document import document_of
from headgate.domain.item import Item


class Wanted(msgspec.Struct, frozen=True):
    """A tool, and a request that it answers."""

    item: Item
    text: str


def questions_for(items: Sequence[Item], count: int, *, seed: int) -> list[Wanted]:
    """For so many different tools, the same each time; a request is made of the tool's own description.

    That flatters search, and hardly changes how long its answers are.
    """
    order = list(items)
    random.Random(seed).shuffle(order)
    found: list[Wanted] = []
    for item in order:
        document = document_of(item.server, item.name, item.public_name, item.definition)
        asked = template_questions(document)
        if asked:
            found.append(Wanted(item, asked[0]))
        if len(found) == count:
            break
    return found
