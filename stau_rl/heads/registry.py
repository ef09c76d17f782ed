"""The registry of heads, filled by `stau_rl.heads`; apart, so that a head may hold another by its text."""

from stau_rl.heads.base import Head
from stau_rl.text import Registry

HEADS: Registry[Head] = Registry("head")
