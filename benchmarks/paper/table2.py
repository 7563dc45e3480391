"""Table 2: no ELMo, its last layer only, and all layers with λ = 1 and λ = 0.001."""

from runs import print_arms

ARMS = {
    "baseline": {"elmo": "none"},
    "last layer": {"elmo": "input", "layers": (2,)},
    "λ = 1": {"elmo": "input", "l2": 1.0},
    "λ = 0.001": {"elmo": "input"},
}
PAPER = {
    "qa": (80.8, 84.7, 85.0, 85.2),
    "entailment": (88.1, 89.1, 89.3, 89.5),
    "srl": (81.6, 84.1, 84.6, 84.8),
}


if __name__ == "__main__":
    print_arms(__doc__, ARMS, PAPER)
