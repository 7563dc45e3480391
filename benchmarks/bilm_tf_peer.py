"""Two million words become bilm-tf's tokens per second, in a virtual environment of its own.

    benchmarks/peers/bilm_tf/bin/python benchmarks/bilm_tf_peer.py FOLDER [--size S] [--steps 100]

bilm-tf's own training loop runs, on TensorFlow 2 with the face of 1; a watched session tells the
loss and the time of each step.
"""

import os
import random
import sys
import tempfile
import time

import numpy as np

import contest

os.environ["TF_USE_LEGACY_KERAS"] = "1"  # TensorFlow 1's LSTMCell went with Keras 3
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
import tensorflow.compat.v1 as tf

sys.modules["tensorflow"] = tf  # bilm-tf says `import tensorflow as tf`
from bilm import data as bilm_data  # noqa: E402
from bilm import training as bilm_training  # noqa: E402


def main() -> None:
    chosen = contest.command_line()
    random.seed(chosen.seed)
    tf.disable_v2_behavior()
    tf.set_random_seed(chosen.seed)
    tf.logging.set_verbosity(tf.logging.ERROR)
    tf.Session = WatchedSession

    vocabulary = bilm_data.UnicodeCharsVocabulary(
        str(chosen.folder / "vocabulary.txt"), contest.MAX_CHARACTERS
    )
    data = bilm_data.BidirectionalLMDataset(
        str(chosen.folder / "train.txt"), vocabulary, test=False, shuffle_on_load=True
    )
    options = make_options(chosen.size, chosen.steps, vocabulary.size)
    with tempfile.TemporaryDirectory() as folder:
        bilm_training.train(options, data, 1, folder, folder)
    contest.report(WatchedSession.losses, WatchedSession.ended)


def make_options(size: str, steps: int, words: int) -> dict:
    """bilm-tf's names for the settings of the contest."""
    shape = contest.SIZES[size]
    return {
        "bidirectional": True,
        "char_cnn": {
            "activation": "relu",
            "embedding": {"dim": contest.CHARACTER_EMBEDDING_SIZE},
            "filters": shape["filters"],
            "max_characters_per_token": contest.MAX_CHARACTERS,
            "n_characters": 261,
            "n_highway": contest.HIGHWAY_LAYERS,
        },
        "lstm": {
            "cell_clip": contest.CLIP,
            "dim": shape["cell_size"],
            "n_layers": contest.NUM_LAYERS,
            "proj_clip": contest.CLIP,
            "projection_dim": shape["projection_size"],
            "use_skip_connections": True,
        },
        "dropout": contest.DROPOUT,
        "learning_rate": contest.LEARNING_RATE,
        "all_clip_norm_val": contest.MAX_GRAD_NORM,
        "n_epochs": 1,
        "n_train_tokens": steps * contest.TOKENS_PER_STEP,
        "batch_size": contest.BATCH_SIZE,
        "unroll_steps": contest.SEQUENCE_LENGTH,
        "n_tokens_vocab": words,
        "n_negative_samples_batch": contest.NUM_SAMPLED,
    }


class WatchedSession(tf.Session):
    """A session that notes the loss of each step and when it ended."""

    losses: list[float] = []
    ended: list[float] = []

    def run(self, fetches, *args, **kwargs):
        values = super().run(fetches, *args, **kwargs)
        if isinstance(fetches, list) and isinstance(fetches[0], tf.Operation):
            # a step: the training operation, the summary, the perplexity, the last states
            self.losses.append(float(np.log(values[2])))
            self.ended.append(time.perf_counter())
        return values


if __name__ == "__main__":
    main()
