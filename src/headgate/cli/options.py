"""Options that several commands take."""

from pathlib import Path

import click

CONFIG = click.option(
    "--config", type=click.Path(path_type=Path), help="The configuration file (mcpServers JSON)."
)
DATA_DIR = click.option(
    "--data-dir", type=click.Path(path_type=Path), help="Where the gateway keeps its data."
)
TRANSPORT = click.option("--transport", help="How clients come in: stdio, http or sse.")
HOST = click.option("--host", help="The address to listen on; only loopback without authentication.")
PORT = click.option("--port", type=int, help="The port to listen on; 0 takes a free one.")
JSON = click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
JSON_NOT_TABLES = click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON document instead of tables."
)
REFRESH = click.option(
    "--refresh", is_flag=True, help="Ask every server for its tools first, not only unknown ones."
)
VERBOSE = click.option("-v", "--verbose", is_flag=True, help="Show the traceback of an error.")
