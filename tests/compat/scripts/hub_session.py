"""A script of 2018, as tutorials taught it: mean ELMo vectors of sentences, by batches, in sessions. Argument: out."""

import sys

import numpy as np
import tensorflow as tf
import tensorflow_hub as hub

tf.logging.set_verbosity(tf.logging.ERROR)

elmo = hub.Module("https://tfhub.dev/google/elmo/2", trainable=True)

sentences = ["the cat is on the mat", "dogs are in the fog", "ate", "the dogs ate the cat"]


def elmo_vectors(x):
    embeddings = elmo(x, signature="default", as_dict=True)["elmo"]

    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        sess.run(tf.tables_initializer())
        # return average of ELMo features
        return sess.run(tf.reduce_mean(embeddings, 1))


batches = [sentences[i : i + 2] for i in range(0, len(sentences), 2)]
means = np.concatenate([elmo_vectors(x) for x in batches], axis=0)

tokens_input = [["the", "cat", "is", "on", "the", "mat"], ["dogs", "are", "in", "the", "fog", ""]]
tokens_length = [6, 5]
with tf.Graph().as_default():
    module = hub.Module("https://tfhub.dev/google/elmo/2", False)
    outputs = module(
        inputs={"tokens": tokens_input, "sequence_len": tokens_length},
        signature="tokens",
        as_dict=True,
    )
    sess = tf.Session()
    sess.run([tf.global_variables_initializer(), tf.tables_initializer()])
    words, lower = sess.run([outputs["elmo"], outputs["lstm_outputs1"]])
    results = sess.run(outputs)
    sess.close()

np.savez(sys.argv[1], means=means, words=words, lower=lower, default=results["default"])
