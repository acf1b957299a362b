"""The recipe that a signature records, so that rows can be scored again."""

from __future__ import annotations

from typing import Any

from rag_rewards.decision import split_decision
from rag_rewards.definition import RecipeDefinition
from rag_rewards.errors import SignatureError
from rag_rewards.loading import RecipeSpec
from rag_rewards.recipes import definition_of
from rag_rewards.settings import current_settings
from rag_rewards.signature import CODE_KEY, Signature, StageSignature, release
from rag_rewards.version import __version__

FIRST_VERSION = (0, 7, 0)
"""The first version whose signatures can be used."""


def recorded_spec(signature: Signature) -> RecipeSpec:
    """Return the recipe of a signature with all settings, without its models.

    Raises SignatureError for a signature of a newer version or of a custom recipe,
    UnknownRecipeError for an unknown name, and SettingError for an invalid setting.

    >>> recorded_spec(Signature.parse("rag-rewards 0.8.0 arena")).settings["bonus.value"]
    10.0
    """
    settings = [recorded_settings(signature, stage) for stage in signature.parts]
    if not signature.stages:
        return RecipeSpec(recipe=signature.recipe, settings=settings[0])
    return RecipeSpec(
        stages=[
            {"recipe": stage.recipe, "settings": values, "until_step": stage.until_step}
            for stage, values in zip(signature.stages, settings, strict=True)
        ]
    )


def recorded_settings(
    signature: Signature, stage: StageSignature, definition: RecipeDefinition | None = None
) -> dict[str, Any]:
    """Return every setting of a stage of a signature by dotted key, validated.

    A setting of 0.7.0 becomes the one in its place. `definition` is required for a recipe that is
    not built in. Raises SignatureError for a version before 0.7.0 or a newer one and for a custom
    recipe, UnknownRecipeError, and SettingError.
    """
    if release(signature.version) < FIRST_VERSION:
        raise SignatureError(
            f"the signature is of rag-rewards {signature.version}, and this version reads 0.7.0 "
            "and later: score the rows again, or install the version that scored them"
        )
    if release(signature.version) > release(__version__):
        raise SignatureError(
            f"the signature is of rag-rewards {signature.version}, but this is {__version__}: "
            f"install rag-rewards {signature.version} or later"
        )
    if stage.is_custom:
        raise SignatureError(
            f"the signature names the custom recipe {stage.recipe!r}, whose code it does not "
            "contain: score with a built-in recipe"
        )
    definition = definition or definition_of(stage.recipe)
    values = definition.defaults(hardened=stage.hardened)
    own = {key: value for key, value in stage.settings.items() if key != CODE_KEY}
    changes, decision = split_decision(current_settings(own, values))
    recorded = definition.settings.values(values | changes)
    return recorded | (decision.settings if decision else {})
