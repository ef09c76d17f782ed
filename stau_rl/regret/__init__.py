"""The bandit benchmark: policies on arms, their regret, its tables, files and figure."""
