"""What the kernel says about a process: memory, CPU, open files, descendants."""

import os
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")


def alive(pid: int) -> bool:
    """Whether the process runs; a zombie does not."""
    return _state(pid) not in ("", "Z", "X")


def command(pid: int) -> bytes:
    """The program and its arguments; nothing of a process that has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def turns(pid: int) -> tuple[float, float]:
    """For how many seconds its main thread has run, and could have run but had no CPU, since it began."""
    try:
        ran, waited, _ = Path(f"/proc/{pid}/schedstat").read_text().split()
    except OSError:
        return 0.0, 0.0
    return int(ran) / 1e9, int(waited) / 1e9


def still_alive(pids: set[int]) -> set[int]:
    """Those of the processes that still run; a zombie does not."""
    return {pid for pid in pids if alive(pid)}


def zombie(pid: int) -> bool:
    """Whether the process is a zombie."""
    return _state(pid) == "Z"


def resident_bytes(pid: int) -> int:
    """Resident memory now."""
    return _status_kib(pid, "VmRSS") * 1024


def peak_resident_bytes(pid: int) -> int:
    """The most resident memory since the last `reset_peak_rss`."""
    return _status_kib(pid, "VmHWM") * 1024


def reset_peak_rss(pid: int) -> None:
    """Start the peak anew from what is resident now."""
    Path(f"/proc/{pid}/clear_refs").write_text("5")


def cpu_seconds(pid: int) -> float:
    """User and system time of the process itself, without its children."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def open_files(pid: int) -> int:
    """How many file descriptors are open."""
    return len(os.listdir(f"/proc/{pid}/fd"))


def threads(pid: int) -> int:
    """How many threads there are."""
    return len(os.listdir(f"/proc/{pid}/task"))


def descendants(pid: int) -> set[int]:
    """Every living process below this one."""
    found: set[int] = set()
    waiting = [pid]
    while waiting:
        for child in _children(waiting.pop()):
            if child not in found and alive(child):
                found.add(child)
                waiting.append(child)
    return found


def _children(pid: int) -> list[int]:
    children: list[int] = []
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):
            children += map(int, Path(f"/proc/{pid}/task/{thread}/children").read_text().split())
    except OSError:
        # The process or one of its threads ended while it was looked at.
        pass
    return children


def _state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""


def _status_kib(pid: int, key: str) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(key + ":"):
            return int(line.split()[1])
    return 0
