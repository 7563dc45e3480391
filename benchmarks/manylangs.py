"""Compare elmokit with ELMoForManyLangs: vectors of random models, its command, and speed."""

import argparse
import json
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import h5py
import numpy as np

import elmokit
from elmokit.compat.manylangs import Embedder, embed_file, read_sentences

PEER = Path(__file__).with_name("manylangs_peer.py")
DEFAULT_PYTHON = Path(__file__).parent / "peers" / "manylangs" / "bin" / "python"
TOLERANCE = 2e-6

FILTERS = [[1, 4], [2, 8], [3, 12]]
PUBLISHED_FILTERS = [[1, 32], [2, 32], [3, 64], [4, 128], [5, 256], [6, 512], [7, 1024]]
PUBLISHED = {
    "projection_dim": 512, "dim": 4096, "char_dim": 50, "word_dim": 100,
    "filters": PUBLISHED_FILTERS, "n_highway": 2,
}  # fmt: skip
KINDS = {
    "published sizes": PUBLISHED,
    "small": {},
    "characters only": {"word_dim": 0},
    "words only": {"char_dim": 0},
    "words only, embedder lstm": {"char_dim": 0, "token_embedder": "lstm"},
    "one layer": {"n_layers": 1},
    "four layers": {"n_layers": 4},
    "tanh": {"activation": "tanh"},
    "no highway": {"n_highway": 0},
    "three highways": {"n_highway": 3},
    "12 characters": {"max_characters": 12},
    "120 characters": {"max_characters": 120, "filters": [[1, 3], [9, 5]]},
    "tight clips": {"clips": (0.02, 0.01)},
    "no clips": {"clips": (0, 0)},
    "larger weights": {"gain": 1.5},
    "odd sizes": {"projection_dim": 37, "dim": 101, "char_dim": 3, "word_dim": 7},
    "features as wide as vectors": {"projection_dim": 24, "word_dim": 0},
    "3,000 characters": {"alphabet": [chr(0x4E00 + n) for n in range(3000)]},
    "a space among the characters": {"alphabet": [*"abcdefghij", "\u3000", "😀"]},
}
SPECIAL = ["<oov>", "<bos>", "<eos>", "<pad>", "<bow>", "<eow>"]
ALPHABET = [*"abcdefghijklmnopqrstuvwxyzäé.,-'\"/"]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--python", default=str(DEFAULT_PYTHON), help="that of the peer")
    parser.add_argument("--kinds", nargs="*", default=[*KINDS], help="which models to compare")
    parser.add_argument("--speed", type=int, default=0, help="sentences to measure the speed with")
    parser.add_argument("--threads", type=int, default=1, help="threads to measure it with")
    options = parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as folder,
        subprocess.Popen(
            [options.python, PEER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as peer,
    ):

        def ask(**request):
            peer.stdin.write(json.dumps(request) + "\n")
            peer.stdin.flush()
            return json.loads(peer.stdout.readline())

        worst = 0.0
        for kind in options.kinds:
            seed = [*KINDS].index(kind)
            worst = max(worst, compare(kind, Path(folder) / str(seed), ask, seed=seed))
        print(f"largest difference {worst:.1e}, allowed {TOLERANCE:.0e}")
        compare_commands(Path(folder), ask, options.python)
        if options.speed:
            compare_speed(Path(folder) / "speed", ask, options.speed, options.threads)
        peer.stdin.close()
    if worst > TOLERANCE:
        sys.exit("the vectors differ")


def make_config(
    *, projection_dim=16, dim=64, n_layers=2, clips=(3, 3), char_dim=5, word_dim=4,
    filters=FILTERS, n_highway=1, activation="relu", max_characters=50, token_embedder="cnn",
):  # fmt: skip
    return {
        "encoder": {
            "name": "elmo", "projection_dim": projection_dim, "cell_clip": clips[0],
            "proj_clip": clips[1], "dim": dim, "n_layers": n_layers,
        },
        "token_embedder": {
            "name": token_embedder, "activation": activation, "filters": filters,
            "n_highway": n_highway, "word_dim": word_dim, "char_dim": char_dim,
            "max_characters_per_token": max_characters,
        },
        "classifier": {"name": "sampled_softmax", "n_samples": 8192},
        "dropout": 0.1,
    }  # fmt: skip


def make_text(alphabet, seed):
    """Words with ids, and sentences of 0 to 60 words, some unknown, empty, or very long."""
    draw = random.Random(seed)

    def word():
        characters = draw.choices([*alphabet, "ø"], k=min(int(draw.expovariate(0.2)), 130))
        return "".join(characters)

    words = [word() for _ in range(300)]
    sentences = [
        [draw.choice(words) for _ in range(length)]
        for length in (0, 1, 1, 2, 60, *(draw.randrange(30) for _ in range(25)))
    ]
    sentences.append(["<bos>", "<eos>", "<oov>", "<pad>", "", "é" * 200, "ø", "10 000"])
    # Their reader strips entries, and white space at the end of a line is none.
    known = [w for w in dict.fromkeys(words[:200]) if w and w == w.strip()]
    return [*SPECIAL, *known], sorted(sentences, key=len, reverse=True)


def compare(kind, folder, ask, seed):
    """The largest difference of any number of all layers, without and with a carried state."""
    shape = dict(KINDS[kind])
    alphabet, gain = shape.pop("alphabet", ALPHABET), shape.pop("gain", 1)
    words, sentences = make_text(alphabet, seed)
    request = {"folder": str(folder), "characters": [*SPECIAL, *alphabet], "words": words}
    ask(do="write", config=make_config(**shape), seed=seed, gain=gain, **request)
    target = str(folder / "vectors.npz")
    ask(do="vectors", folder=str(folder), sentences=sentences, target=target, calls=2)
    theirs = np.load(target)
    carrying = elmokit.load(folder, state="carry")
    embedder = Embedder(folder)
    ours = {
        f"{call}/{number}": array
        for call in range(2)
        for number, array in enumerate(carrying.embed(sentences))
    }
    for layer in (-1, 0, 1):
        arrays = embedder.sents2elmo(sentences, layer)
        ours |= {f"layer {layer}/{number}": array for number, array in enumerate(arrays)}
    ours |= {f"0/{n}": array for n, array in enumerate(embedder.sents2elmo(sentences, -2))}
    difference = 0.0
    for name in theirs.files:
        assert ours[name].shape == theirs[name].shape, name
        assert ours[name].dtype == theirs[name].dtype, name
        difference = max(difference, np.abs(ours[name] - theirs[name]).max(initial=0))
    largest = max(np.abs(theirs[name]).max(initial=0) for name in theirs.files)
    print(f"{kind:30} difference {difference:.1e} of numbers up to {largest:.2g}", flush=True)
    return difference


def compare_commands(folder, ask, python):
    """The files of both commands: names, keys, shapes and numbers."""
    words, sentences = make_text(ALPHABET, 0)
    model = folder / "command"
    ask(
        do="write", folder=str(model), config=make_config(), characters=[*SPECIAL, *ALPHABET],
        words=words, seed=0,
    )  # fmt: skip
    # The command knows no other place of the configuration.
    (model / "config.json").write_text(json.dumps({"config_path": "sizes.json"}))
    sentences = [[w for w in s if w] for s in sentences if any(s)]
    conllu = folder / "text.conllu"
    blocks = [
        "# a comment\n1-2\tsurface\t_\n"
        + "".join(f"{number}\t{word}\t_\n" for number, word in enumerate(sentence, 1))
        for sentence in [*sentences, sentences[0]]
    ]
    conllu.write_text("\n".join(blocks), "utf-8")
    for layer in ("-1", "0", "1", "2"):
        subprocess.run(
            [
                python, PEER, "test", "--input_format", "conll", "--input", conllu,
                "--output_format", "hdf5", "--output_prefix", folder / "theirs",
                "--output_layer", layer, "--model", model, "--batch_size", "1000",
            ],
            check=True,
        )  # fmt: skip
    embedder = Embedder(model)
    embed_file(
        embedder, read_sentences(conllu, "conll"), str(folder / "ours"), layers=[-1, 0, 1, 2]
    )
    difference = 0.0
    for layer in (-1, 0, 1, 2):
        with (
            h5py.File(folder / f"ours.ly{layer}.hdf5") as ours,
            h5py.File(folder / f"theirs.ly{layer}.hdf5") as theirs,
        ):
            assert set(ours) == set(theirs), layer
            for key in theirs:
                assert ours[key].shape == theirs[key].shape, key
                assert ours[key].dtype == theirs[key].dtype, key
                difference = max(difference, np.abs(ours[key][()] - theirs[key][()]).max())
            print(f"command, layer {layer:2}: {len(theirs)} sentences, difference {difference:.1e}")


def compare_speed(folder, ask, num_sentences, threads):
    """Tokens a second of the published sizes, on sentences of 5 to 40 words."""
    draw = random.Random(0)
    words = ["".join(draw.choices(ALPHABET, k=draw.randrange(1, 12))) for _ in range(20_000)]
    weights = [1 / rank for rank in range(1, len(words) + 1)]
    sentences = [
        draw.choices(words, weights, k=draw.randrange(5, 40)) for _ in range(num_sentences)
    ]
    ask(
        do="write", folder=str(folder), config=make_config(**PUBLISHED), seed=0,
        characters=[*SPECIAL, *ALPHABET], words=[*SPECIAL, *dict.fromkeys(words[:5000])],
    )  # fmt: skip
    theirs = ask(do="speed", folder=str(folder), sentences=sentences, threads=threads)
    print(f"ELMoForManyLangs: {theirs:,.0f} tokens/s")
    for precision in ("float32", "half", "int8"):
        model = elmokit.load(folder, precision=precision, threads=threads)
        for name in ("cold", "warm"):
            started = time.perf_counter()
            model.embed(sentences, layers="mean", show_progress_bar=False)
            speed = sum(map(len, sentences)) / (time.perf_counter() - started)
            print(
                f"elmokit, {precision}, {name}: {speed:,.0f} tokens/s, {speed / theirs:.1f} times"
            )


if __name__ == "__main__":
    main()
