"""Adapters between rag-rewards and trainers. The core imports nothing from here."""
