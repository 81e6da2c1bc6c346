"""Ends the processes of a cluster when the cluster itself is gone, however it went.

    python deploy/guard.py    reads process groups, one number a line, and kills them all when standard input ends

The cluster holds the other end of that pipe: the kernel closes it with the cluster's last breath.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys


def main() -> None:
    """Read until the end, then kill."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    groups = [int(line) for line in sys.stdin]
    for group in reversed(groups):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(group, signal.SIGKILL)


if __name__ == "__main__":
    main()
