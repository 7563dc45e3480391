"""Names in task folders and digests written by elmokit 0.1, and what they are called now.

Trained heads are loaded, stopped runs resumed and recorded scores found whatever their age:
weights and settings are renamed when read, and digests are computed from the old names.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, fields
from typing import Any

from torch import Tensor

from elmokit.tasks.settings import TaskSettings

OLD_VERSION = 8  # of task.json

# The names of 0.1, and today's.
_TASKS = {"roles": "srl", "questions": "qa", "texts": "classification"}
_SETTINGS = {
    "tune": "finetune", "split": "tokenizer", "word_dim": "word_embedding_size",
    "vectors": "word_vectors", "freeze_vectors": "freeze_word_vectors",
    "characters": "character_filters", "hidden": "hidden_size", "depth": "num_layers",
    "decay": "weight_decay", "clip_norm": "max_grad_norm",
}  # fmt: skip
_RECORDS = {
    "Tagged": "TaggedSentence", "Roles": "PredicateRoles", "Labelled": "LabelledText",
    "Pair": "TextPair", "Pronoun": "GapExample",
}  # fmt: skip
_RECORD_FIELDS = {"said": "pronoun_text"}
_TASK_JSON = {"words": "vocabulary", "learnt": "num_trained"}
# Patterns in today's names of parameters, and what 0.1 had: those of every head, then of each.
_PARAMETERS = [
    (r"^features\.word_embedding\.", "words.table."),
    (r"^features\.char_encoder\.", "words.encoder."),
    (r"^features\.scalar_mixes\.", "words.mixes."),
    (r"^features\.layer_mean$", "words.mean"),
    (r"^features\.layer_std$", "words.deviation"),
    (r"^features\.char_mean$", "words.usual"),
    (r"^features\.char_std$", "words.spread"),
    (r"^features\.fixed_vectors$", "words.given"),
    (r"^features\.", "words."),
    (r"\.forward_lstms\.", ".ahead."),
    (r"\.backward_lstms\.", ".back."),
    (r"^encoder\.", "context."),
    (r"^crf\.transitions$", "crf.moves"),
    (r"^crf\.start_scores$", "crf.begin"),
    (r"^crf\.end_scores$", "crf.end"),
]
_TAGGER_PARAMETERS = {"output": "score"}
_CLASSIFIER_PARAMETERS = {"attention": "attend", "classifier": "judge"}
_MODULES = {  # by task, the modules of its head
    "ner": _TAGGER_PARAMETERS,
    "chunking": _TAGGER_PARAMETERS,
    "pos": _TAGGER_PARAMETERS,
    "srl": {
        "output": "score", "predicate_embedding": "mark", "word_projection": "own",
        "predicate_projection": "chief",
    },
    "sentiment": _CLASSIFIER_PARAMETERS,
    "classification": _CLASSIFIER_PARAMETERS,
    "entailment": {"projection": "compare", "composition": "compose", "classifier": "judge"},
    "qa": {
        "attention": "meet", "self_attention": "look", "modeling": "ponder", "self_merge": "add",
        "start_output": "begin", "end_output": "end", "start_encoder": "to_begin",
        "end_encoder": "to_end",
    },
    "coreference": {
        "attention": "attend", "first_word": "first", "last_word": "last", "inner_words": "inner",
        "width_embedding": "width", "mention_score": "mention", "coarse": "rough",
        "anaphor": "later", "antecedent": "earlier", "product": "alike",
        "distance_embedding": "distance", "spelling_embedding": "spelling",
        "distance_score": "near", "spelling_score": "same", "pair_score": "pair",
    },
}  # fmt: skip
_ATTENTION = {"first": "one", "second": "other", "product": "both"}  # of questions


def rename_task_json(values: Mapping[str, Any]) -> dict[str, Any]:
    """The values of task.json under today's names; the version stays, and says how weights are."""
    if values.get("version") != OLD_VERSION:
        return {**values}
    renamed = {_TASK_JSON.get(name, name): value for name, value in values.items()}
    if isinstance(task := renamed.get("task"), str):
        renamed["task"] = _TASKS.get(task, task)
    if isinstance(settings := renamed.get("settings"), dict):
        renamed["settings"] = {_SETTINGS.get(name, name): v for name, v in settings.items()}
    return renamed


def stored_parameter(task: str, name: str) -> str:
    """The name that a parameter of a head had in the files of 0.1."""
    module, _, rest = name.partition(".")
    modules = _MODULES.get(task, {})
    if task == "qa" and module in ("attention", "self_attention"):
        part, dot, tail = rest.partition(".")
        rest = _ATTENTION[part] + dot + tail
    if module in modules:
        name = f"{modules[module]}.{rest}"
    for pattern, old in _PARAMETERS:
        name = re.sub(pattern, old, name)
    return name


def rename_weights(
    task: str, names: Iterable[str], stored: Mapping[str, Tensor]
) -> dict[str, Tensor]:
    """The weights of a checkpoint under today's names, as far as it has them."""
    if any(name.startswith("features.") for name in stored):
        return {**stored}
    old_names = {name: stored_parameter(task, name) for name in names}
    return {name: stored[old] for name, old in old_names.items() if old in stored}


def digest_of_settings(task: str, settings: TaskSettings) -> tuple[str, dict[str, Any]]:
    """The task's name and the settings as the digest of a run has them."""
    old_tasks, old_names = _inverted(_TASKS), _inverted(_SETTINGS)
    values = {old_names.get(name, name): value for name, value in asdict(settings).items()}
    return old_tasks.get(task, task), values


def digest_of_example(example: Any) -> str:
    """The text of an example as the digest of a run has it."""
    old_records, old_fields = _inverted(_RECORDS), _inverted(_RECORD_FIELDS)
    if (record := type(example).__name__) not in old_records:
        return repr(example)
    values = ", ".join(
        f"{old_fields.get(field.name, field.name)}={getattr(example, field.name)!r}"
        for field in fields(example)
    )
    return f"{old_records[record]}({values})"


def _inverted(names: Mapping[str, str]) -> dict[str, str]:
    return {new: old for old, new in names.items()}
