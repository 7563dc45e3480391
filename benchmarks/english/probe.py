"""What the layers of the English model know, beside those of an untrained one, as a table.

    python benchmarks/english/probe.py [MODEL] [--data ../shared/data/tasks]

POS: accuracy of a linear map on UD EWT dev. Senses: accuracy on two sets by the nearest mean of
SemCor's uses, common senses a little nearer (and by the nearest alone), the first sense where
there are none (Debian's wordnet-sense-index has their order). WiC dev: accuracy of a threshold on
the cosine that was fit to train. STS-B dev: Spearman's correlation of the cosines of mean vectors.
Both after taking out what the vectors of train share (and raw).
"""

import argparse
import json
import sys
import time
from pathlib import Path

import torch

import elmokit
from elmokit.embedder import Embedder
from elmokit.formats.pretrained import Pretrained
from elmokit.model.bilm import BiLM, LanguageModel
from elmokit.tasks.datasets.columns import read_conllu
from elmokit.tasks.datasets.senses import read_raganato, read_semcor
from elmokit.tasks.probing import probe_layers
from elmokit.tasks.wsd import SenseVectors, evaluate_wsd, read_first_senses

sys.path.append(str(Path(__file__).parents[1]))
from similarity import read_stsb, read_wic, score_texts, score_words

SENSE_SETS = ("42D", "S10amended")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", nargs="?", help="a folder, if not the model that ships")
    parser.add_argument("--data", type=Path, default=Path("../shared/data/tasks"))
    parser.add_argument("--wordnet", type=Path, default=Path("/usr/share/wordnet/index.sense"))
    parser.add_argument("--skip-untrained", action="store_true")
    arguments = parser.parse_args()
    read_first_senses(arguments.wordnet)  # refused now, not after the other probes
    model = elmokit.load(arguments.model) if arguments.model else elmokit.load()
    models = {"trained": model}
    if not arguments.skip_untrained:
        models["untrained"] = untrained(model)
    found = {name: measure(m, arguments) for name, m in models.items()}
    show(found)
    print(json.dumps(found))


def untrained(model):
    """A model of the same shape with random weights."""
    torch.manual_seed(0)
    return Embedder(Pretrained(LanguageModel(BiLM(model.bilm.config), None), tokenizer="moses"))


def measure(model, arguments):
    """For each probe the figures of all layers; for senses the first sense beside them."""
    data, started = arguments.data, time.perf_counter()

    def words(text):
        return [word for sentence in model.tokenize(text) for word in sentence]

    pos = [read_conllu(data / f"pos_ud_ewt/{part}.conllu.xz") for part in ("train", "dev")]
    wic = [
        read_wic(data / f"wic/{part}.data.txt", data / f"wic/{part}.gold.txt")
        for part in ("train", "dev")
    ]
    texts = [
        read_stsb(data / f"similarity_stsb/sts-{part}.csv", words) for part in ("train", "dev")
    ]
    found = {
        "POS": probe_layers(model, *pos),
        "WiC": score_words(model, *wic),
        "WiC, raw": score_words(model, *wic, whitening="none"),
        "STS-B": score_texts(model, *texts),
        "STS-B, raw": score_texts(model, *texts, whitening="none"),
    }
    vectors = SenseVectors(model).fit(read_semcor(data / "wsd_semcor/semcor.tar.xz"))
    first = read_first_senses(arguments.wordnet)
    for name in SENSE_SETS:
        files = [data / f"wsd_eval/{name}.{end}" for end in ("data.xml", "gold.key.txt")]
        wanted = read_raganato(*files)
        scores = evaluate_wsd(vectors, first, wanted)
        found[f"senses {name}"] = scores.layers
        found[f"senses {name}, nearest alone"] = evaluate_wsd(
            vectors, first, wanted, frequency_weight=0
        ).layers
        found[f"first sense {name}"] = [scores.first_sense]
        found[f"most frequent sense {name}"] = [scores.most_frequent]
    found["seconds"] = [round(time.perf_counter() - started)]
    return found


def show(found):
    layers = len(found["trained"]["POS"])
    print(f"| probe | model | {' | '.join(f'layer {k}' for k in range(layers))} |")
    print("| --- | --- |" + " --- |" * layers)
    for probe, figures in found["trained"].items():
        if len(figures) != layers:
            continue
        for name, probes in found.items():
            numbers = " | ".join(f"{100 * figure:.2f}" for figure in probes[probe])
            print(f"| {probe} | {name} | {numbers} |")
    for name in SENSE_SETS:
        for control in ("first", "most frequent"):
            (share,) = found["trained"][f"{control} sense {name}"]
            print(f"\nThe {control} sense, {name}: {100 * share:.1f}")


if __name__ == "__main__":
    main()
