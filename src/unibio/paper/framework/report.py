"""The report: one HTML file without scripts or outside resources, made from the files of the parts alone."""

import base64
import html
import re
from pathlib import Path
from typing import Any
from urllib.parse import quote

from unibio.files.atomic import write_bytes
from unibio.files.tables import Rows
from unibio.paper.framework.parts import Part, read_part
from unibio.paper.framework.study import EXPERIMENTS, Options, load, summary

FIGURES = ("figure.svg", "figure.pdf", "figure.png")
_NUMBER = ' class="number"'


def write_report(out: Path) -> Path:
    """Writes OUT/index.html from the finished parts: the same bytes from the same files."""
    parts: dict[str, Part] = {}
    missing: dict[str, str] = {}
    for name in EXPERIMENTS:
        try:
            if (out / name).is_dir():
                parts[name] = read_part(out / name)
            else:
                missing[name] = "not run yet"
        except ValueError as error:
            missing[name] = str(error)
    sections = [_section(out / name, name, part) for name, part in parts.items()]
    body = [_header(parts, missing), _contents(parts), *sections, _missing(missing)]
    text = _PAGE.replace("<!-- body -->", "\n".join(part for part in body if part))
    write_bytes(out / "index.html", text.encode())
    return out / "index.html"


def _header(parts: dict[str, Part], missing: dict[str, str]) -> str:
    """How many parts, and with what they were made."""
    facts: dict[str, list[str]] = {}
    for part in parts.values():
        options = {"seeds per curve": part.facts["options"]["seeds"], "first seed": part.facts["options"]["seed"]}
        for key, value in {**part.facts["versions"], **options}.items():
            facts.setdefault(key, []).append(str(value))
    rows = "".join(
        f"<div><dt>{_text(key)}</dt><dd>{_text(', '.join(dict.fromkeys(values)))}</dd></div>"
        for key, values in facts.items()
    )
    count = f"{len(parts)} of {len(parts) + len(missing)} experiments are here."
    return f"<p>{_LEAD} {count}</p>\n<dl>{rows}</dl>" if rows else f"<p>{_LEAD} {count}</p>"


def _contents(parts: dict[str, Part]) -> str:
    lines = [f'<li><a href="#{quote(name)}">{_prose(load(name).TITLE)}</a></li>' for name in parts]
    return f"<nav><h2>Contents</h2><ol>{''.join(lines)}</ol></nav>" if lines else ""


def _section(folder: Path, name: str, part: Part) -> str:
    """One experiment: claim, figure, verdict, table, command, files."""
    experiment = load(name)
    described = " ".join((experiment.draw.__doc__ or "").split())
    return "\n".join(
        [
            f'<section id="{quote(name)}">',
            f"<h2>{_prose(experiment.TITLE)}</h2>",
            f"<p><strong>The paper:</strong> {_prose(experiment.PAPER)}</p>",
            _figure(folder, f"{experiment.TITLE}. {described}"),
            f'<p class="verdict"><strong>Here:</strong> {_prose(experiment.verdict(part.tables))}</p>',
            _table(summary(experiment, part.tables)),
            f"<p>Run it again: {_code(command(name, part.facts['options']))}</p>",
            f"<p>Files: {_links(folder, part)}</p>",
            "</section>",
        ]
    )


def command(name: str, options: dict[str, Any]) -> str:
    """The command that makes a part."""
    default = Options()
    words = f"unibio reproduce {name} --out DIR --seeds {options['seeds']}"
    words += f" --seed {options['seed']}" if options["seed"] != default.seed else ""
    words += "".join(f" --set {key}={value}" for key, value in options.get("settings", {}).items())
    return words + (" --full" if options["full"] else "")


def _figure(folder: Path, alt: str) -> str:
    try:
        content = base64.b64encode((folder / FIGURES[0]).read_bytes()).decode()
    except OSError:
        return f"<p>The figure is missing: {_code('unibio reproduce --replot --out DIR')} draws it.</p>"
    image = f'<img alt="{_text(alt)}" src="data:image/svg+xml;base64,{content}">'
    return f'<a href="{quote(folder.name)}/{FIGURES[0]}">{image}</a>'


def _links(folder: Path, part: Part) -> str:
    names = [f"{table}.csv" for table in part.tables]
    names += [figure for figure in FIGURES if (folder / figure).is_file()]
    return ", ".join(f'<a href="{quote(folder.name)}/{quote(name)}">{_text(name)}</a>' for name in names)


def _table(rows: Rows) -> str:
    """A table that scrolls by itself where the page is narrow."""
    if not rows:
        return ""
    head = "".join(
        f'<th scope="col"{_NUMBER if isinstance(value, int | float) else ""}>{_text(key.replace("_", " "))}</th>'
        for key, value in rows[0].items()
    )
    body = "\n".join(f"<tr>{''.join(_cell(value) for value in row.values())}</tr>" for row in rows)
    table = f"<table><thead><tr>{head}</tr></thead>\n<tbody>{body}</tbody></table>"
    return f'<div class="scroll" role="region" aria-label="Table" tabindex="0">{table}</div>'


def _cell(value: Any) -> str:
    if isinstance(value, float):
        value = f"{value:.4g}".replace("-", "−")
    elif not isinstance(value, int):
        return f"<td>{_text(value)}</td>"
    return f"<td{_NUMBER}>{_text(value)}</td>"


def _text(value: Any) -> str:
    return html.escape(str(value))


def _code(text: str) -> str:
    """Words that are not broken at their hyphens."""
    return f"<code>{' '.join(f'<span>{_text(word)}</span>' for word in text.split())}</code>"


def _prose(text: str) -> str:
    """Escaped, with ^{…} and ^(…) raised and _x lowered, as in the paper's formulas."""
    raised = re.sub(r"\^(?:\{([^{}]*)\}|\(([^()]*)\))", r"<sup>\1\2</sup>", _text(text))
    return re.sub(r"_([A-Za-z0-9])\b", r"<sub>\1</sub>", raised)


def _missing(missing: dict[str, str]) -> str:
    if not missing:
        return ""
    lines = [f"<li>{_prose(load(name).TITLE)} ({_code(name)}): {_text(why)}</li>" for name, why in missing.items()]
    return f'<section id="missing"><h2>Missing</h2><ul>{"".join(lines)}</ul></section>'


_LEAD = (
    "The experiments of <cite>Bilevel Optimization with Lower-Level Uniform Convexity</cite> (ICLR 2026), run "
    "again: what the paper claims, what we find, and the numbers."
)
_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; img-src data:; style-src 'unsafe-inline'">
<title>UniBiO: the experiments</title>
<style>
:root { --text: #1b1b1f; --back: #fff; --soft: #f2f3f5; --line: #cfd2d8; --link: #0b57a4; }
@media (prefers-color-scheme: dark) {
  :root { --text: #e6e6e9; --back: #16171a; --soft: #24262b; --line: #45484f; --link: #8ab8f5; }
}
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 62rem; padding: 1rem; font: 1rem/1.5 system-ui, sans-serif; color: var(--text);
  background: var(--back); overflow-wrap: anywhere; }
h1, h2 { line-height: 1.25; }
h2 { margin-top: 2.5rem; }
nav h2 { margin-top: 1.5rem; font-size: 1.1rem; }
a { color: var(--link); }
dl { display: flex; flex-wrap: wrap; gap: .25rem 1.5rem; margin: 1rem 0; }
dl div { display: flex; gap: .4rem; }
dt::after { content: ":"; }
dd { margin: 0; font-weight: 600; }
img { display: block; max-width: 100%; height: auto; margin: 1rem auto; padding: .5rem; background: #fff;
  border-radius: .3rem; }
.verdict { padding: .6rem .9rem; background: var(--soft); border-left: .25rem solid var(--link); }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-size: .9rem; font-variant-numeric: tabular-nums; }
th, td { padding: .2rem .7rem; border-bottom: 1px solid var(--line); text-align: left; white-space: nowrap; }
th.number, td.number { text-align: right; }
code { padding: .1rem .3rem; background: var(--soft); font-size: .9em; }
code span { white-space: nowrap; }
sup, sub { line-height: 0; }
@media print {
  :root { --text: #000; --back: #fff; --soft: #fff; --line: #999; --link: #000; }
  body { max-width: none; padding: 0; font-size: 10pt; }
  .scroll { overflow-x: visible; }
  table { font-size: 8pt; }
  th, td { padding: .1rem .4rem; white-space: normal; }
  img, tr, .verdict { break-inside: avoid; }
  h2, h2 + p { break-after: avoid; }
}
</style>
</head>
<body>
<h1>UniBiO: the experiments</h1>
<!-- body -->
</body>
</html>
"""
