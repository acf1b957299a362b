"""Generation with a transformers model: greedy in batches, sampling with a seed.

Prompts of a batch have the same length, or padding before the shorter ones, which the attention
mask hides. Padding is used only if a small batch has the values of its prompts alone: some families
read it in spite of the mask.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from rag_rewards.errors import BackendError, describe, shorten
from rag_rewards.evidence.protocols import GenerateAnswer, GenerateRequest, TokenIds, Tokenizer
from rag_rewards.models.transformers.forward import ModelForward, PolicyUsage
from rag_rewards.models.transformers.modules import import_torch


def generate_batch(
    forward: ModelForward,
    tokenizer: Tokenizer,
    requests: Sequence[GenerateRequest],
    version: str | int | None,
    usage: PolicyUsage,
) -> list[GenerateAnswer]:
    """Generate for requests that differ only in their prompts.

    `version` is the version of the weights, `usage` counts the generated tokens. Raises
    BackendError for logits that are not numbers.
    """
    torch, first = import_torch(), requests[0]
    ids, mask = _left_padded(forward, [request.prompt for request in requests])
    options: dict[str, Any] = {"logits_processor": [_check_logits]}
    if first.stop:
        criterion = _stopping_criterion(tokenizer, first.stop, ids.shape[1])
        options["stopping_criteria"] = [criterion]
    ends = _end_tokens(forward.causal, tokenizer)
    with (
        torch.random.fork_rng(enabled=first.seed is not None),
        _generation_config(forward.causal, first, ends),
    ):
        if first.seed is not None:
            torch.manual_seed(first.seed)
        sequences = forward.causal.generate(ids, attention_mask=mask, **options)
    continuations = sequences[:, ids.shape[1] :]
    usage.generated += continuations.numel()
    return [
        _generate_answer(tokens, ends, first, tokenizer, version)
        for tokens in continuations.tolist()
    ]


def similar_requests(
    requests: Sequence[GenerateRequest], budget: int, padded: float
) -> Iterator[list[int]]:
    """Yield the positions of requests that can be generated together, longest prompts first.

    A batch has at most `budget` tokens, including padding. Sampled requests are generated
    separately. Sequences of more than `padded` tokens, which must not have padding, run together
    only if their prompts have the same length.
    """
    kinds: dict[Any, list[int]] = {}
    for i in sorted(range(len(requests)), key=lambda i: -len(requests[i].prompt)):
        request = requests[i]
        length = len(request.prompt)
        is_padded = length + request.max_tokens <= padded
        kind = (None if is_padded else length, request.max_tokens, request.stop)
        kinds.setdefault((*kind, i) if request.temperature > 0 else kind, []).append(i)
    for members in kinds.values():
        while members:
            longest = requests[members[0]]
            size = max(budget // (len(longest.prompt) + longest.max_tokens), 1)
            yield members[:size]
            members = members[size:]


def padding_fault(forward: ModelForward, tolerance: float) -> str:
    """Return how the values of a prompt after padding differ from its own; "" if they do not.

    tolerance  maximum difference of two log-probabilities, in nats
    """
    torch = import_torch()
    top = forward.causal.config.get_text_config().vocab_size - 1
    numbers = [(i * 7919 + 104729) % max(top, 1) for i in range(40)]
    prompts = [tuple(numbers), tuple(numbers[:7])]

    def following(prompts: Sequence[TokenIds]) -> Any:
        """Return the log-probabilities of all next tokens, at the first two steps."""
        ids, mask = _left_padded(forward, prompts)
        output = forward.causal.generate(
            ids, attention_mask=mask, output_logits=True, return_dict_in_generate=True
        )
        rows = [torch.log_softmax(logits.float(), -1) for logits in output.logits]
        return torch.stack(rows, 1)

    try:
        with _generation_config(forward.causal, GenerateRequest((), max_tokens=2), set()):
            together = following(prompts)
            alone = torch.cat([following([prompt]) for prompt in prompts])
    except Exception as error:
        return shorten(describe(error), 200)
    likely = alone > alone.amax(-1, keepdim=True) - 10  # rounding of the others is larger
    gap = float((together - alone).abs().where(likely, 0.0).max())
    return "" if gap <= tolerance else f"values differ by up to {gap:.3g} nats"


def _left_padded(forward: ModelForward, prompts: Sequence[TokenIds]) -> tuple[Any, Any]:
    """Return token ids [B, T] with padding before shorter prompts, and the attention mask."""
    width = max(map(len, prompts))
    ids = [[0] * (width - len(prompt)) + list(prompt) for prompt in prompts]
    mask = [[0] * (width - len(prompt)) + [1] * len(prompt) for prompt in prompts]
    return forward.token_tensor(ids), forward.token_tensor(mask)


def _check_logits(ids: Any, logits: Any) -> Any:
    """Return logits unchanged. BackendError for NaN, of which greedy generation takes token 0."""
    if logits.isnan().any():
        raise BackendError("the logits of the model are not numbers (NaN)")
    return logits


def _stopping_criterion(tokenizer: Tokenizer, stops: Sequence[str], start: int) -> Any:
    """Return a criterion that is true for texts that contain one of the stop strings.

    `stop_strings` of transformers splits the vocabulary by its spelling, which fails for
    tokenizers of whole words.
    """
    torch = import_torch()
    most = max(len(stop.encode()) for stop in stops)  # a token has at least one byte

    def is_complete(ids: Any, scores: Any, **_: Any) -> Any:
        tails = ids[:, max(start, ids.shape[1] - most) :].tolist()
        texts = (tokenizer.decode(tail) for tail in tails)
        complete = [any(stop in text for stop in stops) for text in texts]
        return torch.tensor(complete, device=ids.device)

    return is_complete


def _end_tokens(causal: Any, tokenizer: Tokenizer) -> set[int]:
    """Return the tokens that end a text, of the model and of the tokenizer."""
    of_model = causal.generation_config.eos_token_id
    ends = set(of_model) if isinstance(of_model, (list, tuple)) else {of_model}
    ends.add(getattr(tokenizer, "eos_token_id", None))
    return {end for end in ends if end is not None}


def _generate_answer(
    tokens: list[int],
    ends: set[int],
    request: GenerateRequest,
    tokenizer: Tokenizer,
    version: str | int | None,
) -> GenerateAnswer:
    end = next((i for i, token in enumerate(tokens) if token in ends), None)
    content = tokens if end is None else tokens[:end]
    text = tokenizer.decode(content)
    stop = min((text.index(stop) for stop in request.stop if stop in text), default=None)
    is_finished = end is not None or stop is not None
    return GenerateAnswer(
        text if stop is None else text[:stop],
        tuple(content),
        "stop" if is_finished else "length",
        version,
    )


@contextmanager
def _generation_config(causal: Any, request: GenerateRequest, ends: set[int]) -> Iterator[None]:
    """Use the parameters of the request, without the model's defaults such as penalties."""
    from transformers import GenerationConfig

    sampling = {
        "do_sample": True,
        "temperature": request.temperature,
        "top_k": 0,
        "top_p": request.top_p,
    }
    before = causal.generation_config
    causal.generation_config = GenerationConfig(
        max_new_tokens=request.max_tokens,
        eos_token_id=sorted(ends) or None,
        pad_token_id=min(ends, default=0),
        bos_token_id=before.bos_token_id,
        **(sampling if request.temperature > 0 else {"do_sample": False}),
    )
    try:
        yield
    finally:
        causal.generation_config = before
