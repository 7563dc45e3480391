"""Roles are those of one predicate: another word of the sentence gives its words others."""

from elmokit.tasks.catalog import TASKS
from elmokit.tasks.data.example import Roles
from elmokit.tasks.learn import learn
from task_examples import changed


def test_two_predicates_of_a_sentence_have_roles_of_their_own(tmp_path):
    words = ("cats", "sleep", "dogs", "run")
    first = Roles(words, 1, "sleep.01", ("B-ARG0", "B-V", "O", "O"))
    second = Roles(words, 3, "run.01", ("O", "O", "B-ARG0", "B-V"))
    examples = [first, second] * 6
    settings = changed(elmo="none", epochs=25)
    trained = learn(TASKS["roles"], examples, examples, tmp_path, settings=settings)
    assert trained.answer([first, second]) == [first.tags, second.tags]
