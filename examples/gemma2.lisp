; Gemma 2 (arXiv 2408.00118): norms on both sides of blocks, scores and logits in bounds, windows in every other layer.
; lispgpt run FOLDER --prompt "Once upon a time"
(require nn)
(config vocab 256000  context 8192  layers 26  heads 8  kv-heads heads  width 2304  hidden 9216  head-width 256
        epsilon 1e-6  window 4096  layer-types []
        score-scalar (* 1.0 (if (= layers 46) (quot width heads) head-width))  score-cap 50.0  logit-cap 30.0
        tied-head true  weight-type bf16  rope-theta 10000.0
        cache-type (usual-cache-type weight-type))

(hugging-face ["gemma2"] {:prefix "model."  :usual true
                          :requires {"hidden_activation" "gelu_pytorch_tanh"  "attention_bias" false
                                     "rope_parameters.rope_type" "default"  "rope_parameters.type" "default"
                                     "rope_scaling" nil  "use_bidirectional_attention" false}}
  (config layer-types (optional "layer_types")  logit-cap (optional "final_logit_softcapping" {:null 0.0})
          score-scalar (optional "query_pre_attn_scalar")  score-cap (optional "attn_logit_softcapping" {:null 0.0})
          window (optional "sliding_window")  rope-theta (optional "rope_parameters.rope_theta" "rope_theta"))
  (weights
    wte "embed_tokens.weight"  normf-w "norm.weight"  head-w "lm_head.weight"
    (per "layers.*."
      norm1-w "input_layernorm.weight"  norm2-w "post_attention_layernorm.weight"
      norm3-w "pre_feedforward_layernorm.weight"  norm4-w "post_feedforward_layernorm.weight"
      qkv-w ["self_attn.q_proj.weight" "self_attn.k_proj.weight" "self_attn.v_proj.weight"]
      proj-w "self_attn.o_proj.weight"
      gate-w "mlp.gate_proj.weight"  up-w "mlp.up_proj.weight"  down-w "mlp.down_proj.weight")))
(gguf ["gemma2"] {:added {"norm.weight" 1.0}})

(weights
  (wte [vocab width] weight-type)
  (per layers
    (norm1-w [width] {:init 0})  (norm2-w [width] {:init 0})  (norm3-w [width] {:init 0})  (norm4-w [width] {:init 0})
    (qkv-w [(* (+ heads (* 2 kv-heads)) head-width) width] weight-type)
    (proj-w [width (* heads head-width)] weight-type)
    (gate-w [hidden width] weight-type)  (up-w [hidden width] weight-type)  (down-w [width hidden] weight-type))
  (normf-w [width] {:init 0})  (when (not tied-head) (head-w [vocab width] weight-type)))

(state (kv [layers batch 2 kv-heads context head-width] cache-type))

(defn norm [x w] (rms-norm x (+ w 1.0) epsilon))

(defn windowed? [l] (sliding? layer-types l (= (mod l 2) 0)))

(defn weigh-in [l]
  (let [seen (within-if (windowed? l) window)]
    (fn [score head t position] (seen (capped score score-cap) head t position))))

(defn attend-block [x l turn]
  (let [qkv (linear (norm x (norm1-w l)) (qkv-w l))
        [q k v] (split-heads qkv head-width heads kv-heads)
        q (* (turn q) (sqrt (/ head-width score-scalar)))]
    (linear (attend q (turn k) v (kv l) (weigh-in l)) (proj-w l))))

(entry logits [tokens positions]
  (let [turn (turning positions (/ head-width 2))
        layer (fn [x l]
                (let [x (+ x (norm (attend-block x l turn) (norm2-w l)))]
                  (+ x (norm (geglu (norm x (norm3-w l)) (gate-w l) (up-w l) (down-w l)) (norm4-w l)))))
        x (fold layer (* (rows wte tokens) (sqrt width)) (range layers))
        y (matmul-transposed (norm (last x) normf-w) (if tied-head wte head-w))]
    (capped y logit-cap)))

(generate logits {:max-new-tokens 64 :temperature 0.8 :top-k 50})
