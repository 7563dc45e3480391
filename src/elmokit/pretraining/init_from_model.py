"""Initial weights from a pretrained model, with its vocabulary mapped to the new one."""

from dataclasses import fields

import torch
from torch import Tensor

from elmokit.errors import InputError
from elmokit.formats.pretrained import Pretrained
from elmokit.model.softmax import AdaptiveSoftmax, Softmax


@torch.no_grad()
def copy_weights(source: Pretrained, target: Pretrained) -> str:
    """Copy the weights of a model to a new one; returns a sentence on what was copied.

    Of the softmax and of word embeddings, the rows of words in both vocabularies are copied.
    """
    old_bilm, new_bilm = source.model.bilm, target.model.bilm
    if old_bilm.config.aligned_layers:
        raise InputError(
            "the model to start from is aligned, which training would undo; start from the model "
            "without alignment, of a published one from the folder that elmo download prints"
        )
    if old_bilm.config.peepholes:
        raise InputError(
            "the model to start from has LSTMs with peephole connections, which pretraining does "
            "not make; start from another model"
        )
    for field in fields(new_bilm.config):
        new_size, old_size = (getattr(b.config, field.name) for b in (new_bilm, old_bilm))
        if new_size != old_size and field.name != "vocabulary_size":
            raise InputError(
                f"the model to start from has {field.name} {old_size!r}, this run {new_size!r}; "
                "give this run the same settings"
            )
    for name, parameter in new_bilm.named_parameters():
        if not name.startswith("encoder.") or new_bilm.config.characters is not None:
            parameter.copy_(old_bilm.get_parameter(name))
    copied = "copied the LSTMs and the encoder"
    if target.vocabulary is None or source.vocabulary is None:
        return f"{copied}; the softmax starts anew, because the source has no vocabulary"

    shared = [word for word in target.vocabulary if word in source.vocabulary]
    new_ids = torch.from_numpy(target.vocabulary.ids(shared))
    old_ids = torch.from_numpy(source.vocabulary.ids(shared))
    pairs: list[tuple[Tensor, Tensor]] = []  # of the new model and of the old one
    if new_bilm.config.vocabulary_size is not None:
        new_table, old_table = (
            bilm.encoder.get_parameter("embedding.weight") for bilm in (new_bilm, old_bilm)
        )
        pairs.append((new_table[1:], old_table[1:]))
    new, old = target.model.softmax, source.model.softmax
    if isinstance(new, Softmax) and isinstance(old, Softmax):
        pairs += [(new.weight, old.weight), (new.bias, old.bias)]
    for new_rows, old_rows in pairs:
        _copy_rows(new_rows, new_ids, old_rows, old_ids)
    num_copied = len(shared)
    if isinstance(new, AdaptiveSoftmax) and isinstance(old, AdaptiveSoftmax):
        num_copied = _copy_clusters(new, new_ids, old, old_ids)
    elif not pairs:
        return f"{copied}; the softmax starts anew, because the source has none of this kind"
    return f"{copied}, and the softmax of {num_copied:,} of {len(target.vocabulary):,} words"


def _copy_clusters(
    new: AdaptiveSoftmax, new_ids: Tensor, old: AdaptiveSoftmax, old_ids: Tensor
) -> int:
    """Copy the clusters of an adaptive softmax, and the words that are in the same cluster again.

    In another cluster a word's vector has another size: its row starts anew. Returns how many words
    were copied.
    """
    if len(new.cutoffs) != len(old.cutoffs):
        raise InputError(
            f"the model to start from has the cutoffs {old.cutoffs}, this run {new.cutoffs}; give "
            "this run as many"
        )
    for new_tensor, old_tensor in zip(_cluster_tensors(new), _cluster_tensors(old), strict=True):
        new_tensor.copy_(old_tensor)
    new_clusters, old_clusters = (
        torch.bucketize(ids, torch.tensor(softmax.cutoffs), right=True)
        for ids, softmax in ((new_ids, new), (old_ids, old))
    )
    is_same = new_clusters == old_clusters
    starts = zip((0, *new.cutoffs), (0, *old.cutoffs), strict=True)
    for cluster, (new_start, old_start) in enumerate(starts):
        both = is_same & (new_clusters == cluster)
        tensors = zip(_word_tensors(new, cluster), _word_tensors(old, cluster), strict=True)
        for new_rows, old_rows in tensors:
            _copy_rows(new_rows, new_ids[both] - new_start, old_rows, old_ids[both] - old_start)
    return int(is_same.sum())


def _cluster_tensors(softmax: AdaptiveSoftmax) -> list[Tensor]:
    """The weights of the clusters themselves, and of the projections into them."""
    head, first = softmax.classes.head, softmax.cutoffs[0]
    projections = [tail.get_parameter("0.weight") for tail in softmax.classes.tail]
    return [head.weight[first:], head.bias[first:], *projections]


def _word_tensors(softmax: AdaptiveSoftmax, cluster: int) -> list[Tensor]:
    """The weights of the words in a cluster, a row per word; the commonest are in cluster 0."""
    if cluster > 0:
        return [softmax.classes.tail[cluster - 1].get_parameter("1.weight")]
    return [softmax.classes.head.weight, softmax.classes.head.bias]


def _copy_rows(new: Tensor, new_ids: Tensor, old: Tensor, old_ids: Tensor) -> None:
    new[new_ids.to(new.device)] = old[old_ids.to(old.device)].to(new)
