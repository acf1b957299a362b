"""python -m rag_rewards"""

from rag_rewards.cli import main

main()
