"""The same rows under other settings."""

from __future__ import annotations

import json

import pytest

import rag_rewards as rr
from rag_rewards.settings import flatten
from rag_rewards.signature import Signature, signature_of

HEAD = f"rag-rewards {rr.__version__}"


@pytest.fixture
def scored(cli, write, arena, tmp_path):
    """Two rollouts of one group, scored with bonus.value=5: a right and a wrong one."""
    wrong = "<relevance>[1]</relevance><analysis>One.</analysis><answer>Rhine</answer>"
    rows = [arena(group="g"), arena(id="b", group="g", response=wrong)]
    path = write(rows, "scored.jsonl")
    cli("score", path, "-r", "arena", "--set", "bonus.value=5", "-o", path, code=0)
    return path


def compared(cli, *arguments, code=0, stdin=b""):
    return json.loads(cli("replay", *arguments, "--json", code=code, stdin=stdin).out)


def signed(row, signature):
    return row | {"signature": str(signature)}


def test_settings_come_from_the_signature(cli, scored):
    found = compared(cli, scored, "--set", "bonus.value=0")
    assert found["means"]["reward"] == [5.0, 2.5]
    assert (found["rows"], found["groups"], found["changed"]) == (2, 1, 1)
    assert found["before"] == f"{HEAD} arena bonus.value=5"
    assert found["after"] == f"{HEAD} arena bonus.value=0"
    assert found["settings"] == {"bonus.value": [5.0, 0.0]}
    said = cli("replay", scored, "--set", "bonus.value=0", code=0).out
    assert "bonus.value: 5.0 → 0.0" in said


def test_settings_come_from_the_signature_on_standard_input(cli, scored):
    data = scored.read_bytes()
    for recipe in ([], ["-r", "arena"]):
        found = compared(cli, "-", *recipe, "--set", "bonus.value=0", stdin=data)
        assert found["means"]["reward"] == [5.0, 2.5]


def test_base_goes_over_the_signature(cli, scored):
    found = compared(cli, scored, "--base", "bonus.value=1", "--set", "bonus.value=0")
    assert found["means"]["reward"] == [3.0, 2.5]


def test_a_short_key_of_the_base_does_not_go_over_a_change(cli, likely, write):
    path = write([likely()])
    found = compared(
        cli, path, "-r", "ctrl-rag", "--base", "metric=f1", "--set", "accuracy.metric=exact"
    )
    assert found["settings"] == {"accuracy.metric": ["f1", "exact"]}


def test_hardened(cli, scored):
    found = compared(cli, scored, "--hardened")
    assert found["before"] == f"{HEAD} arena bonus.value=5"
    assert found["after"] == f"{HEAD} arena bonus.value=5 hardened"
    assert found["settings"]["sections.repeated"] == ["first", "missing"]


def test_rows_of_a_hardened_scoring(cli, write, arena):
    text = "<relevance>[1]</relevance><analysis>.</analysis><answer>Seine</answer>"
    path = write([arena(response=text)], "scored.jsonl")
    cli("score", path, "-r", "arena", "--hardened", "-o", path, code=0)
    found = compared(cli, path, "--set", "format.words=false")
    # With format.words the analysis "." has no word: no format reward and no bonus.
    assert found["means"]["reward"] == [2.0, 13.0]
    assert found["before"] == f"{HEAD} arena hardened"
    assert found["settings"] == {"format.words": [True, False]}


@pytest.mark.parametrize("recipe", [[], ["-r", "ctrl-rag"]])
def test_rows_of_a_scoring_with_a_model(cli, write, likely, recipe):
    """The models in a signature do not hide its settings, in the old format and in the new one."""
    made = rr.recipe("ctrl-rag", {"threshold": 7, "fusion": "none"})
    models = {"policy": "transformers qwen2 float32 5e1f", "prompt": "0a1b"}
    settings = json.dumps(flatten(made.settings), separators=(",", ":"))
    for signature in (
        signature_of(made, models),
        f"rag-rewards 0.1.0 ctrl-rag {settings}",
        f"rag-rewards 0.1.0 ctrl-rag {settings} models {json.dumps(models)}",
    ):
        path = write([signed(likely(id=name), signature) for name in "ab"])
        found = compared(cli, path, *recipe, "--set", "threshold=1")
        assert found["before"] == f'{HEAD} ctrl-rag fusion="none" threshold=7'
        assert found["settings"] == {"threshold": [7.0, 1.0]}
        # E is 3.4 nats, below 7: its threshold makes the likelihood reward 0.
        assert found["means"]["clr"][0] == 0.0
        assert found["means"]["clr"][1] > 1.0


def test_rows_of_one_scoring_with_several_models(cli, write, arena):
    """During training, the fingerprint of the policy changes with every step."""
    made = rr.recipe("arena", {"bonus.value": 5})
    rows = [signed(arena(step=i), signature_of(made, {"policy": f"step {i}"})) for i in range(3)]
    rows.append(signed(arena(step=3), 'rag-rewards 0.1.0 arena {"bonus.value":5.0}'))
    found = compared(cli, write(rows), "--set", "bonus.value=0")
    assert (found["rows"], found["means"]["reward"]) == (4, [8.0, 3.0])


def test_rows_of_a_curriculum(cli, write, arena, tmp_path):
    config = tmp_path / "stages.yaml"
    config.write_text(
        "stages:\n- {recipe: naive-grpo, until_step: 10}\n"
        "- {recipe: arena, settings: {bonus: {value: 4}}}\n"
    )
    thought = "<think>One.</think><answer>Seine</answer>"
    rows = [arena(id="a", group="1", step=9, response=thought), arena(id="b", group="2", step=10)]
    path = write(rows, "scored.jsonl")
    cli("score", path, "--config", config, "-o", path, code=0)
    assert compared(cli, path)["means"]["reward"] == [4.5, 4.5]
    found = compared(cli, path, "--set", "normalizer=unicode", "--base", "metric=f1")
    assert found["settings"] == {
        "stages[0].accuracy.normalizer": ["triviaqa", "unicode"],
        "stages[1].accuracy.normalizer": ["triviaqa", "unicode"],
    }
    stages = Signature.parse(found["before"]).stages
    assert [stage.until_step for stage in stages] == [10, None]
    assert stages[1].settings == {"accuracy.metric": "f1", "bonus.value": 4}
    hardened = Signature.parse(compared(cli, path, "--hardened")["after"])
    assert [stage.hardened for stage in hardened.stages] == [True, True]
    # A setting of one stage alone.
    assert "recipe naive-grpo has no setting 'bonus.value'" in (
        cli("replay", path, "--set", "bonus.value=0", code=2).err
    )
    # Another recipe starts from its defaults.
    assert compared(cli, path, "-r", "arena")["before"] == f"{HEAD} arena"


def test_old_signatures_of_a_curriculum(cli, write, arena):
    signature = (
        'rag-rewards 0.1.0 naive-grpo {"format.words":true} until 10 then '
        'rag-rewards 0.1.0 arena {"bonus.value":4.0} models {"judge":"x"}'
    )
    found = compared(cli, write([signed(arena(step=10), signature)]))
    assert found["means"]["reward"] == [7.0, 7.0]
    assert found["before"] == (
        f'{HEAD} curriculum stages=[{{"recipe":"naive-grpo","until_step":10,'
        '"settings":{"format.words":true}},{"recipe":"arena","settings":{"bonus.value":4}}]'
    )


def test_another_recipe_than_the_signature(cli, scored, tmp_path):
    assert compared(cli, scored, "-r", "rag-total")["after"] == f"{HEAD} rag-total"
    config = tmp_path / "config.yaml"
    config.write_text("recipe: rag-total\nalpha: 0.25\n")
    found = compared(cli, scored, "--config", config)
    assert found["after"] == f"{HEAD} rag-total alpha=0.25"
    config.write_text("stages: [{recipe: arena}]")
    assert "takes no stages" in cli("replay", scored, "--config", config, code=2).err


def test_nothing_changes(cli, scored):
    said = cli("replay", scored, code=0).out
    assert "none" in said
    assert "0 rewards change" in said


@pytest.mark.parametrize("show", ["0", "1", "-1"])
def test_show(cli, scored, show):
    found = compared(cli, scored, "--set", "bonus.value=0", "--show", show)
    assert len(found["most_changed"]) == max(int(show), 0)


def test_rows_in_error(cli, write, likely):
    rows = [likely(), likely(id="x", answers=""), likely(id="y", group="h"), "{"]
    path = write(rows)
    found = compared(cli, path, "-r", "ctrl-rag", code=3)
    assert (found["rows"], found["errors"]) == (0, 4)
    assert "contains no answer" in found["first_error"]
    assert "4 rows in error" in cli("replay", path, "-r", "ctrl-rag", code=3).out


def test_a_row_in_error_may_be_the_first(cli, write, arena):
    rows = [arena(group="h", response=5), arena(group="g")]
    rows[1]["signature"] = f"{HEAD} arena bonus.value=5"
    found = compared(cli, write(rows), code=3)
    assert (found["rows"], found["errors"]) == (1, 1)
    assert found["means"]["reward"] == [8.0, 8.0]


def test_standard_input_and_groups(cli, write, likely):
    rows = [likely(id="1"), likely(id="2", group="h"), likely(id="3")]
    data = write(rows).read_bytes()
    for options in (["--sort"], []):
        found = json.loads(cli("replay", "-", "-r", "ctrl-rag", "--json", *options, stdin=data).out)
        assert (found["groups"], found["errors"]) == ((2, 0) if options else (2, 1))


OWN = """
from rag_rewards.reward import as_reward
from rag_rewards.definition import HardenedSetting, Recipe, RecipeDefinition
from rag_rewards.output_form import OutputForm
from rag_rewards.settings import Settings


class Own(Settings, frozen=True):
    scale: float = 1.0


def build(settings=Own()):
    def length(rollout):
        return settings.scale * len(rollout.parsed.text)

    reward = as_reward(length)
    return Recipe("own", (reward,), reward, settings=settings)


OWN = RecipeDefinition(
    name="own", summary="", source="", output=OutputForm(""), settings=Own, build=build,
    fields=(), components=(), hardened={"scale": HardenedSetting(0.5, (), "")},
)


def constant(rollout):
    return 1.0
"""


def test_a_recipe_of_a_module(cli, write, arena, tmp_path, monkeypatch):
    (tmp_path / "own_recipe.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    path = write([arena(response="abcd")], "scored.jsonl")
    cli("score", path, "-r", "own_recipe:OWN", "--set", "scale=3", "-o", path, code=0)
    # Its defaults are not tied to a version of this package, so that every setting is written.
    assert json.loads(path.read_text())["signature"] == f"{HEAD} own scale=3"
    found = compared(cli, path, "-r", "own_recipe:OWN", "--set", "scale=2")
    assert found["means"]["reward"] == [12.0, 8.0]
    assert found["settings"] == {"scale": [3.0, 2.0]}
    assert compared(cli, path, "-r", "own_recipe:OWN", "--hardened")["means"]["reward"] == [12, 2]
    assert "no recipe 'own'" in cli("replay", path, code=2).err
    # A function has no settings.
    assert compared(cli, path, "-r", "own_recipe:constant")["means"]["reward"] == [1.0, 1.0]
    ran = cli("replay", path, "-r", "own_recipe:constant", "--set", "scale=2", code=2)
    assert "constant is an object without settings" in ran.err


# --- signatures that replay cannot use -----------------------------------------------------------


def test_rows_without_a_signature(cli, write, arena):
    for signature in (5, None, [], "x", "a b c d", 'a b arena {"bonus.value":'):
        path = write([arena() | {"signature": signature}])
        assert "set --recipe" in cli("replay", path, code=2).err
        assert compared(cli, path, "-r", "arena")["before"] == f"{HEAD} arena"
    assert "set --recipe" in cli("replay", write([]), code=2).err


@pytest.mark.parametrize(
    ("signature", "message"),
    [
        (f"{HEAD} arena gone=1", "line 1: recipe arena has no setting 'gone'"),
        ('rag-rewards 0.1.0 arena {"gone":1}', "line 1: recipe arena has no setting 'gone'"),
        (f'{HEAD} arena bonus.value="x"', "line 1: recipe arena: setting bonus.value: Expected"),
        (f"{HEAD} arena bonus.value=", "line 1: not a signature: expected a JSON value"),
        ("rag-rewards 0.1.0 arena {", "line 1: not a signature"),
        ("rag-rewards 99.0.0 arena", "line 1: the signature is of rag-rewards 99.0.0, but this"),
    ],
)
@pytest.mark.parametrize("recipe", [[], ["-r", "arena"]])
def test_unusable_signatures_are_never_replaced_by_defaults(
    cli, write, arena, signature, message, recipe
):
    ran = cli("replay", write([signed(arena(), signature)]), *recipe, code=2)
    assert message in ran.err
    assert ran.out == ""


def test_rows_of_a_recipe_that_is_not_built_in(cli, write, arena):
    own = rr.custom("my own", lambda rollout: 1.0)
    path = write([signed(arena(), own.signature)])
    message = cli("replay", path, code=2).err
    assert "line 1: the signature names the custom recipe 'my own'" in message
    assert "set --recipe" in message
    assert compared(cli, path, "-r", "arena")["means"]["reward"] == [13.0, 13.0]
    stages = rr.Curriculum((rr.Stage(own, 5), rr.Stage(rr.recipe("arena"))))
    message = cli("replay", write([signed(arena(), stages.signature)]), code=2).err
    assert "custom recipe 'my own'" in message
    path = write([signed(arena(), f"{HEAD} areena")])
    assert "no recipe 'areena'; did you mean 'arena'?" in cli("replay", path, code=2).err


@pytest.mark.parametrize(
    ("second", "difference"),
    [
        (f"{HEAD} arena", "bonus.value is 5.0 and 10.0"),
        (f"{HEAD} arena bonus.value=5 hardened", "sections.repeated is 'first' and 'missing'"),
        (f"{HEAD} naive-grpo", "(arena and naive-grpo)"),
        (
            f'{HEAD} c stages=[{{"recipe":"arena","until_step":5}},{{"recipe":"lear"}}]',
            "(arena and a curriculum of arena, lear)",
        ),
        (f'{HEAD} c stages=[{{"recipe":"arena"}}]', "(arena and a curriculum of arena)"),
        (None, "(arena and no signature of this recipe)"),
    ],
)
def test_rows_of_several_scorings_are_refused(cli, write, arena, second, difference):
    first = f"{HEAD} arena bonus.value=5"
    rows = [arena(group="1") | {"signature": text} for text in (first, first)]
    rows += [arena(group="2") | {"signature": second}]
    ran = cli("replay", write(rows), code=2)
    assert "lines 1 and 3 were scored with different settings" in ran.err
    assert difference in ran.err
    assert "split the file" in ran.err
    assert ran.out == ""
    # With --recipe, the settings of that recipe's rows must agree as well.
    assert "lines 1 and 3" in cli("replay", write(rows), "-r", "arena", code=2).err
    # The settings of another recipe's rows play no part.
    assert compared(cli, write(rows), "-r", "rag-total", code=0)["rows"] == 3


def test_rows_of_several_curricula_are_refused(cli, write, arena):
    texts = [
        f'{HEAD} c stages=[{{"recipe":"arena","until_step":{end}}},{{"recipe":"arena"}}]'
        for end in (5, 6)
    ]
    rows = [signed(arena(step=3), text) for text in texts]
    assert "stages[0].until_step is 5 and 6" in cli("replay", write(rows), code=2).err
