import json
import sys

import pytest

# torch: "LSTM with projections is not supported with oneDNN. Using default implementation."
pytestmark = [pytest.mark.full, pytest.mark.filterwarnings("ignore:LSTM with projections")]


@pytest.fixture
def plain_trainer(script, monkeypatch):
    contest = script("contest")
    for name, value in [
        ("BATCH_SIZE", 2),
        ("SEQUENCE_LENGTH", 3),
        ("TOKENS_PER_STEP", 6),
        ("DROPOUT", 0.0),
    ]:
        monkeypatch.setattr(contest, name, value)
    tiny = {"projection_size": 4, "cell_size": 8, "filters": [[1, 4], [2, 4]]}
    monkeypatch.setitem(contest.SIZES, "S", tiny)
    return script("plain_trainer")


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "train.txt").write_text("a b rare c\n", encoding="utf-8")
    (tmp_path / "vocabulary.txt").write_text("<S>\n</S>\n<UNK>\na\nb\nc\n", encoding="utf-8")
    return tmp_path


@pytest.mark.parametrize(
    ("backward", "read", "targets"),
    [
        (False, ["<S>", "a", "b", "rare", "c", "<S>"], [3, 4, 2, 5, 1, 3]),
        (True, ["</S>", "c", "rare", "b", "a", "</S>"], [5, 2, 4, 3, 0, 5]),
    ],
)
def test_a_sequence_continues_with_the_next_sentence(
    plain_trainer, folder, backward, read, targets
):
    words = ["<S>", "</S>", "<UNK>", "a", "b", "c"]
    windows = plain_trainer.windows(folder / "train.txt", words, 0, backward=backward)
    batches = [next(windows), next(windows)]
    for row in range(2):
        spelt = [word for characters, _ in batches for word in characters[row].tolist()]
        assert spelt == [plain_trainer.spell(word) for word in read]
        assert [target for _, ids in batches for target in ids[row].tolist()] == targets


def test_words_are_encoded_as_in_bilm_tf(plain_trainer):
    assert plain_trainer.spell("Āt") == [258, 196, 128, 116, 259] + [260] * 45
    assert plain_trainer.spell("<S>") == [258, 256, 259] + [260] * 47
    assert plain_trainer.spell("h" * 60) == [258, *[104] * 48, 259]


def test_loss_falls_and_speed_is_printed(plain_trainer, folder, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["plain_trainer", str(folder), "--steps", "150"])
    plain_trainer.main()
    report = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert report["tokens_per_second"] > 0
    assert len(report["losses"]) == 3
    assert report["losses"][0] > 1
    assert report["losses"][-1] < 0.2
