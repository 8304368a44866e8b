"""The sentences at the top of the report that depend on results: what we find of the paper's three claims, and which
solver to use. Links are written as [text](#name of the part)."""

from unibio.files.tables import Row, Tables, column, distinct, select
from unibio.paper.framework.study import Outcome, load, outcome, summary

Parts = dict[str, Tables]  # the tables of the parts that are there, by name


def claims(parts: Parts) -> list[str]:
    """What we find of each of the three claims."""
    return [
        "No experiment of this page; the first program of README.md shows it on an example, and docs/paper_vs_us.md "
        "lists what we checked of the theorem.",
        " ".join([_reaches(parts), _slows(parts), _bound(parts)]),
        " ".join([_alone(parts), _cleans(parts)]),
    ]


def _missing(names: list[str]) -> str:
    return f"not run for this page ({', '.join(names)})."


def _reaches(parts: Parts) -> str:
    start = "It reaches a neighbourhood of a stationary point for every p and noise level:"
    if "noise" not in parts:
        return f"{start} {_missing(['noise'])}"
    placed = outcome(load("noise"), parts["noise"]) == Outcome.confirmed
    return f"{start} [{'yes, with noise on df/dz' if placed else 'not always'}](#noise)."


def _slows(parts: Parts) -> str:
    start = "More slowly for larger p:"
    if "one-step-size" not in parts:
        return f"{start} {_missing(['one-step-size'])}"
    no = outcome(load("one-step-size"), parts["one-step-size"]) == Outcome.corrected
    return f"{start} [{'not on Example 3 with one step size for every p' if no else 'yes'}](#one-step-size)."


def _bound(parts: Parts) -> str:
    if not {"complexity", "schedules"} <= parts.keys():
        return f"The number of calls: {_missing(['complexity', 'schedules'])}"
    bounds = summary(load("schedules"), parts["schedules"])
    near = min(distinct(parts["complexity"]["calls"], "epsilon"), key=lambda value: abs(value - 0.1))
    needed = column(select(parts["complexity"]["calls"], epsilon=near), "calls")
    asked = {row["p"]: row["log10 calls, paper"] for row in bounds}
    first, last = min(asked), max(asked)
    return (
        f"The number of calls: at ε = 0.1 Example 3 needs [{min(needed):,.0f} to {max(needed):,.0f}](#complexity), and "
        f"the bound amounts to [10^{{{asked[first]:.0f}}} at p = {first:g} and 10^{{{asked[last]:.0f}}} at p = "
        f"{last:g}](#schedules)."
    )


def _alone(parts: Parts) -> str:
    if "comparison-tuned" not in parts:
        return f"Other algorithms fail: {_missing(['comparison-tuned'])}"
    said = load("comparison-tuned").alone(parts["comparison-tuned"])  # type: ignore[attr-defined]
    return f"[All tuned alike, on Example 3](#comparison-tuned): {said[0].lower()}{said[1:]}."


def _cleans(parts: Parts) -> str:
    if "hypercleaning" not in parts:
        return f"Data cleaning: {_missing(['hypercleaning'])}"
    found = outcome(load("hypercleaning"), parts["hypercleaning"])
    return f"Data cleaning: [{'not decided by these data' if found == Outcome.ours else found}](#hypercleaning)."


def advice(parts: Parts) -> list[str]:
    """Which solver to use where the lower Hessian may be singular, where it is not, and where labels may be wrong."""
    return [_singular(parts), _ordinary(parts), _labels(parts)]


def _singular(parts: Parts) -> str:
    if "comparison-tuned" not in parts:
        return "UniBiO with a decaying step, or BO-REP (docs/solvers.md)."
    rows = parts["comparison-tuned"]["statistics"]
    ends = {name: {row["p"]: row for row in select(rows, solver=name)} for name in distinct(rows, "solver")}
    fading, rep, ours = ends["UniBiO (decaying step)"], ends["BO-REP"], ends["UniBiO"]
    ratios = [rep[p]["final"] / fading[p]["final"] for p in rep]
    return (
        f"UniBiO with a decaying step (ends at {_worst(fading):.4f} or less), or BO-REP ({_mean_calls(rep):,.0f} calls "
        f"instead of {_mean_calls(fading):,.0f}; ends {min(ratios):.0f} to {max(ratios):.0f} times farther away). With "
        f"the paper's constant step UniBiO stays at up to {_worst(ours):.4f}. This is seen on "
        f"[Example 3](#comparison-tuned).{_elsewhere(parts)}"
    )


def _worst(ends: dict[float, Row]) -> float:
    return max(row["final"] for row in ends.values())


def _mean_calls(ends: dict[float, Row]) -> float:
    return sum(row["calls"] for row in ends.values()) / len(ends)


def _elsewhere(parts: Parts) -> str:
    """Who wins on ℓ_p regression at the largest p, beside the two solvers of the advice."""
    if "lp-cleaning" not in parts:
        return ""
    rows = parts["lp-cleaning"]["statistics"]
    p = max(distinct(rows, "p"))
    phi = {row["solver"]: row["phi"] for row in select(rows, p=p)}
    best = min(phi, key=lambda name: phi[name])
    return (
        f" On [ℓ_p regression](#lp-cleaning) at p = {p:g} the lowest Φ is that of {best} ({phi[best]:.4f}; UniBiO "
        f"(practical) {phi['UniBiO (practical)']:.4f}, BO-REP {phi['BO-REP']:.4f})."
    )


def _ordinary(parts: Parts) -> str:
    text = "StocBiO, SOBA, or SABA on a finite sum (docs/solvers.md)."
    if "lp-cleaning" not in parts:
        return text
    phi = {row["solver"]: row["phi"] for row in select(parts["lp-cleaning"]["statistics"], p=2.0)}
    best = min(phi, key=lambda name: phi[name])
    return (
        f"{text} On [ℓ_p regression](#lp-cleaning) at p = 2, with as many calls for each, {best} reaches the lowest Φ "
        f"({phi[best]:.4f}; UniBiO (practical) {phi['UniBiO (practical)']:.4f}, SOBA {phi['SOBA']:.4f}, SABA "
        f"{phi['SABA']:.4f})."
    )


def _labels(parts: Parts) -> str:
    here = "hypercleaning" in parts
    seen = "[in the cleaning experiment](#hypercleaning) and" if here else "in the cleaning experiment, not run here;"
    return (
        "where many labels were flipped at random, one learnt rate of wrong labels for all samples (UniBiO "
        f"(practical)) did at least as well as a weight for each sample, whichever solver learnt the weights ({seen} "
        "see docs/hypercleaning.md)."
    )
