"""Section `path`: what one tool call costs on its way through the gate, beside peers and a bare forwarder."""

from bench.path.section import run

__all__ = ["run"]
