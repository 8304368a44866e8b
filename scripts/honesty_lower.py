"""The second part of `honesty.py`: searches for lower solutions with the status `ok` that are no minimisers, and for
minimisers with another status.

It calls `ub.Newton` for random functions from random starts (`honesty_lower_problems.py`) and compares with the truth,
which is computed without unibio. In the first families there is no minimiser, or none near the start, or more than
one. There no result may be accepted, except a local minimiser that is found elsewhere. In the other families there is
exactly one minimiser, which must be found and accepted. *Accepted* means that the status is ok.

A result y is *right* if ‖y − y*‖ ≤ max(allowed, info.error). The allowed distance is what rounding can cause: 300 units
of rounding times the condition number of H, scaled to a unit diagonal. For powers |t|^p, where H may be 0, it is the
change of t if the terms that cancel in the gradient change by 300 units; t depends on them by the power 1/(p−1). A
*lie* is a result that is accepted and not right.
"""

import collections
import sys
import zlib
from collections.abc import Iterable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from honesty_formulas import Long, norm
from honesty_lower_problems import FAMILIES, Case, zero_f

import unibio as ub


def instance(family: str, dtype: str, seed: int, number: int) -> Case:
    """The random function with this number; the same arguments give the same function."""
    rng = np.random.default_rng([seed, zlib.crc32(f"{family} {dtype}".encode()), number])
    with np.errstate(all="ignore"):
        return FAMILIES[family].draw(rng, dtype)


@jax.jit
def _ask(problem: Any, x: jax.Array, y: jax.Array) -> Any:
    return ub.Newton()(problem, x, y)


def examine(family: str, dtype: str, seed: int, number: int) -> dict[str, Any]:
    """Computes one lower solution. The record has its status, its error estimate and its distance from the
    minimiser."""
    case = instance(family, dtype, seed, number)
    problem = ub.Problem(zero_f, case.g, g_batches=case.data)
    y, info = _ask(problem, jnp.asarray(case.x), jnp.asarray(case.y0))
    y = np.asarray(y).astype(Long)
    nearest = case.minimiser(y)
    distance = Long(np.inf) if nearest is None or not np.all(np.isfinite(y)) else norm(y - nearest)
    estimate = getattr(info, "error", np.nan)
    return {"family": family, "dtype": dtype, "seed": seed, "number": number, "note": case.note,
            "status": info.status.name, "steps": int(info.iterations), "distance": float(distance),
            "allowed": float(case.allowed), "estimate": float(estimate)}  # fmt: skip


def hunt(families: Iterable[str], dtype: str, seeds: Iterable[int], per_family: int) -> list[dict[str, Any]]:
    """A record for each instance: `per_family` of each family and seed in this dtype; float64 needs `jax_enable_x64`.

    `judge` interprets a record.
    """
    if dtype == "float64" and not jax.config.read("jax_enable_x64"):
        raise ValueError("float64 needs jax.config.update('jax_enable_x64', True) at the start")
    seeds, records = list(seeds), []
    for family in families:
        records += [examine(family, dtype, seed, number) for seed in seeds for number in range(per_family)]
        print(f"{dtype}: {family}, {len(records)} instances so far", file=sys.stderr, flush=True)
    return records


def judge(record: dict[str, Any]) -> dict[str, bool]:
    """Whether the result was accepted, is right, is a lie, or was refused although there is a minimiser."""
    known = np.nanmax([record["allowed"], record["estimate"] if np.isfinite(record["estimate"]) else 0.0])
    accepted, right = record["status"] == "ok", bool(record["distance"] <= known)
    refused = not accepted and FAMILIES[record["family"]].exists
    return {"accepted": accepted, "right": right, "lie": accepted and not right, "refused": refused}


def table(records: list[dict[str, Any]]) -> tuple[list[str], list[list[Any]]]:
    """The head of the table and its rows: one for each family, and totals of those without and with a minimiser."""
    head = ["family of lower levels", "ranges (log-uniform)", "instances", "lies", "float32", "float64",
            "right and accepted", "refused", "statuses of the others"]  # fmt: skip

    def row(name: str, ranges: str, exists: bool, chosen: list[dict[str, Any]]) -> list[Any]:
        verdicts = [(r, judge(r)) for r in chosen]
        lies = [r["dtype"] for r, v in verdicts if v["lie"]]
        good = sum(v["accepted"] and v["right"] for _, v in verdicts)
        others = collections.Counter(r["status"] for r, v in verdicts if not v["accepted"])
        statuses = ", ".join(f"{status} {count}" for status, count in others.most_common())
        share = f"{good / len(chosen):.1%}" if exists else f"{good} (elsewhere)" if good else "–"
        refused = sum(v["refused"] for _, v in verdicts)
        counts = [len(chosen), len(lies), lies.count("float32"), lies.count("float64")]
        return [name, ranges, *counts, share, refused if exists else "–", statuses]

    rows = []
    for key, family in FAMILIES.items():
        chosen = [r for r in records if r["family"] == key]
        rows += [row(family.name, family.ranges, family.exists, chosen)] if chosen else []
    for exists, name in ((False, "total without a minimiser"), (True, "total with one")):
        chosen = [r for r in records if FAMILIES[r["family"]].exists == exists]
        rows += [row(name, "", exists, chosen)] if chosen else []
    return head, rows


def coverage(records: list[dict[str, Any]], dtype: str) -> str:
    """A sentence on the ratio of `info.error` to the true distance, over the results that were accepted."""
    pairs = [(r["estimate"], r["distance"]) for r in records if r["dtype"] == dtype and r["status"] == "ok"
             and FAMILIES[r["family"]].exists]  # fmt: skip
    ratios = np.asarray([e / d for e, d in pairs if np.isfinite(e) and d > 0])
    if not ratios.size:
        return f"{dtype}: no info.error"
    low, middle, high = np.quantile(ratios, [0.05, 0.5, 0.95])
    return (f"{dtype}: info.error / true distance: median {middle:.3g}, 5 % to 95 % {low:.3g} to {high:.3g}, "
            f"below 1 in {np.mean(ratios < 1):.2%} of {ratios.size}")  # fmt: skip


def failed(records: list[dict[str, Any]]) -> bool:
    """Whether there is a lie, or more than 1 % of the minimisers were not found and accepted."""
    verdicts = [judge(r) for r in records if FAMILIES[r["family"]].exists]
    good = sum(v["accepted"] and v["right"] for v in verdicts)
    return any(judge(r)["lie"] for r in records) or good < 0.99 * len(verdicts)
