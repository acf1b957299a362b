"""Train with a recipe in TRL's GRPOTrainer on the rows of this folder.

python examples/train_trl.py                       # a small random model on the CPU
python examples/train_trl.py --model path/to/model --recipe ctrl-rag --steps 100
"""

import argparse
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from rag_rewards_adapters.trl import RagReward
from transformers import AutoModelForCausalLM, AutoTokenizer, Qwen2Config, Qwen2ForCausalLM
from trl import GRPOConfig, GRPOTrainer

from rag_rewards.prompts import GROUNDED
from rag_rewards.rows import decode_row

HERE = Path(__file__).resolve().parent


def rows() -> Dataset:
    """Return a data set with the prompt and the gold fields of each question in arena.jsonl.

    A column has one type. Therefore, all answers are lists of lists and all ids are strings.
    """
    questions = {}
    for line in (HERE / "arena.jsonl").read_text("utf-8").splitlines():
        row = decode_row(line)
        pairs = zip(row.labels, row.documents or (), strict=True)
        questions[row.question] = {
            "prompt": GROUNDED.messages(row),
            "question": row.question,
            "documents": [{"id": label, "title": d.title, "text": d.text} for label, d in pairs],
            "supporting": list(row.supporting_labels),
            "answers": [list(aliases) for aliases in row.gold],
        }
    return Dataset.from_list(list(questions.values()))


def random_model(data: Dataset) -> tuple[Any, Any]:
    """Return a model with two layers and random weights, and a byte-level tokenizer."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    pad, end = special = ["<|pad|>", "<|im_end|>"]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=2_000, special_tokens=special, initial_alphabet=alphabet, show_progress=False
    )
    bpe.train_from_iterator((row["prompt"][0]["content"] for row in data), trainer)
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=bpe, pad_token=pad, eos_token=end)
    tokenizer.chat_template = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
    sizes = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2}
    config = Qwen2Config(
        vocab_size=len(tokenizer), pad_token_id=0, eos_token_id=1, **sizes, **heads
    )
    return Qwen2ForCausalLM(config), tokenizer


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", help="Folder of a model. The default is a small random model.")
    parser.add_argument("--recipe", default="arena")
    parser.add_argument("--steps", type=int, default=3)
    options = parser.parse_args()
    data = rows()
    if options.model:
        model = AutoModelForCausalLM.from_pretrained(options.model)
        tokenizer = AutoTokenizer.from_pretrained(options.model)
    else:
        model, tokenizer = random_model(data)

    reward = RagReward(options.recipe)
    trainer = GRPOTrainer(
        model,
        reward_funcs=reward,
        args=GRPOConfig(
            output_dir="build/train-trl",
            num_generations=4,
            per_device_train_batch_size=4,
            max_completion_length=64,
            max_steps=options.steps,
            logging_steps=1,
            report_to="none",
            save_strategy="no",
            bf16=torch.cuda.is_available(),  # the default of the trainer does not work on a CPU
        ),
        train_dataset=data,
        processing_class=tokenizer,
    )
    reward.bind(trainer)
    trainer.train()
    print(reward.signature)


if __name__ == "__main__":
    main()
