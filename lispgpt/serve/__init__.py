"""A server of models: requests, the scheduler of their sequences, and HTTP.  No compiler."""
