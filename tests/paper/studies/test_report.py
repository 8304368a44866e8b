"""The report: self-contained, escaped, the same bytes from the same files, whole in a browser."""

import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

from unibio.paper.framework import report
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
        if tag not in ("meta", "img"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def all(self, tag, attribute):
        return [attributes[attribute] for name, attributes in self.found if name == tag and attribute in attributes]


def test_it_needs_nothing_else(out):
    text = report.write_report(out).read_text()
    page = Page(text)
    assert {tag for tag, _ in page.found}.isdisjoint({"script", "link", "iframe", "object"})
    assert [source[:26] for source in page.all("img", "src")] == ["data:image/svg+xml;base64,"]
    assert "url(" not in text
    assert "@import" not in text
    assert not re.search("https?:", text)
    links = page.all("a", "href")
    assert links[0] == "#schedules"
    assert {link for link in links if not link.startswith("#")} == {
        f"schedules/{name}" for name in ("totals.csv", "figure.svg", "figure.pdf", "figure.png")
    }
    assert all((out / link).is_file() for link in links if not link.startswith("#"))


def test_what_it_says(out):
    text = report.write_report(out).read_text()
    assert schedules.TITLE in text
    assert "Õ(ε<sup>−5p+6</sup>)" in text
    command = "unibio reproduce schedules --out DIR --seeds 3 --seed 5 --full"
    assert command in re.sub("</?span>", "", text)
    assert '<td class="number">52.21</td>' in text  # log10 of the paper's calls at p = 4, to four digits
    assert "1 of 12 experiments" in text
    for name in EXPERIMENTS:
        assert (f"<code><span>{name}</span></code>): not run yet" in text) == (name != "schedules")
    assert Page(text).all("img", "alt")[0].startswith(f"{schedules.TITLE} log10 of the total calls: on")


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
    assert text.count("&lt;script&gt;alert(&quot;1&quot;)&lt;/script&gt;&amp;") == 7  # contents, alt text, …, cell
    assert "−1.235e−07" in text
    Page(text)


def test_damage_is_reported(out, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(out, copy)
    (copy / "schedules" / "figure.svg").unlink()
    assert "The figure is missing" in report.write_report(copy).read_text()
    (copy / "schedules" / "totals.csv").write_text("p\n")
    text = report.write_report(copy).read_text()
    assert "<code><span>schedules</span></code>): totals.csv is damaged" in text
    assert "0 of 12 experiments" in text


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
