"""Every route through a real socket: what the embedder returns, and one sentence per mistake."""

import io
import json
import re

import numpy as np
import pytest

import elmokit
from elmokit.pooling import POOLINGS
from elmokit.tasks.saved_model import load_task
from random_models import make_folder

TEXTS = ["word1 word2 cat. Word3!", ["word4", "a dog", "word5"], ""]
SENTENCES = [["word1", "word2", "cat", "."], ["Word3", "!"], ["word4", "a dog", "word5"]]


def test_embed_returns_the_bits_of_the_embedder(service, language_model):
    response = service.get_json("/embed", {"texts": TEXTS})
    assert response["layers"] == [0, 1, 2]
    assert [sentence["words"] for sentence in response["sentences"]] == SENTENCES
    assert [sentence["text_index"] for sentence in response["sentences"]] == [0, 0, 1]
    vectors = language_model.embed(SENTENCES)
    for sentence, expected in zip(response["sentences"], vectors, strict=True):
        np.testing.assert_array_equal(np.float32(sentence["vectors"]), expected)


@pytest.mark.parametrize("layers", ["top", 0, -1, [2, 0], "mean", "sum", "concat"])
@pytest.mark.parametrize("directions", ["both", "backward"])
def test_embed_returns_layers_and_directions_as_npz(service, language_model, layers, directions):
    request = {"texts": TEXTS, "layers": layers, "directions": directions}
    status, headers, body = service.request(
        "/embed", request, headers={"Accept": "application/x-npz"}
    )
    assert (status, headers["Content-Type"]) == (200, "application/x-npz")
    arrays = np.load(io.BytesIO(body), allow_pickle=False)
    assert json.loads(arrays["sentences.json"]) == {"words": SENTENCES, "text_indices": [0, 0, 1]}
    expected = language_model.embed(SENTENCES, layers=layers, directions=directions)
    for index, array in enumerate(expected):
        np.testing.assert_array_equal(arrays[str(index)], array)


def test_a_long_sentence_is_sent_in_chunks(service, language_model):
    words = [f"w{index}" for index in range(4000)]  # 144,000 numbers
    (sentence,) = service.get_json("/embed", {"texts": [words]})["sentences"]
    (expected,) = language_model.embed([words])
    np.testing.assert_array_equal(np.float32(sentence["vectors"]), expected)


@pytest.mark.parametrize(
    ("layers", "pooling"),
    [
        ("mean", "mean"),
        ("top", "max"),
        ("concat", "first"),
        (1, "last"),
        ("all", "idf"),
        ([0, 2], "mean"),
    ],
)
def test_encode_returns_one_vector_per_text_and_layer(service, language_model, layers, pooling):
    request = {"texts": TEXTS, "layers": layers, "pooling": pooling}
    expected = language_model.encode(TEXTS, layers=layers, pooling=pooling)
    vectors = service.get_json("/encode", request)["vectors"]
    np.testing.assert_array_equal(np.float32(vectors), expected)
    _, headers, body = service.request(
        "/encode", request, headers={"Accept": "application/x-npy, */*"}
    )
    assert headers["Content-Type"] == "application/x-npy"
    np.testing.assert_array_equal(np.load(io.BytesIO(body)), expected)


def test_a_word_may_contain_spaces(service):
    (sentence,) = service.get_json("/embed", {"texts": [["a dog"]], "layers": 0})["sentences"]
    assert (sentence["words"], len(sentence["vectors"][0])) == (["a dog"], 1)
    assert service.get_json("/score", {"texts": [["a dog"]]})["perplexity"]["words"] == 1


def test_no_texts_give_empty_responses(service):
    assert service.get_json("/embed", {"texts": []}) == {"layers": [0, 1, 2], "sentences": []}
    assert service.get_json("/encode", {"texts": []}) == {"vectors": []}
    assert service.get_json("/encode", {"texts": ["", []]})["vectors"] == [[0.0] * 12] * 2
    assert service.get_json("/score", {"texts": [""]}) == {"perplexity": None, "sentences": []}


def test_score_returns_perplexity_and_the_log_probability_of_each_word(service, language_model):
    response = service.get_json("/score", {"texts": TEXTS})
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
        assert response["perplexity"][name] == pytest.approx(getattr(expected, name))
    for sentence, score in zip(response["sentences"], language_model.score(TEXTS), strict=True):
        assert tuple(sentence["words"]) == score.words
        assert sentence["perplexity"] == pytest.approx(score.perplexity)
        np.testing.assert_allclose(sentence["forward"], score.forward)
        np.testing.assert_allclose(sentence["backward"], score.backward)


@pytest.mark.parametrize("text", ["word1. word2", ["word1", "."], ""])
def test_next_returns_the_words_after_a_text_or_before_it(service, language_model, text):
    response = service.get_json("/next", {"text": text, "k": 3})
    assert response["predictions"] == [
        prediction._asdict() for prediction in language_model.next_words(text, k=3)
    ]
    response = service.get_json("/next", {"text": text, "previous": True, "special_tokens": True})
    expected = language_model.previous_words(text, special_tokens=True)
    assert response["predictions"] == [prediction._asdict() for prediction in expected]


@pytest.mark.parametrize("text", ["word1 ___ word2", ["___", "word3", "___"]])
def test_fill_returns_words_for_each_gap(service, language_model, text):
    response = service.get_json("/fill", {"text": text, "k": 2})
    expected = language_model.fill(text, k=2)
    assert response["gaps"] == [[prediction._asdict() for prediction in gap] for gap in expected]


@pytest.mark.parametrize(
    ("path", "body", "status", "expected_message"),
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
        ("/embed", {"texts": ["\ud800"]}, 422, "text 0 has '\\ud800', half of a surrogate pair"),
        ("/embed", {"texts": [["a", "\udfff"]]}, 422, "half of a surrogate pair"),
        ("/embed", {"texts": ["a"], "layer": 1}, 422, "layer is not a field of this request"),
        ("/embed", {"texts": ["a"], "layers": 3}, 422, "layer 3 was asked for"),
        ("/embed", {"texts": ["a"], "layers": []}, 422, "layers is []"),
        ("/embed", {"texts": ["a"], "layers": [0] * 4}, 422, "4 layers were requested"),
        ("/embed", {"texts": ["a"], "layers": 1.5}, 422, "layers is 1.5"),
        ("/embed", {"texts": ["a"], "layers": 10**30}, 422, "was asked for"),
        ("/embed", {"texts": ["a"], "directions": "up"}, 422, "directions is 'up'"),
        (
            "/encode",
            {"texts": ["a"], "pooling": "min"},
            422,
            "pooling is 'min', expected one",
        ),
        ("/encode", {"texts": ["a"], "layers": "total"}, 422, "layers is 'total'"),
        ("/score", {"texts": None}, 422, "texts is None"),
        ("/next", {"text": "a", "k": 0}, 422, "k is 0"),
        ("/next", {"text": "a", "k": float("nan")}, 422, "k is nan"),
        ("/next", {"text": "a", "k": True}, 422, "k is True"),
        ("/next", {"text": "a", "special_tokens": "yes"}, 422, "special_tokens is 'yes'"),
        ("/next", {"text": {"a": 1}}, 422, "text is {'a': 1}"),
        ("/fill", {"text": "a"}, 422, "has no gap"),
    ],
)
def test_a_mistake_is_explained_in_one_sentence(service, path, body, status, expected_message):
    actual_status, message = service.get_error(path, body)
    assert (actual_status, expected_message in message) == (status, True), message


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
def test_a_wrong_path_method_or_media_type_is_an_error_too(service, path, settings, status):
    assert service.get_error(path, **settings)[0] == status


def test_a_model_without_a_softmax_embeds_and_says_what_it_lacks(start_service, tmp_path_factory):
    folder = make_folder(tmp_path_factory.mktemp("vectors"), directions=1)
    service = start_service(elmokit.load(folder, threads=1))
    assert len(service.get_json("/encode", {"texts": ["a"]})["vectors"][0]) == 6
    for path, body in [
        ("/next", {"text": "a"}), ("/fill", {"text": "___"}), ("/score", {"texts": ["a"]}),
    ]:  # fmt: skip
        status, message = service.get_error(path, body)
        assert (status, "the model has no softmax" in message) == (422, True)
    status, message = service.get_error("/embed", {"texts": ["a"], "directions": "backward"})
    assert (status, "the model has forward" in message) == (422, True)


def test_the_examples_of_the_schema_are_answered(service):
    schema = service.get_json("/openapi.json")
    paths = schema["paths"]
    assert set(paths) >= {
        "/embed", "/encode", "/score", "/next", "/fill", "/contexts", "/similarity",
        "/layer_weights", "/search", "/predict/{task}", "/info", "/health", "/ready", "/metrics",
    }  # fmt: skip
    for path, methods in paths.items():
        if "post" not in methods:
            continue
        response = service.get_json(
            path.replace("{task}", "ner"), _example(schema, methods["post"]["requestBody"])
        )
        documented = _example(schema, methods["post"]["responses"]["200"])
        assert _shape(response) == _shape(documented), path


def _example(schema, content):
    """The example of the record that a request or a response has."""
    reference = content["content"]["application/json"]["schema"]["$ref"]
    (example,) = schema["components"]["schemas"][reference.rsplit("/", 1)[1]]["examples"]
    return example


def _shape(value):
    """The names of an object's fields, the first element of a list; what a leaf is."""
    if isinstance(value, dict):
        return {name: _shape(field) for name, field in value.items()}
    return [_shape(part) for part in value[:1]] if isinstance(value, list) else type(value)


def test_the_schema_describes_each_pooling(service):
    schema = service.get_json("/openapi.json")["components"]["schemas"]["EncodeRequest"]
    pooling = schema["properties"]["pooling"]
    assert pooling["enum"] == [*POOLINGS, None]
    for name, registered in POOLINGS.items():
        assert f"`{name}`: {registered.description}" in pooling["description"]


def test_info_describes_the_model_and_the_service(service, language_model):
    info = service.get_json("/info")
    assert info["fingerprint"] == language_model.pretrained.fingerprint()
    assert (info["layers"], info["dim"]) == (language_model.num_layers, language_model.dim)
    parameters = language_model.pretrained.model.parameters()
    assert info["parameters"] == sum(parameter.numel() for parameter in parameters)
    assert info["version"] == elmokit.__version__
    assert info["tasks"] == ["ner"]
    assert (info["index"], info["softmax_words"] > 0) == ("sentences", True)


def test_a_trained_head_predicts_as_it_does_in_python(service, task_folder):
    texts = ["Ada lived in London .", "No name here ."]
    expected = load_task(task_folder).predict_json(texts)
    assert service.get_json("/predict/ner", {"texts": texts}) == {
        "task": "ner",
        "predictions": json.loads(json.dumps(expected)),
    }


def test_an_unknown_task_is_refused_with_those_that_are_served(
    service, start_service, language_model
):
    status, message = service.get_error("/predict/pos", {"texts": ["a"]})
    assert (status, "task is 'pos', but this service has ner" in message) == (422, True)
    without = start_service(language_model)
    assert "has none; start it with elmo serve" in without.get_error("/predict/x", {"texts": []})[1]


def test_docs_show_the_schema_and_load_nothing_from_elsewhere(
    service, start_service, language_model
):
    status, headers, page = service.request("/docs")
    assert (status, headers["Content-Type"].split(";")[0]) == (200, "text/html")
    assert b"https://" not in page
    for path in re.findall(rb'(?:href|src)="(/[^"]+)"', page):
        assert service.request(path.decode())[0] == 200
    protected = start_service(language_model, token="secret")
    assert protected.request("/docs")[0] == 200
    schema = protected.get_json("/openapi.json")
    assert schema["components"]["securitySchemes"]["token"]["scheme"] == "bearer"
