"""What each rule of `ub.minimise` is worth: the method without it, on the development problems and random instances.

    python benchmarks/minimise_ablation.py [RULE …] [--problems] [--statuses 4] [--out FILE]

A rule is taken out by replacing lines of `quasi_newton.py` and `newton_cg.py` in `unibio/solvers`, so that what is
measured is the program itself. `--problems`: passes over the data until the gap Φ̂ − min Φ is 1e-3 of its start, and
until `ok` at 1e-6, on the problems of `minimise_problems.py`. `--statuses K`: K instances of each family of
`scripts/honesty_minimise.py`: false statuses and problems left unsolved. Lines of JSON go to `--out`, finished ones are
skipped.
"""

import argparse
import inspect
import json
import sys
import types
import warnings
from pathlib import Path
from typing import Any

import jax
import numpy as np

import unibio as ub
import unibio.run.minimise
from minimise_problems import DEVELOPMENT
from unibio.core import oracle
from unibio.solvers import newton_cg, quasi_newton

sys.path.append(str(Path(__file__).resolve().parents[1] / "scripts"))
import honesty_minimise as honesty

jax.config.update("jax_enable_x64", True)

# Rule → lines of either module and what takes their place.
public: Any = unibio.run.minimise

RULES: dict[str, list[tuple[str, str]]] = {
    "all rules": [],
    "one memory for all CG": [
        (
            "        most = min(self.none.size + 11",
            "        self.pairs = curvature.empty(PAIRS, self.none.size, self.none.dtype)\n"
            "        most = min(self.none.size + 11",
        )
    ],
    "first step where r is linear": [
        ("        for _ in range(30):\n            then =", "        for _ in ():\n            then =")
    ],
    "its value used again": [("self.ahead = now  # where", "self.ahead = None  # where")],
    "trust in x": [
        ("        step = c.step\n        if fails:", "        step = math.inf\n        if False:"),
        ("step = max(step, 4 * moved)", "pass"),
    ],
    "error of Φ̂ tested": [("if error <= 0.1 * max(predicted, self.rounding):", "if True:")],
    "trapezoid": [("tightness = max(c.tightness / 4, 1e-4) if rough", "tightness = c.tightness if True")],
    "off singular points": [
        ("for distance in (1e-4, 1e-3, 1e-2, 1e-1):", "gone, floor = self.none != 0, 0.0\n        for distance in ():")
    ],
    "start until h is right": [("not self.assess() > 0.1 * self.c.norm", "True")],
    "radius in y": [("dtype.type(tightness), dtype.type(radius),", "dtype.type(tightness), dtype.type(math.inf),")],
    "y near y*(x)": [("if not reached or near or not there:", "if True:")],
    "refine after refusals": [("if c.refined == 6:", "if True:")],
    "confirm the end": [
        (
            "            defect = self.settle(0.1, 0.1)\n            if defect is not None:\n                return",
            "            return Status.ok\n            if defect is not None:\n                return",
        )
    ],
    "rounding of Φ": [("return predicted <= self.rounding", "return False")],
    "rounding of g": [("drowned = abs(slope) <= 500 * self.eps * abs(low.g)", "drowned = False")],
    "Φ̂ before the multiplier": [("if low.concave or not phi <= limit:", "if low.concave:")],
}


def without(rule):
    """The method without a rule. What is unchanged stays the same object, so that no program compiles again."""
    clones: dict[Any, Any] = {}
    used = 0
    for original in (newton_cg, quasi_newton):
        source = inspect.getsource(original)
        for old, new in RULES[rule]:
            used += source.count(old)
            source = source.replace(old, new)
        name = f"{original.__name__} without {rule}"
        module = sys.modules[name] = types.ModuleType(name)
        exec(compile(source, name, "exec"), module.__dict__)
        for name, value in vars(original).items():
            mine = isinstance(value, (type, types.FunctionType)) and value.__module__ == original.__name__
            if mine and name not in ("Lower", "_Step", "QuasiNewton"):
                assert inspect.getsource(value) in source, name
                setattr(module, name, value)
        clones[original] = module
    assert used == len(RULES[rule]), rule
    clones[quasi_newton].Lower = clones[newton_cg].Lower
    return clones[quasi_newton].QuasiNewton


def solved(make, least):
    """Passes to a gap of 1e-3 and to the end, and the status."""
    problem, x, y = make()[:3]
    whole = [sampler.whole() for sampler in (problem.f_batches, problem.g_batches)]
    samples = np.asarray([oracle.samples(whole[0])] + [oracle.samples(whole[1])] * 3)
    result = ub.minimise(problem, x, y, max_calls=int(4000 * samples.max()))
    history = result.history
    passes = sum(np.asarray(history[name]) / s for name, s in zip(result.calls._fields, samples, strict=True))
    least = result.phi if least is None else least
    near = np.flatnonzero(history["phi"] - least <= 1e-3 * (history["phi"][0] - least))
    total = float(sum(c / s for c, s in zip(result.calls, samples, strict=True)))
    return {"to 1e-3": float(passes[near[0]]) if near.size else None, "in all": total, "status": result.status.name,
            "phi": result.phi}  # fmt: skip


def statuses(family, count, dtype):
    """How many of some random instances are false, unsolved, and the calls of all."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        records = [honesty.examine(family, dtype, 7, number) for number in range(count)]
    verdicts = [{"false": True, "unsolved": True} if r["crash"] else honesty.judge(r) for r in records]
    return {"runs": count, **{word: sum(v[word] for v in verdicts) for word in ("false", "unsolved")},
            "calls": sum(r.get("calls", 0) for r in records)}  # fmt: skip


def main():
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rules", nargs="*", metavar="RULE")
    parser.add_argument("--problems", action="store_true")
    parser.add_argument("--statuses", type=int, default=0)
    parser.add_argument("--dtype", default="float64")
    parser.add_argument("--out", type=Path, default=Path("ablation.jsonl"))
    options = parser.parse_args()
    done = [json.loads(line) for line in options.out.read_text().splitlines()] if options.out.exists() else []
    seen = {(line["rule"], line["on"]): line for line in done}
    on = [*(DEVELOPMENT if options.problems else []), *(honesty.FAMILIES if options.statuses else [])]
    methods = {rule: without(rule) for rule in (options.rules or RULES)}
    for name in on:
        for rule, method in methods.items():
            if (rule, name) in seen:
                continue
            public.QuasiNewton = method
            if name in DEVELOPMENT:
                base = seen.get(("all rules", name))
                line = solved(DEVELOPMENT[name], base and base["phi"])
            else:
                line = statuses(name, options.statuses, options.dtype)
            seen[rule, name] = line = {"rule": rule, "on": name, **line}
            with options.out.open("a") as file:
                file.write(json.dumps(line, ensure_ascii=False) + "\n")
    print(f"{'without':54s} {'to 1e-3':>8s} {'in all':>8s} {'ok':>6s} {'false':>6s} {'unsolved':>8s} {'calls':>8s}")
    for rule in methods:
        mine = [(line, seen["all rules", name]) for (r, name), line in seen.items() if r == rule and name in on]
        both = [(line, base) for line, base in mine if "phi" in line and line["status"] == base["status"] == "ok"]
        ratios = [np.exp(np.mean([np.log(line[key] / base[key]) for line, base in both if line[key] and base[key]]))
                  if both else np.nan for key in ("to 1e-3", "in all")]  # fmt: skip
        count = [sum(line.get(key, 0) for line, _ in mine) for key in ("false", "unsolved", "calls")]
        ok = sum(line.get("status") == "ok" for line, _ in mine)
        print(f"{rule:54s} {ratios[0]:8.2f} {ratios[1]:8.2f} {ok:6d} {count[0]:6d} {count[1]:8d} {count[2]:8d}")


if __name__ == "__main__":
    main()
