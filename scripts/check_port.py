"""Says before `make run` starts the gateway that its port is taken, and which command uses another one."""

import errno
import socket
import sys


def main(host: str, port: int) -> str | None:
    """Return the sentence for stderr; None where the gateway can listen, or will say itself why it cannot."""
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        # As the gateway does: a connection that has just ended is not in the way.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                other = port + 1 if port < 65535 else 8000
                return f"Port {port} is taken: stop the program that uses it, or run `make run PORT={other}`."
    return None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2])))
