"""What `%load_ext lispgpt` brings to notebooks: cells of Lisp, errors with carets, progress of training."""
