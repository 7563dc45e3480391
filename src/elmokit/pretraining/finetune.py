"""Fine-tuning a pretrained language model on the text of a task."""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch

from elmokit import formats
from elmokit.atomic import ResumableDirectory
from elmokit.errors import InputError
from elmokit.formats.pretrained import Pretrained
from elmokit.model.softmax import AdaptiveSoftmax
from elmokit.pretraining.prepare import prepare
from elmokit.pretraining.settings import PretrainingSettings, names_of_0_1, settings_of_bilm
from elmokit.pretraining.trainer import pretrain
from elmokit.vocab import write_vocabulary

# In the model's directory: a digest of the source model, the text and the settings.
_DIGEST = "read.txt"
# With these, 164,000 words of film reviews took the perplexity from 198 to 105.
_BATCH_SIZE, _SEQUENCE_LENGTH, _LEARNING_RATE, _DROPOUT = 64, 24, 0.0005, 0.1
_MIN_STEPS_PER_EPOCH = 50  # few sentences make small batches


def missing_for_finetuning(source: Pretrained) -> str:
    """What a model lacks that fine-tuning needs, "softmax" or "vocabulary"; "" if nothing."""
    if source.model.softmax is None:
        return "softmax"
    return "" if source.vocabulary is not None else "vocabulary"


def finetune(
    source: Pretrained,
    sentences: Sequence[Sequence[str]],
    out: str | Path,
    *,
    epochs: float,
    device: str | torch.device = "cpu",
    report: Callable[[str], None] | None = None,
) -> Pretrained:
    """Train a model further on sentences that are tokenized as its own text was.

    Most biLMs of the paper were fine-tuned on a task's text before its head was trained. The model
    is saved in `out`, and loaded from there when the same is asked for again; a call that was
    killed is resumed by the next one. The source needs a softmax and its vocabulary.
    """
    out = Path(out)
    if missing := missing_for_finetuning(source):
        raise InputError(f"the model has no {missing}, so it cannot be fine-tuned; use it as it is")
    assert source.vocabulary is not None
    if not any(map(len, sentences)):
        raise InputError("there is no sentence to fine-tune the model on")
    digest = finetuning_digest(source, sentences, epochs=epochs)
    if out.exists():
        if not (out / _DIGEST).is_file() or (out / _DIGEST).read_text("utf-8") != digest:
            raise InputError(
                f"{out}: exists, and is not this model fine-tuned on these sentences; delete it, "
                "or name another folder"
            )
        return formats.load(out)

    work = out.with_name(f".{out.name}.{digest[:8]}.unfinished")
    with ResumableDirectory(work, {}, label=str(out), manifest_name=None) as directory:
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
        settings = _settings(source, sentences, epochs)
        pretrain(corpus, settings, work / "run", init_from=source, device=device, report=report)
        finetuned = replace(formats.load(work / "run" / "model"), tokenizer=source.tokenizer)

        def save(folder: Path) -> None:
            formats.save(finetuned, folder)
            (folder / _DIGEST).write_text(digest, "utf-8")

        directory.replace_directory("model", save)
        directory.publish("model", out, "sentences.txt", "words.txt", "corpus", "run")
    return formats.load(out)


def finetuning_digest(
    source: Pretrained, sentences: Sequence[Sequence[str]], *, epochs: float
) -> str:
    """A digest of all that decides what `finetune` makes."""
    inputs = (
        source.fingerprint(),
        source.tokenizer,
        names_of_0_1(asdict(_settings(source, sentences, epochs))),
        [*map(tuple, sentences)],
    )
    return hashlib.sha256(repr(inputs).encode("utf-8", "surrogatepass")).hexdigest()


def _settings(
    source: Pretrained, sentences: Sequence[Sequence[str]], epochs: float
) -> PretrainingSettings:
    words = sum(map(len, sentences))
    softmax: dict[str, Any] = {}
    if isinstance(source.model.softmax, AdaptiveSoftmax):
        softmax = {"softmax": "adaptive", "cutoffs": source.model.softmax.cutoffs}
    return PretrainingSettings(
        **settings_of_bilm(source.model.bilm.config),
        **softmax,
        batch_size=max(1, min(_BATCH_SIZE, words // (_SEQUENCE_LENGTH * _MIN_STEPS_PER_EPOCH))),
        sequence_length=_SEQUENCE_LENGTH,
        reset_probability=0.9,
        epochs=epochs,
        dropout=_DROPOUT,
        optimizer="adamw",
        learning_rate=_LEARNING_RATE,
        warmup_steps=10,
        schedule="linear",
        num_sampled=4096,
        validation_interval=0,
    )
