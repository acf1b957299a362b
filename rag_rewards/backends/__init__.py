"""Real models behind the protocols of models.py, each imported only when it is asked for."""
