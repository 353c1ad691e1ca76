"""What the person at the command line asked for."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Options:
    """The choices that every section honours."""

    quick: bool
    # Letters of the candidates to measure; `a` is the upstream alone.
    candidates: str
    # Whether section `walks` names the functions, too.
    list_functions: bool = False
