"""Section `path`: the cost of one tool call through the gateway, beside peers and a bare forwarder."""

from bench.path.section import run

__all__ = ["run"]
