"""`unibio data`: downloads a data set of the paper's experiments."""

import os
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import DownloadColumn, Progress, TimeRemainingColumn


def data(
    name: Annotated[str, typer.Argument(help="Name of the data set: snli.")],
    out: Annotated[Path | None, typer.Option(help="Folder (default: $UNIBIO_DATA_DIR/snli, or ./data/snli).")] = None,
) -> None:
    """Download a data set and check it. An interrupted download is resumed."""
    from unibio.paper.data import download, snli

    if name != "snli":
        raise ValueError(f"there is no data set {name!r}; the only one is snli.")
    folder = out or Path(os.environ.get("UNIBIO_DATA_DIR") or "data") / "snli"
    with Progress(*Progress.get_default_columns()[:2], DownloadColumn(), TimeRemainingColumn(),
                  console=Console(stderr=True), transient=True) as bar:  # fmt: skip
        task = bar.add_task("snli_1.0.zip", total=None)
        download.fetch(download.SNLI, folder, lambda done, total: bar.update(task, completed=done, total=total or None))
    for split in snli.SPLITS:
        pairs = snli.read(folder, split)
        left = ", ".join(f"{count:,} with {reason}" for reason, count in pairs.skipped.items() if count)
        print(f"{split}: {len(pairs.labels):,} pairs{f' (left out: {left})' if left else ''}")
    print(f"the data set is in {folder}")
