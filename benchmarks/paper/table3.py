"""Table 3: ELMo at the input, at both ends, and at the output."""

import json

from runs import TITLES, runs_of, shown

PLACES = ("input", "both", "output")


def main():
    runs = runs_of(__doc__, tasks=("questions", "entailment", "roles"))
    found = {task: {place: runs.scores(task, place) for place in PLACES} for task in runs.tasks}
    print(f"\n| task | {' | '.join(PLACES)} |")
    print("| --- |" + " --- |" * len(PLACES))
    for task, places in found.items():
        print(f"| {TITLES[task]} | {' | '.join(map(shown, places.values()))} |")
    print(json.dumps(found))


if __name__ == "__main__":
    main()
