"""The rewarded answers of LEAR in a tiny world whose answer does not depend on the rationale."""

import sys

from experiment import Experiment, Variant, main
from lear import lear, variant

EXPERIMENT = Experiment(
    name="lear_detached",
    title="LEAR: a base model that answers without its rationale",
    form="lear",
    variants=(
        Variant("base", None),
        variant("f", lear("f")),
        variant("r + e + f", lear()),
    ),
    columns=("format", "answer", "o_r", "o_e", "o_f"),
    panels=("answer", "o_r", "o_e"),
    base="detached",
    fresh=400,
    notes="",
)

if __name__ == "__main__":
    sys.exit(main(EXPERIMENT))
