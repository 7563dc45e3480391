"""Fine-tuning a pretrained language model on the text of a task."""

import hashlib
import shutil
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch

from elmokit import formats
from elmokit.atomic import DirectoryLock, rename_atomically
from elmokit.config import BiLMConfig
from elmokit.errors import InputError
from elmokit.formats.pretrained import Pretrained
from elmokit.model.softmax import AdaptiveSoftmax
from elmokit.pretrain.prepare import prepare
from elmokit.pretrain.settings import PretrainingSettings, names_of_0_1
from elmokit.pretrain.trainer import pretrain
from elmokit.vocab import write_vocabulary

_READ = "read.txt"  # in the model's folder: what it began with and what it has read
# By these, 164,000 words of film reviews took a perplexity of 198 to 105 (docs/log.md).
_LANES, _STEPS, _RATE, _DROPOUT = 64, 24, 0.0005, 0.1
_UPDATES = 50  # of an epoch, at least: few sentences are read in few lanes


def lacking(source: Pretrained) -> str:
    """What a model has not and would need to read on; nothing if it can."""
    if source.model.softmax is None:
        return "softmax"
    return "" if source.vocabulary is not None else "vocabulary"


def adapt(
    source: Pretrained,
    sentences: Sequence[Sequence[str]],
    out: str | Path,
    *,
    epochs: float,
    device: str | torch.device = "cpu",
    tell: Callable[[str], None] = lambda line: None,
) -> Pretrained:
    """The model after it has read sentences, spelled as its own text, so many times.

    As most biLMs of the paper did with a task's text before its head learnt. The model stands in
    `out`, and is taken from there when it is asked for again; killed and called again, this goes
    on. It needs a softmax and its vocabulary: where it begins is what it knows of predicting words.
    """
    out = Path(out)
    if lack := lacking(source):
        raise InputError(f"the model has no {lack}, so it cannot read on; say adapt 0")
    assert source.vocabulary is not None
    if not any(map(len, sentences)):
        raise InputError("there is no sentence for the model to read")
    settings = _settings(source, sentences, epochs)
    read = reading_of(source, sentences, epochs=epochs)
    if out.exists():
        if not (out / _READ).is_file() or (out / _READ).read_text("utf-8") != read:
            raise InputError(
                f"{out}: exists, and is not this model after it has read these sentences; delete "
                "it, or name another folder"
            )
        return formats.load(out)

    work = out.with_name(f".{out.name}.{read[:8]}.unfinished")
    work.mkdir(parents=True, exist_ok=True)
    with DirectoryLock(work, f"{out}: another process makes it; wait for its end"):
        text, words = work / "sentences.txt", work / "words.txt"
        if not (work / "corpus").exists():
            text.write_text("".join(" ".join(s) + "\n" for s in sentences), "utf-8")
            write_vocabulary(source.vocabulary, words)
        corpus = prepare(
            text,
            work / "corpus",
            tokenizer="spaces",
            valid=[],
            vocabulary=words,
            skip_bad=True,
            show_progress_bar=False,
        )
        pretrain(corpus, settings, work / "run", init_from=source, device=device, tell=tell)
        adapted = formats.load(work / "run" / "model")
        shutil.rmtree(work / "model", ignore_errors=True)  # of a call that was killed
        formats.save(replace(adapted, tokenizer=source.tokenizer), work / "model")
        (work / "model" / _READ).write_text(read, "utf-8")
    rename_atomically(work / "model", out)
    shutil.rmtree(work)
    return formats.load(out)


def reading_of(source: Pretrained, sentences: Sequence[Sequence[str]], *, epochs: float) -> str:
    """A digest of what a model that `adapt` makes began with, has read, and how."""
    settings = _settings(source, sentences, epochs)
    known = (
        source.fingerprint(),
        source.tokenizer,
        names_of_0_1(asdict(settings)),
        [*map(tuple, sentences)],
    )
    return hashlib.sha256(repr(known).encode("utf-8", "surrogatepass")).hexdigest()


def _settings(
    source: Pretrained, sentences: Sequence[Sequence[str]], epochs: float
) -> PretrainingSettings:
    softmax: dict[str, Any] = {}
    words = sum(map(len, sentences))
    if isinstance(source.model.softmax, AdaptiveSoftmax):
        softmax = {"softmax": "adaptive", "cutoffs": source.model.softmax.cutoffs}
    return PretrainingSettings(
        **_shape(source.model.bilm.config),
        **softmax,
        batch_size=max(1, min(_LANES, words // (_STEPS * _UPDATES))),
        sequence_length=_STEPS,
        reset_probability=0.9,
        epochs=epochs,
        dropout=_DROPOUT,
        optimizer="adamw",
        learning_rate=_RATE,
        warmup_steps=10,
        schedule="linear",
        num_sampled=4096,
        validation_interval=0,
    )


def _shape(bilm: BiLMConfig) -> dict[str, Any]:
    """The settings by which a run has a biLM of that shape."""
    shape: dict[str, Any] = {
        "projection_size": bilm.projection_size,
        "cell_size": bilm.cell_size,
        "num_layers": bilm.num_layers,
        "skip_connections": bilm.skip_connections,
        "cell_clip": bilm.cell_clip or 0.0,
        "projection_clip": bilm.projection_clip or 0.0,
        "directions": "both" if len(bilm.directions) > 1 else bilm.directions[0],
        "input": "words" if bilm.characters is None else "characters",
    }
    if bilm.characters is not None:
        shape |= {
            "max_characters": bilm.characters.max_characters,
            "character_embedding_size": bilm.characters.embedding_size,
            "filters": bilm.characters.filters,
            "activation": bilm.characters.activation,
            "highway_layers": bilm.characters.highway_layers,
        }
    return shape
