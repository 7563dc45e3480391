import torch

import elmokit
from elmokit.character_ids import CharacterIndexer
from elmokit.inference_session import WordCache


def test_each_word_is_encoded_once(model_folder):
    bilm = elmokit.load(model_folder).bilm
    encoded = []
    bilm.encoder.register_forward_hook(lambda _, inputs, __: encoded.append(len(inputs[0])))
    cache = WordCache(bilm, CharacterIndexer(50), 2**20)
    with torch.no_grad():
        first = cache.vectors(["a", "b"])
        second = cache.vectors(["b", "c", "a"])
    assert encoded == [2, 1]
    assert first.shape == (3, 6)
    assert not first[0].any()
    assert torch.equal(first[1], second[3])
    assert torch.equal(first[2], second[1])


def test_it_stays_within_its_bytes_and_keeps_what_is_asked_for(model_folder):
    bilm = elmokit.load(model_folder).bilm
    encoded = []
    bilm.encoder.register_forward_hook(lambda _, inputs, __: encoded.append(len(inputs[0])))
    cache = WordCache(bilm, CharacterIndexer(50), 20_000)
    with torch.no_grad():
        for k in range(500):
            cache.vectors(["often", f"rare{k}"])
            assert len(cache) <= 120  # a word of eight letters takes about 180 bytes
    assert sum(encoded) == 501


def test_long_words_count_by_their_length(model_folder):
    bilm = elmokit.load(model_folder).bilm
    cache = WordCache(bilm, CharacterIndexer(50), 10**6)
    with torch.no_grad():
        for k in range(500):
            cache.vectors([f"{k}" * 10_000])
            assert len(cache) <= 110
