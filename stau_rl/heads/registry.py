"""The registry of heads, filled by `stau_rl.heads`; apart, so that a head may hold another by its text."""

from stau_rl.heads.base import Head
from stau_rl.spec.registry import Registry

HEADS: Registry[Head] = Registry("head", elsewhere=" (a head of your own is loaded with --plugin FILE)")
