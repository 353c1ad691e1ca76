"""Makes tools small: names, types and a few telling words, with everything else left to expandSchema."""

from headgate.catalog.slim.forms import Forms, forms, slim, stub
from headgate.catalog.slim.partition import partition_schema, partitioned
from headgate.catalog.slim.shared import NOTHING_SHARED, Shared, shared

__all__ = [
    "NOTHING_SHARED",
    "Forms",
    "Shared",
    "forms",
    "partition_schema",
    "partitioned",
    "shared",
    "slim",
    "stub",
]
