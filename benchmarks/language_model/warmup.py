"""A supervised warm-up of the model per output form, with examples from the training questions.

A model of this size does not follow the output forms, so that all rewards are equal within a group.
The papers fine-tune before they train with rewards. A warm-up is stored in the cache folder beside
the model and made once.
"""

from __future__ import annotations

import hashlib
import json
import random
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from language_model import model as language_model
from language_model.forms import Form, target
from language_model.plan import SAVE_INTERVAL, WARM_UP
from language_model.questions import Question
from language_model.shared_prompt import padded, prompt_ids, response_logits

Example = tuple[list[int], list[list[int]]]
"""The token ids of a prompt and of its responses."""
PASS = 2
"""Questions of a forward and backward pass."""


def warmed_up(form: Form, training: Sequence[Question]) -> Path:
    """Return the folder of the warmed-up model of a form. Train it if it is missing."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    start = language_model.folder()
    folder = start.with_name(f"warm-up-{form.name}-{identity(form, training)}")
    if (folder / "made.json").exists():
        return folder
    begin = time.perf_counter()
    tokenizer = AutoTokenizer.from_pretrained(start)
    model = AutoModelForCausalLM.from_pretrained(start)
    checkpoint = folder.with_suffix(".pt")
    loss = train(model, examples(form, training, tokenizer), checkpoint)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    made = {"seconds": round(time.perf_counter() - begin), "loss": round(loss, 4)}
    (folder / "made.json").write_text(json.dumps(made) + "\n", "utf-8")
    checkpoint.unlink(missing_ok=True)
    return folder


def identity(form: Form, training: Sequence[Question]) -> str:
    """Return a digest of everything that the weights depend on."""
    texts = [form.instruction, repr(WARM_UP), language_model.WEIGHTS_DIGEST]
    texts += [q.digest + " ".join(each) for q, each in texts_of(form, training)]
    return hashlib.sha256(json.dumps(texts).encode()).hexdigest()[:8]


def texts_of(form: Form, training: Sequence[Question]) -> list[tuple[Question, list[str]]]:
    """Return the questions of all epochs with their responses, in the order of training."""
    rng = random.Random(f"warm-up {form.name}")
    order = [q for _ in range(WARM_UP.epochs) for q in rng.sample(training, len(training))]
    return [
        (question, [form.write(target(question, rng)) for _ in range(WARM_UP.responses)])
        for question in order
    ]


def examples(form: Form, training: Sequence[Question], tokenizer: Any) -> list[Example]:
    """Return the token ids of prompts and of their responses, which end with the end token."""

    def ids(text: str) -> list[int]:
        return [*tokenizer(text, add_special_tokens=False)["input_ids"], tokenizer.eos_token_id]

    return [
        (prompt_ids(tokenizer, form.row(question)["prompt"]), list(map(ids, texts)))
        for question, texts in texts_of(form, training)
    ]


def train(model: Any, pairs: Sequence[Example], checkpoint: Path | None = None) -> float:
    """Train a model on the tokens of the responses. Return the mean loss of the last ten steps.

    The learning rate falls linearly to 0. With a checkpoint, an interrupted training goes on with
    the last saved step and ends with the same weights.
    """
    import torch

    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=WARM_UP.learning_rate, weight_decay=0.0)
    losses: list[float] = []
    if checkpoint and checkpoint.exists():
        state = torch.load(checkpoint, weights_only=True)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        losses = state["losses"]
    size = WARM_UP.batch
    batches = [pairs[i : i + size] for i in range(0, len(pairs), size)]
    for step in range(len(losses), len(batches)):
        for group in optimizer.param_groups:
            group["lr"] = WARM_UP.learning_rate * (1 - step / len(batches))
        losses.append(backward(model, batches[step]))
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        if checkpoint and (step + 1) % SAVE_INTERVAL == 0:
            part = checkpoint.with_suffix(".part")
            states = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
            torch.save(states | {"losses": losses}, part)
            part.replace(checkpoint)
    last = losses[-10:]
    return sum(last) / len(last)


def backward(model: Any, batch: Sequence[Example]) -> float:
    """Add the gradient of the mean loss of a batch, in passes that need less memory. Return it."""
    import torch

    tokens = sum(len(response) for _, responses in batch for response in responses)
    total = 0.0
    for i in range(0, len(batch), PASS):
        with torch.autocast("cpu", torch.bfloat16):
            loss = loss_of(model, batch[i : i + PASS]) / tokens
        loss.backward()
        total += loss.item()
    return total


def loss_of(model: Any, batch: Sequence[Example]) -> Any:
    """Return the negative log-probability of all tokens of the responses, in nats."""
    import torch

    end = model.generation_config.eos_token_id
    owners = [i for i, (_, responses) in enumerate(batch) for _ in responses]
    targets, mask = padded([r for _, responses in batch for r in responses], end, "right")
    prompts = padded([prompt for prompt, _ in batch], end)
    logits = response_logits(model, *prompts, targets, mask, torch.tensor(owners))
    is_token = mask == 1
    return torch.nn.functional.cross_entropy(
        logits[is_token].float(), targets[is_token], reduction="sum"
    )
