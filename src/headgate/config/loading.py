"""Joins flags, environment and file into Settings: flags win over environment, environment over file."""

import os
from collections.abc import Mapping
from pathlib import Path

import msgspec

from headgate.config import environment, files
from headgate.config.document import parse
from headgate.config.expansion import INPUT, Lookup, expand
from headgate.config.files import Places, Variables
from headgate.config.inherit_env import inherited_names, inheriting
from headgate.config.keys import known_values
from headgate.config.knowledge import KnowledgeSettings, fitting
from headgate.config.nested import assembled, leaves
from headgate.config.options import FILE_ALIASES, FILE_KEYS, Given, settle
from headgate.config.pasted import unwrapped
from headgate.config.servers import ReadServers, read_servers
from headgate.config.settings import Flags, Settings
from headgate.config.values import refusal, shown
from headgate.domain.errors import ConfigError

# The second spelling is VS Code's.
_SERVER_KEYS = ("mcpServers", "servers")
# The last one is what VS Code asks its user for.
TOP_KEYS = (*_SERVER_KEYS, "proxySettings", "$schema", "inputs")
# Where editors keep their configuration below the folder that they call the workspace.
_EDITOR_DIRECTORIES = (".vscode", ".cursor", ".gemini")
LATER_PROXY_KEYS = ("redactResults",)
_KINDS = {field.name: field.type for field in msgspec.structs.fields(Settings)}
_EXAMPLE = '{"mcpServers": {"time": {"command": "uvx", "args": ["mcp-server-time"]}}}'


def load(
    flags: Flags,
    environ: Mapping[str, str],
    cwd: Path,
    *,
    secrets: Path = files.SECRETS,
    with_servers: bool = True,
) -> Settings:
    """The settings in force, with warnings for what is odd; raises ConfigError for what cannot be used.

    Reads the configuration file, `.env` beside it and the files in `secrets`, and nothing else. Whoever wants
    no servers hears nothing of them.
    """
    here = files.places(environ, cwd)
    warnings: list[str] = []
    given: list[Given] = []
    entries = ReadServers()
    path = files.find(flags.config, environ, here)
    if path is None and with_servers:
        create = f"create {cwd / files.NAMES[0]} with {_EXAMPLE}, for example"
        warnings.append(f"there is no configuration file, so there is no server: {create}")
    if path is not None:
        document = unwrapped(parse(files.read(path), str(path)))
        dotenv = files.read_dotenv(path.parent / ".env", warnings)
        lookup = Variables(environ, dotenv, secrets, _editor_values(document, path, here))
        # A path in the file means the same wherever the gateway was started.
        beside = Places(here.home, path.parent)
        sections = known_values(document, TOP_KEYS, str(path), warnings)
        given += _from_file(sections.get("proxySettings", {}), lookup, beside, path, warnings)
        if with_servers:
            entries = read_servers(_entries(sections, path, warnings), lookup, beside, warnings)
    warnings += [environment.overridden(*one) for one in files.overridden_names(flags.config, environ, here)]
    given += [Given(*one, here) for one in environment.given(environ)]
    given += _from_flags(flags, here)
    environment.check_the_rest(environ, warnings)
    told = settle(given, warnings)
    values = {"data_dir": _default_data_dir(here)} | assembled(told, Settings)
    values["knowledge"] = _knowledge(values.get("knowledge", KnowledgeSettings()), told, warnings)
    everywhere = inherited_names(values.get("inherit_env", ()), "proxySettings.inheritEnv", "", warnings)
    settings = Settings(
        servers=inheriting(entries.servers, everywhere),
        left_out=entries.left_out,
        env_files=entries.env_files,
        config_path=path,
        warnings=tuple(warnings),
        **values,
    )
    _refuse_ambiguous_names(settings)
    return _with_fitting_doubt(settings, told="doubt_window_seconds" in told)


def _editor_values(document: Mapping[str, object], path: Path, here: Places) -> dict[str, str]:
    """What VS Code and Cursor fill in: directories, and the defaults of what they ask for."""
    folder = path.parent.parent if path.parent.name in _EDITOR_DIRECTORIES else path.parent
    values = {
        "workspaceFolder": str(folder),
        "workspaceFolderBasename": folder.name,
        "userHome": str(here.home),
    }
    inputs = document.get("inputs")
    for one in inputs if isinstance(inputs, list) else ():
        if isinstance(one, dict) and isinstance(default := one.get("default"), str) and default:
            values[f"{INPUT}{one.get('id')}"] = default
    return values


def _from_file(raw: object, lookup: Lookup, here: Places, path: Path, warnings: list[str]) -> list[Given]:
    where = f"proxySettings in {path}"
    if not isinstance(raw, dict):
        raise refusal(where, shown(raw), "an object")
    given = []
    values = known_values(raw, FILE_KEYS, where, warnings, later=LATER_PROXY_KEYS, aliases=FILE_ALIASES)
    for key, value in values.items():
        field = FILE_KEYS[key]
        kind = _KINDS[field]
        for leaf, keys, one in leaves(value, kind, field, f"proxySettings.{key}", str(path), warnings):
            expanded, problems = expand(one, lookup)
            problem = problems[0] if problems else None
            given.append(Given(leaf, expanded, f"{keys} in {path}", here, problem))
    return given


def _entries(sections: Mapping[str, object], path: Path, warnings: list[str]) -> dict[str, object]:
    entries: dict[str, object] = {}
    for key in _SERVER_KEYS:
        group = sections.get(key, {})
        if not isinstance(group, dict):
            raise refusal(f"{key} in {path}", shown(group), "an object with one entry per server")
        for name in group.keys() & entries.keys():
            raise ConfigError(
                f"{path} defines the server {shown(name)} twice, in mcpServers and in servers",
                hint="rename or remove one of the two",
            )
        entries |= group
    if not entries:
        warnings.append(f"{path} defines no server: write {_EXAMPLE} into it, for example")
    return entries


def _from_flags(flags: Flags, here: Places) -> list[Given]:
    told = {
        "transport": flags.transport,
        "host": flags.host,
        "port": flags.port,
        "data_dir": flags.data_dir,
        "listing": flags.listing,
        "knowledge.store": flags.store,
    }
    return [
        Given(field, value, f"--{field.rpartition('.')[2].replace('_', '-')}", here)
        for field, value in told.items()
        if value is not None
    ]


def _default_data_dir(here: Places) -> Path:
    ours, seeds = here.home / ".headgate", here.home / ".mcpproxy"
    # Whoever comes from mcpproxy keeps the directory that is there.
    return seeds if os.path.isdir(seeds) and not os.path.exists(ours) else ours


def _with_fitting_doubt(settings: Settings, *, told: bool) -> Settings:
    """What is in doubt is never forgotten before what is known; raises ConfigError where it is told to be."""
    if settings.doubt_window_seconds >= settings.ledger_window_seconds:
        return settings
    if told:
        raise ConfigError(
            "doubtWindow is shorter than ledgerWindow, so that calls in doubt would be forgotten first",
            hint="make doubtWindow at least as long as ledgerWindow",
        )
    return msgspec.structs.replace(settings, doubt_window_seconds=settings.ledger_window_seconds)


def _knowledge(
    settings: KnowledgeSettings, told: Mapping[str, object], warnings: list[str]
) -> KnowledgeSettings:
    """The settings of the documents, fitting each other; raises ConfigError."""
    names = [path.partition(".")[2] for path in told if path.startswith("knowledge.")]
    return fitting(settings, names, warnings)


def _refuse_ambiguous_names(settings: Settings) -> None:
    enabled = [server.name for server in settings.servers if server.enabled]
    if not settings.prefix and len(enabled) > 1:
        raise ConfigError(
            f"prefix is false, but {len(enabled)} servers are enabled, so two tools could have the same name",
            hint="set prefix to true, or leave one server enabled",
        )
