; StableLM: "Stable LM 2 1.6B Technical Report", Bellagente et al. 2024: a Llama with layer norms, of whose heads a part is
; turned, and whose queries, keys and values may have biases.  lispgpt run FOLDER --prompt "Once upon a time"
(require nn)

(config vocab 100352  context 4096  layers 24  heads 32  kv-heads heads  width 2048  hidden 5632
        head-width (quot width heads)  epsilon 1e-5  tied-head false  turned 0.25  biased false  parallel false
        headed false  weight-type bf16
        cache-type (usual-cache-type weight-type))
(rotary-config)

(hugging-face ["stablelm"] {:prefix "model."  :usual true  :rotary ["default" "dynamic" "linear" "llama3" "yarn"]
                            :requires {"hidden_act" "silu"}}
  (config epsilon (optional "layer_norm_eps")  biased (optional "use_qkv_bias")
          parallel (optional "use_parallel_residual")  headed (optional "qk_layernorm")
          turned (optional "rope_parameters.partial_rotary_factor" "partial_rotary_factor"))
  (weights
    wte "embed_tokens.weight"  lnf-w "norm.weight"  lnf-b "norm.bias"  head-w "lm_head.weight"
    (per "layers.*."
      ln1-w "input_layernorm.weight"  ln1-b "input_layernorm.bias"
      qkv-w ["self_attn.q_proj.weight" "self_attn.k_proj.weight" "self_attn.v_proj.weight"]
      qkv-b ["self_attn.q_proj.bias" "self_attn.k_proj.bias" "self_attn.v_proj.bias"]
      proj-w "self_attn.o_proj.weight"
      q-norm-w "self_attn.q_layernorm.norms.*.weight"  k-norm-w "self_attn.k_layernorm.norms.*.weight"
      ln2-w "post_attention_layernorm.weight"  ln2-b "post_attention_layernorm.bias"
      gate-w "mlp.gate_proj.weight"  up-w "mlp.up_proj.weight"  down-w "mlp.down_proj.weight")))
(gguf ["stablelm"])

(weights
  (wte [vocab width] weight-type)
  (per layers
    (ln1-w [width] {:init 1})  (ln1-b [width])
    (qkv-w [(* (+ heads (* 2 kv-heads)) head-width) width] weight-type)
    (when headed (q-norm-w [heads head-width] {:init 1}) (k-norm-w [kv-heads head-width] {:init 1}))
    (when biased (qkv-b [(* (+ heads (* 2 kv-heads)) head-width)]))
    (proj-w [width (* heads head-width)] weight-type)
    (when (not parallel) (ln2-w [width] {:init 1}) (ln2-b [width]))
    (gate-w [hidden width] weight-type)  (up-w [hidden width] weight-type)  (down-w [width hidden] weight-type))
  (lnf-w [width] {:init 1})  (lnf-b [width])
  (when (not tied-head) (head-w [vocab width] weight-type)))

(state (kv [layers batch 2 kv-heads context head-width] cache-type))

(defn layer [x l turn]
  (let [y (layer-norm x (ln1-w l) (ln1-b l) epsilon)
        qkv (if biased (linear y (qkv-w l) (qkv-b l)) (linear y (qkv-w l)))
        [q k v] (split-heads qkv head-width heads kv-heads)
        [q k] (if headed [(own-norm q (q-norm-w l) epsilon) (own-norm k (k-norm-w l) epsilon)] [q k])
        x (+ x (linear (attend (turn q) (turn k) v (kv l)) (proj-w l)))
        y (if parallel y (layer-norm x (ln2-w l) (ln2-b l) epsilon))]
    (+ x (swiglu y (gate-w l) (up-w l) (down-w l)))))

(entry logits [tokens positions]
  (let [turn (turning positions (turned-pairs turned head-width))
        x (fold (fn [x l] (layer x l turn)) (rows wte tokens) (range layers))]
    (matmul-transposed (layer-norm (last x) lnf-w lnf-b epsilon) (if tied-head wte head-w))))

(generate logits {:max-new-tokens 64 :temperature 0.8 :top-k 50})
