"""Files of a random model become AllenNLP's tokens per second, in a virtual environment of its own.

AllenNLP 2.10.1 is installed without its dependencies, which no longer install together. Its ELMo
needs none of them but torch, numpy and h5py; whatever else its modules import gets a stand-in.
"""

import importlib.abc
import importlib.machinery
import json
import os
import sys
import time
import types

import h5py  # noqa: F401
import numpy as np
import torch


class StandIn(type):
    """Anything that a module may ask of a library it does not use: a base class, a decorator."""

    def __getattr__(cls, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return StandIn(name, (), {})

    def __call__(cls, *args, **kwargs):
        if len(args) == 1 and callable(args[0]) and not kwargs:
            return args[0]  # a decorator
        return super().__call__()

    def __getitem__(cls, key):
        return cls

    def __or__(cls, other):
        return cls

    __ror__ = __or__


class MissingModules(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds a stand-in for every module that is not installed."""

    def find_spec(self, name, path=None, target=None):
        known = name.split(".")[0] in (
            *sys.stdlib_module_names,
            "allennlp",
            "torch",
            "numpy",
            "h5py",
        )
        if known:
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec):
        module = types.ModuleType(spec.name)
        module.__path__ = []
        module.__getattr__ = StandIn.__getattr__.__get__(StandIn(spec.name, (), {}))
        return module

    def exec_module(self, module):
        pass


sys.meta_path.append(MissingModules())

from allennlp.modules import elmo as allennlp_elmo  # noqa: E402
from allennlp.modules import elmo_lstm  # noqa: E402

clock = getattr(time, os.environ.get("BENCHMARK_CLOCK", "perf_counter"))
allennlp_elmo.cached_path = elmo_lstm.cached_path = lambda path, *_, **__: path


def main(options, weights, sentences_file):
    """First the top layer of the first sentence; then for each line of stdin a speed.

    A line is the number of sentences a call; the speed is tokens a second of the better of two
    passes over all of them: the first has to find its memory again. A second number asks for the
    seconds of passes over so many sentences.
    """
    sentences = json.loads(open(sentences_file, encoding="utf-8").read())
    bilm = allennlp_elmo._ElmoBiLm(options, weights)
    bilm.eval()
    with torch.no_grad():
        first = bilm(batch_to_ids(sentences[:1]))["activations"][2][0, 1:-1]
        print(json.dumps(first.tolist()), flush=True)
        for line in sys.stdin:
            size, *limit = map(int, line.split())
            if limit:
                answer = seconds_of_passes(bilm, sentences[: limit[0]], size)
            else:
                answer = max(one_pass(bilm, sentences, size) for _ in range(2))
            print(json.dumps(answer), flush=True)


def seconds_of_passes(bilm, sentences, size):
    """As elmokit_peer.py counts them: two passes, one that is long, or more short ones."""
    tokens = sum(map(len, sentences))
    seconds = []
    while len(seconds) < 2 or sum(seconds) < 0.4:
        seconds.append(tokens / one_pass(bilm, sentences, size))
        if seconds[0] > 2:
            break
    return seconds


def one_pass(bilm, sentences, size):
    started = clock()
    for start in range(0, len(sentences), size):
        bilm(batch_to_ids(sentences[start : start + size]))
    return sum(map(len, sentences)) / (clock() - started)


def batch_to_ids(sentences):
    """AllenNLP's own function goes through its data library; its mapper does the work."""
    convert = allennlp_elmo.ELMoCharacterMapper({}).convert_word_to_char_ids
    longest = max(map(len, sentences))
    ids = np.zeros((len(sentences), longest, 50), np.int64)
    for row, sentence in enumerate(sentences):
        for place, word in enumerate(sentence):
            ids[row, place] = convert(word)
    return torch.from_numpy(ids)


if __name__ == "__main__":
    main(*sys.argv[1:])
