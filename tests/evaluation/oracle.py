"""Every statistic of `evaluation.inference` once more: loops over lists and SciPy, written from the formulas.

Slow on purpose, and it shares no function with what it checks except the settings.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import statsmodels.api as sm
from scipy import integrate, stats

from finevolve_pipeline.settings import EvaluationSettings

NAN = math.nan
Grid = Sequence[Sequence[float]]
"""Sessions x industries."""


def known(*values: float) -> bool:
    return not any(math.isnan(value) for value in values)


def correlation(x: Sequence[float], y: Sequence[float], least: int, method: str) -> float:
    pairs = [(a, b) for a, b in zip(x, y, strict=True) if known(a, b)]
    if len(pairs) < max(least, 2):
        return NAN
    a, b = zip(*pairs, strict=True)
    if len(set(a)) < 2 or len(set(b)) < 2:
        return NAN
    return float((stats.spearmanr if method == "spearman" else stats.pearsonr)(a, b).statistic)


def column(grid: Grid, industry: int) -> list[float]:
    return [day[industry] for day in grid]


def average(values: Sequence[float]) -> float:
    found = [value for value in values if known(value)]
    return sum(found) / len(found) if found else NAN


@dataclass
class Estimate:
    """A coefficient: what it is the mean of, and by session its share in the error and whether it has a value."""

    value: float
    parts: list[float]
    shares: list[float]
    has: list[bool]
    draws: list[float]
    shifted: list[float]
    shifted_draws: list[list[float]]
    over_time: bool


def combined(estimates: Sequence[Estimate], factors: Sequence[float]) -> Estimate:
    def total(lists: Sequence[Sequence[float]]) -> list[float]:
        return [sum(f * v for f, v in zip(factors, values, strict=True)) for values in zip(*lists, strict=True)]

    return Estimate(
        sum(f * e.value for f, e in zip(factors, estimates, strict=True)),
        total([e.parts for e in estimates]),
        total([e.shares for e in estimates]),
        [any(values) for values in zip(*(e.has for e in estimates), strict=True)],
        total([e.draws for e in estimates]),
        total([e.shifted for e in estimates]),
        [total(rows) for rows in zip(*(e.shifted_draws for e in estimates), strict=True)],
        estimates[0].over_time,
    )


def cross_sectional(score: Grid, alpha: Grid, least: int, method: str) -> Estimate:
    daily = [correlation(s, a, least, method) for s, a in zip(score, alpha, strict=True)]
    mean, n = average(daily), sum(map(known, daily))
    shares = [(value - mean) / n if known(value) else 0.0 for value in daily]
    return Estimate(mean, daily, shares, [known(value) for value in daily], [], [], [], False)


def block_of(horizon: int, sessions: int) -> int:
    root = 0
    while root**3 < sessions:
        root += 1
    return max(horizon, root)


def drawn_dates(sessions: int, block: int, draws: int, seed: int) -> list[list[int]]:
    """The sessions of each draw, in the order of its blocks."""
    if block >= sessions:
        return []
    blocks = -(-sessions // block)
    starts = np.random.default_rng([seed, sessions, block]).integers(0, sessions, (draws, blocks))
    found = []
    for of_draw in starts.tolist():
        dates = [(start + k) % sessions for start in of_draw for k in range(block)]
        found.append(dates[:sessions])
    return found


def standardised(values: Sequence[float], use: Sequence[bool], method: str) -> list[float]:
    kept = [v for v, u in zip(values, use, strict=True) if u]
    if not kept:
        return [0.0] * len(values)
    kept = [float(v) for v in (stats.rankdata(kept) if method == "spearman" else kept)]
    mean = sum(kept) / len(kept)
    spread = math.sqrt(sum((v - mean) ** 2 for v in kept) / len(kept))
    each = iter([(v - mean) / spread if spread else 0.0 for v in kept])
    return [next(each) if u else 0.0 for u in use]


def moment_correlation(x: Sequence[float], y: Sequence[float], n: int) -> float:
    mx, my = sum(x) / n, sum(y) / n
    vx = sum(v * v for v in x) / n - mx * mx
    vy = sum(v * v for v in y) / n - my * my
    if vx <= 1e-12 or vy <= 1e-12:
        return NAN
    return (sum(a * b for a, b in zip(x, y, strict=True)) / n - mx * my) / math.sqrt(vx * vy)


def time_series(
    score: Grid,
    alpha: Grid,
    valid: Sequence[Sequence[bool]],
    industries: int,
    least: int,
    method: str,
    dates: Sequence[Sequence[int]],
) -> Estimate:
    sessions = len(score)
    parts = [correlation(column(score, i), column(alpha, i), least, method) for i in range(industries)]
    defined = [i for i in range(industries) if known(parts[i])]
    use = {i: [bool(day[i]) for day in valid] for i in range(industries)}
    z = {i: standardised(column(score, i), use[i], method) for i in defined}
    w = {i: standardised(column(alpha, i), use[i], method) for i in defined}
    n = {i: sum(use[i]) for i in defined}
    shares = [
        average([(z[i][t] * w[i][t] - parts[i] * (z[i][t] ** 2 + w[i][t] ** 2) / 2) / n[i] for i in defined])
        for t in range(sessions)
    ]
    draws = []
    for draw in dates:
        each = []
        for i in defined:
            count = max(sum(use[i][t] for t in draw), 1)
            each.append(moment_correlation([z[i][t] for t in draw], [w[i][t] for t in draw], count))
        draws.append(average(each))
    shifted = [
        average([sum(z[i][t] * w[i][(t + s) % sessions] for t in range(sessions)) / n[i] for i in defined])
        for s in range(1, sessions)
    ]
    chosen = sorted({sessions * k // 15 for k in range(1, 15)} - {0})
    shifted_draws = [
        [
            average(
                [
                    moment_correlation([z[i][t] for t in draw], [w[i][(t + s) % sessions] for t in draw], n[i])
                    for i in defined
                ]
            )
            for draw in dates[:100]
        ]
        for s in chosen
    ]
    has = [any(day) for day in valid]
    return Estimate(average(parts), parts, shares, has, draws, shifted, shifted_draws, True)


def within(estimate: Estimate) -> list[float]:
    at = [t for t, has in enumerate(estimate.has) if has]
    return estimate.shares[at[0] : at[-1] + 1] if at else []


def varies(estimate: Estimate) -> bool:
    n = sum(estimate.has)
    if n < 2 or not known(estimate.value):
        return False
    return n * max(abs(u) for u in within(estimate)) > 1e-12 * max(1.0, abs(estimate.value))


def root(variance: float, estimate: Estimate) -> float:
    u = within(estimate)
    return math.sqrt(variance) if varies(estimate) and variance > 1e-6 * sum(v * v for v in u) else NAN


def cosine_error(estimate: Estimate, terms: int) -> float:
    u = within(estimate)
    if not 1 <= terms < sum(estimate.has):
        return NAN
    squares = []
    for j in range(1, terms + 1):
        projection = sum(math.cos(math.pi * j * (t + 0.5) / len(u)) * u[t] for t in range(len(u)))
        squares.append(2 * projection**2)
    return root(sum(squares) / terms, estimate)


def lagged_error(estimate: Estimate, lag: int, bartlett: bool) -> float:
    u = within(estimate)
    if len(u) <= lag or not varies(estimate):
        return NAN
    variance = sum(v * v for v in u)
    for k in range(1, lag + 1):
        weight = 1 - k / (lag + 1) if bartlett else 1.0
        variance += 2 * weight * sum(u[t] * u[t - k] for t in range(k, len(u)))
    return root(variance, estimate)


def hac_error_of_mean(values: Sequence[float], lag: int) -> float:
    """Newey-West as statsmodels has it: regression of d y on d, from the first defined value to the last."""
    at = [t for t, value in enumerate(values) if known(value)]
    y = np.array(values[at[0] : at[-1] + 1])
    d = np.isfinite(y).astype(float)
    fit = sm.OLS(np.where(d > 0, y, 0.0), d).fit(cov_type="HAC", cov_kwds={"maxlags": lag, "use_correction": False})
    return float(fit.bse[0])


def fixed_b_p(statistic: float, sessions: int, lag: int) -> float:
    """Adaptive quadrature over the eigenvalues of the centred Bartlett matrix."""
    if not known(statistic) or sessions <= lag:
        return NAN
    kernel = np.array([[max(0.0, 1 - abs(s - t) / (lag + 1)) for s in range(sessions)] for t in range(sessions)])
    centre = np.eye(sessions) - np.full((sessions, sessions), 1 / sessions)
    roots = np.linalg.eigvalsh(centre @ kernel @ centre / sessions)

    def integrand(angle: float) -> float:
        return float(np.prod(1 / np.sqrt(1 + statistic**2 * np.maximum(roots, 0) / math.sin(angle) ** 2)))

    found = integrate.quad(integrand, 0, math.pi / 2, epsabs=1e-13, epsrel=1e-13, limit=200)[0]
    return float(min(1.0, 2 / math.pi * found))


def two_sided(statistic: float, degrees: float) -> float:
    if not known(statistic, degrees):
        return NAN
    return float(2 * (stats.norm.sf(abs(statistic)) if math.isinf(degrees) else stats.t.sf(abs(statistic), degrees)))


def detectable(degrees: float, confidence: float) -> float:
    """Bisection of the noncentral t's power."""
    critical = stats.t.ppf(0.5 + confidence / 2, degrees)
    low, high = 0.0, float(critical) + 10.0
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if stats.nct.sf(critical, degrees, middle) < 0.8 else (low, middle)
    return low


def default_error(e: Estimate, horizon: int, sessions: int, settings: EvaluationSettings) -> tuple[float, float]:
    span = len(within(e))
    if span <= horizon or not varies(e):
        return NAN, NAN
    if not e.over_time:
        terms = min(settings.cosine_terms, max(2, -(-2 * span // (3 * horizon))))
        return cosine_error(e, terms), float(terms)
    degrees = 1.5 * sessions / block_of(horizon, sessions)
    flat = [value for row in e.shifted_draws for value in row]
    if not flat or not known(*flat):
        return NAN, degrees
    bootstrap = average([float(np.var(row, ddof=1)) for row in e.shifted_draws])
    true = average([value**2 for value in e.shifted])
    draws = [value for value in e.draws if known(value)]
    plain = float(np.std(draws, ddof=1)) if len(draws) > 1 else NAN
    if not known(plain) or min(bootstrap, true, plain**2) <= 1e-20:
        return NAN, degrees
    return plain * math.sqrt(true / bootstrap), degrees


def divided(a: float, b: float) -> float:
    return a / b if known(a, b) else NAN


def tests(e: Estimate, horizon: int, sessions: int, settings: EvaluationSettings) -> dict[str, float]:
    error, degrees = default_error(e, horizon, sessions, settings)
    u, n = within(e), sum(e.has)
    naive = root(sum(v * v for v in u) * n / (n - 1), e) if varies(e) else NAN
    half = stats.t.ppf(0.5 + settings.confidence / 2, degrees) * error if known(degrees, error) else NAN
    parts = [value for value in e.parts if known(value)]
    spread = float(np.std(parts, ddof=1)) if len(parts) > 1 and max(parts) - min(parts) > 1e-12 else NAN
    return {
        "estimate": e.value,
        "standard_error": error,
        "degrees": degrees,
        "low": e.value - half,
        "high": e.value + half,
        "p": two_sided(divided(e.value, error), degrees),
        "p_newey_west": two_sided(divided(e.value, lagged_error(e, horizon - 1, True)), math.inf),
        "p_fixed_b": fixed_b_p(divided(e.value, lagged_error(e, 2 * horizon, True)), len(u), 2 * horizon),
        "p_hansen_hodrick": two_sided(divided(e.value, lagged_error(e, horizon - 1, False)), math.inf),
        "p_naive": two_sided(divided(e.value, naive), n - 1),
        "minimum_detectable": detectable(degrees, settings.confidence) * error if known(degrees, error) else NAN,
        "sessions": sessions,
        "effective_sample": (n if e.over_time else len(parts)) / horizon,
        "defined": len(parts),
        "undefined": len(e.parts) - len(parts),
        "icir": divided(average(parts), spread),
        "positive_share": sum(value > 1e-12 for value in parts) / len(parts) if parts else NAN,
    }


def of_scores(score: Grid, alpha: Grid) -> dict[str, float]:
    hits = misses = valid = labels = 0
    spreads = []
    for scores, outcomes in zip(score, alpha, strict=True):
        pairs = [(s, a) for s, a in zip(scores, outcomes, strict=True) if known(s, a)]
        hits += sum(s * a > 0 for s, a in pairs)
        misses += sum(s * a < 0 for s, a in pairs)
        valid += len(pairs)
        labels += sum(map(known, outcomes))
        if len(pairs) > 1:
            spreads.append(float(np.std([s for s, _ in pairs], ddof=1)))
    return {
        "hit_rate": hits / (hits + misses) if hits + misses else NAN,
        "dispersion": average(spreads),
        "coverage": valid / labels if labels else NAN,
    }


def holm(p: Sequence[float]) -> list[float]:
    order = sorted(range(len(p)), key=lambda i: p[i])
    adjusted, highest = [0.0] * len(p), 0.0
    for rank, i in enumerate(order):
        highest = max(highest, min(1.0, (len(p) - rank) * p[i]))
        adjusted[i] = highest
    return adjusted


def benjamini_hochberg(p: Sequence[float]) -> list[float]:
    order = sorted(range(len(p)), key=lambda i: p[i])
    adjusted, lowest = [0.0] * len(p), 1.0
    for rank in range(len(p), 0, -1):
        i = order[rank - 1]
        lowest = min(lowest, p[i] * len(p) / rank)
        adjusted[i] = lowest
    return adjusted
