"""Named entities in spaCy: ELMo beside spaCy's HashEmbedCNN, for the same steps and the same time.

    python benchmarks/spacy_ner.py train.conll dev.conll

Files have the columns of CoNLL-2003 and may be compressed. ELMo is trained as
examples/spacy/ner.cfg says, HashEmbedCNN with the same settings in the place of `tok2vec`: for as
many steps, and on until it has taken as much time. Time is that of the CPUs, without evaluation.
"""

import argparse
import tempfile
import time
from itertools import count
from pathlib import Path

import spacy
from spacy.schemas import ConfigSchemaTraining
from spacy.tokens import Doc, DocBin, Span
from spacy.training.initialize import init_nlp
from spacy.training.loop import create_train_batches
from spacy.util import fix_random_seed, load_config, registry, resolve_dot_names

from elmokit.tasks.datasets.columns import read_columns
from elmokit.tasks.datasets.schemes import spans_of

CONFIG = Path(__file__).parents[1] / "examples" / "spacy" / "ner.cfg"
HASH_EMBED_CNN = {
    "@architectures": "spacy.HashEmbedCNN.v2", "pretrained_vectors": None, "width": 96, "depth": 4,
    "embed_size": 2000, "window_size": 1, "maxout_pieces": 3, "subword_features": True,
}  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("train", type=Path)
    parser.add_argument("dev", type=Path)
    parser.add_argument("--sentences", type=int, default=2000, help="to train on, of the first")
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--every", type=int, default=100, help="steps between two evaluations")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--config", type=Path, default=CONFIG)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        paths = {name: f"{folder}/{name}.spacy" for name in ("train", "dev")}
        write_docs(arguments.train, paths["train"], arguments.sentences)
        write_docs(arguments.dev, paths["dev"])
        overrides = {f"paths.{name}": path for name, path in paths.items()}
        config = load_config(arguments.config, {**overrides, "system.seed": arguments.seed})
        print("| tok2vec | step | CPU seconds | F on dev |")
        print("| --- | --- | --- | --- |")
        seconds = train("ELMo", config, arguments)
        config["components"]["tok2vec"]["model"] = HASH_EMBED_CNN
        config["components"]["ner"]["model"]["tok2vec"]["width"] = HASH_EMBED_CNN["width"]
        train("HashEmbedCNN", config, arguments, min_seconds=seconds)


def write_docs(source, target, limit=None):
    """Convert columns to spaCy's documents, one for each sentence."""
    vocab = spacy.blank("en").vocab
    docs = DocBin()
    for sentence in read_columns(source, spans=True)[:limit]:
        doc = Doc(vocab, words=sentence.words)
        doc.ents = [Span(doc, s.first, s.last + 1, s.label) for s in spans_of(sentence.tags)]
        docs.add(doc)
    docs.to_disk(target)


def train(name, config, arguments, min_seconds=0.0):
    """Print the F-score every few steps; how long the steps took."""
    fix_random_seed(arguments.seed)
    nlp = init_nlp(config)
    filled = nlp.config.interpolate()
    training = registry.resolve(filled["training"], schema=ConfigSchemaTraining)
    corpora = resolve_dot_names(filled, [training["train_corpus"], training["dev_corpus"]])
    batches = create_train_batches(nlp, corpora[0], training["batcher"], max_epochs=0)
    dev = list(corpora[1](nlp))
    seconds = 0.0
    for step, (_, batch) in zip(count(1), batches, strict=False):
        started = time.process_time()
        nlp.update(batch, drop=training["dropout"], sgd=training["optimizer"])
        training["optimizer"].step_schedules()
        seconds += time.process_time() - started
        if step % arguments.every == 0:
            f_score = nlp.evaluate(dev)["ents_f"]
            print(f"| {name} | {step} | {seconds:.0f} | {100 * f_score:.1f} |", flush=True)
            if step >= arguments.steps and seconds >= min_seconds:
                return seconds
    raise AssertionError("batches without end ended")


if __name__ == "__main__":
    main()
