"""benchmarks/english/sentence_heads.py: its word table, its folds, and the head that it saves."""

import numpy as np
import pytest
import torch

import elmokit
from elmokit.pooling import unit_vectors

pytestmark = pytest.mark.full

TEXTS = [
    "A man plays a guitar.",
    "A man is playing an instrument. He smiles.",
    "Stocks fell on Monday!",
    "Shares lost ground.",
    "A dog runs.",
    "...",
]


@pytest.fixture(scope="module")
def heads(script):
    pytest.importorskip("numba", reason="needs elmokit[fast]")
    return script("english.sentence_heads")


def test_words_with_the_same_neighbours_have_close_vectors(heads, tmp_path, monkeypatch):
    monkeypatch.setattr(heads, "CONTEXT_WORDS", 40)
    random = np.random.default_rng(0)
    groups = [[f"{letter}{n}" for n in range(10)] for letter in "abcd"]
    lines = [" ".join(random.permutation(random.choice(groups, 1)[0])[:5]) for _ in range(600)]
    (tmp_path / "text.txt").write_text("\n\n".join(lines))
    words = {word: n for n, word in enumerate(w for group in groups for w in group)}
    table = heads.word_table([tmp_path / "text.txt"], words, 4)
    cosines = table @ table.T
    same = np.equal.outer(np.arange(40) // 10, np.arange(40) // 10)
    assert cosines[same].min() > 0.9
    assert cosines[~same].max() < 0.5


def test_quantization_keeps_vectors_close(heads):
    random = np.random.default_rng(0)
    table = unit_vectors(random.standard_normal((2000, heads.TABLE_CODES * heads.CODE_SIZE)))
    codebooks, codes = heads.quantize(table)
    restored = codebooks[np.arange(heads.TABLE_CODES), codes].reshape(table.shape)
    assert ((unit_vectors(restored) * table).sum(1) > 0.95).all()
    np.testing.assert_array_equal(codebooks, codebooks.astype(np.float16))


def test_no_text_is_in_two_folds(heads):
    texts = np.random.default_rng(0).integers(0, 300, (150, 2))
    folds = heads.folds_without_common_texts(texts, 3)
    sets = [{*texts[folds == fold].ravel().tolist()} for fold in range(3)]
    assert not sets[0] & sets[1]
    assert not sets[1] & sets[2]
    assert not sets[0] & sets[2]


@pytest.fixture(scope="module")
def trained(heads):
    """The English model, and a head with weights as training leaves them."""
    model = elmokit.load()
    random = np.random.default_rng(0)
    table = random.standard_normal((3000, heads.TABLE_CODES * heads.CODE_SIZE))
    codebooks, codes = heads.quantize(unit_vectors(table.astype(np.float32)), rounds=1)
    features = heads.Features(model, TEXTS, range(len(TEXTS)), codebooks, codes)
    head = heads.WhitenedHead(features)
    torch.manual_seed(0)
    pairs = np.array([[0, 1], [2, 3], [0, 2], [1, 4]] * 64)
    scores = np.array([0.8, 0.9, 0.0, 0.1] * 64, np.float32)
    heads.train_regression(head, pairs, scores, epochs=8, rate=0.01)
    return model, head.eval()


def test_the_saved_head_gives_the_cosines_of_the_trained_one(heads, trained):
    model, head = trained
    assert head.attention.abs().sum() > 0
    assert head.context_attention.abs().sum() > 0
    with torch.no_grad():
        expected = unit_vectors(head(np.arange(len(TEXTS))).numpy())
    model.add_head("sentence", head.fold())
    found = model.encode(TEXTS, pooling="sentence", normalize_embeddings=True)
    np.testing.assert_allclose(found @ found.T, expected @ expected.T, atol=0.01)


def test_training_makes_cosines_follow_scores(heads, trained):
    _, head = trained
    near, far = heads.cosines(head, np.array([[2, 3], [0, 2]]))
    assert near > far + 0.2
