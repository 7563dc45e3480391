from elmokit.progress import Progress


def test_nothing_is_written_where_there_is_no_terminal(capfd):
    with Progress(10) as progress:
        progress.advance(sentences=10, words=100)
    assert capfd.readouterr() == ("", "")


def test_a_line_says_what_is_done_and_what_is_left(capfd):
    with Progress(4000, shown=True) as progress:
        progress.advance(sentences=1000, words=20_000)
    out, err = capfd.readouterr()
    assert out == ""
    assert err.startswith("\r1,000 of 4,000 sentences, ")
    assert " words/s, 0:0" in err
    assert err.endswith("\n")


def test_what_was_done_before_says_nothing_of_the_speed(capfd):
    progress = Progress(100_000, shown=True, done=90_000)
    progress._started -= 60
    progress.advance(sentences=600, words=6_000)
    assert "90,600 of 100,000 sentences, 100 words/s, 15:40 left" in capfd.readouterr().err


def test_an_unknown_total_is_not_made_up(capfd):
    with Progress(None, shown=True) as progress:
        progress.advance(sentences=1000, words=20_000)
    assert " of " not in capfd.readouterr().err


def test_what_is_counted_has_a_name(capfd):
    with Progress(10, shown=True, unit="words") as progress:
        progress.advance(sentences=5, words=5)
    assert "5 of 10 words, " in capfd.readouterr().err


def test_a_terminal_sees_nothing_of_short_work(capfd, monkeypatch):
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    with Progress(10) as progress:
        progress.advance(sentences=10, words=100)
    assert capfd.readouterr().err == ""


def test_bytes_can_be_counted_and_what_is_passed_over_says_nothing_of_the_speed(capfd):
    progress = Progress(100, unit="MB", shown=True)
    progress.pass_over(40)
    progress._started -= 10
    progress.reach(50, words=1000)
    assert "50 of 100 MB, 100 words/s, 0:50 left" in capfd.readouterr().err
