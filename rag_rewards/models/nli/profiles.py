"""Profiles of fact checkers: how a model reads a premise and a claim, and which output counts.

A profile is data. Models that differ from an entailment model with named labels are loaded by it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from rag_rewards.errors import UsageError
from rag_rewards.settings import did_you_mean

Output = Literal["label", "first_token", "claim_tokens", "answer", "chat"]


@dataclass(frozen=True)
class CheckerProfile:
    """How a fact checker reads a pair.

    models    names of the models
    source    where the form was read
    license   license of the models, as their cards or repositories state it
    pattern   regular expression of the names of the models
    template  text of an input with {premise} and {hypothesis}; {sep} is the token that ends a text;
              "" for a pair of texts
    output    label: the label of the input; first_token: the label of its first token;
              claim_tokens: 1 − the greatest probability of the label among the tokens of the claim;
              answer: the answer "1" of T5 against "0"; chat: a chat model
    label     index of the label; None for the one that the config names
    chunk     maximum number of tokens of a premise in one input, None if only the whole is limited
    limit     maximum number of tokens of an input, None for that of the model's files
    """

    name: str
    models: str
    source: str
    license: str = "that of the model"
    pattern: str = "(?!)"
    template: str = ""
    output: Output = "label"
    label: int | None = None
    chunk: int | None = None
    limit: int | None = None


_FACTCG = (
    '{premise}\n\nChoose your answer: based on the paragraph above can we conclude that "'
    '{hypothesis}"?\n\nOPTIONS:\n- Yes\n- No\nI think the answer is '
)
_HHEM = (
    "<pad> Determine if the hypothesis is true given the premise?\n\nPremise: {premise}\n\n"
    "Hypothesis: {hypothesis}"
)
_LETTUCE = "Summarize the following text:\npassage 1: {premise}\noutput:{sep}{hypothesis}"
_MINICHECK = "Liyan06/MiniCheck at 00a1ed4, minicheck/inference.py"

PROFILES: dict[str, CheckerProfile] = {
    profile.name: profile
    for profile in (
        CheckerProfile(
            name="nli",
            models="any classifier of pairs with a label for entailment",
            source="the config of the model",
        ),
        CheckerProfile(
            name="true",
            models="TRUE, and other T5 models that answer 1 or 0",
            template="premise: {premise} hypothesis: {hypothesis}",
            output="answer",
            source="princeton-nlp/ALCE at 3fdc2ed, eval.py",
        ),
        CheckerProfile(
            name="minicheck",
            models="MiniCheck-RoBERTa-Large, MiniCheck-DeBERTa-v3-Large",
            pattern="minicheck.*bert",
            template="{premise}{sep}{hypothesis}",
            label=1,
            chunk=400,
            license="MIT",
            source=_MINICHECK,
        ),
        CheckerProfile(
            name="minicheck-t5",
            models="MiniCheck-Flan-T5-Large",
            pattern="minicheck.*t5",
            template="predict: {premise}{sep}{hypothesis}",
            output="answer",
            chunk=650,
            limit=2048,
            license="MIT",
            source=_MINICHECK,
        ),
        CheckerProfile(
            name="bespoke-minicheck",
            models="Bespoke-MiniCheck-7B",
            pattern="bespoke.*minicheck",
            template="Document: {premise}\nClaim: {hypothesis}",
            output="chat",
            limit=32768,
            license="CC BY-NC 4.0",
            source=_MINICHECK,
        ),
        CheckerProfile(
            name="factcg",
            models="FactCG-DeBERTa-v3-Large",
            pattern="factcg",
            template=_FACTCG,
            label=1,
            chunk=715,
            limit=2048,
            license="MIT",
            source="derenlei/FactCG at 49748b9, factcg/inference.py",
        ),
        CheckerProfile(
            name="hhem",
            models="HHEM-2.1-Open",
            pattern="hhem|hallucination_evaluation_model",
            template=_HHEM,
            output="first_token",
            label=1,
            limit=4096,
            license="Apache 2.0",
            source="modeling_hhem_v2.py of the model",
        ),
        CheckerProfile(
            name="lettucedetect",
            models="lettucedect-base-modernbert-en-v1 and others",
            pattern="lettuced",
            template=_LETTUCE,
            output="claim_tokens",
            label=1,
            limit=4096,
            license="MIT",
            source="KRLabsOrg/LettuceDetect at 13632d9, detectors/transformer.py, no question",
        ),
        CheckerProfile(
            name="alignscore",
            models="AlignScore, converted to a RobertaForSequenceClassification",
            pattern="alignscore",
            label=0,
            chunk=455,
            license="MIT",
            source="yuh-zha/AlignScore at a0936d5, inference.py, nli_sp",
        ),
    )
}
"""The profiles by name. Of a chunk in words (500, 550 and 350), a word is 1.3 tokens."""


def profile_of(
    model: str | Path, config: Mapping[str, Any], name: str | None = None
) -> CheckerProfile:
    """Return the profile with this name, or the one of the name or of the config of a model.

    Raises UsageError for an unknown name, for a chat model, and for a model that needs code of its
    own repository, which is never executed.
    """
    if name is not None and name not in PROFILES:
        raise UsageError(f"unknown profile {name!r}{did_you_mean(name, PROFILES)}")
    profile = PROFILES[name] if name is not None else _recognized(model, config)
    if profile.output == "chat":
        raise UsageError(
            f"{profile.models} is a chat model that needs code of its own repository, which is not "
            "executed here: serve it, and set judge to its address"
        )
    if config.get("auto_map") and profile.name != "hhem":
        raise UsageError(
            f"{model} needs code of its own repository (auto_map in config.json), which is not "
            "executed: choose a model that transformers contains"
        )
    return profile


def _recognized(model: str | Path, config: Mapping[str, Any]) -> CheckerProfile:
    kind, architecture = _kind(config)
    if kind == "HHEMv2":
        return PROFILES["hhem"]
    path = Path(model)
    # The folder of a model of the hub is models--OWNER--NAME/snapshots/REVISION.
    stored = path.parent.name == "snapshots" and len(path.parts) > 2
    name = path.parent.parent.name if stored else path.name
    for profile in PROFILES.values():
        if re.search(profile.pattern, name, re.IGNORECASE):
            return profile
    is_t5 = architecture.endswith("ForConditionalGeneration") and "t5" in kind
    return PROFILES["true" if is_t5 else "nli"]


def _kind(config: Mapping[str, Any]) -> tuple[str, str]:
    """Return the type of a model and its architecture, "" if its config does not state it."""
    return str(config.get("model_type") or ""), str(
        next(iter(config.get("architectures") or ()), "")
    )


def check_architecture(profile: CheckerProfile, config: Mapping[str, Any]) -> None:
    """Raise UsageError if a model has no output as in its profile."""
    _, architecture = _kind(config)
    endings: dict[Output, str] = {
        "label": "ForSequenceClassification",
        "claim_tokens": "ForTokenClassification",
        "answer": "ForConditionalGeneration",
    }
    ending = endings.get(profile.output)
    if not architecture or ending is None or architecture.endswith(ending):
        return
    raise UsageError(
        f"{architecture} is not an entailment model of the profile {profile.name}, which is a "
        f"…{ending}: set nli_profile to one of {', '.join(PROFILES)}, or choose another model"
    )
