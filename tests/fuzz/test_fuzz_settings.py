"""Random settings, configuration files, prompt templates and signatures of users."""

from __future__ import annotations

import tempfile
from pathlib import Path

import yaml
from fuzz_checks import outcome, same_twice, unchanged
from fuzz_rows import ROWS, python_values, values
from fuzz_texts import any_texts, texts
from hypothesis import given
from hypothesis import strategies as st
from properties import budget

from rag_rewards.cli.recipe_options import parse_settings, read_config
from rag_rewards.loading import load_recipe
from rag_rewards.models.model_options import ModelOptions
from rag_rewards.prompts import PLACEHOLDERS, PromptTemplate
from rag_rewards.recipes import RECIPES as DEFINITIONS
from rag_rewards.recipes import definition_of
from rag_rewards.rows import decode_row
from rag_rewards.signature import Signature, signature_of

RECIPES = tuple(DEFINITIONS)
KEYS = {name: [each.key for each in definition_of(name).settings.descriptions] for name in RECIPES}
scalars = st.one_of(
    texts,
    values,
    st.sampled_from(
        "null true 1e-3 1e400 .nan .inf -.inf [a, b] {a: 1} 0x1F 2024-01-01 2024-99-99 !!set{} "
        "&a [*a] <<: *x !!python/object:os.system ( [ ((a+)+)+$ (\\d+) 1_000 12:30:45 ~ ''".split()
    ),
)


@st.composite
def settings(draw, value=scalars):
    name = draw(st.sampled_from(RECIPES))
    keys = st.one_of(
        st.sampled_from(KEYS[name]),
        st.sampled_from(KEYS[name]).map(lambda key: key.rpartition(".")[2]),
        texts,
    )
    return name, draw(st.dictionaries(keys, value, max_size=3))


def loaded(name, changes, hardened=False):
    """Return the signature of a recipe with settings, or the error."""
    return same_twice(lambda: signature_of(load_recipe(name, changes, hardened=hardened)))


@given(settings(st.one_of(scalars, python_values)), st.booleans())
@budget(80)
def test_settings_in_python(given, hardened):
    name, changes = given
    with unchanged(changes):
        signature = loaded(name, changes, hardened)
    if signature.startswith("rag-rewards "):
        assert str(Signature.parse(signature)) == signature


@given(settings())
@budget(60)
def test_settings_of_the_command_line(given):
    name, changes = given
    parsed = outcome(lambda: parse_settings([f"{key}={value}" for key, value in changes.items()]))
    if isinstance(parsed, dict):
        loaded(name, parsed)


@given(
    st.one_of(
        settings().map(lambda given: {"recipe": given[0], **given[1]}),
        settings().map(
            lambda given: {"stages": [{"recipe": given[0], "settings": given[1], "until_step": 1}]}
        ),
        settings(values).map(lambda given: {"models": {"dtype": given[0], **given[1]}}),
        values,
    ),
    st.one_of(st.just(""), texts),
)
@budget(60)
def test_configuration_files(content, appended):
    text = yaml.safe_dump(content, allow_unicode=True) + appended
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "settings.yaml"
        path.write_text(text, "utf-8", newline="")
        result = outcome(lambda: read_config(path))
    if isinstance(result, str):
        return
    config, models = result
    outcome(lambda: ModelOptions.of(models))
    mapping = {"settings": config.settings, "hardened": config.hardened, "stages": config.stages}
    if config.recipe is None or ":" not in config.recipe:
        outcome(lambda: load_recipe({"recipe": config.recipe, **mapping}))


pieces = st.one_of(
    st.sampled_from([f"{{{name}}}" for name in PLACEHOLDERS]),
    st.sampled_from(["{{json}}", "{", "}", "{ question }", "{x}", "<answer>", "<think>", "{}"]),
    any_texts,
)


@given(
    st.one_of(
        st.lists(pieces, max_size=8).map(" ".join),
        st.lists(pieces, max_size=3).map(lambda more: "{documents} {question} " + " ".join(more)),
    ),
    st.sampled_from(RECIPES),
    st.sampled_from(ROWS),
)
@budget(60)
def test_prompt_templates(text, name, row):
    template = same_twice(lambda: PromptTemplate(text))
    if isinstance(template, str):
        return
    definition, rollout = definition_of(name), decode_row(row)
    for prompt in definition.prompts.values():
        applied = outcome(lambda prompt=prompt: template.apply(prompt, definition.output))
        if not isinstance(applied, str):
            outcome(lambda applied=applied: applied.messages(rollout))


@given(
    st.one_of(texts, st.sampled_from(RECIPES).map(lambda name: f"rag-rewards 0.2.0 {name} ")), texts
)
@budget(60)
def test_signatures(text, more):
    signature = same_twice(lambda: Signature.parse(text + more))
    if isinstance(signature, Signature):
        assert str(Signature.parse(str(signature))) == str(signature)
