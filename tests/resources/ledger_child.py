"""A process of its own that puts aside all that a budget allows, for the tests of budgets that hosts share."""

import sys
from pathlib import Path

from finevolve_pipeline.errors import BudgetError
from finevolve_pipeline.llm.ledger import Purpose
from finevolve_pipeline.settings import PriceSettings
from resources.records import open_ledger


def main(home: Path, budget: float) -> None:
    """Say how many attempts were granted and whether waiting may help; keep them until told or killed."""
    price = PriceSettings(input=2.0, cached_input=0.5, output=8.0)
    meter = open_ledger(home, budget).meter(Purpose("mem0-big", "big", "predict", "2025-01-02"), price)
    held = []
    try:
        while True:
            held.append(meter.reserve(1000, 100))
    except BudgetError as refused:
        sys.stdout.write(f"{len(held)} {refused.may_wait}\n")
        sys.stdout.flush()
    sys.stdin.readline()


if __name__ == "__main__":
    main(Path(sys.argv[1]), float(sys.argv[2]))
