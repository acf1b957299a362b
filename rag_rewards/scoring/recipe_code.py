"""Digests of the files of a user's recipes."""

from __future__ import annotations

from rag_rewards.files.version import sha256
from rag_rewards.loading import RecipeSpec


def recipe_code(spec: RecipeSpec | None) -> str:
    """Return the digests of the files of a user's recipes, in the order of the stages.

    The result is empty for recipes by name and for objects. Files that such a file imports are not
    included.
    """
    if spec is None:
        return ""
    references = [reference for reference in spec.recipes if ":" in reference]
    if not references:
        return ""
    from rag_rewards.loading import import_module_of  # only for your own recipes

    modules = map(import_module_of, references)
    files = [module.__file__ for module in modules if module.__file__ is not None]
    return " ".join(sha256(file)[:16] for file in files)
