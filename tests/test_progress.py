import pytest

from elmokit.progress import Progress, duration


def test_nothing_is_written_of_short_work(capfd):
    with Progress(10) as progress:
        progress.advance(10, words=100)
    assert capfd.readouterr() == ("", "")


def test_a_terminal_sees_nothing_of_short_work(capfd, monkeypatch):
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    with Progress(10) as progress:
        progress.advance(10, words=100)
    assert capfd.readouterr().err == ""


def test_a_line_says_what_is_done_and_what_is_left(capfd, monkeypatch):
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    with Progress(4000, shown=True) as progress:
        progress.advance(1000, words=20_000)
    out, err = capfd.readouterr()
    assert out == ""
    assert err.startswith("\r1,000 of 4,000 sentences, ")
    assert " words/s, 0 s left" in err
    assert err.endswith("\n")


def test_without_a_terminal_a_line_is_written_each_minute(capfd):
    progress = Progress(100, unit="MB")
    for minute in range(3):
        progress._next_update -= 60
        for _ in range(5):
            progress.update(10 * (minute + 1), words=100)
    lines = capfd.readouterr().err.splitlines()
    assert [line.split(",")[0] for line in lines] == [f"{n} of 100 MB" for n in (10, 20, 30)]


def test_no_line_is_written_where_none_is_wanted(capfd, monkeypatch):
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    with Progress(10, shown=False) as progress:
        progress._next_update -= 600
        progress.advance(5, words=100)
    assert capfd.readouterr().err == ""


def test_what_was_done_before_does_not_count_for_the_speed(capfd):
    progress = Progress(100_000, shown=True, done=90_000)
    progress._started -= 60
    progress.advance(600, words=6_000)
    assert "90,600 of 100,000 sentences, 100 words/s, 15 m 40 s left" in capfd.readouterr().err


def test_work_that_is_resumed_does_not_count_for_the_speed(capfd):
    progress = Progress(100, unit="MB", shown=True)
    progress.resume_at(40)
    progress._started -= 10
    progress.update(50, words=1000)
    assert "50 of 100 MB, 100 words/s, 50 s left" in capfd.readouterr().err


def test_an_unknown_total_is_not_made_up(capfd):
    with Progress(None, shown=True) as progress:
        progress.advance(1000, words=20_000)
    err = capfd.readouterr().err
    assert err.startswith("1,000 sentences, ")
    assert "left" not in err


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.4, "0 s"), (59.9, "59 s"), (65, "1 m 05 s"), (3720, "1 h 02 m"), (90_000, "25 h 00 m")],
)
def test_a_duration_is_easy_to_read(seconds, text):
    assert duration(seconds) == text
