"""Settings: dotted keys, nested mappings, typed values, and errors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

import pytest

from rag_rewards import RECIPES, SettingError, UnknownRecipeError, recipe
from rag_rewards.loading import load_recipe
from rag_rewards.recipes import definition_of
from rag_rewards.rewards.document_relevance import Relevance
from rag_rewards.settings import Part, Setting, SettingTable, about, did_you_mean, dotted


def flat(name, changes, **options):
    return recipe(name, changes, **options).settings


@pytest.mark.parametrize(
    "changes",
    [
        {"accuracy.metric": "f1"},
        {"accuracy": {"metric": "f1"}},
        {"metric": "f1"},  # one key ends so
    ],
)
def test_three_ways_to_name_a_setting(changes):
    assert flat("arena", changes) == RECIPES["arena"].defaults() | {"accuracy.metric": "f1"}


def test_every_setting_can_be_set_to_its_default():
    for name, plan in RECIPES.items():
        defaults = plan.defaults()
        assert flat(name, defaults) == defaults == flat(name, {}) == flat(name, None)
        assert list(defaults) == [s.key for s in plan.settings.descriptions]
        for setting in plan.settings.descriptions:
            shown = list(setting.default) if isinstance(setting.default, tuple) else setting.default
            assert defaults[setting.key] == shown


def test_lists_can_be_text_with_commas():
    assert flat("lear", {"answers": "r, e"})["answers"] == ["r", "e"]
    assert flat("lear", {"answers": ["e"]})["answers"] == ["e"]
    phrases = flat("truthrl", {"abstention.phrases": "No idea, Unknown"})["abstention.phrases"]
    assert phrases == ["No idea", "Unknown"]


def test_numbers_of_numpy():
    numpy = pytest.importorskip("numpy")
    for half in (numpy.float64(0.5), numpy.float32(0.5)):
        assert flat("arena", {"relevance.min_precision": half})["relevance.min_precision"] == 0.5
        assert Relevance(min_precision=half).min_precision == 0.5
    assert flat("rag-total", {"cost.budget": numpy.int64(5)})["cost.budget"] == 5
    with pytest.raises(SettingError, match="min_precision: Expected float"):
        Relevance(min_precision=numpy.float64(1.5))


def test_null_and_whole_numbers():
    assert flat("ctrl-rag", {"threshold": None})["threshold"] is None
    assert flat("ctrl-rag", {"threshold": 2})["threshold"] == 2.0
    # One setting, one signature: 2 and 2.0 are the same.
    assert recipe("ctrl-rag", {"threshold": 2}).signature == (
        recipe("ctrl-rag", {"threshold": 2.0}).signature
    )


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        (
            "arena",
            {"acuracy.metric": "f1"},
            "recipe arena has no setting 'acuracy.metric'; did you mean 'accuracy.metric'?",
        ),
        ("arena", {"accuracy": {"metrics": "f1"}}, "'accuracy.metrics'; did you mean 'accuracy.m"),
        ("arena", {"zzz": 1}, "recipe arena has no setting 'zzz'; there are: sections.tags"),
        ("arena", {"accuracy": "f1"}, "recipe arena has no setting 'accuracy'"),
        ("arena", {"accuracy": True}, "recipe arena has no setting 'accuracy'"),
        ("truthrl", {"normalizr": "squad"}, "did you mean 'accuracy.normalizer'"),
        ("ground-grpo", {"threshold": 0.4}, "recipe ground-grpo has no setting 'threshold'"),
        (
            "arena",
            {"bonus.value": "much"},
            "recipe arena: setting bonus.value: Expected float, got str",
        ),
        ("arena", {"bonus.value": True}, "setting bonus.value: Expected float, got bool"),
        ("arena", {"metric": "bleu"}, "setting accuracy.metric: Invalid enum value 'bleu'"),
        ("arena", {"relevance.min_precision": 2}, "setting relevance.min_precision: Expected"),
        ("arena", {"accuracy.strict": "yes"}, "has no setting .* 0.8.0; use 'accuracy.undecided'"),
        ("arena", {"dates": True}, "no setting 'dates' since version 0.8.0; use 'accuracy.norm"),
        ("igpo", {"outcome.metric": "f1"}, "since version 0.8.0; use 'accuracy.metric'"),
        ("truthrl", {"outcome.metric": "f1"}, "has no setting 'outcome.metric'; there are"),
        ("arena", {"accuracy.ask": "x"}, "no setting 'accuracy.ask' .*; use 'accuracy.undecided'"),
        ("lear", {"equivalences": "x"}, "'equivalences' .*; use 'accuracy.normalizer'"),
        ("lear", {"unclosed": "to_end"}, "no setting 'unclosed' .*; use 'sections.tags'"),
        ("truthrl", {"reasoning": True}, "no setting 'reasoning' .*; use 'reasoning.combine'"),
        ("ground-grpo", {"process": True}, "no setting 'process' .*; use 'process.weight'"),
        ("ground-grpo-stage1", {"refusal.answered": 1}, "no effect in this recipe: remove it"),
        ("carr", {"max_cited": 5}, "'max_cited' since version 0.8.0; it is always 20: for another"),
        ("lear", {"length.tau": 0}, "setting length.tau: Expected float > 0"),
        ("lear", {"answers": []}, "setting answers: Expected array of length >= 1"),
        ("lear", {"answers": "r,x"}, r"setting answers\[1\]: Invalid enum value 'x'"),
        ("truthrl", {"verifier": "f1>=2"}, "setting verifier: Expected str matching"),
        ("ctrl-rag", {"floor": 1}, "setting floor: Expected float < 1"),
        ("igpo", {"template": "a"}, "recipe igpo: template: must be igpo, plain or a text that"),
        ("rag-total", {"cost.budget": 0}, "setting cost.budget: Expected int >= 1"),
    ],
)
def test_errors_contain_the_recipe_and_the_setting(name, changes, message):
    with pytest.raises(SettingError, match=message):
        recipe(name, changes)


def test_an_ambiguous_short_key_is_an_error():
    with pytest.raises(SettingError, match="recipe ctrl-rag has no setting 'fold'"):
        recipe("ctrl-rag", {"fold": True})
    both = flat("lear", {"temperature": 0.5, "gated": True})
    assert (both["decode.temperature"], both["length.gated"]) == (0.5, True)
    with pytest.raises(SettingError, match="has no setting 'words"):
        flat("lear", {"words.": True})


def test_settings_are_values():
    changes = {"accuracy": {"metric": "f1"}}
    recipe("arena", changes, hardened=True)
    assert changes == {"accuracy": {"metric": "f1"}}


@pytest.mark.parametrize("name", ["arena", "naive-grpo", "ctrl-rag", "rag-total"])
@pytest.mark.parametrize("changes", [{"accuracy.metric": "lenient"}, {"metric": "lenient"}])
def test_the_hardened_profile_rejects_values_for_evaluation(name, changes):
    message = (
        f"recipe {name}: setting accuracy.metric: lenient is only for evaluation, because a policy "
        "can exploit it: set another value, or do not use the hardened profile"
    )
    with pytest.raises(SettingError, match=message):
        recipe(name, changes, hardened=True)
    assert recipe(name, changes).correct is not None


def test_the_likelihood_alone_is_hardened_with_any_metric():
    lenient = recipe("ctrl-rag-clr", {"accuracy.metric": "lenient"}, hardened=True)
    assert lenient.correct.metric == "lenient"


def test_values_for_evaluation_exist():
    for name, definition in RECIPES.items():
        for key, values in definition.rejected.items():
            for value in values:
                recipe(name, {key: value})
                assert definition.defaults(hardened=True)[key] != value


def test_descriptions():
    result = {s.key: s for s in RECIPES["truthrl"].settings.descriptions}
    assert result["scheme"] == Setting(
        "scheme",
        "ternary | binary | geometric",
        "ternary",
        "rewards of correct, uncertain and incorrect answers: ternary 1, 0, −1; binary 1, −1, −1; "
        "geometric (FaithRL) y0, 0, −x0, and on a row with answerable=false −x0, y0, −x0",
        "TruthRL, section 3.2: ternary",
    )
    assert result["abstention.phrases"].type == "list of text"
    types = {s.key: s.type for s in RECIPES["ctrl-rag"].settings.descriptions}
    assert types["threshold"] == "number | null"
    assert types["among"] == "all | correct"
    assert {s.key: s.type for s in RECIPES["lear"].settings.descriptions}[
        "decode.max_tokens"
    ] == "whole number"


@dataclass(frozen=True)
class Pace:
    speed: Annotated[float, about("words per second", "ours: slow", ge=0)] = 1.0
    unit: Annotated[Literal["s", "min"], about("unit of time", "ours: SI")] = "s"
    name: str = "pace"


def test_a_part_lists_the_annotated_fields_of_an_object():
    part = Part(Pace(speed=2.0), prefix="", values={"unit": ("s",)})
    table = SettingTable("own", {"pace": part}, {"speed": "Pace, section 2"})
    assert table.defaults == {"speed": 2.0, "unit": "s"}
    assert [each.source for each in table.descriptions] == ["Pace, section 2", "ours: SI"]
    assert table.build(table.values({"speed": 3})) == {"pace": Pace(speed=3.0)}
    with pytest.raises(SettingError, match="recipe own: setting unit: Invalid enum value 'min'"):
        table.values({"unit": "min"})
    assert SettingTable("own", {"pace": Part(Pace(), fixed=("unit",))}).defaults == {
        "pace.speed": 1.0
    }


def test_defaults_that_the_papers_state():
    def default(name, key):
        return RECIPES[name].defaults()[key]

    stated = {
        ("arena", "accuracy.normalizer"): "triviaqa",
        ("arena", "bonus.value"): 10.0,
        ("ground-grpo", "refusal.threshold"): 0.85,
        ("ground-grpo", "refusal.answered"): 0.5,
        ("ground-grpo", "exact_match.credit"): 0.5,
        ("ground-grpo", "citation.credit"): 0.5,
        ("ground-grpo", "citation.bad_penalty"): -0.5,
        ("ground-grpo", "citation.threshold"): 0.5,
        ("ground-grpo", "aggregate"): "sum",
        ("ground-grpo", "process.weight"): 0.0,
        ("lear", "weights.answer"): 0.8,
        ("lear", "weights.length"): 0.1,
        ("lear", "weights.format"): 0.1,
        ("lear", "length.omega"): 0.9,
        ("lear", "length.tau"): 0.5,
        ("lear", "length.gamma"): 0.5,
        ("lear", "decode.max_tokens"): 64,
        ("lear", "decode.temperature"): 0.0,
        ("truthrl", "verifier"): "judge",
        ("truthrl", "scheme"): "ternary",
        ("truthrl", "reasoning.weight"): 0.5,
        ("ctrl-rag", "threshold"): 1.0,
        ("ctrl-rag", "length_norm"): "sqrt",
        ("ctrl-rag", "fusion"): "gate",
        ("ctrl-rag", "weight"): 1.0,
        ("ctrl-rag", "min_spread"): 0.0,
        ("ctrl-rag", "no_spread"): "zero",
        ("ctrl-rag", "accuracy.metric"): "substring",
        ("ctrl-rag", "accuracy.normalizer"): "lower",
        ("rag-total", "alpha"): 0.5,
        ("rag-total", "beta"): 0.5,
        ("rag-total", "eta"): 0.0,
        ("rag-total", "citation.include_thinking"): True,
    }
    assert {key: default(*key) for key in stated} == stated


def test_nested_settings_become_dotted():
    assert dotted({"a": {"b": {"c": 1}}, "d.e": 2, "f": {}}) == {"a.b.c": 1, "d.e": 2}


@pytest.mark.parametrize("settings", ["bonus.value=5", ["bonus.value"]])
def test_settings_that_are_no_mapping(settings):
    for load in (recipe, load_recipe):
        with pytest.raises(SettingError, match="settings must be a mapping, found"):
            load("arena", settings)


def test_unknown_recipes():
    with pytest.raises(UnknownRecipeError, match=r"no recipe 'areena'; did you mean 'arena'\?"):
        definition_of("areena")
    with pytest.raises(UnknownRecipeError, match="no recipe 'xyz'; there are: arena, ground-grpo"):
        recipe("xyz")
    assert did_you_mean("aaa", ["b", "c"]) == "; there are: b, c"
