; Gemma 3 (arXiv 2503.19786): norms on both sides of blocks and over heads, windows with frequencies of their own.
(require nn)
(config vocab 262208  context 131072  layers 26  heads 8  kv-heads 4  width 2304  hidden 9216  head-width 256
        epsilon 1e-6  window 4096  every 6  layer-types []  tied-head true  weight-type bf16  logit-cap 0.0
        rope-near 10000.0  rope-type "default"  rope-theta 1000000.0  rope-factor 1.0
        score-scalar (* 1.0 (if (= layers 62) (quot width heads) head-width))
        cache-type (usual-cache-type weight-type))

(hugging-face ["gemma3_text" "gemma3"]
  {:prefix ["model.language_model." "language_model.model." "language_model." "model."]  :usual true
   :ignored ["vision_tower.*" "multi_modal_projector.*"]
   :requires {"hidden_activation" "gelu_pytorch_tanh"  "attn_logit_softcapping" nil  "attention_bias" false
              "use_bidirectional_attention" false  "rope_scaling.rope_type" ["default" "linear"]
              "rope_parameters.sliding_attention.rope_type" "default"
              "rope_parameters.full_attention.rope_type" ["default" "linear"]}}
  (config vocab (optional "vocab_size")  context (optional "max_position_embeddings")  heads (optional "num_attention_heads")
          kv-heads (optional "num_key_value_heads")  layer-types (optional "layer_types")
          window (optional "sliding_window")  every (optional "sliding_window_pattern")
          score-scalar (optional "query_pre_attn_scalar")  logit-cap (optional "final_logit_softcapping")
          rope-near (optional "rope_parameters.sliding_attention.rope_theta" "rope_local_base_freq")
          rope-type (optional "rope_parameters.full_attention.rope_type" "rope_scaling.rope_type")
          rope-theta (optional "rope_parameters.full_attention.rope_theta" "rope_theta")
          rope-factor (optional "rope_parameters.full_attention.factor" "rope_scaling.factor"))
  (weights
    wte "embed_tokens.weight"  normf-w "norm.weight"  head-w "lm_head.weight"
    (per "layers.*."
      norm1-w "input_layernorm.weight"  norm2-w "post_attention_layernorm.weight"
      norm3-w "pre_feedforward_layernorm.weight"  norm4-w "post_feedforward_layernorm.weight"
      qkv-w ["self_attn.q_proj.weight" "self_attn.k_proj.weight" "self_attn.v_proj.weight"]
      q-norm-w "self_attn.q_norm.weight"  k-norm-w "self_attn.k_norm.weight"  proj-w "self_attn.o_proj.weight"
      gate-w "mlp.gate_proj.weight"  up-w "mlp.up_proj.weight"  down-w "mlp.down_proj.weight")))
(gguf ["gemma3"] {:added {"norm.weight" 1.0}})
(weights
  (wte [vocab width] weight-type)
  (per layers
    (norm1-w [width] {:init 0})  (norm2-w [width] {:init 0})  (norm3-w [width] {:init 0})  (norm4-w [width] {:init 0})
    (qkv-w [(* (+ heads (* 2 kv-heads)) head-width) width] weight-type)  (q-norm-w [head-width] {:init 0})
    (k-norm-w [head-width] {:init 0})  (proj-w [width (* heads head-width)] weight-type)
    (gate-w [hidden width] weight-type)  (up-w [hidden width] weight-type)  (down-w [width hidden] weight-type))
  (normf-w [width] {:init 0})  (when (not tied-head) (head-w [vocab width] weight-type)))
(state (kv [layers batch 2 kv-heads context head-width] cache-type))

(defn norm [x w] (rms-norm x (+ w 1.0) epsilon))
(defn windowed? [l] (sliding? layer-types l (!= (mod (+ l 1) every) 0)))

(defn attend-block [x l turn]
  (let [[q k v] (split-heads (linear (norm x (norm1-w l)) (qkv-w l)) head-width heads kv-heads)
        [q k] (map (fn [x w] (turn (head-norm x (+ w 1.0) epsilon))) [q k] [(q-norm-w l) (k-norm-w l)])
        q (* q (sqrt (/ head-width score-scalar)))]
    (linear (attend q k v (kv l) (within-if (windowed? l) window)) (proj-w l))))

(entry logits [tokens positions]
  (let [pairs (/ head-width 2)
        [near far] [(turning-by positions pairs (rotary-frequency rope-near pairs)) (turning positions pairs)]
        layer (fn [x l]
                (let [x (+ x (norm (attend-block x l (if (windowed? l) near far)) (norm2-w l)))]
                  (+ x (norm (geglu (norm x (norm3-w l)) (gate-w l) (up-w l) (down-w l)) (norm4-w l)))))
        x (fold layer (* (rows wte tokens) (sqrt width)) (range layers))]
    (capped (matmul-transposed (norm (last x) normf-w) (if tied-head wte head-w)) logit-cap)))

(generate logits {:max-new-tokens 64 :temperature 0.8 :top-k 50})
