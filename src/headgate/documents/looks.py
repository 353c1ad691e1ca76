"""What a style in an HTML element says about whether its text can be seen."""

import re
from typing import Final, NamedTuple

_COMMENT: Final = re.compile(r"/\*.*?(?:\*/|\Z)", re.DOTALL)
_NOTHING: Final = re.compile(r"[-+]?(?:0+(?:\.0*)?|\.0+)(?:[a-z]+|%)?")
# A number without a unit is a weight, unless it is nought, and one of degrees is how far letters lean.
_SIZE: Final = re.compile(r"smaller|larger|[-+]?0*\.?0+|[\d.+-]+(?:(?!deg|g?rad|turn)[a-z]+|%)")
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
    size = told.get("font-size", "inherit")
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
        name, value = name.strip(), value.strip()
        if name == "font":
            name, value = "font-size", _size_in(value)
        (important if mark.strip() == "important" else usual)[name] = value
    return usual | important


def _size_in(font: str) -> str:
    """The size among all that is said of a font at once, as in `bold 12px/1.5 serif`."""
    words = font.replace("/", " / ").split()
    return next(filter(_SIZE.fullmatch, words), font)
