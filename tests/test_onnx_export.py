import json
import sys

import numpy as np
import pytest
import torch

import elmokit
from elmokit.atomic import write_atomically
from elmokit.character_ids import Lexicons
from elmokit.model.bilm import LanguageModel
from elmokit.model.softmax import AdaptiveSoftmax, Softmax
from elmokit.model_config import LexiconConfig
from elmokit.vocab import Vocabulary
from manylangs_models import CHARACTERS, SPECIAL, WORDS

onnx = pytest.importorskip("onnx", reason="needs elmokit[onnx]")
onnxruntime = pytest.importorskip("onnxruntime", reason="needs elmokit[onnx]")

WIDE = elmokit.CharacterConfig(
    max_characters=20, embedding_size=5, filters=((1, 4), (2, 8), (3, 12)), highway_layers=2
)
TANH = elmokit.CharacterConfig(
    embedding_size=4, filters=((1, 3), (7, 3)), activation="tanh", highway_layers=0
)
VOCABULARY = ["<S>", "</S>", "<UNK>", *(f"word{number}" for number in range(40))]
LEXICONS = Lexicons(
    Vocabulary([*SPECIAL, *CHARACTERS], unknown="<oov>"),
    Vocabulary([*SPECIAL, *WORDS], unknown="<oov>"),
)
LEXICON_CHARACTERS = elmokit.CharacterConfig(
    max_characters=50, num_characters=len(LEXICONS.characters) + 1, embedding_size=5,
    filters=((1, 4), (3, 5)), highway_layers=1,
)  # fmt: skip

# What differs from a model of two layers with skip connections, clips and both directions.
MODELS = {
    "two layers": {},
    "one layer": {"num_layers": 1},
    "four layers, no skip connections": {"num_layers": 4, "skip_connections": False},
    "no clips": {"cell_clip": None, "projection_clip": None},
    "small clips": {"cell_clip": 0.3, "projection_clip": 0.1},
    "no projection": {"cell_size": 6},
    "tanh, no highway": {"characters": TANH},
    "forward only": {"directions": ("forward",)},
    "backward only": {"directions": ("backward",)},
    "words": {"characters": None, "vocabulary_size": len(VOCABULARY)},
    "peepholes": {"peepholes": True},
    "lexicons": {
        "characters": None,
        "lexicons": LexiconConfig(50, LEXICON_CHARACTERS, len(LEXICONS.words), 4),
    },
    "a lexicon of characters": {
        "characters": None, "lexicons": LexiconConfig(50, LEXICON_CHARACTERS),
    },
    "a lexicon of words": {
        "characters": None, "lexicons": LexiconConfig(50, None, len(LEXICONS.words), 4),
    },
    "aligned": {"aligned_layers": (1, 2)},
}  # fmt: skip


def make_model(*, softmax=None, projection_size=6, **changes):
    settings = {"cell_size": 12, "num_layers": 2, "characters": WIDE} | changes
    config = elmokit.BiLMConfig(projection_size, **settings)
    model = LanguageModel(elmokit.BiLM(config), softmax)
    random = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in [*model.bilm.parameters(), *model.bilm.buffers()]:
            parameter.copy_(torch.randn(parameter.shape, generator=random) * 0.3)
    lexicons = None
    if config.lexicons is not None:
        lexicons = Lexicons(
            LEXICONS.characters if config.lexicons.characters else None,
            LEXICONS.words if config.lexicons.num_words else None,
        )
    vocabulary = Vocabulary(VOCABULARY) if config.vocabulary_size or softmax else None
    card = "---\nlicense: other\nlicense_name: 'A licence: 1'\n---\n\n# Model\n"
    return elmokit.Embedder(elmokit.Pretrained(model, vocabulary, card=card, lexicons=lexicons))


def random_sentences(random, *, count=None, longest=30):
    """Sentences of known, unknown, long and empty words, some without any word."""
    known = [*VOCABULARY[3:9], *WORDS[:4], "Ünïcödé", "数学", "😀", "x" * 70, "", "toString"]
    count = int(random.integers(1, 9)) if count is None else count
    lengths = random.integers(0, longest, count).tolist()
    return [[known[index] for index in random.integers(0, len(known), n)] for n in lengths]


class Runner:
    """An exported model in onnxruntime."""

    def __init__(self, model, path, **options):
        elmokit.export_onnx(model, path, **options)
        settings = onnxruntime.SessionOptions()
        settings.log_severity_level = 3
        self.model = model
        self.session = onnxruntime.InferenceSession(path, settings)
        self.metadata = self.session.get_modelmeta().custom_metadata_map

    def __call__(self, sentences, **feeds):
        batch = elmokit.Batch.from_sentences(sentences, self.model.pretrained.indexer)
        feeds |= {"chars": batch.chars.numpy(), "words": batch.words.numpy()}
        names = [output.name for output in self.session.get_outputs()]
        return dict(zip(names, self.session.run(names, feeds), strict=True))


def largest_difference(runner, sentences):
    layers = runner(sentences)["layers"]  # (layers, sentences, steps, dim)
    expected = runner.model.embed(sentences, boundaries=True)
    assert layers.shape[1] == len(sentences)
    differences = [0.0]
    for row, vectors in enumerate(expected):
        steps = vectors.shape[1]
        differences.append(np.abs(layers[:, row, :steps] - vectors).max())
        assert not layers[:, row, steps:].any()  # padding
    return max(differences)


@pytest.mark.parametrize("name", MODELS)
def test_twenty_random_shapes_agree_with_embed(name, tmp_path):
    runner = Runner(make_model(**MODELS[name]), tmp_path / "model.onnx")
    onnx.checker.check_model(tmp_path / "model.onnx", full_check=True)
    random = np.random.default_rng(3)
    shapes = set()
    while len(shapes) < 20:
        sentences = random_sentences(random)
        shapes.add((len(sentences), max(map(len, sentences))))
        assert largest_difference(runner, sentences) < 1e-5
    assert largest_difference(runner, [["a"]]) < 1e-5
    assert largest_difference(runner, [[]]) < 1e-5
    assert largest_difference(runner, [["a", "word3"] * 400]) < 1e-5


def test_no_size_of_the_input_is_fixed_in_the_file(tmp_path):
    runner = Runner(make_model(softmax=Softmax(43, 6)), tmp_path / "model.onnx", softmax=True)
    shapes = {
        value.name: value.shape
        for values in (runner.session.get_inputs(), runner.session.get_outputs())
        for value in values
    }
    assert shapes == {
        "chars": ["types", "characters"],
        "words": ["sentences", "steps"],
        "asked": ["asked", 4],
        "k": [1],
        "layers": [3, "sentences", "steps", 12],
        "final_hidden": [2, 2, "sentences", 6],
        "final_cell": [2, 2, "sentences", 12],
        "top_words": ["asked", "k"],
        "top_log_probabilities": ["asked", "k"],
        "log_probabilities": ["asked"],
    }


def test_no_sentences_give_no_vectors(tmp_path):
    runner = Runner(make_model(), tmp_path / "model.onnx")
    assert runner([])["layers"].shape == (3, 0, 2, 12)


def test_fewer_columns_of_padding_change_nothing(tmp_path):
    runner = Runner(make_model(), tmp_path / "model.onnx")
    batch = elmokit.Batch.from_sentences([["a", "cat"]], runner.model.pretrained.indexer)
    words = batch.words.numpy()
    full, short = (
        runner.session.run(["layers"], {"chars": batch.chars.numpy()[:, :columns], "words": words})
        for columns in (20, 8)
    )
    np.testing.assert_allclose(full[0], short[0], atol=1e-6)


@pytest.mark.parametrize("directions", [("forward", "backward"), ("backward",)])
def test_the_state_goes_in_and_out(directions, tmp_path):
    model = make_model(directions=directions, num_layers=3)
    runner = Runner(model, tmp_path / "model.onnx")
    random = np.random.default_rng(0)
    state = None
    feeds = {}
    for _ in range(3):
        sentences = random_sentences(random, count=4)
        layers, state = model.session.run(sentences, state)
        found = runner(sentences, **feeds)
        np.testing.assert_allclose(found["layers"], layers, atol=1e-5)
        np.testing.assert_allclose(found["final_hidden"], state.hidden, atol=1e-5)
        np.testing.assert_allclose(found["final_cell"], state.cell, atol=1e-5)
        feeds = {"hidden": found["final_hidden"], "cell": found["final_cell"]}
    # The state of one sentence is where all start.
    one = {name: array[:, :, :1] for name, array in feeds.items()}
    first, second = runner([["a", "cat"]] * 2, **one)["layers"].swapaxes(0, 1)
    np.testing.assert_array_equal(first, second)
    expected, _ = model.session.run([["a", "cat"]], state.rows(torch.tensor([0])))
    np.testing.assert_allclose(first, expected[:, 0], atol=1e-5)


@pytest.mark.parametrize(
    ("softmax", "changes"),
    [
        (Softmax(43, 6), {}),
        (Softmax(43, 6), {"directions": ("forward",)}),
        (Softmax(43, 6), {"directions": ("backward",)}),
        (Softmax(43, 6), {"aligned_layers": (2,)}),
        (AdaptiveSoftmax(43, 16, (9, 20)), {"projection_size": 16, "cell_size": 16}),
    ],
)
def test_words_are_predicted_as_elmokit_does(softmax, changes, tmp_path):
    model = make_model(softmax=softmax, **changes)
    runner = Runner(model, tmp_path / "model.onnx", softmax=True)
    sentences = [["word1", "no", "word5"], [], ["word2"]]
    asked, expected = [], []
    for row, sentence in enumerate(sentences):
        for direction in model.bilm.config.directions:
            forward = direction == "forward"
            ask = model.next_words if forward else model.previous_words
            asked.append([row, len(sentence) if forward else -1, -1 if forward else 1, 0])
            expected.append(ask(sentence, k=43, special_tokens=True))
    found = runner(sentences, asked=np.array(asked), k=np.array([5]))
    assert found["top_words"].shape == (len(asked), 5)
    for ids, logs, words in zip(
        found["top_words"], found["top_log_probabilities"], expected, strict=True
    ):
        assert [VOCABULARY[word_id] for word_id in ids] == [word.word for word in words[:5]]
        np.testing.assert_allclose(np.exp(logs), [word.probability for word in words[:5]], 1e-4)
    # More words than there are, and the log-probability of a given word.
    asked = [[*row[:3], 7] for row in asked]
    found = runner(sentences, asked=np.array(asked), k=np.array([100]))
    assert found["top_words"].shape == (len(asked), 43)
    for log, words in zip(found["log_probabilities"], expected, strict=True):
        (probability,) = (word.probability for word in words if word.word == VOCABULARY[7])
        assert np.exp(log) == pytest.approx(probability, rel=1e-4)


def test_both_directions_together_add_their_logarithms(tmp_path):
    model = make_model(softmax=Softmax(43, 6))
    runner = Runner(model, tmp_path / "model.onnx", softmax=True)
    sentence = ["word1", "word9", "word5"]
    (score,) = model.score([sentence])
    asked = np.array([[0, 1, 3, VOCABULARY.index("word9")]])
    found = runner([sentence], asked=asked, k=np.array([1]))
    expected = score.forward[1] + score.backward[1]
    assert found["log_probabilities"][0] == pytest.approx(expected, abs=1e-4)


def test_nothing_asked_gives_no_answers(tmp_path):
    runner = Runner(make_model(softmax=Softmax(43, 6)), tmp_path / "model.onnx", softmax=True)
    found = runner([["a"]], asked=np.zeros((0, 4), np.int64), k=np.array([7]))
    assert found["top_words"].shape == found["top_log_probabilities"].shape == (0, 7)
    assert found["log_probabilities"].shape == (0,)
    assert found["layers"].shape == (3, 1, 3, 12)


def test_metadata_say_what_a_program_must_know(tmp_path):
    model = make_model(softmax=Softmax(43, 6))
    runner = Runner(model, tmp_path / "model.onnx", softmax=True)
    vocabulary = json.loads(runner.metadata.pop("vocabulary"))
    assert vocabulary == VOCABULARY
    parameters = sum(parameter.numel() for parameter in model.bilm.parameters())
    assert runner.metadata == {
        "format": "elmokit", "format_version": "1", "fingerprint": model.pretrained.fingerprint(),
        "tokenizer": "moses", "licence": "A licence: 1", "num_layers": "3", "dim": "12",
        "projection_size": "6", "cell_size": "12", "directions": '["forward", "backward"]',
        "parameters": str(parameters), "precision": "float32", "softmax": "true", "ids": "bytes",
        "max_characters": "20",
    }  # fmt: skip
    stored = onnx.load(tmp_path / "model.onnx")
    assert (stored.producer_name, stored.producer_version) == ("elmokit", elmokit.__version__)
    assert stored.opset_import[0].version == 17


def test_int8_of_the_english_model_is_close_and_a_quarter_of_the_size(tmp_path):
    model = elmokit.load()
    text = "The bank of the river was steep . He put money in the bank , 1,234.50 dollars of it ."
    words = text.split()
    random = np.random.default_rng(0)
    sentences = [
        [words[index] for index in random.permutation(len(words))[: n + 1]] for n in range(20)
    ]
    runner = Runner(model, tmp_path / "int8.onnx", int8=True)
    elmokit.export_onnx(model, tmp_path / "float32.onnx")
    small, full = ((tmp_path / f"{name}.onnx").stat().st_size for name in ("int8", "float32"))
    assert small < 0.27 * full
    layers = runner(sentences)["layers"]
    cosines = []
    for row, vectors in enumerate(model.embed(sentences, boundaries=True)):
        found = layers[:, row, : vectors.shape[1]]
        lengths = np.linalg.norm(found, axis=-1) * np.linalg.norm(vectors, axis=-1)
        cosines.append(((found * vectors).sum(-1) / lengths).min())
    assert 0.999 < min(cosines) < 0.99999


@pytest.mark.parametrize("name", ["words", "lexicons", "peepholes"])
def test_int8_stores_tables_of_words_too(name, tmp_path):
    model = make_model(**MODELS[name])
    runner = Runner(model, tmp_path / "model.onnx", int8=True)
    # Weights of few numbers are rounded less well than those of a real model.
    assert 1e-5 < largest_difference(runner, [["word3", "the", "cat"]]) < 0.1
    assert runner.metadata["precision"] == "int8"


def test_large_weights_are_written_beside_the_file(tmp_path, monkeypatch):
    monkeypatch.setattr("elmokit.onnx_export._MAX_BYTES_IN_FILE", 1000)
    runner = Runner(make_model(), tmp_path / "model.onnx")
    sizes = {path.name: path.stat().st_size for path in tmp_path.iterdir()}
    assert sizes.keys() == {"model.onnx", "model.onnx.data"}
    assert largest_difference(runner, [["a", "cat"]]) < 1e-5

    def fail(path, content):
        if path.suffix == ".onnx":
            raise OSError(28, "No space left on device")
        write_atomically(path, content)

    with monkeypatch.context() as patch:
        patch.setattr("elmokit.onnx_export.write_atomically", fail)
        with pytest.raises(elmokit.OutputError, match=r"full\.onnx: cannot be written \(No space"):
            elmokit.export_onnx(runner.model, tmp_path / "full.onnx")
    assert {path.name for path in tmp_path.iterdir()} == sizes.keys()
    (tmp_path / "other.onnx.data").touch()
    with pytest.raises(elmokit.InputError, match=r"other\.onnx\.data: exists already"):
        elmokit.export_onnx(runner.model, tmp_path / "other.onnx")


def test_what_cannot_be_exported_is_refused_and_leaves_no_file(tmp_path, monkeypatch):
    model = make_model()
    taken = tmp_path / "taken.onnx"
    taken.touch()
    for name, options, message in [
        ("model.pt", {}, r"ends in \.pt, expected \.onnx"),
        ("taken.onnx", {}, "exists already"),
        ("no/model.onnx", {}, r"no/model\.onnx: cannot be written"),
        ("model.onnx", {"softmax": True}, "the model has no softmax"),
    ]:
        with pytest.raises((elmokit.InputError, elmokit.OutputError), match=message):
            elmokit.export_onnx(model, tmp_path / name, **options)
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(elmokit.InputError, match=r"needs onnx: pip install 'elmokit\[onnx\]'"):
        elmokit.export_onnx(model, tmp_path / "model.onnx")
    assert [*tmp_path.iterdir()] == [taken]
