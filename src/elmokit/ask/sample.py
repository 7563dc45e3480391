"""The beginning of a sentence becomes sentences drawn from a model, word by word."""

from collections.abc import Sequence

import torch
from torch import Tensor

from elmokit.ask.oracle import END, Oracle
from elmokit.ask.predict import left_out, read_context
from elmokit.config import Direction
from elmokit.errors import InputError


def sample(
    oracle: Oracle,
    sentences: Sequence[Sequence[str]] = (),
    *,
    samples: int = 1,
    direction: Direction = "forward",
    temperature: float = 1.0,
    top_k: int | None = None,
    max_words: int = 50,
    seed: int = 0,
    carry: bool = False,
) -> list[list[str]]:
    """Sentences that begin as the last one given does (backward: that end as the first one does).

    A word is drawn from the `top_k` likeliest (all, if None), their log-probabilities divided by
    the temperature; 0 takes the likeliest. `<UNK>` is never drawn. A sentence ends with its mark or
    after `max_words` new words. The k-th sample of a seed is the same however many are drawn.
    """
    _check(samples=samples, temperature=temperature, top_k=top_k, max_words=max_words)
    oracle.check_direction(direction, f"drawing words {direction}")
    said, state = read_context(oracle, sentences, direction, carry=carry)
    reading = torch.zeros(samples, dtype=torch.long)  # which samples have not ended
    said, state = said[reading], state.rows(reading)
    reading = torch.arange(samples)
    first = torch.Generator().manual_seed(seed)
    seeds = torch.randint(2**62, (samples,), generator=first).tolist()
    dice = [torch.Generator().manual_seed(own) for own in seeds]
    drawn: list[list[str]] = [[] for _ in range(samples)]
    forbidden = left_out(oracle, direction)
    for step in range(max_words):
        chances = _chances(oracle.log_probabilities(said), forbidden, temperature, top_k)
        rows = [
            int(torch.multinomial(chance, 1, generator=dice[place]))
            for chance, place in zip(chances, reading.tolist(), strict=True)
        ]
        words = [oracle.vocabulary[row] for row in rows]
        going_on = [place for place, word in enumerate(words) if word != END[direction]]
        for place in going_on:
            drawn[int(reading[place])].append(words[place])
        if not going_on or step == max_words - 1:
            break
        kept = torch.tensor(going_on)
        said, state = oracle.read_on(
            [[words[place]] for place in going_on], state.rows(kept), direction
        )
        reading = reading[kept]
    if direction == "forward":
        begun = list(sentences[-1]) if sentences else []
        return [[*begun, *words] for words in drawn]
    begun = list(sentences[0]) if sentences else []
    return [[*reversed(words), *begun] for words in drawn]


def _chances(
    log_probabilities: Tensor, forbidden: list[int], temperature: float, top_k: int | None
) -> Tensor:  # (rows, words) -> (rows, words)
    """What each word's chance is to be drawn, on the CPU, where the dice are."""
    found = log_probabilities.double().cpu()
    found[:, forbidden] = -torch.inf
    if temperature == 0:
        return torch.zeros_like(found).scatter_(1, found.argmax(1, keepdim=True), 1.0)
    if top_k is not None and top_k < found.shape[1]:
        values, places = found.topk(top_k)
        found = torch.full_like(found, -torch.inf).scatter_(1, places, values)
    best = found.amax(1, keepdim=True)  # subtracted first: no temperature is too small then
    return ((found - best) / temperature).softmax(1)


def _check(*, samples: int, temperature: float, top_k: int | None, max_words: int) -> None:
    if samples < 1:
        raise InputError(f"samples is {samples}, expected 1 or more")
    if not 0 <= temperature < float("inf"):
        raise InputError(f"temperature is {temperature}, expected 0 or a positive number")
    if top_k is not None and top_k < 1:
        raise InputError(f"top_k is {top_k}, expected 1 or more, or None for all words")
    if max_words < 1:
        raise InputError(f"max_words is {max_words}, expected 1 or more")
