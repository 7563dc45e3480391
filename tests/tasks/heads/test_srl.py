"""The SRL head depends on which word is the predicate."""

from elmokit.tasks.datasets.example_records import PredicateRoles
from elmokit.tasks.task_registry import TASKS
from elmokit.tasks.trainer import train_task
from task_examples import tiny_settings


def test_two_predicates_of_a_sentence_have_roles_of_their_own(tmp_path):
    words = ("cats", "sleep", "dogs", "run")
    first = PredicateRoles(words, 1, "sleep.01", ("B-ARG0", "B-V", "O", "O"))
    second = PredicateRoles(words, 3, "run.01", ("O", "O", "B-ARG0", "B-V"))
    examples = [first, second] * 6
    settings = tiny_settings(elmo="none", epochs=25)
    trained = train_task(TASKS["srl"], examples, examples, tmp_path, settings=settings)
    assert trained.predict_examples([first, second]) == [first.tags, second.tags]
