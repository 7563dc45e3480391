"""Damaged and malicious versions of files, which keep the structure of the format.

`mutate` recognises the format by the first bytes or the name of a file. Where a format has
checksums or lengths around its contents, the contents are changed and packed anew, so that a reader
gets beyond its first check.
"""

import bz2
import gzip
import io
import json
import lzma
import stat
import struct
import tarfile
import warnings
import zipfile

import h5py
import numpy as np

from elmokit.formats.leveldb_table import TABLE_SIGNATURE, read_table
from tensor_bundle import leveldb_table

NUMBERS = [0, 1, -1, 2, 3, 255, 2**16, 2**31 - 1, 2**31, 2**32, 2**40, 2**63 - 1, 2**63, 2**64]
FLOATS = [0.5, -0.0, 1e-320, 1e38, 1e39, 1e308, float("nan"), float("inf"), -float("inf")]
TEXTS = [
    "",
    " ",
    "a",
    "\0",
    "\ud800",
    "é",
    "\u2028",
    "😀",
    "x" * 300,
    "../x",
    "/etc/passwd",
    "[",
    "%",
]
BYTES = [
    b"", b"\0", b"\xff", b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\x80", b"\n", b"\r\n", b"\t",
    b" ", b"\xef\xbb\xbf", b"\xed\xa0\x80", b"\xc3", b'"', b"\\", b"{", b"[" * 9, b"\xe2\x80\xa8",
    b"-", b"1e999", b"NaN", b"(", b")", b"<", b">", b"&", b"#", b"|", b"_", b"*", b"0",
]  # fmt: skip
# What a pickle would run, and what builds objects of any kind.
PICKLES = [
    b"cos\nsystem\n(S'true'\ntR.", b"\x80\x02cbuiltins\neval\nX\x01\x00\x00\x001\x85R.",
    b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n)R.", b"(lp0\n.",
    b"ccollections\nOrderedDict\n)R(dS'a'\nI1\nsb.", b"}.",
    b"\x80\x04\x8c\x05posix\x8c\x06system\x93\x8c\x04true\x85R.", b"N.", b"I1\n.",
]  # fmt: skip


def mutate(name, content, random):
    """One changed version of a file with this name."""
    if random.random() < 0.15:
        return mutate_bytes(content, random)
    try:
        return _mutate_structure(name, content, random)
    except Exception:
        return mutate_bytes(content, random)


def _mutate_structure(name, content, random):
    if name.endswith(".tar"):
        return _tar(content, random)
    for signature, change in _BY_SIGNATURE.items():
        if content.startswith(signature):
            return change(content, random)
    if content[-len(TABLE_SIGNATURE) :] == TABLE_SIGNATURE:
        return _table(content, random)
    if name.endswith(".safetensors"):
        return _safetensors(content, random)
    if name.endswith((".json", ".jsonl")):
        return _json(content, random)
    if name.endswith(_TEXT_ENDINGS):
        return mutate_text(content, random)
    return mutate_bytes(content, random)


_TEXT_ENDINGS = (
    ".txt", ".dic", ".toml", ".fasta", ".conll", ".conllu", ".props", ".tsv", ".tree", ".xml",
    ".key", ".coref", ".md",
)  # fmt: skip


def mutate_bytes(content, random):
    """Bytes that are changed, removed, repeated or put in, without regard to what they mean."""
    data = bytearray(content)
    for _ in range(random.choice([1, 1, 1, 2, 4, 16])):
        start = random.randrange(len(data) + 1)
        length = random.choice([1, 1, 2, 4, 8, random.randrange(64)])
        kind = random.randrange(7)
        if kind == 0 and start < len(data):
            data[start] ^= 1 << random.randrange(8)
        elif kind == 1:
            data[start : start + length] = random.choice(BYTES)
        elif kind == 2:
            number = random.choice(NUMBERS) & (2**64 - 1)
            size = random.choice([1, 2, 4, 8])
            data[start : start + size] = number.to_bytes(8, "little")[:size]
        elif kind == 3:
            del data[start : start + length]
        elif kind == 4:
            data[start:start] = data[start : start + length] * random.choice([1, 2, 50])
        elif kind == 5:
            data[start : start + length] = random.randbytes(length)
        elif random.random() < 0.3:
            del data[start:]
    return bytes(data)


def mutate_text(content, random):
    """Lines and cells that are changed, removed, repeated or exchanged."""
    lines = content.split(b"\n")
    for _ in range(random.choice([1, 1, 2, 3])):
        number = random.randrange(len(lines))
        kind = random.randrange(7)
        if kind == 0 and len(lines) > 1:
            del lines[number]
        elif kind == 1:
            lines.insert(number, random.choice(lines))
        elif kind == 2:
            lines.insert(number, random.choice(BYTES) * random.choice([1, 3, 1000]))
        elif kind == 3:
            lines[number] = mutate_bytes(lines[number], random)
        else:
            separator = random.choice([b"\t", b" ", b"|", b"=", b"_", b"("])
            cells = lines[number].split(separator)
            other = random.choice(lines).split(separator)
            cell = random.randrange(len(cells))
            text = str(random.choice([*NUMBERS, *FLOATS, *TEXTS])).encode(errors="surrogatepass")
            cells[cell : cell + random.randrange(2)] = [
                random.choice([random.choice(other), random.choice(BYTES), text])
            ]
            lines[number] = separator.join(cells)
    return b"\n".join(lines)


def _json(content, random):
    if random.random() < 0.02:
        return random.choice([b"[", b'{"a":', b"1"]) * random.choice([10, 100_000])
    value = json.loads(content)
    for _ in range(random.choice([1, 1, 1, 2, 3])):
        value = mutate_value(value, random)
    return json.dumps(value).encode()


def mutate_value(value, random):
    """A value of JSON with one change somewhere within."""
    if isinstance(value, dict) and value and random.random() < 0.9:
        key = random.choice([*value])
        changed = dict(value)
        kind = random.randrange(8)
        if kind == 0:
            del changed[key]
        elif kind == 1:
            changed[random.choice([*TEXTS, *value])] = changed.pop(key)
        else:
            changed[key] = mutate_value(value[key], random)
        return changed
    if isinstance(value, list) and value and random.random() < 0.9:
        changed = list(value)
        place = random.randrange(len(value))
        kind = random.randrange(8)
        if kind == 0:
            del changed[place]
        elif kind == 1:
            changed[place:place] = [value[place]] * random.choice([1, 3, 100])
        else:
            changed[place] = mutate_value(value[place], random)
        return changed
    if isinstance(value, str) and random.random() < 0.4:
        return mutate_bytes(value.encode(errors="replace"), random).decode(errors="replace")
    if isinstance(value, int) and random.random() < 0.5:
        return value + random.choice([-1, 1, -value, value, 0.5, 1000])
    return random.choice(
        [*NUMBERS, *FLOATS, *TEXTS, None, True, False, [], {}, [value], {"a": value}, value]
    )


def _safetensors(content, random):
    size = int.from_bytes(content[:8], "little")
    header = mutate_value(json.loads(content[8 : 8 + size]), random)
    text = json.dumps(header).encode()
    body = content[8 + size :]
    if random.random() < 0.3:
        body = mutate_bytes(body, random)
    return len(text).to_bytes(8, "little") + text + body


def _npy(content, random):
    if random.random() < 0.5:
        return mutate_bytes(content, random)
    size = struct.unpack("<H", content[8:10])[0]
    header = mutate_text(content[10 : 10 + size], random)
    return content[:8] + struct.pack("<H", len(header) & 0xFFFF) + header + content[10 + size :]


def _table(content, random):
    """A LevelDB table with valid checksums around other keys and values."""
    entries = {key: bytes(value) for key, value in read_table(memoryview(content)).items()}
    for _ in range(random.choice([1, 1, 2])):
        key = random.choice([*entries])
        value = entries.pop(key)
        if random.random() < 0.2:
            key = mutate_bytes(key, random)
        entries[key] = mutate_bytes(value[:60], random) + value[60:]
    return leveldb_table(sorted(entries.items()), random.choice([64, 4096]), 0)


def _gzip(content, random):
    return _repacked(content, random, gzip.decompress, lambda data: gzip.compress(data, 1))


def _bzip2(content, random):
    return _repacked(content, random, bz2.decompress, bz2.compress)


def _xz(content, random):
    return _repacked(content, random, lzma.decompress, lambda data: lzma.compress(data, preset=0))


def _repacked(content, random, unpack, pack):
    plain = unpack(content)
    if random.random() < 0.01:
        return pack(plain + bytes(2**27))  # a bomb
    return pack(mutate("a.txt", plain, random))


def _names(name, random):
    """The name of a member of an archive, perhaps one that leads elsewhere."""
    if random.random() < 0.6:
        return name
    return random.choice([
        f"../{name}", f"/escaped/{name}", f"..\\{name}", f"a/../../{name}", f"./{name}", "",
        f"{'d/' * 300}{name}", f"C:\\{name}", f"{name}/", f"é\ud800{name}", "..", "/", f"\0{name}",
    ]).encode("utf-8", "replace").decode()  # fmt: skip


def _zip(content, random):
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        members = [(info, archive.read(info)) for info in archive.infolist()]
    changed = random.randrange(len(members)) if members else 0
    packed = io.BytesIO()
    with warnings.catch_warnings(), zipfile.ZipFile(packed, "w") as archive:
        warnings.simplefilter("ignore")  # two members with one name
        for number, (info, data) in enumerate(members):
            new = zipfile.ZipInfo(info.filename)
            if number == changed:
                kind = random.randrange(6)
                new.filename = _names(info.filename, random)
                if kind == 0:
                    new.external_attr = (stat.S_IFLNK | 0o777) << 16
                    data = random.choice([b"/etc/passwd", b"../../x", data])  # noqa: PLW2901
                elif kind == 1 and random.random() < 0.05:
                    data, new.compress_type = bytes(2**27), zipfile.ZIP_DEFLATED  # noqa: PLW2901
                elif info.filename.endswith("data.pkl"):
                    data = _pickle(data, random)  # noqa: PLW2901
                else:
                    data = mutate(info.filename, data, random)  # noqa: PLW2901
                if kind == 2:
                    archive.writestr(new, b"")
            if not (number == changed and random.random() < 0.05):
                archive.writestr(new, data)
    result = packed.getvalue()
    return mutate_bytes(result, random) if random.random() < 0.1 else result


def _tar(content, random):
    with tarfile.open(fileobj=io.BytesIO(content), mode="r:") as archive:
        members = [
            (info, extracted.read() if (extracted := archive.extractfile(info)) else b"")
            for info in archive
        ]
    changed = random.randrange(len(members)) if members else 0
    packed = io.BytesIO()
    form = random.choice([tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
    with tarfile.open(fileobj=packed, mode="w:", format=form) as archive:
        for number, (info, data) in enumerate(members):
            new = tarfile.TarInfo(info.name)
            if number == changed:
                new.name = _names(info.name, random).replace("\0", "")
                kind = random.randrange(4)
                if kind == 0:
                    new.type = random.choice([
                        tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE,
                        tarfile.DIRTYPE, tarfile.GNUTYPE_SPARSE, b"Z",
                    ])  # fmt: skip
                    new.linkname = random.choice(["/etc/passwd", "../../x", info.name])
                elif kind == 1:
                    field = random.choice(["path", "size", "x"])
                    new.pax_headers = {field: random.choice(["9", "-1"])}
                else:
                    data = mutate(info.name, data, random)  # noqa: PLW2901
            new.size = len(data) if new.type == tarfile.REGTYPE else 0
            archive.addfile(new, io.BytesIO(data))
    result = packed.getvalue()
    return mutate_bytes(result, random) if random.random() < 0.2 else result


def _pickle(content, random):
    kind = random.randrange(4)
    if kind == 0:
        return random.choice(PICKLES)
    if kind == 1:
        place = random.randrange(len(content))
        return content[:place] + random.choice(PICKLES)[:-1] + content[place:]
    return mutate_bytes(content, random)


def _hdf5(content, random):
    """The datasets of a file, one of them changed."""
    if random.random() < 0.5:
        return mutate_bytes(content, random)
    arrays = {}

    def read(name, item):
        if isinstance(item, h5py.Dataset):
            arrays[name] = item[()]

    with h5py.File(io.BytesIO(content), "r") as file:
        file.visititems(read)
    changed, packed = random.choice([*arrays]), io.BytesIO()
    with h5py.File(packed, "w") as file:
        for name, array in arrays.items():
            if name == changed:
                _write_changed(file, name, array, random)
            else:
                file[name] = array
    return packed.getvalue()


def _write_changed(file, name, array, random):
    kind = random.randrange(11)
    if kind == 0:
        file[name] = array.astype(random.choice(["<f8", "<f2", ">f4", "<i4", "S4", "?", "<c8"]))
    elif kind == 1:
        file[name] = array.reshape(random.choice([-1, (1, *array.shape), (*array.shape, 1)]))
    elif kind == 2:
        shape = tuple(random.choice([size, 0, 1, 2**20, 2**40]) for size in array.shape)
        chunks = tuple(min(size, 64) for size in shape) if all(shape) else None
        file.create_dataset(name, shape, "f4", chunks=chunks)
    elif kind == 3:
        file[name] = random.choice([h5py.SoftLink(f"/{name}"), h5py.SoftLink("/none")])
    elif kind == 4:
        file[name] = h5py.ExternalLink("/etc/passwd", "/a")
    elif kind == 5:
        file.create_dataset(
            name, array.shape, "f4", external=[("/etc/passwd", 0, h5py.h5f.UNLIMITED)]
        )
    elif kind == 6:
        file[name] = random.choice(["text", b"bytes", h5py.Empty("f4"), np.nan])
    elif kind == 7:
        odd = f"{name}{random.choice(TEXTS[:3])}".encode() + random.choice([b"\xff", b"\xc3", b""])
        space, types = h5py.h5s.create_simple(array.shape), h5py.h5t.IEEE_F32LE
        creation = h5py.h5p.create(h5py.h5p.LINK_CREATE)
        creation.set_create_intermediate_group(True)
        h5py.h5d.create(file.id, odd, types, space, lcpl=creation)
    elif kind == 8:
        packing = "gzip" if array.ndim else None
        file.create_dataset(name, data=array, dtype="f4", compression=packing)
    elif kind == 9:
        numbers = np.array(array)
        numbers[...] = random.choice(FLOATS)
        file[name] = numbers
    else:
        file.create_group(name)
        file[name].attrs["a"] = "\ud800".encode("utf-8", "surrogatepass")


_BY_SIGNATURE = {
    b"\x89HDF\r\n\x1a\n": _hdf5,
    b"PK\x03\x04": _zip,
    b"\x1f\x8b": _gzip,
    b"BZh": _bzip2,
    b"\xfd7zXZ\x00": _xz,
    b"\x93NUMPY": _npy,
    b"\x80\x02": _pickle,
    b"\x80\x03": _pickle,
    b"\x80\x04": _pickle,
}
