"""The declarations of a client: its capabilities and its name."""

from functools import lru_cache
from typing import Any

import msgspec
from msgspec import DecodeError

from headgate.domain.payload import decode_or

# A declaration of more than this is nothing that any server acts on.
MAX_CAPABILITIES_BYTES = 16 * 1024
_CAPABILITY_BY_METHOD = {
    "roots/list": "roots",
    "sampling/createMessage": "sampling",
    "elicitation/create": "elicitation",
}


class _ElicitationParams(msgspec.Struct):
    mode: str = "form"


class ClientProfile(msgspec.Struct, frozen=True):
    """The capabilities of a client, in one spelling, so that equal ones are one key."""

    capabilities: bytes = b"{}"
    # The kinds of questions that a server may put: roots, sampling, elicitation, and its two modes.
    input_capabilities: frozenset[str] = frozenset()

    @property
    def accepts_input_requests(self) -> bool:
        return bool(self.input_capabilities)

    def supports_input_request(self, method: str, params: bytes) -> bool:
        """Whether the client declared that it answers this; methods that we do not know are its business."""
        capability = _CAPABILITY_BY_METHOD.get(method)
        if capability is None:
            return bool(self.input_capabilities)
        if capability != "elicitation":
            return capability in self.input_capabilities
        elicitation = decode_or(params or b"{}", _ElicitationParams, _ElicitationParams("unreadable"))
        return f"elicitation.{elicitation.mode}" in self.input_capabilities

    def unsupported_reason(self, method: str) -> str:
        """Why the client does not support this request, in words for a model."""
        capability = _CAPABILITY_BY_METHOD.get(method)
        if capability is None:
            return "the client cannot be asked anything"
        if capability in self.input_capabilities:
            return f"the client does not support this kind of {capability}"
        return f"the client does not support {capability}"


PLAIN_PROFILE = ClientProfile()


def profile_of(capabilities: bytes) -> ClientProfile:
    """The profile of a client that declared this; what cannot be read declares nothing."""
    # Before anything is kept, so that declarations cannot fill the memory.
    if not capabilities or capabilities == b"{}" or len(capabilities) > MAX_CAPABILITIES_BYTES:
        return PLAIN_PROFILE
    return _read_capabilities(capabilities)


@lru_cache(maxsize=256)
def _read_capabilities(capabilities: bytes) -> ClientProfile:
    try:
        declared = msgspec.json.decode(capabilities, type=dict[str, Any])
        experimental = declared.get("experimental")
        if isinstance(experimental, dict) and ("rmcp" in experimental or "mcp_tx" in experimental):
            experimental.pop("rmcp", None)
            experimental.pop("mcp_tx", None)
            if not experimental:
                del declared["experimental"]
        canonical = msgspec.json.encode(declared, order="deterministic")
    except (DecodeError, UnicodeDecodeError, RecursionError):
        return PLAIN_PROFILE
    return ClientProfile(canonical, frozenset(_input_capabilities(declared))) if declared else PLAIN_PROFILE


def _input_capabilities(declared: dict[str, Any]) -> list[str]:
    found = [name for name in ("roots", "sampling") if isinstance(declared.get(name), dict)]
    elicitation = declared.get("elicitation")
    if isinstance(elicitation, dict):
        # Before there were two modes, an empty object meant forms.
        modes = [mode for mode in ("form", "url") if mode in elicitation] or ["form"]
        found += ["elicitation", *(f"elicitation.{mode}" for mode in modes)]
    return found


# No known client has a longer name, and each would be kept.
_MAX_CLIENT_NAME = 200
_MAX_CLIENT_INFO_BYTES = 4 * 1024


class _ClientInfo(msgspec.Struct):
    name: str = ""


@lru_cache(maxsize=256)
def _read_client_name(info: bytes) -> str:
    return decode_or(info, _ClientInfo, _ClientInfo()).name[:_MAX_CLIENT_NAME]


def client_name(info: bytes) -> str:
    """The name in the `clientInfo` of the client; empty without one."""
    return _read_client_name(info) if info and len(info) <= _MAX_CLIENT_INFO_BYTES else ""
