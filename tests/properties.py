"""Hypothesis profiles of the property tests.

By default, each test always has the same examples. `make fuzz` draws more and random examples.
"""

from __future__ import annotations

from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers
from hypothesis.internal.constants_ast import Constants

USUAL = 100
"""Number of examples of a property test in the default profile, unless the test sets it."""

settings.register_profile(
    "fixed",
    max_examples=USUAL,
    derandomize=True,
    database=None,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    print_blob=True,
)
settings.register_profile(
    "fuzz",
    max_examples=30 * USUAL,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    print_blob=True,
)


def budget(examples: int) -> settings:
    """Return settings with this number of examples, or with 30 times as many in `fuzz`."""
    return settings(max_examples=max(1, examples * settings().max_examples // USUAL))


def forget_imported_constants() -> None:
    """Make the examples of Hypothesis independent of the imported modules.

    Hypothesis adds constants from the source code of all imported modules to its examples. A change
    of the code, or another order of the tests, would change the examples.
    """
    providers._get_local_constants = Constants
