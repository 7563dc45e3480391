"""The page's files and headers, and the responses that it shows."""

import json
import re
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import elmokit
import elmokit.server
from elmokit.errors import FormatError, InputError
from elmokit.formats import ENGLISH
from elmokit.plots import compare_words, project_pca
from elmokit.server.trained_tasks import load_tasks, read_shipped_layer_weights
from waiting import wait_until

PAGE = Path(elmokit.server.__file__).parent / "page"
TEXTS = ["A bank lent money .", "no use here", "The Bank of a river , two banks .", "my bank"]
KINDS = {".js": "text/javascript", ".css": "text/css", ".html": "text/html"}


@pytest.mark.parametrize("path", sorted(PAGE.iterdir()), ids=lambda path: path.name)
def test_page_files_have_their_type_and_are_revalidated(service, path):
    url_path = "/" if path.name == "index.html" else f"/page/{path.name}"
    status, headers, body = service.request(url_path)
    assert (status, body) == (200, path.read_bytes())
    assert headers["Content-Type"] == f"{KINDS[path.suffix]}; charset=utf-8"
    assert headers["Cache-Control"] == "no-cache"
    assert headers["Content-Security-Policy"].startswith("default-src 'self'; img-src data:;")
    assert "unsafe" not in headers["Content-Security-Policy"]
    cached = {"If-None-Match": f'"other", W/{headers["ETag"]}'}
    status, again, body = service.request(url_path, headers=cached)
    assert (status, again["ETag"], body) == (304, headers["ETag"], b"")
    status, head, body = service.request(url_path, method="HEAD")
    assert (status, head["ETag"], body) == (200, headers["ETag"], b"")


def test_no_other_file_is_served(service):
    for path in ["/page/", "/page", "/page/../app.py", "/page/%2e%2e/app.py", "/page/none.js"]:
        assert service.get_error(path)[0] == 404


def test_the_page_loads_nothing_from_elsewhere():
    for path in PAGE.iterdir():
        text = path.read_text("utf-8")
        assert not re.search(r"https?://|//[a-z]+\.[a-z]|@import|\bstyle=|\bon\w+=\"", text), path


def test_every_id_in_the_scripts_exists_on_the_page():
    ids = re.findall(r'\bid="([^"]+)"', (PAGE / "index.html").read_text("utf-8"))
    assert len(ids) == len(set(ids))
    for path in PAGE.glob("*.js"):
        named = set(re.findall(r'\bbyId\("([^"]+)"\)', path.read_text("utf-8")))
        assert named <= set(ids), path


def test_the_page_is_public_but_its_requests_need_the_token(start_service, language_model):
    protected = start_service(language_model, token="secret")
    assert protected.request("/")[0] == protected.request("/page/main.js")[0] == 200
    assert protected.get_error("/pages")[0] == protected.get_error("/layer_weights")[0] == 401
    assert protected.get_error("/contexts", {"word": "bank", "texts": TEXTS})[0] == 401
    allowed = {"Authorization": "Bearer secret"}
    assert protected.get_json("/layer_weights", headers=allowed) == {"layer_weights": []}


def test_contexts_are_at_their_pca_coordinates_up_to_sign(service, language_model):
    response = service.get_json("/contexts", {"word": " bank ", "texts": TEXTS})
    used = [
        (context["words"][context["position"]], context["words"][0])
        for context in response["contexts"]
    ]
    assert used == [("bank", "A"), ("Bank", "The"), ("banks", "The"), ("bank", "my")]
    assert len(response["layers"]) == language_model.num_layers
    arrays = language_model.embed([context["words"] for context in response["contexts"]])
    for layer, plane in enumerate(response["layers"]):
        positions = [context["position"] for context in response["contexts"]]
        rows = [array[layer, position] for array, position in zip(arrays, positions, strict=True)]
        expected = project_pca(np.stack(rows))
        np.testing.assert_allclose(np.abs(plane["points"]), np.abs(expected.points), atol=1e-5)
        shares = plane["explained_variance"]
        np.testing.assert_allclose(shares, expected.explained_variance, atol=1e-6)
    below = np.array([layer["points"] for layer in response["layers"]])
    assert ((below[:-1] * below[1:]).sum(1) >= 0).all()  # no axis turns over on the way up
    assert response["groups"] == ["cluster 1", "cluster 2"]
    assert {context["group"] for context in response["contexts"]} == {0, 1}


def test_labels_group_contexts(service):
    labels = ["money", "none", "river", "money"]
    response = service.get_json("/contexts", {"word": "bank", "texts": TEXTS, "labels": labels})
    assert response["groups"] == ["money", "river"]
    assert [context["group"] for context in response["contexts"]] == [0, 1, 1, 0]


@pytest.mark.parametrize(
    ("change", "status", "expected_message"),
    [
        ({"word": "cat"}, 422, "'cat' does not occur in the texts; two occurrences are needed"),
        (
            {"word": "money"},
            422,
            "'money' occurs only once in the texts; two",
        ),
        ({"word": " "}, 422, "the word is empty; give one that occurs in the texts"),
        ({"labels": []}, 422, "0 labels were given for 4 texts; give one per text"),
        ({"labels": ["x"]}, 422, "1 labels were given for 4 texts; give one per text"),
        (
            {"labels": ["x", "x", "\ud800", "x"]},
            422,
            "label 2 has '\\ud800', half of a surrogate",
        ),
        ({"texts": ["bank " * 501]}, 413, "'bank' occurs 501 times, the limit is 500"),
        (
            {"texts": ["bank " * 20 + "x " * 4000]},
            413,
            "the sentences of the occurrences have 80,400 word",
        ),
        ({"texts": 3}, 422, "texts is 3"),
        ({"kind": 3}, 422, "kind is not a field of this request"),
    ],
)
def test_contexts_that_cannot_be_projected_are_refused_in_one_sentence(
    service, change, status, expected_message
):
    actual_status, message = service.get_error(
        "/contexts", {"word": "bank", "texts": TEXTS} | change
    )
    assert (actual_status, message[: len(expected_message)]) == (status, expected_message)


def test_words_of_two_texts_are_compared_in_every_layer(service, language_model):
    first, second = ["A", "bank", "lent"], ["a", "bank", "."]
    response = service.get_json("/similarity", {"first": first, "second": second})
    assert (response["first"], response["second"]) == (first, second)
    expected = compare_words(language_model, first, second)
    np.testing.assert_allclose(response["layers"], expected, atol=1e-6)
    raw = service.get_json("/similarity", {"first": "One dog . Two cats .", "second": "x"})
    assert raw["first"] == ["One", "dog", ".", "Two", "cats", "."]
    for body, expected in [
        ({"first": "", "second": "x"}, (422, "a text has no word; give two texts")),
        ({"first": "a " * 200, "second": "b " * 100}, (413, "200 words and 100 make 20,000 pairs")),
    ]:  # fmt: skip
        status, message = service.get_error("/similarity", body)
        assert (status, message[: len(expected[1])]) == expected


def test_layer_weights_are_those_of_the_trained_tasks(service, task_folder):
    all_weights = service.get_json("/layer_weights")["layer_weights"]
    assert [
        (weights_of_task["task"], weights_of_task["position"]) for weights_of_task in all_weights
    ] == [
        ("ner", "input"),
        ("ner", "output"),
    ]
    for weights_of_task in all_weights:
        assert weights_of_task["name"] == task_folder.name
        assert weights_of_task["layers"] == [0, 1, 2]
        assert len(weights_of_task["weights"]) == 3
        assert sum(weights_of_task["weights"]) == pytest.approx(1)


def test_a_folder_without_a_task_is_refused(tmp_path):
    with pytest.raises(FormatError, match="expected a folder that elmo train made"):
        load_tasks([tmp_path])


def test_two_heads_of_one_name_are_refused(task_folder, tmp_path):
    copy = shutil.copytree(task_folder, tmp_path / task_folder.name)
    with pytest.raises(InputError, match=f"two trained heads would be served as {copy.name}; ren"):
        load_tasks([task_folder, copy])
    tasks, weights = load_tasks([task_folder, shutil.copytree(copy, tmp_path / "other")])
    assert set(tasks) == {task_folder.name, "other"}
    assert [weights_of_task.name for weights_of_task in weights] == [task_folder.name] * 2 + [
        "other"
    ] * 2


def test_shipped_layer_weights_are_shown_only_for_their_model(
    start_service, language_model, language_model_folder, model, tmp_path
):
    folder = shutil.copytree(language_model_folder, tmp_path / "shipped")
    assert read_shipped_layer_weights(language_model, folder) == []
    shipped = [
        {
            "task": "ner",
            "name": "ner",
            "position": "input",
            "layers": [0, 1, 2],
            "weights": [0.2, 0.5, 0.3],
        },
        {
            "task": "srl",
            "name": "srl",
            "position": "output",
            "layers": [1, 2],
            "weights": [0.5, 0.5],
        },
    ]
    fingerprint = language_model.pretrained.fingerprint()
    (folder / "layer_weights.json").write_text(
        json.dumps({"fingerprint": fingerprint, "layer_weights": shipped})
    )
    assert read_shipped_layer_weights(model, folder) == []
    weights = read_shipped_layer_weights(language_model, folder)
    service = start_service(language_model, layer_weights=weights)
    assert service.get_json("/layer_weights") == {"layer_weights": shipped}
    (folder / "layer_weights.json").write_text(
        '{"fingerprint": "", "layer_weights": [{"task": "ner"}]}'
    )
    with pytest.raises(
        FormatError, match=r"layer_weights.json: layer_weights.0.name: .*; expected the finger"
    ):
        read_shipped_layer_weights(language_model, folder)


def test_the_shipped_layer_weights_fit_the_english_model():
    english = elmokit.load(threads=1)
    all_weights = read_shipped_layer_weights(english)
    assert bool(all_weights) == (ENGLISH / "layer_weights.json").exists()
    for weights_of_task in all_weights:
        assert weights_of_task.position in ("input", "output")
        assert len(weights_of_task.weights) == english.num_layers
        assert sum(weights_of_task.weights) == pytest.approx(1, abs=1e-3)


def test_search_finds_the_query_and_highlights_its_content_words(service, index):
    query = "Two banks and a painter of landscapes ."
    results = service.get_json("/search", {"query": query, "k": 2})["results"]
    assert len(results) == 2
    assert results[0]["words"] == query.split()
    assert (results[0]["line"], Path(results[0]["file"]).name) == (3, "text.txt")
    assert results[0]["score"] == pytest.approx(1, abs=1e-3)
    assert results[0]["highlighted"] == [0, 1, 4, 6]  # no stop words and no punctuation
    assert results[1]["highlighted"]
    assert len(results[1]["highlighted"]) < len(results[1]["words"])
    expected = [hit.score for hit in index.search(query, k=2)]
    assert [passage["score"] for passage in results] == pytest.approx(expected, abs=1e-5)


def test_searches_are_queued_like_other_requests(service):
    bodies = [{"query": "a bank"}, {"query": ""}, {"query": "money", "k": 1}]
    with ThreadPoolExecutor(3) as pool:
        with service.model_busy():
            futures = [pool.submit(service.request, "/search", body) for body in bodies]
            wait_until(lambda: service.batcher.num_waiting == 4)
        responses = [(future.result()[0], json.loads(future.result()[2])) for future in futures]
    assert [status for status, _ in responses] == [200, 422, 200]
    assert responses[1][1] == {"error": "the query '' has no word"}
    assert len(responses[2][1]["results"]) == 1


def test_without_an_index_search_says_how_to_build_one(start_service, language_model):
    without_index = start_service(language_model)
    status, message = without_index.get_error("/search", {"query": "a bank"})
    assert status == 422
    assert "elmo index build" in message
    assert "elmo serve --index" in message
    assert without_index.get_json("/layer_weights") == {"layer_weights": []}


def test_the_page_is_served_while_the_model_is_loaded(start_service):
    starting = start_service(None)
    assert starting.request("/")[0] == 200
    for path, body in [("/layer_weights", None), ("/search", {"query": "a"})]:
        status, headers, _ = starting.request(path, body)
        assert (status, headers["Retry-After"]) == (503, "1")
