"""What a test changes in a process before its command runs: a place to die, or a smaller demo."""

from __future__ import annotations

import datetime as dt
import functools
import importlib
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any


def die(where: str, when: str, count: int, path: str = "") -> None:
    """Let this process die `when` ("before" or "after") the `count`-th call of `where`, a dotted name.

    It dies by SIGKILL, so nothing gets to clean up. Calls are counted only if the text `path` stands in one of
    the arguments that are paths (empty: all calls).
    """
    owner, name = _owner(where)
    original: Callable[..., Any] = getattr(owner, name)
    seen = 0

    def mortal(*arguments: Any, **named: Any) -> Any:
        nonlocal seen
        meant = not path or any(path in str(argument) for argument in arguments if isinstance(argument, (str, Path)))
        seen += meant
        fatal = meant and seen == count
        if fatal and when == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        result = original(*arguments, **named)
        if fatal:
            os.kill(os.getpid(), signal.SIGKILL)
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


def shorten_demo(last_session: str) -> None:
    """Let the demo's world end early and have two sources only."""
    from finevolve_pipeline.cli import synthetic

    small = {"last_session": dt.date.fromisoformat(last_session), "articles_per_day": 20, "sources": ("cls", "sina")}
    synthetic.SynthSettings = functools.partial(synthetic.SynthSettings, **small)  # type: ignore[misc, assignment]
