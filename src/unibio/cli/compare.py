"""`unibio compare`: compares solvers on a named problem. It prints a table, and with --out writes tables and a
figure."""

import inspect
import os
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

from unibio.comparison import Comparison, plot
from unibio.comparison import compare as compare_solvers
from unibio.comparison import tune as tune_solver
from unibio.core.checks import nearest
from unibio.distributed import initialise, is_leader
from unibio.distributed import mesh as all_devices
from unibio.files import cache, figures
from unibio.files.atomic import dated, discard
from unibio.files.folders import mark_ours
from unibio.files.store import OURS
from unibio.files.tables import Rows
from unibio.problems import PROBLEMS, Setting
from unibio.run.minimise import minimise
from unibio.solvers import SOLVERS
from unibio.solvers.step_sizes import step_size_fields, step_sizes, stepping

MADE_BY = "unibio compare"
FILES = ("comparison.csv", "timings.csv", "comparison.json", "comparison.svg", "comparison.png")


def compare(
    solvers: Annotated[list[str], typer.Argument(help="Names of solvers (see `unibio list`).")],
    problem: Annotated[str, typer.Option(help="Name of the problem.")] = "example3",
    p: Annotated[float | None, typer.Option(help="Order of uniform convexity, if the problem leaves it open.")] = None,
    steps: Annotated[int | None, typer.Option(min=1, help="Upper steps of each solver (200 without --calls).")] = None,
    calls: Annotated[int | None, typer.Option(min=1, help="Instead of --steps: oracle calls of each solver.")] = None,
    seeds: Annotated[int, typer.Option(min=1, max=2**20, help="How many random seeds.")] = 8,
    upper: Annotated[float, typer.Option(help="Upper step size.")] = 0.1,
    lower: Annotated[float, typer.Option(help="Lower step size.")] = 0.1,
    tune: Annotated[
        bool, typer.Option("--tune", help="Choose both step sizes from 25 pairs, on other seeds than those compared.")
    ] = False,
    out: Annotated[Path | None, typer.Option(help="Folder for comparison.csv, .svg, .png.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue a stopped run from its folder --out.")] = False,
    distributed: Annotated[
        bool, typer.Option("--distributed", help="Spread the seeds over all devices (SLURM, MPI, Kubernetes).")
    ] = False,
) -> None:
    """Compare solvers on a problem: final ‖∇Φ‖ and Φ, oracle calls and seconds."""
    _check_options(steps, calls, out, resume)
    cache.set_up_jax()
    mesh = None
    if distributed:
        initialise()
        mesh = all_devices()
    setting = named_problem(problem, p)
    chosen = {name: named_solver(name, upper, lower) for name in solvers}
    pieces = None if out is None else _opened(out, resume)
    length: dict[str, Any] = {
        "steps": steps if steps or calls else 200, "max_calls": calls, "folder": pieces, "mesh": mesh,
    }  # fmt: skip
    if tune:
        others = range(seeds, seeds + 3)  # other seeds than those of the comparison
        # It is measured often, because a run that oscillates would look good if it were measured only where it is best.
        for name, solver in chosen.items():
            if solver is minimise:
                print("minimise: nothing to tune")
                continue
            best = tune_solver(setting.problem, solver, setting.x, setting.y, seeds=others, measurements=200, **length)
            chosen[name] = best.solver
    found = compare_solvers(setting.problem, chosen, setting.x, setting.y, seeds=range(seeds), **length)
    if not is_leader():
        return
    _print(found, chosen)
    if out is not None:
        _write(found, out)


def _check_options(steps: int | None, calls: int | None, out: Path | None, resume: bool) -> None:
    """Refuses options that exclude each other, or that need one that is missing."""
    if steps is not None and calls is not None:
        raise ValueError("give --steps or --calls, not both.")
    if resume and out is None:
        raise ValueError("--resume continues a stopped run from its folder: name the folder with --out.")


def _opened(out: Path, resume: bool) -> Path:
    """Makes the folder `out`, and returns the folder inside it for the parts of the comparison that are finished.

    Without `resume` parts of an earlier run are deleted.
    """
    figures.style()  # raises now, before anything is computed, if matplotlib is not installed
    pieces = out / ".pieces"
    if is_leader():
        mark_ours(out, MADE_BY)
        if not resume:
            discard(pieces, OURS)
    return pieces


def _write(found: Comparison, out: Path) -> None:
    """Writes the tables and the figure, and deletes the finished parts, which are in the tables now. Files of an
    earlier comparison with other numbers are kept in a folder with the date."""
    files = [out / name for name in FILES if os.path.lexists(out / name)]
    if files and not _is_stored(found, out):
        kept = dated(out / "earlier")
        kept.mkdir()
        for path in files:
            path.rename(kept / path.name)
        print(f"the earlier comparison is kept in {kept}")
    found.save(out)
    discard(out / ".pieces", OURS)
    drawn = figures.with_style(plot.solver_curves, curves(found))
    for kind in ("svg", "png"):
        figures.save(drawn, out / f"comparison.{kind}")
    print(f"written: {out}")


def _is_stored(found: Comparison, out: Path) -> bool:
    """Whether the folder holds this comparison already, apart from the clock."""
    try:
        stored = Comparison.load(out).table
    except ValueError:
        return False
    names = found.table.keys() - {"seconds"}
    return stored.keys() - {"seconds"} == names and all(
        np.array_equal(stored[name], found.table[name], equal_nan=stored[name].dtype.kind == "f") for name in names
    )


def named_problem(name: str, p: float | None) -> Setting:
    """The problem of that name with its start. `p` may be given only where the problem leaves it open."""
    maker = PROBLEMS[nearest(name, PROBLEMS, "problem")]
    if p is None:
        return maker()
    if "p" not in inspect.signature(maker).parameters:
        raise ValueError(f"the problem {name} has its own p: leave --p out.")
    return maker(p=p)


def named_solver(name: str, upper: float, lower: float) -> Any:
    """The solver of that name with these upper and lower step sizes; `minimise` has none."""
    if nearest(name, [*SOLVERS, "minimise"], "solver") == "minimise":
        return minimise
    kind = SOLVERS[name]
    both = "lower_step_size" in step_size_fields(kind)
    return stepping(kind(upper, lower) if both else kind(upper), upper, lower)


def _print(found: Comparison, solvers: dict[str, Any]) -> None:
    """Prints a table with one row for each solver: where its runs ended, as medians over the seeds."""
    table = Table("solver", "step sizes", "‖∇Φ‖", "lowest to highest", "Φ", "calls", "s")
    for name, solver in solvers.items():
        lanes = [found.lane(name, seed) for seed in found.facts["seeds"]]
        ends = {key: np.asarray([lane[key][-1] for lane in lanes]) for key in lanes[0]}
        norms = ends["gradient_norm"]
        lost = int(np.sum(~ends["finite"].astype(bool)))
        table.add_row(
            name,
            "none" if solver is minimise else ", ".join(f"{float(size):g}" for size in step_sizes(solver)),
            f"{np.median(norms):.4g}",
            f"diverged: {lost} of {len(lanes)}" if lost else f"{norms.min():.3g} to {norms.max():.3g}",
            f"{np.median(ends['phi']):.4g}",
            f"{np.median(ends['calls']):.0f}",
            f"{ends['seconds'].sum():.2f}",
        )
    Console().print(table)


def curves(found: Comparison) -> Rows:
    """The curves of the figure: median, lowest and highest ‖∇Φ‖ over the seeds, against the median number of calls."""
    rows: Rows = []
    for name in found.solvers:
        lanes = [found.lane(name, seed) for seed in found.facts["seeds"]]
        calls = np.median([lane["calls"] for lane in lanes], axis=0)
        rows += plot.bands([lane["gradient_norm"] for lane in lanes], {"solver": name}, calls, (0, 1))
    return rows
