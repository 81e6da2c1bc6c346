"""What pages of documentation show: command lines, settings, quoted errors."""

import ast
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import click

from finevolve_pipeline.errors import FinEvolveError

CHECKOUT = Path(__file__).resolve().parents[2]
PAGES = (
    *sorted(CHECKOUT.glob("*.md")),
    *sorted((CHECKOUT / "docs").rglob("*.md")),
    *(CHECKOUT / folder / "README.md" for folder in ("benchmarks", "crawlers", "finevolve_pipeline/mechanisms")),
)
SOURCES = ("finevolve_pipeline", "resources", "assets", "crawlers")
VALUE = "…"

_BLOCK = re.compile(
    r"^(?P<fence>```+) *(?P<language>\w*)[^\n]*\n(?P<text>.*?)^(?P=fence)\s*$", re.MULTILINE | re.DOTALL
)
_INLINE = re.compile(r"`([^`\n]+(?:\n[^`\n]+)?)`")
_ASSIGNED = re.compile(r"[A-Z_]+=\S*")
_ENDS = {"|", "||", "&&", ";", ">", ">>", "<", "&"}


@dataclass(frozen=True)
class Shown:
    """A command line on a page. `whole`: it can be typed as it is, so nothing that it needs may be left out."""

    page: Path
    words: tuple[str, ...]
    whole: bool

    def __str__(self) -> str:
        return f"{self.page.relative_to(CHECKOUT)}: {' '.join(self.words)}"


def blocks(page: Path, *languages: str) -> list[str]:
    """Fenced code of a page in one of these languages; the empty one is code that names none."""
    return [found["text"] for found in _BLOCK.finditer(page.read_text("utf-8")) if found["language"] in languages]


def running_text(page: Path) -> str:
    """A page without its fenced code."""
    return _BLOCK.sub("", page.read_text("utf-8"))


def command_lines(program: str) -> Iterator[Shown]:
    """All that the pages show of a program's commands."""
    for page in PAGES:
        for block in blocks(page, "", "sh", "console", "bash"):
            for line in block.replace("\\\n", " ").splitlines():
                for words in _commands(line.strip()):
                    if words[0] == program:
                        yield Shown(page, words, whole=True)
        for code in _INLINE.findall(running_text(page)):
            words = tuple(code.replace("[", " ").replace("]", " ").split())
            if words and words[0] == program and len(words) > 1:
                yield Shown(page, words, whole=False)


def _commands(line: str) -> Iterator[tuple[str, ...]]:
    """The commands of a line of shell, without variables set before them and what their output is sent to."""
    words: list[str] = []
    try:
        split = shlex.split(line, comments=True)
    except ValueError:  # prose or a table, no shell
        return
    for word in [*split, ";"]:
        if word not in _ENDS:
            words.append(word)
        elif words:
            while words and _ASSIGNED.fullmatch(words[0]):
                words.pop(0)
            if words:
                yield tuple(words)
            words = []


def fault(shown: Shown, root: click.Command) -> str:
    """Why the command line is none of the program; empty if it is one."""
    context, command, words = click.Context(root, info_name=shown.words[0]), root, list(shown.words[1:])
    while True:
        try:
            values, words, _ = command.make_parser(context).parse_args(words)
        except click.UsageError as wrong:
            return wrong.format_message()
        if why := _wrong_values(command, context, values, shown.whole):
            return why
        if not isinstance(command, click.Group):
            return f"{' '.join(words)!r} is too much" if words else ""
        if not words:
            return "" if not shown.whole or values else "a command is missing"
        name = words.pop(0)
        found = command.get_command(context, name)
        if found is None:
            return f"there is no command {name!r}"
        context, command = click.Context(found, info_name=name, parent=context), found


def _wrong_values(command: click.Command, context: click.Context, values: dict[str, object], whole: bool) -> str:
    for parameter in command.params:
        value = values.get(parameter.name or "")
        if whole and parameter.required and not isinstance(value, (str, list, tuple)):
            return f"{parameter.name} is missing"
        each = value if isinstance(value, (list, tuple)) else [value]
        for text in each:
            if not isinstance(text, str) or VALUE in text or text.isupper() or isinstance(parameter.type, click.Path):
                continue
            for one in text.split("|") if isinstance(parameter.type, click.Choice) else [text]:
                try:
                    parameter.type.convert(one, parameter, context)
                except click.BadParameter as wrong:
                    return wrong.format_message()
                except FinEvolveError as wrong:
                    return str(wrong)
    return ""


@cache
def texts_of_code() -> frozenset[str]:
    """All texts that stand in the code, with `…` for each value put into one."""
    found = set()
    for folder in SOURCES:
        for path in (CHECKOUT / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text("utf-8"))):
                if isinstance(node, ast.JoinedStr):
                    found.add("".join(part.value if isinstance(part, ast.Constant) else VALUE for part in node.values))
                elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                    found.add(node.value)
    return frozenset(found)
