"""`unibio reproduce` into a folder: the same bytes twice, and nothing lost by interruptions, damage or mistakes."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
import types
from typing import Any

import pytest

from unibio.files import cache, figures, tables
from unibio.paper.framework import reproduce, study
from unibio.paper.framework.reproduce import Event
from unibio.paper.framework.study import Options
from unibio.paper.studies import schedules
from unibio.run import progress as run_progress

COMMAND = [sys.executable, "-m", "unibio.cli"]


def draw(tables):
    with figures.style():
        made, (axis,) = figures.panels()
    axis.plot([row["value"] for row in tables["numbers"]])
    axis.set_axis_off()  # text takes most of the time
    return made


@pytest.fixture
def fakes(monkeypatch):
    """Three tiny experiments a, b, c instead of ours; `fakes.run[name]` may be replaced, `fakes.ran` says what ran."""
    kit = types.SimpleNamespace(run={}, ran=[])

    def module(name):
        def run(options, progress):
            kit.ran.append(name)
            progress("at work")
            kit.run.get(name, lambda: None)()
            silent.append(run_progress._silent)
            numbers = [{"value": 0.1 * k, "seeds": options.seeds} for k in range(3)]
            return {"numbers": numbers, "seconds": [{"seconds": time.perf_counter()}]}

        made: Any = types.ModuleType(name)
        made.TITLE, made.PAPER, made.run, made.draw = f"Part {name}", "A claim.", run, draw
        made.summary, made.verdict = lambda tables: tables["numbers"], lambda tables: f"{name} is done."
        return made

    silent = kit.silent = []
    monkeypatch.setattr(reproduce, "EXPERIMENTS", dict.fromkeys("abc"))
    monkeypatch.setattr("unibio.paper.framework.report.EXPERIMENTS", dict.fromkeys("abc"))
    modules = {name: module(name) for name in "abc"}
    for place in ("reproduce", "report"):
        monkeypatch.setattr(f"unibio.paper.framework.{place}.load", modules.__getitem__)
    return kit


class Events(list[Event]):
    def __call__(self, event):
        self.append(event)

    def of(self, kind):
        return {event.name: event.text for event in self if event.kind == kind}


def files(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.slow
def test_the_same_bytes_in_another_folder(tmp_path):
    first, second = tmp_path / "one", tmp_path / "deep" / "two"
    verdicts = reproduce.reproduce(["schedules"], first)
    assert reproduce.reproduce(["schedules"], second) == verdicts
    assert "10^{52}" in verdicts["schedules"]
    one, two = files(first), files(second)
    made = {"totals.csv", "result.json", "seconds.json", "figure.svg", "figure.pdf", "figure.png", "figure-narrow.svg"}
    assert set(one) == {f"schedules/{name}" for name in made} | {"unibio.json", "index.html"}
    assert {name for name in one if one[name] != two[name]} <= {"schedules/seconds.json"}
    facts = json.loads(one["schedules/result.json"])
    assert facts["options"] == {"seeds": 64, "seed": 0, "full": False}
    assert set(facts["versions"]) == {"unibio", "jax", "numpy", "python"}


def test_times_are_in_the_files_of_times_alone(tmp_path, fakes):
    for folder in ("one", "two"):
        reproduce.reproduce(["a"], tmp_path / folder)
    one, two = files(tmp_path / "one"), files(tmp_path / "two")
    assert {name for name in one if one[name] != two[name]} == {"a/seconds.csv", "a/seconds.json"}
    assert fakes.silent == [True, True]


def test_a_rerun_continues_after_an_interruption(tmp_path, fakes):
    def interrupt():
        raise KeyboardInterrupt

    fakes.run["b"] = interrupt
    with pytest.raises(KeyboardInterrupt):
        reproduce.reproduce([], tmp_path / "out")
    page = (tmp_path / "out" / "index.html").read_text()
    assert "a is done." in page
    assert "Part b<p>Not run for this page" in page
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["a", "index.html", "unibio.json"]
    before = files(tmp_path / "out" / "a")
    fakes.run.clear()
    events = Events()
    assert list(reproduce.reproduce([], tmp_path / "out", on_event=events)) == ["a", "b", "c"]
    assert fakes.ran == ["a", "b", "b", "c"]
    assert events[0] == Event("unchanged", "a", "a is done.")
    assert files(tmp_path / "out" / "a") == before
    assert events.of("progress")["c"] == "drawing"
    assert events.of("finished") == {"b": "b is done.", "c": "c is done."}


def test_a_part_that_fails_does_not_stop_the_others(tmp_path, fakes):
    def fail():
        raise ArithmeticError("no root")

    fakes.run["a"] = fail
    events = Events()
    with pytest.raises(ArithmeticError, match="no root"):
        reproduce.reproduce([], tmp_path, on_event=events)
    assert events.of("failed") == {"a": "ArithmeticError: no root"}
    assert set(events.of("finished")) == {"b", "c"}
    assert not list(tmp_path.glob(".*"))


DAMAGES = {
    "a changed table": ("numbers.csv", "value,seeds\n1,1\n", "numbers.csv is damaged"),
    "a lost table": ("numbers.csv", None, "numbers.csv is missing"),
    "a changed time": ("seconds.csv", "seconds\n1\n", "seconds.csv is damaged"),
    "no result": ("result.json", None, "result.json is missing"),
    "half a result": ("result.json", '{"sha256": {', "result.json is damaged"),
    "another result": ("result.json", '{"sha256": {"../a": "0"}}', "result.json is damaged"),
    "an empty result": ("result.json", '{"sha256": {}}', "result.json is damaged"),
    "no options": ("result.json", '{"sha256": {"numbers.csv": "0"}, "versions": {}}', "result.json is damaged"),
    "half of the options": (
        "result.json",
        '{"sha256": {"numbers.csv": "0"}, "versions": {}, "options": {"seeds": 3}}',
        "result.json is damaged",
    ),
}


@pytest.mark.parametrize(("name", "content", "why"), DAMAGES.values(), ids=DAMAGES)
@pytest.mark.slow
def test_what_is_damaged_is_redone(tmp_path, fakes, name, content, why):
    reproduce.reproduce(["a", "b"], tmp_path)
    good = files(tmp_path)
    if content is None:
        (tmp_path / "a" / name).unlink()
    else:
        (tmp_path / "a" / name).write_text(content)
    events = Events()
    reproduce.reproduce(["a", "b"], tmp_path, on_event=events)
    assert events.of("redone") == {"a": why}
    assert set(events.of("unchanged")) == {"b"}
    (kept,) = tmp_path.glob("a.2*")  # what somebody has changed may be dear to him
    assert events.of("kept") == {"a": kept.name}
    assert content is None or (kept / name).read_text() == content
    clock = {"a/seconds.csv", "a/seconds.json"}
    found = {key: value for key, value in files(tmp_path).items() if not key.startswith(kept.name)}
    assert {key: value for key, value in found.items() if key not in clock} == {
        key: value for key, value in good.items() if key not in clock
    }


def test_other_options_or_another_version_are_another_part(tmp_path, fakes):
    reproduce.reproduce(["a"], tmp_path)
    events = Events()
    reproduce.reproduce(["a"], tmp_path, Options(seeds=3), on_event=events)
    assert events.of("redone") == {"a": "made with seeds 64, not 3"}
    path = tmp_path / "a" / "result.json"
    facts = json.loads(path.read_text())
    facts["versions"]["unibio"] = "0.0.1"
    path.write_text(json.dumps(facts))
    reproduce.reproduce(["a"], tmp_path, Options(seeds=3), on_event=events)
    assert events.of("redone")["a"].startswith("made with version 0.0.1, not ")


def test_a_rerun_loses_neither_notes_nor_results(tmp_path, fakes):
    """Other seeds: the user's files stay in the folder of the part, and the earlier result is kept beside it."""
    reproduce.reproduce(["a"], tmp_path)
    before = files(tmp_path / "a")
    (tmp_path / "a" / "notes.txt").write_text("mine")
    (tmp_path / "a" / "mine.csv").write_text("mine too")
    (tmp_path / "a" / "drafts").mkdir()
    (tmp_path / "a" / "drafts" / "one.txt").write_text("mine as well")
    (tmp_path / ".a.pieces").mkdir()
    (tmp_path / ".a.pieces" / "notes.txt").write_text("even here")
    events = Events()
    reproduce.reproduce(["a"], tmp_path, Options(seeds=3), on_event=events)
    (kept,) = tmp_path.glob("a.2*")
    assert files(kept) == before
    assert events.of("kept") == {"a": kept.name}
    now = files(tmp_path / "a")
    assert now["notes.txt"] == b"mine"
    assert now["mine.csv"] == b"mine too"
    assert now["drafts/one.txt"] == b"mine as well"
    assert b"seeds" in now["numbers.csv"]
    assert (tmp_path / ".a.pieces" / "notes.txt").read_text() == "even here"
    reproduce.reproduce(["a"], tmp_path, Options(seeds=3))  # nothing to do, nothing to keep
    assert len(list(tmp_path.glob("a.2*"))) == 1


def test_a_link_under_the_name_of_a_part_is_set_aside(tmp_path, fakes):
    elsewhere, out = tmp_path / "elsewhere", tmp_path / "out"
    elsewhere.mkdir()
    (elsewhere / "thesis.tex").write_text("mine")
    reproduce.reproduce(["b"], out)
    (out / "a").symlink_to(elsewhere)
    (out / ".a.tmp").symlink_to(elsewhere)
    reproduce.reproduce(["a"], out)
    assert files(elsewhere) == {"thesis.tex": b"mine"}
    assert not (out / "a").is_symlink()
    assert (out / "a" / "numbers.csv").is_file()


FORGED = {
    "another table": {"other": [{"value": 1.0}]},
    "other columns": {"totals": [{"x": 1.0}]},
    "texts": {"totals": [{"p": "a", "epsilon": "b", "analysis": "c", "log10_total": "d"}]},
}


@pytest.mark.parametrize("table", FORGED.values(), ids=FORGED)
def test_a_part_with_tables_of_something_else_is_damaged(tmp_path, table):
    """Every checksum is right, but these are not the tables of this experiment."""
    reproduce.reproduce(["schedules"], tmp_path)
    path = tmp_path / "schedules" / "result.json"
    facts = json.loads(path.read_text())
    del facts["sha256"]
    tables.write(path, facts, table)
    events = Events()
    assert reproduce.replot(tmp_path, events) == {}
    assert "result.json is damaged: these are not the tables of schedules" in events.of("failed")["schedules"]
    assert "these are not the tables" in (tmp_path / "index.html").read_text()
    done = subprocess.run([*COMMAND, "reproduce", "--replot", "--out", str(tmp_path)], capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].startswith("unibio: not drawn: schedules (result.json is damaged")


def test_a_lost_figure_is_drawn_without_a_run(tmp_path, fakes):
    reproduce.reproduce(["a"], tmp_path)
    before = (tmp_path / "a" / "figure.png").read_bytes()
    (tmp_path / "a" / "figure.png").unlink()
    reproduce.reproduce(["a"], tmp_path)
    assert fakes.ran == ["a"]
    assert (tmp_path / "a" / "figure.png").read_bytes() == before


@pytest.mark.parametrize("marker", [None, "{", '{"made_by": "unibio reproduce", "format": 99}', "[]"])
def test_a_foreign_folder_is_not_touched(tmp_path, marker):
    (tmp_path / "thesis.tex").write_text("mine")
    if marker is not None:
        (tmp_path / "unibio.json").write_text(marker)
    before = files(tmp_path)
    with pytest.raises(ValueError, match="nothing was written there"):
        reproduce.reproduce(["schedules"], tmp_path)
    assert files(tmp_path) == before


def test_folders_that_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match="is a file; choose a folder"):
        reproduce.reproduce(["schedules"], tmp_path / "file")
    with pytest.raises(OSError, match=r"cannot write into .*: Not a directory"):
        reproduce.reproduce(["schedules"], tmp_path / "file" / "out")


BAD = {
    "name": ({"names": ["shedules"]}, "no experiment 'shedules'. Did you mean 'schedules'?"),
    "seeds": ({"options": Options(seeds=0)}, "seeds must be ≥ 1"),
    "seed": ({"options": Options(seed=-1)}, "seed must be ≥ 0"),
    "large seed": ({"options": Options(seed=2**32)}, "seed must be ≤ 2147483647"),
    "jobs": ({"jobs": 0}, "jobs must be ≥ 1"),
}


@pytest.mark.parametrize(("arguments", "message"), BAD.values(), ids=BAD)
def test_bad_arguments(tmp_path, arguments, message):
    with pytest.raises(ValueError, match=message.replace("?", r"\?")):
        reproduce.reproduce(**{"names": ["schedules"], "out": tmp_path / "out"} | arguments)
    assert not (tmp_path / "out").exists()


def test_without_matplotlib_nothing_is_computed(tmp_path, monkeypatch):
    for module in ("matplotlib", "matplotlib.style"):
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ValueError, match=r"pip install 'unibio\[plot\]'"):
        reproduce.reproduce(["schedules"], tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_replot_needs_the_files_alone(tmp_path, monkeypatch):
    reproduce.reproduce(["schedules"], tmp_path)
    before = files(tmp_path)
    monkeypatch.setattr(schedules, "run", None)
    for name in ("figure.svg", "figure.pdf", "figure.png", "figure-narrow.svg"):
        (tmp_path / "schedules" / name).unlink()
    (tmp_path / "index.html").unlink()
    assert list(reproduce.replot(tmp_path)) == ["schedules"]
    assert files(tmp_path) == before
    (tmp_path / "schedules" / "totals.csv").write_text("p\n")
    events = Events()
    assert reproduce.replot(tmp_path, events) == {}
    assert events == [Event("failed", "schedules", "totals.csv is damaged")]
    with pytest.raises(ValueError, match="there is nothing to draw"):
        reproduce.replot(tmp_path / "schedules")


@pytest.mark.slow
def test_processes_give_the_same_bytes(tmp_path):
    reproduce.reproduce(["schedules"], tmp_path / "here")
    (tmp_path / "there").mkdir()
    events = Events()
    assert asyncio.run(reproduce._in_processes(tmp_path / "there", ["schedules"], Options(jobs=2), events)) == []
    assert events.of("progress") == {"schedules": "drawing"}
    assert set(events.of("started")) == set(events.of("finished")) == {"schedules"}
    table = "schedules/totals.csv"
    assert (tmp_path / "there" / table).read_bytes() == (tmp_path / "here" / table).read_bytes()


def test_a_part_whose_process_dies_or_fails(tmp_path, monkeypatch):
    """The others go on; what became of it is said in a sentence."""
    (tmp_path / "out").mkdir()
    words = {"dies": "import os; os.kill(os.getpid(), 9)", "fails": """print('["failed", "ValueError: no root"]')"""}
    words |= {"ends": """print('["progress", "at work"]'); print('["finished", "It is done."]')"""}
    monkeypatch.setattr(reproduce, "child", lambda out, name, options: [sys.executable, "-c", words[name]])
    events = Events()
    errors = asyncio.run(reproduce._in_processes(tmp_path, list(words), Options(jobs=2), events))
    assert events.of("failed")["fails"] == "ValueError: no root"
    assert events.of("failed")["dies"].startswith("its process died, perhaps for lack of memory")
    assert (events.of("progress"), events.of("finished")) == ({"ends": "at work"}, {"ends": "It is done."})
    assert sorted(str(error).split(":")[0] for error in errors) == ["dies", "fails"]


def test_every_experiment_has_a_cost():
    assert set(reproduce.COSTS) == set(study.EXPERIMENTS)


def environment(tmp_path):
    return os.environ | {"XDG_CACHE_HOME": str(tmp_path / "cache"), "COLUMNS": "200"}


def run(tmp_path, *words):
    return subprocess.run(
        [*COMMAND, *words], capture_output=True, text=True, timeout=300, env=environment(tmp_path), cwd=tmp_path
    )


@pytest.mark.slow
def test_interrupted_processes(tmp_path):
    # What starts these tests may have made its processes ignore SIGINT, as a shell does for jobs in the background.
    listens = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
    command = [sys.executable, "-c", f"{listens}; from unibio.cli import main; main()"]
    words = [*command, "reproduce", "rates", "lp-cleaning", "--jobs", "2", "--out", "out"]
    with subprocess.Popen(
        words, stderr=subprocess.PIPE, text=True, env=environment(tmp_path), cwd=tmp_path, start_new_session=True
    ) as process:
        assert process.stderr is not None
        first = process.stderr.readline()
        assert first.endswith(": started\n")
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does, to all of its group
        rest = process.stderr.read()
        assert process.wait(60) == 130, rest
    assert rest.endswith("stopped; 0 of 2 parts are finished, run the same command to continue\n")
    assert "Traceback" not in rest
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["index.html", "unibio.json"]


@pytest.mark.slow
def test_the_command_line(tmp_path):
    done = run(tmp_path, "reproduce", "schedules", "--out", "out")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[0].startswith("schedules: The main theorem asks for far more calls")
    assert done.stdout.splitlines()[-1] == "report: out/index.html"
    assert "schedules: finished (1 of 1)" in done.stderr
    bad = run(tmp_path, "reproduce", "shedules")
    assert bad.returncode == 2
    assert bad.stderr.startswith("unibio: no experiment 'shedules'. Did you mean 'schedules'?")
    assert len(bad.stderr.splitlines()) == 1


def test_the_list(tmp_path):
    found = run(tmp_path, "list")
    assert found.returncode == 0, found.stderr
    for words in (
        "noise-placement",
        "coupled_example3",
        "BO-REP",
        "strongly convex quadratic",
        "claims of the paper",
        "momentum_lag",
    ):
        assert words in found.stdout


@pytest.mark.slow
def test_compare(tmp_path):
    words = ("compare", "UniBiO", "SOBA", "--problem", "quadratic", "--steps", "3", "--seeds", "2", "--out", "out")
    found = run(tmp_path, *words)
    assert found.returncode == 0, found.stderr
    assert "0.1, 0.1" in found.stdout
    header, *rows = (tmp_path / "out" / "comparison.csv").read_text().splitlines()
    assert header.startswith("solver,seed,step")
    assert len(rows) == 2 * 2 * 4  # the start and three steps
    assert "</svg>" in (tmp_path / "out" / "comparison.svg").read_text()
    assert any((tmp_path / "cache" / "unibio" / "jax").iterdir())


def test_an_earlier_comparison_is_kept(tmp_path):
    """Another problem into the same folder; the same once more changes nothing but the clock."""
    words = ("compare", "SOBA", "--steps", "3", "--seeds", "2", "--out", "out")
    first = run(tmp_path, *words, "--problem", "quadratic")
    assert first.returncode == 0, first.stderr
    out = tmp_path / "out"
    (out / "notes.txt").write_text("mine")
    before = files(out)
    again = run(tmp_path, *words, "--problem", "quadratic")
    assert "kept" not in again.stdout
    other = run(tmp_path, *words)
    (kept,) = out.glob("earlier.*")
    assert f"the earlier comparison is kept in out/{kept.name}" in other.stdout.replace("\n", "")
    ours = {"comparison.csv", "comparison.svg", "comparison.png"}
    assert {name: files(kept)[name] for name in ours} == {name: before[name] for name in ours}
    assert (out / "notes.txt").read_text() == "mine"
    assert (out / "comparison.csv").read_bytes() != before["comparison.csv"]


WRONG = {
    "seeds": (["SOBA", "--seeds", "99999999999999999999"], "1048576"),
    "solver": (["SOBBA"], "no solver 'SOBBA'. Did you mean 'SOBA'?"),
    "problem": (["SOBA", "--problem", "quadrat"], "no problem 'quadrat'. Did you mean 'quadratic'?"),
    "p": (["SOBA", "--problem", "quadratic", "--p", "4"], "the problem quadratic has its own p"),
    "length": (["SOBA", "--steps", "1", "--calls", "1"], "give --steps or --calls, not both"),
    "folder": (["SOBA", "--out", "."], "nothing was written there"),
}


@pytest.mark.parametrize(("words", "message"), WRONG.values(), ids=WRONG)
def test_wrong_comparisons(tmp_path, monkeypatch, capsys, words, message):
    from unibio import cli

    (tmp_path / "thesis.tex").write_text("mine")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(cache, "set_up_jax", lambda: None)
    monkeypatch.setattr(sys, "argv", ["unibio", "compare", *words])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 2
    error = capsys.readouterr().err
    assert message in error
    if "--seeds" not in words:  # which typer refuses
        assert error.startswith("unibio: ")
        assert len(error.splitlines()) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]
