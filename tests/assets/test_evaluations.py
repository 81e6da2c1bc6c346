"""How asset checks stand: by rule, and from what Dagster records of real runs."""

import datetime as dt
from collections.abc import Iterator

import dagster as dg
import pytest

from assets.evaluations import Evaluation, Verdict, check_standings, still_standing
from assets.planning import RANGE_END, RANGE_START

EVERY = frozenset({"a", "b", "c"})


def evaluation(verdict: Verdict, partitions: str | None, run: str = "") -> Evaluation:
    looked_at = None if partitions is None else frozenset(partitions)
    return Evaluation(verdict, looked_at, dt.datetime(2025, 1, 2, tzinfo=dt.UTC), run, "")


PASSED, WARNED, FAILED, NOT_EVALUATED = Verdict.PASSED, Verdict.WARNED, Verdict.FAILED, Verdict.NOT_EVALUATED


def test_a_check_without_evaluations_has_none_that_stand() -> None:
    assert still_standing([], EVERY) == ()


def test_of_what_went_well_the_newest_stands() -> None:
    newest, older = evaluation(PASSED, "a"), evaluation(PASSED, "b")
    assert still_standing([newest, older], EVERY) == (newest,)


@pytest.mark.parametrize("verdict", [WARNED, FAILED, NOT_EVALUATED])
def test_what_went_wrong_stands_behind_a_later_success_with_other_partitions(verdict: Verdict) -> None:
    wrong = evaluation(verdict, "ab")
    assert still_standing([evaluation(PASSED, "c"), wrong], EVERY) == (wrong,)


def test_what_went_wrong_stands_until_all_of_its_partitions_were_looked_at_again() -> None:
    wrong, first, second = evaluation(FAILED, "ab"), evaluation(PASSED, "a"), evaluation(PASSED, "bc")
    assert still_standing([first, wrong], EVERY) == (wrong,)
    assert still_standing([second, first, wrong], EVERY) == (second,)


def test_of_two_failures_of_the_same_partitions_only_the_later_stands() -> None:
    later, earlier = evaluation(WARNED, "a", "later"), evaluation(FAILED, "a", "earlier")
    assert still_standing([later, earlier], EVERY) == (later,)


def test_a_failure_of_unknown_partitions_stands_until_all_were_looked_at() -> None:
    wrong = evaluation(FAILED, None)
    assert still_standing([evaluation(PASSED, "ab"), wrong], EVERY) == (wrong,)
    assert still_standing([evaluation(PASSED, "ab"), evaluation(PASSED, "c"), wrong], EVERY)[0].verdict is PASSED


def test_a_success_of_unknown_partitions_lifts_nothing() -> None:
    wrong = evaluation(FAILED, "a")
    assert still_standing([evaluation(PASSED, None), wrong], EVERY) == (wrong,)


def test_no_more_evaluations_are_read_than_can_matter() -> None:
    def history() -> Iterator[Evaluation]:
        yield evaluation(PASSED, "abc")
        raise AssertionError("read on though every partition was looked at")

    assert len(still_standing(history(), EVERY)) == 1


DAYS = dg.DailyPartitionsDefinition("2025-01-01", end_date="2025-01-06")


class Bars:
    """An asset of five days with a check that fails for days said to be bad."""

    def __init__(self, instance: dg.DagsterInstance, severity: dg.AssetCheckSeverity, blocking: bool = False) -> None:
        self.bad: set[str] = set()
        self.raises = False
        self._instance = instance

        @dg.asset(partitions_def=DAYS, backfill_policy=dg.BackfillPolicy.single_run())
        def bars(context: dg.AssetExecutionContext) -> None: ...

        @dg.asset_check(asset=bars, blocking=blocking)
        def plausible(context: dg.AssetCheckExecutionContext) -> dg.AssetCheckResult:
            if self.raises:
                raise ValueError("closes cannot be read")
            bad = self.bad & set(context.partition_keys)
            return dg.AssetCheckResult(passed=not bad, severity=severity, description=f"bad: {sorted(bad)}")

        self.definitions = dg.Definitions([bars], asset_checks=[plausible])

    def materialise(self, first: str, last: str) -> bool:
        result = dg.materialize(
            [*(self.definitions.assets or ()), *(self.definitions.asset_checks or ())],
            instance=self._instance,
            tags={RANGE_START: f"2025-01-0{first}", RANGE_END: f"2025-01-0{last}"},
            raise_on_error=False,
        )
        return result.success

    def standing(self) -> list[tuple[Verdict, str]]:
        (standing,) = check_standings(self.definitions, self._instance)
        assert (standing.asset, standing.check) == ("bars", "plausible")
        return [(found.verdict, found.text) for found in standing.evaluations]


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral() as made:
        yield made


def test_a_run_with_a_failed_check_succeeds_and_its_failure_is_found(instance: dg.DagsterInstance) -> None:
    bars = Bars(instance, dg.AssetCheckSeverity.ERROR)
    bars.bad = {"2025-01-02"}
    assert bars.materialise("1", "3")
    assert bars.standing() == [(FAILED, "bad: ['2025-01-02']")]


def test_a_later_range_does_not_hide_it_and_the_same_range_made_well_lifts_it(instance: dg.DagsterInstance) -> None:
    bars = Bars(instance, dg.AssetCheckSeverity.WARN)
    bars.bad = {"2025-01-02"}
    bars.materialise("1", "3")
    bars.materialise("4", "5")
    assert bars.standing() == [(WARNED, "bad: ['2025-01-02']")]
    bars.bad = set()
    bars.materialise("2", "3")
    assert bars.standing() == [(WARNED, "bad: ['2025-01-02']")]
    bars.materialise("1", "3")
    assert bars.standing() == [(PASSED, "bad: []")]


def test_a_blocking_check_fails_the_run_too(instance: dg.DagsterInstance) -> None:
    bars = Bars(instance, dg.AssetCheckSeverity.ERROR, blocking=True)
    bars.bad = {"2025-01-02"}
    assert not bars.materialise("1", "3")
    assert bars.standing() == [(FAILED, "bad: ['2025-01-02']")]


def test_a_check_that_raises_counts_as_not_evaluated(instance: dg.DagsterInstance) -> None:
    bars = Bars(instance, dg.AssetCheckSeverity.ERROR)
    bars.raises = True
    bars.materialise("1", "3")
    assert bars.standing() == [(NOT_EVALUATED, "its run ended before it was evaluated")]


def test_a_check_that_no_run_was_to_evaluate_has_never_been(instance: dg.DagsterInstance) -> None:
    (standing,) = check_standings(Bars(instance, dg.AssetCheckSeverity.ERROR).definitions, instance)
    assert standing.verdict is Verdict.NEVER


def test_only_checks_of_the_assets_asked_for_are_looked_at(instance: dg.DagsterInstance) -> None:
    bars = Bars(instance, dg.AssetCheckSeverity.ERROR)
    assert check_standings(bars.definitions, instance, ["other"]) == []
    assert len(check_standings(bars.definitions, instance, ["bars"])) == 1
