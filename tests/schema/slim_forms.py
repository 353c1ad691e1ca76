"""The small forms of one tool, each by itself."""

from headgate.catalog.tool_forms import NOTHING_SHARED, SharedText, make_slim_forms


def slim_tool(definition: bytes, shared: SharedText = NOTHING_SHARED, *, every_type: bool = False) -> bytes:
    return make_slim_forms(definition, shared, every_type=every_type).slim


def stub_tool(definition: bytes, shared: SharedText = NOTHING_SHARED) -> bytes:
    return make_slim_forms(definition, shared).stub
