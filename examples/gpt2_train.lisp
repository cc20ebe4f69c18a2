; GPT-2 learning: the model of gpt2.lisp as it is, with a loss over its logits.
; lispgpt train examples/gpt2_train.lisp --preset gpt2-124m --data TEXT --run DIR --steps 1000 --batch 8 --length 1024
;   --set activation-type=bf16 (what products read is in bf16) --set dropout-rate=0.1
(require "gpt2.lisp")
(require training)

(training logits)

(generate logits {:max-new-tokens 64 :temperature 0.8 :top-k 50})
