"""What the SDK imports late, which would block the loop inside a session that we opened, is imported here."""

import importlib

for late in ("httpcore2", "jsonschema"):
    importlib.import_module(late)
