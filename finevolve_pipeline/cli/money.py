"""Commands about money: what was spent (usage), and what a run would cost (estimate)."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import asdict
from typing import cast, get_args

import click
from rich.progress import TaskID

from assets.planning import asked_sessions, require_landed, want
from finevolve_pipeline.cli.output import Day, Pipeline, emit_json, json_option, print_table, progress_bar, results
from finevolve_pipeline.cli.run import choose_experiments
from finevolve_pipeline.llm.ledger import By, Ledger, Total, usd
from finevolve_pipeline.replay.estimate import Estimate, Line, ToDo, estimate
from resources.records import open_ledger

SHARED = "(dataset)"
"""How tables call what all experiments share."""


@click.command("usage")
@click.option(
    "--by",
    "groups",
    type=click.Choice(get_args(By)),
    multiple=True,
    default=("experiment", "phase"),
    show_default=True,
    help="What to group by (repeatable).",
)
@json_option
def usage_command(groups: tuple[str, ...], as_json: bool) -> None:
    """What models and embedders took from this home so far: calls, tokens, USD, and what is left of the budget.

    Answers from the cache were paid for when they were given, and are not listed again. Days are simulated ones.
    """
    pipeline = Pipeline.in_force()
    ledger = _ledger(pipeline)
    by = cast(tuple[By, ...], tuple(dict.fromkeys(groups)))
    rows, whole, failures = ledger.totals(by), ledger.totals([]), ledger.failures()
    total = whole[0] if whole else Total({}, 0, 0, 0, 0, 0, 0, 0.0, 0.0)
    if as_json:
        emit_json(
            {
                "by": by,
                "groups": [asdict(row) for row in rows],
                "total": asdict(total),
                "failures": failures,
                **_budget(ledger),
            }
        )
        return
    if not rows:
        results.print("nothing has been asked of a model or an embedder over a network from this home yet")
    else:
        _print_usage(rows, total, by)
    if failures:
        results.print("failed attempts: " + ", ".join(f"{kind} {count}" for kind, count in failures.items()))
    _print_budget(ledger)


def _print_usage(rows: Sequence[Total], total: Total, by: tuple[By, ...]) -> None:
    """The groups and their total; with more than two names a row there is no room for tokens."""
    counted = len(by) <= 2
    print_table(
        "spent from this home",
        [*by, "calls", "failed", *(_TOKENS if counted else ()), "USD", "in doubt"],
        [
            *([*(row.group[name] or SHARED for name in by), *_figures(row, counted)] for row in rows),
            ["total", *[""] * (len(by) - 1), *_figures(total, counted)],
        ],
        text_columns=len(by),
    )
    results.print(
        "Tokens: prompt with what the provider had cached, answers with what was thought."
        if counted
        else "Tokens are left out where rows have more than two names; --json tells them."
    )


_TOKENS = ("prompt", "cached", "answers", "thought")


def _figures(total: Total, counted: bool) -> list[str]:
    kinds = (total.prompt_tokens, total.cached_prompt_tokens, total.completion_tokens, total.reasoning_tokens)
    return [
        f"{total.calls:,}",
        f"{total.failed:,}",
        *(map(tokens, kinds) if counted else ()),
        f"{total.cost:,.4f}",
        f"{total.in_doubt:,.4f}",
    ]


@click.command("estimate")
@click.option("--from", "first", type=Day(), help="First session (default: the window's first).")
@click.option("--to", "last", type=Day(), help="Last session (default: the window's last).")
@click.option("--mechanism", "mechanisms", multiple=True, help="Only these mechanisms (repeatable).")
@click.option("--backbone", "backbones", multiple=True, help="Only these backbones (repeatable).")
@click.option("--seed", "seeds", type=click.IntRange(0), multiple=True, help="Only these seeds (repeatable).")
@json_option
def estimate_command(
    first: dt.date | None,
    last: dt.date | None,
    mechanisms: tuple[str, ...],
    backbones: tuple[str, ...],
    seeds: tuple[int, ...],
    as_json: bool,
) -> None:
    """What `finevolve run` with the same options would ask of models, and what that costs. Asks nobody.

    The replay itself is gone through on the imported news, with the offline backbone in the models' place, so that
    prompts have their real length. Only what is still to be done counts. Answers are as long as those measured so
    far, or as the backbone's `expected_tokens` says.
    """
    pipeline = Pipeline.in_force()
    todo = _todo(pipeline, choose_experiments(pipeline.settings, mechanisms, backbones, seeds), first, last)
    ledger = _ledger(pipeline)
    with progress_bar() as progress:
        tasks: dict[str, TaskID] = {}

        def moved(step: str, done: int, total: int) -> None:
            if step not in tasks:
                tasks[step] = progress.add_task(f"estimate {step}", total=total)
            progress.update(tasks[step], completed=done)

        found = estimate(todo, pipeline.graph, pipeline.store, ledger.measured, moved)
    total = found.total
    left = _budget(ledger)["left"]
    suffices = None if left is None or total.cost is None else total.cost <= left
    if as_json:
        emit_json(
            {
                "sessions": {key: len(missing) for key, missing in todo.experiments.items()},
                "lines": [asdict(line) for line in found.lines],
                "total": {name: value for name, value in asdict(total).items() if name in _SUMMED},
                "notes": found.notes,
                **_budget(ledger),
                "suffices": suffices,
            }
        )
        return
    _print_estimate(found, todo)
    _print_budget(ledger)
    if suffices is not None:
        results.print(f"It {'suffices' if suffices else 'does not suffice'} for this estimate at full price.")


_SUMMED = ("calls", "prompt_tokens", "completion_tokens", "cost", "cost_if_cached")


def _todo(pipeline: Pipeline, experiments: Sequence[str], first: dt.date | None, last: dt.date | None) -> ToDo:
    """What `finevolve run` would have to do; like it, this reaches back to the first session not yet replayed."""
    asked = asked_sessions(pipeline.graph, first, last)
    replayed = pipeline.store.replays.sessions
    missing = ToDo.of(pipeline.settings, experiments, replayed, asked[-1], ()).experiments
    start = min([asked[0], *(sessions[0] for sessions in missing.values() if sessions)])
    wanted = want(pipeline.graph, pipeline.store, start, asked[-1], experiments)
    require_landed(pipeline.graph, pipeline.store, wanted)
    return ToDo.of(pipeline.settings, experiments, replayed, asked[-1], wanted.partitions["tagged_articles"])


def _print_estimate(found: Estimate, todo: ToDo) -> None:
    print_table(
        f"still to be asked: {sum(map(len, todo.experiments.values()))} days of {len(todo.experiments)} experiments",
        ["experiment", "phase", "calls", "prompt", "answers", "length", "USD", "if cached"],
        [
            *([line.experiment or SHARED, line.phase, *_expected(line, _length(line))] for line in found.lines),
            ["total", "", *_expected(found.total, "")],
        ],
        text_columns=2,
    )
    for note in (_LEGEND, *found.notes):
        results.print(note)


_LEGEND = (
    "Length of answers: the mean of so many measured ones, or assumed to be the backbone's expected_tokens, for tags "
    "too. If cached: the provider bills the system message at its cached price from the second call on."
)


def _expected(line: Line, length: str) -> list[str]:
    return [
        f"{line.calls:,}",
        tokens(line.prompt_tokens),
        tokens(line.completion_tokens),
        length,
        *("unknown" if cost is None else f"{cost:,.4f}" for cost in (line.cost, line.cost_if_cached)),
    ]


def _length(line: Line) -> str:
    if not line.completion_tokens:
        return ""
    return f"of {line.measured_over:,}" if line.measured_over else "assumed"


def tokens(count: int) -> str:
    """A number of tokens, in thousands or millions where that is shorter."""
    if count < 10_000:
        return f"{count:,}"
    return f"{count / 1e3:,.0f} k" if count < 1_000_000 else f"{count / 1e6:,.1f} M"


def _ledger(pipeline: Pipeline) -> Ledger:
    return open_ledger(pipeline.home, pipeline.settings.budget.usd)


def _budget(ledger: Ledger) -> dict[str, float | None]:
    spent, budget = ledger.spent(), ledger.budget
    return {"budget": budget, "spent": spent, "left": None if budget is None else max(0.0, budget - spent)}


def _print_budget(ledger: Ledger) -> None:
    facts = _budget(ledger)
    if facts["budget"] is not None and facts["spent"] is not None and facts["left"] is not None:
        results.print(f"budget {usd(facts['budget'])} USD: {usd(facts['spent'])} spent, {usd(facts['left'])} left")
