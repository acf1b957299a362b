"""Measure time and memory of contrastive likelihoods, with and without shared tokens.

    python benchmarks/likelihood.py                 # the reference workload on this machine
    python benchmarks/likelihood.py --sweep         # other contexts, documents and groups
    python benchmarks/likelihood.py --precision     # bfloat16 against float32
    python benchmarks/likelihood.py --sizes         # sizes in memory at a time
    python benchmarks/likelihood.py --device cuda --shape 7b --dtype bfloat16

A group consists of a prompt with documents, one context per supporting document without this
document, and G responses. The benchmark compares four methods on the same random weights and
tokens:

    naive              each pair separately, log-softmax over all positions
    naive, response    each pair separately, logits at the positions of the response only
    ours               rag_rewards.models.transformers
    ours, only=shared  the same without the method `tree`, which runs on a CPU only

Each method runs in its own process, to measure its peak memory. The times come from one more
process, where the methods run in turn, so that a busy machine affects all of them. The shortest
time of each method counts. The values must be equal.
"""

import argparse
import json
import math
import os
import platform
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import likelihood_sizes
from likelihood_parts import limits, timed_parts
from likelihood_parts import table as parts_table

HERE = Path(__file__).resolve().parent
RESULT = HERE / "results" / "likelihood.md"
SHARED = "ours, only=shared"
METHODS = ("naive", "naive, response", "ours", SHARED)
ROUGH = ("naive, response", "ours", "ours, float32 logits")
METHOD = """
`naive` computes each pair of a context and a response separately. `naive, response` computes logits
only at the positions of the response. `ours` is the policy with transformers of this package, which
computes shared tokens once, and `ours, only=shared` its method for other devices than a CPU. C is
the length of the context, n the number of supporting documents, G the group size and T the length
of a response. E is the evidential contribution.
""".strip()
TARGETS = {
    ("naive", "ours"): 13.5,
    ("naive, response", "ours"): 3.9,
    ("naive, response", SHARED): 3.5,
}
"""Targets of the time of a method, relative to that of another one."""
MOST_MEMORY = {"ours": 1.05, SHARED: 1.25}
"""Targets of the peak memory of a method, relative to naive, response."""
LONG = 100_000
"""Workloads of the sweep with more tokens of contexts run once."""

SHAPES: dict[str, dict[str, int]] = {
    # 101 million parameters, most of them the embeddings of a large vocabulary.
    "100m": {
        "vocab_size": 151_936,
        "hidden_size": 512,
        "intermediate_size": 1_408,
        "num_hidden_layers": 8,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
    },
    "7b": {
        "vocab_size": 152_064,
        "hidden_size": 3_584,
        "intermediate_size": 18_944,
        "num_hidden_layers": 28,
        "num_attention_heads": 28,
        "num_key_value_heads": 4,
    },
    "tiny": {
        "vocab_size": 4_096,
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
    },
}


@dataclass(frozen=True)
class Work:
    """A workload: C tokens of context, n documents to leave out, G responses of T tokens.

    unequal  responses of T/4 to 7T/4 tokens
    groups   number of such groups, with different tokens
    """

    context: int = 2_000
    documents: int = 2
    group: int = 8
    response: int = 128
    unequal: bool = False
    groups: int = 1

    def __str__(self) -> str:
        text = f"C={self.context:,} n={self.documents} G={self.group} T={self.response}"
        text += " (unequal)" if self.unequal else ""
        return text + (f", {self.groups} groups" if self.groups > 1 else "")

    def lengths(self) -> list[int]:
        """Return the numbers of tokens of the responses of a group."""
        if not self.unequal:
            return [self.response] * self.group
        steps = [2 * number / (self.group - 1) - 1 for number in range(self.group)]
        return [round(self.response * (1 + 0.75 * step)) for step in steps]

    def ends(self) -> list[int]:
        """Return the ends of the documents, which are evenly spread and 9% of the context each."""
        step = 0.9 / (self.documents + 1)
        return [round((0.05 + step * (i + 1)) * self.context) for i in range(self.documents)]

    def requests(self, vocabulary: int) -> list[Any]:
        """Return one request per group, which are the same on all machines."""
        from rag_rewards.evidence.protocols import ScoreRequest

        state = 1

        def some(count: int) -> tuple[int, ...]:
            nonlocal state
            out = []
            for _ in range(count):
                state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
                out.append((state >> 33) % vocabulary)
            return tuple(out)

        def request() -> ScoreRequest:
            full = some(self.context)
            size = int(0.09 * self.context)
            without = [full[: end - size] + full[end:] for end in self.ends()]
            return ScoreRequest((full, *without), tuple(map(some, self.lengths())))

        return [request() for _ in range(self.groups)]


# --- one method in its own process -------------------------------------------------------------


def make_model(shape: str, dtype: str, device: str) -> Any:
    import torch
    from transformers import AutoModelForCausalLM, Qwen2Config

    torch.manual_seed(0)
    config = Qwen2Config(**SHAPES[shape], max_position_embeddings=65_536, tie_word_embeddings=True)
    with torch.device(device):
        model = AutoModelForCausalLM.from_config(config, dtype=getattr(torch, dtype))
    return model.eval()


class Ids:
    """A tokenizer without methods for text, which the benchmark does not use."""

    eos_token_id = None

    def get_vocab(self) -> dict[str, int]:
        return {}


def naive(model: Any, request: Any, response_only: bool) -> dict[tuple[int, int], list[float]]:
    import torch

    values = {}
    for context, response in request.wanted():
        tokens = request.responses[response]
        ids = torch.tensor([request.contexts[context] + tokens], device=model.device)
        keep = len(tokens) + 1 if response_only else 0
        with torch.no_grad():
            logits = model(ids, use_cache=False, logits_to_keep=keep).logits[0]
            logprobs = torch.log_softmax(logits.float(), -1)
        at = len(logprobs) - len(tokens) - 1
        targets = torch.tensor(tokens, device=model.device)
        values[context, response] = logprobs[at:-1].gather(1, targets[:, None])[:, 0].cpu().tolist()
    return values


Measure = Callable[[list[Any]], dict[str, Any]]


def run_method(method: str, work: Work, shape: str, dtype: str, device: str) -> dict[str, Any]:
    """Return the time, the memory and the values of one method; for ours, also its parts."""
    import torch

    model = make_model(shape, dtype, device)
    requests = work.requests(SHAPES[shape]["vocab_size"])
    before = peak_memory(device)
    measure = contender(method, model, shape, device)
    compares_sizes = "only" in policy_options(method)
    runs = 2 if compares_sizes else 1
    run = min((measure(requests) for _ in range(runs)), key=lambda each: each["seconds"])
    run |= {"before": before, "peak": peak_memory(device)}
    if method.startswith("ours") and not compares_sizes:
        with timed_parts(lambda: clock(device)) as parts:
            run["whole"] = measure(requests)["seconds"]
        run["parts"] = parts
        run["limits"] = limits(model, run["tokens"], run["rows"], lambda: clock(device))
    run["device"] = torch.cuda.get_device_name() if device == "cuda" else ""
    return run


def run_in_turn(
    methods: dict[str, int], work: Work, shape: str, dtype: str, device: str
) -> dict[str, Any]:
    """Return the fastest run of each method by name. `methods` has the number of its runs."""
    model = make_model(shape, dtype, device)
    requests = work.requests(SHAPES[shape]["vocab_size"])
    contenders = {method: contender(method, model, shape, device) for method in methods}
    runs: dict[str, Any] = {}
    for number in range(max(methods.values())):
        for method, measure in contenders.items():
            if number < methods[method]:
                run = measure(requests)
                runs[method] = min(runs.get(method, run), run, key=lambda each: each["seconds"])
    return runs


def contender(method: str, model: Any, shape: str, device: str) -> Measure:
    """Return a function that measures a method, after it has run once on a small group."""
    small = Work(64, 1, 2, 8).requests(SHAPES[shape]["vocab_size"])
    of_method = ours if method.startswith("ours") else plainly
    measure = of_method(method, model, device)
    measure(small)  # for ours, the self-check
    return measure


def ours(method: str, model: Any, device: str) -> Measure:
    from rag_rewards.models.transformers import TransformersPolicy

    options = policy_options(method)
    only = options.pop("only", None)
    policy = TransformersPolicy(model, Ids(), **options)

    def measure(requests: list[Any]) -> dict[str, Any]:
        policy.usage.rows = 0
        if only and policy._methods:
            if only not in policy._methods:
                raise SystemExit(f"the method {only} failed its self-check: {policy._note}")
            policy._methods = (only, "plain")
        start = clock(device)
        answers = policy.score_sync(requests)
        seconds = clock(device) - start
        for answer in answers:
            if isinstance(answer, Exception):
                raise answer
        return {
            "seconds": seconds,
            "tokens": sum(answer.computed for answer in answers),
            "rows": policy.usage.rows,
            "path": answers[0].path,
            "values": [list(values) for answer in answers for values in answer.logprobs.values()],
        }

    return measure


def policy_options(method: str) -> dict[str, Any]:
    """Return the options of the policy in the name of a method, and `only` for one way to score.

    An example is "ours, float32 logits, only=shared, token_budget=4096".
    """
    options: dict[str, Any] = {}
    for part in method.split(", ")[1:]:
        name, _, value = part.partition("=")
        options[name.replace(" ", "_")] = int(value) if value.isdigit() else value or True
    return options


def plainly(method: str, model: Any, device: str) -> Measure:
    response_only = method == "naive, response"

    def measure(requests: list[Any]) -> dict[str, Any]:
        start = clock(device)
        results = [naive(model, request, response_only) for request in requests]
        seconds = clock(device) - start
        pairs = [(request, c, r) for request in requests for c, r in request.wanted()]
        tokens = sum(len(each.contexts[c]) + len(each.responses[r]) for each, c, r in pairs)
        rows = sum(len(each.responses[r]) + 1 for each, _, r in pairs)
        return {
            "seconds": seconds,
            "tokens": tokens,
            "rows": rows if response_only else tokens,
            "path": method,
            "values": [list(values) for result in results for values in result.values()],
        }

    return measure


def clock(device: str) -> float:
    import torch

    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter()


def peak_memory(device: str) -> int:
    """Return the peak memory of the process or of the GPU, in bytes."""
    import torch

    if device == "cuda":
        return int(torch.cuda.max_memory_allocated())
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def spawn(
    method: str, work: Work, options: argparse.Namespace, dtype: str | None = None
) -> dict[str, Any]:
    """Return the run of one method in a process of its own."""
    run = in_process(method, work, options, dtype)
    print(f"  {work}, {method}: {run['seconds']:.1f} s", file=sys.stderr, flush=True)
    return run


def spawn_in_turn(
    methods: dict[str, int], work: Work, options: argparse.Namespace
) -> dict[str, Any]:
    """Return the fastest run of each method, from one process where they run in turn."""
    runs: dict[str, Any] = in_process(methods, work, options)
    for method, run in runs.items():
        print(f"  {work}, {method}: {run['seconds']:.1f} s", file=sys.stderr, flush=True)
    return runs


def in_process(
    methods: str | dict[str, int],
    work: Work,
    options: argparse.Namespace,
    dtype: str | None = None,
) -> dict[str, Any]:
    """Return what a new process measures."""
    arguments = json.dumps(
        [methods, vars(work), options.shape, dtype or options.dtype, options.device]
    )
    command = [sys.executable, __file__, "--one", arguments]
    process = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, timeout=7_200)
    run: dict[str, Any] = json.loads(process.stdout.splitlines()[-1])
    return run


# --- the tables --------------------------------------------------------------------------------


def formula(work: Work) -> tuple[int, int]:
    """Return forward tokens C + Σ(C − e_i) + (1 + n)·Σ(T − 1) and rows (1 + n)·ΣT of all groups."""
    contexts, lengths = 1 + work.documents, work.lengths()
    tokens = work.context + sum(work.context - end for end in work.ends())
    tokens += contexts * sum(length - 1 for length in lengths)
    return work.groups * tokens, work.groups * contexts * sum(lengths)


def flips(one: list[list[float]], other: list[list[float]], work: Work) -> tuple[int, float]:
    """Return the number of responses whose E crosses the threshold 1, and E's mean difference."""
    first, second = contributions(one, work), contributions(other, work)
    pairs = list(zip(first, second, strict=True))
    return sum((a > 1) != (b > 1) for a, b in pairs), sum(abs(a - b) for a, b in pairs) / len(pairs)


def contributions(values: list[list[float]], work: Work) -> list[float]:
    sums = [math.fsum(v) for v in values]
    g = work.group
    return [sums[r] - min(sums[c * g + r] for c in range(1, work.documents + 1)) for r in range(g)]


def largest_difference(one: dict[str, Any], other: dict[str, Any]) -> float:
    """Return the largest difference of two log-probabilities of two runs, in nats."""
    pairs = zip(one["values"], other["values"], strict=True)
    return max(abs(a - b) for x, y in pairs for a, b in zip(x, y, strict=True))


def reference(work: Work, options: argparse.Namespace) -> list[str]:
    """Return a table of all methods on one workload."""
    runs = {method: spawn(method, work, options) for method in METHODS}
    in_turn = spawn_in_turn(dict.fromkeys(METHODS, options.rounds), work, options)
    for method, run in in_turn.items():
        runs[method]["seconds"] = run["seconds"]
    ours, response = runs["ours"], runs["naive, response"]
    tokens, rows = formula(work)
    head = [
        "method",
        "forward tokens",
        "vocabulary rows",
        "seconds",
        "relative time",
        "peak memory",
    ]
    lines = [row(*head), row(*["---"] * len(head))]
    for method, run in runs.items():
        times = run["seconds"] / ours["seconds"]
        ratio = f"{times:.2f} ×" if method != "ours" else ""
        lines.append(
            row(
                method,
                f"{run['tokens']:,}",
                f"{run['rows']:,}",
                f"{run['seconds']:.2f}",
                ratio,
                f"{run['peak'] / 2**20:,.0f} MiB",
            )
        )
    worst = largest_difference(ours, response)
    flipped, moved = flips(ours["values"], response["values"], work)
    peaks = {method: runs[method]["peak"] / response["peak"] for method in MOST_MEMORY}
    lines += [
        "",
        f"- forward tokens {ours['tokens']:,} (formula {tokens:,}), "
        f"vocabulary rows {ours['rows']:,} (formula {rows:,}); path: {ours['path']}",
        f"- difference from naive: at most {worst:.2g} nats per token; mean difference of E: "
        f"{moved:.2g} nats; {flipped} of {work.group} responses cross the threshold",
        f"- difference of shared from naive: at most "
        f"{largest_difference(runs[SHARED], response):.2g} nats per token",
        *(
            f"- peak memory of {method} relative to naive, response: {peak:.2f} ×"
            for method, peak in peaks.items()
        ),
    ]
    if options.shape == "100m" and work == Work():
        for (slow, fast), target in TARGETS.items():
            times = runs[slow]["seconds"] / runs[fast]["seconds"]
            met = "met" if times >= target else "not met"
            lines.append(
                f"- target: time of {slow} ≥ {target:g} × that of {fast}: {times:.2f} ({met})"
            )
        for method, most in MOST_MEMORY.items():
            met = "met" if peaks[method] <= most else "not met"
            lines.append(f"- target: peak memory of {method} ≤ {most} × ({met})")
        lines.append(f"- target: difference ≤ 1e-4 ({'met' if worst <= 1e-4 else 'not met'})")
    lines += ["", "## Parts of the time", "", *parts_table(ours)]
    return lines


def sweep(options: argparse.Namespace) -> list[str]:
    """Return a table of ours and of naive with logits at the response, for several workloads."""
    works = [Work(context=c) for c in (1_000, 4_000)]
    works += [Work(documents=n) for n in (1, 4, 6)]
    works += [Work(group=g) for g in (4, 16)]
    works += [Work(unequal=True), Work(context=300, group=4, response=32, groups=16)]
    works.append(Work(context=120, documents=1, group=2, response=16, groups=100))
    works += [Work(context=16_000, documents=1, group=g) for g in (4, 16)]
    head = ["workload", "naive, tokens", "ours, tokens", "formula", "naive, s", "ours, s", "ratio"]
    head.append("difference")
    lines = [row(*head), row(*["---"] * len(head))]
    for work in works:
        pairs = (1 + work.documents) * work.group * work.groups
        if pairs * work.context > options.most:
            continue
        rounds = options.rounds if pairs * work.context <= LONG else 1
        runs = spawn_in_turn(dict.fromkeys(METHODS[1:3], rounds), work, options)
        ours, other = runs["ours"], runs["naive, response"]
        lines.append(
            row(
                str(work),
                f"{other['tokens']:,}",
                f"{ours['tokens']:,}",
                f"{formula(work)[0]:,}",
                f"{other['seconds']:.1f}",
                f"{ours['seconds']:.1f}",
                f"{other['seconds'] / ours['seconds']:.2f} ×",
                f"{largest_difference(ours, other):.1g}",
            )
        )
    return lines


def precision(options: argparse.Namespace) -> list[str]:
    """Return a table of the differences between bfloat16 and float32."""
    work = Work(context=1_000, group=8)
    exact = spawn("naive, response", work, options, "float32")["values"]
    head = ["bfloat16, " + str(work), "nats per token", "nats of E", "crossed thresholds"]
    lines = [row(*head), row(*["---"] * len(head))]
    for method in ROUGH:
        values = spawn(method, work, options, "bfloat16")["values"]
        gaps = [
            abs(a - b)
            for x, y in zip(values, exact, strict=True)
            for a, b in zip(x, y, strict=True)
        ]
        flipped, moved = flips(values, exact, work)
        mean = sum(gaps) / len(gaps)
        lines.append(row(method, f"{mean:.3g}", f"{moved:.3g}", f"{flipped} of {work.group}"))
    return lines


def sizes_in_memory(options: argparse.Namespace) -> list[str]:
    """Return tables of the time and the memory of different sizes in memory."""
    model = make_model(options.shape, options.dtype, options.device)
    lines = ["Seconds of 3,072 rows of logits, by rows and tokens of the vocabulary at a time:", ""]
    lines += likelihood_sizes.logits(model, lambda: clock(options.device))
    del model
    works = (Work(), Work(context=8_000), Work(context=300, group=4, response=32, groups=16))
    for method, option, values in (
        ("tree", "prefill", likelihood_sizes.PREFILL),
        ("shared", "token_budget", likelihood_sizes.BUDGETS),
    ):
        runs = {str(work): lambda name, work=work: spawn(name, work, options) for work in works}
        lines += ["", f"The method `{method}`, by `{option}`:", ""]
        lines += likelihood_sizes.policy(option, values, f"only={method}", runs)
    return lines


def row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def machine(options: argparse.Namespace) -> str:
    import torch
    import transformers

    where = torch.cuda.get_device_name() if options.device == "cuda" else platform.machine()
    return (
        f"{where}, {os.cpu_count()} cores, {torch.get_num_threads()} threads; shape "
        f"{options.shape}, {options.dtype}; torch {torch.__version__}, transformers "
        f"{transformers.__version__}."
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shape", choices=SHAPES, default="100m")
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--sweep", action="store_true", help="measure other workloads")
    parser.add_argument("--precision", action="store_true", help="compare bfloat16 with float32")
    parser.add_argument("--sizes", action="store_true", help="compare sizes in memory at a time")
    parser.add_argument("--rounds", type=int, default=3, help="runs of each method")
    most = "leave out workloads of the sweep with more tokens of contexts"
    parser.add_argument("--most", type=int, default=10**6, help=most)
    parser.add_argument("--load", default="", help="describe the other load of the machine")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    for name in ("context", "documents", "group", "response"):
        parser.add_argument(f"--{name}", type=int, default=getattr(Work(), name))
    options = parser.parse_args()
    if options.one:
        methods, work, *where = json.loads(options.one)
        run = run_method if isinstance(methods, str) else run_in_turn
        print(json.dumps(run(methods, Work(**work), *where)))
        return
    work = Work(options.context, options.documents, options.group, options.response)
    lines = [
        "# Speed of contrastive likelihoods",
        "",
        f"{machine(options)} {options.load}".strip(),
        "",
        METHOD,
        "",
    ]
    parts = {
        "sweep": ("Other workloads", sweep),
        "precision": ("Precision, as differences from float32", precision),
        "sizes": ("Sizes in memory at a time", sizes_in_memory),
    }
    sections = [name for name in parts if getattr(options, name)]
    for name in sections:
        title, table = parts[name]
        lines += [f"## {title}", "", *table(options), ""]
    if not sections:
        lines += [f"## {work}", "", *reference(work, options), ""]
    page = "\n".join(lines)
    print(page)
    if options.shape != "tiny":
        RESULT.parent.mkdir(exist_ok=True)
        where = [options.device] if options.device != "cpu" else []
        name = "-".join([RESULT.stem, *sections, *where])
        RESULT.with_name(f"{name}.md").write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
