"""Reading, label noise, the grammar, and downloads."""

import functools
import hashlib
import http.server
import itertools
import json
import os
import re
import threading
import zipfile

import numpy as np
import pytest

from unibio.paper.data import download, noise, snli, text, toy_nli, vectors

ROWS = [("entailment", "A man runs .", "A person moves ."), ("-", "A", "B"), ("neutral", "Two dogs", "Big dogs")]
ROWS += [("contradiction", "He sits", "He stands"), ("maybe", "A", "B"), ("neutral", "", "B")]


def write(folder, layout, rows=ROWS):
    if layout == "jsonl":
        records = [{"gold_label": a, "sentence1": b, "sentence2": c} for a, b, c in rows]
        records[0] |= {"sentence1_binary_parse": "( ( A man ) ( runs . ) )"}
        (folder / "snli_1.0_dev.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    elif layout == "three":
        for name, k in (("labels", 0), ("s1", 1), ("s2", 2)):
            (folder / f"{name}.dev").write_text("".join(row[k] + "\n" for row in rows))
    else:
        lines = ["gold_label\tsentence1\tsentence2", *("\t".join(row) for row in rows)]
        (folder / "dev.tsv").write_text("\n".join(lines) + "\n")


@pytest.mark.parametrize("layout", ["jsonl", "three", "tsv"])
def test_every_layout_gives_the_same_pairs(tmp_path, layout):
    write(tmp_path, layout)
    pairs = snli.read(tmp_path, "dev")
    assert pairs.premises == [["A", "man", "runs", "."], ["Two", "dogs"], ["He", "sits"]]
    assert pairs.hypotheses[0] == ["A", "person", "moves", "."]
    assert pairs.labels.tolist() == [0, 1, 2]
    assert pairs.skipped == {"no gold label": 1, "unknown label": 1, "empty sentence": 1}


BROKEN = {
    "truncated json": (
        "snli_1.0_dev.jsonl",
        '{"gold_label": "neutral", "sentence1": "a"',
        "line 1: not a sentence pair",
    ),
    "missing field": ("snli_1.0_dev.jsonl", '{"gold_label": "neutral", "sentence1": "a"}\n', "line 1: not a sentence"),
    "no text": (
        "snli_1.0_dev.jsonl",
        '{"gold_label": "neutral", "sentence1": 3, "sentence2": []}\n',
        "line 1: not a sentence pair; it must have the texts gold_label, sentence1 and sentence2",
    ),
    "no object": ("snli_1.0_dev.jsonl", "null\n", "line 1: not a sentence pair"),
    "no header": ("dev.tsv", "neutral\ta\tb\n", "must begin with a line that names the columns"),
    "short row": (
        "dev.tsv",
        "gold_label\tsentence1\tsentence2\nneutral\ta\n",
        "line 2 has 2 columns separated by tabs, but the first line names 3",
    ),
    "nothing left": ("dev.tsv", "gold_label\tsentence1\tsentence2\n-\ta\tb\n", "no labelled sentence pair"),
    "no file": ("other.txt", "", "has no dev split: looked for snli_1.0_dev.jsonl"),
}


@pytest.mark.parametrize(("name", "content", "message"), BROKEN.values(), ids=BROKEN)
def test_broken_files(tmp_path, name, content, message):
    (tmp_path / name).write_text(content)
    with pytest.raises(ValueError, match=message):
        snli.read(tmp_path, "dev")


def test_three_files_of_different_lengths(tmp_path):
    write(tmp_path, "three")
    (tmp_path / "s2.dev").write_text("a\nb\n")
    with pytest.raises(ValueError, match="have 6, 2 and 6 lines"):
        snli.read(tmp_path, "dev")
    with pytest.raises(ValueError, match="there is no folder"):
        snli.read(tmp_path / "nowhere", "dev")
    with pytest.raises(ValueError, match="split must be one of"):
        snli.read(tmp_path, "validation")


def test_vectors_text_npz_and_unknown_words(tmp_path):
    (tmp_path / "glove.txt").write_text("a 1 2\nman -1 0.5\nruns 0 3\n")
    found = vectors.read(tmp_path / "glove.txt", keep=["a", "man", "zebra"])
    assert found.words == ["a", "man"]
    np.savez_compressed(tmp_path / "small.npz", words=np.asarray(found.words), vectors=found.matrix)
    again = vectors.read(tmp_path / "small.npz")
    assert again.words == found.words
    np.testing.assert_array_equal(again.matrix, found.matrix)
    pairs = snli.Pairs([["A", "man", "zebra"]], [["zebra"]], np.array([0]), {})
    vocabulary = text.vocabulary([pairs], again)
    assert "zebra" not in vocabulary.numbers
    assert vocabulary.encode(pairs.premises, 5).tolist() == [[2, 3, text.UNKNOWN, 0, 0]]  # “A” by its lower case
    assert vocabulary.encode(pairs.premises, 2).tolist() == [[2, 3]]
    assert vocabulary.table[2:].std() == pytest.approx(1, rel=1e-6)


BAD_VECTORS = {
    "width": ("v.txt", b"a 1 2\nb 1\n", "line 2: 1 numbers instead of 2"),
    "words": ("v.txt", b"a 1 x\n", "line 1: not all entries are numbers"),
    "npz": ("v.npz", b"nothing of the kind", "is not an npz file with arrays"),
    "cut npz": ("v.npz", b"PK\x03\x04" + bytes(40), "is not an npz file with arrays"),
    "missing": ("w.npz", None, "there is no file"),
}


@pytest.mark.parametrize(("name", "content", "message"), BAD_VECTORS.values(), ids=BAD_VECTORS)
def test_bad_vectors(tmp_path, name, content, message):
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=message):
        vectors.read(tmp_path / name)


def test_label_noise_is_drawn_once_and_at_the_stated_rate():
    labels = np.arange(30_000) % 3
    symmetric = noise.flip(labels, noise.symmetric(0.3, 3), seed=1)
    np.testing.assert_array_equal(symmetric, noise.flip(labels, noise.symmetric(0.3, 3), seed=1))
    assert np.mean(symmetric != labels) == pytest.approx(0.3, abs=5 * np.sqrt(0.21 / 30_000))
    counts = np.histogram2d(labels, symmetric, bins=3)[0] / 10_000
    np.testing.assert_allclose(counts, noise.symmetric(0.3, 3), atol=0.025)
    next_class = 0.6 * np.eye(3) + 0.4 * np.roll(np.eye(3), 1, axis=1)
    paired = noise.flip(labels, next_class, seed=2)
    assert set(((paired - labels) % 3).tolist()) == {0, 1}
    assert (noise.flip(labels, np.eye(3), seed=0) == labels).all()


@pytest.mark.parametrize("rate", [-0.1, 1.0, float("nan")])
def test_bad_rates(rate):
    with pytest.raises(ValueError, match="noise rate"):
        noise.symmetric(rate, 3)


def test_bad_matrices():
    with pytest.raises(ValueError, match="transition matrix must be square"):
        noise.flip(np.zeros(3, int), np.ones((2, 2)), 0)
    with pytest.raises(ValueError, match="labels must lie in 0 … 1; got 0 … 2"):
        noise.flip(np.arange(3), np.eye(2), 0)


def test_the_grammar_keeps_its_promises():
    """Every label follows from the scene, and neither sentence alone tells it: the words of either are as frequent
    under every label, within five standard deviations."""
    pairs = toy_nli.generate(9000, seed=3)
    assert np.bincount(pairs.labels).tolist() == [3000, 3000, 3000]
    assert len({(" ".join(a), " ".join(b)) for a, b in zip(pairs.premises, pairs.hypotheses, strict=True)}) > 8990
    assert toy_nli.generate(50, 0).premises != toy_nli.generate(50, 1).premises
    for sentences in (pairs.premises, pairs.hypotheses):
        words = sorted(set(itertools.chain.from_iterable(sentences)))
        number = {word: i for i, word in enumerate(words)}
        counts = np.zeros((3, len(words)))
        for label, sentence in zip(pairs.labels, sentences, strict=True):
            counts[label, [number[word] for word in set(sentence)]] += 1
        expected = counts.mean(axis=0)
        assert np.max(np.abs(counts - expected) / np.sqrt(expected)) < 5
    for label, premise, hypothesis in zip(pairs.labels, pairs.premises, pairs.hypotheses, strict=True):
        assert judge(" ".join(premise), " ".join(hypothesis)) == snli.LABELS[label]
    assert set(itertools.chain.from_iterable(pairs.premises + pairs.hypotheses)) <= set(toy_nli.vectors().words)


@functools.cache
def _phrases():
    """Phrase → (slot, group, value or None), the longest first."""
    found: dict[str, tuple[str, str, str | None]] = {}
    for slot, groups in toy_nli.SCENE.items():
        for group, values in groups.items():
            found[group] = (slot, group, None)
            found |= {phrase: (slot, group, value) for value in values for phrase in value.split("|")}
    return dict(sorted(found.items(), key=lambda item: -len(item[0])))


def _scene(sentence):
    scene, rest = {}, f" {sentence} "
    for phrase, (slot, group, value) in _phrases().items():
        if f" {phrase} " in rest and slot not in scene:
            scene[slot] = (group, value)
            rest = rest.replace(f" {phrase} ", "  ", 1)
    assert rest.replace("someone", "").strip() == "", sentence
    return scene


def judge(premise, hypothesis):
    """The label from the two sentences alone."""
    given, said = _scene(premise), _scene(hypothesis)
    if any(slot in given and given[slot][0] != group for slot, (group, _) in said.items()):
        return "contradiction"
    entailed = all(slot in given and (value is None or given[slot][1] == value) for slot, (_, value) in said.items())
    return "entailment" if entailed else "neutral"


class Server(http.server.HTTPServer):
    """Holds one file, and where the downloads of it began."""

    def __init__(self, body):
        super().__init__(("127.0.0.1", 0), Handler)
        self.body = body
        self.starts: list[int] = []
        self.refuses = False


class Handler(http.server.SimpleHTTPRequestHandler):
    """Serves that file, with ranges."""

    server: Server

    def do_GET(self):
        body = self.server.body
        if self.server.refuses:
            self.send_error(404)
            return
        start = int((self.headers.get("Range") or "bytes=0-")[6:-1])
        self.server.starts.append(start)
        if start >= len(body):
            self.send_error(416)
            return
        self.send_response(206 if start else 200)
        self.send_header("Content-Length", str(len(body) - start))
        self.end_headers()
        self.wfile.write(body[start:])

    def log_message(self, *args):
        pass


@pytest.fixture
def served(tmp_path):
    """An archive with a member that wants to escape, on a server of our own."""
    source = tmp_path / "a.zip"
    with zipfile.ZipFile(source, "w") as archive:
        archive.writestr("d/one.txt", "one" * 1000)
        archive.writestr("../../escaped.txt", "no")
    server = Server(source.read_bytes())
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    digest = hashlib.sha256(server.body).hexdigest()
    yield server, download.Archive(f"http://127.0.0.1:{server.server_port}/a.zip", digest, ("d/one.txt",))
    server.shutdown()
    server.server_close()
    thread.join()


def test_download_resumes_and_stays_in_its_folder(tmp_path, served):
    server, archive = served
    out = tmp_path / "deep" / "out"
    out.mkdir(parents=True)
    (out / "a.zip.part").write_bytes(server.body[:20])  # cut off earlier
    download.fetch(archive, out)
    assert server.starts == [20]
    assert sorted(path.name for path in out.iterdir()) == ["one.txt"]
    assert (out / "one.txt").read_text() == "one" * 1000
    assert not (tmp_path / "escaped.txt").exists()
    download.fetch(archive, out)
    assert server.starts == [20]  # it is there


def test_a_wrong_checksum_is_thrown_away(tmp_path, served):
    _, archive = served
    with pytest.raises(ValueError, match=r"has SHA-256 .* thrown away\. Try again later, or .* put one\.txt directly"):
        download.fetch(archive._replace(sha256="0" * 64), tmp_path / "out")
    assert list((tmp_path / "out").iterdir()) == []


def test_no_internet(tmp_path):
    archive = download.Archive("http://127.0.0.1:9/a.zip", "0" * 64, ("a",))
    with pytest.raises(
        ValueError, match=r"cannot reach .* Try again later, or get the file elsewhere and put a direct"
    ):
        download.fetch(archive, tmp_path)


def test_a_server_that_refuses_was_reached(tmp_path, served):
    server, archive = served
    server.refuses = True
    with pytest.raises(
        ValueError, match=r"answers 404 .*: the server was reached but did not send the file\. Try again"
    ):
        download.fetch(archive, tmp_path)


def test_the_advice_for_snli_is_where_the_reader_looks(tmp_path):
    """Whoever follows the advice has all splits: `fetch` downloads nothing and `snli.files` finds them."""
    advice = download._otherwise(download.SNLI, tmp_path)
    names = re.findall(r"snli_1\.0_\w+\.jsonl", advice)
    for name in names:
        (tmp_path / name).touch()
    assert [snli.files(tmp_path, split) for split in ("train", "dev", "test")] == [[tmp_path / name] for name in names]
    assert download.fetch(download.SNLI._replace(url="http://127.0.0.1:9/none.zip"), tmp_path) == tmp_path


@pytest.mark.skipif("UNIBIO_DATA_DIR" not in os.environ, reason="real SNLI is looked for in UNIBIO_DATA_DIR")
def test_the_real_data():
    folder = os.environ["UNIBIO_DATA_DIR"]
    dev = snli.read(f"{folder}/snli", "dev")
    assert len(dev.labels) == 9842
    words = vectors.read(f"{folder}/vectors/glove_6b_50d.npz")
    vocabulary = text.vocabulary([dev], words)
    numbers = np.concatenate([part.ravel() for part in vocabulary.inputs(dev, (100, 100))])
    assert np.sum(numbers == text.UNKNOWN) < 0.005 * np.sum(numbers != text.PADDING)
