import numpy as np
import pytest

from elmokit.errors import FormatError
from elmokit.formats.tf_v1_checkpoint import read_slices
from tensor_bundle import bytes_field, piece_key, varint_field, write_slices


@pytest.fixture
def tensors():
    random = np.random.default_rng(0)
    made = {f"scope/name_{n}": random.standard_normal((3, n)).astype("f4") for n in range(30)}
    return made | {
        "double": random.standard_normal((2, 3)),
        "scalar": np.float32(3),
        "none": np.zeros((0, 4), "f4"),
    }


@pytest.mark.parametrize("block_size", [1, 100, 4096, 10**6])
def test_every_number_comes_back(tmp_path, tensors, block_size):
    step = {"global_step": np.array(5, np.int64)}  # not a weight
    path = write_slices(tmp_path / "ckpt-base", tensors | step, block_size=block_size)
    actual = read_slices(path)
    assert actual.keys() == tensors.keys()
    for name, expected in tensors.items():
        assert actual[name].shape == expected.shape
        assert actual[name].dtype == actual[name][()].dtype == expected.dtype
        np.testing.assert_array_equal(actual[name][()], expected)


def refused(message, path):
    with pytest.raises(FormatError, match=message) as caught:
        read_slices(path)
    assert "\n" not in str(caught.value)


def test_a_compressed_file_is_refused(tmp_path, tensors):
    refused("it is compressed", write_slices(tmp_path / "model", tensors, compression=1))


def test_a_variable_in_pieces_is_refused(tmp_path):
    path = write_slices(tmp_path / "model", {"a": np.ones((2, 2), np.float32)}, pieces=2)
    refused("a is in several pieces, which elmokit reads of TensorFlow's second format only", path)


def test_an_empty_file_is_refused(tmp_path):
    (tmp_path / "model").touch()
    refused(
        "model: cannot be read as a TensorFlow checkpoint: it is empty; was", tmp_path / "model"
    )


KEY = piece_key("a", [(0, -1)])


def header(shape, dtype=1, name=b"a"):
    sizes = b"".join(bytes_field(2, varint_field(1, size)) for size in shape)
    described = bytes_field(1, name) + bytes_field(2, sizes) + varint_field(3, dtype)
    return bytes_field(1, bytes_field(1, described))


def numbers(field):
    return bytes_field(2, bytes_field(1, b"a") + bytes_field(3, field))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({b"": header([2**39])}, "a has the shape .549755813888,., which needs .* there are 12"),
        ({b"": header([-3])}, "a tensor has the shape .-3,."),
        ({b"": header([1] * 40)}, "a tensor has the shape"),
        ({b"": header([3], dtype=2)}, "needs 24 bytes, but there are 0"),
        ({b"": header([3], name=b"b")}, "the numbers of b are missing"),
        ({b"": varint_field(1, 7)}, "a number where a message is expected"),
        ({b"x": numbers(bytes_field(5, b"12345"))}, "a is in several pieces"),
        ({b"": header([2]), KEY: numbers(bytes_field(5, b"1234567"))}, "there are 7"),
        ({KEY: numbers(bytes_field(5, b"123456") * 2)}, "there are 12"),
        ({b"x": varint_field(1, 0) * (2**20 + 1)}, "a message of more than 1,048,576 fields"),
    ],
)  # fmt: skip
def test_absurd_sizes_are_refused(tmp_path, change, message):
    path = tmp_path / "model"
    write_slices(path, {"a": np.ones(3, np.float32)}, change=lambda table: table.update(change))
    refused(message, path)


def error_of_reading(path, expected):
    try:
        actual = {name: tensor[()] for name, tensor in read_slices(path).items()}
    except FormatError as error:
        return str(error)
    for name, array in expected.items():
        np.testing.assert_array_equal(actual[name], array)
    return None


def test_damage_never_goes_unnoticed(tmp_path, tensors):
    path = write_slices(tmp_path / "model", tensors, block_size=300)
    original = path.read_bytes()
    random = np.random.default_rng(0)
    refusals = []
    for _ in range(200):
        content = bytearray(original)
        start = int(random.integers(len(content)))
        kind = random.integers(3)
        if kind == 0:
            del content[start:]
        elif kind == 1:
            content[start] ^= 1 << random.integers(8)
        else:
            content[start : start + 8] = random.bytes(8)
        path.write_bytes(content)
        refusals.append(error_of_reading(path, tensors))
    assert sum(refusal is not None for refusal in refusals) > 190  # the rest are unused bytes
    assert not any("\n" in refusal for refusal in refusals if refusal)


def test_damage_with_valid_checksums_is_refused_in_one_line(tmp_path, tensors):
    random = np.random.default_rng(0)

    def damage(table):
        key = sorted(table)[random.integers(len(table))]
        value = bytearray(table.pop(key))
        for _ in range(random.integers(1, 4)):
            value[random.integers(min(40, len(value)))] = random.choice([0, 1, 2, 0x7F, 0x80, 0xFF])
        table[key if random.integers(2) else bytes(random.bytes(3))] = bytes(value)

    refusals = 0
    for _ in range(200):
        path = write_slices(tmp_path / "model", tensors, change=damage)
        error = error_of_reading(path, {})
        refusals += error is not None
        assert "\n" not in (error or "")
    assert refusals > 100  # the rest moved an entry, or changed numbers or bytes that are not used
