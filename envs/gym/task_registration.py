"""Gymnasium ids of the tasks; texts alone, so that neither torch nor a task is imported before one is made."""

IDS = {
    "stau_rl/AssociativeRecall-v0": "recall",
    "stau_rl/Silence-v0": "silence",
    "stau_rl/MultiQueryRecall-v0": "mqar",
    "stau_rl/Passkey-v0": "passkey",
    "stau_rl/PasskeyRivals-v0": "passkey_rivals",
    "stau_rl/Overwrite-v0": "overwrite",
}


def register_tasks() -> None:
    """Register every id that is not registered yet."""
    # Importing Gymnasium may register everything, this included.
    import gymnasium

    for name, task in IDS.items():
        if name not in gymnasium.registry:
            gymnasium.register(id=name, entry_point="stau_rl.envs.gym.task_env:TaskEnv", kwargs={"task": task})
