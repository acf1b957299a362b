"""The command line. Exit codes: 0 all scored, 2 unusable arguments or stopped, 3 some in error."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import typer

from rag_rewards.errors import RagRewardsError
from rag_rewards.version import __version__

app = typer.Typer(
    name="rag-rewards",
    help="Reward functions for reinforcement learning of retrieval-augmented generators.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)


TYPER_INTERRUPTED = 130
"""What newer versions of typer make of Ctrl-C."""


class OnError(str, Enum):
    report = "report"
    stop = "stop"


class Order(str, Enum):
    kept = "kept"
    shuffled = "shuffled"


class Unanswered(str, Enum):
    fail = "fail"
    value = "value"


RecipeOption = Annotated[
    str | None, typer.Option("--recipe", "-r", help="Which recipe; see `rag-rewards recipes`.")
]
SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", help="A setting, dotted and repeatable: --set accuracy.metric=f1"),
]
ConfigOption = Annotated[
    Path | None, typer.Option("--config", help="YAML file with the keys of --set.")
]
HardenedOption = Annotated[
    bool, typer.Option("--hardened", help="The profile under which no known attack pays.")
]
GroupSizeOption = Annotated[
    int | None, typer.Option("--group-size", help="Every N rows are a group.")
]
SortOption = Annotated[
    bool, typer.Option("--sort", help="Bring the rows of a group together first.")
]
ModelOption = Annotated[
    str | None,
    typer.Option("--model", help="Policy for likelihoods: a folder, or a server's URL."),
]
BackendOption = Annotated[str, typer.Option("--backend", help="transformers, vllm or sglang.")]
DtypeOption = Annotated[str, typer.Option("--dtype", help="float32, bfloat16, float16.")]
DeviceOption = Annotated[
    str | None, typer.Option("--device", help="cpu, cuda, …; default: a GPU if there is one.")
]
AdapterOption = Annotated[
    str | None, typer.Option("--adapter", help="Folder of a LoRA adapter for --model.")
]
TokenizerOption = Annotated[
    str | None, typer.Option("--tokenizer", help="Folder of a server's tokenizer.")
]
TokenBudgetOption = Annotated[
    int | None, typer.Option("--token-budget", help="Tokens in memory at a time.")
]
TruncateOption = Annotated[
    bool,
    typer.Option("--truncate", help="Too long: leave out documents that do not support."),
]
NliOption = Annotated[
    str | None, typer.Option("--nli", help="Entailment model for citations: a folder.")
]
SimilarityOption = Annotated[
    str | None, typer.Option("--similarity", help="Sentence encoder for refusals: a folder.")
]
JudgeOption = Annotated[
    str | None, typer.Option("--judge", help="URL of an OpenAI-compatible API, to /v1.")
]
JudgeModelOption = Annotated[
    str | None, typer.Option("--judge-model", help="The judge's name there.")
]
JudgeCacheOption = Annotated[
    str | None, typer.Option("--judge-cache", help="File that keeps verdicts.")
]
JudgeRetriesOption = Annotated[
    int, typer.Option("--judge-retries", help="Further attempts of a request that failed.")
]


@app.command(
    epilog="Example: rag-rewards score examples/arena.jsonl -o scored.jsonl --recipe arena"
)
def score(
    source: Annotated[str, typer.Argument(metavar="IN", help="JSONL or .parquet; - is stdin.")],
    output: Annotated[
        str | None,
        typer.Option("--output", "-o", help="Scored rows; .parquet or JSONL; - is stdout."),
    ] = None,
    recipe: RecipeOption = None,
    changes: SetOption = None,
    config: ConfigOption = None,
    hardened: HardenedOption = False,
    workers: Annotated[int, typer.Option("--workers", help="Processes that score.")] = 1,
    keep_evidence: Annotated[
        bool, typer.Option("--keep-evidence", help="Write what models said beside the score.")
    ] = False,
    on_error: Annotated[
        OnError,
        typer.Option("--on-error", help="report: bad rows to OUT.errors.jsonl; stop at the first."),
    ] = OnError.report,
    group_size: GroupSizeOption = None,
    sort: SortOption = False,
    progress: Annotated[
        bool | None,
        typer.Option(
            "--progress/--no-progress", help="Default: on a terminal.", show_default=False
        ),
    ] = None,
    table: Annotated[
        bool | None,
        typer.Option(
            "--table/--jsonl",
            help="A table for people; default on a terminal without -o.",
            show_default=False,
        ),
    ] = None,
    model: ModelOption = None,
    backend: BackendOption = "transformers",
    dtype: DtypeOption = "auto",
    device: DeviceOption = None,
    adapter: AdapterOption = None,
    tokenizer: TokenizerOption = None,
    token_budget: TokenBudgetOption = None,
    truncate: TruncateOption = False,
    nli: NliOption = None,
    similarity: SimilarityOption = None,
    judge: JudgeOption = None,
    judge_model: JudgeModelOption = None,
    judge_cache: JudgeCacheOption = None,
    judge_retries: JudgeRetriesOption = 5,
) -> None:
    """Score rollouts with a recipe: a row in, the same row with its reward and reasons out."""
    from rich.console import Console

    from rag_rewards.commands.plans import make_plan
    from rag_rewards.commands.score import Options
    from rag_rewards.commands.score import score as run_score
    from rag_rewards.grading import ModelOptions
    from rag_rewards.report.progress import told
    from rag_rewards.report.terminal import plain, print_scores, print_summary

    readable = output is None and sys.stdout.isatty() if table is None else table
    plan = make_plan(
        recipe,
        changes or (),
        config,
        hardened=hardened,
        keep_evidence=keep_evidence,
        collect=readable,
    )
    options = Options(
        source=source,
        output=output or "-",
        workers=workers,
        on_error=on_error.value,
        group_size=group_size,
        sort=sort,
        progress=sys.stderr.isatty() if progress is None else progress,
        table=readable and output is None,
        models=ModelOptions(
            model=model,
            backend=backend,
            dtype=dtype,
            device=device,
            adapter=adapter,
            tokenizer=tokenizer,
            token_budget=token_budget,
            truncate=truncate,
            nli=nli,
            similarity=similarity,
            judge=judge,
            judge_model=judge_model,
            judge_cache=judge_cache,
            judge_retries=judge_retries,
        ),
    )
    run = run_score(plan, options)
    built, console = plan.build(), Console(stderr=True)
    if readable:
        width = None if sys.stdout.isatty() else 110
        print_scores(Console(width=width), built.name, built.equation, run.tally, run.told)
    if run.stopped_by:
        print(f"stopped at {plain(run.stopped_by)}", file=sys.stderr)
        if run.partial:
            print(
                f"{run.tally.rows:,} rows scored before it stand in {run.partial}", file=sys.stderr
            )
        raise typer.Exit(run.exit_code)
    print_summary(console, run.tally, run.seconds, run.signature)
    if asked := told(run.usage):
        print(f"models: {asked}", file=sys.stderr)
    if run.judged:
        print(f"judge: {run.judged}", file=sys.stderr)
    if run.tally.errors and options.errors:
        print(f"bad rows: {options.errors}", file=sys.stderr)
    raise typer.Exit(run.exit_code)


@app.command(epilog="Example: rag-rewards recipes arena")
def recipes(
    name: Annotated[str | None, typer.Argument(help="One recipe in full.")] = None,
    json: Annotated[bool, typer.Option("--json", help="As data.")] = False,
) -> None:
    """List the recipes; with a name: components, settings, sources, equation, loopholes."""
    import msgspec
    from rich.console import Console

    from rag_rewards.commands.recipes import as_data, print_recipe, print_recipes
    from rag_rewards.recipes import RECIPES

    if json:
        data: Any = as_data(name) if name else [as_data(each) for each in RECIPES]
        print(msgspec.json.format(msgspec.json.encode(data), indent=2).decode())
        return
    console = Console(width=None if sys.stdout.isatty() else 120)
    if name:
        print_recipe(console, name)
    else:
        print_recipes(console)


@app.command(
    epilog="Example: rag-rewards replay examples/ctrl-rag.jsonl -r ctrl-rag --set threshold=null"
)
def replay(
    source: Annotated[str, typer.Argument(metavar="IN", help="Rows that carry evidence.")],
    recipe: RecipeOption = None,
    changes: SetOption = None,
    config: ConfigOption = None,
    hardened: HardenedOption = False,
    base: Annotated[
        list[str] | None,
        typer.Option("--base", help="A setting of the scoring to compare with."),
    ] = None,
    group_size: GroupSizeOption = None,
    sort: SortOption = False,
    show: Annotated[int, typer.Option("--show", help="How many changed rollouts to show.")] = 5,
    json: Annotated[bool, typer.Option("--json", help="As data.")] = False,
) -> None:
    """Score rows again with other settings: what changes in rewards, advantages, dead groups."""
    from rich.console import Console

    from rag_rewards.commands.replay import compare, make_plans, print_comparison

    before, after = make_plans(
        source, recipe, changes or (), config, hardened=hardened, base=base or ()
    )
    comparison = compare(source, before, after, group_size=group_size, sort=sort, show=show)
    if json:
        import msgspec

        print(msgspec.json.format(msgspec.json.encode(comparison), indent=2).decode())
    else:
        print_comparison(Console(width=None if sys.stdout.isatty() else 110), comparison)
    raise typer.Exit(3 if comparison.errors else 0)


@app.command(epilog="Example: rag-rewards audit --recipe arena --hardened")
def audit(
    source: Annotated[
        str | None, typer.Argument(metavar="[IN]", help="Rows of your own to attack.")
    ] = None,
    recipe: Annotated[
        str | None,
        typer.Option("--recipe", "-r", help="A recipe, or module:name of a reward of your own."),
    ] = None,
    changes: SetOption = None,
    config: ConfigOption = None,
    hardened: HardenedOption = False,
    attacks: Annotated[
        list[str] | None,
        typer.Option("--attack", help="module:name of an attack of your own; repeatable."),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="As data.")] = False,
    model: ModelOption = None,
    backend: BackendOption = "transformers",
    tokenizer: TokenizerOption = None,
    nli: NliOption = None,
    similarity: SimilarityOption = None,
    judge: JudgeOption = None,
    judge_model: JudgeModelOption = None,
    judge_cache: JudgeCacheOption = None,
) -> None:
    """Try every known way to cheat a reward: which attack pays?

    Exit code 1 when one does, else 3 when some rows could not be scored.
    """
    import msgspec
    from rich.console import Console

    from rag_rewards.commands.audit import as_data, print_audit, reward_of
    from rag_rewards.commands.audit import run as run_audit
    from rag_rewards.grading import ModelOptions

    models = ModelOptions(
        model=model,
        backend=backend,
        tokenizer=tokenizer,
        nli=nli,
        similarity=similarity,
        judge=judge,
        judge_model=judge_model,
        judge_cache=judge_cache,
    )
    reward = reward_of(recipe, changes or (), config, hardened=hardened)
    found = run_audit(reward, source, attacks or (), models)
    if json:
        print(msgspec.json.format(msgspec.json.encode(as_data(found)), indent=2).decode())
    else:
        print_audit(Console(width=None if sys.stdout.isatty() else 120), found)
    raise typer.Exit((3 if found.failed else 0) if found.ok else 1)


@app.command(epilog="Example: rag-rewards evaluate examples/arena.jsonl --metrics em,f1,relevance")
def evaluate(
    sources: Annotated[
        list[str], typer.Argument(metavar="IN…", help="JSONL or .parquet; further runs to compare.")
    ],
    metrics: Annotated[
        list[str],
        typer.Option("--metrics", "-m", help="A list: em,f1(normalizer=triviaqa),pass@8,by:hops"),
    ],
    by: Annotated[
        list[str] | None,
        typer.Option("--by", help="Also per value of a field of the rows; or: confidence."),
    ] = None,
    output: Annotated[
        str | None, typer.Option("--output", "-o", help="JSON to a file, beside the table.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="As data.")] = False,
    resamples: Annotated[int, typer.Option("--resamples", help="Of the bootstrap.")] = 1000,
    seed: Annotated[int, typer.Option("--seed", help="Of the bootstrap.")] = 0,
    nli: NliOption = None,
    device: DeviceOption = None,
    judge: JudgeOption = None,
    judge_model: JudgeModelOption = None,
    judge_cache: JudgeCacheOption = None,
    judge_retries: JudgeRetriesOption = 5,
) -> None:
    """Metrics of rows, with the counts behind them and 95% intervals; several runs compared.

    Exit code 3 when rows were in error, or lacked what a metric needs.
    """
    from rich.console import Console

    from rag_rewards.commands.evaluate import Options, as_json, print_evaluation, write
    from rag_rewards.commands.evaluate import evaluate as run
    from rag_rewards.grading import ModelOptions

    options = Options(
        sources=sources,
        metrics=metrics,
        by=by or (),
        output=output,
        resamples=resamples,
        seed=seed,
        models=ModelOptions(
            nli=nli,
            device=device,
            judge=judge,
            judge_model=judge_model,
            judge_cache=judge_cache,
            judge_retries=judge_retries,
        ),
    )
    found = run(options)
    if output:
        write(found, output)
    if json:
        print(as_json(found).decode(), end="")
    else:
        print_evaluation(Console(width=None if sys.stdout.isatty() else 120), found)
    if found.asked:
        print(f"models: {found.asked}", file=sys.stderr)
    print(found.signature, file=sys.stderr)
    raise typer.Exit(3 if found.in_error else 0)


@app.command(
    epilog="Example: rag-rewards explain examples/ctrl-rag.jsonl --id kinshasa-right -r ctrl-rag"
)
def explain(
    source: Annotated[str, typer.Argument(metavar="IN", help="Rows, scored or not; - is stdin.")],
    name: Annotated[str, typer.Option("--id", help="Which row; one without an id is its line.")],
    output: Annotated[
        str | None, typer.Option("--output", "-o", help="A page, one .html file.")
    ] = None,
    recipe: RecipeOption = None,
    changes: SetOption = None,
    config: ConfigOption = None,
    hardened: HardenedOption = False,
    json: Annotated[bool, typer.Option("--json", help="As data.")] = False,
    model: ModelOption = None,
    backend: BackendOption = "transformers",
    dtype: DtypeOption = "auto",
    device: DeviceOption = None,
    adapter: AdapterOption = None,
    tokenizer: TokenizerOption = None,
    truncate: TruncateOption = False,
    nli: NliOption = None,
    similarity: SimilarityOption = None,
    judge: JudgeOption = None,
    judge_model: JudgeModelOption = None,
    judge_cache: JudgeCacheOption = None,
) -> None:
    """Explain one row: words by what the documents added, documents, components and reasons."""
    import msgspec
    from rich.console import Console

    from rag_rewards.commands.explain import explained
    from rag_rewards.commands.plans import make_plan
    from rag_rewards.commands.report import write_page
    from rag_rewards.grading import ModelOptions
    from rag_rewards.report.shaded import print_explanation

    options = ModelOptions(
        model=model,
        backend=backend,
        dtype=dtype,
        device=device,
        adapter=adapter,
        tokenizer=tokenizer,
        truncate=truncate,
        nli=nli,
        similarity=similarity,
        judge=judge,
        judge_model=judge_model,
        judge_cache=judge_cache,
    )
    asked = recipe or config or changes or hardened
    plan = make_plan(recipe, changes or (), config, hardened=hardened) if asked else None
    found = explained(source, name, plan, options)
    if output:
        from rag_rewards.report.page import page

        write_page(output, page(f"{found.id} – rag-rewards", "row.js", found))
    elif json:
        print(msgspec.json.format(msgspec.json.encode(found), indent=2).decode())
    else:
        print_explanation(Console(width=None if sys.stdout.isatty() else 110), found)


@app.command(epilog="Example: rag-rewards report scored.jsonl -o report.html")
def report(
    source: Annotated[str, typer.Argument(metavar="IN", help="Scored rows; - is stdin.")],
    output: Annotated[str, typer.Option("--output", "-o", help="The page, one .html file.")],
    recipe: RecipeOption = None,
    changes: SetOption = None,
    config: ConfigOption = None,
    hardened: HardenedOption = False,
    title: Annotated[str | None, typer.Option("--title")] = None,
) -> None:
    """Look at scored rows: one page with charts, groups, drift over training, and every rollout.

    Rows without a score are scored first, with --recipe. Exit code 3 when some cannot be shown.
    """
    from rag_rewards.commands.plans import make_plan
    from rag_rewards.commands.report import report as write_report
    from rag_rewards.report.terminal import plain

    asked = recipe or config or changes or hardened
    plan = make_plan(recipe, changes or (), config, hardened=hardened) if asked else None
    done = write_report(source, output, plan, title)
    for line in done.told:
        print(plain(line), file=sys.stderr)
    raise typer.Exit(3 if done.faults else 0)


@app.command(epilog="Example: rag-rewards serve --recipe arena --port 8000")
def serve(
    recipe: RecipeOption = None,
    changes: SetOption = None,
    config: ConfigOption = None,
    hardened: HardenedOption = False,
    host: Annotated[
        str, typer.Option("--host", help="Another address than this machine's needs a token.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port")] = 8000,
    token_file: Annotated[
        Path | None, typer.Option("--token-file", help="File with the token; or RAG_REWARDS_TOKEN.")
    ] = None,
    max_body: Annotated[int, typer.Option("--max-body", help="MiB of a request.")] = 16,
    max_rows: Annotated[int, typer.Option("--max-rows", help="Rows of a request.")] = 1024,
    deadline: Annotated[float, typer.Option("--deadline", help="Seconds for a request.")] = 120.0,
    batch_ms: Annotated[
        float,
        typer.Option("--batch-ms", help="A request waits for others before a model is asked."),
    ] = 5.0,
    on_error: Annotated[
        Unanswered,
        typer.Option("--on-error", help="POST /openrlhf without a score: fail, or --error-value."),
    ] = Unanswered.fail,
    error_value: Annotated[float | None, typer.Option("--error-value")] = None,
    model: ModelOption = None,
    backend: BackendOption = "transformers",
    dtype: DtypeOption = "auto",
    device: DeviceOption = None,
    adapter: AdapterOption = None,
    tokenizer: TokenizerOption = None,
    token_budget: TokenBudgetOption = None,
    truncate: TruncateOption = False,
    nli: NliOption = None,
    similarity: SimilarityOption = None,
    judge: JudgeOption = None,
    judge_model: JudgeModelOption = None,
    judge_cache: JudgeCacheOption = None,
    judge_retries: JudgeRetriesOption = 5,
) -> None:
    """Serve one recipe over HTTP: POST /score, POST /openrlhf, GET /health, /metrics and a page."""
    from rag_rewards.commands.plans import make_plan
    from rag_rewards.commands.serve import Address, in_flight, read_token
    from rag_rewards.commands.serve import serve as run_server
    from rag_rewards.errors import UsageError
    from rag_rewards.grading import ModelOptions
    from rag_rewards.server.options import ServerOptions

    if (on_error is Unanswered.value) != (error_value is not None):
        raise UsageError("--on-error value and --error-value NUMBER go together")
    models = ModelOptions(
        model=model,
        backend=backend,
        dtype=dtype,
        device=device,
        adapter=adapter,
        tokenizer=tokenizer,
        token_budget=token_budget,
        truncate=truncate,
        nli=nli,
        similarity=similarity,
        judge=judge,
        judge_model=judge_model,
        judge_cache=judge_cache,
        judge_retries=judge_retries,
    )
    options = ServerOptions(
        token=read_token(token_file),
        max_body=max_body << 20,
        max_rows=max_rows,
        deadline=deadline,
        batch_wait=batch_ms / 1000,
        in_flight=in_flight(models),
        error_value=error_value,
    )
    plan = make_plan(recipe, changes or (), config, hardened=hardened)
    run_server(plan, models, Address(host, port), options)


@app.command(epilog="Example: rag-rewards init verl --recipe arena --policy path/to/model")
def init(
    trainer: Annotated[str, typer.Argument(help="trl, verl, openrlhf or ms-swift.")],
    recipe: RecipeOption = None,
    policy: Annotated[
        str, typer.Option("--policy", help="The model to train: a folder or a hub's name.")
    ] = "path/to/model",
    data: Annotated[
        str | None, typer.Option("--data", help="What `rag-rewards prepare` wrote.")
    ] = None,
    validation: Annotated[str | None, typer.Option("--validation")] = None,
    folder: Annotated[Path, typer.Option("--output", "-o", help="Folder for the files.")] = Path(
        "training"
    ),
    changes: SetOption = None,
    config: ConfigOption = None,
    hardened: HardenedOption = False,
    model: ModelOption = None,
    backend: BackendOption = "transformers",
    tokenizer: TokenizerOption = None,
    nli: NliOption = None,
    similarity: SimilarityOption = None,
    judge: JudgeOption = None,
    judge_model: JudgeModelOption = None,
) -> None:
    """Write a start script with a recipe's published training side, a source beside each value."""
    from rag_rewards.commands.init import check, start_of, write
    from rag_rewards.commands.plans import make_plan
    from rag_rewards.grading import ModelOptions

    plan = make_plan(recipe, changes or (), config, hardened=hardened)
    models = ModelOptions(
        model=model,
        backend=backend,
        tokenizer=tokenizer,
        nli=nli,
        similarity=similarity,
        judge=judge,
        judge_model=judge_model,
    )
    rows = data or ("train.parquet" if trainer == "verl" else "train.jsonl")
    for path in write(trainer, start_of(plan, models, policy, rows, validation), folder):
        print(path)
    if fault := check(trainer, folder):
        print(f"the installed {trainer} does not know: {fault}", file=sys.stderr)
        raise typer.Exit(1)


@app.command()
def doctor(
    json: Annotated[bool, typer.Option("--json", help="As data.")] = False,
) -> None:
    """Trainers, plugins, extras and GPU: what is here, and what to do about each gap.

    Exit code 1 when something that is installed does not work.
    """
    import msgspec
    from rich.console import Console

    from rag_rewards.commands.doctor import examine, print_findings

    findings = examine()
    if json:
        print(msgspec.json.format(msgspec.json.encode(findings), indent=2).decode())
    else:
        print_findings(Console(width=None if sys.stdout.isatty() else 120), findings)
    raise typer.Exit(any(finding.state == "problem" for finding in findings))


@app.command(
    epilog="Example: rag-rewards prepare hotpotqa hotpot_train_v1.1.json -o train.parquet "
    "-r arena --trainer verl --preset arena-train"
)
def prepare(
    dataset: Annotated[
        str,
        typer.Argument(
            metavar="DATASET",
            help="hotpotqa, 2wikimultihopqa, musique, asqa, qampari, eli5, crag, nq, triviaqa; "
            "rows: this package's own.",
        ),
    ],
    source: Annotated[
        str, typer.Argument(metavar="IN", help="Its own file: JSON, JSONL (.gz, .bz2), .parquet.")
    ],
    output: Annotated[
        str, typer.Option("--output", "-o", help="verl: .parquet; all others: JSON lines.")
    ],
    recipe: Annotated[
        str, typer.Option("--recipe", "-r", help="Which recipe; see `rag-rewards recipes`.")
    ],
    trainer: Annotated[
        str, typer.Option("--trainer", "-t", help="verl, openrlhf, trl, ms-swift, or none.")
    ],
    preset: Annotated[
        str | None,
        typer.Option(
            help="A paper's size: arena-train, arena-test, ground-grpo-stage1, ground-grpo-stage2."
        ),
    ] = None,
    sample: Annotated[int | None, typer.Option(help="Draw so many of the usable rows.")] = None,
    unanswerable: Annotated[
        float | None, typer.Option(help="Share of --sample whose documents do not answer.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Of all that is drawn: rows, order, noise.")] = 0,
    order: Annotated[
        Order, typer.Option(help="Documents as they come, noise last; or shuffled by the seed.")
    ] = Order.kept,
    top: Annotated[
        int | None,
        typer.Option(
            help="Keep the first N documents, 0 all; asqa, qampari, eli5, nq, triviaqa: 5."
        ),
    ] = None,
    noise: Annotated[
        int | None, typer.Option(help="Add N documents that have nothing to do with the question.")
    ] = None,
    noise_to: Annotated[
        int | None, typer.Option(help="Add as many as make N documents (CTRL-RAG: 30).")
    ] = None,
    noise_from: Annotated[
        str | None, typer.Option(help="A corpus for noise; default: other rows of IN.")
    ] = None,
    find_answers: Annotated[
        bool,
        typer.Option(
            "--find-answers", help="Unmarked documents support an answer that stands in them."
        ),
    ] = False,
    split: Annotated[
        str | None, typer.Option(help="What the rows call themselves; default: train.")
    ] = None,
    progress: Annotated[
        bool | None,
        typer.Option(
            "--progress/--no-progress", help="Default: on a terminal.", show_default=False
        ),
    ] = None,
) -> None:
    """Turn a public data set's file into a trainer's, with a recipe's prompt and gold fields.

    Beside it stand a data card and the rows that were left out. Exit code 3 when some were broken.
    """
    from rag_rewards.commands.prepare import Options, told
    from rag_rewards.commands.prepare import prepare as run
    from rag_rewards.report.terminal import plain

    options = Options(
        dataset=dataset,
        source=source,
        output=output,
        recipe=recipe,
        trainer=trainer,
        split=split,
        seed=seed,
        order=order.value,
        top=top,
        noise=noise,
        noise_to=noise_to,
        noise_from=noise_from,
        find_answers=find_answers,
        sample=sample,
        unanswerable=unanswerable,
        preset=preset,
        progress=sys.stderr.isatty() if progress is None else progress,
    )
    done = run(options)
    for line in told(options, done):
        print(plain(line), file=sys.stderr)
    raise typer.Exit(3 if done.broken else 0)


@app.command(
    epilog="Example: rag-rewards probe questions.jsonl -o labelled.jsonl -r truthrl "
    "--set verifier=exact --model path/to/model"
)
def probe(
    source: Annotated[
        str, typer.Argument(metavar="IN", help="Rollouts in groups; with --model, questions.")
    ],
    output: Annotated[
        str, typer.Option("--output", "-o", help="A row a question, with its label. JSON lines.")
    ],
    recipe: RecipeOption = None,
    changes: SetOption = None,
    config: ConfigOption = None,
    hardened: HardenedOption = False,
    samples: Annotated[
        int, typer.Option("--samples", help="Responses to each question; with --model.")
    ] = 256,
    temperature: Annotated[float, typer.Option("--temperature", help="Of the sampling.")] = 1.0,
    max_tokens: Annotated[int, typer.Option("--max-tokens", help="Of a response.")] = 2048,
    seed: Annotated[int, typer.Option("--seed", help="Of the sampling.")] = 0,
    batch: Annotated[
        int, typer.Option("--batch", help="Responses asked for at a time; lost at most if killed.")
    ] = 64,
    keep_rollouts: Annotated[
        str | None, typer.Option("--keep-rollouts", help="File for what was sampled, as rows.")
    ] = None,
    right_at: Annotated[
        float, typer.Option("--right-at", help="`correct` from which a response is right.")
    ] = 1.0,
    group_size: GroupSizeOption = None,
    sort: SortOption = False,
    progress: Annotated[
        bool | None,
        typer.Option(
            "--progress/--no-progress", help="Default: on a terminal.", show_default=False
        ),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option("--model", help="Policy to sample from: a folder, or a server's URL."),
    ] = None,
    backend: BackendOption = "transformers",
    dtype: DtypeOption = "auto",
    device: DeviceOption = None,
    adapter: AdapterOption = None,
    tokenizer: TokenizerOption = None,
    truncate: TruncateOption = False,
    nli: NliOption = None,
    similarity: SimilarityOption = None,
    judge: JudgeOption = None,
    judge_model: JudgeModelOption = None,
    judge_cache: JudgeCacheOption = None,
    judge_retries: JudgeRetriesOption = 5,
) -> None:
    """Label questions out of knowledge: none of k responses is right, as the recipe says.

    With --model the responses are sampled and kept in OUT.samples.jsonl: run it again to go on.
    """
    from rag_rewards.commands.plans import make_plan
    from rag_rewards.commands.probe import Options, told, told_of_sampling
    from rag_rewards.commands.probe import probe as run
    from rag_rewards.datasets.sampling import Drawing
    from rag_rewards.grading import ModelOptions
    from rag_rewards.report.terminal import plain

    planned = recipe or changes or config or hardened
    options = Options(
        source=source,
        output=output,
        plan=make_plan(recipe, changes or (), config, hardened=hardened) if planned else None,
        models=ModelOptions(
            model=model,
            backend=backend,
            dtype=dtype,
            device=device,
            adapter=adapter,
            tokenizer=tokenizer,
            truncate=truncate,
            nli=nli,
            similarity=similarity,
            judge=judge,
            judge_model=judge_model,
            judge_cache=judge_cache,
            judge_retries=judge_retries,
        ),
        drawing=Drawing(samples, temperature, max_tokens, seed, batch),
        right_at=right_at,
        keep_rollouts=keep_rollouts,
        group_size=group_size,
        sort=sort,
        progress=sys.stderr.isatty() if progress is None else progress,
    )
    done = run(options)
    for line in (*told(options, done), *told_of_sampling(options, done)):
        print(plain(line), file=sys.stderr)
    if done.broken:
        print(f"bad rows: {options.errors}", file=sys.stderr)
    raise typer.Exit(3 if done.broken else 0)


@app.command(
    epilog="Example: rag-rewards select scored.jsonl -o train.jsonl --pass 0.1:0.875=0.9 "
    "--pass 1:1=0.1 --sample 10000"
)
def select(
    source: Annotated[
        str, typer.Argument(metavar="IN", help="Scored rollouts in groups; - is stdin.")
    ],
    output: Annotated[
        str, typer.Option("--output", "-o", help="A row a question, or --rollouts, or --make.")
    ],
    recipe: RecipeOption = None,
    changes: SetOption = None,
    config: ConfigOption = None,
    hardened: HardenedOption = False,
    passes: Annotated[
        list[str] | None,
        typer.Option(
            "--pass", help="Share of right responses, LOW:HIGH[=SHARE of the rows]; repeatable."
        ),
    ] = None,
    std_of: Annotated[
        str, typer.Option("--std-of", help="S (log-likelihood) or E (evidential contribution).")
    ] = "S",
    min_std: Annotated[
        float | None,
        typer.Option("--min-std", help="Its standard deviation over the group is above this."),
    ] = None,
    min_spread: Annotated[
        float | None,
        typer.Option("--min-spread", help="max − min of the reward is above this; 0: a signal."),
    ] = None,
    min_samples: Annotated[
        int, typer.Option("--min-samples", help="Groups of at least so many responses.")
    ] = 1,
    right_at: Annotated[
        float, typer.Option("--right-at", help="`correct` from which a response is right.")
    ] = 1.0,
    unique: Annotated[
        bool, typer.Option("--unique", help="Each question once, whatever its documents.")
    ] = False,
    exclude: Annotated[
        str | None, typer.Option("--exclude", help="File of questions to leave out.")
    ] = None,
    sample: Annotated[int | None, typer.Option("--sample", help="Draw so many questions.")] = None,
    seed: Annotated[int, typer.Option("--seed", help="Of all that is drawn.")] = 0,
    rollouts: Annotated[
        bool, typer.Option("--rollouts", help="All rollouts of the questions that are kept.")
    ] = False,
    make: Annotated[
        str | None,
        typer.Option("--make", help="A training set of chats: r-tuning, rft, dpo or sft."),
    ] = None,
    style: Annotated[
        str,
        typer.Option("--style", help="sft: direct (the gold answer) or reasoning (a response)."),
    ] = "direct",
    group_size: GroupSizeOption = None,
    sort: SortOption = False,
) -> None:
    """Select questions to train on by what was made of them, or make a training set of chats.

    Counts before and after each step stand in the summary and in OUT.card.md.
    """
    from rag_rewards.commands.plans import make_plan
    from rag_rewards.commands.select import Options, told
    from rag_rewards.commands.select import select as run
    from rag_rewards.report.terminal import plain

    planned = recipe or changes or config or hardened
    options = Options(
        source=source,
        output=output,
        plan=make_plan(recipe, changes or (), config, hardened=hardened) if planned else None,
        passes=tuple(passes or ()),
        std_of=std_of,
        min_std=min_std,
        min_spread=min_spread,
        min_samples=min_samples,
        right_at=right_at,
        unique=unique,
        exclude=exclude,
        sample=sample,
        seed=seed,
        rollouts=rollouts,
        make=make,
        style=style,
        group_size=group_size,
        sort=sort,
    )
    done = run(options)
    for line in told(options, done):
        print(plain(line), file=sys.stderr)
    if done.broken:
        print(f"bad rows: {options.errors}", file=sys.stderr)
    raise typer.Exit(3 if done.broken else 0)


def _version(value: bool) -> None:
    if value:
        print(f"rag-rewards {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Version, then end.")
    ] = False,
) -> None:
    """Reward functions for reinforcement learning of retrieval-augmented generators."""


def main(arguments: list[str] | None = None) -> None:
    """Entry point: every known fault is one clear line on standard error and an exit code."""
    _open_streams()
    try:
        code = app(arguments, standalone_mode=False)
        sys.stdout.flush()
        if code == TYPER_INTERRUPTED:
            raise KeyboardInterrupt
    except RagRewardsError as error:
        code = _complain(str(error))
    except (BrokenPipeError, SystemExit):  # typer makes a closed pipe an exit of its own
        _drop_output()
        code = 2
    except OSError as error:
        _drop_output()
        code = _complain(f"{error.filename or 'standard output'}: {error.strerror or error}")
    except (KeyboardInterrupt, typer.Abort):
        code = _complain("interrupted; what was scored stands in the .partial file, if any")
    except Exception as error:
        if not hasattr(error, "exit_code"):
            raise
        if hasattr(error, "show"):
            error.show()  # a usage error of the command line itself
        code = error.exit_code
    try:
        sys.stdout.flush()
    except OSError:  # it was said above; Python would end with a code of its own
        _drop_output()
    sys.exit(code if isinstance(code, int) else 0)


def _complain(message: str) -> int:
    from rag_rewards.report.terminal import plain

    with contextlib.suppress(OSError):
        print(f"rag-rewards: {plain(message)}", file=sys.stderr)
    return 2


def _open_streams() -> None:
    """Closed standard streams fail like any other file; no character is too odd to print."""
    if sys.stdin is None:
        sys.stdin = os.fdopen(os.open(os.devnull, os.O_WRONLY))
    if sys.stdout is None:
        sys.stdout = os.fdopen(os.open(os.devnull, os.O_RDONLY), "w")
    if sys.stderr is None:
        sys.stderr = os.fdopen(os.open(os.devnull, os.O_WRONLY), "w")
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")


def _drop_output() -> None:
    """What Python would still flush at its end has nowhere to go."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


if __name__ == "__main__":
    main()
