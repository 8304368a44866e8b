"""Searches for lies (hypergradients and lower solutions with the status `ok` that are wrong) and for false alarms.

It is for whoever changes `unibio.hypergradients` or `unibio.lower`. It draws random problems from several families,
calls `ub.hypergradient` and `ub.Newton` as a user would, and compares with a truth that is computed without unibio.

    python scripts/honesty.py                        # everything: both dtypes side by side, three seeds, two tables
    python scripts/honesty.py --part lower           # lower solutions only; or --part hypergradients
    python scripts/honesty.py --families 3 flat --methods CG Exact --dtype float32 --show 5

A hypergradient is *wrong* if its relative error is above τ (1e-2 in float32, 1e-4 in float64). A *lie* is a wrong value
with the status ok. A *false alarm* is a value within τ/10 of the truth with another status. In *promised* families
(1 to 6) unibio promises both to be absent. In *broken* families (7 to 11) an assumption is violated, for example the
convexity; there a wrong value is *noticed* if its status is not ok. `honesty_lower.py` defines the same for lower
solutions. The exit code is 1

- after a lie, or with more than 1 % false alarms, in promised families;
- if less than 95 % of the wrong values are noticed in families 7 to 10, or in 5b;
- after any lie about a lower solution, or with less than 99 % of the minimisers found.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import zlib
from collections.abc import Callable, Iterable
from typing import Any

import honesty_lower as lower
import jax
import jax.numpy as jnp
import numpy as np
from honesty_formulas import Formula, Long, norm
from honesty_lower_problems import FAMILIES as LOWER_FAMILIES
from honesty_problems import FAMILIES, Case

import unibio as ub

TAU = {"float32": 1e-2, "float64": 1e-4}
NOTICED = ("7", "8", "9", "10")  # the families in which 95 % of the wrong values must be noticed


def _neumann(terms: int) -> Callable[[Case, float], Any]:
    # The default preconditioner, the paper's D, needs p; without p it is Jacobi.
    return lambda case, step: ub.Neumann(terms) if case.p is not None else ub.Neumann(terms, preconditioner=ub.Jacobi())


METHODS: dict[str, Callable[[Case, float], Any]] = {
    "CG": lambda case, step: ub.CG(),
    "CG-Jacobi": lambda case, step: ub.CG(preconditioner=ub.Jacobi()),
    "CG-Identity": lambda case, step: ub.CG(preconditioner=ub.Identity()),
    "CG-Power": lambda case, step: ub.CG(preconditioner=ub.Power()),
    "Exact": lambda case, step: ub.Exact(),
    "Neumann-10": _neumann(10),
    "Neumann-200": _neumann(200),
    "Unrolled-5": lambda case, step: ub.Unrolled(5, step, in_z=case.in_z),
    "Unrolled-200": lambda case, step: ub.Unrolled(200, step, in_z=case.in_z),
}


def instance(family: str, method: str, dtype: str, seed: int, number: int) -> Case:
    """The random problem with this number; the same arguments give the same problem."""
    name = f"{family} {method} {dtype}"
    rng = np.random.default_rng([seed, zlib.crc32(name.encode()), number])
    with np.errstate(all="ignore"):
        while not (case := FAMILIES[family].draw(rng, dtype, method == "CG-Power")).decent():
            pass
    return case


def examine(family: str, method: str, dtype: str, seed: int, number: int) -> dict[str, Any]:
    """Computes one hypergradient. The record has its status, its error estimate and its true error."""
    case = instance(family, method, dtype, seed, number)
    largest = float(np.sqrt(np.finfo(dtype).max)) * 1e15
    step = min(max(1 / case.curvature if case.curvature else largest, 1 / largest), largest)
    truth = None if case.truth is None else [float(v) for v in case.truth]
    record: dict[str, Any] = {"family": family, "method": method, "dtype": dtype, "seed": seed, "number": number}
    record |= {"note": case.note, "truth": truth, "crash": ""}
    try:
        problem = ub.Problem(Formula(case.f, case.numbers), Formula(case.g, case.numbers), case.p, shift=case.shift)
        value, info = ub.hypergradient(problem, jnp.asarray(case.x), jnp.asarray(case.y), METHODS[method](case, step))
    except Exception as raised:
        return record | {"crash": f"{type(raised).__name__}: {raised}"}
    value = np.asarray(value)
    estimate = np.asarray(getattr(info, "error", np.nan), float)
    error = Long(np.inf)
    if truth and case.truth is not None and np.all(np.isfinite(value)):
        error = norm(value.astype(Long) - case.truth)
    return record | {"status": info.status.name, "value": value.tolist(), "absolute": float(error),
                     "relative": float(error / norm(case.truth) if truth else error),
                     "estimate": float(np.linalg.norm(estimate))}  # fmt: skip


def hunt(
    families: Iterable[str], methods: Iterable[str], dtype: str, seeds: Iterable[int], per_family: int
) -> list[dict[str, Any]]:
    """A record for each instance. There are `per_family` of each family and seed in this dtype, divided among the
    methods.

    float64 needs `jax_enable_x64`. `judge` interprets a record.
    """
    if dtype == "float64" and not jax.config.read("jax_enable_x64"):
        raise ValueError("float64 needs jax.config.update('jax_enable_x64', True) at the start")
    seeds, methods, records = list(seeds), list(methods), []
    for family in families:
        for method in methods:
            each = range(-(-per_family // len(methods)))
            records += [examine(family, method, dtype, seed, number) for seed in seeds for number in each]
        print(f"{dtype}: family {family}, {len(records)} instances so far", file=sys.stderr, flush=True)
    return records


def judge(record: dict[str, Any]) -> dict[str, bool]:
    """Whether the record is a crash, wrong, a lie, or a false alarm, as defined above."""
    if record["crash"]:
        return {"crash": True, "wrong": False, "lie": False, "alarm": False}
    tau, ok = TAU[record["dtype"]], record["status"] == "ok"
    wrong = not record["relative"] <= tau
    alarm = not ok and record["relative"] < tau / 10 and FAMILIES[record["family"]].kind in ("promised", "rotated")
    return {"crash": False, "wrong": wrong, "lie": ok and wrong, "alarm": alarm}


# ---------------------------------------------------------------- the report


def _counts(records: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """How many records are wrong, lies, false alarms and crashes; also the lies by dtype, and those of CG and Exact."""
    pairs = [(record, judge(record)) for record in records]
    n: dict[str, Any] = {name: sum(v[name] for _, v in pairs) for name in ("wrong", "lie", "alarm", "crash")}
    n["32"], n["64"] = (sum(v["lie"] for r, v in pairs if r["dtype"] == dtype) for dtype in TAU)
    n["solved"] = sum(v["lie"] for r, v in pairs if not r["method"].startswith(("Neumann", "Unrolled")))
    n["noticed"] = f"{1 - n['lie'] / n['wrong']:.1%}" if n["wrong"] else "–"
    return n | {"all": len(pairs)}


def _print_table(head: list[str], rows: list[list[Any]], markdown: bool) -> None:
    cells = [[str(cell) for cell in row] for row in [head, *rows]]
    widths = [max(len(row[i]) for row in cells) for i in range(len(head))]
    edge, middle = ("| ", " | ") if markdown else ("", "  ")
    cells.insert(1, ["-" * width for width in widths])
    for row in cells:
        padded = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        print((edge + middle.join(padded) + edge[::-1]).rstrip())
    print()


def report(records: list[dict[str, Any]], markdown: bool, show: int) -> int:
    """Prints the tables and the worst lies; returns the exit code."""
    kind_of = {key: family.kind for key, family in FAMILIES.items()}
    promised = _counts(r for r in records if kind_of[r["family"]] == "promised")
    noticing = _counts(r for r in records if r["family"] in NOTICED)
    beyond = _counts(r for r in records if kind_of[r["family"]] == "beyond")

    lines = [([key, family.name, family.kind, family.ranges], _counts(r for r in records if r["family"] == key))
             for key, family in FAMILIES.items()]  # fmt: skip
    lines = [line for line in lines if line[1]["all"]]
    totals = {"promised (1 to 6)": promised, "broken (7 to 10)": noticing, "everything": _counts(records)}
    lines += [(["", f"total, {name}", "", ""], n) for name, n in totals.items()]
    columns = ["all", "wrong", "lie", "32", "64", "solved", "noticed", "alarm", "crash"]
    _print_table(["", "family", "kind", "ranges (log-uniform)", "instances", "wrong", "lies/unnoticed", "float32",
                  "float64", "of CG, Exact", "wrong noticed", "false alarms", "crashes"],
                 [[*head, *(n[column] for column in columns)] for head, n in lines], markdown)  # fmt: skip
    rows = []
    for method in dict.fromkeys(r["method"] for r in records):
        good = _counts(r for r in records if r["method"] == method and kind_of[r["family"]] == "promised")
        bad = _counts(r for r in records if r["method"] == method and r["family"] in NOTICED)
        rows.append([method, good["all"], good["wrong"], good["lie"], good["alarm"], bad["wrong"], bad["lie"]])
    _print_table(["method", "promised", "wrong", "lies", "false alarms", "7 to 10, wrong", "unnoticed"], rows, markdown)
    for dtype in TAU:
        pairs = [(r["estimate"], r["absolute"]) for r in records if r["dtype"] == dtype and not r["crash"]
                 and (kind_of[r["family"]] == "promised" or r["family"] == "7")]  # fmt: skip
        ratios = np.asarray([e / a for e, a in pairs if np.isfinite(e) and np.isfinite(a) and a > 0])
        if ratios.size:
            print(f"{dtype}: info.error / true error: median {np.median(ratios):.3g}, below 1 in "
                  f"{np.mean(ratios < 1):.2%} of {ratios.size}")  # fmt: skip
    for message in sorted({f"{r['family']} {r['method']} {r['dtype']}: {r['crash']}" for r in records if r["crash"]}):
        print("crash:", message)
    lies = sorted((r for r in records if judge(r)["lie"]), key=lambda r: -r["relative"])
    lies.sort(key=lambda r: kind_of[r["family"]] not in ("promised", "beyond"))
    for r in lies[:show]:
        call = ", ".join(repr(r[name]) for name in ("family", "method", "dtype", "seed", "number"))
        print(f"\nexamine({call}): family {FAMILIES[r['family']].name}, {r['note']}\n"
              f"  status {r['status']}, relative error {r['relative']:.3g}, info.error {r['estimate']:.3g}\n"
              f"  value {r['value']}\n  truth {r['truth']}")  # fmt: skip
    few_noticed = noticing["lie"] > 0.05 * noticing["wrong"]
    few_noticed |= beyond["lie"] > 0.05 * beyond["wrong"]
    return int(promised["lie"] > 0 or promised["alarm"] > 0.01 * promised["all"] or few_noticed)


def report_lower(records: list[dict[str, Any]], markdown: bool, show: int) -> int:
    """Prints the table of lower solutions, and lies and refusals; returns the exit code."""
    _print_table(*lower.table(records), markdown)
    for dtype in TAU:
        print(lower.coverage(records, dtype))
    bad = [r for r in records if lower.judge(r)["lie"] or lower.judge(r)["refused"]]
    for r in sorted(bad, key=lambda r: not lower.judge(r)["lie"])[:show]:
        call = ", ".join(repr(r[name]) for name in ("family", "dtype", "seed", "number"))
        print(f"lower.examine({call}): {r['note']}\n  status {r['status']}, distance {r['distance']:.3g}, allowed "
              f"{r['allowed']:.3g}, info.error {r['estimate']:.3g}")  # fmt: skip
    return int(lower.failed(records))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", choices=["hypergradients", "lower"], help="both if left out")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--per-family", type=int, help="instances per family, seed and dtype: 108, of lower levels 20")
    parser.add_argument("--families", nargs="+", choices=[*FAMILIES, *LOWER_FAMILIES], metavar="FAMILY")
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS), metavar="METHOD")
    parser.add_argument("--dtype", choices=list(TAU))
    parser.add_argument("--show", type=int, default=0, metavar="K", help="print the K worst lies of each part")
    parser.add_argument("--markdown", action="store_true")
    parser.add_argument("--json", help="also write the records to this file")
    return parser.parse_args()


def _hunt_both(args: argparse.Namespace) -> list[dict[str, Any]]:
    """The records of both parts. Without --dtype, each dtype runs in a process of its own."""
    if args.dtype is None:
        records = []
        with tempfile.TemporaryDirectory() as folder:
            files = {dtype: os.path.join(folder, dtype) for dtype in TAU}
            command = [sys.executable, *sys.argv, "--dtype"]
            running = [subprocess.Popen([*command, t, "--json", path], stdout=subprocess.DEVNULL)
                       for t, path in files.items()]  # fmt: skip
            if {process.wait() for process in running} - {0, 1}:
                raise SystemExit("one of the two processes failed; see above")
            for path in files.values():
                with open(path) as file:
                    records += json.load(file)
        return records
    jax.config.update("jax_enable_x64", args.dtype == "float64")
    chosen = args.families or [*(FAMILIES if args.part != "lower" else []),
                               *(LOWER_FAMILIES if args.part != "hypergradients" else [])]  # fmt: skip
    upper = [key for key in chosen if key in FAMILIES]
    below = [key for key in chosen if key in LOWER_FAMILIES]
    records = hunt(upper, args.methods, args.dtype, args.seeds, args.per_family or 108)
    jax.clear_caches()  # every program needs memory maps, and Linux allows a process 65,530
    return records + lower.hunt(below, args.dtype, args.seeds, args.per_family or 20)


def main() -> int:
    """Runs the command line; returns the exit code."""
    args = _arguments()
    records = _hunt_both(args)
    if args.json:
        with open(args.json, "w") as file:
            json.dump(records, file)
    print(f"unibio in {os.path.dirname(ub.__file__)}, seeds {args.seeds}\n")
    hypergradients = [r for r in records if r["family"] in FAMILIES]
    solutions = [r for r in records if r["family"] in LOWER_FAMILIES]
    code = report(hypergradients, args.markdown, args.show) if hypergradients else 0
    return max(code, report_lower(solutions, args.markdown, args.show) if solutions else 0)


if __name__ == "__main__":
    sys.exit(main())
