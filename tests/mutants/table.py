"""All mutations: what each rule's tests must notice."""

from tests.mutants.mutant import Mutant
from tests.mutants.rows import adapters, delivery, documented, envelope, jobs, leases, loops, registry, rules, sessions

ROWS: tuple[Mutant, ...] = (
    *jobs.ROWS,
    *sessions.ROWS,
    *loops.ROWS,
    *leases.ROWS,
    *envelope.ROWS,
    *registry.ROWS,
    *delivery.ROWS,
    *adapters.ROWS,
    *rules.ROWS,
    *documented.ROWS,
)
