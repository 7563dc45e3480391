"""Checkpoints that TensorFlow and bilm-tf write, and elmokit reads: are all numbers the same?

    benchmarks/peers/bilm_tf/bin/python benchmarks/tensorflow_peer.py write FOLDER
    python benchmarks/tensorflow_peer.py compare FOLDER

`write` saves arrays of many types and shapes, trains a small biLM with bilm-tf, exports it as a
TF-Hub module, saves a module of google/elmo's size, and in TensorFlow's first format a small lm_1b
with TensorFlow's own LSTM cell. `compare` reads them all.
"""

import json
import os
import sys
import time
from pathlib import Path

import h5py
import numpy as np

TEXTS = ["the cat is on the mat", "dogs"]
WORDS = ["the", "cat", "is", "on", "mat", "dogs", "are", "in", "fog", "and", "it", "was", "not"]
NAMES_OF_LARGE_INDEX = 12_000
MIX, SCALE = [0.3, -1.2, 0.7], 1.25
LM_1B_SHARDS = 4
LM_1B_CELL = {  # TensorFlow's names of today, and those of 2016
    "projection/kernel/part_": "W_P_", "kernel/part_": "W_", "bias": "B",
    "w_i_diag": "W_I_diag", "w_f_diag": "W_F_diag", "w_o_diag": "W_O_diag",
}  # fmt: skip
OPTIONS = {
    "bidirectional": True,
    "char_cnn": {
        "activation": "relu",
        "embedding": {"dim": 4},
        "filters": [[1, 8], [2, 8], [3, 16]],
        "max_characters_per_token": 50,
        "n_characters": 261,
        "n_highway": 2,
    },
    "lstm": {
        "cell_clip": 3, "dim": 24, "n_layers": 2, "proj_clip": 3, "projection_dim": 8,
        "use_skip_connections": True,
    },
    "dropout": 0.1, "learning_rate": 0.2, "all_clip_norm_val": 10.0, "n_epochs": 1,
    "n_train_tokens": 2000, "batch_size": 4, "unroll_steps": 5, "n_tokens_vocab": len(WORDS) + 3,
    "n_negative_samples_batch": 8,
}  # fmt: skip


def write(folder: Path) -> None:
    os.environ["TF_USE_LEGACY_KERAS"] = "1"  # TensorFlow 1's LSTMCell went with Keras 3
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    import tensorflow.compat.v1 as tf

    sys.modules["tensorflow"] = tf  # bilm-tf says `import tensorflow as tf`
    tf.disable_v2_behavior()
    for part in ("arrays", "large", "run", "hdf5", "elmo/variables", "lm_1b"):
        (folder / part).mkdir(parents=True)
    write_arrays(tf, folder)
    write_large_index(tf, folder)
    train(tf, folder)
    export_module(tf, folder)
    write_full_size(tf, folder)
    write_lm_1b(tf, folder)


def write_arrays(tf, folder):
    """Many names, types, pieces and data files; and the same numbers as .npz."""
    random = np.random.default_rng(0)
    devices = [f"/cpu:{number}" for number in range(3)]
    with tf.Graph().as_default():
        variables = {}
        for number in range(1000):
            with tf.device(devices[number % 3]):
                name = f"a/rather/long/scope_{number // 50}/variable_{number}"
                value = random.standard_normal((number % 7, 3)).astype("f4")
                variables[name] = tf.get_variable(name, initializer=value)
        for dtype in (tf.float16, tf.float32, tf.float64, tf.bfloat16, tf.int32, tf.int64, tf.bool):
            value = tf.cast(random.integers(-99, 99, (5, 6)) / 7, dtype)
            variables[dtype.name] = tf.get_variable(dtype.name, initializer=value)
        for name, shape in {"rows": (20_001, 3), "columns": (2, 3, 150)}.items():
            axis = int(np.argmax(shape))
            variables[name] = tf.get_variable(
                name, shape, partitioner=tf.fixed_size_partitioner(3, axis=axis)
            )
        config = tf.ConfigProto(device_count={"CPU": 3})
        with tf.Session(config=config) as session:
            session.run(tf.global_variables_initializer())
            tf.train.Saver(sharded=True).save(session, str(folder / "arrays" / "model.ckpt"))
            values = session.run(
                {
                    name: tf.cast(variable, tf.float32)
                    if variable.dtype.base_dtype == tf.bfloat16
                    else tf.convert_to_tensor(variable)
                    for name, variable in variables.items()
                }
            )
    np.savez(folder / "arrays.npz", **values)


def write_large_index(tf, folder):
    """So many names that the index has several blocks of 256 KB; array n holds n."""
    names = [f"scope_{n % 97}/{'x' * (n % 60)}/{n}" for n in range(NAMES_OF_LARGE_INDEX)]
    with tf.Graph().as_default(), tf.Session() as session:
        parts = tf.unstack(tf.range(len(names), dtype=tf.float32))
        prefix = str(folder / "large" / "model.ckpt")
        session.run(tf.raw_ops.SaveV2(
            prefix=prefix, tensor_names=names, shape_and_slices=[""] * len(names), tensors=parts
        ))  # fmt: skip


def train(tf, folder):
    """A run of bilm-tf's own training, and the weights that it dumps of it."""
    from bilm import data, training

    vocabulary = ["<S>", "</S>", "<UNK>", *WORDS]
    (folder / "vocab.txt").write_text("".join(f"{word}\n" for word in vocabulary))
    random = np.random.default_rng(0)
    sentences = [" ".join(random.choice(WORDS, 7)) for _ in range(400)]
    (folder / "train.txt").write_text("".join(f"{sentence}\n" for sentence in sentences))
    characters = data.UnicodeCharsVocabulary(str(folder / "vocab.txt"), 50)
    dataset = data.BidirectionalLMDataset(
        str(folder / "train.txt"), characters, test=False, shuffle_on_load=True
    )
    with tf.Graph().as_default():
        training.train(OPTIONS, dataset, 1, str(folder / "run"), str(folder / "log"))
    (folder / "vocab.txt").rename(folder / "run" / "vocab.txt")
    with tf.Graph().as_default():
        training.dump_weights(str(folder / "run"), str(folder / "hdf5" / "weights.hdf5"))
    options = json.loads((folder / "run" / "options.json").read_text())
    options["char_cnn"]["n_characters"] = 262
    (folder / "hdf5" / "options.json").write_text(json.dumps(options))
    reader = tf.train.NewCheckpointReader(tf.train.latest_checkpoint(str(folder / "run")))
    softmax = {name: reader.get_tensor(f"lm/softmax/{name}") for name in ("W", "b")}
    np.savez(folder / "softmax.npz", **softmax)


def export_module(tf, folder):
    """The biLM and its mix as DeepPavlov exported them, and the mix of two sentences."""
    from bilm import data, elmo, model

    files = [str(folder / "hdf5" / name) for name in ("options.json", "weights.hdf5")]
    with tf.Graph().as_default(), tf.Session() as session:
        ids = tf.placeholder("int32", (None, None, 50))
        embeddings = model.BidirectionalLanguageModel(*files)(ids)
        with tf.variable_scope("aggregation"):
            mixed = elmo.weight_layers("elmo_output", embeddings, l2_coef=0.0)["weighted_op"]
        session.run(tf.global_variables_initializer())
        for name, value in (("W", MIX), ("gamma", [SCALE])):
            (variable,) = [v for v in tf.global_variables() if v.name.endswith(f"_ELMo_{name}:0")]
            session.run(variable.assign(value))
        batcher = data.Batcher(str(folder / "run" / "vocab.txt"), 50)
        batch = batcher.batch_sentences([text.split() for text in TEXTS])
        tf.saved_model.simple_save(session, str(folder / "module"), {"ids": ids}, {"elmo": mixed})
        np.save(folder / "elmo.npy", session.run(mixed, {ids: batch}))


def write_full_size(tf, folder):
    """Random numbers under the names, and in the shapes, of google/elmo."""
    shapes = {"char_embed": (262, 16), "CNN_proj/W_proj": (2048, 512), "CNN_proj/b_proj": (512,)}
    for number, (width, count) in enumerate(
        [(1, 32), (2, 32), (3, 64), (4, 128), (5, 256), (6, 512), (7, 1024)]
    ):
        shapes[f"CNN/W_cnn_{number}"] = (1, width, 16, count)
        shapes[f"CNN/b_cnn_{number}"] = (count,)
    for number in range(2):
        for name in ("carry", "transform"):
            shapes[f"CNN_high_{number}/W_{name}"] = (2048, 2048)
            shapes[f"CNN_high_{number}/b_{name}"] = (2048,)
        for layer in range(2):
            cell = f"RNN_{number}/RNN/MultiRNNCell/Cell{layer}/rnn/lstm_cell"
            shapes[f"{cell}/kernel"] = (1024, 16384)
            shapes[f"{cell}/bias"] = (16384,)
            shapes[f"{cell}/projection/kernel"] = (4096, 512)
    with tf.Graph().as_default(), tf.Session() as session:
        for name, shape in shapes.items():
            initializer = tf.random_normal_initializer(stddev=0.02, seed=len(name))
            tf.get_variable(f"bilm/{name}", shape, initializer=initializer)
        tf.get_variable("aggregation/weights", initializer=np.float32(MIX))
        tf.get_variable("aggregation/scaling", initializer=np.float32(SCALE))
        session.run(tf.global_variables_initializer())
        tf.train.Saver().save(session, str(folder / "elmo" / "variables" / "variables"))


def write_lm_1b(tf, folder):
    """A small random lm_1b: its files, its variables, and what it gives for a text."""
    words = ["<S>", "</S>", "<UNK>", *WORDS]
    (folder / "lm_1b" / "vocab.txt").write_text("".join(f"{word}\n" for word in words))
    text = ["<S>", *TEXTS[0].split()]
    spelled = [[0] if word == "<S>" else [*word.encode()] for word in text]
    rows = [[2, *word, 3] for word in spelled]  # no word has the bytes 0 to 4
    fed = np.array([row + [4] * (50 - len(row)) for row in rows])
    files = {"ckpt-char-embedding": "char_embedding/", "ckpt-lstm": "lstm/"}
    files |= {f"ckpt-softmax{n}": f"softmax/W_{n}" for n in range(LM_1B_SHARDS)}
    files[f"ckpt-softmax{LM_1B_SHARDS}"] = "softmax/b"
    with tf.Graph().as_default(), tf.Session() as session:
        tf.set_random_seed(0)
        variables, layers, logits = lm_1b(tf, tf.constant(fed), len(words))
        session.run(tf.global_variables_initializer())
        for name, prefix in files.items():
            saved = {n: v for n, v in variables.items() if n.startswith(prefix)}
            saver = tf.train.Saver(saved, write_version=tf.train.SaverDef.V1)
            saver.save(session, str(folder / "lm_1b" / name), write_meta_graph=False)
        np.savez(folder / "lm_1b.npz", **session.run(variables))
        results = session.run([tf.stack(layers), tf.nn.log_softmax(logits)])
        np.savez(folder / "lm_1b_outputs.npz", layers=results[0], log_probabilities=results[1])


def lm_1b(tf, ids, num_words):
    """A graph of lm_1b's kind: its variables by their published names, layers and logits."""
    filters, dim, cell_size = [(1, 4), (2, 8), (3, 12)], 8, 32
    initializer = tf.random_normal_initializer(stddev=0.5)
    variables = {}

    def variable(name, *shape):
        variables[name] = tf.get_variable(name, shape, initializer=initializer)
        return variables[name]

    def linear(vectors, name, size):
        rows = vectors.shape[1] // LM_1B_SHARDS
        parts = [variable(f"{name}/W_{n}", rows, size) for n in range(LM_1B_SHARDS)]
        return vectors @ tf.concat(parts, 0) + variable(f"{name}/b", 1, size)

    embedded = tf.nn.embedding_lookup(variable("char_embedding/W", 256, 16), ids)
    features = []
    for number, (width, count) in enumerate(filters):
        name = f"char_embedding/cnn_{number}"
        kernel = variable(f"{name}/kernel", width, 16, 1, count)
        found = tf.nn.conv2d(embedded[..., None], kernel, strides=1, padding="VALID")
        found = tf.nn.relu(found + variable(f"{name}/b", 1, 1, 1, count))
        features.append(tf.reduce_max(found, [1, 2]))
    vectors = tf.concat(features, 1)
    for number in range(2):
        name = f"char_embedding/dense_{number}"
        gate = tf.sigmoid(linear(vectors, f"{name}/gate", vectors.shape[1]) - 2.0)
        changed = tf.nn.relu(linear(vectors, f"{name}/tr", vectors.shape[1]))
        vectors = gate * changed + (1 - gate) * vectors
    layers = [linear(vectors, "char_embedding/proj", dim)]
    for number in range(2):
        with tf.variable_scope(f"lstm/lstm_{number}", initializer=initializer):
            cell = tf.nn.rnn_cell.LSTMCell(
                cell_size, use_peepholes=True, num_proj=dim, num_unit_shards=LM_1B_SHARDS,
                num_proj_shards=LM_1B_SHARDS, forget_bias=1.0, name="cell",
            )  # fmt: skip
            outputs, _ = tf.nn.dynamic_rnn(cell, layers[-1][None], dtype=tf.float32)
        layers.append(outputs[0])
    for made in tf.global_variables():
        scope, _, part = made.op.name.partition("/rnn/cell/")
        for name, published in LM_1B_CELL.items():
            if part.startswith(name):
                variables[f"{scope}/{published}{part.removeprefix(name)}"] = made
    rows = -(-num_words // LM_1B_SHARDS) + 1  # more than words, as in lm_1b
    parts = [variable(f"softmax/W_{n}", rows, dim) for n in range(LM_1B_SHARDS)]
    weights = tf.reshape(tf.concat(parts, 1), (-1, dim))
    return (
        variables,
        layers,
        layers[-1] @ tf.transpose(weights) + variable("softmax/b", LM_1B_SHARDS * rows),
    )


def compare(folder: Path) -> None:
    import elmokit
    from elmokit.compat import tfhub
    from elmokit.formats import load
    from elmokit.formats.tf_v2_checkpoint import read_bundle

    tensors = read_bundle(folder / "arrays" / "model.ckpt.index")
    with np.load(folder / "arrays.npz") as arrays:
        assert {*arrays} == {*tensors}
        for name, expected in arrays.items():
            assert tensors[name].dtype == expected.dtype, name
            np.testing.assert_array_equal(tensors[name][()], expected, err_msg=name)
    shards = len([*(folder / "arrays").glob("*.data-*")])
    size = (folder / "arrays" / "model.ckpt.index").stat().st_size
    print(f"{len(tensors):,} arrays in {shards} data files, index {size:,} bytes: the same bits")

    large = folder / "large" / "model.ckpt.index"
    tensors = read_bundle(large)
    assert len(tensors) == NAMES_OF_LARGE_INDEX
    for name, tensor in tensors.items():
        assert tensor[()] == int(name.rpartition("/")[2])
    print(f"{len(tensors):,} arrays, index {large.stat().st_size:,} bytes: the same bits")

    run = load(folder / "run")
    assert run.fingerprint() == load(folder / "hdf5").fingerprint()
    with np.load(folder / "softmax.npz") as softmax:
        np.testing.assert_array_equal(run.model.softmax.weight.detach(), softmax["W"])
        np.testing.assert_array_equal(run.model.softmax.bias.detach(), softmax["b"])
    with h5py.File(folder / "hdf5" / "weights.hdf5") as file:
        datasets = []
        file.visit(datasets.append)
    print(f"bilm-tf's run: the same bits as its dump_weights, {len(datasets)} groups and datasets")
    print("  perplexity of its training text", elmokit.Embedder(run).perplexity(
        [line.split() for line in (folder / "train.txt").read_text().splitlines()]
    ).geometric_mean)  # fmt: skip

    actual = tfhub.Module(folder / "module")(TEXTS, as_dict=True)["elmo"].numpy()
    expected = np.load(folder / "elmo.npy")
    lengths = [len(text.split()) for text in TEXTS]
    difference = max(
        np.abs(actual[row, :length] - expected[row, :length]).max()
        for row, length in enumerate(lengths)
    )
    assert load(folder / "module").fingerprint() == run.fingerprint()
    print(f"TF-Hub module: the same bits; output `elmo` differs by {difference:.1e} at most")

    compare_lm_1b(folder)

    for _ in range(3):
        start = time.perf_counter()
        pretrained = load(folder / "elmo")
        seconds = time.perf_counter() - start
        parameters = sum(p.numel() for p in pretrained.model.parameters())
        print(f"google/elmo's size: {parameters:,} parameters loaded in {seconds:.2f} s")


def compare_lm_1b(folder):
    import elmokit
    from elmokit.formats.tf_v1_checkpoint import read_slices

    files = [path for path in (folder / "lm_1b").iterdir() if path.name.startswith("ckpt-")]
    tensors = {name: tensor for path in files for name, tensor in read_slices(path).items()}
    with np.load(folder / "lm_1b.npz") as arrays:
        assert {*arrays} == {*tensors}
        for name, expected in arrays.items():
            np.testing.assert_array_equal(tensors[name][()], expected, err_msg=name)
    print(f"lm_1b: {len(tensors)} arrays in {len(files)} files of the first format: the same bits")

    model, words = elmokit.load(folder / "lm_1b"), TEXTS[0].split()
    vocabulary = model.pretrained.vocabulary
    with np.load(folder / "lm_1b_outputs.npz") as outputs:
        layers, log_probabilities = outputs["layers"], outputs["log_probabilities"]
    difference = np.abs(model.embed([words])[0] - layers[:, 1:]).max()
    targets = vocabulary.ids([*words, "</S>"])
    expected = log_probabilities[np.arange(len(targets)), targets]
    actual = np.log(model.perplexity([words]).forward) * len(targets)
    print(f"  layers, up to {np.abs(layers).max():.1f}, differ by {difference:.1e} at most, the "
          f"log-probability of a sentence, {expected.sum():.1f}, by "
          f"{abs(actual + expected.sum()):.1e}")  # fmt: skip
    best = np.argsort(-log_probabilities[len(words)])[:3]
    assert [word for word, _ in model.next_words(words, k=3)] == [vocabulary[n] for n in best]


if __name__ == "__main__":
    {"write": write, "compare": compare}[sys.argv[1]](Path(sys.argv[2]))
