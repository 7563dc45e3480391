"""Random models as ELMoForManyLangs writes them, and a reference in NumPy float64, word by word.

Both are written from the description of the format alone, and share no code with the package.
"""

import json
import math

import numpy as np
import torch

FILTERS = [[1, 4], [2, 8], [3, 12]]
SPECIAL = ["<bos>", "<eos>", "<oov>", "<pad>", "<bow>", "<eow>"]
CHARACTERS = [*"abcdefghijklmnopqrstuvwxyz .-'", "é", "数", "学", "😀", "\u3000"]
WORDS = ["the", "cat", "sat", "数学", "10 000", "a" * 48]

SENTENCES = [
    ["the", "cat", "sat", "on", "the", "mat", "."],
    ["Ünïcödé", "数学", "😀", "<oov>", "<pad>", "<bow>", "10 000", "10\u3000000"],
    ["a" * 100, "a" * 48, "b" * 49, "c" * 47, "", "<bos>", "<eos>", "\ud800"],
    ["sat"],
    [],
]


def make_config(
    *,
    char_dim=5,
    word_dim=4,
    filters=FILTERS,
    n_highway=1,
    activation="relu",
    max_characters=50,
    projection_dim=6,
    dim=12,
    n_layers=2,
    clips=(3, 3),
    embedder="cnn",
    encoder="elmo",
):
    return {
        "encoder": {
            "name": encoder, "projection_dim": projection_dim, "cell_clip": clips[0],
            "proj_clip": clips[1], "dim": dim, "n_layers": n_layers,
        },
        "token_embedder": {
            "name": embedder, "activation": activation, "filters": filters,
            "n_highway": n_highway, "word_dim": word_dim, "char_dim": char_dim,
            "max_characters_per_token": max_characters,
        },
        "classifier": {"name": "sampled_softmax", "n_samples": 8192},
        "dropout": 0.1,
    }  # fmt: skip


def make_weights(config, *, characters, words, seed=0, size=1.5):
    """The state dicts of the two files; `size` scales the LSTMs, so that the clips are active."""
    random = np.random.default_rng(seed)

    def draw(*shape, scale=1.0):
        return (random.standard_normal(shape) * scale).astype(np.float32)

    encoder, embedder = config["encoder"], config["token_embedder"]
    dim, cell_size = encoder["projection_dim"], encoder["dim"]
    features, words_encoder, lstms = 0, {}, {}
    if embedder["word_dim"]:
        features += embedder["word_dim"]
        words_encoder["word_emb_layer.embedding.weight"] = draw(words, embedder["word_dim"])
    if embedder["char_dim"]:
        number = sum(n for _, n in embedder["filters"])
        features += number
        words_encoder["char_emb_layer.embedding.weight"] = draw(characters, embedder["char_dim"])
        for k, (width, n) in enumerate(embedder["filters"]):
            kernel = draw(n, embedder["char_dim"], width, scale=0.4)
            words_encoder[f"convolutions.{k}.weight"] = kernel
            words_encoder[f"convolutions.{k}.bias"] = draw(n)
        for k in range(embedder["n_highway"]):
            name = f"highways._layers.{k}"
            words_encoder[f"{name}.weight"] = draw(2 * number, number, scale=number**-0.5)
            words_encoder[f"{name}.bias"] = draw(2 * number)
    words_encoder["projection.weight"] = draw(dim, features, scale=features**-0.5)
    words_encoder["projection.bias"] = draw(dim)
    for direction in ("forward", "backward"):
        for layer in range(encoder["n_layers"]):
            name = f"{direction}_layer_{layer}"
            scale = size * dim**-0.5
            lstms[f"{name}.input_linearity.weight"] = draw(4 * cell_size, dim, scale=scale)
            lstms[f"{name}.state_linearity.weight"] = draw(4 * cell_size, dim, scale=scale)
            lstms[f"{name}.state_linearity.bias"] = draw(4 * cell_size)
            lstms[f"{name}.state_projection.weight"] = draw(dim, cell_size, scale=scale)
    return words_encoder, lstms


def make_manylangs(folder, *, seed=0, size=1.5, legacy=True, characters=CHARACTERS, **shape):
    """Write a random model to a folder; returns its reference implementation."""
    config = make_config(**shape)
    random = np.random.default_rng(seed)
    lexicons = {}
    for kind, entries in (("char", [*SPECIAL, *characters]), ("word", [*SPECIAL, *WORDS])):
        if config["token_embedder"][f"{kind}_dim"]:
            order = random.permutation(len(entries))
            # Its reader takes any entry of white space for U+3000; of several, the last one counts.
            lexicons[kind] = {entries[k].strip() or "\u3000": i for i, k in enumerate(order)}
            lines = [f"{entries[k]}\t{i}\n" for i, k in enumerate(order)]
            (folder / f"{kind}.dic").write_text("".join(lines), "utf-8", newline="\n")
    words_encoder, lstms = make_weights(
        config,
        characters=len(SPECIAL) + len(characters),
        words=len(SPECIAL) + len(WORDS),
        seed=seed,
        size=size,
    )
    for name, weights in (("token_embedder.pkl", words_encoder), ("encoder.pkl", lstms)):
        tensors = {key: torch.from_numpy(array) for key, array in weights.items()}
        # The published files were written by torch 0.4.
        torch.save(tensors, folder / name, _use_new_zipfile_serialization=not legacy)
    (folder / "sizes.json").write_text(json.dumps(config))
    training = {"config_path": "/users4/conll18st/elmo/configs/sizes.json", "max_sent_len": 20}
    (folder / "config.json").write_text(json.dumps(training))
    return ManyLangsReference(config, lexicons, {**words_encoder, **lstms})


class ManyLangsReference:
    """config: the configuration; lexicons: ids by "char" and "word"; weights: arrays by name."""

    def __init__(self, config, lexicons, weights):
        self.config, self.lexicons = config, lexicons
        self.weights = {name: np.asarray(array, np.float64) for name, array in weights.items()}

    def layers(self, sentence, state=None):
        """(layers + 1, words, 2 * dim) of one sentence, and the state after it."""
        vectors = [self.boundary("<bos>"), *map(self.word, sentence), self.boundary("<eos>")]
        state = dict(state or {})
        halves = []
        for direction in ("forward", "backward"):
            layers = [vectors if direction == "forward" else vectors[::-1]]
            for layer in range(self.config["encoder"]["n_layers"]):
                layers.append(self.lstm(layers[-1], direction, layer, state))
            halves.append(
                [rows if direction == "forward" else rows[::-1] for rows in map(np.stack, layers)]
            )
        both = [np.concatenate(pair, 1) for pair in zip(*halves, strict=True)]
        return np.stack(both)[:, 1:-1], state

    def word(self, word):
        embedder = self.config["token_embedder"]
        if embedder["name"] == "cnn":
            word = word[: embedder["max_characters_per_token"] - 2]
        if word in ("<bos>", "<eos>"):
            return self.boundary(word)
        return self.encode(word, list(word))

    def boundary(self, name):
        return self.encode(name, [name])

    def encode(self, word, characters):
        weights, embedder = self.weights, self.config["token_embedder"]
        parts = []
        if embedder["word_dim"]:
            ids = self.lexicons["word"]
            parts.append(weights["word_emb_layer.embedding.weight"][ids.get(word, ids["<oov>"])])
        if embedder["char_dim"]:
            ids = self.lexicons["char"]
            row = [ids["<eow>"], *(ids.get(c, ids["<oov>"]) for c in characters), ids["<bow>"]]
            row += [ids["<pad>"]] * (embedder["max_characters_per_token"] - len(row))
            table = weights["char_emb_layer.embedding.weight"]
            parts.append(self.features([table[number] for number in row]))
        return weights["projection.weight"] @ np.concatenate(parts) + weights["projection.bias"]

    def features(self, characters):
        embedder = self.config["token_embedder"]
        features = []
        for k, (width, _) in enumerate(embedder["filters"]):
            kernel = self.weights[f"convolutions.{k}.weight"]  # (filters, char_dim, width)
            windows = [
                sum(kernel[:, :, j] @ characters[t + j] for j in range(width))
                for t in range(len(characters) - width + 1)
            ]
            best = np.max(windows, 0) + self.weights[f"convolutions.{k}.bias"]
            features.append(
                np.maximum(best, 0) if embedder["activation"] == "relu" else np.tanh(best)
            )
        x = np.concatenate(features)
        for k in range(embedder["n_highway"]):
            name = f"highways._layers.{k}"
            both = self.weights[f"{name}.weight"] @ x + self.weights[f"{name}.bias"]
            new, gate = np.split(both, 2)
            gate = sigmoid(gate)
            x = gate * x + (1 - gate) * np.maximum(new, 0)
        return x

    def lstm(self, vectors, direction, layer, state):
        encoder, name = self.config["encoder"], f"{direction}_layer_{layer}"
        from_input = self.weights[f"{name}.input_linearity.weight"]
        from_state = self.weights[f"{name}.state_linearity.weight"]
        bias = self.weights[f"{name}.state_linearity.bias"]
        projection = self.weights[f"{name}.state_projection.weight"]
        cell_clip = encoder["cell_clip"] or math.inf
        projection_clip = encoder["proj_clip"] or math.inf
        zero = np.zeros(encoder["dim"]), np.zeros(encoder["projection_dim"])
        c, h = state.get((direction, layer), zero)
        outputs = []
        for x in vectors:
            i, f, g, o = np.split(from_input @ x + from_state @ h + bias, 4)
            c = np.clip(sigmoid(f) * c + sigmoid(i) * np.tanh(g), -cell_clip, cell_clip)
            h = np.clip(projection @ (sigmoid(o) * np.tanh(c)), -projection_clip, projection_clip)
            outputs.append(h + x if layer > 0 else h)
        state[direction, layer] = c, h
        return outputs


def sigmoid(x):
    return 1 / (1 + np.exp(-x))
