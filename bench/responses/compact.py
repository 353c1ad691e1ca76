"""What tables take that name their columns once, and where that saves nothing."""

import json

import msgspec

from bench.responses.workloads import deep, items, log, rows
from headgate.results.compact_tables import from_compact_tables, to_compact_tables
from headgate.search.token_counter import count_tokens

_SIZE = 300_000


class Compact(msgspec.Struct, frozen=True, kw_only=True):
    """One content in tokens, as it came and with its columns named once; None where it is left as it is."""

    content: str
    tokens: int
    # Without white space that means nothing.
    tight: int | None
    compact: int | None

    @property
    def saved(self) -> float:
        """The part of the tokens that is left out."""
        return 0.0 if self.compact is None else 1 - self.compact / self.tokens


def compact() -> list[Compact]:
    """Every workload. Raises ValueError if something was lost."""
    contents = {
        "100 rows of 15 columns": rows(),
        "the same, 3 columns": _projected(rows(), ("name", "email", "plan")),
        "300 KB of orders, nested": items(_SIZE),
        "a deep API reply": deep(),
        "300 KB of log": log(_SIZE),
    }
    return [_measured(name, text) for name, text in contents.items()]


def _projected(table: str, columns: tuple[str, ...]) -> str:
    return json.dumps([{name: row[name] for name in columns} for row in json.loads(table)])


def _measured(name: str, text: str) -> Compact:
    made = to_compact_tables(text.encode())
    if made is not None and json.loads(from_compact_tables(made)) != json.loads(text):
        raise ValueError(f"{name} is not what it was")
    tight = None
    if text[0] in "{[":
        tight = count_tokens(json.dumps(json.loads(text), ensure_ascii=False, separators=(",", ":")).encode())
    return Compact(
        content=name,
        tokens=count_tokens(text.encode()),
        tight=tight,
        compact=None if made is None else count_tokens(made),
    )
