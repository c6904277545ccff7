"""``python -m mtpc.lab.servers.guard COMMAND``: runs a server for as long as whoever started it lives.

Its standard input is a pipe that the starter holds open and writes nothing into.  When it ends, and it ends also where
the starter was killed, the guard ends its process group, of which it is the first, and so the server and its children.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time

PATIENCE = 20.0  # seconds from being asked to end until being killed


def end_with_the_starter() -> None:
    """Wait for the end of standard input, then end the process group."""
    sys.stdin.buffer.read()
    os.killpg(0, signal.SIGTERM)
    time.sleep(PATIENCE)
    os.killpg(0, signal.SIGKILL)


def main() -> None:
    """Run the command; end as it ended."""
    signal.signal(signal.SIGTERM, lambda *_: None)  # the server ends first; a handler is not inherited, as SIG_IGN is
    server = subprocess.Popen(sys.argv[1:], stdin=subprocess.DEVNULL)
    threading.Thread(target=end_with_the_starter, daemon=True).start()
    code = server.wait()
    os._exit(code if code >= 0 else 128 - code)  # without waiting for the thread's read


if __name__ == "__main__":
    main()
