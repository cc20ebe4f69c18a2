; Text from GPT-2: lispgpt run examples/gpt2_generate.lisp --checkpoint FILE --prompt "Once upon a time"
(require "gpt2.lisp")

(generate logits {:max-new-tokens 64 :temperature 0.8 :top-k 50})
