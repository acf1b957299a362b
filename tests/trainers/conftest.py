"""What the marks of tests inside trainers promise; docs/build_runs.py writes it to a page."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest


@pytest.fixture(autouse=True)
def optimizer_steps(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail a test with the mark `optimizer_step` in which no optimizer changes weights."""
    if request.node.get_closest_marker("optimizer_step") is None:
        yield
        return
    with weights_change():
        yield


@contextmanager
def weights_change() -> Iterator[None]:
    """Raise AssertionError at the end if no optimizer of torch has changed weights."""
    import torch
    from torch.optim import optimizer as hooks

    before: list[Any] = []
    changed: list[bool] = []

    def weights(optimizer: Any) -> list[Any]:
        groups = optimizer.param_groups
        return [weight.detach().clone() for group in groups for weight in group["params"]]

    def keep(optimizer: Any, *_: Any) -> None:
        before[:] = weights(optimizer)

    def compare(optimizer: Any, *_: Any) -> None:
        pairs = zip(before, weights(optimizer), strict=True)
        changed.append(not all(torch.equal(*pair) for pair in pairs))

    handles = [
        hooks.register_optimizer_step_pre_hook(keep),
        hooks.register_optimizer_step_post_hook(compare),
    ]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
    assert any(changed), "no optimizer of torch changed weights"
