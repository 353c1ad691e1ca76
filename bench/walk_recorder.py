"""The `headgate` command with a recorder of the functions that it calls, switched by section `walks`.

It imports nothing of Headgate but its command, so that it also runs against an older checkout.
"""

import os
import sys
import threading
from multiprocessing.connection import Client, Connection
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Final

import headgate
from headgate.cli import main

ADDRESS: Final = "HEADGATE_WALK_RECORDER"
# Each is part of the function around it.
_COMPREHENSIONS: Final = ("<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>", "<module>")

# The module and the qualified name of a function.
Function = tuple[str, str]


class Recorder:
    """Remembers every function that any thread enters while it records, in the order of the first call."""

    def __init__(self, package: Path) -> None:
        self._package = package
        self._prefix = f"{package}{os.sep}"
        self._recording = False
        self._entered: dict[CodeType, None] = {}

    def profile(self, frame: FrameType, event: str, _argument: Any) -> None:
        """For `sys.setprofile`."""
        if self._recording and event == "call":
            self._entered[frame.f_code] = None

    def start(self) -> None:
        """Record from now on."""
        self._entered = {}
        self._recording = True

    def stop(self) -> list[Function]:
        """The functions of Headgate that were entered since the start."""
        self._recording = False
        return [
            (self._module(code), code.co_qualname)
            for code in self._entered
            if code.co_filename.startswith(self._prefix) and code.co_name not in _COMPREHENSIONS
        ]

    def _module(self, code: CodeType) -> str:
        path = Path(code.co_filename).relative_to(self._package.parent).with_suffix("")
        return ".".join(path.parts).removesuffix(".__init__")


def _obey(commands: "Connection[list[Function], str]", recorder: Recorder) -> None:
    while commands.recv() == "start":
        recorder.start()
        commands.send([])
        commands.recv()
        commands.send(recorder.stop())


def run() -> None:
    """Run the command of the command line, recorded."""
    recorder = Recorder(Path(headgate.__file__).parent)
    commands: Connection[list[Function], str] = Client(os.environ.pop(ADDRESS))
    # Before profiling is on for new threads, so that this one is never recorded.
    threading.Thread(target=_obey, args=(commands, recorder), daemon=True).start()
    threading.setprofile(recorder.profile)
    sys.setprofile(recorder.profile)
    main()


if __name__ == "__main__":
    run()
