"""Entailment by a T5 model that generates "1" or "0": TRUE (ALCE, Trust-Score) and MiniCheck."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rag_rewards.errors import UsageError
from rag_rewards.models.local_models import load_model
from rag_rewards.models.nli.pieces import (
    EncodedPair,
    encode_template,
    load_fast_tokenizer,
    padding_id,
)
from rag_rewards.models.nli.profiles import PROFILES, CheckerProfile

_ANSWERS = ("1", "0")
"""The outputs of TRUE for yes and for no."""


@dataclass(frozen=True)
class Seq2SeqEntailment:
    """T5 with an input in the template of its profile.

    The probability of entailment is that of the yes token against the no token, at the position
    where its two answers first differ. `prefix` are the tokens of the decoder before it.

    Source: Honovich et al. 2022 (TRUE), as in ALCE.
    """

    model: Any
    tokenizer: Any
    pad: int
    prefix: tuple[int, ...]
    yes: int
    no: int
    profile: CheckerProfile = PROFILES["true"]

    @property
    def label(self) -> str:
        """The outputs for yes and for no and the profile, for the fingerprint."""
        other = "" if self.profile.name == "true" else f" profile={self.profile.name}"
        return f"answers={'/'.join(_ANSWERS)}{other}"

    def encode(self, pairs: Sequence[tuple[str, str]]) -> Iterator[EncodedPair | None]:
        """Yield the tokens of each pair, None if one of its texts has no token."""
        return encode_template(self.tokenizer, self.profile.template, pairs)

    def probabilities(self, inputs: Mapping[str, Any]) -> Any:
        """Return the probability of entailment and 0 for each row, a tensor with two columns."""
        import torch

        n = len(inputs["input_ids"])
        prefix = torch.tensor([self.prefix] * n, device=self.model.device)
        logits = self.model(**inputs, decoder_input_ids=prefix, use_cache=False).logits
        shares = logits[:, -1, [self.yes, self.no]].float().softmax(-1)
        return shares * shares.new_tensor([1.0, 0.0])


def load_seq2seq(
    folder: Path, dtype: Any, device: Any, profile: CheckerProfile
) -> Seq2SeqEntailment:
    """Load a T5 model."""
    from transformers import AutoModelForSeq2SeqLM

    model = load_model(AutoModelForSeq2SeqLM, folder, dtype, device)
    tokenizer = load_fast_tokenizer(folder, model)
    start = model.config.decoder_start_token_id
    if start is None:
        raise UsageError(f"{folder}: config.json has no decoder_start_token_id")
    yes, no = (tokenizer.encode(answer, add_special_tokens=False) for answer in _ANSWERS)
    shared = 0
    while shared < min(len(yes), len(no)) and yes[shared] == no[shared]:
        shared += 1
    if shared == min(len(yes), len(no)):
        raise UsageError(
            f"{folder}: the answers 1 and 0 cannot be distinguished: the tokenizer encodes them as "
            f"{yes} and {no}"
        )
    return Seq2SeqEntailment(
        model,
        tokenizer,
        padding_id(tokenizer, model),
        prefix=(start, *yes[:shared]),
        yes=yes[shared],
        no=no[shared],
        profile=profile,
    )
