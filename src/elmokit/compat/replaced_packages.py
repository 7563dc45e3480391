"""Other packages, replaced by modules of elmokit, so that old programs run on it."""

import runpy
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

from elmokit.errors import ElmokitError


@dataclass(frozen=True)
class ReplacedPackage:
    """A package, the contents of its modules that are replaced, and what to use for the rest.

    `not_here` says of what is missing, by the beginning of its name, what it was and what to use.
    `title` is what messages call the package, `part` what elmokit has of it.
    """

    name: str
    title: str
    part: str
    modules: Mapping[str, Mapping[str, object]]
    not_here: Mapping[str, tuple[str, str]]

    def install(self) -> None:
        """Make imports of the package find elmokit's modules."""
        present = sys.modules.get(self.name)
        if present is not None and not isinstance(present, _StandIn):
            raise ElmokitError(
                f"{self.title} itself has been imported already; call install() before that, or "
                "not at all"
            )
        for name, contents in self.modules.items():
            module = _StandIn(name, self)
            vars(module).update(contents)
            sys.modules[name] = module
            parent, _, child = name.rpartition(".")
            if parent and child not in self.modules[parent]:
                setattr(sys.modules[parent], child, module)
        explainer = _Explainer(self)
        if not any(getattr(finder, "prefix", "") == explainer.prefix for finder in sys.meta_path):
            sys.meta_path.insert(0, explainer)

    def explain(self, name: str) -> str:
        """What a missing name was, and what to use."""
        prefixes = (known for known in self.not_here if f"{name}.".startswith(f"{known}."))
        what, instead = self.not_here[max(prefixes, key=len)]
        return f"{name} belongs to {what}; elmokit stands in for {self.part} only: use {instead}"


def run_program(usage: str) -> None:
    """Run the script or, after -m, the module that sys.argv begins with, as Python would."""
    match sys.argv:
        case ["-m", module, *_]:
            sys.argv.pop(0)
            sys.path[0] = ""
            runpy.run_module(module, run_name="__main__", alter_sys=True)
        case [script, *_] if Path(script).is_file():
            sys.path[0] = str(Path(script).resolve().parent)
            runpy.run_path(script, run_name="__main__")
        case [script, *_] if not script.startswith("-"):
            sys.exit(f"{script}: no such script")
        case _:
            sys.exit(usage)


class _StandIn(ModuleType):
    """A module with what elmokit has of it."""

    def __init__(self, name: str, package: ReplacedPackage) -> None:
        super().__init__(name, f"elmokit's stand-in for {package.part}")
        self.__spec__ = ModuleSpec(name, None, is_package=True)
        self.__path__: list[str] = []
        self._package = package

    def __getattr__(self, name: str) -> object:
        raise AttributeError(self._package.explain(f"{self.__name__}.{name}"))


class _Explainer(MetaPathFinder):
    """Explains why a module of a replaced package, or a name in it, cannot be imported."""

    def __init__(self, package: ReplacedPackage) -> None:
        self.prefix = f"{package.name}."
        self._package = package

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name.startswith(self.prefix):
            # With the full name, `from ... import` would replace the message by one of its own.
            raise ModuleNotFoundError(self._package.explain(name), name=self._package.name)
        return None
