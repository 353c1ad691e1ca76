"""FastMCP's proxy in front of one upstream; run by the peer's own Python, in each of its documented ways."""

import argparse
import importlib
import logging
from contextlib import AsyncExitStack
from typing import Any


async def main() -> None:
    """Serve until terminated."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--way", choices=("fresh", "connected", "stateful"), required=True)
    parser.add_argument("--stateless", action="store_true")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--url", default="")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    logging.disable(logging.WARNING)
    async with AsyncExitStack() as stack:
        proxy = await _proxy(options, stack)
        await proxy.run_async(
            transport="http",
            host="127.0.0.1",
            port=options.port,
            show_banner=False,
            stateless_http=options.stateless,
            json_response=options.json,
            uvicorn_config={"log_level": "error", "access_log": False},
        )


async def _proxy(options: argparse.Namespace, stack: AsyncExitStack) -> Any:
    # Imported by name: the package exists only in the peer's environment.
    client = importlib.import_module("fastmcp.client")
    transports = importlib.import_module("fastmcp.client.transports")
    create_proxy = importlib.import_module("fastmcp.server").create_proxy
    providers = importlib.import_module("fastmcp.server.providers.proxy")
    if options.url:
        target = transports.StreamableHttpTransport(options.url)
    else:
        target = transports.StdioTransport(options.command[0], options.command[1:])
    if options.way == "connected":
        return create_proxy(await stack.enter_async_context(client.Client(target)))
    if options.way == "stateful":
        stateful = providers.StatefulProxyClient(target)
        return providers.FastMCPProxy(client_factory=stateful.new_stateful, name="proxy")
    return create_proxy(target)


if __name__ == "__main__":
    importlib.import_module("uvloop").run(main())
