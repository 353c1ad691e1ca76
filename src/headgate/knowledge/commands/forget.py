"""Removes documents and imported graphs from a store by name."""

import difflib
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from headgate.domain.errors import ConfigError, quoted
from headgate.knowledge.commands.answer_tables import counted_noun, json_document
from headgate.knowledge.data_model import name_key
from headgate.knowledge.interfaces import IndexWriter

# Of one step; somebody else may write after it.
_FILES_AT_ONCE: Final = 100
_MOST_NEAREST: Final = 3
_LIKENESS: Final = 0.5


class ForgetResult(msgspec.Struct, frozen=True, kw_only=True):
    """What left under a name."""

    name: str
    documents: int = 0
    chunks: int = 0
    # Those that the graph of this name spoke of; who is known otherwise too is still there.
    entities: int | None = None


async def forget(store: IndexWriter, name: str) -> ForgetResult:
    """The documents of a root, a directory or a file, and the graph, that are called so leave.

    Raises ConfigError with the nearest names where there is none, and StoreAway: the same call goes on then.
    """
    wanted = name.strip().removesuffix("/")
    files, origins = sorted(await store.source_digests()), await store.graph_origins()
    leaving = [file for file in files if file == wanted or (wanted and file.startswith(f"{wanted}/"))]
    graphs = _graphs(wanted, origins)
    if not leaving and len(graphs) != 1:
        raise _several(name, graphs) if graphs else _unknown(name, _names(files, origins))
    chunks = 0
    for start in range(0, len(leaving), _FILES_AT_ONCE):
        chunks += await store.remove_sources(leaving[start : start + _FILES_AT_ONCE])
    entities = await store.delete_graph(graphs[0]) if len(graphs) == 1 else None
    return ForgetResult(name=wanted, documents=len(leaving), chunks=chunks, entities=entities)


def _graphs(wanted: str, origins: Sequence[str]) -> list[str]:
    """The imports that are called so: by their whole name, or else by that of the file alone."""
    if wanted in origins:
        return [wanted]
    return [origin for origin in origins if origin.rpartition("/")[2] == wanted]


def _several(name: str, graphs: Sequence[str]) -> ConfigError:
    named = ", ".join(repr(quoted(one)) for one in graphs[:_MOST_NEAREST])
    return ConfigError(f"{len(graphs)} graphs are called {quoted(name)!r}", hint=f"name one of them: {named}")


def _names(files: Iterable[str], origins: Iterable[str]) -> list[str]:
    """Everything that could be forgotten; a root before what is below it."""
    found: dict[str, None] = dict.fromkeys(origins)
    for file in files:
        parts = file.split("/")
        found |= dict.fromkeys("/".join(parts[: length + 1]) for length in range(len(parts)))
    return list(found)


def _unknown(name: str, known: Sequence[str]) -> ConfigError:
    said = f"nothing in the store is called {quoted(name)!r}"
    if not known:
        return ConfigError(said, hint="it is empty")
    by_key = {name_key(one): one for one in reversed(known)}
    nearest = difflib.get_close_matches(name_key(name)[:200], by_key, _MOST_NEAREST, _LIKENESS)
    # Who gives the path of a directory means what it is called in the store.
    ends = [key for key in by_key if f"/{name_key(name)}".rstrip("/").endswith(f"/{key}")]
    nearest = sorted(ends, key=len, reverse=True)[:1] or nearest
    # Without any likeness some that there are, the outermost first.
    shown = [by_key[key] for key in nearest] or sorted(known, key=lambda one: (one.count("/"), one))[:3]
    return ConfigError(said, hint=f"did you mean {', '.join(repr(quoted(one)) for one in shown)}?")


def print_forget_result(forgotten: ForgetResult, *, as_json: bool) -> str:
    """What left, in one sentence or as one JSON document."""
    if as_json:
        return json_document(msgspec.structs.asdict(forgotten))
    parts = []
    if forgotten.documents:
        parts.append(
            f"{counted_noun(forgotten.documents, 'document')} with {counted_noun(forgotten.chunks, 'chunk')}"
        )
    if forgotten.entities is not None:
        entities = counted_noun(forgotten.entities, "entity", "entities")
        parts.append(f"the graph of that name, which spoke of {entities}")
    return f"{quoted(forgotten.name)!r} left the store: {', and '.join(parts)}."
