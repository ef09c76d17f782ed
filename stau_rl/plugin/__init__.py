"""What a user brings in one file: `head` makes a function of scores a head, `parameter` declares what it takes."""

from stau_rl.plugin.plugin_head import PluginHead, forget, head, parameter

__all__ = ["PluginHead", "forget", "head", "parameter"]
