"""Files of a random model become simple_elmo's tokens per second, in an environment of its own.

Only what its documentation shows is called, as its users call it: a folder is
loaded, and sentences become all layers. TensorFlow's older Keras (tf_keras) must be installed.
"""

import json
import os
import sys
import time
from collections import deque
from pathlib import Path

os.environ |= {"TF_CPP_MIN_LOG_LEVEL": "3", "TF_USE_LEGACY_KERAS": "1"}

from simple_elmo import ElmoModel

# A call takes a second or more (13 of the Original), however few its sentences: the calls of ten
# seconds tell as much as all.
SECONDS = 10


def main(options, weights, sentences_file):
    """First null; then for each number of sentences a call on stdin its tokens a second."""
    sentences = json.loads(Path(sentences_file).read_text(encoding="utf-8"))
    assert Path(options).parent == Path(weights).parent, "simple_elmo loads a folder"
    model = ElmoModel()
    model.load(str(Path(options).parent), max_batch_size=len(sentences))
    print("null", flush=True)
    for line in sys.stdin:
        size = int(line)
        calls = deque(sentences[k : k + size] for k in range(0, len(sentences), size))
        tokens, started = 0, time.perf_counter()
        while time.perf_counter() - started < SECONDS:
            model.get_elmo_vectors(calls[0], warmup=False, layers="all")
            tokens += sum(map(len, calls[0]))
            calls.rotate(-1)
        print(tokens / (time.perf_counter() - started), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
