"""ELMoForManyLangs' own files and vectors, in a virtual environment of its own.

elmoformanylangs 0.0.4.post2 is installed without its dependencies. Of these it imports `overrides`,
whose current version refuses its annotations; a stand-in that does nothing takes its place.
"""

import json
import logging
import runpy
import sys
import time
import types
from pathlib import Path

import numpy as np
import torch

sys.modules["overrides"] = types.ModuleType("overrides")
sys.modules["overrides"].overrides = lambda method: method

from elmoformanylangs import Embedder  # noqa: E402
from elmoformanylangs.frontend import Model  # noqa: E402
from elmoformanylangs.modules.embedding_layer import EmbeddingLayer  # noqa: E402

logging.disable(logging.WARNING)


def main():
    """Requests on stdin, each a line of JSON; or with arguments, the package's own command."""
    if len(sys.argv) > 1:
        runpy.run_module("elmoformanylangs.__main__", run_name="__main__")
        return
    for line in sys.stdin:
        request = json.loads(line)
        print(json.dumps(REQUESTS[request.pop("do")](**request)), flush=True)


def write(folder, config, characters, words, seed, gain=1):
    """A model in the package's own initialisation, its LSTMs scaled up, and its own state dicts."""
    torch.manual_seed(seed)
    folder = Path(folder)
    folder.mkdir()
    layers = []
    for name, entries in (("word", words), ("char", characters)):
        dim = config["token_embedder"][f"{name}_dim"]
        lexicon = {entry: number for number, entry in enumerate(entries)}
        layers.append(EmbeddingLayer(dim, lexicon, fix_emb=False) if dim else None)
        if dim:
            lines = [f"{entry}\t{number}\n" for entry, number in lexicon.items()]
            (folder / f"{name}.dic").write_text("".join(lines), "utf-8", newline="\n")
    model = Model(config, *layers)
    with torch.no_grad():
        for parameter in model.encoder.parameters():
            parameter.mul_(gain)
    torch.save(model.token_embedder.state_dict(), folder / "token_embedder.pkl")
    torch.save(model.encoder.state_dict(), folder / "encoder.pkl")
    (folder / "sizes.json").write_text(json.dumps(config))
    (folder / "config.json").write_text(json.dumps({"config_path": "/elsewhere/sizes.json"}))


def vectors(folder, sentences, target, calls):
    """The layers of sentences, the longest first, in so many calls: their states are carried.

    Its mean over layers fails for an empty sentence.
    """
    embedder = Embedder(folder, batch_size=len(sentences))
    arrays = {}
    with torch.no_grad():
        for call in range(calls):
            for number, array in enumerate(embedder.sents2elmo(sentences, -2)):
                arrays[f"{call}/{number}"] = array
        for layer in (-1, 0, 1):
            chosen = [sentence for sentence in sentences if sentence or layer >= 0]
            fresh = Embedder(folder, batch_size=len(sentences)).sents2elmo(chosen, layer)
            arrays |= {f"layer {layer}/{number}": array for number, array in enumerate(fresh)}
    np.savez(target, **arrays)


def speed(folder, sentences, threads):
    """Tokens a second with 64 sentences a batch, of the second pass over them."""
    torch.set_num_threads(threads)
    embedder = Embedder(folder, batch_size=64)
    with torch.no_grad():
        for _ in range(2):
            started = time.perf_counter()
            embedder.sents2elmo(sentences)
            seconds = time.perf_counter() - started
    return sum(map(len, sentences)) / seconds


REQUESTS = {"write": write, "vectors": vectors, "speed": speed}

if __name__ == "__main__":
    main()
