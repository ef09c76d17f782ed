"""Heads inside other libraries, one module each; each imports its library, which the extra `integrations` installs."""
