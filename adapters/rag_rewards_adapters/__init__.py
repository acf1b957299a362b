"""Recipes inside trainers. A module or folder per trainer; each imports its trainer on use.

`reading` makes a rollout of what a trainer has, and `scoring` scores rollouts and returns the
numbers that a trainer needs. `trainer_reward` is the base of reward functions over batches, and
`engine_policy` that of policies on a trainer's rollout engine.
"""
