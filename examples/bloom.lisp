; BLOOM: "BLOOM: A 176B-Parameter Open-Access Multilingual Language Model", Le Scao et al. 2022: a GPT-2 with linear biases
; in place of positions, and a norm over its embeddings.  lispgpt run FOLDER --prompt "Once upon a time"
(require nn)

(config vocab 250880  context 2048  layers 24  heads 16  width 1024  epsilon 1e-5  tied-head true  weight-type bf16
        cache-type (usual-cache-type weight-type))

(hugging-face ["bloom"] {:prefix "transformer."
                         :requires {"apply_residual_connection_post_layernorm" false}}
  (config vocab "vocab_size"  context (optional "seq_length")  layers ["n_layer" "num_hidden_layers"]
          heads ["n_head" "num_attention_heads"]  width ["hidden_size" "n_embed"]
          epsilon (optional "layer_norm_epsilon")  tied-head (optional "tie_word_embeddings"))
  (weights
    wte "word_embeddings.weight"  lne-w "word_embeddings_layernorm.weight"  lne-b "word_embeddings_layernorm.bias"
    lnf-w "ln_f.weight"  lnf-b "ln_f.bias"  head-w "lm_head.weight"
    (per "h.*."
      ln1-w "input_layernorm.weight"  ln1-b "input_layernorm.bias"
      ln2-w "post_attention_layernorm.weight"  ln2-b "post_attention_layernorm.bias"
      qkv-w "self_attention.query_key_value.weight"  qkv-b "self_attention.query_key_value.bias"
      proj-w "self_attention.dense.weight"  proj-b "self_attention.dense.bias"
      fc-w "mlp.dense_h_to_4h.weight"  fc-b "mlp.dense_h_to_4h.bias"
      out-w "mlp.dense_4h_to_h.weight"  out-b "mlp.dense_4h_to_h.bias")))
(gguf ["bloom"] {:rows {"query_key_value" (["n_head" 3 nil] [1 0 2])}})

(def size (quot width heads))

(weights
  (wte [vocab width] weight-type)  (lne-w [width] {:init 1})  (lne-b [width])
  (per layers
    (ln1-w [width] {:init 1})  (ln1-b [width])  (ln2-w [width] {:init 1})  (ln2-b [width])
    (qkv-w [(* 3 width) width] weight-type)     (qkv-b [(* 3 width)])         ; of a head, its query, key and value
    (proj-w [width width] weight-type)          (proj-b [width])
    (fc-w [(* 4 width) width] weight-type)      (fc-b [(* 4 width)])
    (out-w [width (* 4 width)] weight-type)     (out-b [width]))
  (lnf-w [width] {:init 1})  (lnf-b [width])
  (when (not tied-head) (head-w [vocab width] weight-type)))

(state (kv [layers batch 2 heads context size] cache-type))

(defn attend-block [x l]
  (let [n (dim x 0)
        qkv (reshape (linear (layer-norm x (ln1-w l) (ln1-b l) epsilon) (qkv-w l) (qkv-b l)) [n heads 3 size])
        part (fn [i] (slice qkv [0 0 i 0] [n heads nil size]))]
    (linear (attend (part 0) (part 1) (part 2) (kv l) (lowered-by (alibi-slope heads))) (proj-w l) (proj-b l))))

(defn layer [x l]
  (let [x (+ x (attend-block x l))
        h (gelu (linear (layer-norm x (ln2-w l) (ln2-b l) epsilon) (fc-w l) (fc-b l)))]
    (+ x (linear h (out-w l) (out-b l)))))

(entry logits [tokens positions]
  (let [x (fold layer (layer-norm (rows wte tokens) lne-w lne-b epsilon) (range layers))]
    (matmul-transposed (layer-norm (last x) lnf-w lnf-b epsilon) (if tied-head wte head-w))))

(generate logits {:max-new-tokens 64 :temperature 0.8 :top-k 50})
