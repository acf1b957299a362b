#!/usr/bin/env bash
# GRPO with verl, with the reward arena. Further settings on the command line take precedence.
set -euo pipefail
cd "$(dirname "$0")"

settings=(
    # your setup
    actor_rollout_ref.model.path=Qwen/Qwen2.5-3B-Instruct
    data.train_files=train.parquet
    data.val_files=train.parquet
    # your setup: without a validation file, no validation
    trainer.val_before_train=False
    trainer.test_freq=-1
    # your setup
    trainer.save_freq=20
    trainer.n_gpus_per_node=8
    'trainer.logger=[console]'
    actor_rollout_ref.rollout.name=vllm
    actor_rollout_ref.actor.use_dynamic_bsz=True
    trainer.experiment_name=arena
    # for the reward
    reward.reward_manager.name=rag_rewards
    +reward.custom_reward_function.reward_kwargs.recipe=arena
    +reward.custom_reward_function.reward_kwargs.hardened=true
    # ARENA, appendix E
    data.train_batch_size=256
    # ARENA, appendix E: one update per step
    actor_rollout_ref.actor.ppo_mini_batch_size=256
    # not stated
    data.max_prompt_length=4096
    # for the reward: excludes truncated prompts
    data.filter_overlong_prompts=True
    # ARENA, authors' code; the paper does not state it
    data.max_response_length=256
    # ARENA, appendix E
    actor_rollout_ref.rollout.n=7
    actor_rollout_ref.rollout.temperature=0.9
    # not stated
    actor_rollout_ref.rollout.top_p=1.0
    # ARENA, appendix E
    actor_rollout_ref.actor.optim.lr=3e-06
    # ARENA, authors' code; the paper does not state it
    actor_rollout_ref.actor.optim.lr_scheduler_type=cosine
    actor_rollout_ref.actor.optim.lr_warmup_steps_ratio=0.1
    # ARENA, appendix E
    actor_rollout_ref.actor.ppo_epochs=1
    actor_rollout_ref.actor.clip_ratio=0.2
    # ARENA, authors' code; the paper does not state it
    actor_rollout_ref.actor.loss_agg_mode=token-mean
    trainer.total_epochs=1
    # ARENA, section 3.2, and the authors' code
    actor_rollout_ref.actor.use_kl_loss=True
    actor_rollout_ref.actor.kl_loss_type=mse
    # ARENA, appendix E
    actor_rollout_ref.actor.kl_loss_coef=0.04
    # for the reward
    algorithm.adv_estimator=grpo
    # for the reward: checks the rows, replaces unscored groups, logs components
    trainer.v1.sampler.sync_refill_failed_groups=True
    trainer.v1.sampler.custom_sampler.path=pkg://rag_rewards_adapters.verl_sampler
    trainer.v1.sampler.custom_sampler.name=RagReplayBuffer
)
python3 -m verl.trainer.main_ppo "${settings[@]}" "$@"
