"""Checks of what a command printed, and ways to give it a text."""

TEXT = "word1 (word2) cat. Word3!\nword4 word5\n"
WAYS = ("argument", "file", "stdin")


def succeeded(done):
    out, err, code = done
    assert code == 0, err
    return out


def failed(done, message, code=1):
    _, err, actual = done
    assert actual == code, err
    assert message in err, err
    assert err.startswith("elmo: "), err
    assert err.count("\n") == 1, err


def given_by(way, text):
    """The arguments for a file of text, given in one of three ways, and what is on stdin."""
    if way == "file":
        return [text], b""
    if way == "stdin":
        return ["-"], text.read_bytes()
    return [part for line in text.read_text().splitlines() for part in ("--text", line)], b""
