"""ELMo as a layer of a plain PyTorch model, frozen or (`--finetune`) trained with it."""

import argparse
from pathlib import Path

import torch
from torch import nn

import elmokit


class Sentiment(nn.Module):
    """A scalar mix of the layers, their mean over the words, and a linear classifier."""

    def __init__(self, bilm, *, finetune):
        super().__init__()
        self.elmo = elmokit.Elmo(bilm, dropout=0.2, l2=0.001, train_lstms=finetune)
        self.classifier = nn.Linear(bilm.config.output_size, 2)

    def forward(self, sentences):
        mixed = self.elmo(sentences)
        lengths = mixed.mask.sum(1, keepdim=True)
        return self.classifier(mixed.vectors[0].sum(1) / lengths)  # padding is zero


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--finetune", action="store_true", help="train the LSTMs too")
    parser.add_argument("--epochs", type=int, default=40)
    arguments = parser.parse_args()
    finetune, epochs = arguments.finetune, arguments.epochs
    text = Path(__file__).with_name("reviews.tsv").read_text(encoding="utf-8")
    rows = [line.split("\t") for line in text.splitlines()]
    sentences = [text.split() for _, text in rows]
    labels = torch.tensor([label == "good" for label, _ in rows]).long()
    dev = torch.arange(len(rows)) % 4 == 3  # every fourth review is held out

    torch.manual_seed(0)
    model = Sentiment(elmokit.load().bilm, finetune=finetune)
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=0.001 if finetune else 0.01)
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
                correct = model(sentences).argmax(1) == labels
            weights = ", ".join(f"{weight:.2f}" for weight in model.elmo.layer_weights()[0])
            on_train, on_dev = (correct[part].double().mean() for part in (~dev, dev))
            print(f"epoch {epoch}: loss {loss.item():.3f}, layer weights {weights}")
            print(f"  accuracy: {on_train:.0%} on the training reviews, {on_dev:.0%} on the others")


if __name__ == "__main__":
    main()
