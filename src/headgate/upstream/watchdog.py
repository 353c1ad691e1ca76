"""A tiny process that outlives the gateway by a moment, to end what a `kill -9` would leave behind."""

import itertools
import os
import secrets
import signal
import subprocess
import threading

from headgate.upstream.descendants import DescendantSweeper

# The mark of all children comes in as "=MARK". Process groups come in as "+ID" and leave as "-ID". Before a
# child is spawned its input pipe comes in as "?INODE", and leaves as "!INODE" when its group is known. The
# end of the input is the end of the gateway.
_SCRIPT = r"""
trap '' INT TERM HUP
groups=' ' pipes=' ' mark= found=
without() {
  kept=' '
  for one in $1; do [ "$one" = "$2" ] || kept="$kept$one "; done
}
while read -r line; do
  case $line in
    =*) mark=${line#=} ;;
    +*) groups="$groups${line#+} " ;;
    -*) without "$groups" "${line#-}"; groups=$kept ;;
    \?*) pipes="${pipes}pipe:[${line#\?}] " ;;
    !*) without "$pipes" "pipe:[${line#!}]"; pipes=$kept ;;
  esac
done
[ "$groups$pipes" = '  ' ] && exit
# What left its group is found below its parent, as long as that lives, and by its environment.
below() {
  for file in /proc/"$1"/task/*/children; do
    children=
    [ -r "$file" ] && read -r children <"$file"
    for child in $children; do found="$found$child "; below "$child"; done
  done
}
end_marked() {
  for round in 1 2 3; do
    marked=$(grep -lF -e "$mark" /proc/[0-9]*/environ 2>/dev/null)
    [ -z "$marked" ] && return
    for file in $marked; do child=${file#/proc/}; kill -KILL "${child%%/*}" 2>/dev/null; done
  done
}
for group in $groups; do below "$group"; done
for group in $groups; do kill -KILL -"$group" 2>/dev/null; done
for child in $found; do kill -KILL "$child" 2>/dev/null; done
[ -n "$mark" ] && end_marked
[ "$pipes" = ' ' ] && exit
# The gateway ended while it was spawning: find the child by its input, once it has one.
sleep 1
for input in /proc/[0-9]*/fd/0; do
  case $pipes in *" $(readlink "$input" 2>/dev/null) "*)
    child=${input#/proc/} child=${child%%/*}
    kill -KILL -"$child" "$child" 2>/dev/null ;;
  esac
done
[ -n "$mark" ] && end_marked
"""


class Watchdog:
    """Knows every process group of ours; started with the first one."""

    def __init__(self) -> None:
        # In the environment of every child of this gateway; it outlasts the change to another process group.
        self._mark = secrets.token_hex(8)
        self._marks = itertools.count(1)
        # Ends what a child leaves behind while the gateway lives.
        self.sweeper = DescendantSweeper()
        self._process: subprocess.Popen[bytes] | None = None
        self._groups: set[int] = set()
        # Children are spawned in threads.
        self._lock = threading.Lock()

    def new_mark(self) -> str:
        """A mark for one child, which nobody can guess and which begins like those of all the others."""
        return f"{self._mark}.{next(self._marks)};"

    def expect(self, pipe: int) -> None:
        """A child is about to be spawned whose input is the pipe of this inode."""
        with self._lock:
            self._say(b"?%d\n" % pipe)

    def expect_no_more(self, pipe: int) -> None:
        """The child is known by its group, or there is none."""
        with self._lock:
            self._say(b"!%d\n" % pipe)

    def watch(self, group: int) -> None:
        """End this group when the gateway ends without a word."""
        with self._lock:
            self._groups.add(group)
            self._say(b"+%d\n" % group)

    def forget(self, group: int) -> None:
        """The group has ended."""
        with self._lock:
            self._groups.discard(group)
            self._say(b"-%d\n" % group)

    def _say(self, line: bytes) -> None:
        try:
            self._pipe(line)
        except OSError:
            # Somebody ended the watchdog: start another one, which learns everything anew.
            self._process = None
            self._pipe(b"".join(b"+%d\n" % group for group in self._groups))

    def _pipe(self, line: bytes) -> None:
        if self._process is None:
            self._process = subprocess.Popen(
                ["/bin/sh", "-c", _SCRIPT],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env={"PATH": os.defpath},
                cwd="/",
                start_new_session=True,
            )
            line = b"=%s\n" % self._mark.encode() + line
        assert self._process.stdin is not None
        os.write(self._process.stdin.fileno(), line)

    def close(self) -> None:
        """The gateway ends in good order: so does the watchdog."""
        if self._process is None:
            return
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            # It has only to read the end of its input.
            self._process.wait(timeout=2.0)
        except subprocess.TimeoutExpired:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()


def end_group(group: int, how: signal.Signals) -> None:
    """Signal a whole process group; it may have ended already."""
    try:
        os.killpg(group, how)
    except (ProcessLookupError, PermissionError):
        return
