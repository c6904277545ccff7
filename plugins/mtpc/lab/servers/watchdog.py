"""``python -m mtpc.lab.servers.watchdog COMMAND``: runs a server for as long as the process that started it lives.

Standard input is a pipe that the parent process holds open and writes nothing to.  It closes when the parent exits,
also when it is killed.  The watchdog, which leads a process group of its own, then ends the server and its children.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time

GRACE_SECONDS = 20.0  # from SIGTERM to SIGKILL


def end_with_parent() -> None:
    """Wait for the end of standard input, then end the process group."""
    sys.stdin.buffer.read()
    os.killpg(0, signal.SIGTERM)
    time.sleep(GRACE_SECONDS)
    os.killpg(0, signal.SIGKILL)


def main() -> None:
    """Run the command, and exit with its code."""
    signal.signal(signal.SIGTERM, lambda *_: None)  # outlive the server; unlike SIG_IGN a handler is not inherited
    server = subprocess.Popen(sys.argv[1:], stdin=subprocess.DEVNULL)
    threading.Thread(target=end_with_parent, daemon=True).start()
    code = server.wait()
    os._exit(code if code >= 0 else 128 - code)  # without waiting for the thread's read


if __name__ == "__main__":
    main()
