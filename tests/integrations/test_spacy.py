"""The component and the architecture in spaCy, from vectors to trained and saved pipelines."""

import importlib
import json
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import elmokit
from elmokit.integrations.opened_models import open_once
from elmokit.model.bilm import BiLM
from elmokit.model.scalar_mix import ScalarMix
from elmokit.tokenizers import respell
from random_models import make_folder

spacy = pytest.importorskip("spacy", reason="spaCy is not installed")
from spacy.tokens import Doc, DocBin, Span  # noqa: E402
from spacy.training import Example  # noqa: E402

from elmokit.integrations.spacy import add_hooks, make_tok2vec, scalar_mix  # noqa: E402

CONFIGS = Path(__file__).parents[2] / "examples" / "spacy"
TEXT = "I sat on the bank of the river. I didn't go to the bank."


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return str(make_folder(tmp_path_factory.mktemp("model")))


def pipeline(folder, *, sentences=False, **config):
    nlp = spacy.blank("en")
    if sentences:
        nlp.add_pipe("sentencizer")
    nlp.add_pipe("elmo", config={"model": folder, **config})
    return nlp


def words_of(tokens):
    return respell(tuple(token.text for token in tokens), "moses")


# The component


def test_the_tensor_is_that_of_embed_for_each_sentence(folder):
    doc = pipeline(folder, sentences=True)(TEXT)
    expected = elmokit.load(folder).embed([words_of(s) for s in doc.sents], layers="mean")
    assert len(expected) == 2
    np.testing.assert_array_equal(doc.tensor, np.concatenate(expected, 1)[0])


def test_a_doc_without_sentence_boundaries_is_read_as_one_sentence(folder):
    doc = pipeline(folder)(TEXT)
    (expected,) = elmokit.load(folder).embed([words_of(doc)], layers="mean")
    np.testing.assert_array_equal(doc.tensor, expected[0])


@pytest.mark.parametrize("keep_layers", [False, True])
@pytest.mark.parametrize("layers", ["mean", "sum", "concat", "all", "top", 0, -1, [0, 2]])
def test_layers_are_those_of_embed_side_by_side(layers, keep_layers, folder):
    doc = pipeline(folder, layers=layers, keep_layers=keep_layers)(TEXT)
    model = elmokit.load(folder)
    expected = np.concatenate([*model.embed([words_of(doc)], layers=layers)[0]], 1)
    np.testing.assert_array_equal(doc.tensor, expected)
    if keep_layers:
        np.testing.assert_array_equal(doc._.elmo, model.embed([words_of(doc)])[0])


def test_layers_are_kept_only_on_request(folder):
    small, large = (pipeline(folder, keep_layers=keep)(TEXT) for keep in (False, True))
    assert not small.user_data
    sizes = [len(doc.to_bytes(exclude=["user_hooks"])) for doc in (small, large)]
    assert sizes[1] - sizes[0] > large._.elmo.nbytes


def test_white_space_is_no_word_and_gets_zeros(folder):
    doc = pipeline(folder)("one  two \n\n three")
    spaces = [token.is_space for token in doc]
    assert spaces == [False, True, False, True, False]
    (expected,) = elmokit.load(folder).embed([["one", "two", "three"]], layers="mean")
    np.testing.assert_array_equal(doc.tensor[[0, 2, 4]], expected[0])
    assert not doc.tensor[spaces].any()


@pytest.mark.parametrize("text", ["", "\n"])
def test_an_empty_doc_has_a_tensor_without_words(text, folder):
    nlp = pipeline(folder, sentences=True, keep_layers=True)
    doc = nlp(text)
    assert doc.tensor.shape == (len(doc), 12)
    assert doc._.elmo.shape == (3, len(doc), 12)
    assert doc.vector.shape == (12,)
    assert doc.similarity(nlp("word")) == 0
    assert [len(doc) for doc in nlp.pipe(["a", "", "b"])] == [1, 0, 1]


def test_vectors_do_not_depend_on_other_docs(folder):
    nlp = pipeline(folder, sentences=True)
    texts = [TEXT, "", "A shop.", TEXT[:20]]
    for doc, text in zip(nlp.pipe(texts, batch_size=2), texts, strict=True):
        np.testing.assert_array_equal(doc.tensor, nlp(text).tensor)


def test_two_uses_of_a_word_differ():
    nlp = pipeline(None, sentences=True)
    doc, same = nlp(TEXT), nlp(TEXT)
    banks = [token for token in doc if token.text == "bank"]
    assert banks[0].similarity(banks[1]) < 0.95
    spans = [doc[bank.i - 1 : bank.i + 1] for bank in banks]
    assert spans[0].text == spans[1].text
    assert spans[0].similarity(spans[1]) < 0.95
    assert banks[0].similarity(same[4]) == pytest.approx(1)
    assert doc.similarity(same) == pytest.approx(1)
    assert doc.similarity(spans[0]) == pytest.approx(spans[0].similarity(doc))


def test_docs_spans_and_tokens_have_vectors_with_and_without_hooks(folder):
    nlp = pipeline(folder)
    doc = nlp(TEXT)
    sent = Doc(nlp.vocab).from_bytes(doc.to_bytes(exclude=["user_hooks"]))
    for own in (doc, sent):
        parts = {own: own.tensor.mean(0), own[2:5]: own.tensor[2:5].mean(0), own[3]: own.tensor[3]}
        for part, expected in parts.items():
            assert part.has_vector
            np.testing.assert_allclose(part.vector, expected, atol=1e-6)
            assert part.vector_norm == pytest.approx(np.linalg.norm(expected))
    assert sent[4].similarity(sent[-2]) == 1  # of the spelling alone
    assert add_hooks(sent)[4].similarity(sent[-2]) == doc[4].similarity(doc[-2]) < 1


def test_elmos_vectors_come_before_those_of_the_vocabulary(folder):
    nlp = pipeline(folder)
    nlp.vocab.set_vector("bank", np.ones(5, np.float32))
    doc = nlp(TEXT)
    np.testing.assert_array_equal(doc[4].vector, doc.tensor[4])
    np.testing.assert_allclose(doc[3:5].vector, doc.tensor[3:5].mean(0), atol=1e-6)
    with pytest.raises(elmokit.InputError, match=r"'bank' is a lexeme, .* no vector of ELMo"):
        doc[4].similarity(nlp.vocab["bank"])


def test_vectors_of_other_sizes_are_not_compared(folder):
    one, two = (pipeline(folder, layers=layers)(TEXT) for layers in ("mean", "concat"))
    with pytest.raises(elmokit.InputError, match="of 12 and of 36 dimensions cannot be compared"):
        one[0].similarity(two[0])


def test_the_pipeline_is_pickled_without_its_model(folder):
    nlp = pipeline(folder)
    for doc, text in ((nlp(TEXT), TEXT), (pickle.loads(pickle.dumps(nlp(TEXT))), TEXT)):
        np.testing.assert_array_equal(pickle.loads(pickle.dumps(nlp))(text).tensor, doc.tensor)
    blank = len(pickle.dumps(spacy.blank("en")))
    assert len(pickle.dumps(nlp)) < blank + 10_000


def test_a_saved_pipeline_gives_the_same_bits_and_refuses_another_model(tmp_path):
    model_folder = tmp_path / "model"
    model_folder.mkdir()
    make_folder(model_folder)
    nlp = pipeline(str(model_folder), layers="top")
    nlp.to_disk(tmp_path / "saved")
    as_bytes = nlp.to_bytes()
    assert sum(file.stat().st_size for file in (tmp_path / "saved" / "elmo").iterdir()) < 1000
    restored = spacy.load(tmp_path / "saved")
    np.testing.assert_array_equal(restored(TEXT).tensor, nlp(TEXT).tensor)
    model_folder.rename(tmp_path / "old")
    model_folder.mkdir()
    make_folder(model_folder, size=2.0)
    message = r"the component 'elmo' was made with another model \(fingerprint"
    with pytest.raises(elmokit.InputError, match=message):
        spacy.load(tmp_path / "saved")
    with pytest.raises(elmokit.InputError, match=message):
        pipeline(str(model_folder), layers="top").from_bytes(as_bytes)


@pytest.mark.full
def test_two_processes_keep_the_tensor(folder, capfd):
    nlp = pipeline(folder, sentences=True)
    options = nlp.get_pipe("elmo").options

    @spacy.Language.component("note_threads")
    def note_threads(doc):
        doc.user_data["threads"] = open_once(options).embedder.session._threads
        return doc

    nlp.add_pipe("note_threads")
    texts = [TEXT, "", "A shop."] * 3
    docs = [*nlp.pipe(texts, n_process=2, batch_size=2)]
    assert "W109" not in capfd.readouterr().err
    assert {doc.user_data["threads"] for doc in docs} == {1}
    for doc, text in zip(docs, texts, strict=True):
        expected = nlp(text)
        np.testing.assert_array_equal(doc.tensor, expected.tensor)
        assert not doc.user_token_hooks
        if text == TEXT:
            assert add_hooks(doc)[4].similarity(doc[-2]) == expected[4].similarity(expected[-2])


def test_a_wrong_setting_is_explained_when_the_component_is_added(folder):
    for config, message in (
        ({"layers": 7}, "layer 7 was asked for, but the model has 0 to 2"),
        ({"layers": "last"}, "layers is 'last', expected 'all'"),
        ({"precision": "double"}, "precision is 'double', expected 'float32'"),
    ):
        with pytest.raises(elmokit.InputError, match=message):
            pipeline(folder, **config)


def test_without_spacy_the_extra_is_named(monkeypatch):
    monkeypatch.delitem(sys.modules, "elmokit.integrations.spacy")
    monkeypatch.setitem(sys.modules, "spacy.language", None)
    with pytest.raises(elmokit.InputError, match=r"pip install 'elmokit\[spacy\]'"):
        importlib.import_module("elmokit.integrations.spacy")


# The architecture


def trainable(folder, **tok2vec):
    """A pipeline for two entities and its examples, initialised."""
    spacy.util.fix_random_seed(0)
    nlp = spacy.blank("en")
    model = {"@architectures": "elmokit.Tok2Vec.v1", "model": folder, **tok2vec}
    nlp.add_pipe("tok2vec", config={"model": model})
    width = tok2vec.get("width", 12)
    listener = {"@architectures": "spacy.Tok2VecListener.v1", "width": width}
    nlp.add_pipe("ner", config={"model": {"tok2vec": listener}})
    examples = [Example(nlp.make_doc(doc.text), doc) for doc in tagged(nlp.vocab)]
    optimizer = nlp.initialize(lambda: examples)
    optimizer.learn_rate = 0.02
    return nlp, optimizer, examples


def tagged(vocab):
    docs = []
    for place in ("Oslo", "Rome", "Paris", "Lima"):
        for verb in ("saw", "left", "liked"):
            doc = Doc(vocab, words=["Anna", verb, place, "."], sent_starts=[True, *[False] * 3])
            doc.ents = [Span(doc, 0, 1, "PER"), Span(doc, 2, 3, "LOC")]
            docs.append(doc)
    return docs


def update(nlp, optimizer, examples, steps):
    for _ in range(steps):
        losses = nlp.update(examples, sgd=optimizer, drop=0.1)
    return losses


def test_the_gradient_of_the_mix_is_that_of_scalar_mix(folder):
    nlp = spacy.blank("en")
    model = make_tok2vec(folder)
    docs = [nlp("A fine bank."), nlp(""), nlp("Two  words")]
    model.initialize(docs)
    mix = model.layers[0]
    mix.set_param("weights", np.array([0.3, -0.5, 1.0], np.float32))
    mix.set_param("scale", np.array([1.7], np.float32))
    outputs, backprop = model.begin_update(docs)
    random = np.random.default_rng(0)
    gradients = [random.standard_normal(output.shape).astype(np.float32) for output in outputs]
    assert backprop(gradients) == []

    reference = ScalarMix(3, weights=[0.3, -0.5, 1.0], scale=1.7)
    embedder = elmokit.load(folder)
    for doc, output, gradient in zip(docs, outputs, gradients, strict=True):
        words = [not token.is_space for token in doc]
        if not any(words):
            assert output.shape == (0, 12)
            continue
        (layers,) = embedder.embed([words_of(t for t in doc if not t.is_space)])
        mixed = reference(torch.from_numpy(layers), torch.ones(layers.shape[1], dtype=torch.bool))
        np.testing.assert_allclose(output[words], mixed.detach(), atol=2e-6)
        mixed.backward(torch.from_numpy(gradient[words]))
    np.testing.assert_allclose(mix.get_grad("weights"), reference.weights.grad, rtol=1e-5)
    assert mix.get_grad("scale").shape == (1,)
    np.testing.assert_allclose(mix.get_grad("scale")[0], reference.scale.grad, rtol=1e-5)


def test_training_lowers_the_loss_and_moves_the_mix_alone(folder):
    fingerprint = elmokit.load(folder).pretrained.fingerprint()
    nlp, optimizer, examples = trainable(folder)
    start = scalar_mix(nlp)
    assert start.weights.tolist() == [0, 0, 0]
    assert start.scale.shape == ()
    first = update(nlp, optimizer, examples, 1)["ner"]
    last = update(nlp, optimizer, examples, 40)["ner"]
    assert last < 0.5 * first
    mix = scalar_mix(nlp)
    assert np.ptp(mix.weights.tolist()) > 1e-3
    assert mix.scale != 1
    opened = open_once(elmokit.LoadOptions(folder))
    assert opened.embedder.pretrained.fingerprint() == fingerprint
    doc = nlp("Anna saw Oslo .")
    assert [(ent.text, ent.label_) for ent in doc.ents] == [("Anna", "PER"), ("Oslo", "LOC")]
    (expected,) = elmokit.load(folder).embed([words_of(doc)], layers=mix)
    np.testing.assert_allclose(doc.tensor, expected[0], atol=2e-6)


def test_each_sentence_is_read_once_in_training(tmp_path, monkeypatch):
    sentences, run_lstms = [], BiLM.run_lstms

    def counting(self, vectors, words, *arguments, **options):
        sentences.extend(words)
        return run_lstms(self, vectors, words, *arguments, **options)

    monkeypatch.setattr(BiLM, "run_lstms", counting)
    nlp, optimizer, examples = trainable(str(make_folder(tmp_path)))
    read_before = len(sentences)  # to infer shapes
    nlp(examples[0].text)
    nlp(examples[0].text)
    assert len(sentences) == read_before + 2  # nothing is kept before training
    update(nlp, optimizer, examples, 3)
    assert len(sentences) == read_before + 2 + len(examples)
    nlp.evaluate(examples)
    assert len(sentences) == read_before + 2 + len(examples)


@pytest.mark.parametrize("cache_bytes", [0, 500, 2**20])
def test_vectors_do_not_depend_on_the_cache(cache_bytes, folder):
    nlp = spacy.blank("en")
    docs = [nlp(TEXT), nlp(TEXT), nlp("A shop.")]
    model = make_tok2vec(folder, cache_bytes=cache_bytes)
    model.initialize(docs)
    first = model.predict(docs)
    for vectors in (model.begin_update(docs)[0], model.predict(docs)):
        for own, expected in zip(vectors, first, strict=True):
            np.testing.assert_array_equal(own, expected)


def test_a_trained_pipeline_is_saved_by_name_and_refuses_another_model(tmp_path):
    model_folder = tmp_path / "model"
    model_folder.mkdir()
    make_folder(model_folder)
    nlp, optimizer, examples = trainable(str(model_folder))
    update(nlp, optimizer, examples, 3)
    nlp.to_disk(tmp_path / "saved")
    assert (tmp_path / "saved" / "tok2vec" / "model").stat().st_size < 2000
    restored = spacy.load(tmp_path / "saved")
    again = pickle.loads(pickle.dumps(restored))
    for text in (TEXT, "", "Anna saw Oslo ."):
        expected = nlp(text)
        for doc in (restored(text), again(text)):
            np.testing.assert_array_equal(doc.tensor, expected.tensor)
            assert [ent.text for ent in doc.ents] == [ent.text for ent in expected.ents]
    assert scalar_mix(restored).weights.tolist() == scalar_mix(nlp).weights.tolist()
    model_folder.rename(tmp_path / "old")
    model_folder.mkdir()
    make_folder(model_folder, size=2.0)
    with pytest.raises(elmokit.InputError, match=r"this pipeline was made with another model"):
        spacy.load(tmp_path / "saved")


@pytest.mark.full
def test_a_trained_pipeline_runs_in_two_processes(folder, tmp_path):
    nlp, optimizer, examples = trainable(folder)
    update(nlp, optimizer, examples, 20)
    texts = ["Anna saw Oslo .", "", "Anna liked Lima ."] * 3
    for doc, text in zip(nlp.pipe(texts, n_process=2, batch_size=2), texts, strict=True):
        np.testing.assert_array_equal(doc.tensor, nlp(text).tensor)
        assert [ent.text for ent in doc.ents] == [ent.text for ent in nlp(text).ents]


@pytest.mark.parametrize("width", [5, 40])
def test_vectors_of_another_width_are_trained(width, folder):
    nlp, optimizer, examples = trainable(folder, width=width)
    assert nlp("Anna saw Oslo .").tensor.shape == (4, width)
    assert nlp("").tensor.shape == (0, width)
    first = update(nlp, optimizer, examples, 1)["ner"]
    assert update(nlp, optimizer, examples, 40)["ner"] < 0.5 * first
    assert np.ptp(scalar_mix(nlp).weights.tolist()) > 1e-3


def test_a_damaged_record_of_the_model_is_explained(folder, tmp_path):
    pipeline(folder).to_disk(tmp_path)
    (tmp_path / "elmo" / "model.json").write_text('{"finger')
    with pytest.raises(elmokit.FormatError, match=r"'elmo': the record of its model is b'{\"fin"):
        spacy.load(tmp_path)


def test_mistakes_in_a_config_are_explained(folder):
    with pytest.raises(elmokit.ConfigError, match=r"width is 0, expected 1 or more, or null"):
        make_tok2vec(folder, width=0)
    nlp, _, _ = trainable(folder, width=12)
    with pytest.raises(elmokit.InputError, match=r"component 'ner' has no elmokit.Tok2Vec.v1"):
        scalar_mix(nlp, "ner")


APPLY = """
import json, spacy, sys
nlp = spacy.load(sys.argv[1])
docs = [nlp(text) for text in json.loads(sys.argv[2])]
print(json.dumps([[[ent.text, ent.label_] for ent in doc.ents] or doc.cats for doc in docs]))
"""


@pytest.mark.full
@pytest.mark.parametrize("task", ["ner", "textcat"])
def test_spacy_train_takes_the_configs_and_what_it_saves_is_loaded_anywhere(task, tmp_path):
    vocab = spacy.blank("en").vocab
    docs = tagged(vocab)
    for doc in docs:
        is_near = doc[2].text in ("Oslo", "Paris")
        doc.cats = {"near": is_near, "far": not is_near}
    DocBin(docs=docs, store_user_data=True).to_disk(tmp_path / "docs.spacy")
    overrides = {
        "--paths.train": tmp_path / "docs.spacy", "--paths.dev": tmp_path / "docs.spacy",
        "--training.max_steps": 30, "--training.eval_frequency": 15, "--output": tmp_path / "out",
    }  # fmt: skip
    arguments = [str(part) for pair in overrides.items() for part in pair]
    done = subprocess.run(
        [sys.executable, "-m", "spacy", "train", CONFIGS / f"{task}.cfg", *arguments],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    saved = tmp_path / "out" / "model-best"
    assert sum(file.stat().st_size for file in saved.rglob("*") if file.is_file()) < 6e6
    texts = ["Anna saw Oslo .", "Anna liked Lima ."]
    applied = subprocess.run(
        [sys.executable, "-c", APPLY, saved, json.dumps(texts)],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    nlp = spacy.load(saved)
    found = json.loads(applied.stdout)
    if task == "ner":
        assert found == [[["Anna", "PER"], [place, "LOC"]] for place in ("Oslo", "Lima")]
    else:
        assert [max(cats, key=cats.get) for cats in found] == ["near", "far"]
        assert found == [nlp(text).cats for text in texts]
