"""A process that has imported the command line and forks one child for every command asked of it.

A fork of a process without threads behaves like a fresh interpreter, and saves the seconds of importing. Requests
and answers are lines of JSON. A child may be changed before it runs (`changes.py`), so that it dies somewhere.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import changes

from finevolve_pipeline.cli import main, replay_child


def start(request: dict[str, Any]) -> int:
    """Fork a child for a request; its process id, which is also its process group's."""
    pid = os.fork()
    if pid:
        return pid
    os.setsid()
    os.chdir(request["folder"])
    os.environ.update(request["environment"])
    for number, name in ((1, "out"), (2, "err")):
        os.dup2(os.open(request[name], os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    code = 70
    try:
        for name, arguments in request["changes"]:
            getattr(changes, name)(*arguments)
        if request["replay"]:
            replay_child.main(*request["arguments"], str(os.getppid()))
            code = 0
        else:
            main(request["arguments"])
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else 0
    except BaseException:  # noqa: BLE001 - the child must end here whatever happens, never run the parent's loop
        sys.excepthook(*sys.exc_info())
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def answer(request: dict[str, Any]) -> dict[str, int]:
    """Start a child, or wait for one that was started."""
    if request["wait"]:
        _, status = os.waitpid(request["wait"], 0)
        return {"code": os.waitstatus_to_exitcode(status)}
    return {"pid": start(request)}


if __name__ == "__main__":
    for line in sys.stdin:
        sys.stdout.write(json.dumps(answer(json.loads(line))) + "\n")
        sys.stdout.flush()
