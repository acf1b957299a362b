#!/usr/bin/env bash
# GRPO with NeMo RL, with the reward arena. Further settings on the command line take precedence.
set -euo pipefail
cd "$(dirname "$0")"

# your setup: NEMO_RL is the folder of NeMo RL, and CONFIG a configuration of its folder
# examples/nemo_gym for your model. NeMo Gym finds the server in its own folder.
: "${NEMO_RL:?set NEMO_RL}" "${CONFIG:?set CONFIG}"
ln -sfn "$PWD/resources_servers/rag_rewards" "$NEMO_RL/3rdparty/Gym-workspace/Gym/resources_servers/rag_rewards"

settings=(
    # your setup
    policy.model_name=Qwen/Qwen2.5-3B-Instruct
    "data.train.data_path=$PWD/train.jsonl"
    "data.validation.data_path=$PWD/train.jsonl"
    # your setup: without a validation file, no validation
    grpo.val_period=0
    grpo.val_at_start=false
    # your setup
    "checkpointing.checkpoint_dir=$PWD/arena"
    # for the reward
    'env.nemo_gym.config_paths=[responses_api_models/vllm_model/configs/vllm_model_for_training.yaml,resources_servers/rag_rewards/configs/rag_rewards.yaml]'
    # ARENA, appendix E
    grpo.num_prompts_per_step=256
    grpo.num_generations_per_prompt=7
    # ARENA, authors' code; the paper does not state it
    grpo.max_num_epochs=1
    # ARENA, appendix E
    policy.generation.temperature=0.9
    # not stated
    policy.generation.top_p=1.0
    # ARENA, authors' code; the paper does not state it
    policy.generation.max_new_tokens=256
    # prompt and response
    policy.max_total_sequence_length=4352
    # ARENA, appendix E
    policy.megatron_cfg.optimizer.lr=3e-06
    # ARENA, authors' code; the paper does not state it
    policy.megatron_cfg.scheduler.lr_decay_style=cosine
    # ARENA, appendix E
    loss_fn.ratio_clip_min=0.2
    loss_fn.ratio_clip_max=0.2
    # ARENA, authors' code; the paper does not state it
    loss_fn.token_level_loss=true
    # ARENA, section 3.2, and the authors' code
    loss_fn.reference_policy_kl_type=k2
    # ARENA, appendix E
    loss_fn.reference_policy_kl_penalty=0.04
    # ARENA, section 3.2, and the authors' code
    grpo.skip_reference_policy_logprobs_calculation=false
    # for the reward
    grpo.use_leave_one_out_baseline=false
    grpo.normalize_rewards=true
)
cd "$NEMO_RL"
python3 examples/nemo_gym/run_grpo_nemo_gym.py --config "$CONFIG" "${settings[@]}" "$@"
