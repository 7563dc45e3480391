"""Commands that pretrain a language model: prepare and pretrain."""

from pathlib import Path

import typer

import elmokit
from elmokit.cli.options import (
    CORPUS_HELP,
    OFFLINE,
    argument,
    counted,
    option,
    resumable,
    takes_settings,
    tell,
    tokenizer_option,
)
from elmokit.pretraining.settings import PretrainingSettings, read_settings


@resumable("run the same command again to go on from the last part written")
def prepare(
    texts: list[str] = argument("CORPUS...", CORPUS_HELP),
    folder: Path = option("The folder to write.", ..., "--out", "-o", metavar="DIR"),
    tokenizer: str = tokenizer_option("How raw text is split into sentences and words", "moses"),
    wrapped: bool = option("Paragraphs end at blank lines, not at the end of a line.", False),
    valid: list[str] | None = option(
        "Text to hold out for validation; may be repeated.",
        metavar="CORPUS",
        show_default="every 500th line, up to 50,000 words",
    ),
    no_valid: bool = option("Hold nothing out.", False),
    min_count: int | None = option(
        "The vocabulary has the words that occur this often.", min=1, show_default="3"
    ),
    max_words: int | None = option(
        "The vocabulary's size at most, <S>, </S> and <UNK> included.", min=4
    ),
    vocabulary: Path | None = option(
        "A file with the vocabulary, a word on each line.", metavar="FILE"
    ),
    skip_bad: bool = option("Leave out the lines that cannot be used.", False),
    workers: int | None = option(
        "How many processes to use.", min=1, show_default="one for each core"
    ),
) -> None:
    """Prepare text for pretraining: tokenize it, count a vocabulary, and write ids to train on.

    If it is interrupted, run the same command again to go on. Lines that are not UTF-8, or no
    text, are listed with their files and numbers in DIR/bad_lines.tsv.

    Example: elmo prepare 'news/*.txt.xz' --out corpus --max-words 100000
    """
    from elmokit.pretraining.corpus import SPECIAL_TOKENS  # noqa: PLC0415  (numpy)

    if valid and no_valid:
        raise typer.BadParameter("give --valid or --no-valid, not both")
    corpus = elmokit.prepare(
        texts,
        folder,
        tokenizer=tokenizer,
        wrapped=wrapped,
        valid=[] if no_valid else valid,
        min_count=min_count,
        max_words=max_words,
        vocabulary=vocabulary,
        skip_bad=skip_bad,
        workers=workers,
    )
    special = len(SPECIAL_TOKENS)  # the first words of the lexicon and the vocabulary
    known = int(corpus.counts[special : len(corpus.vocabulary)].sum())
    typer.echo(
        f"{corpus.folder}: {counted(corpus.sentences, 'sentence')}, "
        f"{counted(corpus.words, 'word')}, {len(corpus.lexicon) - special:,} of them different; "
        f"the {len(corpus.vocabulary) - special:,} of the vocabulary are "
        f"{known / corpus.words:.1%} of the text; "
        f"{counted(len(corpus.valid), 'sentence')} held out"
    )


@takes_settings(PretrainingSettings())
@resumable("run the same command again to go on from the last checkpoint")
def pretrain(
    given: dict[str, str],
    data: Path = argument("DATA", "The folder that elmo prepare wrote."),
    out: Path = option("The folder of the run.", ..., "--out", "-o", metavar="DIR"),
    config: str | None = option(
        "A preset, a TOML file of settings, or bilm-tf's options.json; single settings are then "
        "changed by their options.",
        None,
        "--config",
        "-c",
        metavar="tiny|small|medium|original|english|FILE",
        show_default="small",
    ),
    init_from: str | None = option("A model whose weights to start from.", metavar="MODEL"),
    device: str = option("Where to compute.", "cpu", metavar="cpu|cuda|cuda:N"),
    dry_run: bool = option("Check everything and estimate time and memory; train nothing.", False),
    settings: bool = option("Print all settings as a TOML file; train nothing.", False),
    offline: bool = OFFLINE,
) -> None:
    """Pretrain a biLM on prepared text; the best model so far is in DIR/model.

    If it is interrupted, run the same command again to go on from the last checkpoint. The
    defaults of the settings are those of the preset small.

    Example: elmo pretrain corpus --config tiny --out run --epochs 3 --batch-size 64
    """
    from elmokit import formats  # noqa: PLC0415  (torch takes seconds)
    from elmokit.pretraining.corpus import Corpus  # noqa: PLC0415
    from elmokit.pretraining.dry_run import dry_run as estimate  # noqa: PLC0415
    from elmokit.pretraining.trainer import pretrain as train  # noqa: PLC0415
    from elmokit.toml_settings import to_toml  # noqa: PLC0415

    chosen = read_settings(config, given)
    if settings:
        typer.echo(to_toml(chosen), nl=False)
        return
    corpus = Corpus.open(data)
    source = None if init_from is None else formats.load(init_from, offline=offline)
    if dry_run:
        typer.echo(estimate(corpus, chosen, out, init_from=source, device=device))
        return
    train(corpus, chosen, out, init_from=source, device=device, report=tell)
