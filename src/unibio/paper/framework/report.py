"""Writes the report of `unibio reproduce`: one HTML file without scripts or outside resources."""

import base64
import functools
import html
import io
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

from unibio.core import show
from unibio.files import figures
from unibio.files.atomic import write_bytes
from unibio.files.tables import Row, Rows, Tables
from unibio.paper.framework import front, picture
from unibio.paper.framework.parts import FIGURES, NARROW, read_part
from unibio.paper.framework.study import (
    BY_NAME,
    EXPERIMENTS,
    Experiment,
    Options,
    Outcome,
    answer,
    load,
    outcome,
    summary,
)

Made = TypeVar("Made")
NOT_RUN = "Not run for this page, so that its claim is not checked here."
VISIBLE = 8  # rows of a table; the others are folded
_PAGE = Path(__file__).with_name("report.html")  # the page around the parts, with what a reader must know before them
# What the columns of the tables mean.
_TERMS = {
    "mean": "the mean of ‖∇Φ‖ over all steps",
    "last_50": "the mean of ‖∇Φ‖ over the last 50 steps: how close the run comes",
    "slope": "the slope of the running mean of ‖∇Φ‖ by t on logarithmic axes; with −0.5 it falls like t^{−0.5}",
    "first_hit": "the first step t at which ‖∇Φ‖ is below twice the step size η",
    "eta": "the step size η",
    "lower_steps": "the steps of the lower level in one refresh of y",
    "seconds": "of one run, without compilation",
    "lower_error_first_20": "the mean of ‖y_t − y*(x_t)‖ over the first 20 steps",
    "calls": "samples on which a gradient or a product was computed",
    "theory": "what the theorem says",
    "low": "the lower end of the 99 % interval of the slope",
    "high": "the upper end of it",
    "train_noisy": "the accuracy on the training labels, wrong ones included",
    "train_true": "the accuracy on the true labels of the training samples",
    "test": "the test accuracy at the end",
    "test_stopped": "the test accuracy after the epoch with the best accuracy on tuning samples",
    "auroc_weights": "the chance that a wrong sample has a lower weight than a right one",
}


def read_study(folder: Path) -> tuple[Row, Tables, str]:
    """The facts and tables of the study that the folder is named after, and its verdict. Raises a ValueError also if
    the files are whole but hold the tables of something else."""
    facts, tables = read_part(folder)
    experiment = load(folder.name)
    for other in (summary, outcome):
        using(folder.name, functools.partial(other, experiment), tables)
    return facts, tables, using(folder.name, experiment.verdict, tables)


def using(name: str, make: Callable[[Tables], Made], tables: Tables) -> Made:
    """What `make` makes of the tables of a study. If these are not the ones it expects, a ValueError says so."""
    try:
        return make(tables)
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        raise ValueError(f"result.json is damaged: these are not the tables of {name}") from error


def write_report(out: Path) -> Path:
    """Writes OUT/index.html from the files of the finished parts. The same files give the same bytes."""
    parts: dict[str, tuple[Row, Tables, str]] = {}
    missing: dict[str, str] = {}
    for name in EXPERIMENTS:
        try:
            if (out / name).is_dir():
                parts[name] = read_study(out / name)
            else:
                missing[name] = NOT_RUN
        except ValueError as error:
            missing[name] = f"Its files cannot be used: {error}."
    page = _PAGE.read_text(encoding="utf-8")
    body = [_section(out / name, *part) for name, part in parts.items()]
    found = {name: tables for name, (_, tables, _) in parts.items()}
    claims = {f"claim {number}": _linked(text) for number, text in enumerate(front.claims(found), start=1)}
    advice = {f"advice {number}": _linked(text) for number, text in enumerate(front.advice(found), start=1)}
    texts = (
        claims
        | advice
        | {
            "boxes": _boxes({name: (tables, verdict) for name, (_, tables, verdict) in parts.items()}, missing),
            "picture": _picture(),
            "body": "\n".join([*body, _versions([facts for facts, _, _ in parts.values()])]),
        }
    )
    for place, text in texts.items():
        page = page.replace(f"<!-- {place} -->", text)
    write_bytes(out / "index.html", page.encode())
    return out / "index.html"


def _boxes(parts: dict[str, tuple[Tables, str]], missing: dict[str, str]) -> str:
    """One box for each experiment: what it says of the paper's claim, and one sentence; for one that is missing, the
    command that runs it."""
    boxes, counts = [], dict.fromkeys(Outcome, 0)
    for name in EXPERIMENTS:
        title = _prose(load(name).TITLE)
        if name in missing:
            get = _code(f"unibio reproduce {name} --out DIR")
            boxes.append(
                f'<li class="missing"><span class="outcome">missing</span> · {title}<p>{_text(missing[name])} {get} '
                f"{BY_NAME.get(name, 'runs it')}.</p></li>"
            )
            continue
        tables, verdict = parts[name]
        result = outcome(load(name), tables)
        counts[result] += 1
        sentence = _prose(answer(verdict)[0])
        boxes.append(
            f'<li class="{result.name}"><span class="outcome">{result}</span> · <a href="#{quote(name)}">{title}</a>'
            f"<p>{sentence}</p></li>"
        )
    ours = counts.pop(Outcome.ours)
    says = [f"{count} {result}" for result, count in counts.items() if count]
    says += [f"{show.quantity(ours, 'question')} of our own"] if ours else []
    listed = ": " * bool(says) + " and ".join(filter(None, [", ".join(says[:-1]), *says[-1:]]))
    return (
        f"<h2>What we find</h2>\n<p>{len(parts)} of {len(EXPERIMENTS)} experiments are here{listed}. "
        "<em>Confirmed</em>: the runs agree with the claim; an upper bound also counts when the runs stay below it. "
        "<em>Corrected</em>: it is true under another condition. <em>Refuted</em>: the runs contradict it. "
        "<em>Our own question</em>: the paper makes no claim that could be "
        f'checked.</p>\n<ul class="boxes">{"".join(boxes)}</ul>'
    )


def _picture() -> str:
    images = []
    for narrow in (False, True):
        file = io.BytesIO()
        figures.write(figures.with_style(picture.draw, narrow=narrow), file)
        images.append(file.getvalue())
    return f"<h2>Example 3, on which most runs are made</h2>\n{_images(images[0], images[1], picture.DESCRIPTION)}"


def _versions(parts: list[Row]) -> str:
    """The versions that the experiments were made with."""
    made: dict[str, list[str]] = {}
    for facts in parts:
        for key, value in {**facts["versions"], "first seed": facts["options"]["seed"]}.items():
            made.setdefault(key, []).append(str(value))
    text = "; ".join(f"{key} {', '.join(dict.fromkeys(values))}" for key, values in made.items())
    return f"<h2>Made with</h2>\n<p>{_text(text)}.</p>" if made else ""


def _section(folder: Path, facts: Row, tables: Tables, verdict: str) -> str:
    """One experiment: its question, what the paper claims, the verdict, the figure, the numbers, the command, and links
    to the files."""
    name = folder.name
    experiment = load(name)
    result = outcome(experiment, tables)
    first, rest = answer(verdict)
    return f"""<section id="{quote(name)}">
<h2>{_prose(experiment.TITLE)}</h2>
<p><strong>The paper:</strong> {_prose(experiment.PAPER)}</p>
<p class="verdict {result.name}"><span class="outcome">{result.capitalize()}.</span> <strong>{_prose(first)}</strong>
{_prose(rest)}</p>
{_figure(folder, " ".join((experiment.draw.__doc__ or experiment.TITLE).split()))}
{_numbers(experiment, tables)}
<p>{_seeds(tables)}Run it again: {_code(command(name, facts["options"]))}. Files: {_links(folder, tables)}</p>
</section>"""


def _seeds(tables: Tables) -> str:
    """How many runs stand behind a curve or a number."""
    counts = sorted({row["seeds"] for rows in tables.values() if "seeds" in rows[0] for row in rows})
    if not counts:
        return ""
    if counts == [1]:
        return "Runs per curve: 1, because nothing is random. "
    text = " or ".join(f"{count}" for count in counts if count > 1)
    return f"Runs (seeds) per curve: {text}{', and 1 where nothing is random' if 1 in counts else ''}. "


def command(name: str, options: dict[str, Any]) -> str:
    """The command that runs the experiment again with these options."""
    words = f"unibio reproduce {name} --out DIR"
    words += f" --seeds {options['seeds']}" if options["seeds"] != Options().seeds else ""
    words += f" --seed {options['seed']}" if options["seed"] != Options().seed else ""
    words += "".join(f" --set {key}={value}" for key, value in options.get("settings", {}).items())
    return words + (" --full" if options["full"] else "")


def _figure(folder: Path, described: str) -> str:
    try:
        wide, narrow = ((folder / name).read_bytes() for name in (FIGURES[0], NARROW))
    except OSError:
        return f"<p>The figure is missing: {_code('unibio reproduce --replot --out DIR')} draws it.</p>"
    return _images(wide, narrow, described)


def _images(wide: bytes, narrow: bytes, described: str) -> str:
    """A figure with its caption. Windows of less than 900 pixels show the narrow form."""
    sources = [f"data:image/svg+xml;base64,{base64.b64encode(content).decode()}" for content in (wide, narrow)]
    return (
        f'<figure><picture><source media="screen and (max-width: 900px)" srcset="{sources[1]}">'
        f'<img alt="{_text(described)}" src="{sources[0]}"></picture>'
        f"<figcaption>{_prose(described)}</figcaption></figure>"
    )


def _links(folder: Path, tables: Tables) -> str:
    names = [f"{table}.csv" for table in tables]
    names += [figure for figure in (*FIGURES, NARROW) if (folder / figure).is_file()]
    return ", ".join(f'<a href="{quote(folder.name)}/{quote(name)}">{_text(name)}</a>' for name in names)


def _numbers(experiment: Experiment, tables: Tables) -> str:
    """The table that the report shows, at most eight rows of it open, and what its columns mean."""
    rows = summary(experiment, tables)
    said = _TERMS | getattr(experiment, "TERMS", {})
    caption = " ".join((getattr(getattr(experiment, "summary", None), "__doc__", None) or "").split())
    known = [(key, said[key]) for key in rows[0] if key in said]
    meant = "".join(f"<dt>{_heading(key)}</dt><dd>{_prose(text)}</dd>" for key, text in known)
    shown = [_table(rows[:VISIBLE], caption)]
    if len(rows) > VISIBLE:
        count = show.quantity(len(rows) - VISIBLE, "more row")
        shown.append(f"<details><summary>{count}</summary>{_table(rows[VISIBLE:])}</details>")
    if meant:
        shown.append(f'<dl class="terms">{meant}</dl>')
    return "\n".join(shown)


def _table(rows: Rows, title: str = "") -> str:
    """A table in a box of its own, which scrolls sideways if the page is too narrow for it."""
    head = "".join(f'<th scope="col"{_class(value)}>{_heading(key)}</th>' for key, value in rows[0].items())
    body = "\n".join(f"<tr>{''.join(_cell(value) for value in row.values())}</tr>" for row in rows)
    named = f'<p class="caption">{_prose(title)}</p>\n' if title else ""
    table = f"<table><thead><tr>{head}</tr></thead>\n<tbody>{body}</tbody></table>"
    return f'{named}<div class="scroll" role="region" aria-label="Table" tabindex="0">{table}</div>'


def _heading(key: str) -> str:
    return _text(key.replace("_", " "))


def _cell(value: object) -> str:
    if isinstance(value, float):
        digits, _, power = (f"{value:.1e}" if 0 < abs(value) < 1e-4 else f"{value:.3g}").partition("e")
        value = (f"{digits}·10^{{{int(power)}}}" if power else digits).replace("-", "−")
        return f'<td class="number">{_prose(value)}</td>'
    return f"<td{_class(value)}>{_prose(str(value))}</td>"


def _class(value: object) -> str:
    return ' class="number"' if isinstance(value, int | float) else ""


def _text(value: object) -> str:
    return html.escape(str(value))


def _code(text: str) -> str:
    """Text as code, in which no line is broken at a hyphen inside a word."""
    return f"<code>{' '.join(f'<span>{_text(word)}</span>' for word in text.split())}</code>"


def _linked(text: str) -> str:
    """`_prose` in which [text](#name) becomes a link to a part of the page."""
    return re.sub(r"\[([^\]]*)\]\((#[\w-]+)\)", r'<a href="\2">\1</a>', _prose(text))


def _prose(text: str) -> str:
    """Escaped text in which ^{…} and ^(…) become superscripts and _x a subscript, as in formulas, the sign
    of a number is a minus, and no line is broken at =."""
    raised = re.sub(r"\^(?:\{([^{}]*)\}|\(([^()]*)\))", r"<sup>\1\2</sup>", _text(text))
    lowered = re.sub(r"_([A-Za-z0-9]|10)\b", r"<sub>\1</sub>", raised)
    joined = re.sub(r" ([=≤]) ", "\N{NO-BREAK SPACE}\\1\N{NO-BREAK SPACE}", lowered)
    return re.sub(r"(?<![\w.,-])-(?=\d)", "−", joined)
