"""What /proc tells about a process: CPU spent by the process itself and its threads, and resident memory."""

import os
from pathlib import Path
from typing import Final

_TICKS_PER_SECOND: Final = os.sysconf("SC_CLK_TCK")


def cpu_seconds(pid: int) -> float:
    """User and system time of the process and all its threads, without its children."""
    # The command name may hold spaces and parentheses; the fields after the last one are plain.
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS_PER_SECOND


def resident_bytes(pid: int) -> int:
    """Resident set size of the process."""
    return _status_bytes(pid, "VmRSS:")


def peak_resident_bytes(pid: int) -> int:
    """The largest resident set size that the process has had."""
    return _status_bytes(pid, "VmHWM:")


def _status_bytes(pid: int, field: str) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(field):
            return int(line.split()[1]) * 1024
    raise ProcessLookupError(pid)
