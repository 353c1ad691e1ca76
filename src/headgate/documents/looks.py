"""What a style in an HTML element says about whether its text can be seen."""

import re
from typing import Final, NamedTuple

_COMMENT: Final = re.compile(r"/\*.*?(?:\*/|\Z)", re.DOTALL)
_NOTHING: Final = re.compile(r"[-+]?(?:0+(?:\.0*)?|\.0+)(?:[a-z]+|%)?")
# Sizes that are a share of the size around them: a share of nothing is nothing.
_SHARE: Final = re.compile(r"(?:smaller|larger|inherit|unset|[\d.+-]+(?:em|ex|ch|%))")


class Look(NamedTuple):
    """Of what is inside of an element; elements in it can be seen again."""

    is_visible: bool = True
    has_size: bool = True

    @property
    def is_seen(self) -> bool:
        """Whether text that stands here can be read."""
        return self.is_visible and self.has_size


def look_of(style: str, around: Look) -> Look | None:
    """How an element with this style looks in one that looks like `around`; None when all of it is unseen."""
    told = _declared(style)
    if (
        told.get("display") == "none"
        or told.get("content-visibility") == "hidden"
        or _NOTHING.fullmatch(told.get("opacity", ""))
    ):
        return None
    is_visible, has_size = around
    visibility = told.get("visibility", "inherit")
    size = told.get("font-size") or told.get("font", "inherit")
    if visibility in ("hidden", "collapse"):
        is_visible = False
    elif visibility in ("visible", "initial"):
        is_visible = True
    if _NOTHING.fullmatch(size):
        has_size = False
    elif not _SHARE.fullmatch(size):
        has_size = True
    return Look(is_visible, has_size)


def _declared(style: str) -> dict[str, str]:
    """The values by their names; the last one counts, unless another is important."""
    usual: dict[str, str] = {}
    important: dict[str, str] = {}
    for declaration in _COMMENT.sub("", style).lower().split(";"):
        name, _, said = declaration.partition(":")
        value, _, mark = said.partition("!")
        (important if mark.strip() == "important" else usual)[name.strip()] = value.strip()
    return usual | important
