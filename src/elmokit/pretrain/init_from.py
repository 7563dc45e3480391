"""Initial weights from a pretrained model, its vocabulary remapped."""

from dataclasses import fields

import torch
from torch import Tensor

from elmokit.errors import InputError
from elmokit.formats.pretrained import Pretrained
from elmokit.model.softmax import AdaptiveSoftmax, Softmax

Rows = tuple[Tensor, Tensor]  # a table of the new model, and one of the old


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
    pairs: list[Rows] = []
    if ours.config.vocabulary_size is not None:
        tables = [b.encoder.get_parameter("embedding.weight") for b in (ours, theirs)]
        pairs.append((tables[0][1:], tables[1][1:]))
    new, old = heir.model.softmax, source.model.softmax
    if isinstance(new, Softmax) and isinstance(old, Softmax):
        pairs += [(new.weight, old.weight), (new.bias, old.bias)]
    for ours_, theirs_ in pairs:
        _take_rows(ours_, mine, theirs_, yours)
    taken = len(shared)
    if isinstance(new, AdaptiveSoftmax) and isinstance(old, AdaptiveSoftmax):
        taken = _take_classes(new, mine, old, yours)
    elif not pairs:
        return f"{told}; its softmax is missing or of another kind, so it was not"
    return f"{told}, and what was learnt of {taken:,} of {len(heir.vocabulary):,} words"


def _take_classes(new: AdaptiveSoftmax, mine: Tensor, old: AdaptiveSoftmax, yours: Tensor) -> int:
    """Take what an adaptive softmax knows of its classes, and of words that are in the same one.

    In another class a word's vector has another size: its row stays new. Back comes how many words
    were taken.
    """
    if len(new.cutoffs) != len(old.cutoffs):
        raise InputError(
            f"the model to begin with has the cutoffs {old.cutoffs}, this run {new.cutoffs}; give "
            "this run as many"
        )
    for ours, theirs in zip(_of_classes(new), _of_classes(old), strict=True):
        ours.copy_(theirs)
    class_of_mine, class_of_yours = (
        torch.bucketize(ids, torch.tensor(softmax.cutoffs), right=True)
        for ids, softmax in ((mine, new), (yours, old))
    )
    same = class_of_mine == class_of_yours
    starts = zip((0, *new.cutoffs), (0, *old.cutoffs), strict=True)
    for place, (start, other_start) in enumerate(starts):
        both = same & (class_of_mine == place)
        for ours, theirs in zip(_of_words(new, place), _of_words(old, place), strict=True):
            _take_rows(ours, mine[both] - start, theirs, yours[both] - other_start)
    return int(same.sum())


def _of_classes(softmax: AdaptiveSoftmax) -> list[Tensor]:
    """What an adaptive softmax knows of its classes: their own rows, and how vectors shrink."""
    head, first = softmax.classes.head, softmax.cutoffs[0]
    shrinks = [tail.get_parameter("0.weight").detach() for tail in softmax.classes.tail]
    return [head.weight.detach()[first:], head.bias.detach()[first:], *shrinks]


def _of_words(softmax: AdaptiveSoftmax, place: int) -> list[Tensor]:
    """The tables of the words of a class, a row a word; class 0 is that of the commonest."""
    if place > 0:
        return [softmax.classes.tail[place - 1].get_parameter("1.weight").detach()]
    head = softmax.classes.head
    return [head.weight.detach(), head.bias.detach()]


def _take_rows(new: Tensor, mine: Tensor, old: Tensor, yours: Tensor) -> None:
    with torch.no_grad():
        new[mine.to(new.device)] = old[yours.to(old.device)].to(new)


def _check_shapes(heir: Pretrained, source: Pretrained) -> None:
    ours, theirs = heir.model.bilm.config, source.model.bilm.config
    for field in fields(ours):
        mine, other = getattr(ours, field.name), getattr(theirs, field.name)
        if mine != other and field.name != "table_words":
            raise InputError(
                f"the model to begin with has {field.name} {other!r}, this run {mine!r}; "
                "give this run the same settings"
            )
