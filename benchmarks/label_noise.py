"""HyperCleaner against other ways to learn from noisy labels, on tables.

    python benchmarks/label_noise.py run --out FOLDER [--sets wine pima] [--noise 0.2 0.4] [--seeds 0-9] [--part 0/2]
    python benchmarks/label_noise.py tables --out FOLDER        # prints all tables, and draws a figure
    python benchmarks/label_noise.py pack --out FOLDER --file cells.csv  # all cells of the folder in one file
    python benchmarks/label_noise.py ablation --out FOLDER [options of run]  # the recipe without one of its parts
    python benchmarks/label_noise.py scale                      # seconds and memory, 12,500 to 100,000 rows

A cell is a data set, a kind of noise, its rate, a number of trusted rows and a seed. Each cell is one file in FOLDER,
written when it is complete, so that a run can be stopped at any time and goes on where it was; cells in a packed file
there count as well. The seeds are the outermost loop: after any time, all settings have about the same number of them.

All methods use the same base model (multinomial logistic regression, four penalties, the same five folds) and choose
among the same penalties by cross-validation; those with trusted rows by the log-loss on these, the others by that on
the noisy ones. On the set `digits (network)` the base model is a network with one hidden layer, stopped after 4, 12 or
36 passes. 40 % of the rows (at most 4,000) are the test set, at most 2,000 others the training set, of which some
are trusted. Data sets that do not come with scikit-learn are read from the folder in the variable UNIBIO_DATA_DIR.

    seconds     of one core (CPU time)
    ours ahead by   mean over the settings of the mean over the seeds, ± standard error over the settings (over seeds)
    AUROC, AP   of the suspicion, against which training labels are really wrong (untrusted rows)
    accuracy    on the test set, of the model after cleaning

noisy_labels/statistics.py says what the two standard errors are.
"""

import argparse
import dataclasses
import itertools
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

from noisy_labels import cells, figure, pages
from noisy_labels.ablation import VARIANTS, variant
from noisy_labels.data import DESIGN, FURTHER, HELD_OUT, RATES, Cell, Task
from noisy_labels.methods import METHODS, OURS, Answer
from unibio.files import tables

BEGIN, END = "<!-- tables: begin -->", "<!-- tables: end -->"
Methods = Mapping[str, Callable[[Task], Answer]]


def run(options: argparse.Namespace, methods: Methods = METHODS) -> None:
    folder = Path(options.out)
    first, last = (int(number) for number in options.seeds.split("-"))
    part, parts = (int(number) for number in options.part.split("/"))
    wanted = list(cells.planned(options.sets, options.noise, options.trusted, list(range(first, last + 1))))
    packed = {tuple(cell[key] for key in cells.KEYS) for cell in cells.read(folder)}

    def done(cell: Cell) -> bool:
        return dataclasses.astuple(cell) in packed or (folder / cell.name).exists()

    ended = time.monotonic() + options.minutes * 60
    for number, cell in enumerate(wanted):
        if number % parts != part or done(cell):
            continue
        if time.monotonic() > ended:
            break
        measured = cells.measure(cell, methods)
        tables.write_json(folder / cell.name, dataclasses.asdict(cell) | {"methods": measured})
    print(f"{sum(map(done, wanted))} of {len(wanted)} cells are complete.")


def ablation(options: argparse.Namespace) -> None:
    """Runs the variants on the cells, and prints the tables of all cells in the folder."""
    methods = {OURS: METHODS[OURS], **{name: variant(name) for name in VARIANTS}}
    run(options, methods)
    print(pages.ablation(cells.read(Path(options.out)), list(methods)))


def show(options: argparse.Namespace) -> None:
    everything = cells.read(Path(options.out))
    print(pages.everything(everything))
    if options.page:
        page = Path(options.page)
        before, after = page.read_text("utf-8").split(BEGIN)[0], page.read_text("utf-8").split(END)[1]
        page.write_text(f"{before}{BEGIN}\n{pages.summary(everything)}\n{END}{after}", "utf-8")
    figure.draw(pages.held_out(everything), Path(options.figure or Path(options.out) / "label_noise.png"))


def pack(options: argparse.Namespace) -> None:
    count = cells.pack(Path(options.out), Path(options.file))
    print(f"{count} cells are in {options.file}.")


def scale_one(rows: int, method: str) -> None:
    """One fit in this process; prints its seconds and the memory of the process."""
    random = np.random.default_rng(0)
    X, W = random.normal(size=(rows, 100)), 0.5 * random.normal(size=(100, 10))
    y = (X @ W + random.gumbel(size=(rows, 10))).argmax(axis=1)
    noisy = np.where(random.random(rows) < 0.2, random.integers(0, 10, rows), y)
    if method == "HyperCleaner":
        from unibio.sklearn import HyperCleaner

        trusted = np.arange(rows) < 200
        began, used = time.perf_counter(), time.process_time()
        HyperCleaner(random_state=0).fit(X, np.where(trusted, y, noisy), trusted=trusted)
    else:
        from cleanlab.classification import CleanLearning
        from sklearn.linear_model import LogisticRegression

        began, used = time.perf_counter(), time.process_time()
        CleanLearning(LogisticRegression(max_iter=1000)).fit(X, noisy)
    seconds, memory = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"{method:13s} {rows:7d} rows: {seconds:6.1f} s ({time.process_time() - used:.1f} s of CPU), {memory:.2f} GB")


def scale(options: argparse.Namespace) -> None:
    if options.rows:
        scale_one(options.rows, options.method)
        return
    for rows, method in itertools.product((12_500, 25_000, 50_000, 100_000), ("HyperCleaner", "cleanlab")):
        subprocess.run([sys.executable, __file__, "scale", "--rows", str(rows), "--method", method], check=True)


def options_of_run(one: argparse.ArgumentParser) -> None:
    one.add_argument("--sets", nargs="+", default=[*HELD_OUT, *DESIGN, *FURTHER])
    one.add_argument("--noise", nargs="+", type=float, default=list(RATES))
    one.add_argument("--trusted", nargs="+", type=int, default=[0, 1, 2], help="levels: 0 none, 1 fifty, 2 two hundred")
    one.add_argument("--seeds", default="0-9")
    one.add_argument("--part", default="0/1", help="this process's share of the cells, for several at a time")
    one.add_argument("--minutes", type=float, default=1e6, help="no new cell is begun after that")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    for name, call in {"run": run, "tables": show, "pack": pack, "ablation": ablation, "scale": scale}.items():
        one = commands.add_parser(name)
        one.set_defaults(call=call)
        if name != "scale":
            one.add_argument("--out", default="label_noise", help="the folder of the cells")
        if name in ("run", "ablation"):
            options_of_run(one)
        elif name == "tables":
            one.add_argument("--page", help="a page to write the tables into, between its marks")
            one.add_argument("--figure", help="where to draw; default: in the folder")
        elif name == "pack":
            one.add_argument("--file", required=True)
        else:
            one.add_argument("--rows", type=int, default=0)
            one.add_argument("--method", default="HyperCleaner")
    options = parser.parse_args()
    options.call(options)


if __name__ == "__main__":
    main()
