"""The prompt of prepared rows, and whether the rows contain documents."""

from __future__ import annotations

from rag_rewards.definition import RecipeDefinition
from rag_rewards.errors import OptionError, UsageError
from rag_rewards.loading import load_recipe
from rag_rewards.preparation.options import PrepareOptions
from rag_rewards.prompts import (
    BLANK,
    DEFAULT,
    OutputForm,
    Prompt,
    PromptTemplate,
    adjusted,
    prompt_named,
)
from rag_rewards.recipe_object import Recipe
from rag_rewards.turns.dialects import DIALECTS

_ABOUT_DOCUMENTS = ("documents", "supporting", "answerable")


def prepared_prompt(options: PrepareOptions, recipe: RecipeDefinition) -> Prompt:
    """Return the prompt that the options select.

    A template replaces its message. Raises OptionError for an unknown prompt or a bad template, for
    options that add documents to a prompt without any, and for training with a prompt
    that contains gold data or with rows without documents that the recipe cannot score.
    """
    name = options.prompt or DEFAULT
    if name in DIALECTS and name not in recipe.prompts:
        raise OptionError(
            "{prompt} {name}: {reference} has no prompts of dialects: use {recipe} search-r1, or "
            "another {prompt}",
            name=name,
            reference=recipe.name,
        )
    prompt = prompt_named(name, recipe.prompts, recipe.name)
    if not prompt.shows_documents:
        _check_documents(options, recipe.name)
    template = None
    if options.prompt_template is not None:
        template = PromptTemplate.read(options.prompt_template)
    forms = (options.document_form, options.document_separator)
    form = prepared_recipe(options).output_form
    prompt = adjusted(prompt, form, template, *forms)
    _check_answer(prompt, form, name, options)
    if prompt.shows_gold and options.trainer != "none":
        raise OptionError(
            "{prompt} {name} contains the gold answer, so that {trainer} {value} cannot train with "
            "it: leave out {trainer}",
            name=name,
            value=options.trainer,
        )
    if not prompt.shows_documents and options.trainer != "none":
        _check_training(recipe, options.trainer)
    return prompt


def prepared_definition(reference: str) -> RecipeDefinition:
    """Return the facts of a recipe, of a curriculum those of the last stage.

    Raises UsageError if there is no such recipe, and for stages with different prompts.
    """
    recipes = load_recipe(reference).recipes
    if len({recipe.prompt.identity for recipe in recipes}) > 1:
        raise UsageError(
            f"{reference} is a curriculum whose stages have different prompts: name the recipe of "
            "one stage"
        )
    return recipes[-1].facts


def prepared_recipe(options: PrepareOptions) -> Recipe:
    """Return the recipe of the options with its profile, of a curriculum the last one."""
    return load_recipe(options.recipe, hardened=options.hardened).recipes[-1]


def _check_answer(prompt: Prompt, form: OutputForm, name: str, options: PrepareOptions) -> None:
    """Raise OptionError if a prompt for the hardened profile does not request the answer's part."""
    if not options.hardened or options.trainer == "none":
        return
    if form.answer_mark not in prompt.message_for(BLANK):
        raise OptionError(
            "{prompt} {name} does not request the {part}: choose another prompt, or leave out "
            "{hardened}",
            name=name,
            part=form.answer_part(options.recipe),
        )


def _check_documents(options: PrepareOptions, recipe: str) -> None:
    """Raise OptionError for options that add documents to a prompt that contains none."""
    for option in ("noise", "noise_to", "documents_from"):
        if not getattr(options, option):
            continue
        if options.prompt is None:
            raise OptionError(
                f"the prompt of {{name}} contains no documents: leave out {{{option}}}",
                name=recipe,
            )
        raise OptionError(
            f"{{prompt}} {{name}} contains no documents, which {{{option}}} adds: use one of them",
            name=options.prompt,
        )


def _check_training(recipe: RecipeDefinition, trainer: str) -> None:
    """Raise OptionError if a recipe cannot score rows without documents."""
    field = next((name for name in recipe.fields if name in _ABOUT_DOCUMENTS), None)
    if field is not None:
        raise OptionError(
            "{recipe} {name} reads `{field}`, so that {trainer} {value} cannot train on rows "
            "without documents: leave out {trainer}",
            name=recipe.name,
            field=field,
            value=trainer,
        )
