"""Real models behind the protocols, each imported only when it is asked for."""
