"""Parts of a scoring run: dumps of rollouts, the Ray cluster, and replay with other settings."""
