"""Looks at the processes of this machine."""

from pathlib import Path


def descendants(pid: int) -> set[int]:
    """The children of a process, their children, and so on."""
    parents = dict(living())
    found: set[int] = set()
    generation = {pid}
    while generation:
        generation = {child for child, parent in parents.items() if parent in generation} - found
        found |= generation
    return found


def alive(pids: set[int]) -> set[int]:
    """Those of the processes that still run; a zombie does not."""
    return pids & dict(living()).keys()


def living() -> list[tuple[int, int]]:
    """Each process that runs, and its parent."""
    found = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            # The command stands in parentheses and may hold anything, so the fields are counted from its end.
            state, parent, *_ = status.read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if state != "Z":
            found.append((int(status.parent.name), int(parent)))
    return found
