"""Entailment by a T5 model that generates "1" or "0" (TRUE, as in ALCE and Trust-Score)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rag_rewards.errors import UsageError
from rag_rewards.models.local_models import load_model
from rag_rewards.models.nli.pieces import (
    ENCODING_OPTIONS,
    EncodedPair,
    encoded_pair,
    load_fast_tokenizer,
    padding_id,
    span,
    special_tokens,
)

_ANSWERS = ("1", "0")
"""The outputs of TRUE for yes and for no."""


@dataclass(frozen=True)
class Seq2SeqEntailment:
    """T5 with the input "premise: … hypothesis: …".

    The probability of entailment is that of the yes token against the no token, at the position
    where its two answers first differ. `prefix` are the tokens of the decoder before it.

    Source: Honovich et al. 2022 (TRUE); the input of its released model, as in ALCE.
    """

    model: Any
    tokenizer: Any
    pad: int
    prefix: tuple[int, ...]
    yes: int
    no: int

    @property
    def label(self) -> str:
        """The outputs for yes and for no, for the fingerprint."""
        return f"answers={'/'.join(_ANSWERS)}"

    def encode(self, pairs: Sequence[tuple[str, str]]) -> Iterator[EncodedPair | None]:
        """Yield the tokens of each pair, None if one of its texts has no token."""
        if not pairs:
            return
        texts = [f"premise: {premise} hypothesis: {hypothesis}" for premise, hypothesis in pairs]
        batch = self.tokenizer(texts, **ENCODING_OPTIONS)
        special = special_tokens(self.tokenizer)
        for (premise, hypothesis), encoding in zip(pairs, batch.encodings, strict=True):
            start = len("premise: ")
            second = start + len(premise) + len(" hypothesis: ")
            premise_span, hypothesis_span = (
                span([a < end and b > begin for a, b in encoding.offsets])
                for begin, end in (
                    (start, start + len(premise)),
                    (second, second + len(hypothesis)),
                )
            )
            yield encoded_pair(list(encoding.ids), None, premise_span, hypothesis_span, special)

    def probabilities(self, inputs: Mapping[str, Any]) -> Any:
        """Return the probability of entailment and 0 for each row, a tensor with two columns."""
        import torch

        n = len(inputs["input_ids"])
        prefix = torch.tensor([self.prefix] * n, device=self.model.device)
        logits = self.model(**inputs, decoder_input_ids=prefix, use_cache=False).logits
        shares = logits[:, -1, [self.yes, self.no]].float().softmax(-1)
        return shares * shares.new_tensor([1.0, 0.0])


def load_seq2seq(folder: Path, dtype: Any, device: Any) -> Seq2SeqEntailment:
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
    )


def is_seq2seq(config: Mapping[str, Any]) -> bool:
    """Return whether a config is that of a T5 model with a decoder, or of a classifier.

    Raises UsageError for the config of any other architecture.
    """
    architecture = next(iter(config.get("architectures") or ()), "")
    if architecture.endswith("ForConditionalGeneration") and "t5" in str(config.get("model_type")):
        return True
    if architecture.endswith("ForSequenceClassification") or not architecture:
        return False
    raise UsageError(
        f"{architecture} is not an entailment model: use a …ForSequenceClassification, or a T5 "
        "…ForConditionalGeneration that generates its answer"
    )
