"""What it costs that a call is carried out once: of plain calls nothing, of keyed ones two records each."""

from bench.delivery.section import run

__all__ = ["run"]
