from rag_rewards_adapters.nemo_gym_server import RagRewardsServer

if __name__ == "__main__":
    RagRewardsServer.run_webserver()
