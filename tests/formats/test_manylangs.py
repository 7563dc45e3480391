import json
import logging
import os
import pickle
import tarfile
import zipfile
from dataclasses import replace

import numpy as np
import pytest
import torch

import elmokit
from elmokit import Batch, Elmo, LoadOptions
from elmokit.errors import FormatError, InputError
from elmokit.formats import load
from manylangs_models import SENTENCES, make_manylangs

SHAPES = {
    "published": {},
    "one layer": {"n_layers": 1},
    "three layers": {"n_layers": 3},
    "no highway": {"n_highway": 0},
    "two highways": {"n_highway": 2},
    "tanh": {"activation": "tanh"},
    "zero clips are no clips": {"clips": (0, 0)},
    "no clips": {"clips": (None, None)},
    "tight clips": {"clips": (0.3, 0.1)},
    "10 characters": {"max_characters": 10},
    "filters as wide as a word": {"max_characters": 10, "filters": [[1, 3], [10, 8]]},
    "as many features as dimensions": {"word_dim": 0, "projection_dim": 24, "dim": 30},
    "characters only": {"word_dim": 0},
    "words only": {"char_dim": 0},
    "words only, uncut": {"char_dim": 0, "embedder": "lstm"},
    "torch's newer files": {"legacy": False},
}


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "model").mkdir()
    make_manylangs(tmp_path / "model")
    return tmp_path / "model"


@pytest.mark.parametrize("name", SHAPES)
def test_all_layers_agree_with_the_reference(name, tmp_path):
    reference = make_manylangs(tmp_path, **SHAPES[name])
    model = elmokit.load(tmp_path)
    carrying = elmokit.load(tmp_path, state="carry")
    states = [None] * len(SENTENCES)
    for _ in range(2):
        fresh, carried = model.embed(SENTENCES), carrying.embed(SENTENCES)
        for number, sentence in enumerate(SENTENCES):
            expected, _ = reference.layers(sentence)
            np.testing.assert_allclose(fresh[number], expected, rtol=0, atol=1e-5)
            expected, states[number] = reference.layers(sentence, states[number])
            np.testing.assert_allclose(carried[number], expected, rtol=0, atol=1e-5)


def test_the_shapes_test_what_they_should(tmp_path):
    """Clips are active, words are cut, and the begin and end of words differ."""
    reference = make_manylangs(tmp_path, clips=(0.3, 0.1))
    layers, state = reference.layers(SENTENCES[0])
    assert np.abs(layers[1]).max() == 0.1
    assert all((np.abs(cell) == 0.3).any() for cell, _ in state.values())
    assert not np.allclose(reference.word("b" * 47), reference.word("b" * 49))
    np.testing.assert_array_equal(reference.word("b" * 48), reference.word("b" * 49))
    before = reference.word("cat")
    ids = reference.lexicons["char"]
    ids["<bow>"], ids["<eow>"] = ids["<eow>"], ids["<bow>"]
    assert not np.allclose(before, reference.word("cat"))


@pytest.mark.parametrize("shape", [{}, {"word_dim": 0}, {"char_dim": 0}])
def test_conversion_keeps_every_bit(tmp_path, shape):
    (tmp_path / "theirs").mkdir()
    make_manylangs(tmp_path / "theirs", **shape)
    elmokit.convert(tmp_path / "theirs", tmp_path / "ours")
    theirs, ours = load(tmp_path / "theirs"), load(tmp_path / "ours")
    assert ours.fingerprint() == theirs.fingerprint()
    assert ours.model.bilm.config == theirs.model.bilm.config
    expected = theirs.model.state_dict()
    for name, tensor in ours.model.state_dict().items():
        assert torch.equal(tensor, expected[name]), name
    one, other = elmokit.Embedder(ours), elmokit.Embedder(theirs)
    for actual, array in zip(one.embed(SENTENCES), other.embed(SENTENCES), strict=True):
        np.testing.assert_array_equal(actual, array)
    elmokit.convert(tmp_path / "ours", tmp_path / "again")
    for path in (tmp_path / "ours").iterdir():
        assert path.read_bytes() == (tmp_path / "again" / path.name).read_bytes()


def test_the_fingerprint_covers_the_lexicons(folder, tmp_path):
    before = load(folder).fingerprint()
    text = (folder / "char.dic").read_text("utf-8")
    (folder / "char.dic").write_text(text.replace("é\t", "è\t"), "utf-8")
    assert load(folder).fingerprint() != before


def test_a_sentence_has_the_same_bits_in_any_batch(folder):
    model = elmokit.load(folder)
    together = model.embed([*SENTENCES, *([[f"word{k}", "cat"] for k in range(40)])])
    again = elmokit.load(folder)
    for sentence, expected in zip(SENTENCES, together, strict=False):
        np.testing.assert_array_equal(again.embed([sentence])[0], expected)


@pytest.mark.parametrize(("precision", "close"), [("half", 0.02), ("int8", 0.5)])
def test_every_precision_runs(folder, precision, close):
    exact = elmokit.load(folder).embed(SENTENCES)
    model = elmokit.load(folder, precision=precision)
    first = model.embed(SENTENCES)
    for one, again, expected in zip(first, model.embed(SENTENCES), exact, strict=True):
        np.testing.assert_array_equal(one, again)
        np.testing.assert_array_equal(one[0], expected[0])
        np.testing.assert_allclose(one, expected, rtol=0, atol=close)


def test_archives_are_loaded_as_published(folder, tmp_path):
    expected = load(folder).fingerprint()
    (folder / "configs").mkdir()
    (folder / "sizes.json").rename(folder / "configs" / "sizes.json")
    with zipfile.ZipFile(tmp_path / "144.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for path in folder.rglob("*.*"):
            archive.write(path, path.relative_to(folder))
        archive.writestr("meta.json", "{}")
        archive.writestr("README", "An NLPL model")
    with tarfile.open(tmp_path / "zhs.model.tar.bz2", "w:bz2") as archive:
        archive.add(folder, "zhs.model")
    for name in ("144.zip", "zhs.model.tar.bz2"):
        assert load(tmp_path / name).fingerprint() == expected


def test_long_words_are_counted_in_characters(folder, caplog):
    with caplog.at_level(logging.WARNING):
        elmokit.load(folder).embed([["数" * 48], ["学" * 60]])
    assert "1 word was longer than 48 characters and was cut: '学学" in caplog.text


def test_a_model_can_be_pickled(folder):
    model = elmokit.load(folder)
    copy = pickle.loads(pickle.dumps(model.session))
    one, other = (session.run([["cat", "é"]])[0] for session in (model.session, copy))
    assert torch.equal(one, other)


def test_elmo_takes_batches_of_the_models_indexer(folder):
    model = elmokit.load(folder)
    elmo = Elmo(model.bilm, dropout=0, train_char_cnn=True)
    batch = Batch.from_sentences(SENTENCES[:1], model.pretrained.indexer)
    mixed = elmo(batch).vectors[0]
    expected = model.embed(SENTENCES[:1], layers="mean")[0]
    np.testing.assert_allclose(mixed.detach(), expected, rtol=0, atol=1e-5)
    mixed.sum().backward()
    assert model.bilm.encoder.words.embedding.weight.grad.any()
    assert model.bilm.encoder.characters.filters[0].weight.grad.any()
    with pytest.raises(InputError, match="a model with a vocabulary or lexicons"):
        elmo(SENTENCES[:1])


def test_what_needs_a_softmax_or_other_files_is_refused(folder, tmp_path):
    model = elmokit.load(folder)
    with pytest.raises(InputError, match="the model has no softmax"):
        model.next_words("the cat")
    with pytest.raises(FormatError, match="cannot hold a model of ELMoForManyLangs"):
        elmokit.convert(folder, tmp_path / "theirs", format="bilm-tf")
    assert not (tmp_path / "theirs").exists()


class Malicious:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (self.path,)


@pytest.mark.parametrize("legacy", [True, False])
@pytest.mark.parametrize("name", ["encoder.pkl", "token_embedder.pkl"])
def test_a_malicious_pickle_is_refused_without_running(folder, tmp_path, name, legacy):
    target = str(tmp_path / "ran")
    content = {"weight": Malicious(target)}
    torch.save(content, folder / name, _use_new_zipfile_serialization=not legacy)
    refused(f"{name}: refers to posix.mkdir, expected tensors only; .* nothing of it was", folder)
    (folder / name).write_bytes(pickle.dumps(Malicious(target)))
    refused(f"{name}: (refers to|is no file of)", folder)
    assert not os.path.exists(target)
    os.mkdir(target)  # so it would have been possible


def refused(message, source):
    with pytest.raises(FormatError, match=message):
        load(source)


def edit(name, change):
    def apply(folder):
        config = json.loads((folder / name).read_text())
        change(config)
        (folder / name).write_text(json.dumps(config))

    return apply


def edit_weights(name, change):
    def apply(folder):
        weights = torch.load(folder / name)
        change(weights)
        torch.save(weights, folder / name)

    return apply


def replace_text(name, old, new):
    def apply(folder):
        text = (folder / name).read_text("utf-8")
        assert old in text
        (folder / name).write_text(text.replace(old, new), "utf-8")

    return apply


PROJECTION = "projection.weight"
PUBLISHED = "cnn_50_100_512_4096_sample.json"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (edit("config.json", lambda c: c.clear()), "config.json: config_path: Field required"),
        (
            edit("config.json", lambda c: c.update(config_path="C:\\elmo\\x.json")),
            "config_path names 'x.json', the file with the sizes of the model, which is not in mod",
        ),
        (
            edit("config.json", lambda c: c.update(config_path=f"/a/{PUBLISHED}")),
            r"word_emb_layer.embedding.weight has the shape \(12, 4\), expected \(12, 100\)",
        ),
        (
            edit("sizes.json", lambda c: c["encoder"].update(name="lstm")),
            "sizes.json: the encoder is called 'lstm', expected 'elmo': .* were never published",
        ),
        (
            edit("sizes.json", lambda c: c["token_embedder"].update(name="lstm")),
            "the token_embedder is called 'lstm', expected 'cnn': .* could not run them",
        ),
        (
            edit("sizes.json", lambda c: c["token_embedder"].update(name="rnn")),
            "the token_embedder is called 'rnn', expected 'cnn'",
        ),
        (
            edit("sizes.json", lambda c: c["token_embedder"].update(activation="gelu")),
            "expected 'relu' or 'tanh'",
        ),
        (
            edit("sizes.json", lambda c: c["token_embedder"].pop("activation")),
            "sizes.json: activation is None, expected 'relu' or 'tanh'",
        ),
        (
            edit("sizes.json", lambda c: c["token_embedder"].update(char_dim=0, word_dim=0)),
            "lexicons has neither characters nor words",
        ),
        (
            edit("sizes.json", lambda c: c["encoder"].update(dim=6)),
            "dim and projection_dim are both 6; models whose .* were never published",
        ),
        (
            edit("sizes.json", lambda c: c["encoder"].update(dim=4)),
            "projection_size is 6, expected at most cell_size",
        ),
        (
            edit("sizes.json", lambda c: c["encoder"].update(n_layers=3)),
            "encoder.pkl: no tensor called forward_layer_2.input_linearity.weight",
        ),
        (
            edit("sizes.json", lambda c: c["encoder"].update(n_layers=1)),
            "encoder.pkl: has a tensor called forward_layer_1.input_linearity.weight",
        ),
        (
            edit("sizes.json", lambda c: c["token_embedder"].update(n_highway=2**30)),
            "highway_layers is 1073741824, expected 0 to 100",
        ),
        (replace_text("char.dic", "<pad>\t", "<PAD>\t"), "lexicon of characters has no <pad>, wh"),
        (replace_text("word.dic", "<oov>\t", "<OOV>\t"), "the lexicon of words has no <oov>"),
        (replace_text("word.dic", "cat\t", "cat "), "word.dic, line .* expected an entry, a tab"),
        (replace_text("word.dic", "cat\t", "cat\t1"), "the id 1.* stands on an|no line has the id"),
        (replace_text("char.dic", "é\t", "é\tx"), "char.dic, line"),
        (lambda f: (f / "char.dic").write_bytes(b"\xff\t0\n"), "char.dic: not UTF-8"),
        (lambda f: (f / "word.dic").unlink(), "word.dic: no such file; was the folder copied"),
        (
            lambda f: (f / "word.dic").write_text((f / "word.dic").read_text() + "dog\t12\n"),
            r"word_emb_layer.embedding.weight has the shape \(12, 4\), expected \(13, 4\)",
        ),
        (
            edit_weights("token_embedder.pkl", lambda w: w.pop(PROJECTION)),
            "token_embedder.pkl: no tensor called projection.weight",
        ),
        (
            edit_weights("token_embedder.pkl", lambda w: w.update({PROJECTION: torch.arange(3)})),
            "projection.weight is no tensor of floating-point numbers",
        ),
        (
            edit_weights(
                "token_embedder.pkl", lambda w: w.update({PROJECTION: torch.zeros(1).expand(10**7)})
            ),
            "token_embedder.pkl: declares 40,0.* bytes of weights or more, but has",
        ),
        (lambda f: torch.save([1], f / "encoder.pkl"), "encoder.pkl: holds list, expected tensors"),
        (lambda f: (f / "encoder.pkl").write_bytes(b""), "encoder.pkl: cannot be read as a file"),
    ],
)  # fmt: skip
def test_a_damaged_or_foreign_model_is_refused(folder, change, message):
    change(folder)
    refused(message, folder)


@pytest.mark.parametrize("legacy", [True, False])
def test_no_damage_gives_another_error(tmp_path, legacy):
    make_manylangs(tmp_path, legacy=legacy)
    path = tmp_path / "token_embedder.pkl"
    content = path.read_bytes()
    random = np.random.default_rng(0)
    for number in range(60):
        damaged = bytearray(content)
        if number % 3 == 0:
            del damaged[random.integers(len(content)) :]
        else:
            for place in random.integers(min(len(content), 3000), size=3):
                damaged[place] = random.integers(256)
        path.write_bytes(damaged)
        try:
            load(tmp_path)
        except FormatError as error:
            assert "token_embedder.pkl: " in str(error)  # noqa: PT017
            assert "\n" not in str(error)  # noqa: PT017


def test_a_compressed_state_dict_is_not_unpacked(folder):
    torch.save({"weight": torch.zeros(2**20)}, folder / "plain.pkl")
    with (
        zipfile.ZipFile(folder / "plain.pkl") as plain,
        zipfile.ZipFile(folder / "encoder.pkl", "w", zipfile.ZIP_DEFLATED) as packed,
    ):
        for name in plain.namelist():
            packed.writestr(name, plain.read(name))
    refused("encoder.pkl: declares 4,1.* bytes of weights or more, but has", folder)


def test_a_native_folder_without_its_lexicons_is_refused(folder, tmp_path):
    elmokit.convert(folder, tmp_path / "ours")
    path = tmp_path / "ours" / "characters.txt"
    text = path.read_text("utf-8")
    path.write_text(text.replace("é\n", ""), "utf-8")
    refused("the lexicon of characters has 40 entries, but their embedding 41 rows", path.parent)
    path.unlink()
    refused("characters.txt: no such file; was the folder copied completely", path.parent)


def test_lexicons_and_configuration_belong_together(folder, model_folder):
    pretrained = load(folder)
    with pytest.raises(FormatError, match="the lexicon of characters has 0 entries, but their emb"):
        replace(pretrained, lexicons=None)
    with pytest.raises(FormatError, match="the lexicon of characters has 41 entries, but their"):
        replace(load(model_folder), lexicons=pretrained.lexicons)


def test_options_of_loading_apply(folder):
    model = LoadOptions(folder, tokenizer="characters", threads=1).load()
    assert model.tokenize("ab c") == [["a", "b", "c"]]
    assert model.encode("ab c").shape == (12,)
