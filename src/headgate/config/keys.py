"""The keys of one object in the file: camelCase or snake_case, known, for later, or a typing mistake."""

import difflib
from collections.abc import Collection, Mapping

from headgate.config.values import shown
from headgate.domain.errors import ConfigError

_ABBREVIATED = {"ttl": "TTL"}


def camel(name: str) -> str:
    """`max_timeout` as `maxTimeout`; a name that is camelCase already stays."""
    first, *rest = name.split("_")
    return first + "".join(_ABBREVIATED.get(part) or part[:1].upper() + part[1:] for part in rest)


def known_values(
    raw: Mapping[str, object],
    known: Collection[str],
    where: str,
    warnings: list[str],
    *,
    later: Collection[str] = (),
    aliases: Mapping[str, str] = {},
) -> dict[str, object]:
    """The values of known keys, by their camelCase name; null is not set; all others become warnings.

    Raises ConfigError if one key is given in two spellings.
    """
    values: dict[str, object] = {}
    spelled: dict[str, str] = {}
    for key, value in raw.items():
        name = camel(key)
        name = aliases.get(name, name)
        if name in known:
            if name in spelled:
                raise ConfigError(
                    f"{where} has both {shown(spelled[name])} and {shown(key)}, which are the same setting",
                    hint="remove one of the two",
                )
            spelled[name] = key
            if value is not None:
                values[name] = value
        elif name in later:
            warnings.append(f"{shown(key)} in {where} has no effect in this version")
        else:
            nearest = difflib.get_close_matches(name, [*known, *later], n=1)
            meant = f"; did you mean {nearest[0]!r}?" if nearest else ""
            warnings.append(f"{shown(key)} in {where} is not a known key{meant}")
    return values
