"""Rules that hold between rooms: each once held by a test that would not have noticed."""

from tests.mutants.mutant import Mutant

ROWS: tuple[Mutant, ...] = ()
