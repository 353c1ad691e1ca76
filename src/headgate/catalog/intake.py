"""Takes in one upstream's listing, leniently: what is odd is repaired, or left out with a reason."""

import logging
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType

import msgspec

from headgate.catalog.prompts import take_in_prompt
from headgate.catalog.resources import take_in_resource, take_in_template
from headgate.catalog.tools import take_in_tool
from headgate.domain.item import Source
from headgate.domain.kind import Kind

log = logging.getLogger("headgate.catalog")

# Clients of the SDKs refuse an event of more than 1 MiB, and so the whole page that such an item is on.
_LARGEST_BYTES = 1_000_000
# Of one listing; a server with thousands of odd items is told of once.
_MOST_LINES = 20
_NONE: Mapping[str, Source] = MappingProxyType({})


class _Way(msgspec.Struct, frozen=True):
    """How one kind is called in the log, and taken in."""

    word: str
    take_in: Callable[[str], tuple[Source, list[str]]]


_WAYS = {
    Kind.TOOLS: _Way("tool", take_in_tool),
    Kind.PROMPTS: _Way("prompt", take_in_prompt),
    Kind.RESOURCES: _Way("resource", take_in_resource),
    Kind.TEMPLATES: _Way("template", take_in_template),
}


class Intake(msgspec.Struct, frozen=True):
    """What one upstream lists and can be served, and why the rest cannot."""

    sources: tuple[Source, ...]
    left_out: dict[str, str]


class Looked(msgspec.Struct, frozen=True):
    """What was found in one definition: what it is and what was mended, or why it cannot be served."""

    source: Source | None
    repairs: list[str] = []
    problem: str = ""


def look_at(kind: Kind, definition: bytes) -> Looked:
    """The definition, mended where it has to be."""
    if len(definition) > _LARGEST_BYTES:
        return Looked(None, problem=f"it is larger than {_LARGEST_BYTES:,} bytes, which clients refuse")
    try:
        return Looked(*_WAYS[kind].take_in(definition.decode()))
    except RecursionError:
        return Looked(None, problem="it is nested too deep to be read")
    except UnicodeDecodeError as error:
        bad = definition[error.start]
        return Looked(None, problem=f"it is not UTF-8: byte 0x{bad:02x} at position {error.start}")
    except ValueError as error:
        return Looked(None, problem=str(error)[:200])


_NOT_LOOKED_AT: Mapping[bytes, Looked] = MappingProxyType({})


def take_in(
    server: str,
    kind: Kind,
    definitions: Iterable[bytes],
    known: Mapping[str, Source] = _NONE,
    looked_at: Mapping[bytes, Looked] = _NOT_LOOKED_AT,
) -> Intake:
    """Every definition that can be served, in the upstream's order.

    `known` are served already, by text; others may have been looked at before.
    """
    word = _WAYS[kind].word
    report = _Report(server, word)
    sources: dict[str, Source] = {}
    left_out: dict[str, str] = {}
    for position, definition in enumerate(definitions):
        served = known.get(definition.decode(errors="replace"))
        looked = Looked(served) if served else looked_at.get(definition) or look_at(kind, definition)
        source, problem = looked.source, looked.problem
        if source is not None and source.name in sources:
            problem = f"a second {word} is called {source.name[:100]!r}"
        if source is None or problem:
            label = f"#{position + 1}"
            left_out[label] = problem
            report.left_out(label, problem)
            continue
        sources[source.name] = source
        if looked.repairs:
            report.repaired(source.name, looked.repairs)
    report.close()
    return Intake(tuple(sources.values()), left_out)


class _Report:
    """Says what was done to a listing, in a bounded number of log lines."""

    def __init__(self, server: str, word: str) -> None:
        self._server = server
        self._word = word
        self._lines = 0

    def left_out(self, label: str, reason: str) -> None:
        if self._room():
            extra = {"server": self._server, self._word: label, "reason": reason}
            log.warning("%s left out", self._word, extra=extra)

    def repaired(self, name: str, repairs: list[str]) -> None:
        if self._room():
            extra = {"server": self._server, self._word: name[:200], "repair": "; ".join(repairs)[:500]}
            log.info("%s repaired", self._word, extra=extra)

    def close(self) -> None:
        more = self._lines - _MOST_LINES
        if more > 0:
            extra = {"server": self._server, "more": more}
            log.warning("more of its %ss repaired or left out", self._word, extra=extra)

    def _room(self) -> bool:
        self._lines += 1
        return self._lines <= _MOST_LINES
