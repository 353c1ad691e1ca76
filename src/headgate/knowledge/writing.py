"""An answer as a model reads it: JSON in which a list of like things names their keys once."""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

# What has one is read rather than looked through, and keeps its keys beside it.
_PROSE: Final = "chunk_text"
# Tells a model nothing, and without it the same question is answered with the same bytes.
_LEFT_OUT: Final = "execution_time_ms"


def written(answer: Mapping[str, Any]) -> bytes:
    """The answer as compact JSON, with its lists of objects as `{"columns":[...],"rows":[[...],...]}`.

    Lists of texts stay lists of objects, and how long it took is left out. In the desktop envelope, which
    programs take apart, all is as it is.
    """
    if "_metadata" in answer:
        return msgspec.json.encode(answer)
    return msgspec.json.encode({key: _table(value) for key, value in answer.items() if key != _LEFT_OUT})


def _table(value: Any) -> Any:
    if not isinstance(value, list) or len(value) < 2 or not isinstance(value[0], dict):
        return value
    columns = list(value[0])
    if _PROSE in columns or any(list(item) != columns for item in value):
        return value
    return {"columns": columns, "rows": [list(item.values()) for item in value]}
