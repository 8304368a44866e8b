"""Servers that break off, lie about lengths or speak no HTTP; links in the way; archives that unpack without end."""

import hashlib
import http.server
import io
import os
import socket
import threading
import zipfile

import pytest

from unibio.paper.data import download, snli, vectors

BODY_OF = "one" * 4000


def archive_bytes(text=BODY_OF):
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:  # stored, so that it is as long as its content
        archive.writestr("d/one.txt", text)
    return made.getvalue()


class Server(http.server.HTTPServer):
    """Sends at most `most` bytes a connection, whatever it announces."""

    def __init__(self, body, most):
        super().__init__(("127.0.0.1", 0), Handler)
        self.body, self.most, self.starts = body, most, []


class Handler(http.server.BaseHTTPRequestHandler):
    server: Server

    def do_GET(self):
        start = int((self.headers.get("Range") or "bytes=0-")[6:-1])
        self.server.starts.append(start)
        self.send_response(206 if start else 200)
        self.send_header("Content-Length", str(len(self.server.body) - start))
        self.end_headers()
        self.wfile.write(self.server.body[start : start + self.server.most])

    def log_message(self, *args):
        pass


@pytest.fixture
def serve():
    """A function that starts a server of a body; all end with the test."""
    servers = []

    def start(body, most=10**9):
        server = Server(body, most)
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        servers.append((server, thread))
        digest = hashlib.sha256(body).hexdigest()
        return server, download.Archive(f"http://127.0.0.1:{server.server_port}/a.zip", digest, ("d/one.txt",))

    yield start
    for server, thread in servers:
        server.shutdown()
        server.server_close()
        thread.join()


def test_a_connection_that_breaks_off_is_taken_up_again(tmp_path, serve):
    server, archive = serve(archive_bytes(), most=5000)
    seen: list[tuple[int, int]] = []
    download.fetch(archive, tmp_path, lambda done, total: seen.append((done, total)))
    assert server.starts == [0, 5000, 10000]
    assert {total for _, total in seen} == {len(server.body)}
    assert (tmp_path / "one.txt").read_text() == BODY_OF


def test_a_server_that_brings_nothing_more_is_told_and_the_part_is_kept(tmp_path, serve):
    server, archive = serve(archive_bytes(), most=0)
    with pytest.raises(ValueError, match=f"ended the connection after 0 of {len(server.body)} bytes.*same command"):
        download.fetch(archive, tmp_path)
    (tmp_path / "a.zip.part").write_bytes(server.body[:700])
    with pytest.raises(ValueError, match="ended the connection after 700 of"):
        download.fetch(archive, tmp_path)
    assert (tmp_path / "a.zip.part").read_bytes() == server.body[:700]


NO_HTTP = {
    "nothing": b"",
    "no status line": b"hello\r\n\r\n",
    "half a status line": b"HTTP/1.1",
    "a line without end": b"HTTP/1.1 200 OK\r\nA: " + b"a" * 70_000 + b"\r\n\r\n",
    "many headers": b"HTTP/1.1 200 OK\r\n" + b"A: b\r\n" * 200 + b"\r\n",
    "a chunk without length": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nabc",
    "a length that is none": b"HTTP/1.1 200 OK\r\nContent-Length: many\r\n\r\nabc",
}


@pytest.mark.parametrize("answer", NO_HTTP.values(), ids=NO_HTTP)
def test_what_is_no_http_is_told_in_a_sentence(tmp_path, answer):
    with socket.create_server(("127.0.0.1", 0)) as listening:
        closing = threading.Event()

        def serve():
            listening.settimeout(0.05)
            while not closing.is_set():
                try:
                    connection, _ = listening.accept()
                except TimeoutError:
                    continue
                with connection:
                    connection.recv(1000)
                    connection.sendall(answer)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        archive = download.Archive(f"http://127.0.0.1:{listening.getsockname()[1]}/a.zip", "0" * 64, ("d/one.txt",))
        with pytest.raises(ValueError, match=r"cannot reach|has SHA-256|ended the connection"):
            download.fetch(archive, tmp_path)
        closing.set()
        thread.join()


@pytest.mark.parametrize("there", [True, False])
def test_a_link_in_the_way_is_not_followed(tmp_path, serve, there):
    _, archive = serve(archive_bytes())
    target = tmp_path / "precious"
    if there:
        target.write_text("mine")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "a.zip.part").symlink_to(target)
    with pytest.raises(ValueError, match="is a link, and nothing is written through it"):
        download.fetch(archive, tmp_path / "out")
    assert target.exists() == there
    assert not there or target.read_text() == "mine"
    (tmp_path / "out" / "a.zip.part").unlink()
    (tmp_path / "out" / "one.txt").symlink_to(tmp_path / "elsewhere")  # a dangling one: the member replaces it
    download.fetch(archive, tmp_path / "out")
    assert not (tmp_path / "elsewhere").exists()
    assert (tmp_path / "out" / "one.txt").read_text() == BODY_OF


def test_a_link_is_not_followed_even_if_it_comes_late(tmp_path):
    """The file is opened without following links, so that there is no moment in between."""
    (tmp_path / "target").write_text("mine")
    (tmp_path / "link").symlink_to(tmp_path / "target")
    with pytest.raises(OSError, match="symbolic"):
        os.open(tmp_path / "link", download._WRITE)


@pytest.mark.parametrize("most", [100, 5000])
def test_a_download_has_a_limit(tmp_path, serve, most):
    _, archive = serve(archive_bytes())
    with pytest.raises(ValueError, match="which this file never had; the download was stopped"):
        download.fetch(archive._replace(most=most), tmp_path)
    assert not (tmp_path / "a.zip.part").exists()


@pytest.mark.parametrize(
    ("name", "others"),
    [("snli_1.0_dev.jsonl", ()), ("dev.tsv", ()), ("s2.dev", ("s1.dev", "labels.dev"))],
)
def test_a_file_that_is_not_utf8_is_named(tmp_path, name, others):
    for other in others:
        (tmp_path / other).write_text("neutral\n")
    (tmp_path / name).write_bytes(
        b"gold_label\tsentence1\tsentence2\n\xff\xfe" if name.endswith("tsv") else b"\x1f\x8b"
    )
    with pytest.raises(ValueError, match=f"{name}, after line [01]: this is not UTF-8 text"):
        snli.read(tmp_path, "dev")


def test_vectors_that_are_not_utf8_are_named(tmp_path):
    (tmp_path / "v.txt").write_bytes(b"word 0.1 0.2\n\xff 0.1 0.2\n")
    with pytest.raises(ValueError, match=r"v\.txt, after line [01]: this is not UTF-8 text"):
        vectors.read(tmp_path / "v.txt")
