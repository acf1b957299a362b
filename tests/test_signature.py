"""Signatures: round trips, one line for equal settings, old versions, and invalid text."""

from __future__ import annotations

import dataclasses
import json

import pytest
from growth import assert_linear
from hypothesis import assume, given
from hypothesis import strategies as st
from properties import budget

import rag_rewards.loading
from rag_rewards import (
    RECIPES,
    Curriculum,
    SettingError,
    SignatureError,
    Stage,
    UnknownRecipeError,
    UsageError,
    __version__,
    custom,
    recipe,
)
from rag_rewards.loading import RecipeSpec, load_recipe, recorded_spec
from rag_rewards.signature import Signature, StageSignature, release, signature_of

some, many = budget(60), budget(200)
HEAD = f"rag-rewards {__version__}"

# --- strategies ----------------------------------------------------------------------------------

TRICKY = st.sampled_from(
    [
        'a b"=c',
        " hardened",
        'models={"a":"b"}',
        "}] {",
        "\n\r\t\x1b[31m",
        "\u2028é😀\u202e",
        "\\",
        "",
    ]
)
TEXT = TRICKY | st.text(max_size=20)
NUMBERS = st.floats(0.01, 1) | st.integers(1, 40) | st.floats(0.01, 1e9) | st.just(1e20)
TEXTS_OF = {
    "verifier": st.sampled_from(["exact", "substring", "f1>=0.5"]),
    "pattern": TRICKY.map(lambda text: r"\[(\d+)\] = hardened" + text.replace("\\", "")),
}


def value_of(setting):
    """Return a value that is usually valid for the setting."""
    name, kind = setting.key.rpartition(".")[2], setting.type
    if name in TEXTS_OF:
        return TEXTS_OF[name]
    if kind == "true | false":
        return st.booleans()
    if kind == "list of text":
        return st.lists(TEXT, min_size=1, max_size=3)
    if kind.startswith("list of "):
        choices = kind.removeprefix("list of ").split(" | ")
        return st.lists(st.sampled_from(choices), min_size=1, unique=True)
    if kind.startswith("number"):
        return NUMBERS | st.none() if kind.endswith("null") else NUMBERS
    if kind == "whole number":
        return st.integers(1, 10**6)
    return st.sampled_from(kind.split(" | "))


def changes_of(name):
    every = {s.key: value_of(s) for s in RECIPES[name].settings.descriptions}
    return st.sets(st.sampled_from(sorted(every)), max_size=5).flatmap(
        lambda keys: st.fixed_dictionaries({key: every[key] for key in sorted(keys)})
    )


@st.composite
def recipes(draw):
    name = draw(st.sampled_from(sorted(RECIPES)))
    try:
        return recipe(name, draw(changes_of(name)), hardened=draw(st.booleans()))
    except SettingError:
        assume(False)


def brief(rollout):
    return 1.0


CUSTOM = TEXT.map(lambda name: custom(name, brief))
MODELS = st.dictionaries(
    st.sampled_from("policy prompt nli judge".split()) | TEXT, TEXT, max_size=3
)


@st.composite
def curricula(draw):
    parts = draw(st.lists(recipes() | CUSTOM, min_size=1, max_size=3))
    ends = sorted(
        draw(st.sets(st.integers(0, 10**6), min_size=len(parts) - 1, max_size=len(parts) - 1))
    )
    stages = [Stage(part, end) for part, end in zip(parts, [*ends, None], strict=True)]
    return Curriculum(tuple(stages))


# --- round trips ---------------------------------------------------------------------------------


@some
@given(recipes() | CUSTOM | curricula(), MODELS)
def test_signatures_round_trip(reward, models):
    text = signature_of(reward, models)
    signature = Signature.parse(text)
    assert signature == dataclass_of(reward, models)
    assert str(signature) == text
    assert text.isprintable()
    assert text.startswith(f"{HEAD} ")
    bare = Signature.parse(reward.signature)
    assert bare.models == {}
    assert bare.parts == signature.parts


def dataclass_of(reward, models):
    result = reward.identity
    return Signature(
        version=__version__,
        recipe=result.recipe,
        settings=result.settings,
        hardened=result.hardened,
        stages=result.stages,
        models=models,
    )


@some
@given(recipes())
def test_the_options_of_a_signature_make_the_same_recipe(rebuilt):
    spec = recorded_spec(Signature.parse(rebuilt.signature))
    assert spec == RecipeSpec(recipe=rebuilt.name, settings=rebuilt.settings)
    again = load_recipe(spec)
    assert again.settings == rebuilt.settings
    assert again.signature == rebuilt.signature


@some
@given(curricula())
def test_the_options_of_a_curriculum_name_its_stages(rebuilt):
    signature = Signature.parse(rebuilt.signature)
    if any(stage.is_custom for stage in signature.stages):
        with pytest.raises(SignatureError, match="custom recipe"):
            recorded_spec(signature)
        return
    again = load_recipe(recorded_spec(signature))
    assert again.signature == rebuilt.signature
    assert [stage.recipe.settings for stage in again.stages] == [
        stage.recipe.settings for stage in rebuilt.stages
    ]


JSON = st.recursive(
    st.none()
    | st.booleans()
    | TEXT
    | st.integers(-(10**300), 10**300)
    | st.floats(allow_nan=False, allow_infinity=False),
    lambda values: st.lists(values, max_size=3) | st.dictionaries(TEXT, values, max_size=3),
    max_leaves=5,
)
VERSIONS = st.tuples(*[st.integers(0, 99)] * 3).map(lambda numbers: ".".join(map(str, numbers)))


@many
@given(VERSIONS, TEXT, st.dictionaries(TEXT, JSON, max_size=4), st.booleans(), MODELS)
def test_any_values_round_trip(version, name, values, hardened, models):
    signature = Signature(
        version=version, recipe=name, settings=values, hardened=hardened, models=models
    )
    assert Signature.parse(str(signature)) == signature
    assert signature.settings == values
    assert str(signature).isprintable()
    backwards = dict(reversed(values.items()))
    copy = Signature(
        version=version, recipe=name, settings=backwards, hardened=hardened, models=models
    )
    assert str(copy) == str(signature)


# --- the format ----------------------------------------------------------------------------------


def test_the_format():
    assert recipe("arena").signature == f"{HEAD} arena"
    assert recipe("arena", hardened=True).signature == f"{HEAD} arena hardened"
    changed = recipe("arena", {"bonus.value": 5, "metric": "f1"}, hardened=True)
    values = '{"accuracy.metric":"f1","bonus.value":5}'
    assert changed.signature == f'{HEAD} arena hardened {{"settings":{values}}}'
    assert signature_of(recipe("lear"), {"policy": "a b", "judge": "c"}) == (
        f'{HEAD} lear {{"models":{{"judge":"c","policy":"a b"}}}}'
    )
    first = recipe("ground-grpo-stage1", {"aggregate": "mean"}, hardened=True)
    curriculum = Curriculum((Stage(first, 100), Stage(recipe("ground-grpo"))))
    assert curriculum.signature == (
        f'{HEAD} curriculum {{"stages":[{{"recipe":"ground-grpo-stage1","until_step":100,'
        '"settings":{"aggregate":"mean"},"hardened":true},{"recipe":"ground-grpo"}]}'
    )
    own = custom("my own", brief)
    values = {"code_digest": own.identity.settings["code_digest"], "formula": "brief"}
    text = json.dumps({"settings": values | {"parts": ["brief"]}}, separators=(",", ":"))
    assert own.signature == f'{HEAD} "my own" {text}'


@pytest.mark.parametrize("name", RECIPES)
@pytest.mark.parametrize("hardened", [False, True])
def test_equal_settings_are_equal_lines_however_they_were_set(name, hardened):
    rebuilt = recipe(name, hardened=hardened)
    assert rebuilt.signature == f"{HEAD} {name}" + " hardened" * hardened
    assert recipe(name, rebuilt.settings).signature == rebuilt.signature
    assert recipe(name, rebuilt.settings, hardened=True).signature == rebuilt.signature


def test_the_shorter_list_of_differences_is_written():
    profile = RECIPES["rag-total"].hardened_values
    keys = sorted(profile)
    assert len(keys) == 8
    one_less = recipe("rag-total", {key: profile[key] for key in keys[1:]})
    assert one_less.signature == f'{HEAD} rag-total hardened {{"settings":{{"{keys[0]}":"lower"}}}}'
    # Of two equally long lists the one from the defaults is written.
    half = recipe("rag-total", {key: profile[key] for key in keys[4:]})
    assert half.signature == (
        f'{HEAD} rag-total {{"settings":{{"citation.include_thinking":false,'
        '"citation.measure":"f1","citation.min_precision":0.5,"sections.repeated":"missing"}}'
    )
    assert half.signature == recipe("rag-total", half.settings, hardened=True).signature


def parsed(settings):
    return Signature.parse(f"{HEAD} arena {json.dumps({'settings': settings})}")


def test_whole_numbers_are_written_without_a_fraction():
    for value in (5, 5.0):
        settings = recipe("arena", {"bonus.value": value}).identity.settings
        assert str(settings) == "{'bonus.value': 5}"
    for value in (0, 0.0, -0.0):
        settings = recipe("arena", {"bonus.value": value}).identity.settings
        assert str(settings) == "{'bonus.value': 0}"
    assert parsed({"a": 5.0}) == parsed({"a": 5})
    for value in (float("inf"), float("nan")):
        with pytest.raises(SettingError, match="is not a finite number"):
            Signature(recipe="arena", settings={"a": value})


def test_settings_of_a_recipe_that_is_not_built_in_are_all_written():
    settings = {"scale": 2.0, "names": []}
    rebuilt = dataclasses.replace(custom("own", brief), settings=settings)
    assert rebuilt.identity.settings.keys() == {"code_digest", "names", "scale"}


# --- which recipe is in force --------------------------------------------------------------------


def test_the_recipe_of_a_step_in_a_signature():
    one = Signature(recipe="arena", settings={"bonus.value": 5})
    assert one.at(None) == one.at(3) == StageSignature("arena", None, {"bonus.value": 5})
    stages = '[{"recipe":"a","until_step":10},{"recipe":"b","until_step":20},{"recipe":"c"}]'
    several = Signature.parse(f'{HEAD} curriculum {{"stages":{stages}}}')
    assert several.at(None) is None
    assert [several.at(step).recipe for step in (-1, 9, 10, 19, 20, 10**9)] == list("aabbcc")


# --- signatures of other versions ----------------------------------------------------------------


def test_signatures_of_0_7_are_read():
    settings, models = 'accuracy.metric="f1" bonus.value=5', '{"judge":"j"}'
    signature = Signature.parse(f"rag-rewards 0.7.0 arena {settings} hardened models={models}")
    assert signature == Signature(
        version="0.7.0",
        recipe="arena",
        settings={"accuracy.metric": "f1", "bonus.value": 5},
        hardened=True,
        models={"judge": "j"},
    )
    recorded = recorded_spec(signature).settings
    assert recorded == recipe("arena", signature.settings, hardened=True).settings
    stages = '[{"recipe":"arena","until_step":3,"hardened":true},{"recipe":"lear"}]'
    curriculum = Signature.parse(f"rag-rewards 0.7.0 curriculum stages={stages}")
    assert [stage.recipe for stage in curriculum.stages] == ["arena", "lear"]


def test_replaced_settings_of_0_7_are_read():
    def recorded(text):
        return recorded_spec(Signature.parse(f"rag-rewards 0.7.0 {text}")).settings

    old = "accuracy.strict=true accuracy.certainty=0.9 accuracy.dates=true"
    assert recorded(f"arena {old}") == recipe("arena", {"accuracy.undecided": "wrong"}).settings
    changed = {"accuracy.undecided": "wrong", "accuracy.normalizer": "spelling"}
    text = f'arena {old} accuracy.normalizer="unicode"'
    assert recorded(text) == recipe("arena", changed).settings
    assert recorded("truthrl dates=true hardened")["accuracy.normalizer"] == "spelling"
    assert recorded("truthrl reasoning.enabled=true")["reasoning.combine"] == "multiplicative"
    both = 'truthrl reasoning.combine="additive" reasoning.enabled=true'
    assert recorded(both)["reasoning.combine"] == "additive"
    assert recorded("ground-grpo process.enabled=true")["process.weight"] == 1.0
    assert recorded('carr over="right"')["normalize"] == "right_max"
    assert recorded('carr over="all" hardened')["normalize"] == "group_max"
    assert recorded("ctrl-rag tokens=true") == recipe("ctrl-rag").settings


@pytest.mark.parametrize(
    "text", ["ground-grpo process.weight=0.5", 'truthrl reasoning.combine="x"']
)
def test_settings_of_0_7_that_were_not_enabled_have_no_effect(text):
    recorded = recorded_spec(Signature.parse(f"rag-rewards 0.7.0 {text}")).settings
    assert recorded == recipe(text.split()[0]).settings
    current = Signature.parse("rag-rewards 0.8.0 ground-grpo process.weight=0.5")
    assert recorded_spec(current).settings["process.weight"] == 0.5


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("arena sections.ignore_case=true", "'sections.ignore_case' .*; use 'sections.tags'"),
        ('search-r1 tools.names=["find"]', "'tools.names' .*; use 'query_fields'"),
        ("carr max_cited=3", "'max_cited' since version 0.8.0; it is always 20"),
        ("ground-grpo citation.every=false hardened", "'citation.every' .*; use 'aggregate'"),
    ],
)
def test_settings_of_0_7_without_a_replacement_are_refused(text, message):
    with pytest.raises(SettingError, match=message):
        recorded_spec(Signature.parse(f"rag-rewards 0.7.0 {text}"))


@pytest.mark.parametrize("version", ["0.1.0", "0.2.0", "0.6.9"])
def test_signatures_of_older_versions_are_refused(version):
    signature = Signature.parse(f"rag-rewards {version} arena")
    with pytest.raises(SignatureError, match="and later: score the rows again"):
        recorded_spec(signature)


def test_signatures_of_newer_versions_are_refused(monkeypatch):
    newer = Signature.parse("rag-rewards 10.0.0 arena")
    with pytest.raises(SignatureError, match=r"of rag-rewards 10\.0\.0, but this is"):
        recorded_spec(newer)
    monkeypatch.setattr(rag_rewards.loading, "__version__", "10.0.1")
    assert recorded_spec(newer).recipe == "arena"


def test_versions_are_numbers():
    assert release("0.2.0") < release("0.10.0") < release("1.0.0")
    assert release(__version__)
    for version in ("", "1", "1.2", "1.2.3.4", "1.2.x", "1.2.3 ", "٣.1.2"):
        with pytest.raises(SignatureError, match="three numbers"):
            Signature(version=version, recipe="arena")


# --- valid and invalid signatures ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("arena gone=1", SettingError, "recipe arena has no setting 'gone'"),
        ('arena bonus.value="x"', SettingError, "setting bonus.value: Expected float, got str"),
        ("arena bonus.value=1e200", SettingError, "a number up to 1e.100 expected"),
        ("arena bonus.value=" + "9" * 200, SettingError, "a number up to 1e.100 expected"),
        ('rag-total citation.pattern="("', SettingError, "is not a regular expression"),
        ('rag-total citation.pattern="(a{99999999999})"', SettingError, "not a regular expression"),
        (f'rag-total citation.pattern="{"(" * 9999}"', SettingError, "not a regular expression"),
        ("areena", UnknownRecipeError, "no recipe 'areena'; did you mean 'arena'"),
        ('mine formula="x" parts=["x"]', SignatureError, "names the custom recipe 'mine'"),
        (
            'curriculum stages=[{"recipe":"arena","settings":{"gone":1}}]',
            SettingError,
            "no setting 'gone'",
        ),
        ('c stages=[{"recipe":"mine","settings":{"formula":"x"}}]', SignatureError, "custom"),
    ],
)
def test_settings_are_validated(text, error, message):
    with pytest.raises(error, match=message):
        recorded_spec(Signature.parse(f"{HEAD} {text}"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "it has not the form rag-rewards VERSION RECIPE"),
        (" rag-rewards 0.8.0 arena", "it has not the form"),
        ("rag-rewards 0.8 arena", "it has not the form"),
        ("rag-rewards 0.8.0 [1]", "it has not the form"),
        ("rag-rewards 0.8.0 arena ", "expected a setting, found ' '"),
        ("rag-rewards 0.8.0 arena\n", "it has not the form"),
        ("rag-rewards 0.8.0 arena  {}", "expected a setting"),
        ("rag-rewards 0.8.0 arena {} hardened", "trailing characters"),
        ("rag-rewards 0.8.0 arena {", "truncated"),
        ('rag-rewards 0.8.0 arena {"a":1}', "unknown field `a`"),
        ('rag-rewards 0.8.0 arena {"settings":{"a":NaN}}', "malformed"),
        ('rag-rewards 0.8.0 arena {"settings":{"a":1e999}}', "Number out of range"),
        ('rag-rewards 0.8.0 arena {"settings":{"a":' + "9" * 10**6 + "}}", "out of range"),
        ('rag-rewards 0.8.0 arena {"settings":{"a":' + "[" * 12 + "]" * 12 + "}}", "too deeply"),
        ('rag-rewards 0.8.0 arena {"settings":{"a":' + "[" * 10**6, "nested too deeply"),
        ('rag-rewards 0.8.0 arena {"models":[]}', "Expected `object`"),
        ('rag-rewards 0.8.0 arena {"models":{"a":1}}', "Expected `str`"),
        ('rag-rewards 0.8.0 arena {"stages":[{"x":1}]}', "unknown field `x`"),
        ("rag-rewards 0.7.0 arena a", "expected a setting"),
        ("rag-rewards 0.7.0 arena a=", "Expecting value"),
        ("rag-rewards 0.7.0 arena a=1,", "expected a setting, found ','"),
        ("rag-rewards 0.7.0 arena a=1 a=1", "'a' occurs twice"),
        ("rag-rewards 0.7.0 arena a=NaN", "nan is not a finite number"),
        ("rag-rewards 0.7.0 arena a=1e999", "inf is not a finite number"),
        ("rag-rewards 0.7.0 arena a=" + "[" * 10**6, "nested too deeply"),
        ("rag-rewards 0.7.0 arena a=" + "9" * 10**6, "inf is not a finite number"),
        ("rag-rewards 0.7.0 arena hardened hardened", "'hardened' occurs twice"),
        ("rag-rewards 0.7.0 arena models=[]", "Expected `object`"),
    ],
)
def test_other_text_is_rejected(text, message):
    with pytest.raises(SignatureError) as caught:
        Signature.parse(text)
    assert message in str(caught.value)
    assert "`rag-rewards 0.8.0 arena hardened {" in str(caught.value)
    assert len(str(caught.value)) < 400


VALID = [
    signature_of(recipe("arena", {"bonus.value": 5}, hardened=True), {"judge": "a b"}),
    Curriculum((Stage(recipe("truthrl"), 7), Stage(custom("a b", brief)))).signature,
    'rag-rewards 0.7.0 arena bonus.value=5 hardened models={"judge":"a b"}',
]


@many
@given(
    st.sampled_from(VALID),
    st.lists(st.tuples(st.floats(0, 1), st.integers(0, 9), TEXT | st.sampled_from(' ="{}[]:,1'))),
)
def test_damaged_signatures_are_refused_or_read(text, edits):
    for place, cut, insertion in edits:
        at = int(place * len(text))
        text = text[:at] + insertion + text[at + cut :]
    try:
        signature = Signature.parse(text)
    except SignatureError:
        return
    assert Signature.parse(str(signature)) == signature
    try:
        recorded_spec(signature)
    except UsageError:
        return


@many
@given(st.text() | st.text().map(lambda text: f"{HEAD} arena {text}"))
def test_any_text_is_rejected_or_parsed(text):
    try:
        Signature.parse(text)
    except SignatureError:
        return


@pytest.mark.parametrize(
    "piece", [" a{}=1", ' a{}=["{{"]', " a{}=" + "9" * 300, " a{}=[[[[[[[]]]]]]]"]
)
def test_reading_the_old_form_takes_linear_time(piece):
    def read(count):
        text = "".join(piece.replace("{}", str(i), 1) for i in range(count)).replace("{{", "{")
        assert len(Signature.parse(f"{HEAD} arena{text}").settings) == count

    assert_linear(read, 4_000)


def test_a_curriculum_has_no_settings_of_its_own():
    with pytest.raises(SignatureError, match="belong to its stages"):
        Signature(recipe="c", hardened=True, stages=(StageSignature("arena"),))
    with pytest.raises(SignatureError, match="belong to its stages"):
        Signature.parse(f'{HEAD} c {{"settings":{{"a":1}},"stages":[{{"recipe":"b"}}]}}')


def test_settings_that_python_cannot_build_from_text():
    assert recipe("arena", {"bonus.value": 10**50}).settings["bonus.value"] == 1e50
    with pytest.raises(SettingError, match="found a larger one"):
        recipe("arena", {"bonus.value": 10**5000})
