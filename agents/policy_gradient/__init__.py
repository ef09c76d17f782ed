"""REINFORCE, A2C and PPO on Gymnasium environments, with any head between the action scores and the policy."""
