"""A tagger of 2019 with AllenNLP's Elmo inside. Arguments: options, weights, sentences, out."""

import json
import sys

import numpy as np
import torch
from allennlp.modules.elmo import Elmo, batch_to_ids

options_file, weight_file, sentences_file, out = sys.argv[1:]
rows = json.load(open(sentences_file))
rows = [[sentence.strip().split() for sentence in row] for row in rows]


class Tagger(torch.nn.Module):
    def __init__(self, tags):
        super().__init__()
        self.elmo = Elmo(options_file, weight_file, num_output_representations=1, dropout=0.0)
        self.lstm = torch.nn.LSTM(self.elmo.get_output_dim(), 8, batch_first=True)
        self.out = torch.nn.Linear(8, tags)

    def forward(self, sentences):
        embeddings = self.elmo(batch_to_ids(sentences))
        hidden, _ = self.lstm(embeddings["elmo_representations"][0])
        return self.out(hidden), embeddings["mask"]


torch.manual_seed(0)
model = Tagger(2)
optimizer = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr=0.05)
losses = []
for epoch in range(3):
    for step in range(10):
        batch = [row[step] for row in rows]
        scores, mask = model(batch)
        gold = torch.zeros_like(mask, dtype=torch.long)
        for i, sentence in enumerate(batch):
            for j, word in enumerate(sentence):
                gold[i, j] = int(word[0].isupper())
        loss = torch.nn.functional.cross_entropy(scores[mask], gold[mask])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss))

top = Elmo(options_file, weight_file, 1, dropout=0.0, scalar_mix_parameters=[-9e10, -9e10, 1])
vectors = {}
for step in range(10):
    mixed = top(batch_to_ids([row[step] for row in rows]))
    for place in range(3):
        length = int(mixed["mask"][place].sum())
        vectors["top_%d_%d" % (place, step)] = mixed["elmo_representations"][0][
            place, :length
        ].numpy()
np.savez(out, losses=np.array(losses), **vectors)
