"""The JSON Schema of the configuration file, for editors."""

import json
from typing import Any, get_args, get_origin

import msgspec

from headgate.config.server_entries import SERVER_KEY_ALIASES, ServerEntry, fields_of
from headgate.config.setting_checks import FILE_KEYS
from headgate.config.setting_values import description, is_struct, plain_type, type_if_set
from headgate.config.settings import Settings

_DIALECT = "https://json-schema.org/draft/2020-12/schema"
# A number, a word or a boolean may also come out of a variable.
_VARIABLE = {"type": "string", "pattern": r"\$\{"}


def config_schema() -> dict[str, Any]:
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


def _proxy_settings() -> dict[str, Any]:
    fields = {field.name: field for field in msgspec.structs.fields(Settings)}
    properties = {
        key: _property(fields[field].type, fields[field].default) for key, field in FILE_KEYS.items()
    }
    properties["transport"]["anyOf"][0]["enum"].append("streamable-http")
    return properties


def config_schema_text() -> str:
    return json.dumps(config_schema(), indent=2, ensure_ascii=False) + "\n"


def _servers(description: str) -> dict[str, Any]:
    return {
        "description": description,
        "type": "object",
        "propertyNames": {"minLength": 1, "maxLength": 128},
        "additionalProperties": {"$ref": "#/$defs/server"},
    }


def _server() -> dict[str, Any]:
    properties = _properties(ServerEntry)
    whole = properties["clientCert"]
    about = whole.pop("description")
    properties["clientCert"] = {"description": about, "anyOf": [{"type": "string", "minLength": 1}, whole]}
    properties |= {alias: properties[key] for alias, key in SERVER_KEY_ALIASES.items()}
    kinds = [{"required": [key]} for key in ("command", "url", *SERVER_KEY_ALIASES, "builtin")]
    return {"type": "object", "properties": properties, "oneOf": kinds}


def _properties(kind: type[msgspec.Struct]) -> dict[str, Any]:
    return {key: _property(field.type, field.default) for key, field in fields_of(kind).items()}


def _property(annotation: object, default: object) -> dict[str, Any]:
    kind = _with_own_keys(plain_type(annotation)) or msgspec.json.schema(
        # Null means "not set", which needs no offer.
        type_if_set(annotation),
        # Of a path.
        schema_hook=lambda _: {"type": "string"},
    )
    kind.pop("description", None)
    about: dict[str, Any] = {"description": description(annotation)}
    if default not in (msgspec.NODEFAULT, None, "", ()) and not is_struct(type(default)):
        about["default"] = default
    if kind.get("type") in ("string", "array", "object"):
        return {**about, **kind}
    return {**about, "anyOf": [kind, _VARIABLE]}


def _with_own_keys(kind: object) -> dict[str, Any]:
    """The schema of an object with keys of its own, or of a map of such objects; empty for all else."""
    if is_struct(kind):
        required = [key for key, field in fields_of(kind).items() if field.required]
        made = {"type": "object", "properties": _properties(kind)}
        return {**made, "required": required} if required else made
    if get_origin(kind) is dict and is_struct(get_args(kind)[1]):
        return {"type": "object", "additionalProperties": _with_own_keys(get_args(kind)[1])}
    return {}
