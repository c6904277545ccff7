"""``python -m mtpc.lab.servers.watchdog COMMAND``: runs a server for as long as the process that started it lives.

Standard input is a pipe that the parent process holds open and writes nothing to.  It closes when the parent exits,
also when it is killed.  The watchdog, which leads a process group of its own, then ends the server and its children.
They get SIGTERM.  After `GRACE_SECONDS` what is left of them gets SIGKILL, also where the server itself ended before.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time

GRACE_SECONDS = 20.0  # from SIGTERM to SIGKILL


def end_with_parent(parent_ended: threading.Event) -> None:
    """Wait for the end of standard input, then end the process group, this process included."""
    sys.stdin.buffer.read()
    parent_ended.set()
    os.killpg(0, signal.SIGTERM)
    time.sleep(GRACE_SECONDS)
    os.killpg(0, signal.SIGKILL)


def main() -> None:
    """Run the command, and exit with its code."""
    signal.signal(signal.SIGTERM, lambda *_: None)  # outlive the server; unlike SIG_IGN a handler is not inherited
    parent_ended = threading.Event()
    server = subprocess.Popen(sys.argv[1:], stdin=subprocess.DEVNULL)
    ending = threading.Thread(target=end_with_parent, args=(parent_ended,), daemon=True)
    ending.start()
    code = server.wait()
    if parent_ended.is_set():
        ending.join()  # children of the server have until then
    os._exit(code if code >= 0 else 128 - code)  # without waiting for the thread's read


if __name__ == "__main__":
    main()
