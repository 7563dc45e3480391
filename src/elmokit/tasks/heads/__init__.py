"""Heads of the tasks, one module each; every module here registers its tasks."""

import pkgutil
from importlib import import_module

from elmokit.tasks.task_registry import TASKS

for module in pkgutil.iter_modules(__path__):
    import_module(f"{__name__}.{module.name}")
for name in sorted(TASKS):
    TASKS[name] = TASKS.pop(name)  # in alphabetical order
