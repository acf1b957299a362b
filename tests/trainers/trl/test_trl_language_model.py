"""The trainings of benchmarks/language_model, with a small random Llama in place of the model."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import torch
from language_model import plan, run, shared_prompt, train, warmup
from language_model.forms import FORMS
from language_model.measures import measure
from language_model.plan import ARMS
from language_model.questions import Question
from trl.trainer.utils import selective_log_softmax
from trl_runs import make_model, make_tokenizer

DOCUMENTS = (("Paris", "Paris lies on the Seine."), ("Lyon", "Lyon has hills."), ("Nile", "Long."))
QUESTIONS = [
    Question(f"Which river{' really' * i}?", "Seine", DOCUMENTS, (1,) if i % 3 else ())
    for i in range(8)
]


@pytest.fixture(scope="module")
def start(tmp_path_factory):
    """Return the folder of a random Llama."""
    folder = tmp_path_factory.mktemp("model")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model, tokenizer = make_model("llama"), make_tokenizer()
    model.generation_config.eos_token_id = tokenizer.eos_token_id
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def test_a_shared_prompt_gives_the_log_probabilities_and_gradients_of_separate_ones() -> None:
    model = make_model("llama")
    prompts, prompt_mask = shared_prompt.padded([[5, 6, 7, 8], [9, 10]], 2)
    responses, mask = shared_prompt.padded([[11, 12, 2], [13, 2], [14, 15, 16]], 2, "right")
    owners = torch.tensor([1, 0, 1])
    logits = shared_prompt.response_logits(model, prompts, prompt_mask, responses, mask, owners)
    shared = selective_log_softmax(logits, responses)[mask == 1]
    separate = []
    for owner, response, kept in zip(owners, responses, mask, strict=True):
        prompt = prompts[owner][prompt_mask[owner] == 1]
        ids = torch.cat([prompt, response[kept == 1]])
        all_logits = model(ids[None]).logits[0, len(prompt) - 1 : -1]
        separate.append(selective_log_softmax(all_logits, response[kept == 1]))
    separate = torch.cat(separate)
    torch.testing.assert_close(shared, separate, atol=1e-5, rtol=1e-5)
    weight = model.model.layers[0].self_attn.k_proj.weight
    gradients = [
        torch.autograd.grad(x.sum(), weight, retain_graph=True)[0] for x in (shared, separate)
    ]
    torch.testing.assert_close(*gradients, atol=1e-4, rtol=1e-4)


def test_greedy_responses_are_those_of_separate_prompts(start) -> None:
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(start)
    prompts = [[5, 6, 7, 8, 9], [9, 10]]
    together = shared_prompt.generate(model, prompts, samples=2, tokens=6, temperature=0.0)
    for i, prompt in enumerate(prompts):
        alone = model.generate(torch.tensor([prompt]), max_new_tokens=6, do_sample=False)
        expected = shared_prompt._until(alone[0, len(prompt) :].tolist(), 2)
        assert together[2 * i] == together[2 * i + 1] == expected


@pytest.fixture
def small(monkeypatch):
    """Make trainings of four steps with two groups of four."""
    for name, value in {"STEPS": 4, "PROMPTS": 2, "GROUP": 4, "SAVE_INTERVAL": 2}.items():
        monkeypatch.setattr(plan, name, value)
    monkeypatch.setattr(plan, "CURVE_INTERVAL", 2)


@pytest.mark.parametrize("arm", ARMS, ids=lambda arm: arm.name)
def test_every_arm_trains_and_measures_its_primary_measure(arm, start, small, tmp_path) -> None:
    form = replace(FORMS[arm.form], tokens=6)
    rows = run.rows_of(arm, form, QUESTIONS, 0)
    assert all(row["answerable"] for row in rows) or not arm.answerable
    trainer = run.trainer_of(arm, form, start, tmp_path, rows, 0, max_steps=1)
    prompts = [row["prompt"] for row in rows]
    own = [shared_prompt.prompt_ids(trainer.processing_class, prompt) for prompt in prompts]
    assert trainer._tokenize_prompts(prompts)[0] == own
    trainer.train()
    assert len(trainer.state.log_history) == 2
    values = measure(trainer.model, trainer.processing_class, form, QUESTIONS, samples=2)
    assert len(values[arm.primary]) == len(QUESTIONS)


def test_log_probabilities_and_entropies_are_those_of_the_trainer(start, small, tmp_path) -> None:
    arm = ARMS[0]
    rows = run.rows_of(arm, FORMS[arm.form], QUESTIONS, 0)
    options = {"bf16": False, "temperature": 1.0}
    trainer = run.trainer_of(arm, FORMS[arm.form], start, tmp_path, rows, 0, **options)
    ids, mask = shared_prompt.padded([[5, 6, 7, 8, 11, 12, 2], [9, 10, 13, 14, 2]] * 2, 2)
    ids[2:, -1] = 15
    own, parent = (
        each._get_per_token_logps_and_entropies(trainer.model, ids, mask, 3, compute_entropy=True)
        for each in (trainer, super(type(trainer), trainer))
    )
    torch.testing.assert_close(own[:2], parent[:2], atol=1e-5, rtol=1e-5)
    with pytest.raises(ValueError, match="group size"):
        trainer._generate_single_turn([[5]] * (plan.GROUP + 1))
    with pytest.raises(ValueError, match="temperature"):
        run.trainer_of(arm, FORMS[arm.form], start, tmp_path, rows, 0, temperature=0.5)


def test_an_interrupted_training_ends_like_another(start, small, tmp_path, monkeypatch) -> None:
    from transformers import TrainerCallback

    class Interrupt(TrainerCallback):
        def on_step_begin(self, args, state, control, **_) -> None:
            if state.global_step == 3:
                raise KeyboardInterrupt

    unit = run.Unit("arm", "truthrl ternary")
    # A reward that differs within a group of a random model.
    arm = replace(unit.arm, reward=length, settings={})
    results = []
    for name in ("whole", "interrupted"):
        place = run.Workplace(tmp_path, tmp_path / name)
        vars(place)["split"] = (QUESTIONS, QUESTIONS)
        if name == "interrupted":
            with monkeypatch.context() as patch:
                patch.setattr(run, "clock", lambda course: Interrupt())
                with pytest.raises(KeyboardInterrupt):
                    run.trained(unit, arm, start, place)
            partial = place.result(unit).with_suffix("") / "checkpoint-3"
            partial.mkdir()
            (partial / "model.safetensors").write_bytes(b"0")
        results.append(run.trained(unit, arm, start, place))
    (whole, _, first), (resumed, _, second) = results
    for name, value in whole.state_dict().items():
        assert torch.equal(resumed.state_dict()[name], value), name
    assert len(set(first["rewards"])) > 1
    assert (first["points"], first["rewards"]) == (second["points"], second["rewards"])


def test_the_command_goes_from_the_warm_up_to_the_page(start, small, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("language_model.model.folder", lambda: start)
    monkeypatch.setattr(train, "RESULTS", tmp_path / "results.json")
    place = run.Workplace(tmp_path, tmp_path / "build")
    vars(place)["split"] = (QUESTIONS, QUESTIONS)
    names = ("truthrl: before training", "truthrl ternary, seed 0")
    for unit in run.units()[:2]:
        train.run_and_store(unit, place, 1)
    stored = train.collect(place)["units"]
    assert tuple(stored) == names
    assert all(set(each["sampled"]) == set(each["greedy"]) for each in stored.values())
    assert "Finished: 2 of" in (tmp_path / "results.md").read_text()
    assert "<svg" in (tmp_path / "results.svg").read_text()
    # The final weights are measured again without a further step.
    place.result(unit).unlink()
    train.run_and_store(unit, place, 1)
    again = train.collect(place)["units"][unit.name]
    assert again | {"measuring seconds": 0} == stored[unit.name] | {"measuring seconds": 0}
    warm = warmup.warmed_up(FORMS["truthrl"], QUESTIONS)
    assert stored[names[0]]["warm-up"] == json.loads((warm / "made.json").read_text())


def test_an_interrupted_warm_up_ends_like_another(start, monkeypatch, tmp_path) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    monkeypatch.setattr(warmup, "WARM_UP", plan.WarmUp(batch=2, learning_rate=1e-2))
    monkeypatch.setattr(warmup, "SAVE_INTERVAL", 2)
    pairs = warmup.examples(FORMS["arena"], QUESTIONS, AutoTokenizer.from_pretrained(start))
    whole, part, resumed = (AutoModelForCausalLM.from_pretrained(start) for _ in range(3))
    before = warmup.loss_of(whole, pairs).item()
    loss = warmup.train(whole, pairs)
    assert warmup.loss_of(whole, pairs).item() < 0.8 * before
    with monkeypatch.context() as patch:
        interrupted = iter([warmup.backward] * 3)
        patch.setattr(warmup, "backward", lambda *batch: next(interrupted)(*batch))
        with pytest.raises(StopIteration):
            warmup.train(part, pairs, tmp_path / "state.pt")
    assert warmup.train(resumed, pairs, tmp_path / "state.pt") == loss
    for name, value in whole.state_dict().items():
        assert torch.equal(resumed.state_dict()[name], value), name


def length(rollout) -> float:
    return float(len(rollout.parsed.text))
