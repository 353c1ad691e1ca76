"""What a client declared that it can do, on which an upstream's answers may depend."""

from functools import lru_cache
from typing import Any

import msgspec
from msgspec import DecodeError

# A declaration of more than this is nothing that any server acts on.
MOST_BYTES = 16 * 1024
_ASKED = {
    "roots/list": "roots",
    "sampling/createMessage": "sampling",
    "elicitation/create": "elicitation",
}


class _Mode(msgspec.Struct):
    mode: str = "form"


class Profile(msgspec.Struct, frozen=True):
    """The capabilities of a client, in one spelling, so that equal ones are one key."""

    capabilities: bytes = b"{}"
    # The kinds of questions that a server may put: roots, sampling, elicitation, and its two modes.
    answers: frozenset[str] = frozenset()

    @property
    def can_be_asked(self) -> bool:
        """Whether a server may put any question to the client."""
        return bool(self.answers)

    def may_be_asked(self, method: str, params: bytes) -> bool:
        """Whether the client declared that it answers this; methods that we do not know are its business."""
        wanted = _ASKED.get(method)
        if wanted is None:
            return bool(self.answers)
        if wanted != "elicitation":
            return wanted in self.answers
        return f"elicitation.{_mode(params)}" in self.answers

    def why_not(self, method: str) -> str:
        """Return why the client may not be asked this, in words that a server can hand on to a model."""
        wanted = _ASKED.get(method)
        if wanted is None:
            return "the client cannot be asked anything"
        if wanted in self.answers:
            return f"the client does not support this kind of {wanted}"
        return f"the client does not support {wanted}"


def _mode(params: bytes) -> str:
    try:
        return msgspec.json.decode(params or b"{}", type=_Mode).mode
    except (DecodeError, UnicodeDecodeError, RecursionError):
        return "unreadable"


PLAIN = Profile()


def profile_of(capabilities: bytes) -> Profile:
    """The profile of a client that declared this; what cannot be read declares nothing."""
    # Before anything is kept: nobody may fill the memory with declarations.
    if not capabilities or capabilities == b"{}" or len(capabilities) > MOST_BYTES:
        return PLAIN
    return _read(capabilities)


@lru_cache(maxsize=256)
def _read(capabilities: bytes) -> Profile:
    try:
        declared = msgspec.json.decode(capabilities, type=dict[str, Any])
        _keep_apart(declared)
        canonical = msgspec.json.encode(declared, order="deterministic")
    except (DecodeError, UnicodeDecodeError, RecursionError):
        return PLAIN
    return Profile(canonical, frozenset(_answers(declared))) if declared else PLAIN


def _keep_apart(declared: dict[str, Any]) -> None:
    """Take out that the client speaks rmcp: that is between it and the gateway, and no server hears of it."""
    experimental = declared.get("experimental")
    if isinstance(experimental, dict) and ("rmcp" in experimental or "mcp_tx" in experimental):
        experimental.pop("rmcp", None)
        experimental.pop("mcp_tx", None)
        if not experimental:
            del declared["experimental"]


def _answers(declared: dict[str, Any]) -> list[str]:
    found = [name for name in ("roots", "sampling") if isinstance(declared.get(name), dict)]
    elicitation = declared.get("elicitation")
    if isinstance(elicitation, dict):
        # Before there were two modes, an empty object meant forms.
        modes = [mode for mode in ("form", "url") if mode in elicitation] or ["form"]
        found += ["elicitation", *(f"elicitation.{mode}" for mode in modes)]
    return found
