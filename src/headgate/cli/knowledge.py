"""Hosts the commands of the document server: configuration, event loop, errors and output."""

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from headgate.cli.command_runner import (
    LazyGroup,
    exit_on_error,
    load_settings,
    print_result,
    run,
    run_until_interrupted,
)

if TYPE_CHECKING:
    from headgate.config.settings import Flags, Settings
    from headgate.knowledge.server import KnowledgeOptions, StoreOptions

# A person at a terminal would otherwise see nothing at all.
_WAITING = (
    "waiting for an MCP client on standard input; Ctrl-C ends it. "
    "For clients that come over HTTP: headgate knowledge serve --transport http"
)


class KnowledgeHost:
    """The CommandHost of the document server."""

    run = staticmethod(run)
    run_until_interrupted = staticmethod(run_until_interrupted)
    exit_on_error = staticmethod(exit_on_error)
    print_result = staticmethod(print_result)

    def load_options(self, store_options: "StoreOptions") -> "KnowledgeOptions":
        """The options that configuration and command line ask for; raises ConfigError."""
        from headgate.app.config_reload import log_config_warnings
        from headgate.app.knowledge import knowledge_options

        settings = load_settings(_flags(store_options), with_servers=False)
        log_config_warnings(settings)
        return knowledge_options(settings)

    def serve(
        self, store_options: "StoreOptions", *, transport: str | None, host: str | None, port: int | None
    ) -> None:
        """Run a gateway that serves only the documents; raises ConfigError."""
        from headgate.app.config_reload import log_config_warnings
        from headgate.app.gateway_server import serve
        from headgate.app.knowledge import knowledge_only_settings
        from headgate.app.log_setup import set_up_logging
        from headgate.config.loader import load

        flags = _flags(store_options, transport=transport, host=host, port=port)

        def read() -> "Settings":
            return load(flags, os.environ, Path.cwd(), with_servers=False)

        settings = read()
        set_up_logging(settings.log_level, settings.log_format, settings.log_file)
        log_config_warnings(settings)
        if settings.transport == "stdio" and sys.stdin.isatty():
            click.echo(f"headgate: {_WAITING}", err=True)
        sys.exit(run(serve(knowledge_only_settings(settings), lambda: knowledge_only_settings(read()))))


def _flags(store_options: "StoreOptions", **more: Any) -> "Flags":
    from headgate.config.settings import Flags

    return Flags(
        config=store_options.config, data_dir=store_options.data_dir, store=store_options.store, **more
    )


def _load_commands() -> click.Group:
    from headgate.knowledge.server import load_command_group

    return load_command_group()


knowledge = LazyGroup(
    "knowledge",
    _load_commands,
    help="Ingest the team's own documents, and search them.",
    context_settings={"obj": KnowledgeHost()},
)
