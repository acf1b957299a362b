"""A world small enough to learn in minutes: proof that a reward teaches, on two processor cores."""
