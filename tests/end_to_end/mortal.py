"""Ways for a process to die at a chosen call of a chosen function, by SIGKILL: nothing gets to clean up."""

from __future__ import annotations

import importlib
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def arrange(where: str, when: str, count: int, path: str = "") -> None:
    """Let this process die `when` ("before" or "after") the `count`-th call of `where`, a dotted name.

    Calls are counted only if the text `path` stands in the first argument that is a path (empty: all calls).
    """
    owner, name = _owner(where)
    original: Callable[..., Any] = getattr(owner, name)
    seen = 0

    def mortal(*arguments: Any, **named: Any) -> Any:
        nonlocal seen
        seen += _is_meant(path, arguments)
        if seen == count and when == "before":
            die()
        result = original(*arguments, **named)
        if seen == count:
            die()
        return result

    setattr(owner, name, mortal)


def _owner(where: str) -> tuple[Any, str]:
    parts = where.split(".")
    for length in range(len(parts) - 1, 0, -1):
        try:
            owner: Any = importlib.import_module(".".join(parts[:length]))
        except ModuleNotFoundError:
            continue
        for attribute in parts[length:-1]:
            owner = getattr(owner, attribute)
        return owner, parts[-1]
    raise LookupError(where)


def _is_meant(path: str, arguments: tuple[Any, ...]) -> bool:
    if not path:
        return True
    return any(path in str(argument) for argument in arguments if isinstance(argument, (str, Path)))
