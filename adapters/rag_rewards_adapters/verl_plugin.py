"""verl's plugin: what this package adds to verl's own registries, in every process.

`import verl` loads it by its entry point (verl 0.9 and later; before that, by
VERL_USE_EXTERNAL_MODULES=rag_rewards_adapters.verl_plugin). Every process of a training pays for
that import, so nothing of verl, torch or this package is imported here: each registry is filled
right after verl itself imports the module that holds it.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

log = logging.getLogger("rag_rewards")

MANAGER = "verl.experimental.reward_loop.reward_manager.registry"
LOOP = "verl.experimental.agent_loop.agent_loop"
ESTIMATOR = "verl.trainer.ppo.core_algos"


def add_manager(module: Any) -> None:
    from rag_rewards_adapters.verl_manager import RagRewardManager

    module.register("rag_rewards")(RagRewardManager)


def add_loop(module: Any) -> None:
    # By its name: the worker imports it when the first rollout asks for it.
    module._agent_loop_registry["rag_group"] = {
        "_target_": "rag_rewards_adapters.verl_group.RagGroupAgentLoop"
    }


def add_estimator(module: Any) -> None:
    module.register_adv_est("rag_grpo_clip_std")(rag_grpo_clip_std)


def rag_grpo_clip_std(*given: Any, **named: Any) -> tuple[Any, Any]:
    """LEAR's advantage, imported when the first batch asks for it."""
    from rag_rewards_adapters.verl import grpo_clip_std

    return grpo_clip_std(*given, **named)


class AfterImport(MetaPathFinder):
    """Calls a function with a module right after the module's own code has run.

    It finds no module itself: it asks the finders behind it, and adds a step to what they found.
    """

    def __init__(self, steps: dict[str, Callable[[Any], None]]) -> None:
        self.steps = steps
        self.done: dict[str, str] = {}

    def install(self) -> None:
        """From now on; modules that are there already get their step at once. Twice is once."""
        if self in sys.meta_path:
            return
        sys.meta_path.insert(0, self)
        for name in self.steps:
            if name in sys.modules:
                self.run(name, sys.modules[name])

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname not in self.steps:
            return None
        spec = next(filter(None, self._found(fullname, path, target)), None)
        loader: Any = spec and spec.loader
        if loader is not None and hasattr(loader, "exec_module"):
            execute = loader.exec_module

            def exec_module(module: ModuleType) -> None:
                del loader.exec_module  # the loader is as it was
                execute(module)
                self.run(fullname, module)

            loader.exec_module = exec_module
        return spec

    def _found(self, name: str, path: Any, target: Any) -> Any:
        others = (finder for finder in sys.meta_path if finder is not self)
        return (finder.find_spec(name, path, target) for finder in others)

    def run(self, name: str, module: Any) -> None:
        """The step of a module. What goes wrong is logged, not raised: verl runs without us too."""
        try:
            self.steps[name](module)
            self.done[name] = "registered"
        except Exception as error:
            self.done[name] = f"{type(error).__name__}: {error}"
            log.warning("rag-rewards is not registered in %s: %s", name, error)


PLUGIN = AfterImport({MANAGER: add_manager, LOOP: add_loop, ESTIMATOR: add_estimator})
PLUGIN.install()


def loaded() -> dict[str, str]:
    """What is registered in this process, by name: `registered`, `not imported yet`, or why not.

    verl logs a plugin's failure at DEBUG only; this tells it after `import verl`.
    """
    names = {"rag_rewards": MANAGER, "rag_group": LOOP, "rag_grpo_clip_std": ESTIMATOR}
    return {name: PLUGIN.done.get(module, "not imported yet") for name, module in names.items()}
