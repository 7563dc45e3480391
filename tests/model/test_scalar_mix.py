import numpy as np
import pytest
import torch

from elmokit.errors import ConfigError
from elmokit.model.scalar_mix import ScalarMix

MASK = torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0], [1, 0, 0, 0]], dtype=torch.bool)


def test_the_mix_follows_the_equation_of_the_paper():
    layers = torch.randn(3, 2, 5, 7)
    mix = ScalarMix(3, weights=[0.1, 0.3, 0.5], scale=1.1)
    shares = np.exp([0.1, 0.3, 0.5]) / np.exp([0.1, 0.3, 0.5]).sum()
    expected = 1.1 * np.tensordot(shares, layers.numpy(), 1)
    actual = mix(layers, torch.ones(2, 5, dtype=torch.bool))
    np.testing.assert_allclose(actual.detach(), expected, atol=1e-6)
    np.testing.assert_allclose(mix.layer_weights.detach(), shares, atol=1e-6)


def test_the_initial_mix_is_the_mean():
    layers = torch.randn(3, 2, 5, 7)
    torch.testing.assert_close(ScalarMix(3)(layers, torch.ones(2, 5)), layers.mean(0))


@pytest.mark.parametrize("normalize", ["bilm-tf", "allennlp"])
def test_bilm_tf_and_allennlp_normalise_over_the_batch(normalize):
    layers = torch.randn(3, 3, 4, 6) * 3 + 1
    mix = ScalarMix(3, weights=[0.2, 0.4, 0.6], scale=0.88, normalize=normalize)
    normal = []
    for layer in layers.double().numpy():
        seen = layer[MASK.numpy()]
        normal.append((layer - seen.mean()) / np.sqrt(seen.var() + 1e-12))
    shares = mix.layer_weights.detach().double().numpy()
    expected = 0.88 * np.tensordot(shares, np.stack(normal), 1)
    np.testing.assert_allclose(mix(layers, MASK).detach(), expected, atol=2e-6)


def test_normalising_per_token_does_not_depend_on_the_batch():
    layers = torch.randn(2, 3, 4, 6) * 3 + 1
    mix = ScalarMix(2, normalize="token")
    alone = mix(layers[:, 1:2, 2:3], MASK[1:2, 2:3])
    torch.testing.assert_close(mix(layers, MASK)[1:2, 2:3], alone)
    one = ScalarMix(1, normalize="token")(layers[:1], MASK)
    torch.testing.assert_close(one.mean(2), torch.zeros(3, 4), atol=1e-6, rtol=0)
    torch.testing.assert_close(one.var(2, unbiased=False), torch.ones(3, 4), atol=1e-4, rtol=0)


def test_the_penalty_leaves_out_the_scale():
    mix = ScalarMix(3, weights=[1.0, 2.0, 3.0], scale=5.0, l2=0.01)
    mix.penalty().backward()
    assert mix.penalty().item() == pytest.approx(0.14)
    torch.testing.assert_close(mix.weights.grad, torch.tensor([0.02, 0.04, 0.06]))
    assert mix.scale.grad is None


def test_fixed_weights_are_not_trained():
    mix = ScalarMix(2, weights=[1.0, 0.0], trainable=False)
    assert not any(parameter.requires_grad for parameter in mix.parameters())


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ScalarMix(3, weights=[1.0]), "1 weights for 3 layers"),
        (lambda: ScalarMix(3, normalize="batch"), "normalize is 'batch'"),
        (lambda: ScalarMix(3, l2=-1.0), "l2 is -1.0"),
        (lambda: ScalarMix(3)(torch.zeros(2, 1, 1, 4), MASK), "2 layers were given to a mix of 3"),
    ],
)
def test_impossible_mixes_are_refused(make, message):
    with pytest.raises(ConfigError, match=message):
        make()
