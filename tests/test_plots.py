"""Plots: their text and bytes, training logs, and files for TensorBoard's projector."""

import json
import re
import sys
from pathlib import Path

import numpy as np
import pytest
from sklearn.decomposition import PCA

from elmokit.errors import FormatError, InputError
from elmokit.plots import (
    LayerWeights,
    compare_words,
    plot_contexts,
    plot_layer_weights,
    plot_similarity,
    plot_training,
    project_pca,
    project_tsne,
    read_training_log,
    write_projector,
)
from elmokit.word_occurrences import embed_occurrences, find_occurrences

LINES = ["He played a $ 5 violin .", "", "Plays are long .", "我们 去 银行 play"]
LABELLED = ["music\tHe will play .", "theatre\tThe play 银行 ended .", "music\tThey play on ."]


def find(word, lines, **options):
    return find_occurrences(
        word, lines, name="lines", tokenize=lambda text: [text.split()], **options
    )


@pytest.fixture
def labelled(model):
    """Labelled occurrences of a word, and their vectors."""
    occurrences = find("play", LABELLED)
    return occurrences, embed_occurrences(model, occurrences)


def test_a_plot_of_contexts_has_its_text_and_the_same_bytes_again(labelled, tmp_path):
    path = tmp_path / "contexts.svg"
    groups = plot_contexts(path, *labelled, layers=[0, 2])
    assert groups.names == ["music", "theatre"]
    svg = path.read_text("utf-8")
    for text in (
        "layer 0",
        "layer 2",
        "music",
        "theatre",
        "银行",
        "% of variance",
        "3 occurrences of play",
    ):
        assert text in svg
    assert "layer 1" not in svg
    assert "dc:date" not in svg
    plot_contexts(tmp_path / "again.svg", *labelled, layers=[0, 2])
    assert (tmp_path / "again.svg").read_bytes() == path.read_bytes()


def test_occurrences_without_labels_are_coloured_by_cluster(model, tmp_path):
    occurrences = find("play", LINES, prefix=True)
    vectors = embed_occurrences(model, occurrences)
    groups = plot_contexts(tmp_path / "a.png", occurrences, vectors, layers=[1], clusters=9)
    assert groups.names == ["cluster 1", "cluster 2", "cluster 3"]
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    plot_contexts(tmp_path / "b.png", occurrences, vectors, layers=[1], clusters=9)
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()


def test_the_projector_gets_a_line_for_each_occurrence(labelled, tmp_path):
    groups = plot_contexts(tmp_path / "contexts.svg", *labelled, layers=[2])
    write_projector(tmp_path / "projector", labelled[0], labelled[1][2], groups)
    vectors = np.loadtxt(tmp_path / "projector" / "vectors.tsv", delimiter="\t")
    np.testing.assert_allclose(vectors, labelled[1][2], rtol=1e-5)
    metadata = (tmp_path / "projector" / "metadata.tsv").read_text("utf-8").splitlines()
    assert metadata[0] == "word\tgroup\tsentence"
    assert metadata[2] == "play\ttheatre\tThe play 银行 ended ."
    assert len(metadata) == 4


def test_the_config_of_the_projector_names_its_files(labelled, tmp_path):
    groups = plot_contexts(tmp_path / "contexts.svg", *labelled, layers=[2])
    write_projector(tmp_path / "projector", labelled[0], labelled[1][2], groups)
    config = (tmp_path / "projector" / "projector_config.pbtxt").read_text()
    named = dict(re.findall(r'^  ([a-z_]+): "(.*)"$', config, re.MULTILINE))
    assert named == {"tensor_path": "vectors.tsv", "metadata_path": "metadata.tsv"}
    assert config.startswith("embeddings {\n")
    assert config.endswith("\n}\n")
    files = {path.name for path in (tmp_path / "projector").iterdir()}
    assert files == {*named.values(), "projector_config.pbtxt"}


def test_one_occurrence_a_wrong_extension_or_no_matplotlib_is_refused(
    labelled, tmp_path, monkeypatch
):
    with pytest.raises(InputError, match="occurs only once"):
        plot_contexts(tmp_path / "a.svg", labelled[0][:1], labelled[1][:, :1], layers=[0])
    with pytest.raises(InputError, match=r"a.pdf: expected a file that ends in .svg or .png"):
        plot_contexts(tmp_path / "a.pdf", *labelled, layers=[0])
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(InputError, match=r"pip install 'elmokit\[plot\]'"):
        plot_contexts(tmp_path / "a.svg", *labelled, layers=[0])
    assert not [*tmp_path.iterdir()]


def test_words_are_compared_by_their_cosines(model, tmp_path):
    first, second = ["He", "$", "sat"], ["银行", "sat"]
    cosines = compare_words(model, first, second)
    one, other = model.embed([first, second])
    a, b = one[2, 0], other[2, 1]
    assert cosines.shape == (3, 3, 2)
    assert cosines[2, 0, 1] == pytest.approx(
        a @ b / np.linalg.norm(a) / np.linalg.norm(b), abs=1e-5
    )
    assert cosines[0, 2, 1] == pytest.approx(1, abs=1e-6)  # one word has one context-free vector
    plot_similarity(tmp_path / "s.svg", first, second, cosines, layers=[0, 1, 2])
    svg = (tmp_path / "s.svg").read_text("utf-8")
    for text in ("银行", ">$<", "1.00", "layer 2", "cosine"):
        assert text in svg
    with pytest.raises(InputError, match="no word"):
        compare_words(model, [], second)


def test_layer_weights_of_several_heads_are_in_one_grid(tmp_path, monkeypatch):
    (tmp_path / "srl").mkdir()
    monkeypatch.chdir(tmp_path / "srl")
    mixes = [
        LayerWeights(Path("a/ner"), "input", (0, 1, 2), (0.2, 0.5, 0.3)),
        LayerWeights(Path("."), "output", (1, 2), (0.4, 0.6)),
    ]
    plot_layer_weights(tmp_path / "mix.svg", mixes)
    svg = (tmp_path / "mix.svg").read_text("utf-8")
    for text in ("ner, input", "srl, output", "layer 0", "layer 2"):
        assert text in svg
    with pytest.raises(InputError, match="none of the folders has layer weights"):
        plot_layer_weights(tmp_path / "mix.svg", [])


PERPLEXITY = {"words": 5, "forward": 30.0, "backward": None, "both": 31.0}
LOG = [
    {"update": 10, "epoch": 0.1, "sampled_loss": {"forward": 5.0, "backward": 6.0}},
    {"update": 10, "perplexity": {"zero": PERPLEXITY, "carry": PERPLEXITY}},
    {"update": 20, "epoch": 0.2, "sampled_loss": {"forward": 4.0, "backward": 5.0}},
]


def test_the_log_of_a_pretraining_run_is_plotted(tmp_path):
    lines = "".join(json.dumps(line) + "\n" for line in LOG)
    (tmp_path / "log.jsonl").write_text(lines + '{"update": 30, "lo')  # being written
    loss, perplexity = read_training_log(tmp_path)
    assert (loss.measure, loss.step) == ("sampled loss", "update")
    assert loss.points == {"forward": [(10, 5), (20, 4)], "backward": [(10, 6), (20, 5)]}
    assert perplexity.points == {"forward, zero": [(10, 30)], "forward, carry": [(10, 30)]}
    perplexity.points["forward, zero"].append((20, 3000))
    plot_training(tmp_path / "curve.svg", [loss, perplexity])
    svg = (tmp_path / "curve.svg").read_text("utf-8")
    for text in ("sampled loss", "perplexity", "forward, zero", "update", ">1,000<", ">200<"):
        assert text in svg
    assert "mathdefault" not in svg  # formulas are not drawn: a word may be a dollar sign


def test_the_log_of_a_task_is_plotted(tmp_path):
    line = {"epoch": 1, "loss": 2.5, "scores": {"f1": 0.5, "precision": 0.4}, "seconds": 3}
    (tmp_path / "log.jsonl").write_text(json.dumps(line) + "\n")
    loss, scores = read_training_log(tmp_path / "log.jsonl")
    assert loss.points == {"": [(1, 2.5)]}
    assert scores.points == {"f1": [(1, 0.5)], "precision": [(1, 0.4)]}
    plot_training(tmp_path / "curve.svg", [loss, scores])
    assert "precision" in (tmp_path / "curve.svg").read_text("utf-8")


def test_a_missing_empty_or_damaged_log_is_reported(tmp_path):
    with pytest.raises(InputError, match="no such file; name the folder"):
        read_training_log(tmp_path)
    (tmp_path / "log.jsonl").write_text("")
    with pytest.raises(InputError, match="nothing has been logged yet"):
        read_training_log(tmp_path)
    for bad in ('{"update": 1', "[1]", '{"update": "x"}', "{}", '{"update": 1, "loss": "high"}'):
        (tmp_path / "log.jsonl").write_text(json.dumps(LOG[0]) + "\n" + bad + "\n")
        with pytest.raises(FormatError, match="line 2: not a line of a training log"):
            read_training_log(tmp_path)


def random_vectors(rows, dim=7, seed=0):
    spread = np.linspace(1, 4, dim)
    return (np.random.default_rng(seed).standard_normal((rows, dim)) * spread).astype(np.float32)


@pytest.mark.parametrize("rows", [3, 7, 40])
def test_pca_agrees_with_scikit_learn(rows):
    vectors = random_vectors(rows)
    projection, expected = project_pca(vectors), PCA(2, svd_solver="full")
    points = expected.fit_transform(vectors.astype(np.float64))
    signs = np.sign((projection.points * points).sum(0))
    np.testing.assert_allclose(projection.points * signs, points, atol=1e-9)
    np.testing.assert_allclose(
        projection.explained_variance, expected.explained_variance_ratio_, atol=1e-12
    )


def test_the_signs_of_pca_do_not_depend_on_the_order_of_rows():
    vectors = random_vectors(12)
    of_reversed = project_pca(vectors[::-1]).points[::-1]
    np.testing.assert_allclose(project_pca(vectors).points, of_reversed, atol=1e-9)


def test_identical_vectors_are_one_point():
    projection = project_pca(np.ones((4, 5), np.float32))
    assert projection.explained_variance == (0, 0)
    assert not projection.points.any()
    assert not project_tsne(np.ones((6, 5), np.float32)).points.any()


def test_two_vectors_need_one_direction():
    projection = project_pca(random_vectors(2))
    assert projection.explained_variance == pytest.approx((1, 0))
    assert projection.points.shape == (2, 2)


def test_tsne_keeps_groups_apart_and_is_deterministic():
    vectors = random_vectors(30)
    vectors[:15] += 60
    points = project_tsne(vectors, seed=3).points
    np.testing.assert_array_equal(points, project_tsne(vectors, seed=3).points)
    near = np.linalg.norm(points[:15] - points[:15].mean(0), axis=1).max()
    assert np.linalg.norm(points[:15].mean(0) - points[15:].mean(0)) > 2 * near


def test_tsne_of_few_vectors_or_without_opentsne_is_refused(monkeypatch):
    with pytest.raises(InputError, match="five vectors or more, found 4"):
        project_tsne(random_vectors(4))
    monkeypatch.setitem(sys.modules, "openTSNE", None)
    with pytest.raises(InputError, match=r"pip install 'elmokit\[tsne\]'"):
        project_tsne(random_vectors(9))
