"""Draws the cases for `fuzz_cli.py`: command lines of unibio, and files they read, with something wrong in them."""

import hashlib
import json
import os
import pathlib
import shutil
from typing import Any, NamedTuple

import numpy as np

NAMES = ["", " ", "nonsense", "ünïcødé", "🦊", "../x", "-", "--", "a" * 5000, "\udcff", "UNIBIO", "noise\n", "%s",
         "[red]x[/]"]  # fmt: skip
NUMBERS = ["", "nan", "inf", "-inf", "1e400", "-1", "0", "abc", "1,2", "١٢", "1e-400", "0x10", "99999999999999999999",
           "1_0", "½", "--", " 3", "1e300", "1e-300", "-0.0", "2.5", "True"]  # fmt: skip
# None of these makes a run long.
SMALL = ["", "nan", "-1", "0", "abc", "1e3", "2.5", "½", "--", "inf", "-99999999999999999999"]
SETS = ["hidden", "hidden=", "=3", "hidden=abc", "hidden=1.5", "nope=1", "p=1", "p=", "p=nan", "p=3,x", "noise=2",
        "noise=-1", "noise=nan", "epochs=0", "epochs=-3", "train=0", "train=-5", "curve=0", "curve=1.5", "seeds=0",
        "data=", "data=nowhere", "data=../foreign", "seed=3", "test=-1", "validation=x", "tuning=0", "p=inf", "noise=",
        "hidden=0"]  # fmt: skip
CONSTANTS = {"p": 4, "mu": 0.3, "mu_J": 1.0, "C": 1.0, "L0": 3.0, "L1": 3.0, "l_g1": 1.0, "l_g2": 1.0, "l_f0": 1.0,
             "l_f1": 4.0, "delta_phi": 1.7, "sigma_f": 1.0, "sigma_g1": 1.0}  # fmt: skip
VALUES = [None, "4", -1, 0, 1e308, 1e-308, 1e999, True, [4], {"a": 1}, 10**400, "", 1e-320]


BELOW_0 = {"", "nan", "inf", "-inf", "1e400", "-1", "abc", "1,2", "0x10", "½", "--", "True"}
NOT_ABOVE_0 = BELOW_0 | {"0", "-0.0", "1e-400"}
WRONG = {  # which of NUMBERS an option cannot be
    "--p": NOT_ABOVE_0 | {"1e-300"}, "--epsilon": NOT_ABOVE_0, "--delta": NOT_ABOVE_0 | {"1e300", "3", "2.5"},
    "--dim": NOT_ABOVE_0 | {"1e300", "1e-300", "2.5", "0.1"}, "--noise": BELOW_0, "--upper": NOT_ABOVE_0,
    "--lower": NOT_ABOVE_0,
}  # fmt: skip


class Case(NamedTuple):
    """A command line, the paths it may write to, a note on the file that was damaged for it, the files that must be as
    they are even where it may write, and whether the command line is nonsense, so that exit code 0 is wrong."""

    argv: list[str]
    outputs: list[pathlib.Path]
    damage: str = ""
    keep: tuple[pathlib.Path, ...] = ()
    refuse: bool = False


def case(rng: Any, folder: pathlib.Path) -> Case:
    """A random case. Files it needs are made in `folder`, where out/ holds the results of `unibio reproduce
    schedules`."""
    makers = [(theory, 6), (constants, 5), (compare, 5), (names, 4), (settings, 4), (outputs, 4), (damaged, 8),
              (sentences, 5), (vectors, 4), (others, 4), (forged, 5), (reruns, 6), (comparisons, 4)]  # fmt: skip
    weights = np.asarray([weight for _, weight in makers], float)
    maker = makers[int(rng.choice(len(makers), p=weights / weights.sum()))][0]
    return maker(rng, folder)


def any_of(rng: Any, choices: Any) -> Any:
    """One of the choices at random."""
    return choices[int(rng.integers(len(choices)))]


def theory(rng: Any, folder: pathlib.Path) -> Case:
    """`unibio theory` with impossible numbers, or with a figure that cannot be written."""
    words = ["theory", *([any_of(rng, ["example1", "example3", "example4", *NAMES])] if rng.random() < 0.4 else [])]
    refuse = any(word in NAMES for word in words)
    for name in rng.permutation(["--p", "--dim", "--epsilon", "--delta", "--noise"])[: int(rng.integers(1, 4))]:
        value = any_of(rng, [*NUMBERS, "3", "0.1"])
        words += [str(name), value]
        refuse |= value in WRONG[str(name)]
    plots = ["x.svg", "x.gif", "", ".", "nowhere/x.svg", "../foreign", "../foreign/precious.txt/x.svg",
             "a" * 300 + ".svg", "\udcff.png"]  # fmt: skip
    where = any_of(rng, plots)
    words += ["--plot", where] if rng.random() < 0.2 else []
    writes = [folder / "cwd" / where] if where.endswith("g") and len(where) < 20 else []
    return Case(words, writes, refuse=refuse and "--" not in words)


def constants(rng: Any, folder: pathlib.Path) -> Case:
    """`unibio theory --constants FILE` where values, structure or bytes of the file are wrong."""
    path = folder / "foreign" / "constants.json"
    values: Any = dict(CONSTANTS)
    for _ in range(int(rng.integers(1, 3))):
        name = any_of(rng, [*values, "nope", "m"])
        if rng.random() < 0.25:
            values.pop(name, None)
        else:
            values[name] = any_of(rng, VALUES)
    text = any_of(
        rng, [json.dumps(values)] * 5 + ["", "[]", "null", "3", "[" * 100_000, '{"p": NaN}', "{" * 9, '"' * 3, "{}"]
    )
    content = mutated(rng, text.encode()) if rng.random() < 0.3 else text.encode()
    path.write_bytes(content)
    target = any_of(rng, [str(path)] * 12 + ["", ".", "nowhere.json", str(path / "x")])
    return Case(
        ["theory", "--constants", target, *([] if rng.random() < 0.8 else ["--p", "3"])], [], repr(content[:400])
    )


def compare(rng: Any, folder: pathlib.Path) -> Case:
    """A small `unibio compare` with one or two wrong options."""
    options = {"--problem": "example3", "--steps": "2", "--seeds": "1", "--upper": "0.1", "--lower": "0.1"}
    solvers = ["SOBA"] if rng.random() < 0.7 else [any_of(rng, [*NAMES, "soba", "UniBi"])]
    refuse = solvers != ["SOBA"]
    for name in rng.permutation([*options, "--p", "--calls"])[: int(rng.integers(1, 3))]:
        wrong = {
            "--problem": [*NAMES, "quadratik"],
            "--steps": SMALL,
            "--calls": SMALL,
            "--seeds": [*SMALL, "99999999999", "99999999999999999999"],
        }
        options[str(name)] = value = any_of(rng, wrong.get(str(name), NUMBERS))
        refuse |= str(name) in wrong or value in WRONG[str(name)]
    words = ["compare", *solvers, *(word for pair in options.items() for word in pair)]
    out = folder / "cwd" / "compared"
    words += ["--out", "compared"] if rng.random() < 0.15 else []
    return Case(words, [out], refuse=refuse and "--" not in words)


def names(rng: Any, folder: pathlib.Path) -> Case:
    """`unibio reproduce` with an unknown experiment or an option that is not a valid number."""
    large = "99999999999999999999"
    options = {"--seeds": [*SMALL, large], "--seed": [*SMALL, large], "--jobs": SMALL, "--out": [""]}
    words = ["reproduce", any_of(rng, ["schedules", "schedules", *NAMES])]
    words += ["--out", "made"] if rng.random() < 0.5 else ["--out=../out"]
    for name in rng.permutation([*options])[:1]:
        words += [str(name), any_of(rng, options[str(name)])]
    refuse = words[-2:] != ["--seed", "0"] and "--" not in words
    return Case(words, [folder / "cwd" / "made", folder / "out"], refuse=refuse)


def settings(rng: Any, folder: pathlib.Path) -> Case:
    """`unibio reproduce --set` with impossible settings."""
    experiment = any_of(rng, ["hypercleaning"] * 4 + ["schedules"])
    chosen = [any_of(rng, SETS) for _ in range(int(rng.integers(1, 3)))]
    # Whatever else is drawn, the last one is refused, so that hours of work never begin.
    last = any_of(rng, ["test=0", "noise=1.5", "p=0", "hidden=-1"])
    words = [word for setting in [*chosen, last] for word in ("--set", setting)]
    made = [folder / "cwd" / "made"]
    return Case(["reproduce", experiment, *words, "--seeds", "1", "--out", "made"], made, refuse=True)


def outputs(rng: Any, folder: pathlib.Path) -> Case:
    """Output folders that are files, belong to somebody else, cannot be made, or are links to such."""
    (folder / "cwd" / "link").symlink_to(folder / "foreign")
    (folder / "foreign" / "forged").mkdir()
    os.mkfifo(folder / "foreign" / "pipe")
    marker = any_of(rng, ["", "{}", '{"made_by": "unibio reproduce", "format": 9}', "[1]", "[" * 100_000, "\0"])
    (folder / "foreign" / "forged" / "unibio.json").write_text(marker)
    places = ["../foreign", "../foreign/precious.txt", "../foreign/precious.txt/x", "link", "../foreign/forged", ".",
              "../foreign/pipe", "a" * 300, "", "\udcff/x" * 200, "../foreign/pipe/x"]  # fmt: skip
    command = any_of(
        rng,
        [["reproduce", "schedules"], ["reproduce", "--replot"], ["compare", "SOBA", "--steps", "1", "--seeds", "1"]],
    )
    place = any_of(rng, places)
    refuse = not place.startswith("\udcff") or "--replot" in command  # odd, but a folder can have such a name
    return Case([*command, "--out", place], [folder / "cwd" / "\udcff"], marker[:60], refuse=refuse)


def mutated(rng: Any, content: bytes) -> bytes:
    """The content cut off, with a bit flipped, empty, with bytes added, or repeated."""
    place = int(rng.integers(max(1, len(content))))
    flipped = (
        content[:place] + bytes([content[place] ^ (1 << int(rng.integers(8)))]) + content[place + 1 :]
        if content
        else b"x"
    )
    return any_of(
        rng, [content[:place], flipped, flipped, b"", content + b"\xff\0", content * 2, b"\xff\xfe" + content]
    )


def damaged(rng: Any, folder: pathlib.Path) -> Case:
    """`unibio reproduce` on a folder of results in which a file is damaged, missing, a folder, or has a forged
    entry."""
    path = any_of(rng, sorted(path for path in (folder / "out").rglob("*") if path.is_file()))
    kind = any_of(rng, ["mutate"] * 4 + ["lose", "folder", "forge", "forge", "forge"])
    if kind == "forge" and path.suffix == ".json":
        value = json.loads(path.read_text())
        key = any_of(rng, [*value, "nope"])
        value[key] = any_of(rng, [None, [], {}, "x", 3, {"seeds": None}, {"../x": "y"}, {"jax": 3}])
        path.write_text(json.dumps(value if rng.random() < 0.8 else any_of(rng, [[], None, 3, "x"])))
    elif kind == "lose" or kind == "folder":
        path.unlink()
        if kind == "folder":
            path.mkdir()
    else:
        path.write_bytes(mutated(rng, path.read_bytes()))
    words = any_of(rng, [["reproduce", "--replot"], ["reproduce", "--replot"], ["reproduce", "schedules"]])
    refuse = "--replot" in words and path.suffix == ".csv"  # the tables have checksums
    note = f"{kind} {path.name}: {_beginning(path)}"
    return Case([*words, "--out", "../out"], [folder / "out"], note, refuse=refuse)


def forged(rng: Any, folder: pathlib.Path) -> Case:
    """`unibio reproduce --replot` where somebody has written a part with right checksums and wrong content."""
    part = folder / "out" / "schedules"
    facts = json.loads((part / "result.json").read_text())
    texts = ["other\n1\n", "p\n", "", "p,epsilon\n1\n", "p\n" + '"' * 9, "a,b\n1,2\n", "\0\n",
             "p\n" + "9" * 5000 + "\n"]  # fmt: skip
    name, text = any_of(rng, ["totals.csv", "other.csv"]), any_of(rng, texts)
    (part / name).write_text(text)
    facts["sha256"] = {name: hashlib.sha256(text.encode()).hexdigest()}
    (part / "result.json").write_text(json.dumps(facts))
    return Case(["reproduce", "--replot", "--out", "../out"], [folder / "out"], f"{name}: {text[:40]!r}", refuse=True)


def _notes(rng: Any, folders: list[pathlib.Path]) -> tuple[pathlib.Path, ...]:
    """Files of the user's own, in some of these folders."""
    made = []
    for folder in folders:
        for name in rng.permutation(["notes.txt", "mine.csv", "figure.old.svg", ".hidden", "drafts/one.txt"])[:2]:
            path = folder / str(name)
            path.parent.mkdir(exist_ok=True, parents=True)
            path.write_text(f"my {name}")
            made.append(path)
    return tuple(made)


def reruns(rng: Any, folder: pathlib.Path) -> Case:
    """`unibio reproduce` once more, with other seeds, where there are files of the user's own and perhaps links."""
    out = folder / "out"
    keep = _notes(rng, [out, out / "schedules"])
    for name, target in ((".schedules.tmp", folder / "foreign"), (".schedules.pieces", folder / "foreign")):
        kind = any_of(rng, ["no", "link", "folder"])
        if kind == "link":
            (out / name).symlink_to(target)
        elif kind == "folder":
            (out / name).mkdir()
            keep += _notes(rng, [out / name]) if name.endswith("pieces") else ()
    if rng.random() < 0.2:
        shutil.rmtree(out / "schedules")
        keep = tuple(path for path in keep if path.exists())
        (out / "schedules").symlink_to(folder / "foreign")
    words = ["reproduce", "schedules", "--seeds", any_of(rng, ["1", "2", "64"]), "--out", "../out"]
    return Case(words, [out], keep=keep)


def comparisons(rng: Any, folder: pathlib.Path) -> Case:
    """`unibio compare --out` over an earlier comparison, perhaps a damaged one, with the user's own files beside it."""
    out = folder / "cwd" / "compared"
    out.mkdir()
    (out / "unibio.json").write_text('{"made_by": "unibio compare", "format": 1}')
    for name in ("comparison.csv", "timings.csv", "comparison.json", "comparison.svg"):
        if rng.random() < 0.8:
            texts = ["", "{}", "[" * 100_000, "solver,seed,step\na,0,0\n", "\0", "x" * 99]
            (out / name).write_text(any_of(rng, texts))
    keep = _notes(rng, [out])
    if rng.random() < 0.5:
        (out / ".pieces").mkdir()
        keep += _notes(rng, [out / ".pieces"])
        (out / ".pieces" / ("0" * 32 + ".table")).write_bytes(b"damaged")
    more = ["--resume"] if rng.random() < 0.3 else []
    words = ["compare", "SOBA", "--problem", "quadratic", "--steps", "2", "--seeds", "1", "--out", "compared", *more]
    return Case(words, [out], keep=keep)


def _beginning(path: pathlib.Path) -> str:
    return repr(path.read_bytes()[:500]) if path.is_file() else "no file"


def _snli(folder: pathlib.Path, rows: int) -> pathlib.Path:
    """A folder with a small SNLI in the official layout, and an empty folder for word vectors."""
    data = folder / "foreign" / "data"
    (data / "snli").mkdir(parents=True)
    (data / "vectors").mkdir()
    line = json.dumps({"gold_label": "neutral", "sentence1": "a man runs", "sentence2": "nobody sleeps"})
    for split in ("train", "dev", "test"):
        (data / "snli" / f"snli_1.0_{split}.jsonl").write_text(f"{line}\n" * rows)
    return data


def sentences(rng: Any, folder: pathlib.Path) -> Case:
    """Damaged SNLI files, for `unibio reproduce` and for `unibio data`. There are too few pairs for any run to
    begin."""
    data = _snli(folder, 5)
    path = any_of(rng, sorted((data / "snli").iterdir()))
    if rng.random() < 0.3:  # another layout, incomplete
        path.unlink()
        for name in ("s1", "s2", "labels"):
            (data / "snli" / f"{name}.{path.name[9:-6]}").write_bytes(
                any_of(rng, [b"", b"a\nb\n", b"\xff\n", b"neutral\n"])
            )
    else:
        odd = [b'{"gold_label": 3}', b"[]", b'{"gold_label": null, "sentence1": "a", "sentence2": "b"}', b"null",
               b"[" * 100_000]  # fmt: skip
        odd += [
            b'{"gold_label": "neutral", "sentence1": 3, "sentence2": []}',
            b'{"gold_label": [], "sentence1": "a", "sentence2": "b"}',
        ]
        path.write_bytes(any_of(rng, odd) + b"\n" if rng.random() < 0.6 else mutated(rng, path.read_bytes()))
    if rng.random() < 0.4:
        return Case(["data", "snli", "--out", str(data / "snli")], [data / "snli"], f"{path.name}: {_beginning(path)}")
    words = ["--set", f"data={data}", "--set", "train=1000000", "--seeds", "1", "--out", "made"]
    return Case(["reproduce", "hypercleaning", *words], [folder / "cwd" / "made"], f"{path.name}: {_beginning(path)}")


def vectors(rng: Any, folder: pathlib.Path) -> Case:
    """`unibio reproduce hypercleaning` with word vectors that cannot be read."""
    data = _snli(folder, 5)
    text, npz = data / "vectors" / "glove.6B.50d.txt", data / "vectors" / "glove_6b_50d.npz"
    kind = int(rng.integers(6))
    if kind < 3:
        text.write_bytes([b"man 0.1 0.2\nruns 0.1\n", b"man x y\n", b"\xff\xfe 0.1 0.2\n"][kind])
    elif kind == 3:
        with npz.open("wb") as file:
            np.savez(file, words=np.asarray(["man", "runs"]), vectors=np.ones((2, 3)))
        content = npz.read_bytes()
        place = int(rng.integers(len(content)))
        npz.write_bytes(any_of(rng, [content[:place], b"", content[:60] + b"\0" * 80 + content[140:]]))
    elif kind == 4:
        arrays: Any = {"words": np.asarray(["man"]), "vectors": np.ones((2, 3))}
        arrays |= any_of(rng, [{"words": np.ones(2)[:1]}, {"vectors": np.asarray([["a"]])}, {"vectors": np.ones(1)}])
        with npz.open("wb") as file:
            np.savez(file, **arrays)
    else:
        shutil.rmtree(data / "vectors")
    sizes = [f"{name}=2" for name in ("train", "validation", "tuning", "test")]
    words = [word for setting in (f"data={data}", *sizes) for word in ("--set", setting)]
    case_ = ["reproduce", "hypercleaning", *words, "--seeds", "1", "--jobs", "1", "--out", "made"]
    return Case(case_, [folder / "cwd" / "made"], f"vectors {kind}")


def others(rng: Any, folder: pathlib.Path) -> Case:
    """Unknown commands, options and arguments."""
    name = any_of(rng, NAMES)
    lines: list[list[str]] = [
        [], ["--version"], ["nonsense"], ["list", "x"], ["list", "--all"], ["data"], ["data", name], ["compare"],
        ["data", "snli", "--out", "../foreign/precious.txt"], ["data", "snli", "--out", "made"], ["verify", "--claim"],
        ["verify", "--claim", name], ["verify", "--markdown", "--claim", "modulus"], ["verify", "--json", "x"],
        ["theory", "--constants"], ["theory", "a", "b"], ["reproduce", "--out"], ["theory", "--p", "3", "--p"],
        ["reproduce", "--replot", "--out", "nowhere"], ["compare", "SOBA", "--steps", "1", "--calls", "1"],
        ["compare", "SOBA", "SOBA", "--tune", "--steps", "0"], [name, any_of(rng, NAMES)], ["theory", f"--{name}"],
        ["reproduce", "schedules", "--full", "--replot", "--out", "../foreign"], ["theory", "--help", "x"]
    ]  # fmt: skip
    return Case(any_of(rng, lines), [folder / "cwd" / "made"])
