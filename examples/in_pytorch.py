"""ELMo becomes a layer of a plain PyTorch model, frozen or learning along: `--tune`."""

import argparse
from pathlib import Path

import torch
from torch import nn

import elmokit


class Sentiment(nn.Module):
    """A mix of the layers, the largest of each number over the words, and a judgement."""

    def __init__(self, bilm, *, tune):
        super().__init__()
        self.elmo = elmokit.Elmo(bilm, dropout=0.2, l2=0.001, train_lstms=tune)
        self.judge = nn.Linear(bilm.config.output_size, 2)

    def forward(self, sentences):
        mixed = self.elmo(sentences)
        words = mixed.vectors[0].masked_fill(~mixed.mask[..., None], -torch.inf)
        return self.judge(words.amax(1))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tune", action="store_true", help="let the readers learn too")
    parser.add_argument("--epochs", type=int, default=40)
    tune, epochs = (arguments := parser.parse_args()).tune, arguments.epochs
    text = Path(__file__).with_name("reviews.tsv").read_text(encoding="utf-8")
    rows = [line.split("\t") for line in text.splitlines()]
    sentences = [text.split() for _, text in rows]
    labels = torch.tensor([label == "good" for label, _ in rows]).long()
    dev = torch.arange(len(rows)) % 4 == 3  # every fourth review is held out

    torch.manual_seed(0)
    model = Sentiment(elmokit.load().bilm, tune=tune)
    learning = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(learning, lr=0.0003 if tune else 0.003)
    for epoch in range(1, epochs + 1):
        model.train()
        optimizer.zero_grad()
        scores = model([s for s, held_out in zip(sentences, dev, strict=True) if not held_out])
        loss = nn.functional.cross_entropy(scores, labels[~dev]) + model.elmo.penalty()
        loss.backward()
        optimizer.step()
        if epoch % 10 == 0:
            model.eval()
            with torch.no_grad():
                right = model(sentences).argmax(1) == labels
            shares = ", ".join(f"{share:.2f}" for share in model.elmo.layer_weights()[0])
            learnt, held_out = (right[part].double().mean() for part in (~dev, dev))
            print(f"epoch {epoch}: loss {loss.item():.3f}, layers {shares}")
            print(f"  right: {learnt:.0%} of what it learns from, {held_out:.0%} of the rest")


if __name__ == "__main__":
    main()
