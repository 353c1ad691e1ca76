"""What `headgate listing` has found out: one value for the tables, and the same as JSON."""

from collections.abc import Mapping

import msgspec

from headgate.catalog.dialects.dialect import Dialect
from headgate.catalog.evaluation.report import Unreached
from headgate.domain.listing import Mode


class Choice(msgspec.Struct, frozen=True):
    """The mode that a client gets, who decided that, and what it comes to."""

    mode: Mode
    decided_by: str
    came_to: Mode
    why: str


class ModeCount(msgspec.Struct, frozen=True, kw_only=True):
    """One mode: tokens of the whole tools array, and how many tools are said how fully."""

    mode: Mode
    came_to: Mode
    tokens: int
    # Of what full takes.
    share: float
    own: int
    whole: int
    partitioned: int
    slim: int
    stub: int
    search: int


class ServerCount(msgspec.Struct, frozen=True):
    """One server: its tools, and the tokens of those that are shown, by mode."""

    name: str
    tools: int
    tokens: Mapping[Mode, int]


class NamedTool(msgspec.Struct, frozen=True):
    """A tool by its server and its name there."""

    server: str
    name: str


class ListedTool(msgspec.Struct, frozen=True, kw_only=True):
    """A tool as clients know it; those of the gateway itself have no server."""

    public_name: str
    server: str
    name: str
    # own, whole, partitioned, slim, stub, or search where it is not listed.
    form: str
    tokens: int
    pinned: bool = False
    renamed: bool = False
    # cut or hashed, where the public name is not the plain one.
    name_is: str = ""
    # Its place among the most used, from 1 on.
    rank: int | None = None


class _Known(msgspec.Struct, frozen=True, kw_only=True):
    """What both reports begin with."""

    version: str
    client: str
    dialect: Dialect
    budget_tokens: int
    # The most tools that the client can handle, if that is known.
    most_tools: int | None
    tools: int
    unreached: tuple[Unreached, ...]


class Overview(_Known, frozen=True, kw_only=True, tag_field="kind", tag="overview"):
    """What each mode would cost."""

    choice: Choice
    modes: tuple[ModeCount, ...]
    servers: tuple[ServerCount, ...]
    pinned: int
    hidden: int
    renamed: int
    names_cut: int
    names_hashed: int


class Listing(_Known, frozen=True, kw_only=True, tag_field="kind", tag="listing"):
    """Everything in one mode, tool by tool."""

    mode: Mode
    came_to: Mode
    why: str
    tokens: int
    listed: tuple[ListedTool, ...]
    hidden: tuple[NamedTool, ...]
    # Pinned, and yet there was no room.
    pins_left: tuple[str, ...]
    # What the dialect changed, by tool.
    changes: Mapping[str, tuple[str, ...]]


Report = Overview | Listing
