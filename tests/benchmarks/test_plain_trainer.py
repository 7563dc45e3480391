import json
import sys

import pytest

# torch: "LSTM with projections is not supported with oneDNN. Using default implementation."
pytestmark = pytest.mark.filterwarnings("ignore:LSTM with projections")


@pytest.fixture
def plain_trainer(script, monkeypatch):
    contest = script("contest")
    for name, value in [("LANES", 2), ("STEPS", 3), ("TOKENS_PER_UPDATE", 6), ("DROPOUT", 0.0)]:
        monkeypatch.setattr(contest, name, value)
    tiny = {"dim": 4, "cell_dim": 8, "filters": [[1, 4], [2, 4]]}
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
def test_a_lane_reads_sentence_after_sentence(plain_trainer, folder, backward, read, targets):
    words = ["<S>", "</S>", "<UNK>", "a", "b", "c"]
    windows = plain_trainer.windows(folder / "train.txt", words, 0, backward=backward)
    batches = [next(windows), next(windows)]
    for lane in range(2):
        spelt = [word for characters, _ in batches for word in characters[lane].tolist()]
        assert spelt == [plain_trainer.spell(word) for word in read]
        assert [target for _, found in batches for target in found[lane].tolist()] == targets


def test_words_are_spelt_as_bilm_tf_does(plain_trainer):
    assert plain_trainer.spell("Āt") == [258, 196, 128, 116, 259] + [260] * 45
    assert plain_trainer.spell("<S>") == [258, 256, 259] + [260] * 47
    assert plain_trainer.spell("h" * 60) == [258, *[104] * 48, 259]


def test_it_learns_and_tells_its_speed(plain_trainer, folder, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["plain_trainer", str(folder), "--updates", "150"])
    plain_trainer.main()
    told = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert told["tokens_per_second"] > 0
    assert len(told["losses"]) == 3
    assert told["losses"][0] > 1
    assert told["losses"][-1] < 0.2
