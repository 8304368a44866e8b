"""`unibio compare`: any solvers on a named problem, as a table, and if wanted as files."""

import inspect
import shutil
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

from unibio.comparison import Comparison, plot
from unibio.comparison import compare as run
from unibio.comparison import tune as tuned
from unibio.core.checks import nearest
from unibio.distributed import initialise, is_leader
from unibio.distributed import mesh as all_devices
from unibio.files import cache
from unibio.files.folders import mark_ours
from unibio.files.tables import Rows
from unibio.problems import PROBLEMS, Setting
from unibio.solvers import SOLVERS
from unibio.solvers.step_sizes import step_size_fields, step_sizes, stepping

MADE_BY = "unibio compare"


def compare(
    solvers: Annotated[list[str], typer.Argument(help="Names of solvers (see `unibio list`).")],
    problem: Annotated[str, typer.Option(help="Name of the problem.")] = "example3",
    p: Annotated[float | None, typer.Option(help="Order of uniform convexity, if the problem leaves it open.")] = None,
    steps: Annotated[int | None, typer.Option(min=1, help="Upper steps of each; 200 if no calls are given.")] = None,
    calls: Annotated[int | None, typer.Option(min=1, help="Instead of steps: oracle calls of each.")] = None,
    seeds: Annotated[int, typer.Option(min=1, help="How many seeds.")] = 8,
    upper: Annotated[float, typer.Option(help="Upper step size.")] = 0.1,
    lower: Annotated[float, typer.Option(help="Lower step size.")] = 0.1,
    tune: Annotated[bool, typer.Option("--tune", help="Choose both from 25 pairs, on other seeds.")] = False,
    out: Annotated[Path | None, typer.Option(help="Folder for comparison.csv, .svg, .png.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on from what a stopped run left in --out.")] = False,
    distributed: Annotated[
        bool, typer.Option("--distributed", help="Seeds over all devices of all processes (SLURM, MPI, Kubernetes).")
    ] = False,
) -> None:
    """Compare solvers on a problem: final ‖∇Φ‖, Φ, oracle calls and seconds."""
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
        others = range(seeds, seeds + 3)  # on which nothing is compared
        # Measured often: a run that goes in circles must not look good because it is only seen at its best.
        for name, solver in chosen.items():
            best = tuned(setting.problem, solver, setting.x, setting.y, seeds=others, measurements=200, **length)
            chosen[name] = best.solver
    found = run(setting.problem, chosen, setting.x, setting.y, seeds=range(seeds), **length)
    if not is_leader():
        return
    _print(found, chosen)
    if out is not None:
        _write(found, out)


def _check_options(steps: int | None, calls: int | None, out: Path | None, resume: bool) -> None:
    """Options that exclude or need each other."""
    if steps is not None and calls is not None:
        raise ValueError("give --steps or --calls, not both.")
    if resume and out is None:
        raise ValueError("--resume goes on from the folder of the stopped run: name it by --out.")


def _opened(out: Path, resume: bool) -> Path:
    """Makes the folder ours, and names the one inside for what is finished of a comparison until all of it is."""
    plot.style()  # without matplotlib, say so before computing
    pieces = out / ".pieces"
    if is_leader():
        mark_ours(out, MADE_BY)
        if not resume:
            shutil.rmtree(pieces, ignore_errors=True)
    return pieces


def _write(found: Comparison, out: Path) -> None:
    """The tables and the figure."""
    found.save(out)
    shutil.rmtree(out / ".pieces", ignore_errors=True)
    drawn = plot.with_style(plot.solver_curves, curves(found))
    for kind in ("svg", "png"):
        plot.save(drawn, out / f"comparison.{kind}")
    print(f"written: {out}")


def named_problem(name: str, p: float | None) -> Setting:
    """The problem of that name with its start; p only where it has one to choose."""
    maker = PROBLEMS[nearest(name, PROBLEMS, "problem")]
    if p is None:
        return maker()
    if "p" not in inspect.signature(maker).parameters:
        raise ValueError(f"the problem {name} has its own p; leave --p out.")
    return maker(p=p)


def named_solver(name: str, upper: float, lower: float) -> Any:
    """The solver of that name with these step sizes."""
    kind = SOLVERS[nearest(name, SOLVERS, "solver")]
    both = "lower_step_size" in step_size_fields(kind)
    return stepping(kind(upper, lower) if both else kind(upper), upper, lower)


def _print(found: Comparison, solvers: dict[str, Any]) -> None:
    """One row for each solver, at the end of its runs."""
    table = Table("solver", "step sizes", "‖∇Φ‖", "lowest to highest", "Φ", "calls", "s")
    for name, solver in solvers.items():
        lanes = [found.lane(name, seed) for seed in found.facts["seeds"]]
        ends = {key: np.asarray([lane[key][-1] for lane in lanes]) for key in lanes[0]}
        norms = ends["gradient_norm"]
        lost = int(np.sum(~ends["finite"].astype(bool)))
        table.add_row(
            name,
            ", ".join(f"{float(size):g}" for size in step_sizes(solver)),
            f"{np.median(norms):.4g}",
            f"diverged: {lost} of {len(lanes)}" if lost else f"{norms.min():.3g} to {norms.max():.3g}",
            f"{np.median(ends['phi']):.4g}",
            f"{np.median(ends['calls']):.0f}",
            f"{ends['seconds'].sum():.2f}",
        )
    Console().print(table)


def curves(found: Comparison) -> Rows:
    """Median and range of ‖∇Φ‖ over the seeds at the median calls of each measurement."""
    rows: Rows = []
    for name in found.solvers:
        lanes = [found.lane(name, seed) for seed in found.facts["seeds"]]
        calls = np.median([lane["calls"] for lane in lanes], axis=0)
        rows += plot.bands([lane["gradient_norm"] for lane in lanes], {"solver": name}, calls, (0, 1))
    return rows
