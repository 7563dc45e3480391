"""Each route through a real socket: its answers are the embedder's, and mistakes are told."""

import io
import json

import numpy as np
import pytest

import elmokit
from made import make_folder

TEXTS = ["word1 word2 cat. Word3!", ["word4", "a dog", "word5"], ""]
SENTENCES = [["word1", "word2", "cat", "."], ["Word3", "!"], ["word4", "a dog", "word5"]]


def test_embed_gives_the_vectors_of_the_embedder_bit_by_bit(served, language_model):
    found = served.told("/embed", {"texts": TEXTS})
    assert found["layers"] == [0, 1, 2]
    assert [sentence["words"] for sentence in found["sentences"]] == SENTENCES
    assert [sentence["text_index"] for sentence in found["sentences"]] == [0, 0, 1]
    for sentence, expected in zip(found["sentences"], language_model.embed(SENTENCES), strict=True):
        np.testing.assert_array_equal(np.float32(sentence["vectors"]), expected)


@pytest.mark.parametrize("layers", ["top", 0, -1, [2, 0]])
@pytest.mark.parametrize("directions", ["both", "backward"])
def test_embed_gives_layers_and_directions_as_numpy_files(
    served, language_model, layers, directions
):
    form = {"texts": TEXTS, "layers": layers, "directions": directions}
    status, headers, body = served.ask("/embed", form, headers={"Accept": "application/x-npz"})
    assert (status, headers["Content-Type"]) == (200, "application/x-npz")
    arrays = np.load(io.BytesIO(body), allow_pickle=False)
    assert json.loads(arrays["sentences.json"]) == {"words": SENTENCES, "text_indices": [0, 0, 1]}
    expected = language_model.embed(SENTENCES, layers=layers, directions=directions)
    for place, array in enumerate(expected):
        np.testing.assert_array_equal(arrays[str(place)], array)


def test_a_long_sentence_is_sent_in_pieces(served, language_model):
    words = [f"w{place}" for place in range(4000)]  # 144,000 numbers
    (sentence,) = served.told("/embed", {"texts": [words]})["sentences"]
    (expected,) = language_model.embed([words])
    np.testing.assert_array_equal(np.float32(sentence["vectors"]), expected)


@pytest.mark.parametrize(
    ("layers", "pooling"), [("mean", "mean"), ("top", "max"), ("concat", "first"), (1, "last")]
)
def test_encode_gives_one_vector_a_text(served, language_model, layers, pooling):
    form = {"texts": TEXTS, "layers": layers, "pooling": pooling}
    expected = language_model.encode(TEXTS, layers=layers, pooling=pooling)
    found = served.told("/encode", form)["vectors"]
    np.testing.assert_array_equal(np.float32(found), expected)
    _, headers, body = served.ask("/encode", form, headers={"Accept": "application/x-npy, */*"})
    assert headers["Content-Type"] == "application/x-npy"
    np.testing.assert_array_equal(np.load(io.BytesIO(body)), expected)


def test_a_word_with_spaces_is_a_word(served):
    (sentence,) = served.told("/embed", {"texts": [["a dog"]], "layers": 0})["sentences"]
    assert (sentence["words"], len(sentence["vectors"][0])) == (["a dog"], 1)
    assert served.told("/score", {"texts": [["a dog"]]})["perplexity"]["words"] == 1


def test_no_texts_have_no_vectors(served):
    assert served.told("/embed", {"texts": []}) == {"layers": [0, 1, 2], "sentences": []}
    assert served.told("/encode", {"texts": []}) == {"vectors": []}
    assert served.told("/encode", {"texts": ["", []]})["vectors"] == [[0.0] * 12] * 2
    assert served.told("/score", {"texts": [""]}) == {"perplexity": None, "sentences": []}


def test_score_gives_perplexity_and_each_words_probability(served, language_model):
    found = served.told("/score", {"texts": TEXTS})
    expected = language_model.perplexity(TEXTS)
    for name in (
        "forward",
        "backward",
        "average",
        "geometric_mean",
        "words",
        "unknown",
        "predictions",
    ):
        assert found["perplexity"][name] == pytest.approx(getattr(expected, name))
    for sentence, score in zip(found["sentences"], language_model.score(TEXTS), strict=True):
        assert tuple(sentence["words"]) == score.words
        assert sentence["perplexity"] == pytest.approx(score.perplexity)
        np.testing.assert_allclose(sentence["forward"], score.forward)
        np.testing.assert_allclose(sentence["backward"], score.backward)


@pytest.mark.parametrize("text", ["word1. word2", ["word1", "."], ""])
def test_next_gives_the_words_after_a_text_or_before_it(served, language_model, text):
    found = served.told("/next", {"text": text, "k": 3})
    assert found["predictions"] == [
        guess._asdict() for guess in language_model.next_words(text, k=3)
    ]
    found = served.told("/next", {"text": text, "previous": True, "special_tokens": True})
    expected = language_model.previous_words(text, special_tokens=True)
    assert found["predictions"] == [guess._asdict() for guess in expected]


@pytest.mark.parametrize("text", ["word1 ___ word2", ["___", "word3", "___"]])
def test_fill_gives_words_for_each_gap(served, language_model, text):
    found = served.told("/fill", {"text": text, "k": 2})
    expected = language_model.fill(text, k=2)
    assert found["gaps"] == [[guess._asdict() for guess in gap] for gap in expected]


@pytest.mark.parametrize(
    ("path", "body", "status", "says"),
    [
        ("/embed", b"", 422, "the body is empty"),
        ("/embed", b"{", 400, "the body is not JSON: Expecting property name"),
        ("/embed", b"\xff\xfe", 400, "the body is not JSON"),
        ("/embed", b"[" * 100_000, 400, "the body is not JSON"),
        ("/embed", b'{"texts": [1' + b"0" * 5000 + b"]}", 400, "the body is not JSON"),
        ("/embed", b"null", 422, "the body is empty"),
        ("/embed", [], 422, "the body is []"),
        ("/embed", {}, 422, "the body: texts is missing"),
        ("/embed", {"texts": "one"}, 422, "texts is 'one': input should be a valid list"),
        ("/embed", {"texts": [float("nan")]}, 422, "texts[0] is nan: input should be a valid"),
        ("/embed", {"texts": [["a", None]]}, 422, "texts[0] is ['a', None]"),
        ("/embed", {"texts": ["\ud800"]}, 422, "text 0 has '\\ud800', half of a character"),
        ("/embed", {"texts": [["a", "\udfff"]]}, 422, "half of a character"),
        ("/embed", {"texts": ["a"], "layer": 1}, 422, "layer is no setting of this route"),
        ("/embed", {"texts": ["a"], "layers": 3}, 422, "layer 3 was asked for"),
        ("/embed", {"texts": ["a"], "layers": []}, 422, "layers is []"),
        ("/embed", {"texts": ["a"], "layers": [0] * 4}, 422, "4 layers were asked for"),
        ("/embed", {"texts": ["a"], "layers": 1.5}, 422, "layers is 1.5"),
        ("/embed", {"texts": ["a"], "layers": 10**30}, 422, "was asked for"),
        ("/embed", {"texts": ["a"], "directions": "up"}, 422, "directions is 'up'"),
        ("/encode", {"texts": ["a"], "pooling": "min"}, 422, "pooling is 'min'"),
        ("/encode", {"texts": ["a"], "layers": "all"}, 422, "layers is 'all'"),
        ("/score", {"texts": None}, 422, "texts is None"),
        ("/next", {"text": "a", "k": 0}, 422, "k is 0"),
        ("/next", {"text": "a", "k": float("nan")}, 422, "k is nan"),
        ("/next", {"text": "a", "k": True}, 422, "k is True"),
        ("/next", {"text": "a", "special_tokens": "yes"}, 422, "special_tokens is 'yes'"),
        ("/next", {"text": {"a": 1}}, 422, "text is {'a': 1}"),
        ("/fill", {"text": "a"}, 422, "has no gap"),
    ],
)
def test_a_mistake_is_told_in_one_sentence(served, path, body, status, says):
    found, sentence = served.refused(path, body)
    assert (found, says in sentence) == (status, True), sentence


@pytest.mark.parametrize(
    ("path", "settings", "status"),
    [
        ("/nothing", {}, 404),
        ("/embed", {}, 405),
        ("/health", {"body": {}}, 405),
        ("/embed", {"body": {"texts": []}, "headers": {"Accept": "text/html"}}, 406),
        ("/embed", {"body": {"texts": []}, "headers": {"Accept": "application/x-npy"}}, 406),
        ("/embed", {"body": {"texts": []}, "headers": {"Content-Type": "text/plain"}}, 400),
    ],
)
def test_a_wrong_path_method_or_form_is_told_too(served, path, settings, status):
    assert served.refused(path, **settings)[0] == status


def test_a_model_without_a_softmax_gives_vectors_and_says_what_it_lacks(serving, tmp_path_factory):
    folder = make_folder(tmp_path_factory.mktemp("vectors"), directions=1)
    bare = serving(elmokit.load(folder, threads=1))
    assert len(bare.told("/encode", {"texts": ["a"]})["vectors"][0]) == 6
    for path, form in [
        ("/next", {"text": "a"}), ("/fill", {"text": "___"}), ("/score", {"texts": ["a"]}),
    ]:  # fmt: skip
        status, sentence = bare.refused(path, form)
        assert (status, "the model has no softmax" in sentence) == (422, True)
    status, sentence = bare.refused("/embed", {"texts": ["a"], "directions": "backward"})
    assert (status, "the model has forward" in sentence) == (422, True)


def test_the_schema_has_examples_that_are_answered(served):
    paths = served.told("/openapi.json")["paths"]
    assert set(paths) == {
        "/embed", "/encode", "/score", "/next", "/fill", "/contexts", "/similarity",
        "/layer_weights", "/search", "/health", "/ready", "/metrics",
    }  # fmt: skip
    for path, methods in paths.items():
        if "post" not in methods:
            continue
        content = methods["post"]["requestBody"]["content"]["application/json"]
        (example,) = (given["value"] for given in content["examples"].values())
        answer = served.told(path, example)
        told = methods["post"]["responses"]["200"]["content"]["application/json"]["example"]
        assert set(answer) == set(told)
