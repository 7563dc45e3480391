"""Table 3: ELMo at the input, at both ends, and at the output."""

from runs import print_arms

ARMS = {place: {"elmo": place} for place in ("input", "both", "output")}


if __name__ == "__main__":
    print_arms(__doc__, ARMS)
