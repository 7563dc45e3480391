"""Settings from a preset, a TOML file, bilm-tf's options and the command line."""

import json
import re
from dataclasses import replace

import pytest

from elmokit.errors import ConfigError, FormatError
from elmokit.model_config import BiLMConfig, CharacterConfig
from elmokit.pretraining.settings import (
    PRESETS,
    RENAMED,
    PretrainingSettings,
    names_of_0_1,
    parse_settings,
    read_settings,
)
from elmokit.toml_settings import to_toml

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


@pytest.mark.parametrize(
    ("size", "projection_size", "cell_size", "highway_layers"),
    [("small", 128, 1024, 1), ("medium", 256, 2048, 1), ("original", 512, 4096, 2)],
)
def test_presets_are_the_published_sizes(size, projection_size, cell_size, highway_layers):
    characters = CharacterConfig(highway_layers=highway_layers)
    published = BiLMConfig(projection_size, cell_size, 2, characters)
    assert PRESETS[size].bilm(10) == published


def test_every_option_of_bilm_tf_has_its_setting(tmp_path):
    path = tmp_path / "options.json"
    path.write_text(json.dumps(BILM_TF))
    settings = read_settings(path, {})
    assert settings == PretrainingSettings(
        projection_size=16,
        cell_size=64,
        num_layers=1,
        skip_connections=True,
        cell_clip=3.0,
        projection_clip=2.0,
        max_characters=30,
        character_embedding_size=4,
        filters=((1, 4), (2, 8)),
        activation="relu",
        highway_layers=2,
        dropout=0.3,
        max_grad_norm=7.0,
        epochs=3,
        batch_size=24,
        sequence_length=11,
        num_sampled=77,
        learning_rate=0.4,
        softmax="full",
        optimizer="adagrad",
        initial_accumulator=1.0,
        schedule="constant",
    )
    words = {name: value for name, value in BILM_TF.items() if name != "char_cnn"}
    path.write_text(json.dumps(words | {"bidirectional": False, "sample_softmax": True}))
    words = read_settings(path, {})
    assert (words.input, words.directions, words.softmax) == ("words", "forward", "sampled")


def test_a_file_begins_from_a_preset_and_options_come_last(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text('preset = "tiny"\nbatch_size = 8\nlearning_rate = 1\n')
    settings = read_settings(
        path, {"batch_size": "12", "filters": "[[1, 4], [2, 6]]", "softmax": "full"}
    )
    assert (settings.projection_size, settings.batch_size, settings.learning_rate) == (
        PRESETS["tiny"].projection_size,
        12,
        1.0,
    )
    assert (settings.filters, settings.softmax) == (((1, 4), (2, 6)), "full")


@pytest.mark.parametrize(
    "settings", [*PRESETS.values(), PretrainingSettings(patience=3, tie_weights=False)]
)
def test_written_settings_are_read_again(settings):
    assert parse_settings(to_toml(settings), "here") == settings


def test_settings_that_do_not_change_a_step_may_differ():
    changed = PretrainingSettings(log_interval=3, validation_interval=7, steps=20, epochs=1)
    assert changed.fixed == PretrainingSettings().fixed
    changed = PretrainingSettings(seed=3, batch_size=4)
    differences = changed.fixed.items() - PretrainingSettings().fixed.items()
    assert differences == {("batch_size", 4), ("seed", 3)}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("batch = 4", "no setting 'batch'"),
        ("batch_size = 0", "batch_size is 0, expected more than 0"),
        ("batch_size = 6\nmicro_batches = 4", "expected a multiple of micro_batches, 4"),
        ("batch_size = 1.5", "batch_size is 1.5, expected a whole number"),
        ('softmax = "soft"', "softmax is 'soft', expected 'sampled', 'full' or 'adaptive'"),
        ("dropout = 1.0", "dropout is 1.0, expected 0 to below 1"),
        ("reset_probability = 2", "reset_probability is 2.0, expected 0 to 1"),
        ("epochs = 0", "set one of them"),
        ("epochs = inf", "epochs is inf"),
        ("steps = -5", "steps is -5, expected 0 or more"),
        ("beta2 = 1.5", "beta2 is 1.5, expected 0 to below 1"),
        ("patience = 2\nvalidation_interval = 0", "patience counts validations"),
        ('softmax_gradient = "sparse"\noptimizer = "adamw"', "works with Adagrad only"),
        ("tie_weights = true", "no word embeddings to share"),
        ("cutoffs = [5, 3]", "rising numbers"),
        ("batch_size = ", "not a TOML file"),
        ('preset = "huge"', "no preset is called 'huge'"),
        ("preset = []", r"no preset is called \[\]"),
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


# What elmokit 0.1 wrote of `--config tiny --lanes 8 --steps 7 --updates 20 --warm-up 3`.
SETTINGS_OF_0_1 = """
dim = 32
cell_dim = 128
layers = 2
skip = true
cell_clip = 3.0
output_clip = 3.0
directions = "both"
input = "characters"
width = 50
character_dim = 16
filters = [[1, 16], [2, 16], [3, 32]]
activation = "relu"
highways = 1
softmax = "sampled"
negatives = 512
cutoffs = [4000, 20000]
share = false
table = "auto"
lanes = 8
steps = 7
reset = 0.5
shuffle = "sentences"
streams = "same"
start = 0.0
epochs = 10.0
updates = 20
dropout = 0.1
locked = false
weight_dropout = 0.0
word_dropout = 0.0
optimizer = "adagrad"
learning_rate = 0.2
accumulator = 1.0
decay = 0.01
beta = 0.99
warm_up = 3
schedule = "constant"
final_rate = 0.05
clip_norm = 10.0
accumulate = 1
encoder_every = 1
precision = "float32"
validate_every = 1000
validate_words = 50000
patience = 0
checkpoint_minutes = 10.0
log_every = 50
seed = 0
threads = 0
"""


def test_settings_that_0_1_wrote_are_read_by_their_new_names(tmp_path):
    expected = replace(PRESETS["tiny"], batch_size=8, sequence_length=7, steps=20, warmup_steps=3)
    assert parse_settings(SETTINGS_OF_0_1, "checkpoint.pt") == expected
    path = tmp_path / "settings.toml"
    path.write_text(SETTINGS_OF_0_1)
    assert read_settings(path, {}) == expected
    before_weight_dropout = SETTINGS_OF_0_1.replace("weight_dropout = 0.0\n", "")
    assert parse_settings(before_weight_dropout, "checkpoint.pt") == expected


def test_every_setting_of_0_1_has_one_new_name():
    names = re.findall(r"(?m)^(\w+) =", SETTINGS_OF_0_1)
    assert RENAMED.keys() <= set(names)
    assert len(set(RENAMED.values())) == len(RENAMED)
    assert [*names_of_0_1(vars(PretrainingSettings()))] == names


def test_old_names_in_a_file_or_an_option_are_refused_with_the_new_ones(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text("lanes = 4\nsteps = 20\n")
    message = "lanes is now batch_size, steps is now sequence_length"
    with pytest.raises(ConfigError, match=f"mine.toml: settings have been renamed: {message}"):
        read_settings(path, {})
    with pytest.raises(ConfigError, match=r"the options: .*updates is now steps"):
        read_settings("tiny", {"updates": "4"})
