"""Settings from a preset, a TOML file, bilm-tf's options, the command line; mistakes are named."""

import json

import pytest

from elmokit.config import SIZES
from elmokit.errors import ConfigError, FormatError
from elmokit.pretrain.settings import (
    PRESETS,
    PretrainingSettings,
    differing,
    parse_settings,
    read_settings,
)

BILM_TF = {
    "bidirectional": True,
    "char_cnn": {
        "activation": "relu",
        "embedding": {"dim": 4},
        "filters": [[1, 4], [2, 8]],
        "max_characters_per_token": 30,
        "n_characters": 261,
        "n_highway": 2,
    },
    "dropout": 0.3,
    "lstm": {
        "cell_clip": 3, "dim": 64, "n_layers": 1, "proj_clip": 2, "projection_dim": 16,
        "use_skip_connections": True,
    },
    "all_clip_norm_val": 7.0, "n_epochs": 3, "n_train_tokens": 768648884, "batch_size": 24,
    "n_tokens_vocab": 793471, "unroll_steps": 11, "n_negative_samples_batch": 77,
    "learning_rate": 0.4, "sample_softmax": False, "share_embedding_softmax": False,
}  # fmt: skip


@pytest.mark.parametrize("size", SIZES)
def test_presets_are_the_published_sizes(size):
    assert PRESETS[size].bilm(10) == SIZES[size]


def test_every_option_of_bilm_tf_has_its_setting(tmp_path):
    path = tmp_path / "options.json"
    path.write_text(json.dumps(BILM_TF))
    told = read_settings(path, {})
    assert told == PretrainingSettings(
        dim=16, cell_dim=64, layers=1, skip=True, cell_clip=3.0, output_clip=2.0, width=30,
        character_dim=4, filters=((1, 4), (2, 8)), activation="relu", highways=2, dropout=0.3,
        clip_norm=7.0, epochs=3, lanes=24, steps=11, negatives=77, learning_rate=0.4,
        softmax="full", optimizer="adagrad", accumulator=1.0, schedule="constant",
    )  # fmt: skip
    words = {name: value for name, value in BILM_TF.items() if name != "char_cnn"}
    path.write_text(json.dumps(words | {"bidirectional": False, "sample_softmax": True}))
    words = read_settings(path, {})
    assert (words.input, words.directions, words.softmax) == ("words", "forward", "sampled")


def test_a_file_begins_from_a_preset_and_options_come_last(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text('preset = "tiny"\nlanes = 8\nlearning_rate = 1\n')
    told = read_settings(path, {"lanes": "12", "filters": "[[1, 4], [2, 6]]", "softmax": "full"})
    assert (told.dim, told.lanes, told.learning_rate) == (PRESETS["tiny"].dim, 12, 1.0)
    assert (told.filters, told.softmax) == (((1, 4), (2, 6)), "full")


@pytest.mark.parametrize(
    "settings", [*PRESETS.values(), PretrainingSettings(patience=3, share=False)]
)
def test_what_is_written_is_read_again(settings):
    assert parse_settings(settings.to_toml(), "here") == settings


def test_what_changes_nothing_of_what_is_learnt_may_differ():
    assert differing(PretrainingSettings(log_every=3), PretrainingSettings(log_every=4)) == []
    assert differing(PretrainingSettings(seed=3), PretrainingSettings(lanes=4)) == ["lanes", "seed"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("lane = 4", "no setting 'lane'"),
        ("lanes = 0", "lanes is 0, expected more than 0"),
        ("lanes = 1.5", "lanes: "),
        ('softmax = "soft"', "softmax: "),
        ("dropout = 1.0", "dropout is 1.0, expected 0 to below 1"),
        ("reset = 2", "reset is 2.0, expected 0 to 1"),
        ("epochs = 0", "say how long to train"),
        ("epochs = inf", "epochs is inf"),
        ("updates = -5", "updates is -5, expected 0 or more"),
        ("beta = 1.5", "beta is 1.5, expected 0 to below 1"),
        ("patience = 2\nvalidate_every = 0", "patience counts validations"),
        ('table = "sparse"\noptimizer = "adamw"', "works with Adagrad only"),
        ("share = true", "no table to share"),
        ("cutoffs = [5, 3]", "rising numbers"),
        ("lanes = ", "not a TOML file"),
        ('preset = "huge"', "no preset is called 'huge'"),
    ],
)
def test_a_mistake_is_one_sentence(text, message, tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=message):
        read_settings(path, {})


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(ConfigError, match="no such file, and no preset"):
        read_settings(tmp_path / "none.toml", {})
    (tmp_path / "options.json").write_text("{}")
    with pytest.raises(FormatError, match="lstm"):
        read_settings(tmp_path / "options.json", {})
