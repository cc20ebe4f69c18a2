; GPT-NeoX-20B (Black et al. 2022) and Pythia: attention beside feed-forward, and of each head only a part turned.
; lispgpt run FOLDER --prompt "Once upon a time"
(require nn)

(config vocab 50432  context 2048  layers 6  heads 8  width 512  hidden 2048  epsilon 1e-5  tied-head false
        parallel true  turned 0.25  activation "gelu"  weight-type bf16
        cache-type (usual-cache-type weight-type))
(rotary-config)

(hugging-face ["gpt_neox"] {:prefix "gpt_neox."  :rotary ["default" "dynamic" "linear" "llama3" "yarn"]
                            :ignored [".attention.bias" ".attention.masked_bias"]
                            :requires {"hidden_act" ["gelu" "gelu_new" "gelu_fast" "relu"]  "attention_bias" true}}
  (config vocab "vocab_size"  context "max_position_embeddings"  layers "num_hidden_layers"
          heads "num_attention_heads"  width "hidden_size"  hidden "intermediate_size"
          epsilon (optional "layer_norm_eps")  tied-head (optional "tie_word_embeddings")
          parallel (optional "use_parallel_residual")  activation (optional "hidden_act")
          turned (optional "rope_parameters.partial_rotary_factor" "rotary_pct")
          rope-theta (optional "rope_parameters.rope_theta" "rotary_emb_base" "rope_theta"))
  (weights
    wte "embed_in.weight"  lnf-w "final_layer_norm.weight"  lnf-b "final_layer_norm.bias"  head-w "embed_out.weight"
    (per "layers.*."
      ln1-w "input_layernorm.weight"  ln1-b "input_layernorm.bias"
      ln2-w "post_attention_layernorm.weight"  ln2-b "post_attention_layernorm.bias"
      qkv-w "attention.query_key_value.weight"  qkv-b "attention.query_key_value.bias"
      proj-w "attention.dense.weight"  proj-b "attention.dense.bias"
      fc-w "mlp.dense_h_to_4h.weight"  fc-b "mlp.dense_h_to_4h.bias"
      out-w "mlp.dense_4h_to_h.weight"  out-b "mlp.dense_4h_to_h.bias")))
(gguf ["gptneox"] {:rows {"query_key_value" (["num_attention_heads" 3 nil] [1 0 2])}})

(weights
  (wte [vocab width] weight-type)
  (per layers
    (ln1-w [width] {:init 1})  (ln1-b [width])  (ln2-w [width] {:init 1})  (ln2-b [width])
    (qkv-w [(* 3 width) width] weight-type)     (qkv-b [(* 3 width)])         ; of a head, its query, key and value
    (proj-w [width width] weight-type)          (proj-b [width])
    (fc-w [hidden width] weight-type)           (fc-b [hidden])
    (out-w [width hidden] weight-type)          (out-b [width]))
  (lnf-w [width] {:init 1})  (lnf-b [width])
  (when (not tied-head) (head-w [vocab width] weight-type)))

(state (kv [layers batch 2 heads context (quot width heads)] cache-type))

(defn activate [x]
  (cond (= activation "gelu") (gelu-exact x)  (= activation "relu") (relu x)  :else (gelu x)))

(defn attend-block [x l turn]
  (let [[n size] [(dim x 0) (quot width heads)]
        qkv (reshape (linear (layer-norm x (ln1-w l) (ln1-b l) epsilon) (qkv-w l) (qkv-b l)) [n heads 3 size])
        part (fn [i] (slice qkv [0 0 i 0] [n heads nil size]))]
    (linear (attend (turn (part 0)) (turn (part 1)) (part 2) (kv l)) (proj-w l) (proj-b l))))

(defn feed-forward [x l]
  (linear (activate (linear (layer-norm x (ln2-w l) (ln2-b l) epsilon) (fc-w l) (fc-b l))) (out-w l) (out-b l)))

(entry logits [tokens positions]
  (let [turn (turning positions (turned-pairs turned (quot width heads)))
        layer (fn [x l] (let [y (+ x (attend-block x l turn))] (+ y (feed-forward (if parallel x y) l))))
        x (fold layer (rows wte tokens) (range layers))]
    (matmul-transposed (layer-norm (last x) lnf-w lnf-b epsilon) (if tied-head wte head-w))))

(generate logits {:max-new-tokens 64 :temperature 0.8 :top-k 50})
