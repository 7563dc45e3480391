"""Table 3: ELMo at the input, at both ends, and at the output."""

from runs import print_arms

ARMS = {position: {"elmo": position} for position in ("input", "both", "output")}
PAPER = {
    "qa": (85.1, 85.6, 84.8),
    "entailment": (88.9, 89.5, 88.7),
    "srl": (84.7, 84.3, 80.9),
}


if __name__ == "__main__":
    print_arms(__doc__, ARMS, PAPER)
