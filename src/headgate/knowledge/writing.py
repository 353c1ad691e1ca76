"""An answer as a model reads it: JSON in which a list of like things names their keys once."""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

# What has one is read rather than looked through, and keeps its keys beside it.
_PROSE: Final = "chunk_text"
# Tells a model nothing, and without it the same question is answered with the same bytes.
_LEFT_OUT: Final = "execution_time_ms"
# How a table begins; inside of a text the quotes are escaped.
_SIGN: Final = b'"columns":'


def written(answer: Mapping[str, Any]) -> bytes:
    """The answer as compact JSON, with its lists of objects as `{"columns":[...],"rows":[[...],...]}`.

    Lists of texts stay lists of objects, and how long it took is left out. In the desktop envelope, which
    programs take apart, all is as it is.
    """
    if "_metadata" in answer:
        return msgspec.json.encode(answer)
    told = {key: value for key, value in answer.items() if key != _LEFT_OUT}
    tables = {key: _table(value) for key, value in told.items() if _is_list_of_like(value)}
    text = msgspec.json.encode({**told, **tables})
    # What was imported may look like a table of ours.
    return text if text.count(_SIGN) == len(tables) else msgspec.json.encode(told)


def _is_list_of_like(value: Any) -> bool:
    """Whether there are several objects with the same keys, and no texts among them."""
    if not isinstance(value, list) or len(value) < 2:
        return False
    keys = [list(item) if isinstance(item, dict) else None for item in value]
    return keys[0] is not None and _PROSE not in keys[0] and all(own == keys[0] for own in keys)


def _table(value: list[dict[str, Any]]) -> dict[str, list[Any]]:
    return {"columns": list(value[0]), "rows": [list(item.values()) for item in value]}
