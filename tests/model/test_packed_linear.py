import pytest
import torch

from elmokit.model.packed_linear import pack_linear

PRECISIONS = {"float32": 1e-6, "half": 2e-3, "int8": 0.05}


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("rows", [1, 3, 40])
@pytest.mark.parametrize("biased", [True, False])
def test_products_are_right_within_their_precision(precision, rows, biased):
    weight, bias = torch.randn(60, 25) / 5, torch.randn(60) if biased else None
    vectors = torch.randn(rows, 25)
    exact = torch.nn.functional.linear(vectors.double(), weight.double()).float()
    if bias is not None:
        exact = exact + bias
    linear = pack_linear(weight, bias, precision)
    difference = (linear(vectors) - exact).abs()
    assert difference.max() < PRECISIONS[precision] * 3
    if precision != "float32":
        assert difference.max() > 1e-6  # the precision has an effect


@pytest.mark.parametrize("precision", PRECISIONS)
def test_a_product_can_be_added_to_other_numbers(precision):
    product = pack_linear(torch.randn(12, 5), None, precision)
    rows, sums = torch.randn(3, 5), torch.randn(3, 12)
    expected = sums + product(rows)
    out = torch.empty(3, 12)
    product.add_to(sums, rows, out)
    torch.testing.assert_close(out, expected)


@pytest.mark.parametrize("precision", PRECISIONS)
def test_weights_of_zero_give_zero(precision):
    weight = torch.randn(4, 8)
    weight[1] = 0
    assert not pack_linear(weight, None, precision)(torch.randn(2, 8))[:, 1].any()


def test_in_int8_each_output_has_a_scale():
    weight = torch.randn(2, 64)
    weight[1] *= 1000
    vectors = torch.randn(10, 64)
    product = pack_linear(weight, None, "int8")(vectors)
    exact = vectors @ weight.t()
    for output in range(2):
        error = (product[:, output] - exact[:, output]).abs().max() / exact[:, output].abs().max()
        assert error < 0.05


@pytest.mark.parametrize(("outputs", "inputs"), [(4096, 128), (128, 1024), (60, 25), (6, 12)])
def test_in_float32_a_row_has_the_same_bits_in_a_batch_of_any_size(outputs, inputs):
    product = pack_linear(torch.randn(outputs, inputs), torch.randn(outputs), "float32")
    rows = torch.randn(200, inputs)
    together = product(rows)
    for start in (0, 1, 2, 5):
        for count in (1, 2, 4, 7, 31, 65, 130):
            at = slice(start, start + count)
            assert torch.equal(product(rows[at]), together[at])
