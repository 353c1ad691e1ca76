"""How large a result may be that is shown whole, and what is shown of a larger one."""

from typing import Literal

import msgspec

from headgate.responses.notice import MESSAGE
from headgate.responses.tokens import characters_of

# Of a result that is too large, so large a part is shown: enough to see what it is.
_SHOWN_SHARE = 4


class Display(msgspec.Struct, frozen=True, kw_only=True):
    """What agents are shown of results."""

    # In characters.
    max_size: int = 8000
    max_tokens: int | None = None
    truncates: bool = True
    style: Literal["cache", "head_tail"] = "cache"
    # None is a quarter of the limit.
    excerpt_size: int | None = None
    message: str = MESSAGE
    compact: bool = False
    kept_seconds: float = 300.0

    @property
    def room(self) -> int:
        """The most characters that are shown of a text that is too large."""
        most = self.reply_room
        if self.style == "head_tail":
            return most
        return min(most, self.excerpt_size or max(1, most // _SHOWN_SHARE))

    @property
    def reply_room(self) -> int:
        """The most characters of a reply that was asked for."""
        if self.max_tokens is None:
            return self.max_size
        return max(1, min(self.max_size, characters_of(self.max_tokens)))
