"""Random models of any shape as bilm-tf's files, and small corpora."""

import json
from collections import Counter

import h5py
import numpy as np

from elmokit.pretraining.settings import PRESETS
from reference import Reference

# The sizes that AllenNLP published.
SIZES = {size: PRESETS[size].bilm(1) for size in ("small", "medium", "original")}
FILTERS = [[1, 4], [2, 8], [3, 12]]


def make_options(
    *,
    dim=12,
    projection_dim=6,
    n_layers=2,
    clips=(3, 3),
    skip=True,
    width=50,
    filters=FILTERS,
    n_highway=1,
    activation="relu",
    n_characters=262,
    characters=True,
):
    lstm = {"dim": dim, "projection_dim": projection_dim, "n_layers": n_layers}
    lstm["use_skip_connections"] = skip
    lstm |= {
        name: clip
        for name, clip in zip(("cell_clip", "proj_clip"), clips, strict=True)
        if clip is not None
    }
    if not characters:
        return {"lstm": lstm}
    return {
        "lstm": lstm,
        "char_cnn": {
            "activation": activation,
            "embedding": {"dim": 5},
            "filters": filters,
            "max_characters_per_token": width,
            "n_characters": n_characters,
            "n_highway": n_highway,
        },
    }


def make_weights(options, *, directions=2, table_words=None, softmax_words=None, seed=0, size=1.0):
    """Arrays by dataset name; `size` scales the LSTMs' weights, so that the clips are active."""
    random = np.random.default_rng(seed)

    def draw(*shape, scale=1.0):
        return (random.standard_normal(shape) * scale).astype(np.float32)

    lstm, cnn = options["lstm"], options.get("char_cnn")
    dim = lstm["projection_dim"]
    weights = {}
    if cnn:
        character_dim = cnn["embedding"]["dim"]
        features = sum(n for _, n in cnn["filters"])
        weights["char_embed"] = draw(261, character_dim)
        for k, (width, n) in enumerate(cnn["filters"]):
            weights[f"CNN/W_cnn_{k}"] = draw(1, width, character_dim, n, scale=0.4)
            weights[f"CNN/b_cnn_{k}"] = draw(n)
        for k in range(cnn["n_highway"] or 0):
            for name in ("carry", "transform"):
                weights[f"CNN_high_{k}/W_{name}"] = draw(features, features, scale=features**-0.5)
                weights[f"CNN_high_{k}/b_{name}"] = draw(features)
        if features != dim:
            weights["CNN_proj/W_proj"] = draw(features, dim, scale=features**-0.5)
            weights["CNN_proj/b_proj"] = draw(dim)
    else:
        weights["embedding"] = draw(table_words, dim)
    for direction in range(directions):
        for layer in range(lstm["n_layers"]):
            name = f"RNN_{direction}/RNN/MultiRNNCell/Cell{layer}/LSTMCell"
            weights[f"{name}/W_0"] = draw(2 * dim, 4 * lstm["dim"], scale=size * dim**-0.5)
            weights[f"{name}/B"] = draw(4 * lstm["dim"])
            if lstm["dim"] != dim:
                weights[f"{name}/W_P_0"] = draw(lstm["dim"], dim, scale=size * dim**-0.5)
    if softmax_words:
        weights["softmax/W"] = draw(softmax_words, dim)
        weights["softmax/b"] = draw(softmax_words)
    return weights


def write_files(folder, options, weights, vocabulary=None):
    """Write options.json, weights.hdf5 and perhaps vocab.txt to a folder."""
    (folder / "options.json").write_text(json.dumps(options))
    with h5py.File(folder / "weights.hdf5", "w") as file:
        for name, array in weights.items():
            file[name] = array
    if vocabulary is not None:
        (folder / "vocab.txt").write_text("".join(f"{word}\n" for word in vocabulary), "utf-8")
    return folder


def make_folder(folder, *, directions=2, table_words=None, softmax_words=None, size=1.0, **shape):
    """Write a random model to a folder, and return the folder."""
    options = make_options(**shape) | {"bidirectional": directions == 2}
    weights = make_weights(
        options,
        directions=directions,
        table_words=table_words,
        softmax_words=softmax_words,
        size=size,
    )
    words = table_words or softmax_words
    vocabulary = None
    if words:
        vocabulary = ["<S>", "</S>", "<UNK>", *(f"word{k}" for k in range(words - 3))]
    return write_files(folder, options, weights, vocabulary)


def make_corpus(folder, sentences, *, vocabulary=None, valid=(), shards=1):
    """Write a corpus as `elmo prepare` does, of sentences that are lists of words."""
    folder.mkdir(parents=True, exist_ok=True)
    if vocabulary is None:
        counts = Counter(word for sentence in sentences for word in sentence)
        vocabulary = ["<S>", "</S>", "<UNK>", *(word for word, _ in counts.most_common())]
    ids_by_word = {word: word_id for word_id, word in enumerate(vocabulary)}
    for sentence in sentences:
        for word in sentence:
            ids_by_word.setdefault(word, len(ids_by_word))
    records = []
    for shard in range(shards):
        part = sentences[shard::shards]
        ids = [i for sentence in part for i in (*map(ids_by_word.get, sentence), 1)]
        np.save(folder / f"{shard:05}.npy", np.array(ids, np.int32))
        words = len(ids) - len(part)
        records.append({"name": f"{shard:05}.npy", "sentences": len(part), "words": words})
    all_ids = [np.load(folder / record["name"]) for record in records]
    np.save(folder / "counts.npy", np.bincount(np.concatenate(all_ids), minlength=len(ids_by_word)))
    for name, words in (("lexicon.txt", ids_by_word), ("vocabulary.txt", vocabulary)):
        (folder / name).write_text("".join(f"{word}\n" for word in words), "utf-8")
    (folder / "valid.txt").write_text("".join(f"{' '.join(line)}\n" for line in valid), "utf-8")
    record = {
        "format": "elmokit-corpus", "version": 1, "split": "spaces",
        "sentences": len(sentences), "words": sum(map(len, sentences)),
        "types": len(ids_by_word), "vocabulary": len(vocabulary), "shards": records,
        "sources": [], "settings": {}, "fingerprint": "made", "report": {},
    }  # fmt: skip
    (folder / "corpus.json").write_text(json.dumps(record))
    return folder


def make_pair(folder, *, directions=2, words=9, size=1.5, **shape):
    """The folder of a random language model, and its reference implementation."""
    options = make_options(**shape) | {"bidirectional": directions == 2}
    weights = make_weights(
        options,
        directions=directions,
        table_words=None if shape.get("characters", True) else words,
        softmax_words=words,
        size=size,
    )
    vocabulary = ["<S>", "</S>", "<UNK>", *(f"word{k}" for k in range(words - 3))]
    write_files(folder, options, weights, vocabulary)
    return folder, Reference(options, weights, vocabulary)
