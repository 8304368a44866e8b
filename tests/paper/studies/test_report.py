"""The report: self-contained, escaped, the same bytes from the same files, whole in a browser."""

import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

from unibio.files import figures
from unibio.paper.framework import picture, report
from unibio.paper.framework.reproduce import reproduce
from unibio.paper.framework.study import EXPERIMENTS, Options
from unibio.paper.studies import schedules

CHECK = Path(__file__).parents[3] / "scripts" / "check_report.py"
CHROMIUM = next((name for name in ("chromium", "chromium-browser", "google-chrome") if shutil.which(name)), None)


@pytest.fixture(scope="module")
def out(tmp_path_factory):
    folder = tmp_path_factory.mktemp("results") / "out"
    reproduce(["schedules"], folder, Options(seeds=3, seed=5, full=True))
    return folder


class Page(HTMLParser):
    """Attributes of every tag; a tag that is not closed is an error."""

    def __init__(self, text):
        super().__init__()
        self.open: list[str] = []
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)
        assert not self.open

    def handle_starttag(self, tag, attributes):
        self.found.append((tag, dict(attributes)))
        if tag not in ("meta", "img", "source"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def all(self, tag, attribute):
        return [attributes[attribute] for name, attributes in self.found if name == tag and attribute in attributes]


def test_it_needs_nothing_else(out):
    text = report.write_report(out).read_text()
    page = Page(text)
    assert {tag for tag, _ in page.found}.isdisjoint({"script", "link", "iframe", "object"})
    images = [*page.all("img", "src"), *page.all("source", "srcset")]
    assert {source[:26] for source in images} == {"data:image/svg+xml;base64,"}
    assert len(set(images)) == 4  # Example 3 and the figure, each in two layouts
    assert "url(" not in text
    assert "@import" not in text
    assert not re.search("https?:", text)
    links = page.all("a", "href")
    assert links[0] == "#schedules"  # of its box: no claim can be answered from this part alone
    assert {link for link in links if not link.startswith("#")} == {
        f"schedules/{name}" for name in ("totals.csv", "figure.svg", "figure.pdf", "figure.png", "figure-narrow.svg")
    }
    assert all((out / link).is_file() for link in links if not link.startswith("#"))


def test_what_it_says(out):
    text = report.write_report(out).read_text()
    assert schedules.TITLE in text
    assert "Õ(ε<sup>−5p+6</sup>)" in text
    command = "unibio reproduce schedules --out DIR --seeds 3 --seed 5 --full"
    assert command in re.sub("</?span>", "", text)
    assert '<td class="number">52.2</td>' in text  # log10 of the paper's calls at p = 4, to three digits
    assert f"1 of {len(EXPERIMENTS)} experiments are here: 1 question of our own." in text
    for name in EXPERIMENTS:
        how = f"{report.NOT_RUN} {report._code(f'unibio reproduce {name} --out DIR')} runs"
        assert (how in text) == (name != "schedules")
    assert Page(text).all("img", "alt")[1].startswith("The total calls as a power of 10: first against")


def test_the_same_bytes(out):
    first = report.write_report(out).read_bytes()
    assert report.write_report(out).read_bytes() == first


def test_text_is_escaped(out, monkeypatch):
    bad = '<script>alert("1")</script>&'
    monkeypatch.setattr(schedules, "TITLE", bad)
    monkeypatch.setattr(schedules, "PAPER", bad)
    monkeypatch.setattr(schedules, "verdict", lambda tables: bad)
    monkeypatch.setattr(schedules, "summary", lambda tables: [{bad: bad, "number": -1.23456e-7}])
    text = report.write_report(out).read_text()
    assert "<script" not in text
    assert text.count("&lt;script&gt;alert(&quot;1&quot;)&lt;/script&gt;&amp;") == 7  # twice title and verdict, …, cell
    assert "−1.2·10<sup>−7</sup>" in text
    Page(text)


def test_damage_is_reported(out, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(out, copy)
    (copy / "schedules" / "figure.svg").unlink()
    assert "The figure is missing" in report.write_report(copy).read_text()
    (copy / "schedules" / "totals.csv").write_text("p\n")
    text = report.write_report(copy).read_text()
    assert "Its files cannot be used: totals.csv is damaged." in text
    assert f"0 of {len(EXPERIMENTS)} experiments" in text


def test_long_tables_are_folded_and_columns_explained(out, monkeypatch):
    rows = [{"case": f"row {i}", "last_50": 0.5} for i in range(11)]
    monkeypatch.setattr(schedules, "summary", lambda tables: rows)
    monkeypatch.setattr(schedules, "verdict", lambda tables: "It is so.")
    text = report.write_report(out).read_text()
    seen, folded = text.split("<details>")
    assert "<summary>3 more rows</summary>" in folded
    assert ("row 7<" in seen, "row 8<" in seen, "row 8<" in folded) == (True, False, True)
    assert "<dt>last 50</dt><dd>the mean of ‖∇Φ‖ over the last 50 steps" in text


def test_the_number_of_runs_is_that_of_the_tables():
    def said(*counts):
        return report._seeds({"curves": [{"t": 1}], "statistics": [{"seeds": count} for count in counts]})

    assert report._seeds({"curves": [{"t": 1}]}) == ""
    assert said(1, 1) == "Runs per curve: 1, because nothing is random. "
    assert said(64, 1) == "Runs (seeds) per curve: 64, and 1 where nothing is random. "
    assert said(24, 16) == "Runs (seeds) per curve: 16 or 24. "


def test_numbers_in_cells():
    shown = [report._cell(value).removesuffix("</td>").rpartition(">")[2] for value in (0.0, -0.12345, float("nan"), 7)]
    assert shown == ["0", "−0.123", "nan", "7"]
    assert report._cell(float("inf")) == '<td class="number">inf</td>'
    assert "2.5·10<sup>−5</sup>" in report._cell(2.5e-5)


def test_text_in_formulas_and_numbers():
    assert report._prose("∇_y F, T^{-1} at p = 4 from -0.5 to 1-2") == (
        "∇<sub>y</sub> F, T<sup>−1</sup> at p\N{NO-BREAK SPACE}=\N{NO-BREAK SPACE}4 from −0.5 to 1-2"
    )


@pytest.mark.parametrize("draw", [picture.draw, lambda: schedules.draw(schedules.run(Options(), lambda text: None))])
def test_a_phone_shows_every_panel_at_its_own_size(draw):
    """At 96 pixels an inch the narrow layout fits into 390 pixels, and no text is smaller than 11 pixels."""
    from matplotlib.text import Text

    wide, narrow = (figures.with_style(draw, narrow=phone) for phone in (False, True))
    assert len(wide.axes) == len(narrow.axes) > 1
    assert 96 * narrow.get_figwidth() < 390 - 2 * 16
    assert len({axis.get_position().x0 for axis in wide.axes}) == len(wide.axes)
    assert len({axis.get_position().y0 for axis in narrow.axes}) == len(narrow.axes)
    sizes = [float(text.get_fontsize()) for text in narrow.findobj(Text) if text.get_text()]
    assert min(sizes) * 96 / 72 >= 11
    assert all(axis.get_xlabel() and axis.get_ylabel() for axis in narrow.axes)


def check(folder, *words):
    return subprocess.run([sys.executable, CHECK, folder, *words], capture_output=True, text=True, timeout=120)


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium")
def test_in_a_browser(out, tmp_path):
    report.write_report(out)
    good = check(out, "--screenshots", tmp_path)
    assert good.returncode == 0, good.stdout + good.stderr
    assert len(list(tmp_path.glob("*.png"))) == 4
    (tmp_path / "index.html").write_text(
        '<img alt="broken" src="data:image/png;base64,AAAA"><div style="width: 2000px">wide</div>'
        '<script>console.error("oh")</script>'
    )
    bad = check(tmp_path)
    assert bad.returncode == 1
    for fault in ("390 px, light: image not drawn: broken", "console: ", "1200 px, dark: 2008 pixels wide"):
        assert fault in bad.stdout
