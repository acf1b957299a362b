"""Entailment by a classifier of text pairs: BERT, RoBERTa, DeBERTa, BART and others."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rag_rewards.errors import UsageError
from rag_rewards.models.local_models import load_model, sentence_modules
from rag_rewards.models.nli.pieces import (
    ENCODING_OPTIONS,
    EncodedPair,
    encode_template,
    encoded_pair,
    load_fast_tokenizer,
    padding_id,
    span,
    special_tokens,
)
from rag_rewards.models.nli.profiles import PROFILES, CheckerProfile


@dataclass(frozen=True)
class PairClassifier:
    """A classifier of text pairs, or of their tokens, with one logit per label.

    `index` is the label "entailment", and `contradiction` the label of that name, None if there is
    none. If there is a single logit, it is that of entailment. The profile says how a pair becomes
    an input, and which output counts.
    """

    model: Any
    tokenizer: Any
    pad: int
    index: int
    contradiction: int | None = None
    profile: CheckerProfile = PROFILES["nli"]

    @property
    def label(self) -> str:
        """The output that counts as entailment and the profile, for the fingerprint."""
        other = "" if self.profile.name == "nli" else f" profile={self.profile.name}"
        return f"label={self.index}{other}"

    def encode(self, pairs: Sequence[tuple[str, str]]) -> Iterator[EncodedPair | None]:
        """Yield the tokens of each pair, None if one of its texts has no token."""
        if not pairs:
            return
        has_types = "token_type_ids" in self.tokenizer.model_input_names
        if template := self.profile.template:
            yield from encode_template(self.tokenizer, template, pairs, has_types=has_types)
            return
        premises, hypotheses = zip(*pairs, strict=True)
        batch = self.tokenizer(list(premises), list(hypotheses), **ENCODING_OPTIONS)
        special = special_tokens(self.tokenizer)
        for encoding in batch.encodings:
            text_of = encoding.sequence_ids
            premise, hypothesis = (span([i == text for i in text_of]) for text in (0, 1))
            types = list(encoding.type_ids) if has_types else None
            yield encoded_pair(list(encoding.ids), types, premise, hypothesis, special)

    def probabilities(self, inputs: Mapping[str, Any]) -> Any:
        """Return the probabilities of entailment and contradiction, a tensor with two columns.

        Without a label for contradiction, its column is 0.
        """
        import torch

        arguments = {name: value for name, value in inputs.items() if name != "hypothesis_mask"}
        logits = self.model(**arguments).logits.float()
        if self.profile.output == "claim_tokens":
            faults = logits.softmax(-1)[..., self.index] * inputs["hypothesis_mask"]
            support = 1 - faults.amax(-1)
            return torch.stack([support, torch.zeros_like(support)], -1)
        if self.profile.output == "first_token":
            logits = logits[:, 0]
        shares = logits.sigmoid() if logits.shape[-1] == 1 else logits.softmax(-1)
        entailment = shares[:, self.index]
        if self.contradiction is None:
            return torch.stack([entailment, torch.zeros_like(entailment)], -1)
        return shares[:, [self.index, self.contradiction]]


def load_classifier(
    folder: Path,
    dtype: Any,
    device: Any,
    config: Mapping[str, Any],
    label: str | int | None,
    profile: CheckerProfile,
) -> PairClassifier:
    """Load a classifier. `label` is the name or index of its label for entailment."""
    from transformers import (
        AutoModelForSequenceClassification,
        AutoModelForTokenClassification,
    )

    _check_modules(folder)
    label = profile.label if label is None else label
    names = label_names(config)
    if names:
        entailment_index(names, label)  # raises before the weights are loaded
    options: dict[str, Any] = {"num_labels": len(names)} if names else {}
    of_text = profile.output == "label"
    if config.get("model_type") == "HHEMv2":
        options = hhem_options(config)
    kind = AutoModelForSequenceClassification if of_text else AutoModelForTokenClassification
    model = load_model(kind, folder, dtype, device, trust_remote_code=False, **options)
    names = names or [f"LABEL_{i}" for i in range(model.config.num_labels)]
    index = entailment_index(names, label)
    tokenizer = load_fast_tokenizer(folder, model)
    pad = padding_id(tokenizer, model)
    return PairClassifier(model, tokenizer, pad, index, contradiction_index(names), profile)


FLAN_T5 = {
    "google/flan-t5-base": {
        "d_model": 768,
        "d_kv": 64,
        "d_ff": 2048,
        "num_layers": 12,
        "num_heads": 12,
        "vocab_size": 32128,
        "feed_forward_proj": "gated-gelu",
    }
}
"""The configs of the models that HHEM was trained from, which its own config only names."""


def hhem_options(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments that load HHEM-2.1-Open as a token classifier of transformers.

    Its weights are those of a T5 token classifier below the name `t5`. Its own code is not used.
    """
    from transformers import T5Config

    foundation = str(config.get("foundation", "google/flan-t5-base"))
    if foundation not in FLAN_T5:
        raise UsageError(
            f"HHEM of the foundation {foundation} is unknown: use one of {', '.join(FLAN_T5)}"
        )
    return {
        "config": T5Config(**FLAN_T5[foundation], num_labels=2),
        "key_mapping": {r"^t5\.": ""},
    }


def label_names(config: Mapping[str, Any]) -> list[str]:
    """Return the labels of a config.json in the order of the logits, [] if it has none.

    A config can contain id2label, label2id or both. Raises UsageError if they contradict each
    other, do not number the labels from 0, or cannot be read.
    """
    try:
        id2label = {int(i): str(name) for i, name in (config.get("id2label") or {}).items()}
        label2id = {int(i): str(name) for name, i in (config.get("label2id") or {}).items()}
    except (AttributeError, TypeError, ValueError) as error:
        raise UsageError(f"the model's config has labels that cannot be read: {error}") from error
    choices = [names for names in (id2label, label2id) if names and not _generic(names.values())]
    if len(choices) == 2 and choices[0] != choices[1]:
        raise UsageError(
            f"the model's config contradicts itself: id2label is {id2label}, label2id gives "
            f"{label2id}"
        )
    names = choices[0] if choices else id2label or label2id
    if sorted(names) != list(range(len(names))):
        raise UsageError(f"the model's config does not number its labels from 0: {names}")
    return [names[i] for i in range(len(names))]


def entailment_index(names: Sequence[str], label: str | int | None = None) -> int:
    """Return the index of the label for entailment: the given one, or the one with that name.

    Raises UsageError if no label or more than one has the name. "not_entailment" is another name.

    >>> entailment_index(["CONTRADICTION", "NEUTRAL", "ENTAILMENT"])
    2
    >>> entailment_index(["not_entailment", "entailment"])
    1
    >>> entailment_index(["LABEL_0", "LABEL_1"], label=1)
    1
    """
    listing = ", ".join(f"{i}: {name}" for i, name in enumerate(names))
    if isinstance(label, int):
        if not 0 <= label < len(names):
            raise UsageError(f"entailment_label={label} is none of the model's labels ({listing})")
        return label
    if label is not None:
        matches = [i for i, name in enumerate(names) if name.casefold() == label.casefold()]
        subject = f"entailment_label={label!r} is"
    else:
        matches = [i for i, name in enumerate(names) if _means_entailment(name)]
        subject = "the model's config does not specify which label is entailment: it is"
    if len(matches) != 1:
        raise UsageError(
            f"{subject} {'more than one' if matches else 'none'} of its labels ({listing}); if it "
            "is an entailment model, name the index with entailment_label=…"
        )
    return matches[0]


def contradiction_index(names: Sequence[str]) -> int | None:
    """Return the index of the only label for contradiction, None without one.

    >>> contradiction_index(["CONTRADICTION", "NEUTRAL", "ENTAILMENT"])
    0
    >>> contradiction_index(["not_entailment", "entailment"]) is None
    True
    """
    matches = [i for i, name in enumerate(names) if _CONTRADICTION.fullmatch(name)]
    return matches[0] if len(matches) == 1 else None


_CONTRADICTION = re.compile(r"[\W\d_]*contradict(?:s|ed|ing|ion|ions|ory)?[\W\d_]*", re.IGNORECASE)


def _means_entailment(name: str) -> bool:
    """Match entailment, ENTAIL and Entailed, but not "not_entailment" or "NonEntailment"."""
    return re.fullmatch(r"[\W\d_]*entail(s|ed|ing|ment|ments)?[\W\d_]*", name, re.I) is not None


def _generic(names: Iterable[str]) -> bool:
    return all(re.fullmatch(r"(?i)label_\d+", name) for name in names)


def _check_modules(folder: Path) -> None:
    """Raise UsageError if modules.json lists parts that would not be loaded."""
    modules = sentence_modules(folder)
    others = [kind for kind, _ in modules if not kind.endswith(".Transformer")]
    if others:
        raise UsageError(f"{folder}: modules.json has parts beside a classifier: {others}")
