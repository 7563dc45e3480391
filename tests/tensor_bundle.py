"""Writers of TensorFlow's checkpoint formats, from the description of the formats alone."""

import struct

import numpy as np

# The fields of a TensorProto that hold numbers of a type.
NUMBERS = {"float32": 5, "float64": 6, "int64": 10}
TYPES = {"float32": 1, "float64": 2, "int32": 3, "int64": 9, "bool": 10, "float16": 19}
BFLOAT16 = 14


def write_checkpoint(
    prefix,
    tensors,
    *,
    shards=1,
    partitions=None,
    bfloat16=(),
    block_size=4096,
    compression=0,
    change=None,
):
    """Write `prefix`.index and .data files.

    Tensors go to `shards` data files in turn. `partitions` cuts tensors into so many pieces along
    their longest axis; those of `bfloat16` lose the lower half of their bits. `change` may alter
    the table, which maps keys to messages, before it is written.
    """
    data = [bytearray() for _ in range(shards)]
    table = {}

    def add(key, array, is_bfloat16):
        numbers = np.asarray(array)
        code = TYPES[str(numbers.dtype)]
        if is_bfloat16:
            code, numbers = BFLOAT16, (numbers.view(np.uint32) >> 16).astype(np.uint16)
        shard = len(table) % shards
        raw = numbers.tobytes()
        table[key] = (
            entry(code, numbers.shape)
            + varint_field(3, shard)
            + varint_field(4, len(data[shard]))
            + varint_field(5, len(raw))
            + b"\x35"
            + struct.pack("<I", masked_crc32c(raw))
        )
        data[shard] += raw

    for name, array in tensors.items():
        count = (partitions or {}).get(name, 0)
        if not count:
            add(name.encode(), array, name in bfloat16)
            continue
        axis = int(np.argmax(array.shape))
        slices, start = b"", 0
        for piece in np.array_split(array, count, axis):
            # What is not cut has its full length, as TensorFlow's Saver writes it, or -1.
            place = [(0, -1 if count == 5 else size) for size in array.shape]
            place[axis] = start, piece.shape[axis]
            start += piece.shape[axis]
            add(piece_key(name, place), piece, name in bfloat16)
            extents = [b"" if length < 0 else extent(first, length) for first, length in place]
            slices += bytes_field(7, b"".join(bytes_field(1, e) for e in extents))
        table[name.encode()] = entry(TYPES[str(array.dtype)], array.shape) + slices
    table[b""] = varint_field(1, shards) + bytes_field(3, varint_field(1, 1))
    if change is not None:
        change(table)
    prefix.parent.mkdir(parents=True, exist_ok=True)
    for number, content in enumerate(data):
        path = prefix.with_name(f"{prefix.name}.data-{number:05}-of-{shards:05}")
        path.write_bytes(content)
    index = prefix.with_name(f"{prefix.name}.index")
    index.write_bytes(leveldb_table(sorted(table.items()), block_size, compression))
    return index


def write_slices(path, tensors, *, pieces=1, block_size=4096, compression=0, change=None):
    """Write a checkpoint in TensorFlow's first format, one file; `pieces` are those of a tensor."""
    table, described = {}, b""
    for name, array in tensors.items():
        numbers = np.asarray(array)
        code, field = TYPES[str(numbers.dtype)], NUMBERS[str(numbers.dtype)]
        whole = b"".join(bytes_field(1, b"") for _ in numbers.shape)
        described += bytes_field(
            1,
            bytes_field(1, name.encode())
            + bytes_field(2, shape_message(numbers.shape))
            + varint_field(3, code)
            + bytes_field(4, whole),
        )
        encoded = numbers.tobytes()
        if field == NUMBERS["int64"]:
            encoded = b"".join(varint(int(number)) for number in numbers.flat)
        saved = bytes_field(1, name.encode()) + bytes_field(2, whole)
        saved += bytes_field(3, bytes_field(field, encoded))
        for number in range(pieces):
            place = [(number, -1)] * len(numbers.shape)
            table[piece_key(name, place)] = bytes_field(2, saved)
    table[b""] = bytes_field(1, described + bytes_field(2, varint_field(1, 1)))
    if change is not None:
        change(table)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(leveldb_table(sorted(table.items()), block_size, compression))
    return path


def leveldb_table(entries, block_size, compression):
    """The bytes of a table, its entries in the order of their keys."""
    contents, handles, waiting = b"", [], []
    for number, (key, value) in enumerate(entries):
        waiting.append((key, value))
        size = sum(len(k) + len(v) for k, v in waiting)
        if size >= block_size or number == len(entries) - 1:
            position, contents = with_block(contents, block(waiting, restart=16), compression)
            handles.append((key, position))
            waiting = []
    unused, contents = with_block(contents, block([], restart=1), compression)
    index, contents = with_block(contents, block(handles, restart=1), compression)
    footer = (unused + index).ljust(40, b"\0")
    return contents + footer + bytes.fromhex("57fb808b247547db")


def with_block(contents, data, compression):
    """The handle of a block, and the contents of a file with that block at the end."""
    body = data + bytes([compression])
    handle = varint(len(contents)) + varint(len(data))
    return handle, contents + body + struct.pack("<I", masked_crc32c(body))


def block(entries, *, restart):
    data, restarts, last = bytearray(), [0], b""
    for number, (key, value) in enumerate(entries):
        shared = 0
        if number % restart == 0:
            restarts += [len(data)] * (number > 0)
        else:
            while shared < min(len(key), len(last)) and key[shared] == last[shared]:
                shared += 1
        data += varint(shared) + varint(len(key) - shared) + varint(len(value))
        data += key[shared:] + value
        last = key
    return bytes(data) + struct.pack(f"<{len(restarts) + 1}I", *restarts, len(restarts))


def entry(dtype, shape):
    return varint_field(1, dtype) + bytes_field(2, shape_message(shape))


def shape_message(shape):
    return b"".join(bytes_field(2, varint_field(1, size)) for size in shape)


def extent(start, length):
    return (varint_field(1, start) if start else b"") + varint_field(2, length)


def piece_key(name, place):
    key = b"\0" + name.encode() + b"\0\1" + b"\1" + bytes([len(place)])
    return key + b"".join(signed(number) for pair in place for number in pair)


def signed(number):
    """OrderedCode's signed numbers, as far as checkpoints of tests need them."""
    if -64 <= number < 64:
        return bytes([(number & 0xFF) ^ 0x80])
    assert 64 <= number < 8192
    return struct.pack(">H", number | 0xC000)


def varint(number):
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


def varint_field(number, value):
    return varint(number << 3) + varint(value & (2**64 - 1))


def bytes_field(number, value):
    return varint(number << 3 | 2) + varint(len(value)) + value


def masked_crc32c(data):
    crc = 0xFFFFFFFF
    for byte in bytes(data):
        crc = CRC_TABLE[(crc ^ byte) & 0xFF] ^ crc >> 8
    crc ^= 0xFFFFFFFF
    return (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF


def crc_of_byte(value):
    for _ in range(8):
        value = value >> 1 ^ 0x82F63B78 * (value & 1)
    return value


CRC_TABLE = [crc_of_byte(value) for value in range(256)]


def training_variables(weights, *, cells=("kernel", "bias", "projection/kernel")):
    """The variables of a training run of bilm-tf, given the arrays of its HDF5 file."""
    variables = {"global_step": np.float32(7), "train_perplexity": np.float32(0)}
    layers = max(int(name.split("Cell")[2][0]) for name in weights if "LSTMCell" in name) + 1
    directions = {name.split("/")[0] for name in weights if "LSTMCell" in name}
    for name, array in weights.items():
        variable = name.replace("/RNN/MultiRNNCell/Cell", "/rnn/multi_rnn_cell/cell_")
        if layers == 1:
            variable = variable.replace("multi_rnn_cell/cell_0/", "")
        if len(directions) == 1:
            variable = variable.removeprefix("RNN_0/")
        if "LSTMCell" in name:
            scope, part = variable.split("LSTMCell/")
            variable = f"{scope}lstm_cell/{cells[('W_0', 'B', 'W_P_0').index(part)]}"
        variables[f"lm/{variable}"] = array
        variables[f"lm/{variable}/Adagrad"] = np.ones_like(array)
    return variables


def lm_1b_variables(weights, special, *, shards=4):
    """The variables of lm_1b, given arrays by bilm-tf's names and peepholes, in all files.

    `special` are the bytes that stand for the boundaries, whose rows end bilm-tf's embedding.
    """
    rows = weights["char_embed"][:256].copy()
    rows[special] = weights["char_embed"][256:]
    variables = {"char_embedding/W": rows}

    def shard(name, matrix):
        for number, part in enumerate(np.split(matrix, shards)):
            variables[f"{name}_{number}"] = part

    for name, array in weights.items():
        if name.startswith("CNN/W_cnn_"):
            number = name.removeprefix("CNN/W_cnn_")
            kernel, bias = array.transpose(1, 2, 0, 3), weights[f"CNN/b_cnn_{number}"]
            variables[f"char_embedding/cnn_{number}/kernel"] = kernel
            variables[f"char_embedding/cnn_{number}/b"] = bias[None, None, None]
        if name.startswith("CNN_high_") and name.endswith("/W_carry"):
            highway, _, _ = name.partition("/")
            scope = f"char_embedding/dense_{highway.removeprefix('CNN_high_')}"
            shard(f"{scope}/gate/W", array)  # 2 is subtracted from the gates when they are computed
            variables[f"{scope}/gate/b"] = weights[f"{highway}/b_carry"][None] + np.float32(2)
            shard(f"{scope}/tr/W", weights[f"{highway}/W_transform"])
            variables[f"{scope}/tr/b"] = weights[f"{highway}/b_transform"][None]
        if name.endswith("/peepholes"):
            cell = name.removesuffix("/peepholes")
            scope = f"lstm/lstm_{cell.split('/Cell')[1].split('/')[0]}"
            shard(f"{scope}/W", weights[f"{cell}/W_0"])
            shard(f"{scope}/W_P", weights[f"{cell}/W_P_0"])
            variables[f"{scope}/B"] = weights[f"{cell}/B"]
            for gate, row in zip("IFO", array, strict=True):
                variables[f"{scope}/W_{gate}_diag"] = row
    shard("char_embedding/proj/W", weights["CNN_proj/W_proj"])
    variables["char_embedding/proj/b"] = weights["CNN_proj/b_proj"][None]
    for number in range(shards):  # a row of each in turn
        variables[f"softmax/W_{number}"] = weights["softmax/W"][number::shards]
    return variables | {"softmax/b": weights["softmax/b"]}


def module_variables(weights, mix_weights, scale, *, deeppavlov=False):
    """The variables of a TF-Hub module, given the arrays of an HDF5 file and its mix."""
    names = ("output_ELMo_W", "output_ELMo_gamma") if deeppavlov else ("weights", "scaling")
    variables = {
        f"aggregation/{names[0]}": np.array(mix_weights, np.float32),
        f"aggregation/{names[1]}": np.array([scale] if deeppavlov else scale, np.float32),
        "bilm/Variable": np.zeros((8, 5), np.float32),  # a state
    }
    parts = {"W_0": "kernel", "B": "bias", "W_P_0": "projection/kernel"}
    for name, array in weights.items():
        variable = name
        if "LSTMCell" in name:
            scope, part = name.split("LSTMCell/")
            variable = f"{scope}rnn/lstm_cell/{parts[part]}"
        variables[f"bilm/{variable}"] = array
    rows = weights["char_embed"]
    variables["bilm/char_embed"] = np.concatenate([np.zeros_like(rows[:1]), rows])  # padding
    return variables
