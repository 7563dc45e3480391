"""Sentence heads: weighted means of features that do not depend on padding."""

import pytest
import torch

from elmokit.errors import ConfigError
from elmokit.model.sentence_head import HeadInput, SentenceHead, SentenceHeadConfig

FULL = SentenceHeadConfig(
    context_free_size=5,
    projection_size=4,
    attention=True,
    context_layers=(1,),
    context_size=6,
    num_signs=3,
    table_words=7,
    table_codes=2,
    table_code_size=2,
    hidden_size=3,
)


@pytest.fixture
def head():
    head = SentenceHead(FULL)
    with torch.no_grad():
        for parameter in head.parameters():
            parameter.normal_()
        head.codes.random_(256)
    return head


def make_input(*, words, texts=1):
    return HeadInput(
        torch.randn(texts, words, 5),
        torch.randn(texts, words, 6),
        torch.randn(texts, words, 3).sign(),
        torch.randint(-1, 7, (texts, words)),
        torch.rand(texts, words) + 0.1,
    )


def test_a_text_has_the_vector_of_its_equation(head):
    text = make_input(words=3)
    codebooks, codes = head.codebooks, head.codes.long()
    table = torch.stack(
        [
            torch.zeros(4)
            if row < 0
            else torch.cat([codebooks[0, codes[row, 0]], codebooks[1, codes[row, 1]]])
            for row in text.rows[0].tolist()
        ]
    )
    features = torch.cat([text.context_free[0], text.signs[0], table], 1)
    scores = torch.cat([features, text.context[0]], 1) @ head.attention
    weights = text.idf_weights[0] * scores.exp()
    weights = weights / weights.sum()
    mean = (weights[:, None] * features).sum(0)
    hidden = (features @ head.hidden.weight.T + head.hidden.bias).clamp(min=0)
    expected = torch.cat(
        [
            head.projection.weight @ mean + head.projection.bias,
            head.output.weight @ (weights[:, None] * hidden).sum(0),
        ]
    )
    torch.testing.assert_close(head(text)[0], expected)
    assert FULL.output_size == len(expected)


def test_padding_changes_nothing(head):
    texts = [make_input(words=words) for words in (1, 4, 2)]
    padded = HeadInput.pad(texts)
    assert padded.context_free.shape == (3, 4, 5)
    torch.testing.assert_close(head(padded), torch.cat([head(text) for text in texts]))


def test_without_attention_the_idf_weights_decide():
    head = SentenceHead(SentenceHeadConfig(context_free_size=5, projection_size=5))
    with torch.no_grad():
        head.projection.weight.copy_(torch.eye(5))
        head.projection.bias.zero_()
    text = make_input(words=3)
    weights = text.idf_weights[0] / text.idf_weights.sum()
    text = HeadInput(text.context_free, None, text.signs[..., :0], text.rows, text.idf_weights)
    torch.testing.assert_close(head(text)[0], weights @ text.context_free[0])


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"projection_size": 0}, "projection_size is 0, expected 1 to"),
        ({"hidden_size": -1}, "hidden_size is -1, expected 0 to"),
        ({"table_words": 3}, "expected all or none"),
        ({"context_free_size": 2**10, "projection_size": 2**20}, "need .* numbers, expected"),
        ({"context_layers": (1,), "context_size": 4}, "expected attention"),
        ({"attention": True, "context_layers": (1,)}, "expected both or neither"),
    ],
)
def test_sizes_that_do_not_fit_together_are_refused(fields, message):
    with pytest.raises(ConfigError, match=message):
        SentenceHeadConfig(**{"context_free_size": 4, "projection_size": 4, **fields})
