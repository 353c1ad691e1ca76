"""What a call asks of its delivery beside its arguments: a key in one place or another, or rmcp."""

from typing import Any, Final, Literal

import msgspec

# Stands for the number of the call, in as many characters as every number has.
NUMBER: Final = "#number"
_RMCP: Final = {"version": "0.1.0", "features": ["ack", "retry", "idempotency", "transactions", "chunking"]}


class Ticket(msgspec.Struct, frozen=True, kw_only=True):
    """The same for all calls of a plan, but for the number in it."""

    way: Literal["none", "meta", "header", "rmcp"] = "none"
    # Empty for a call without a key.
    key: str = ""

    @property
    def capabilities(self) -> dict[str, Any]:
        """What the client says of itself."""
        return {"experimental": {"rmcp": _RMCP}} if self.way == "rmcp" else {}

    @property
    def headers(self) -> dict[str, str]:
        """What goes with the call over HTTP."""
        return {"Idempotency-Key": self.key} if self.way == "header" else {}

    @property
    def meta(self) -> dict[str, Any]:
        """What goes into `_meta` of the call."""
        if self.way == "meta":
            return {"io.headgate/idempotencyKey": self.key}
        return {"rmcp": self._asked()} if self.way == "rmcp" else {}

    def _asked(self) -> dict[str, Any]:
        """All that the client library sends."""
        asked = {
            "version": _RMCP["version"],
            # A UUID of version 4.
            "request_id": f"00000000-0000-4000-8000-00000{NUMBER}",
            "expect_ack": True,
            "retry_count": 0,
            "timeout_ms": 30_000,
            "timestamp": "2026-07-28T12:00:00.000000Z",
        }
        return asked | {"idempotency_key": self.key} if self.key else asked


PLAIN: Final = Ticket()
