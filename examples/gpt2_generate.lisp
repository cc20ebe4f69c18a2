; Text from GPT-2: lispgpt run examples/gpt2_generate.lisp --checkpoint FILE --prompt "Once upon a time"
(require "gpt2.lisp")

(hugging-face ["gpt2"] {:prefix "transformer."  :ignored [".attn.bias" ".attn.masked_bias"]
                        :requires {"activation_function" ["gelu_new" "gelu_pytorch_tanh" "gelu" "relu"]
                                   "scale_attn_weights" true  "add_cross_attention" false}}
  (config vocab "vocab_size"  context ["n_positions" "n_ctx"]  layers "n_layer"  heads "n_head"  width "n_embd"
          hidden (optional "n_inner")  activation (optional "activation_function")
          by-layer (optional "scale_attn_by_inverse_layer_idx")  epsilon (optional "layer_norm_epsilon")
          tied-head (optional "tie_word_embeddings"))
  (weights
    wte (padded "wte.weight" 128)  wpe "wpe.weight"  lnf-w "ln_f.weight"  lnf-b "ln_f.bias"
    head-w (padded "lm_head.weight" 128)
    (per "h.*."
      ln1-w "ln_1.weight"  ln1-b "ln_1.bias"  ln2-w "ln_2.weight"  ln2-b "ln_2.bias"
      qkv-w (transposed "attn.c_attn.weight")  qkv-b "attn.c_attn.bias"
      proj-w (transposed "attn.c_proj.weight")  proj-b "attn.c_proj.bias"
      fc-w (transposed "mlp.c_fc.weight")  fc-b "mlp.c_fc.bias"
      out-w (transposed "mlp.c_proj.weight")  out-b "mlp.c_proj.bias")))
(gguf ["gpt2"])

(generate logits {:max-new-tokens 64 :temperature 0.8 :top-k 50})
