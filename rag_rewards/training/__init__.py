"""The training side of the papers: advantages, KL estimators, curricula."""
