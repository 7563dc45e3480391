"""A script of 2018, as in many papers, with every method of ElmoEmbedder. Arguments: options, weights, sentences, out."""

import json
import sys

import numpy as np
from allennlp.commands.elmo import ElmoEmbedder

options_file, weight_file, sentences_file, out = sys.argv[1:]
rows = json.load(open(sentences_file))
rows = [[sentence.strip().split() for sentence in row] for row in rows]

elmo = ElmoEmbedder(options_file, weight_file, cuda_device=-1)
results = {}
for step in range(10):
    batch = [row[step] for row in rows]
    for place, vectors in enumerate(elmo.embed_batch(batch)):
        results["batch_%d_%d" % (place, step)] = vectors[2]

one = ElmoEmbedder(options_file, weight_file)
for step in range(10):
    results["sentence_%d" % step] = one.embed_sentence(rows[0][step])[2]

many = ElmoEmbedder(options_file, weight_file)
in_order = [row[step] for step in range(10) for row in rows]
for number, vectors in enumerate(many.embed_sentences(in_order, batch_size=3)):
    results["sentences_%d_%d" % (number % 3, number // 3)] = vectors[2]

activations, mask = ElmoEmbedder(options_file, weight_file).batch_to_embeddings(in_order[:3])
results["activations"] = activations.numpy()
results["mask"] = mask.numpy()

with open(out + ".txt", "w") as file:
    for sentence in in_order:
        file.write(" ".join(sentence) + "\n")
filed = ElmoEmbedder(options_file, weight_file)
filed.embed_file(open(out + ".txt"), out + ".hdf5", output_format="top", batch_size=3)
np.savez(out, **results)
