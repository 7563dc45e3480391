"""Table 2: no ELMo, its last layer only, and all layers with λ = 1 and λ = 0.001."""

import json

from runs import TITLES, runs_of, shown

ARMS = {
    "baseline": ("none", {}),
    "last layer": ("input", {"layers": (2,)}),
    "λ = 1": ("input", {"l2": 1.0}),
    "λ = 0.001": ("input", {"l2": 0.001}),
}


def main():
    runs = runs_of(__doc__, tasks=("questions", "entailment", "roles"))
    found = {
        task: {arm: runs.scores(task, elmo, **changes) for arm, (elmo, changes) in ARMS.items()}
        for task in runs.tasks
    }
    print(f"\n| task | {' | '.join(ARMS)} |")
    print("| --- |" + " --- |" * len(ARMS))
    for task, arms in found.items():
        print(f"| {TITLES[task]} | {' | '.join(map(shown, arms.values()))} |")
    print(json.dumps(found))


if __name__ == "__main__":
    main()
