"""Every word has its probability, whatever stands beside it and however it is read."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import elmokit
from elmokit.inference_session import InferenceSession
from elmokit.scoring import Scorer, score
from random_models import make_folder, make_pair

SHAPES = {
    "published": {},
    "one layer": {"n_layers": 1},
    "three layers": {"n_layers": 3},
    "no skip": {"skip": False},
    "no projection": {"dim": 6, "projection_dim": 6},
    "words": {"characters": False},
    "forward only": {"directions": 1},
}
SENTENCES = [
    ["word0", "word1", "cat", "word5", "."],
    [],
    ["数学", "<UNK>", "word2"],
    ["word4"],
    ["word3", "a" * 100, "word3", "word3", "word1", "</S>", "<S>"],
]
WORDS = ["word0", "word1", "word2", "cat", "é", "<S>"]


def scores_of(model, sentences, **settings):
    return [*score(Scorer(model.session), sentences, **settings)]


def agree(found, expected, atol=2e-5):
    for one, other in zip(found, expected, strict=True):
        for name, numbers in zip(("forward", "backward"), other, strict=False):
            np.testing.assert_allclose(getattr(one, name), numbers, rtol=0, atol=atol)


def same(found, others, atol=4e-6):
    agree(
        found,
        [[n for n in (o.forward, o.backward) if n is not None] for o in others],
        atol=atol,
    )


@pytest.mark.parametrize("name", SHAPES)
def test_the_second_opinion_agrees(name, tmp_path):
    folder, reference = make_pair(tmp_path, **SHAPES[name])
    model = elmokit.load(folder)
    agree(model.score(SENTENCES), reference.scores(SENTENCES))
    carrying = elmokit.load(folder, state="carry", tokens_per_batch=4)
    agree(carrying.score(SENTENCES), reference.scores(SENTENCES, carry=True))
    streams = scores_of(model, SENTENCES, state="carry", streams=2)
    halves = SENTENCES[:2], SENTENCES[2:]  # 7 predictions and 14: half of them is 10
    agree(streams, [scores for half in halves for scores in reference.scores(half, carry=True)])


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return make_folder(tmp_path_factory.mktemp("model"), softmax_words=9, size=1.5)


@pytest.fixture(scope="module")
def model(folder):
    return elmokit.load(folder)


@given(st.lists(st.lists(st.sampled_from(WORDS), max_size=9), min_size=1, max_size=6), st.data())
def test_order_and_batch_size_change_nothing(model, sentences, data):
    expected = [model.score([sentence])[0] for sentence in sentences]
    size = data.draw(st.integers(1, 40))
    same(scores_of(model, sentences, tokens_per_batch=size), expected)
    order = data.draw(st.permutations(range(len(sentences))))
    shuffled = model.score([sentences[place] for place in order])
    same(shuffled, [expected[place] for place in order])


@given(
    st.lists(st.lists(st.sampled_from(WORDS), max_size=9), min_size=1, max_size=6),
    st.integers(1, 40),
    st.integers(1, 8),
)
def test_running_text_is_cut_anywhere_with_the_same_result(model, sentences, size, streams):
    whole = scores_of(model, sentences, state="carry", streams=streams)
    same(scores_of(model, sentences, state="carry", streams=streams, tokens_per_batch=size), whole)
    for found, sentence in zip(whole, sentences, strict=True):
        assert found.words == tuple(sentence)
        assert len(found.forward) == len(found.backward) == len(sentence) + 1


def test_a_small_file_is_one_stream_and_a_large_one_several(model, monkeypatch):
    sentences = [["word1", "word2"]] * 12
    same(
        scores_of(model, sentences, state="carry"),
        scores_of(model, sentences, state="carry", streams=1),
    )
    monkeypatch.setattr("elmokit.scoring._PREDICTIONS_PER_STREAM", 9)
    found = scores_of(model, sentences, state="carry")
    same(found, scores_of(model, sentences, state="carry", streams=4))
    same([found[3]], [found[0]])  # a stream begins afresh


def test_the_probabilities_of_all_words_make_one(model):
    total = sum(np.exp(model.score([["word1", f"word{k}"]])[0].forward[1]) for k in range(6))
    total += np.exp(model.score([["word1", "cat"]])[0].forward[1])  # <UNK>
    total += np.exp(model.score([["word1", "<S>"]])[0].forward[1])
    total += np.exp(model.score([["word1"]])[0].forward[1])  # </S>
    assert total == pytest.approx(1, abs=1e-6)


def test_every_word_counts_once(model):
    found = model.perplexity(SENTENCES)
    assert found.words == sum(map(len, SENTENCES))
    assert found.predictions == found.words + len(SENTENCES)
    assert found.unknown == 5
    scores = model.score(SENTENCES)
    losses = [-np.concatenate([getattr(s, way) for s in scores]) for way in ("forward", "backward")]
    assert [len(loss) for loss in losses] == [found.predictions] * 2
    assert found.forward == pytest.approx(np.exp(losses[0].mean()))
    assert found.backward == pytest.approx(np.exp(losses[1].mean()))
    assert found.average == pytest.approx((found.forward + found.backward) / 2)
    assert found.geometric_mean == pytest.approx(np.exp(np.mean(losses)))
    one = scores[0]
    assert one.log_probability == pytest.approx((one.forward.sum() + one.backward.sum()) / 2)
    assert one.perplexity == pytest.approx(model.perplexity([SENTENCES[0]]).geometric_mean)


def test_raw_text_is_split_as_the_model_says(model):
    found = model.score(["word1 (word2). Word3!", ["word1"]])
    assert [s.words for s in found] == [
        ("word1", "(", "word2", ")", "."),
        ("Word3", "!"),
        ("word1",),
    ]


def test_scores_are_lazy(folder):
    model = elmokit.load(folder, tokens_per_batch=64)
    taken = []

    def sentences():
        for number in range(10**9):
            taken.append(number)
            yield ["word1"] * 9

    next(model.score_stream(sentences()))
    assert len(taken) < 100


def test_a_warm_start_is_another_start(folder, model):
    warm = elmokit.load(folder, state="warm")
    assert warm.perplexity(SENTENCES).forward != pytest.approx(model.perplexity(SENTENCES).forward)


def test_one_direction_has_one_perplexity(tmp_path):
    model = elmokit.load(make_folder(tmp_path, softmax_words=9, directions=1))
    found = model.perplexity(SENTENCES)
    assert found.backward is None
    assert found.forward == pytest.approx(found.average) == pytest.approx(found.geometric_mean)
    assert model.score(SENTENCES)[0].backward is None
    assert model.score([["word1"]])[0].perplexity == pytest.approx(
        model.perplexity([["word1"]]).forward
    )


@pytest.mark.parametrize("state", ["zero", "carry"])
def test_a_model_in_training_goes_on_as_if_nobody_had_asked(folder, state):
    pretrained = elmokit.load(folder).pretrained
    pretrained.model.train()
    pretrained.model.bilm.encoder.eval()  # a part that is frozen stays so
    modes = [module.training for module in pretrained.model.modules()]
    torch.manual_seed(3)
    before = torch.get_rng_state()
    first = elmokit.perplexity(pretrained, SENTENCES, state=state, streams=None)
    assert torch.equal(torch.get_rng_state(), before)
    assert [module.training for module in pretrained.model.modules()] == modes
    assert all(p.grad is None and p.requires_grad for p in pretrained.model.parameters())
    assert elmokit.perplexity(pretrained, SENTENCES, state=state) == first
    with torch.no_grad():
        pretrained.model.softmax.bias += torch.arange(9.0)
    assert elmokit.perplexity(pretrained, SENTENCES, state=state) != first
    with pytest.raises(elmokit.InputError):
        elmokit.perplexity(pretrained, [])
    assert [module.training for module in pretrained.model.modules()] == modes


def test_weights_that_change_are_noticed(folder):
    model = elmokit.load(folder)
    before = model.perplexity(SENTENCES)
    with torch.no_grad():
        for parameter in model.bilm.parameters():
            parameter.mul_(0.5)
    assert model.perplexity(SENTENCES) != before
    assert model.perplexity(SENTENCES) == elmokit.perplexity(model.pretrained, SENTENCES)


def test_a_large_softmax_is_worked_out_in_parts(folder, model, monkeypatch):
    whole = model.score(SENTENCES)
    monkeypatch.setattr("elmokit.model.softmax._LOGITS_PER_BLOCK", 0)
    monkeypatch.setattr("elmokit.model.softmax._MIN_ROWS_PER_BLOCK", 3)
    same(model.score(SENTENCES), whole)


def test_what_cannot_be_asked_is_said(folder, model, model_folder, tmp_path):
    with pytest.raises(elmokit.InputError, match="the model has no softmax, so it has vectors but"):
        elmokit.load(model_folder).perplexity(SENTENCES)
    with pytest.raises(elmokit.InputError, match="no sentences were given"):
        model.perplexity([])
    with pytest.raises(TypeError, match="texts is one string"):
        model.perplexity("word1")
    with pytest.raises(elmokit.InputError, match="state is 'warm', expected 'zero' or 'carry'"):
        elmokit.perplexity(model.pretrained, SENTENCES, state="warm")
    with pytest.raises(elmokit.InputError, match="tokens_per_batch is 0"):
        elmokit.perplexity(model.pretrained, SENTENCES, tokens_per_batch=0)
    with pytest.raises(elmokit.InputError, match="streams is 0"):
        elmokit.perplexity(model.pretrained, SENTENCES, state="carry", streams=0)
    (folder_without := tmp_path / "without").mkdir()
    for name in ("options.json", "weights.hdf5"):
        (folder_without / name).write_bytes((folder / name).read_bytes())
    with pytest.raises(elmokit.InputError, match="a softmax, but no vocabulary"):
        elmokit.load(folder_without).perplexity(SENTENCES)


def test_a_vocabulary_without_marks_is_refused_by_what_it_lacks(model):
    lm = model.pretrained.model
    words = [f"word{k}" for k in range(7)]
    without = elmokit.Pretrained(lm, type(model.pretrained.vocabulary)(["<S>", "</S>", *words]))
    assert elmokit.perplexity(without, [["word1"]]).unknown == 0
    with pytest.raises(elmokit.InputError, match="'cat' is not in the vocabulary, which has no <U"):
        elmokit.perplexity(without, [["word1", "cat"]])
    without = elmokit.Pretrained(lm, type(model.pretrained.vocabulary)(["<S>", "<UNK>", *words]))
    with pytest.raises(elmokit.InputError, match="the vocabulary has no </S>"):
        Scorer(InferenceSession(without))


def test_a_perplexity_beyond_all_numbers_is_infinite():
    assert elmokit.Score(("a",), 0, np.array([-2e3, 0.0]), None).perplexity == np.inf
