"""Training scripts: a recipe's training settings as a script of a trainer, one module per trainer.

Each value has a comment with its source. Where the paper states no value, the comment says so.
"""

from __future__ import annotations

from rag_rewards.training.scripts import (
    axolotl,
    ms_swift,
    nemo_gym,
    openrlhf,
    skyrl,
    slime,
    trl,
    verifiers,
    verl,
)
from rag_rewards.training.scripts.start import Start, start_of, weights_of
from rag_rewards.training.scripts.trl_baselines import BASELINES
from rag_rewards.training.scripts.writer import ScriptWriter

__all__ = [
    "BASELINES",
    "WRITERS",
    "ScriptWriter",
    "Start",
    "start_of",
    "weights_of",
]

WRITERS: dict[str, ScriptWriter] = {
    "trl": trl.WRITER,
    "verl": verl.WRITER,
    "openrlhf": openrlhf.WRITER,
    "ms-swift": ms_swift.WRITER,
    "skyrl": skyrl.WRITER,
    "slime": slime.WRITER,
    "nemo-gym": nemo_gym.WRITER,
    "verifiers": verifiers.WRITER,
    "axolotl": axolotl.WRITER,
}
"""The writer of each trainer of GRPO, by the name that `rag-rewards init` takes."""
