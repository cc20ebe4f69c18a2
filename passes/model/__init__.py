"""Which ops become one kernel, and what is changed ahead of that: slices, deferred norms, weights made once."""
