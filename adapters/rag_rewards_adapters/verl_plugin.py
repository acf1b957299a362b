"""verl's plugin: adds the parts of this package to verl's registries, in every process.

`import verl` loads it through its entry point (verl 0.9 and later; before that, through
VERL_USE_EXTERNAL_MODULES=rag_rewards_adapters.verl_plugin). Every process of a training run imports
this module, so it imports nothing of verl, torch or this package. It adds to each registry after
verl itself has imported the module of the registry.
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
    from rag_rewards_adapters.verl.manager import RagRewardManager

    module.register("rag_rewards")(RagRewardManager)


def add_loop(module: Any) -> None:
    # A name, so that a worker imports the class only when it needs it.
    module._agent_loop_registry["rag_group"] = {
        "_target_": "rag_rewards_adapters.verl.group.RagGroupAgentLoop"
    }


def add_estimator(module: Any) -> None:
    for name, estimator in ESTIMATORS.items():
        module.register_adv_est(name)(estimator)


def rag_grpo_clip_std(*arguments: Any, **named: Any) -> tuple[Any, Any]:
    """Return the advantage of LEAR. The first call imports its function."""
    from rag_rewards_adapters.verl.credit import grpo_clip_std

    return grpo_clip_std(*arguments, **named)


def _turn_estimator(name: str) -> Callable[..., tuple[Any, Any]]:
    """Return the estimator of a credit method. Its first call imports the functions."""

    def estimate(
        token_level_rewards: Any, response_mask: Any, index: Any, config: Any = None, **_: Any
    ) -> tuple[Any, Any]:
        from rag_rewards_adapters.verl.credit import turn_advantages

        return turn_advantages(name, token_level_rewards, response_mask, index, config)

    return estimate


TURN_ESTIMATORS = ("rag_turn_igpo", "rag_turn_mt_grpo", "rag_turn_return", "rag_turn_given")
ESTIMATORS: dict[str, Callable[..., tuple[Any, Any]]] = {
    "rag_grpo_clip_std": rag_grpo_clip_std,
    **{name: _turn_estimator(name) for name in (*TURN_ESTIMATORS, "rag_gdpo")},
}


class AfterImport(MetaPathFinder):
    """Calls a function with a module immediately after the code of the module has run.

    It finds no module itself. It takes the module spec of the other finders and adds a step to its
    loader.
    """

    def __init__(self, steps: dict[str, Callable[[Any], None]]) -> None:
        self.steps = steps
        self.done: dict[str, str] = {}

    def install(self) -> None:
        """Add the finder to `sys.meta_path`, and run the steps of modules that are loaded already.

        A second call does nothing.
        """
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
        spec = next(filter(None, self._specs(fullname, path, target)), None)
        loader: Any = spec and spec.loader
        if loader is not None and hasattr(loader, "exec_module"):
            execute = loader.exec_module

            def exec_module(module: ModuleType) -> None:
                del loader.exec_module  # restores the method of the class
                execute(module)
                self.run(fullname, module)

            loader.exec_module = exec_module
        return spec

    def _specs(self, name: str, path: Any, target: Any) -> Any:
        others = (finder for finder in sys.meta_path if finder is not self)
        return (finder.find_spec(name, path, target) for finder in others)

    def run(self, name: str, module: Any) -> None:
        """Run the step of a module. An error is logged, because verl also works without it."""
        try:
            self.steps[name](module)
            self.done[name] = "registered"
        except Exception as error:
            self.done[name] = f"{type(error).__name__}: {error}"
            log.warning("rag-rewards is not registered in %s: %s", name, error)


PLUGIN = AfterImport({MANAGER: add_manager, LOOP: add_loop, ESTIMATOR: add_estimator})
PLUGIN.install()


def loaded() -> dict[str, str]:
    """Return the state of each registration: `registered`, `not imported yet`, or an error.

    verl reports a plugin that fails only at the level DEBUG.
    """
    names = {"rag_rewards": MANAGER, "rag_group": LOOP, **dict.fromkeys(ESTIMATORS, ESTIMATOR)}
    return {name: PLUGIN.done.get(module, "not imported yet") for name, module in names.items()}
