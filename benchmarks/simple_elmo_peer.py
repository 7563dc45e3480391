"""Files of a random model become simple_elmo's tokens per second, in an environment of its own.

Only what its documentation shows is called, as its users call it: a folder is
loaded, and sentences become all layers. TensorFlow's older Keras (tf_keras) must be installed.
"""

import json
import os
import sys
import time
from pathlib import Path

os.environ |= {"TF_CPP_MIN_LOG_LEVEL": "3", "TF_USE_LEGACY_KERAS": "1"}

from simple_elmo import ElmoModel

# A call takes a second or more (13 of the Original), however few its sentences: the calls of half
# a minute tell as much as all.
SECONDS = 30


def main(options, weights, sentences_file, batch_sizes):
    """One JSON line: tokens/s for each batch size, and the seconds that loading took."""
    sentences = json.loads(Path(sentences_file).read_text(encoding="utf-8"))
    assert Path(options).parent == Path(weights).parent, "simple_elmo loads a folder"
    sizes = [*map(int, batch_sizes)]
    started = time.perf_counter()
    model = ElmoModel()
    model.load(str(Path(options).parent), max_batch_size=max(sizes))
    loaded = time.perf_counter() - started
    speeds = {}
    for size in sizes:
        calls = [sentences[k : k + size] for k in range(0, len(sentences), size)]
        tokens, started = 0, time.perf_counter()
        while time.perf_counter() - started < SECONDS:
            call = calls.pop(0)
            calls.append(call)
            model.get_elmo_vectors(call, warmup=False, layers="all")
            tokens += sum(map(len, call))
        speeds[size] = tokens / (time.perf_counter() - started)
    print(json.dumps({"tokens_per_second": speeds, "load_seconds": loaded}))


if __name__ == "__main__":
    main(*sys.argv[1:4], sys.argv[4:])
