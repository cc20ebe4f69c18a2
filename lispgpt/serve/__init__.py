"""A server of models: requests, the scheduler of their sequences, prefixes, grammars, and HTTP.  No compiler."""
