; OPT: "OPT: Open Pre-trained Transformer Language Models", Zhang et al. 2022: a GPT-2 with ReLU, whose table of
; positions begins with two rows that no position has.
; lispgpt run FOLDER --prompt "Once upon a time"
(require nn)

(config vocab 50272  context 2048  layers 12  heads 12  width 768  hidden 3072  tied-head true  weight-type bf16)

(hugging-face ["opt"] {:prefix "model.decoder."
                       :requires {"activation_function" "relu"  "do_layer_norm_before" true  "enable_bias" true
                                  "layer_norm_elementwise_affine" true  "_remove_final_layer_norm" false}}
  (config vocab "vocab_size"  context "max_position_embeddings"  layers "num_hidden_layers"
          heads "num_attention_heads"  width "hidden_size"  hidden "ffn_dim"  tied-head (optional "tie_word_embeddings"))
  (weights
    wte "embed_tokens.weight"  wpe "embed_positions.weight"  head-w "lm_head.weight"
    lnf-w "final_layer_norm.weight"  lnf-b "final_layer_norm.bias"
    (per "layers.*."
      ln1-w "self_attn_layer_norm.weight"  ln1-b "self_attn_layer_norm.bias"
      qkv-w ["self_attn.q_proj.weight" "self_attn.k_proj.weight" "self_attn.v_proj.weight"]
      qkv-b ["self_attn.q_proj.bias" "self_attn.k_proj.bias" "self_attn.v_proj.bias"]
      proj-w "self_attn.out_proj.weight"  proj-b "self_attn.out_proj.bias"
      ln2-w "final_layer_norm.weight"  ln2-b "final_layer_norm.bias"
      fc-w "fc1.weight"  fc-b "fc1.bias"  out-w "fc2.weight"  out-b "fc2.bias")))

(weights
  (wte [vocab width] weight-type)
  (wpe [(+ context 2) width] weight-type)
  (per layers
    (ln1-w [width] {:init 1})                (ln1-b [width])
    (qkv-w [(* 3 width) width] weight-type)  (qkv-b [(* 3 width)])
    (proj-w [width width] weight-type)       (proj-b [width])
    (ln2-w [width] {:init 1})                (ln2-b [width])
    (fc-w [hidden width] weight-type)        (fc-b [hidden])
    (out-w [width hidden] weight-type)       (out-b [width]))
  (lnf-w [width] {:init 1})  (lnf-b [width])
  (when (not tied-head) (head-w [vocab width] weight-type)))

(state (kv [layers batch 2 heads context (quot width heads)] f32))

(defn layer [x l]
  (let [qkv (linear (layer-norm x (ln1-w l) (ln1-b l)) (qkv-w l) (qkv-b l))
        x (+ x (linear (attention qkv (kv l) heads) (proj-w l) (proj-b l)))
        hidden (relu (linear (layer-norm x (ln2-w l) (ln2-b l)) (fc-w l) (fc-b l)))]
    (+ x (linear hidden (out-w l) (out-b l)))))

(entry logits [tokens positions]
  (let [places (tensor [n (dim positions 0)] (+ (at positions n) 2))
        x (fold layer (+ (rows wte tokens) (rows wpe places)) (range layers))]
    (matmul-transposed (layer-norm (last x) lnf-w lnf-b) (if tied-head wte head-w))))

(generate logits {:max-new-tokens 64 :temperature 0.8 :top-k 50})
