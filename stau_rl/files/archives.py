"""What reading a damaged archive of arrays raises."""

import zlib
from tokenize import TokenError
from zipfile import BadZipFile

DAMAGED = (ValueError, SyntaxError, TokenError, EOFError, RuntimeError, MemoryError, BadZipFile, zlib.error)
"""Errors of `numpy.load` and of its members: bad numbers, headers, compression, encryption, sizes, checksums."""
