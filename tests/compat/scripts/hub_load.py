"""A script of 2020, with TensorFlow 2: hub.load and its signatures. Argument: out."""

import sys

import numpy as np
import tensorflow as tf
import tensorflow_hub as hub

elmo = hub.load("https://tfhub.dev/google/elmo/3?tf-hub-format=compressed")


def elmo_embed(texts):
    return elmo.signatures["default"](tf.constant(texts))["elmo"].numpy()


vectors = elmo_embed(["The bank lent the farmer money .", "The bank of the river"])
tokens = tf.constant([["The", "cat", ""], ["dogs", "are", "here"]])
lengths = tf.constant([2, 3], dtype=tf.int32)
outputs = elmo.signatures["tokens"](tokens=tokens, sequence_len=lengths)
sentences = outputs["default"].numpy()
np.savez(sys.argv[1], vectors=vectors, sentences=sentences, word_emb=np.array(outputs["word_emb"]))
