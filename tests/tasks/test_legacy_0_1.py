"""Task folders, stopped runs and digests of elmokit 0.1 are understood under today's names."""

import json

import pytest
import torch
from safetensors.torch import load_file, save_file

from elmokit.tasks import legacy_0_1 as version_0_1
from elmokit.tasks.saved_model import load_task
from elmokit.tasks.task_registry import TASKS
from elmokit.tasks.trainer import CHECKPOINT_FILE, digest_of_run, train_task
from task_examples import EXAMPLES, tiny_settings

OLD_TASKS = {"srl": "roles", "qa": "questions", "classification": "texts"}
OLD_SETTINGS = {
    "finetune": "tune", "tokenizer": "split", "word_embedding_size": "word_dim",
    "word_vectors": "vectors", "freeze_word_vectors": "freeze_vectors",
    "character_filters": "characters", "hidden_size": "hidden", "num_layers": "depth",
    "weight_decay": "decay", "max_grad_norm": "clip_norm",
}  # fmt: skip
# All names of a head's own parameters in 0.1, by task, those of the features and encoder apart.
OLD_PARAMETERS = {
    "ner": "crf.begin crf.end crf.moves score.bias score.weight",
    "srl": "chief.weight crf.begin crf.end crf.moves mark.weight own.bias own.weight score.bias "
    "score.weight",
    "classification": "attend.bias attend.weight judge.0.bias judge.0.weight judge.3.bias "
    "judge.3.weight",
    "qa": "add.0.bias add.0.weight begin.bias begin.weight end.bias end.weight look.both "
    "look.one.bias look.one.weight look.other.weight meet.both meet.one.bias meet.one.weight "
    "meet.other.weight merge.0.bias merge.0.weight",
    "coreference": "alike.weight attend.bias attend.weight distance.weight earlier.weight "
    "first.bias first.weight inner.weight last.weight later.bias later.weight mention.bias "
    "mention.weight near.weight pair.bias pair.weight rough.weight same.weight spelling.weight "
    "width.weight",
}
OLD_FEATURES = {
    "words.deviation", "words.given", "words.mean", "words.mixes.input.scale",
    "words.mixes.input.weights", "words.mixes.output.scale", "words.mixes.output.weights",
    "words.spread", "words.table.weight", "words.usual",
}  # fmt: skip


def old_weights(task, weights):
    return {version_0_1.stored_parameter(task, name): value for name, value in weights.items()}


def write_as_0_1(folder):
    """Rename everything in a task folder to the names of 0.1."""
    record = json.loads((folder / "task.json").read_text())
    task = record["task"]
    settings = {OLD_SETTINGS.get(name, name): v for name, v in record.pop("settings").items()}
    record |= {"version": 8, "task": OLD_TASKS.get(task, task), "settings": settings}
    record["words"], record["learnt"] = record.pop("vocabulary"), record.pop("num_trained")
    (folder / "task.json").write_text(json.dumps(record))
    (file,) = folder.glob("head-*.safetensors")
    save_file(old_weights(task, load_file(file)), file)
    checkpoint = torch.load(folder / CHECKPOINT_FILE, weights_only=True)
    checkpoint["weights"] = old_weights(task, checkpoint["weights"])
    for group in checkpoint["optimizer"].get("param_groups", ()):
        group["pace"] = group.pop("rate_factor")
    torch.save(checkpoint, folder / CHECKPOINT_FILE)


@pytest.mark.parametrize("name", TASKS)
def test_a_task_folder_of_0_1_is_loaded(name, model, tmp_path):
    examples = EXAMPLES[name]
    settings = tiny_settings(elmo="both", epochs=1)
    trained = train_task(name, examples, examples, tmp_path, settings=settings, model=model)
    write_as_0_1(tmp_path)
    loaded = load_task(tmp_path)
    assert loaded.task is TASKS[name]
    assert loaded.settings == settings
    assert loaded.predict_examples(examples) == trained.predict_examples(examples)
    again = train_task(name, examples, examples, tmp_path, settings=settings, model=model)
    assert again.scores == trained.scores  # the run is over: nothing is trained


@pytest.mark.parametrize("name", OLD_PARAMETERS)
def test_parameters_have_the_names_of_0_1(name, model, tmp_path):
    examples, settings = EXAMPLES[name], tiny_settings(elmo="both", epochs=1)
    trained = train_task(name, examples, examples, tmp_path, settings=settings, model=model)
    names = {
        version_0_1.stored_parameter(name, parameter) for parameter in trained.head.state_dict()
    }
    assert {parameter for parameter in names if parameter.startswith("words.")} >= OLD_FEATURES
    encoders = ("words.", "context.", "ponder.", "to_begin.", "to_end.")
    rest = {parameter for parameter in names if not parameter.startswith(encoders)}
    assert rest == set(OLD_PARAMETERS[name].split())
    assert {"context.ahead.0.weight_ih_l0", "context.back.0.bias_hh_l0"} <= names


def test_a_run_that_0_1_stopped_ends_with_the_same_bits(model, tmp_path, monkeypatch):
    examples, settings = EXAMPLES["srl"], tiny_settings(elmo="both", epochs=3)

    def train(folder, log=lambda line: None):
        options = {"settings": settings, "model": model, "log": log}
        return train_task("srl", examples, examples, tmp_path / folder, **options)

    def stop(line):
        if line.startswith("epoch 2"):
            raise KeyboardInterrupt

    expected = train("uninterrupted").head.state_dict()
    with pytest.raises(KeyboardInterrupt):
        train("stopped", stop)
    write_as_0_1(tmp_path / "stopped")
    lines = []
    resumed = train("stopped", lines.append).head.state_dict()
    assert "resuming after epoch 2" in lines
    assert all(torch.equal(resumed[name], value) for name, value in expected.items())


DIGESTS = {
    "ner": "5b23b4888078ae0be1ce73fc1495a23a1001b72bab6118f2d5ed01a87a1bc158",
    "chunking": "3b16ffa84890016f8c5cc2f50e5d7de41ab19c9a39725a385ca7985df28fe675",
    "pos": "7add882594d99b0c1679503304e673925a54594e41fdc7929163ba46eeb9c6c0",
    "srl": "62694185d075079f3dff25982b20e16c021a443d0124137a57da3ae56dff6223",
    "sentiment": "a35979c19d342cb091df9250e44d74695a250229c5c5cd84b0e25606d2387520",
    "classification": "d2d2a539122584e3dc6e9ba9e2dcdaa694ad5fea4512c86d541f84f7a262a46b",
    "entailment": "d80bcc1fa78af78630d80b895401d8386bf3f3bd02688eefcf17ec65dce04406",
    "qa": "779de24247191a66f9e771382da9c8c8b29d3d23259b5547133cc4a959effa5c",
    "coreference": "fc72219045949d5a029db6dc9e855014fefc21b33238f1d163c4ffffa8cf55e8",
}


@pytest.mark.parametrize("name", DIGESTS)
def test_digests_of_runs_are_those_of_0_1(name):
    examples = EXAMPLES[name]
    settings = tiny_settings(elmo="none", epochs=3)
    assert digest_of_run(TASKS[name], settings, None, examples, examples) == DIGESTS[name]
