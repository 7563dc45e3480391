"""Trained heads and their layer weights, as the service and the static page show them."""

from collections.abc import Iterable
from pathlib import Path

from elmokit.embedder import Embedder
from elmokit.errors import InputError
from elmokit.formats import ENGLISH
from elmokit.model_config import read_record
from elmokit.server.schemas import LayerWeightsResponse, LearnedLayerWeights
from elmokit.tasks.saved_model import TaskModel, load_task

_SHIPPED_LAYER_WEIGHTS = "layer_weights.json"  # beside the English model


def load_tasks(
    folders: Iterable[Path],
) -> tuple[dict[str, TaskModel], list[LearnedLayerWeights]]:
    """Trained heads by the name of their task, and their layer weights.

    Those of one task go by the names of their folders.
    """
    loaded = [(folder.resolve().name, load_task(folder)) for folder in folders]
    task_names = [trained.task.name for _, trained in loaded]
    tasks: dict[str, TaskModel] = {}
    for folder, trained in loaded:
        task = trained.task.name
        name = folder if task_names.count(task) > 1 else task
        if name in tasks:
            raise InputError(f"two trained heads would be served as {name}; rename a folder")
        tasks[name] = trained
    return tasks, [
        LearnedLayerWeights(
            task=trained.task.name,
            name=folder,
            position=position,
            layers=[*trained.layers],
            weights=weights,
        )
        for folder, trained in loaded
        for position, weights in trained.layer_weights().items()
    ]


class ShippedLayerWeights(LayerWeightsResponse):
    """The layer weights of tasks that were trained with one biLM."""

    fingerprint: str


def read_shipped_layer_weights(
    embedder: Embedder, folder: Path = ENGLISH
) -> list[LearnedLayerWeights]:
    """The layer weights that ship with the English model; none for any other model."""
    path = folder / _SHIPPED_LAYER_WEIGHTS
    if not path.is_file():
        return []
    expected = (
        "the fingerprint of a biLM, and layer_weights of task, name, position, layers and weights"
    )
    shipped = read_record(path, ShippedLayerWeights, expected)
    return shipped.layer_weights if shipped.fingerprint == embedder.pretrained.fingerprint() else []
