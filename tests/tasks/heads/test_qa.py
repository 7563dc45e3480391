"""Words that question and context share are marked, so that the head need not learn it."""

from elmokit.tasks.datasets.example_records import Answer, Question
from elmokit.tasks.heads.qa import mark_shared_words
from elmokit.tasks.task_registry import TASKS
from elmokit.tasks.trainer import train_task
from task_examples import tiny_settings


def test_words_of_both_texts_are_marked_in_each():
    question, context = ("Who", "painted", "it", "?"), ("A", "painter", "painted", "it")
    marks = mark_shared_words([question, context], [context, question])
    assert marks[0].tolist() == [[0, 0], [1, 1], [1, 1], [0, 0]]
    assert marks[1].tolist() == [[0, 0], [0, 1], [1, 1], [1, 1]]  # "painter" has the same stem only


def test_case_does_not_count_and_padding_is_not_marked():
    questions, contexts = [("OSLO",), ("Why", "not")], [("Oslo", "lies"), ("no",)]
    for texts, others in ((questions, contexts), (contexts, questions)):
        marks = mark_shared_words(texts, others)
        assert marks.tolist() == [[[1, 1], [0, 0]], [[0, 0], [0, 0]]]


def test_words_that_training_did_not_have_are_found(tmp_path):
    """To a head without characters they are all unknown: only the mark tells them apart."""
    settings = tiny_settings(elmo="none", character_filters=0, dropout=0.0, epochs=20)
    examples, dev = ([question(n) for n in numbers] for numbers in (range(40), range(100, 110)))
    trained = train_task(TASKS["qa"], examples, dev, tmp_path, settings=settings)
    assert trained.scores["exact"] > 0.9


def question(number):
    words = tuple(f"{letter}{number}" for letter in "abcd")
    correct = number % 4
    length = len(words[0])
    offsets = tuple((first, first + length) for first in range(0, 4 * (length + 1), length + 1))
    answer = Answer(words[correct], correct, correct, False)
    return Question(
        str(number), ("where", words[correct]), words, offsets, " ".join(words), (answer,)
    )
