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
from elmokit.pca_tsne import project_pca
from elmokit.plots import compare_words
from elmokit.server.app_resources import load_tasks, read_shipped_layer_weights
from waiting import wait_until

PAGE = Path(elmokit.server.__file__).parent / "page"
TEXTS = ["A bank lent money .", "no use here", "The Bank of a river , two banks .", "my bank"]
KINDS = {".js": "text/javascript", ".css": "text/css", ".html": "text/html"}


@pytest.mark.parametrize("path", sorted(PAGE.iterdir()), ids=lambda path: path.name)
def test_page_files_have_their_type_and_are_revalidated(served, path):
    place = "/" if path.name == "index.html" else f"/page/{path.name}"
    status, headers, body = served.request(place)
    assert (status, body) == (200, path.read_bytes())
    assert headers["Content-Type"] == f"{KINDS[path.suffix]}; charset=utf-8"
    assert headers["Cache-Control"] == "no-cache"
    assert headers["Content-Security-Policy"].startswith("default-src 'self'; img-src data:;")
    assert "unsafe" not in headers["Content-Security-Policy"]
    known = {"If-None-Match": f'"other", W/{headers["ETag"]}'}
    status, again, body = served.request(place, headers=known)
    assert (status, again["ETag"], body) == (304, headers["ETag"], b"")
    status, head, body = served.request(place, method="HEAD")
    assert (status, head["ETag"], body) == (200, headers["ETag"], b"")


def test_no_other_file_is_served(served):
    for path in ["/page/", "/page", "/page/../app.py", "/page/%2e%2e/app.py", "/page/none.js"]:
        assert served.get_error(path)[0] == 404


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


def test_the_page_is_public_but_its_requests_need_the_token(serving, language_model):
    closed = serving(language_model, token="secret")
    assert closed.request("/")[0] == closed.request("/page/main.js")[0] == 200
    assert closed.get_error("/pages")[0] == closed.get_error("/layer_weights")[0] == 401
    assert closed.get_error("/contexts", {"word": "bank", "texts": TEXTS})[0] == 401
    allowed = {"Authorization": "Bearer secret"}
    assert closed.get_json("/layer_weights", headers=allowed) == {"layer_weights": []}


def test_contexts_are_at_their_pca_coordinates_up_to_sign(served, language_model):
    found = served.get_json("/contexts", {"word": " bank ", "texts": TEXTS})
    used = [(use["words"][use["position"]], use["words"][0]) for use in found["contexts"]]
    assert used == [("bank", "A"), ("Bank", "The"), ("banks", "The"), ("bank", "my")]
    assert len(found["layers"]) == language_model.num_layers
    arrays = language_model.embed([use["words"] for use in found["contexts"]])
    for layer, plane in enumerate(found["layers"]):
        places = [use["position"] for use in found["contexts"]]
        rows = [array[layer, place] for array, place in zip(arrays, places, strict=True)]
        expected = project_pca(np.stack(rows))
        np.testing.assert_allclose(np.abs(plane["points"]), np.abs(expected.points), atol=1e-5)
        shares = plane["explained_variance"]
        np.testing.assert_allclose(shares, expected.explained_variance, atol=1e-6)
    below = np.array([layer["points"] for layer in found["layers"]])
    assert ((below[:-1] * below[1:]).sum(1) >= 0).all()  # no axis turns over on the way up
    assert found["groups"] == ["cluster 1", "cluster 2"]
    assert {use["group"] for use in found["contexts"]} == {0, 1}


def test_labels_group_contexts(served):
    labels = ["money", "none", "river", "money"]
    found = served.get_json("/contexts", {"word": "bank", "texts": TEXTS, "labels": labels})
    assert found["groups"] == ["money", "river"]
    assert [use["group"] for use in found["contexts"]] == [0, 1, 1, 0]


@pytest.mark.parametrize(
    ("change", "status", "says"),
    [
        ({"word": "cat"}, 422, "'cat' does not occur in the texts; two occurrences are needed"),
        (
            {"word": "money"},
            422,
            "'money' occurs only once in the texts; two",
        ),
        ({"word": " "}, 422, "the word is empty; give one that occurs in the texts"),
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
def test_contexts_that_make_no_map_are_refused_in_one_sentence(served, change, status, says):
    found, sentence = served.get_error("/contexts", {"word": "bank", "texts": TEXTS} | change)
    assert (found, sentence[: len(says)]) == (status, says)


def test_words_of_two_texts_are_compared_in_every_layer(served, language_model):
    first, second = ["A", "bank", "lent"], ["a", "bank", "."]
    found = served.get_json("/similarity", {"first": first, "second": second})
    assert (found["first"], found["second"]) == (first, second)
    expected = compare_words(language_model, first, second)
    np.testing.assert_allclose(found["layers"], expected, atol=1e-6)
    raw = served.get_json("/similarity", {"first": "One dog . Two cats .", "second": "x"})
    assert raw["first"] == ["One", "dog", ".", "Two", "cats", "."]
    for form, refusal in [
        ({"first": "", "second": "x"}, (422, "a text has no word; give two texts")),
        ({"first": "a " * 200, "second": "b " * 100}, (413, "200 words and 100 make 20,000 pairs")),
    ]:  # fmt: skip
        status, sentence = served.get_error("/similarity", form)
        assert (status, sentence[: len(refusal[1])]) == refusal


def test_layer_weights_are_those_of_the_trained_tasks(served, task_folder):
    mixes = served.get_json("/layer_weights")["layer_weights"]
    assert [(mix["task"], mix["position"]) for mix in mixes] == [
        ("ner", "input"),
        ("ner", "output"),
    ]
    for mix in mixes:
        assert mix["name"] == task_folder.name
        assert mix["layers"] == [0, 1, 2]
        assert len(mix["weights"]) == 3
        assert sum(mix["weights"]) == pytest.approx(1)


def test_a_folder_without_a_task_is_refused(tmp_path):
    with pytest.raises(FormatError, match="expected a folder that elmo train made"):
        load_tasks([tmp_path])


def test_two_heads_of_one_name_are_refused(task_folder, tmp_path):
    copy = shutil.copytree(task_folder, tmp_path / task_folder.name)
    with pytest.raises(InputError, match=f"two trained heads would be served as {copy.name}; ren"):
        load_tasks([task_folder, copy])
    tasks, weights = load_tasks([task_folder, shutil.copytree(copy, tmp_path / "other")])
    assert set(tasks) == {task_folder.name, "other"}
    assert [mix.name for mix in weights] == [task_folder.name] * 2 + ["other"] * 2


def test_shipped_layer_weights_are_shown_only_for_their_model(
    serving, language_model, language_model_folder, model, tmp_path
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
    service = serving(language_model, layer_weights=weights)
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
    mixes = read_shipped_layer_weights(english)
    assert bool(mixes) == (ENGLISH / "layer_weights.json").exists()
    for mix in mixes:
        assert mix.position in ("input", "output")
        assert len(mix.weights) == english.num_layers
        assert sum(mix.weights) == pytest.approx(1, abs=1e-3)


def test_search_finds_the_query_and_highlights_its_content_words(served, index):
    query = "Two banks and a painter of landscapes ."
    found = served.get_json("/search", {"query": query, "k": 2})["results"]
    assert len(found) == 2
    assert found[0]["words"] == query.split()
    assert (found[0]["line"], Path(found[0]["file"]).name) == (3, "text.txt")
    assert found[0]["score"] == pytest.approx(1, abs=1e-3)
    assert found[0]["highlighted"] == [0, 1, 4, 6]  # no stop words and no punctuation
    assert found[1]["highlighted"]
    assert len(found[1]["highlighted"]) < len(found[1]["words"])
    expected = [hit.score for hit in index.search(query, k=2)]
    assert [passage["score"] for passage in found] == pytest.approx(expected, abs=1e-5)


def test_searches_are_queued_like_other_requests(served):
    forms = [{"query": "a bank"}, {"query": ""}, {"query": "money", "k": 1}]
    with ThreadPoolExecutor(3) as pool:
        with served.held():
            waiting = [pool.submit(served.request, "/search", form) for form in forms]
            wait_until(lambda: served.batcher.num_waiting == 4)
        answers = [(answer.result()[0], json.loads(answer.result()[2])) for answer in waiting]
    assert [status for status, _ in answers] == [200, 422, 200]
    assert answers[1][1] == {"error": "the query '' has no word"}
    assert len(answers[2][1]["results"]) == 1


def test_without_an_index_search_says_how_to_build_one(serving, language_model):
    bare = serving(language_model)
    status, sentence = bare.get_error("/search", {"query": "a bank"})
    assert status == 422
    assert "elmo index build" in sentence
    assert "elmo serve --index" in sentence
    assert bare.get_json("/layer_weights") == {"layer_weights": []}


def test_the_page_is_served_while_the_model_is_loaded(serving):
    starting = serving(None)
    assert starting.request("/")[0] == 200
    for path, form in [("/layer_weights", None), ("/search", {"query": "a"})]:
        status, headers, _ = starting.request(path, form)
        assert (status, headers["Retry-After"]) == (503, "1")
