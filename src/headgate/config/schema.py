"""The JSON schema of the configuration file, for editors."""

import json
from pathlib import Path
from typing import Any

import msgspec

from headgate.config.entries import ALIASES, ServerEntry
from headgate.config.keys import camel
from headgate.config.options import FILE_FIELDS
from headgate.config.settings import Settings

_DIALECT = "https://json-schema.org/draft/2020-12/schema"
# A number, a word or a boolean may also come out of a variable.
_VARIABLE = {"type": "string", "pattern": r"\$\{"}
_MORE_FRONT_WORDS = ("streamable-http",)


def schema() -> dict[str, Any]:
    """The schema, draft 2020-12, made of the same types that read the file."""
    return {
        "$schema": _DIALECT,
        "title": "Headgate configuration",
        "type": "object",
        "properties": {
            "$schema": {"type": "string"},
            "mcpServers": _servers("The servers behind the gateway, by name."),
            "servers": _servers("The same as mcpServers, as VS Code writes it."),
            "proxySettings": {
                "description": "The settings of the gateway itself.",
                "type": "object",
                "properties": _proxy_settings(),
            },
        },
        "$defs": {"server": _server()},
    }


def text() -> str:
    """The schema as it is published."""
    return json.dumps(schema(), indent=2, ensure_ascii=False) + "\n"


def _servers(description: str) -> dict[str, Any]:
    return {
        "description": description,
        "type": "object",
        "propertyNames": {"minLength": 1, "maxLength": 128},
        "additionalProperties": {"$ref": "#/$defs/server"},
    }


def _server() -> dict[str, Any]:
    properties = {
        field.encode_name: _property(field.type, field.default)
        for field in msgspec.structs.fields(ServerEntry)
    }
    properties |= {alias: properties[key] for alias, key in ALIASES.items()}
    kinds = [{"required": [key]} for key in ("command", "url", *ALIASES, "builtin")]
    return {"type": "object", "properties": properties, "oneOf": kinds}


def _proxy_settings() -> dict[str, Any]:
    fields = {field.name: field for field in msgspec.structs.fields(Settings)}
    properties = {camel(name): _property(fields[name].type, fields[name].default) for name in FILE_FIELDS}
    properties["transport"]["anyOf"][0]["enum"].extend(_MORE_FRONT_WORDS)
    return properties


def _property(annotation: object, default: object) -> dict[str, Any]:
    made = msgspec.json.schema(annotation, schema_hook=_path_schema)
    # Null means "not set", which needs no offer.
    kind = next((part for part in made.get("anyOf", ()) if part != {"type": "null"}), made)
    description = {"description": kind.pop("description", made.pop("description", ""))}
    if default not in (msgspec.NODEFAULT, None, "", ()):
        description["default"] = default
    if kind.get("type") in ("string", "array", "object"):
        return {**description, **kind}
    return {**description, "anyOf": [kind, _VARIABLE]}


def _path_schema(kind: type) -> dict[str, Any]:
    assert kind is Path
    return {"type": "string"}
