"""Writes the report of `unibio reproduce`: one HTML file without scripts or outside resources."""

import base64
import html
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

from unibio.files.atomic import write_bytes
from unibio.files.tables import Row, Rows, Tables
from unibio.paper.framework.parts import FIGURES as FIGURES
from unibio.paper.framework.parts import read_part
from unibio.paper.framework.study import EXPERIMENTS, Options, load, summary

Made = TypeVar("Made")
_PAGE = Path(__file__).with_name("report.html")  # the page around the sections


def read_study(folder: Path) -> tuple[Row, Tables, str]:
    """The facts and tables of the study that the folder is named after, and its verdict. Raises a ValueError also if
    the files are whole but hold the tables of something else."""
    facts, tables = read_part(folder)
    experiment = load(folder.name)
    using(folder.name, lambda tables: summary(experiment, tables), tables)
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
                missing[name] = "not run yet"
        except ValueError as error:
            missing[name] = str(error)
    sections = [_section(out / name, *part) for name, part in parts.items()]
    made = [facts for facts, _, _ in parts.values()]
    body = [_header(made, len(missing)), _contents(parts), *sections, _missing(missing)]
    page = _PAGE.read_text(encoding="utf-8")
    text = page.replace("<!-- body -->", "\n".join(part for part in body if part))
    write_bytes(out / "index.html", text.encode())
    return out / "index.html"


def _header(parts: list[Row], missing: int) -> str:
    """How many experiments are there, and the versions and seeds they were made with."""
    made: dict[str, list[str]] = {}
    for facts in parts:
        options = {"seeds per curve": facts["options"]["seeds"], "first seed": facts["options"]["seed"]}
        for key, value in {**facts["versions"], **options}.items():
            made.setdefault(key, []).append(str(value))
    rows = "".join(
        f"<div><dt>{_text(key)}</dt><dd>{_text(', '.join(dict.fromkeys(values)))}</dd></div>"
        for key, values in made.items()
    )
    return f"<p>{len(parts)} of {len(parts) + missing} experiments are here.</p>\n<dl>{rows}</dl>"


def _contents(parts: Iterable[str]) -> str:
    lines = [f'<li><a href="#{quote(name)}">{_prose(load(name).TITLE)}</a></li>' for name in parts]
    return f"<nav><h2>Contents</h2><ol>{''.join(lines)}</ol></nav>" if lines else ""


def _section(folder: Path, facts: Row, tables: Tables, verdict: str) -> str:
    """One experiment: what the paper claims, the figure, the verdict, a table, the command, and links to the files."""
    name = folder.name
    experiment = load(name)
    described = " ".join((experiment.draw.__doc__ or "").split())
    return f"""<section id="{quote(name)}">
<h2>{_prose(experiment.TITLE)}</h2>
<p><strong>The paper:</strong> {_prose(experiment.PAPER)}</p>
{_figure(folder, f"{experiment.TITLE} {described}")}
<p class="verdict"><strong>Here:</strong> {_prose(verdict)}</p>
{_table(summary(experiment, tables))}
<p>Run it again: {_code(command(name, facts["options"]))}</p>
<p>Files: {_links(folder, tables)}</p>
</section>"""


def command(name: str, options: dict[str, Any]) -> str:
    """The command that runs the experiment again with these options."""
    words = f"unibio reproduce {name} --out DIR --seeds {options['seeds']}"
    words += f" --seed {options['seed']}" if options["seed"] != Options().seed else ""
    words += "".join(f" --set {key}={value}" for key, value in options.get("settings", {}).items())
    return words + (" --full" if options["full"] else "")


def _figure(folder: Path, alt: str) -> str:
    try:
        content = base64.b64encode((folder / FIGURES[0]).read_bytes()).decode()
    except OSError:
        return f"<p>The figure is missing: {_code('unibio reproduce --replot --out DIR')} draws it.</p>"
    image = f'<img alt="{_text(alt)}" src="data:image/svg+xml;base64,{content}">'
    return f'<a href="{quote(folder.name)}/{FIGURES[0]}">{image}</a>'


def _links(folder: Path, tables: Tables) -> str:
    names = [f"{table}.csv" for table in tables]
    names += [figure for figure in FIGURES if (folder / figure).is_file()]
    return ", ".join(f'<a href="{quote(folder.name)}/{quote(name)}">{_text(name)}</a>' for name in names)


def _table(rows: Rows) -> str:
    """A table in a box of its own, which scrolls sideways if the page is too narrow for it."""
    head = "".join(
        f'<th scope="col"{_class(value)}>{_text(key.replace("_", " "))}</th>' for key, value in rows[0].items()
    )
    body = "\n".join(f"<tr>{''.join(_cell(value) for value in row.values())}</tr>" for row in rows)
    table = f"<table><thead><tr>{head}</tr></thead>\n<tbody>{body}</tbody></table>"
    return f'<div class="scroll" role="region" aria-label="Table" tabindex="0">{table}</div>'


def _cell(value: Any) -> str:
    shown = f"{value:.4g}".replace("-", "−") if isinstance(value, float) else value
    return f"<td{_class(value)}>{_text(shown)}</td>"


def _class(value: Any) -> str:
    return ' class="number"' if isinstance(value, int | float) else ""


def _text(value: Any) -> str:
    return html.escape(str(value))


def _code(text: str) -> str:
    """Text as code, in which no line is broken at a hyphen inside a word."""
    return f"<code>{' '.join(f'<span>{_text(word)}</span>' for word in text.split())}</code>"


def _prose(text: str) -> str:
    """Escaped text in which ^{…} and ^(…) become superscripts and _x a subscript, as in formulas."""
    raised = re.sub(r"\^(?:\{([^{}]*)\}|\(([^()]*)\))", r"<sup>\1\2</sup>", _text(text))
    return re.sub(r"_([A-Za-z0-9])\b", r"<sub>\1</sub>", raised)


def _missing(missing: dict[str, str]) -> str:
    if not missing:
        return ""
    lines = [f"<li>{_prose(load(name).TITLE)} ({_code(name)}): {_text(why)}</li>" for name, why in missing.items()]
    return f'<section id="missing"><h2>Missing</h2><ul>{"".join(lines)}</ul></section>'
