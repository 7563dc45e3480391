"""What a question and its text share is marked, so that no example has to teach it."""

from elmokit.tasks.reader import mark_shared


def test_words_of_both_texts_are_marked_in_each():
    asked, said = mark_shared([(("Who", "painted", "it", "?"), ("A", "painter", "painted", "it"))])
    assert asked.tolist() == [[[0, 0], [1, 1], [1, 1], [0, 0]]]
    assert said.tolist() == [[[0, 0], [0, 1], [1, 1], [1, 1]]]  # "painter" only begins like it


def test_case_does_not_count_and_padding_is_not_marked():
    asked, said = mark_shared([(("OSLO",), ("Oslo", "lies")), (("Why", "not"), ("no",))])
    assert asked.tolist() == [[[1, 1], [0, 0]], [[0, 0], [0, 0]]]
    assert said.tolist() == [[[1, 1], [0, 0]], [[0, 0], [0, 0]]]
