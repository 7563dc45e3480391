import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from elmokit.tasks.bilstm import BiLSTMEncoder, variational_dropout

LENGTHS = torch.tensor([7, 1, 4, 7, 2])


def padded_batch(dim):
    vectors = torch.randn(len(LENGTHS), 7, dim, requires_grad=True)
    return vectors, torch.arange(7) < LENGTHS[:, None]


def test_both_directions_agree_with_a_packed_lstm():
    """Values and gradients, at two layers, whatever stands at the padding."""
    encoder, packed = (
        BiLSTMEncoder(5, 3, num_layers=2),
        nn.LSTM(5, 3, 2, batch_first=True, bidirectional=True),
    )
    weights = packed.state_dict()
    for layer in range(2):
        for lstm, ending in (
            (encoder.forward_lstms[layer], ""),
            (encoder.backward_lstms[layer], "_reverse"),
        ):
            lstm.load_state_dict(
                {name: weights[f"{name[:-1]}{layer}{ending}"] for name in lstm.state_dict()}
            )
    vectors, mask = padded_batch(5)
    packed_vectors = pack_padded_sequence(vectors, LENGTHS, batch_first=True, enforce_sorted=False)
    expected, _ = pad_packed_sequence(packed(packed_vectors)[0], batch_first=True)
    output = encoder(vectors, mask)
    torch.testing.assert_close(output, expected)
    weight = torch.randn_like(output)
    (expected_gradient,) = torch.autograd.grad((expected * weight).sum(), vectors)
    (gradient,) = torch.autograd.grad((output * weight).sum(), vectors)
    torch.testing.assert_close(gradient, expected_gradient)
    filled_padding = torch.where(mask[..., None], vectors, torch.full_like(vectors, 9.0))
    torch.testing.assert_close(encoder(filled_padding, mask), output)


def test_all_words_of_a_sentence_share_a_dropout_mask():
    torch.manual_seed(0)
    vectors = torch.ones(2, 3, 400)
    dropped = variational_dropout(vectors, 0.25, True)
    assert torch.equal(dropped, dropped[:, :1].expand(-1, 3, -1))
    assert not torch.equal(dropped[0], dropped[1])
    assert set(dropped.unique().tolist()) == {0.0, torch.tensor(1 / 0.75).item()}
    assert abs((dropped == 0).float().mean().item() - 0.25) < 0.08
    assert variational_dropout(vectors, 0.25, False) is vectors
