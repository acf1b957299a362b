"""Property tests: how many examples they try, and which.

By default the examples of a property are always the same. `make fuzz` draws others, and more.
"""

from __future__ import annotations

from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers
from hypothesis.internal.constants_ast import Constants

USUAL = 100
"""Examples of a property that names no number, in the default profile."""

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
    """Return settings for this many examples, or for a multiple of them under `fuzz`."""
    return settings(max_examples=max(1, examples * settings().max_examples // USUAL))


def forget_imported_constants() -> None:
    """Make Hypothesis draw the same examples whatever has been imported before.

    It mixes constants from the source of all imported modules into its examples. A change of
    the code, or another order of the tests, would change them.
    """
    providers._get_local_constants = Constants
