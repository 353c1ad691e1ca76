#!/bin/sh
# Runs the command that it is given, beside a process that neither the end of its input nor a polite signal ends.
trap '' TERM HUP INT

# A minute, so that a test that fails leaves nothing behind for good.
stay() {
    for _ in 1 2 3 4 5 6; do sleep 10; done
}

stay <&- >&- 2>&- &
"$@"
stay
