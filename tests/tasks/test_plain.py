"""Plain lines become examples, and answers plain lines."""

import pytest

from elmokit.errors import InputError
from elmokit.tasks import plain
from elmokit.text.split import split_at_spaces, splitter


def test_roles_are_shown_in_brackets_around_a_predicate_between_stars():
    example = plain.ROLES.ask("She *gave* him a book", split_at_spaces)
    assert (example.words, example.predicate) == (("She", "gave", "him", "a", "book"), 1)
    tags = ("B-ARG0", "B-V", "O", "B-ARG1", "I-ARG1")
    assert plain.ROLES.show(example, tags) == "[ARG0 She] [V gave] him [ARG1 a book]\n"
    for line in ("She gave", "*She* *gave*", "* * *"):
        with pytest.raises(InputError, match="words between stars, expected one"):
            plain.ROLES.ask(line, split_at_spaces)


def test_questions_find_their_words_in_the_text():
    line = "Who left?\tAda didn't; Charles left."
    example = plain.QUESTION.ask(line, splitter("moses").words)
    found = [example.text[first:last] for first, last in example.offsets]
    assert found == ["Ada", "didn", "'t", ";", "Charles", "left", "."]
    assert plain.QUESTION.show(example, "Charles") == "Charles\n"


def test_documents_are_split_and_groups_shown_by_their_words():
    example = plain.DOCUMENT.ask("Ada met Bob. She waved.", splitter("moses").words)
    assert example.sentences == (("Ada", "met", "Bob", "."), ("She", "waved", "."))
    assert plain.DOCUMENT.show(example, (((0, 0), (4, 4)),)) == "Ada | She\n"


@pytest.mark.parametrize("way", [plain.TAGS, plain.LABEL, plain.DOCUMENT])
def test_a_line_without_words_is_refused(way):
    with pytest.raises(InputError, match="no words"):
        way.ask("  ", split_at_spaces)
