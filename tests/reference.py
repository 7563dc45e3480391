"""A reference implementation of bilm-tf's models in NumPy float64, word by word.

Slow, and written from the description of the files alone: it shares no code with the package.
"""

import math

import numpy as np

CHARACTERS_BEFORE_SHIFT = {"bos": 256, "eos": 257, "bow": 258, "eow": 259, "pad": 260}


class Reference:
    """options: the dictionary of options.json; weights: a dictionary of arrays by dataset name."""

    def __init__(self, options, weights, vocabulary=None):
        self.options = options
        self.weights = {name: np.asarray(array, np.float64) for name, array in weights.items()}
        self.vocabulary = vocabulary
        self.directions = 2 if any(name.startswith("RNN_1") for name in weights) else 1

    def layers(self, sentence, state=None):
        """(layers + 1, words, directions * dim) of one sentence, and the state after it."""
        vectors = [self.word(word) for word in ["<S>", *sentence, "</S>"]]
        state = dict(state or {})
        halves = []
        for direction in range(self.directions):
            order = vectors if direction == 0 else vectors[::-1]
            layers = [order]
            for layer in range(self.options["lstm"].get("n_layers", 1)):
                layers.append(self.lstm(layers[-1], direction, layer, state))
            halves.append([rows if direction == 0 else rows[::-1] for rows in layers])
        both = [np.concatenate([half[k] for half in halves], 1) for k in range(len(halves[0]))]
        return np.stack(both)[:, 1:-1], state

    def scores(self, sentences, *, carry=False):
        """For each sentence, the log-probabilities of its words and of the boundary at the end.

        A pair, forward and backward; with one direction only the first.
        """
        scores_by_direction = []
        for direction in range(self.directions):
            start, end = ("<S>", "</S>") if direction == 0 else ("</S>", "<S>")
            state = {}
            scores_by_direction.append([])
            for sentence in sentences:
                if not carry:
                    state = {}
                order = list(sentence) if direction == 0 else list(sentence)[::-1]
                vectors = [self.word(word) for word in [start, *order]]
                for layer in range(self.options["lstm"].get("n_layers", 1)):
                    vectors = self.lstm(vectors, direction, layer, state)
                numbers = [
                    self.log_probabilities(vector)[self.id(target)]
                    for vector, target in zip(vectors, [*order, end], strict=True)
                ]
                words = numbers[:-1] if direction == 0 else numbers[:-1][::-1]
                scores_by_direction[-1].append(np.array([*words, numbers[-1]]))
        return [*zip(*scores_by_direction, strict=True)]

    def log_probabilities(self, vector):
        logits = self.weights["softmax/W"] @ vector + self.weights["softmax/b"]
        return logits - logits.max() - np.log(np.exp(logits - logits.max()).sum())

    def id(self, word):
        return self.vocabulary.index(word if word in self.vocabulary else "<UNK>")

    def word(self, word):
        weights = self.weights
        if "char_cnn" not in self.options:
            known = word if word in self.vocabulary else "<UNK>"
            return weights["embedding"][self.vocabulary.index(known)]
        cnn = self.options["char_cnn"]
        characters = [weights["char_embed"][c] for c in self.character_ids(word)]
        features = []
        for k, (width, _) in enumerate(cnn["filters"]):
            kernel, bias = weights[f"CNN/W_cnn_{k}"][0], weights[f"CNN/b_cnn_{k}"]
            windows = [
                sum(characters[t + j] @ kernel[j] for j in range(width)) + bias
                for t in range(len(characters) - width + 1)
            ]
            best = np.max(windows, 0)
            features.append(np.maximum(best, 0) if cnn["activation"] == "relu" else np.tanh(best))
        x = np.concatenate(features)
        for k in range(cnn.get("n_highway") or 0):
            name = f"CNN_high_{k}"
            gate = sigmoid(x @ weights[f"{name}/W_carry"] + weights[f"{name}/b_carry"])
            new = np.maximum(x @ weights[f"{name}/W_transform"] + weights[f"{name}/b_transform"], 0)
            x = gate * new + (1 - gate) * x
        if "CNN_proj/W_proj" in weights:
            x = x @ weights["CNN_proj/W_proj"] + weights["CNN_proj/b_proj"]
        return x

    def character_ids(self, word):
        ids = CHARACTERS_BEFORE_SHIFT
        max_characters = self.options["char_cnn"].get("max_characters_per_token", 50)
        inner = list(word.encode("utf-8", "ignore"))[: max_characters - 2]
        if word == "<S>":
            inner = [ids["bos"]]
        if word == "</S>":
            inner = [ids["eos"]]
        row = [ids["bow"], *inner, ids["eow"]]
        return row + [ids["pad"]] * (max_characters - len(row))

    def lstm(self, vectors, direction, layer, state):
        lstm = self.options["lstm"]
        name = f"RNN_{direction}/RNN/MultiRNNCell/Cell{layer}/LSTMCell"
        kernel, bias = self.weights[f"{name}/W_0"], self.weights[f"{name}/B"]
        projection = self.weights.get(f"{name}/W_P_0")
        peepholes = self.weights.get(f"{name}/peepholes", np.zeros((3, 1)))  # of lm_1b
        cell_clip = lstm.get("cell_clip") or math.inf
        projection_clip = lstm.get("proj_clip") or math.inf
        zero = np.zeros(lstm["dim"]), np.zeros(lstm["projection_dim"])
        c, h = state.get((direction, layer), zero)
        outputs = []
        for x in vectors:
            i, j, f, o = np.split(np.concatenate([x, h]) @ kernel + bias, 4)
            i, f = i + peepholes[0] * c, f + peepholes[1] * c
            c = np.clip(sigmoid(f + 1) * c + sigmoid(i) * np.tanh(j), -cell_clip, cell_clip)
            h = sigmoid(o + peepholes[2] * c) * np.tanh(c)
            if projection is not None:
                h = h @ projection
            h = np.clip(h, -projection_clip, projection_clip)
            skipped = lstm.get("use_skip_connections", False) and layer > 0
            outputs.append(h + x if skipped else h)
        state[direction, layer] = c, h
        return np.stack(outputs)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))
