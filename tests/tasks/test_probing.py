"""Linear probes measure what each layer contains."""

import pytest
import torch

from elmokit.errors import InputError
from elmokit.tasks import probing
from elmokit.tasks.datasets.example_records import TaggedSentence
from elmokit.tasks.probing import fit_linear, probe_layers


def test_a_linear_map_is_learned():
    features = torch.randn(2000, 6)
    labels = (features @ torch.randn(6, 3)).argmax(1)
    weight, bias = fit_linear(features, labels, 3)
    predicted = (features @ weight.t() + bias).argmax(1)
    assert (predicted == labels).double().mean() > 0.9


@pytest.fixture
def few_updates(monkeypatch):
    """Fewer and larger updates, enough for a few words."""
    monkeypatch.setattr(probing, "_MIN_UPDATES", 150)
    monkeypatch.setattr(probing, "_LEARNING_RATE", 0.02)


@pytest.mark.usefixtures("few_updates")
def test_tags_of_words_are_in_layer_0_and_those_of_contexts_above(model):
    words = ["cat", "dog", "owl", "fox", "bee", "ant"]
    by_word, by_neighbour = [], []
    for first in words:
        for second in words:
            low = ["low" if word < "d" else "high" for word in (first, second)]
            by_word.append(TaggedSentence((first, second), tuple(low)))
            by_neighbour.append(TaggedSentence((first, second), ("first", low[0])))
    examples = by_word * 20
    assert probe_layers(model, examples, examples)[0] > 0.95
    examples = by_neighbour * 20
    layer_0, layer_1, _ = probe_layers(model, examples, examples)
    assert layer_0 < 0.85 < layer_1


@pytest.mark.usefixtures("few_updates")
def test_a_tag_without_training_examples_is_never_predicted(model):
    known = [TaggedSentence(("a", "b"), ("A", "B"))] * 4
    unseen = TaggedSentence(("a",) * 9, ("C",) * 9)
    assert max(probe_layers(model, known, [unseen, *known[:1]])) <= 2 / 11
    with pytest.raises(InputError, match="no tag of the dev examples is in training"):
        probe_layers(model, known, [unseen])
    (example,) = known[:1]
    assert (
        probe_layers(model, [TaggedSentence(("a",), ("A",))], [example]) == [0.5] * 3
    )  # one training word is enough
    with pytest.raises(InputError, match="a probe needs examples"):
        probe_layers(model, known, [])
