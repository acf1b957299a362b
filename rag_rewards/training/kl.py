"""Per-token estimators of KL(π‖π_ref), in nats, from log π and log π_ref of a sampled token.

Each takes numbers, or tensors with the usual arithmetic and `expm1`.
"""

from __future__ import annotations

import math
from typing import Any


def k1(logp: Any, ref: Any) -> Any:
    """Return log π − log π_ref, which is unbiased and can be negative.

    >>> k1(-1.0, -1.5)
    0.5
    """
    return logp - ref


def k2(logp: Any, ref: Any) -> Any:
    """Return ½ (log π_ref − log π)² ≥ 0, the stable penalty of ARENA (in its released code).

    >>> k2(-1.0, -1.5)
    0.125
    """
    return 0.5 * (ref - logp) ** 2


def k3(logp: Any, ref: Any) -> Any:
    """Return π_ref/π − log(π_ref/π) − 1 ≥ 0, which is unbiased and the default of GRPO (TruthRL).

    >>> round(k3(-1.0, -1.5), 6)
    0.106531
    """
    ratio = ref - logp
    expm1 = ratio.expm1() if hasattr(ratio, "expm1") else math.expm1(ratio)
    return expm1 - ratio
