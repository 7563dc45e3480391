"""A pretrained model becomes the beginning of another: its weights, and its words' predictions."""

from dataclasses import fields

import torch

from elmokit.errors import InputError
from elmokit.formats.pretrained import Pretrained
from elmokit.model.softmax import Softmax


def inherit(heir: Pretrained, source: Pretrained) -> str:
    """Give a new model the weights of another; back comes what was given, for people to read.

    Of the softmax and of a word-level model's table, the rows of words that both know are taken.
    """
    _check_shapes(heir, source)
    ours, theirs = heir.model.bilm, source.model.bilm
    with torch.no_grad():
        for name, parameter in ours.named_parameters():
            if not name.startswith("encoder.") or ours.config.characters is not None:
                parameter.copy_(theirs.get_parameter(name))
    told = "the readers and the encoder were taken"
    if heir.vocabulary is None or source.vocabulary is None:
        return f"{told}; the source has no vocabulary, so its words' predictions were not"

    shared = [word for word in heir.vocabulary if word in source.vocabulary]
    mine = torch.from_numpy(heir.vocabulary.ids(shared))
    yours = torch.from_numpy(source.vocabulary.ids(shared))
    pairs = []
    if ours.config.table_words is not None:
        tables = [b.encoder.get_parameter("embedding.weight") for b in (ours, theirs)]
        pairs.append((tables[0][1:], tables[1][1:]))
    new, old = heir.model.softmax, source.model.softmax
    if isinstance(new, Softmax) and isinstance(old, Softmax):
        pairs += [(new.weight, old.weight), (new.bias, old.bias)]
    with torch.no_grad():
        for ours_, theirs_ in pairs:
            ours_[mine.to(ours_.device)] = theirs_[yours.to(theirs_.device)].to(ours_)
    if not pairs:
        return f"{told}; its softmax is missing or of another kind, so it was not"
    return f"{told}, and what was learnt of {len(shared):,} of {len(heir.vocabulary):,} words"


def _check_shapes(heir: Pretrained, source: Pretrained) -> None:
    ours, theirs = heir.model.bilm.config, source.model.bilm.config
    for field in fields(ours):
        mine, other = getattr(ours, field.name), getattr(theirs, field.name)
        if mine != other and field.name != "table_words":
            raise InputError(
                f"the model to begin with has {field.name} {other!r}, this run {mine!r}; "
                "give this run the same settings"
            )
