"""Says the schema of a tool in the dialect of a client that does not know all of JSON Schema."""

from headgate.catalog.dialects.adapting import Adapted, adapt
from headgate.catalog.dialects.agreement import agrees
from headgate.catalog.dialects.dialect import Dialect, dialect_of
from headgate.catalog.dialects.restoring import restored

__all__ = ["Adapted", "Dialect", "adapt", "agrees", "dialect_of", "restored"]
