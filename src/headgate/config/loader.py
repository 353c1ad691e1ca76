"""Joins flags, environment and file into Settings: flags win over environment, environment over file."""

import os
from collections.abc import Collection, Mapping
from pathlib import Path

import msgspec

from headgate.config import config_files, environment
from headgate.config.client_formats import unwrap_editor_settings
from headgate.config.config_files import BasePaths, VariableLookup, parse_jsonc
from headgate.config.server_entries import inherited_names, with_inherited_env
from headgate.config.servers import ParsedServers, read_servers
from headgate.config.setting_checks import (
    FILE_ALIASES,
    FILE_KEYS,
    GivenSetting,
    assemble_struct,
    resolve_settings,
    setting_leaves,
)
from headgate.config.setting_values import display_value, invalid_value_error, known_values
from headgate.config.settings import Flags, KnowledgeSettings, Settings, consistent_knowledge_settings
from headgate.config.variable_expansion import INPUT_PREFIX, Lookup, expand
from headgate.domain.errors import ConfigError

# The second spelling is VS Code's.
_SERVER_KEYS = ("mcpServers", "servers")
# The last one is for values that VS Code asks its user for.
TOP_KEYS = (*_SERVER_KEYS, "proxySettings", "$schema", "inputs")
# Where editors keep their configuration below the folder that they call the workspace.
_EDITOR_DIRECTORIES = (".vscode", ".cursor", ".gemini")
RESERVED_PROXY_KEYS = ("redactResults",)
_KINDS = {field.name: field.type for field in msgspec.structs.fields(Settings)}
# Flags that are called otherwise than their setting.
_FIELD_OF_FLAG = {"store": "knowledge.store"}
_EXAMPLE = '{"mcpServers": {"time": {"command": "uvx", "args": ["mcp-server-time"]}}}'


def load(
    flags: Flags,
    environ: Mapping[str, str],
    cwd: Path,
    *,
    secrets: Path = config_files.SECRETS_DIRECTORY,
    with_servers: bool = True,
) -> Settings:
    """The settings in force, with warnings; raises ConfigError for a configuration that cannot be used.

    Reads the configuration file, `.env` beside it and the files in `secrets`, and nothing else. Without
    servers, their entries are neither checked nor reported.
    """
    base_paths = config_files.base_paths_of(environ, cwd)
    warnings: list[str] = []
    given: list[GivenSetting] = []
    entries = ParsedServers()
    path = config_files.find_config_file(flags.config, environ, base_paths)
    if path is None and with_servers:
        create = f"create {cwd / config_files.CONFIG_FILE_NAMES[0]} with {_EXAMPLE}, for example"
        warnings.append(f"there is no configuration file, so there is no server: {create}")
    if path is not None:
        document = unwrap_editor_settings(parse_jsonc(config_files.read_config_file(path), str(path)))
        dotenv = config_files.read_dotenv(path.parent / ".env", warnings)
        lookup = VariableLookup(environ, dotenv, secrets, _editor_values(document, path, base_paths))
        # A path in the file means the same wherever the gateway was started.
        beside = BasePaths(base_paths.home, path.parent)
        sections = known_values(document, TOP_KEYS, str(path), warnings)
        given += _from_file(sections.get("proxySettings", {}), lookup, beside, path, warnings)
        if with_servers:
            entries = read_servers(_entries(sections, path, warnings), lookup, beside, warnings)
    warnings += [
        environment.overridden_warning(*one)
        for one in config_files.overridden_config_paths(flags.config, environ, base_paths)
    ]
    given += [GivenSetting(*one, base_paths) for one in environment.given_settings(environ)]
    given += _from_flags(flags, base_paths)
    environment.warn_unknown_variables(environ, warnings)
    given_settings = resolve_settings(given, warnings)
    ours, seeds = base_paths.home / ".headgate", base_paths.home / ".mcpproxy"
    # An installation of mcpproxy keeps its directory.
    data_dir = seeds if os.path.isdir(seeds) and not os.path.exists(ours) else ours
    values = {"data_dir": data_dir} | assemble_struct(given_settings, Settings)
    values["knowledge"] = consistent_knowledge_settings(
        values.get("knowledge", KnowledgeSettings()), given_settings, warnings
    )
    everywhere = inherited_names(values.get("inherit_env", ()), "proxySettings.inheritEnv", "", warnings)
    settings = Settings(
        servers=with_inherited_env(entries.servers, everywhere),
        left_out=entries.left_out,
        env_files=entries.env_files,
        config_path=path,
        warnings=tuple(warnings),
        **values,
    )
    return _consistent_settings(settings, given_settings)


def _editor_values(document: Mapping[str, object], path: Path, base_paths: BasePaths) -> dict[str, str]:
    """The variables that VS Code and Cursor fill in: directories, and defaults of their inputs."""
    folder = path.parent.parent if path.parent.name in _EDITOR_DIRECTORIES else path.parent
    values = {"workspaceFolder": str(folder), "workspaceFolderBasename": folder.name}
    values["userHome"] = str(base_paths.home)
    inputs = document.get("inputs")
    for one in inputs if isinstance(inputs, list) else ():
        if isinstance(one, dict) and isinstance(default := one.get("default"), str) and default:
            values[f"{INPUT_PREFIX}{one.get('id')}"] = default
    return values


def _from_file(
    raw: object, lookup: Lookup, base_paths: BasePaths, path: Path, warnings: list[str]
) -> list[GivenSetting]:
    where = f"proxySettings in {path}"
    if not isinstance(raw, dict):
        raise invalid_value_error(where, display_value(raw), "an object")
    given = []
    values = known_values(raw, FILE_KEYS, where, warnings, later=RESERVED_PROXY_KEYS, aliases=FILE_ALIASES)
    for key, value in values.items():
        field, place = FILE_KEYS[key], f"proxySettings.{key}"
        for leaf, keys, one in setting_leaves(value, _KINDS[field], field, place, str(path), warnings):
            expanded, problems = expand(one, lookup)
            problem = problems[0] if problems else None
            given.append(GivenSetting(leaf, expanded, f"{keys} in {path}", base_paths, problem))
    return given


def _entries(sections: Mapping[str, object], path: Path, warnings: list[str]) -> dict[str, object]:
    entries: dict[str, object] = {}
    for key in _SERVER_KEYS:
        group = sections.get(key, {})
        if not isinstance(group, dict):
            raise invalid_value_error(
                f"{key} in {path}", display_value(group), "an object with one entry per server"
            )
        for name in group.keys() & entries.keys():
            raise ConfigError(
                f"{path} defines the server {display_value(name)} twice, in mcpServers and in servers",
                hint="rename or remove one of the two",
            )
        entries |= group
    if not entries:
        warnings.append(f"{path} defines no server: write {_EXAMPLE} into it, for example")
    return entries


def _from_flags(flags: Flags, base_paths: BasePaths) -> list[GivenSetting]:
    given = msgspec.structs.asdict(flags)
    del given["config"]
    return [
        GivenSetting(_FIELD_OF_FLAG.get(name, name), value, f"--{name.replace('_', '-')}", base_paths)
        for name, value in given.items()
        if value is not None
    ]


def _consistent_settings(settings: Settings, given: Collection[str]) -> Settings:
    """Raises ConfigError for ambiguous names, and if calls in doubt would be forgotten before known ones."""
    enabled = sum(server.enabled for server in settings.servers)
    if not settings.prefix and enabled > 1:
        raise ConfigError(
            f"prefix is false, but {enabled} servers are enabled, so two tools could have the same name",
            hint="set prefix to true, or leave one server enabled",
        )
    if settings.doubt_window_seconds >= settings.ledger_window_seconds:
        return settings
    if "doubt_window_seconds" in given:
        raise ConfigError(
            "doubtWindow is shorter than ledgerWindow, so that calls in doubt would be forgotten first",
            hint="make doubtWindow at least as long as ledgerWindow",
        )
    return msgspec.structs.replace(settings, doubt_window_seconds=settings.ledger_window_seconds)
