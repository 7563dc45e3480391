import hashlib
import io
import json
import os
import random
import signal
import subprocess
import sys
import zipfile

import pytest

from elmokit.errors import DownloadError, InputError
from elmokit.file_download import RemoteFile, RetryPolicy, check_content, download
from faulty_server import faulty_server
from waiting import wait_until

QUICK = RetryPolicy(
    attempts=3, first_wait_seconds=0.001, max_wait_seconds=0.05, timeout_seconds=0.4
)
ETAG = '"1"'


@pytest.fixture(scope="module")
def _shared_server():
    with faulty_server() as server:
        yield server


@pytest.fixture
def server(_shared_server):
    _shared_server.__dict__.update(
        files={}, etags={}, faults={}, requests=[], sizes_sent=[], seconds_per_block=0.0
    )
    return _shared_server


def make_content(name, size, seed=0):
    noise = random.Random(seed).randbytes(size)
    if name.endswith(".json"):
        return json.dumps({"noise": noise.hex()}).encode()
    if name.endswith(".zip"):
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w") as packed:
            packed.writestr("noise", noise)
        return buffer.getvalue()
    return b"\x89HDF\r\n\x1a\n" + noise


def sha256(content):
    return hashlib.sha256(content).hexdigest()


def serve(server, name="weights.hdf5", *, size=100_000, faults=(), etag=ETAG, known=True):
    """A file on the server, and what a catalogue would say of it."""
    content = make_content(name, size)
    server.files[f"/{name}"], server.etags[f"/{name}"] = content, etag
    server.faults[f"/{name}"] = [*faults]
    hash_ = f"sha256:{sha256(content)}" if known else ""
    return RemoteFile(name, (f"{server.url}/{name}",), len(content) if known else None, hash_)


def fetch(file, folder, **options):
    return download(file, folder / file.name, policy=QUICK, **options)


def refused(file, folder, message, **options):
    with pytest.raises(DownloadError, match=message) as error:
        fetch(file, folder, **options)
    assert "\n" not in str(error.value)
    assert not (folder / file.name).exists()


def test_a_file_is_downloaded_with_its_hash_and_nothing_else_is_left(server, tmp_path):
    file = serve(server, known=False)
    result = fetch(file, tmp_path)
    content = server.files["/weights.hdf5"]
    assert (tmp_path / file.name).read_bytes() == content
    assert (result.sha256, result.size) == (sha256(content), len(content))
    assert os.listdir(tmp_path) == [file.name]


# Faults after which the file can still be had from the same address.
PASSING = [
    "cut", "too long", "slow", "no range", "wrong range", "status 500",
    "status 429 0", "status 503", "status 503 soon", "status 503 ²",
    "status 429 Fri, 31 Dec 99999 23:59:59 GMT", "redirect /honest", "no length",
]  # fmt: skip
# Faults of an address that is then given up, if there is another.
LASTING = [
    "status 404", "status 403", "status 429 900", "status 429 Fri, 31 Dec 2100 23:59:59 GMT",
    "page", "page without a type", "packed", "redirect ftp://nowhere/x", "redirect /loop",
    "redirect http://" + "x" * 70 + ".invalid/", "status 429 Fri, 31 Dec 2100 23:59:59 -0000",
    "too short", "garbled", "no length, cut", "changed", "changed and careless",
]  # fmt: skip


@pytest.mark.parametrize("part", range(4))
def test_of_200_random_faults_the_file_is_right_or_the_error_is_one_sentence(
    server, tmp_path, part
):
    downloaded = 0
    for seed in range(part * 50, part * 50 + 50):
        choose = random.Random(seed)
        name = choose.choice(["weights.hdf5", "options.json", "model.zip"])
        known, etag = choose.random() < 0.6, choose.choice([ETAG, ETAG, 'W/"1"', '"é"', None])
        faults = choose.choices(PASSING + LASTING, k=choose.randint(1, 4))
        faults = ["cut"] * choose.randint(0, 1) + faults  # then there is something to resume
        if not known:  # nobody can tell these from the truth
            faults = [
                f for f in faults if f not in ("garbled", "too short") or name != "weights.hdf5"
            ]
            faults = ["cut" if f == "garbled" else f for f in faults]
        file = serve(server, name, size=20_000, faults=faults, etag=etag, known=known)
        server.files["/mirror"], server.etags["/mirror"] = server.files[f"/{name}"], etag
        server.files["/honest"], server.etags["/honest"] = server.files[f"/{name}"], etag
        server.files["/loop"], server.faults["/loop"] = b"", ["redirect /loop"] * 50
        server.faults["/mirror"] = choose.choices(PASSING + LASTING[:-5], k=choose.randint(0, 4))
        urls = (*file.urls, f"{server.url}/mirror")[: choose.randint(1, 2)]
        file = RemoteFile(name, urls, file.size, file.hash)
        folder = tmp_path / str(seed)
        folder.mkdir()
        right = {server.files["/mirror"]}
        error = None
        try:
            fetch(file, folder)
            downloaded += 1
        except DownloadError as caught:
            error = str(caught)
        if error is not None:
            assert "\n" not in error, (seed, faults)
            assert not (folder / name).exists(), (seed, faults)
            # What is left behind does no harm later.
            server.faults.clear()
            server.files[f"/{name}"] = server.files["/mirror"]
            fetch(file, folder)
        if not known:
            right.add(server.files[f"/{name}"])
        assert (folder / name).read_bytes() in right, (seed, faults)
        assert os.listdir(folder) == [name], (seed, faults)
    assert 15 < downloaded < 50  # both ends are seen often


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("status 404", "127.0.0.1 answered 404 Not Found"),
        ("status 403", "answered 403 Forbidden"),
        ("status 429 900", "answered 429"),
        ("page", "answered with a web page instead of the file"),
        ("packed", "sends the file compressed"),
        ("redirect ftp://nowhere/x", "cannot be used"),
        ("too short", "has a file of 50,004 bytes, expected 100,008"),
        ("garbled", "has another content than was published: sha256 "),
        ("slow", r"failed \(timed out\)"),
        ("cut", "failed .peer closed connection"),
    ],
)
def test_an_error_says_what_the_server_did(server, tmp_path, fault, message):
    refused(serve(server, faults=[fault] * 3), tmp_path, message)


def test_a_page_and_another_kind_of_file_are_told_by_their_first_bytes(server, tmp_path):
    file = serve(server, faults=["page without a type"], known=False)
    refused(file, tmp_path, "is a web page instead of the file")
    server.files["/weights.hdf5"] = b"PK\x03\x04"
    refused(file, tmp_path, r"is no \.hdf5 file: it begins with b'PK")
    for name, content, message in (
        ("options.json", b'{"lstm": ', "is not a JSON file"),
        ("model.zip", make_content("model.zip", 1000)[:-30], "is not a whole zip archive"),
        ("vocab.txt", b"", "is empty"),
    ):
        file = serve(server, name, known=False)
        server.files[f"/{name}"] = content
        refused(file, tmp_path, message)


def test_a_server_that_does_not_say_how_long_a_file_is_must_be_checkable(server, tmp_path):
    refused(serve(server, faults=["no length"], known=False), tmp_path, "does not say how long")
    assert fetch(serve(server, faults=["no length"]), tmp_path).size == 100_008


def test_a_cut_download_goes_on_where_it_stopped(server, tmp_path):
    file = serve(server, faults=["cut", "cut"], known=False)
    fetch(file, tmp_path)
    assert [asked for _, asked in server.requests] == [None, "bytes=50004-", "bytes=75006-"]
    assert sum(server.sizes_sent) == 100_008


def test_a_download_that_gets_on_is_not_given_up(server, tmp_path):
    file = serve(server, faults=["cut"] * 5, size=2**26, known=False)
    assert fetch(file, tmp_path).size == 2**26 + 8
    assert len(server.requests) == 6


def test_a_new_version_is_not_joined_to_an_old_one(server, tmp_path):
    file = serve(server, faults=["cut", "changed"], known=False)
    fetch(file, tmp_path)
    assert (tmp_path / file.name).read_bytes() == server.files["/weights.hdf5"]
    # If-Range makes the server send the whole of the new version at once.
    assert [asked for _, asked in server.requests] == [None, "bytes=50004-"]


def test_what_cannot_be_told_apart_is_not_joined(server, tmp_path):
    fetch(serve(server, faults=["cut", "changed"], etag=None, known=False), tmp_path)
    assert (tmp_path / "weights.hdf5").read_bytes() == server.files["/weights.hdf5"]
    assert [asked for _, asked in server.requests] == [None, None]


def test_parts_of_two_addresses_are_not_joined(server, tmp_path):
    file = serve(server, faults=["cut", "status 404"], known=False)
    server.files["/other"] = make_content("weights.hdf5", 100_000, seed=1)
    server.etags["/other"] = ETAG
    fetch(RemoteFile(file.name, (*file.urls, f"{server.url}/other")), tmp_path)
    assert (tmp_path / file.name).read_bytes() == server.files["/other"]


@pytest.mark.parametrize("fault", ["wrong range", "too short"])
def test_a_wrong_rest_of_a_file_is_noticed(server, tmp_path, fault):
    fetch(serve(server, faults=["cut", fault], known=False), tmp_path)
    assert (tmp_path / "weights.hdf5").read_bytes() == server.files["/weights.hdf5"]
    assert len(server.requests) == 3


def test_a_server_that_ignores_if_range_is_found_out(server, tmp_path):
    file = serve(server, faults=["cut", "changed and careless"], known=False)
    fetch(file, tmp_path)
    assert (tmp_path / file.name).read_bytes() == server.files["/weights.hdf5"]
    assert [asked for _, asked in server.requests] == [None, "bytes=50004-", None]


def test_google_drives_question_about_viruses_is_answered(server, tmp_path):
    file = serve(server, faults=["drive page"])
    server.files["/confirmed/file"] = server.files["/weights.hdf5"]
    fetch(file, tmp_path)
    assert server.requests[1][0] == "/confirmed/file?id=1x&confirm=t"


def test_a_changed_file_is_refused(server, tmp_path):
    file = serve(server, known=False)
    refused(file, tmp_path, "has another content than when it was first", sha256="0" * 64)


def test_older_hashes_are_checked_too(server, tmp_path):
    file = serve(server)
    digest = hashlib.sha1(server.files["/weights.hdf5"]).hexdigest()
    fetch(RemoteFile(file.name, file.urls, hash=f"sha1:{digest}"), tmp_path)
    with pytest.raises(
        DownloadError, match=r"sha1 .* expected 0000.*remove it to download it again"
    ):
        check_content(tmp_path / file.name, RemoteFile(file.name, hash="sha1:" + "0" * 40))


@pytest.mark.parametrize("known", ["foo:00", "sha256:00", "00", "sha1:" + "A" * 40])
def test_a_hash_that_cannot_be_checked_is_refused_at_once(known):
    with pytest.raises(InputError, match=r"a.zip: hash is .*, expected an algorithm such as"):
        RemoteFile("a.zip", hash=known)


@pytest.mark.parametrize("content", ["{broken", "[]", "{}"])
def test_a_damaged_record_of_a_part_starts_the_download_again(server, tmp_path, content):
    (tmp_path / "weights.hdf5.part").write_bytes(b"\x89HDF")
    (tmp_path / "weights.hdf5.part.json").write_text(content)
    fetch(serve(server), tmp_path)
    assert (tmp_path / "weights.hdf5").read_bytes() == server.files["/weights.hdf5"]


def test_a_file_address_is_copied(tmp_path):
    source = tmp_path / "source.json"
    source.write_text("{}")
    assert fetch(RemoteFile("copy.json", (source.as_uri(),)), tmp_path).size == 2
    file = RemoteFile("no.json", ((tmp_path / "nowhere").as_uri(),))
    refused(file, tmp_path, "nowhere cannot be read .No such file")


def test_the_proxy_of_the_environment_is_used(server, tmp_path, monkeypatch):
    file = serve(server)
    monkeypatch.setenv("http_proxy", server.url)
    file = RemoteFile(file.name, ("http://elsewhere.invalid/weights.hdf5",), file.size, file.hash)
    fetch(file, tmp_path)
    assert server.requests == [("http://elsewhere.invalid/weights.hdf5", None)]
    monkeypatch.setenv("http_proxy", "nonsense://x")
    (tmp_path / file.name).unlink()
    refused(file, tmp_path, "the proxy that the environment names cannot be used")


def test_a_full_disk_is_noticed_before(server, tmp_path, monkeypatch):
    monkeypatch.setattr("shutil.disk_usage", lambda _: type("Usage", (), {"free": 1000}))
    with pytest.raises(OSError, match=r"needs 100,008 more bytes, but the disk has 1,000; free"):
        fetch(serve(server), tmp_path)


def test_a_killed_download_is_resumed(server, tmp_path):
    file = serve(server, size=2**22, known=False)
    server.seconds_per_block = 0.01
    code = f"""
from pathlib import Path
from elmokit.file_download import RemoteFile, download
download(RemoteFile("weights.hdf5", {file.urls!r}), Path({str(tmp_path / "weights.hdf5")!r}))
"""
    process = subprocess.Popen([sys.executable, "-c", code])
    partial = tmp_path / "weights.hdf5.part"
    wait_until(lambda: partial.exists() and partial.stat().st_size > 2**20)
    process.send_signal(signal.SIGKILL)
    process.wait()
    size = partial.stat().st_size
    assert 2**20 < size < 2**22
    server.seconds_per_block = 0.0
    fetch(file, tmp_path)
    assert server.requests[-1] == ("/weights.hdf5", f"bytes={size}-")
    assert (tmp_path / "weights.hdf5").read_bytes() == server.files["/weights.hdf5"]
