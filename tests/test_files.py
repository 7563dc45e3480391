import gzip
import io
import lzma
import sys

import numpy as np
import pytest

from elmokit.errors import FormatError, InputError
from elmokit.files import find_files, read_array

TEXT = b"one\ntwo\n" * 20_000


def read(file):
    with file.open() as opened:
        return b"".join(iter(lambda: opened.read_line(2**20), b""))


def test_compressed_files_are_recognised_by_their_first_bytes(tmp_path):
    for name, packed in [("a", TEXT), ("b", gzip.compress(TEXT)), ("c.txt", lzma.compress(TEXT))]:
        (tmp_path / name).write_bytes(packed)
    assert [read(file) for file in find_files([str(tmp_path)])] == [TEXT] * 3


def test_concatenated_compressed_files_are_read_to_the_end(tmp_path):
    for pack in (gzip.compress, lzma.compress):
        (tmp_path / "a").write_bytes(pack(TEXT) + pack(b"end"))
        assert read(*find_files([str(tmp_path / "a")])) == TEXT + b"end"


def test_zstandard_is_read_frame_by_frame(tmp_path):
    pack = pytest.importorskip("zstandard").ZstdCompressor().compress
    (tmp_path / "a.zst").write_bytes(pack(TEXT) + pack(b"end"))
    assert read(*find_files([str(tmp_path / "a.zst")])) == TEXT + b"end"


@pytest.mark.parametrize("kind", ["gz", "xz", "zst"])
def test_a_truncated_file_is_named(kind, tmp_path):
    if kind == "zst":
        pack = pytest.importorskip("zstandard").ZstdCompressor().compress
    else:
        pack = {"gz": gzip.compress, "xz": lzma.compress}[kind]
    (tmp_path / "a").write_bytes(pack(TEXT)[:-9])
    with pytest.raises(FormatError, match=r"/a: cannot be unpacked \(.*was the file cut short"):
        read(*find_files([str(tmp_path / "a")]))


@pytest.mark.skipif(sys.version_info >= (3, 14), reason="Python itself unpacks Zstandard")
def test_zstandard_without_its_package_names_the_install_line(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "zstandard", None)
    (tmp_path / "a.zst").write_bytes(b"\x28\xb5\x2f\xfd....")
    with pytest.raises(InputError, match=r"pip install 'elmokit\[zst\]'"):
        read(*find_files([str(tmp_path / "a.zst")]))


def test_files_folders_and_globs_are_found_in_order(tmp_path):
    for name in ("b.txt", "a.txt", "in/c.txt", ".hidden", "in/.git/d", "z[1].txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x")

    def names(*given):
        actual = find_files(str(tmp_path / name) for name in given)
        return [file.name.removeprefix(f"{tmp_path}/") for file in actual]

    assert names("") == ["a.txt", "b.txt", "in/c.txt", "z[1].txt"]
    assert names("in", "?.txt") == ["in/c.txt", "a.txt", "b.txt"]
    assert names("**/*.txt") == ["a.txt", "b.txt", "in/c.txt", "z[1].txt"]
    assert names("z[1].txt") == ["z[1].txt"]
    with pytest.raises(InputError, match="no file there"):
        names("*.csv")
    with pytest.raises(InputError, match="named twice"):
        names("a.txt", "*.txt")
    with pytest.raises(FileNotFoundError):
        names("absent.txt")


def test_stdin_may_be_compressed(monkeypatch):
    for packed in (TEXT, gzip.compress(TEXT)):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BufferedReader(io.BytesIO(packed))))
        assert read(*find_files(["-"])) == TEXT


def npy(header, numbers=b"\0" * 16):
    """The bytes of a .npy file with any header."""
    return b"\x93NUMPY\1\0" + len(header).to_bytes(2, "little") + header + numbers


def test_the_array_of_an_npy_file_is_read_as_it_was_written():
    for array in (np.arange(6.0).reshape(2, 3), np.asfortranarray(np.ones((2, 3), np.float16))):
        file = io.BytesIO()
        np.save(file, array)
        np.testing.assert_array_equal(read_array(file.getvalue(), "a.npy", "x"), array)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        npy(b"{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3"),  # tokenize.TokenError
        npy(b"{'descr': '<f4', 'fortran_order': False, 'shape': (1099511627776,)}"),
        npy(b"{'descr': '|O', 'fortran_order': False, 'shape': (2,)}"),
        npy(b"(" * 9000),
    ],
)
def test_a_damaged_npy_file_is_refused_without_its_memory(content):
    with pytest.raises(FormatError, match=r"a\.npy: not an array \(.*\); make it again"):
        read_array(content, "a.npy", "make it again")
