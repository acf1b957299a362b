"""Per-token estimators of KL(π‖π_ref), in nats, from log π and log π_ref of a sampled token.

Each takes plain numbers, or tensors with the usual arithmetic and `expm1`.
"""

from __future__ import annotations

import math
from typing import Any


def k1(logp: Any, ref: Any) -> Any:
    """log π − log π_ref: unbiased, of either sign.

    >>> k1(-1.0, -1.5)
    0.5
    """
    return logp - ref


def k2(logp: Any, ref: Any) -> Any:
    """½ (log π_ref − log π)² ≥ 0: ARENA's stable penalty (its released code).

    >>> k2(-1.0, -1.5)
    0.125
    """
    return 0.5 * (ref - logp) ** 2


def k3(logp: Any, ref: Any) -> Any:
    """π_ref/π − log(π_ref/π) − 1 ≥ 0: unbiased, GRPO's default (TruthRL).

    >>> round(k3(-1.0, -1.5), 6)
    0.106531
    """
    ratio = ref - logp
    expm1 = ratio.expm1() if hasattr(ratio, "expm1") else math.expm1(ratio)
    return expm1 - ratio
