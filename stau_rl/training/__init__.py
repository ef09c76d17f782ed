"""A policy-gradient agent on several seeds, in a folder that goes on after an interruption."""
