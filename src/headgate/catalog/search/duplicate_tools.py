"""Groups near-duplicates: one tool that several servers offer, or several versions of a tool."""

import re
from collections.abc import Hashable, Iterable, Iterator, Set
from functools import cached_property, lru_cache
from typing import Final

from headgate.catalog.search.tool_document import ToolDocument, ToolKey
from headgate.search.text_analysis import words

# The share of common words among all words of both.
_NEARLY_ALL: Final = 0.8
# Servers write "Search." about tools that have nothing else in common.
_SHORTEST_SHARED: Final = 2
# Under different names, only a whole sentence shows that two servers offer the same tool.
_SENTENCE_SPACES: Final = 4
# Characters; keeps the comparison of forty candidates under a few milliseconds.
_LONGEST_COMPARED: Final = 1_000
# Names are cached.
_LONGEST_NAME: Final = 200
_VERSION: Final = re.compile(r"v\d+")


class DuplicateGroups:
    """Documents in groups of near-duplicates; groups and members keep their order of arrival."""

    def __init__(self) -> None:
        self._groups: list[list[_ComparedTool]] = []
        self._groups_by_key: dict[Hashable, list[list[_ComparedTool]]] = {}

    def __len__(self) -> int:
        return len(self._groups)

    def add(self, documents: Iterable[ToolDocument]) -> None:
        for document in documents:
            self._add(_ComparedTool(document))

    @property
    def tools(self) -> list[list[ToolKey]]:
        return [[one.document.key for one in group] for group in self._groups]

    def _add(self, one: "_ComparedTool") -> None:
        blocking_keys = list(one.blocking_keys())
        likely = (
            group for blocking_key in blocking_keys for group in self._groups_by_key.get(blocking_key, ())
        )
        group = next((group for group in likely if group[0].is_same(one)), None)
        if group is not None:
            group.append(one)
            return
        self._groups.append([one])
        for blocking_key in blocking_keys:
            self._groups_by_key.setdefault(blocking_key, []).append(self._groups[-1])


class _ComparedTool:
    """A document with the parts that are compared, each computed once on first use."""

    def __init__(self, document: ToolDocument) -> None:
        self.document = document
        self.parameters = frozenset(document.parameters.split())
        self.server_words = _server_words(document.key[0])
        self.bare_name = _bare_name(document.key[0], document.name[:_LONGEST_NAME])

    @cached_property
    def described(self) -> frozenset[str]:
        """The words of the description."""
        return frozenset(words(self.document.description[:_LONGEST_COMPARED]))

    def blocking_keys(self) -> Iterator[Hashable]:
        """Keys that duplicates share, so that few documents are compared in full."""
        yield "name", self.bare_name
        if self.document.description.count(" ") >= _SENTENCE_SPACES:
            yield "description", self.document.description

    def is_same(self, other: "_ComparedTool") -> bool:
        if self.document.read_only != other.document.read_only:
            return False
        if self.bare_name != other.bare_name:
            # A server that describes two of its tools in the same words still has two tools.
            return self.document.key[0] != other.document.key[0] and (
                self.document.description == other.document.description
                and self.parameters == other.parameters
            )
        if word_overlap(self.parameters, other.parameters) < _NEARLY_ALL:
            return False
        if min(len(self.described), len(other.described)) < _SHORTEST_SHARED:
            return False
        # "Cities of Uganda" by the server uganda and "cities of Egypt" by the server egypt are two tools.
        if (self.described ^ other.described) & (self.server_words | other.server_words):
            return False
        return word_overlap(self.described, other.described) >= _NEARLY_ALL


# Splitting forty names takes as long as the search itself, and popular tools recur.
@lru_cache(maxsize=1024)
def _server_words(server: str) -> frozenset[str]:
    return frozenset(words(server))


@lru_cache(maxsize=8192)
def _bare_name(server: str, name: str) -> tuple[str, ...]:
    """The words of the name without those of the server and without a version."""
    own = words(name)
    bare = [word for word in own if word not in _server_words(server) and not _VERSION.fullmatch(word)]
    return tuple(bare or own)


def word_overlap(one: Set[str], other: Set[str]) -> float:
    """The share of common words among all words; two empty sets are equal."""
    return len(one & other) / len(one | other) if one or other else 1.0
