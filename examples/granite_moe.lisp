; Granite 3 with experts: Granite's four scales, and the gates and what they are times of each expert in one matrix.
; "Granite 3.0 Language Models", 2024.  lispgpt run FOLDER --prompt "Once upon a time"
(require experts)

(config vocab 49155  context 131072  layers 24  heads 16  kv-heads heads  width 1024  hidden 512  experts 32  top 8
        head-width (quot width heads)  epsilon 1e-6  tied-head false  shared 0
        embedded 1.0  scored 1.0  added 1.0  divided 1.0  weight-type bf16
        cache-type (usual-cache-type weight-type))
(rotary-config)

(hugging-face ["granitemoe" "granitemoeshared"]
  {:prefix "model."  :usual true  :rotary ["default" "dynamic" "linear" "llama3" "yarn"]
   :requires {"hidden_act" "silu"  "attention_bias" false}}
  (config experts ["num_local_experts" "num_experts"]  top "num_experts_per_tok"
          shared (optional "shared_intermediate_size")
          embedded (optional "embedding_multiplier")  scored (optional "attention_multiplier")
          added (optional "residual_multiplier")  divided (optional "logits_scaling"))
  (weights
    wte "embed_tokens.weight"  normf-w "norm.weight"  head-w "lm_head.weight"
    (per "layers.*."
      norm1-w "input_layernorm.weight"  norm2-w "post_attention_layernorm.weight"
      qkv-w ["self_attn.q_proj.weight" "self_attn.k_proj.weight" "self_attn.v_proj.weight"]
      proj-w "self_attn.o_proj.weight"  router-w "block_sparse_moe.router.layer.weight"
      gate-up-w "block_sparse_moe.input_linear.weight"  down-w "block_sparse_moe.output_linear.weight"
      shared-w "shared_mlp.input_linear.weight"  shared-down-w "shared_mlp.output_linear.weight")))

(weights
  (wte [vocab width] weight-type)
  (per layers
    (norm1-w [width] {:init 1})  (norm2-w [width] {:init 1})
    (qkv-w [(* (+ heads (* 2 kv-heads)) head-width) width] weight-type)
    (proj-w [width (* heads head-width)] weight-type)  (router-w [experts width] weight-type)
    (gate-up-w [experts (* 2 hidden) width] weight-type)  (down-w [experts width hidden] weight-type)
    (when (> shared 0) (shared-w [(* 2 shared) width] weight-type) (shared-down-w [width shared] weight-type)))
  (normf-w [width] {:init 1})  (when (not tied-head) (head-w [vocab width] weight-type)))

(state (kv [layers batch 2 kv-heads context head-width] cache-type))

(defn layer [x l turn]
  (let [[q k v] (split-heads (linear (rms-norm x (norm1-w l) epsilon) (qkv-w l)) head-width heads kv-heads)
        q (* (turn q) (* scored (sqrt head-width)))       ; `attend` divides scores by that root
        x (+ x (* added (linear (attend q (turn k) v (kv l)) (proj-w l))))
        y (rms-norm x (norm2-w l) epsilon)
        mixed (mixture-of (linear y (router-w l)) top true (fn [e] (through-joined y e (gate-up-w l) (down-w l))))]
    (+ x (* added (if (> shared 0) (+ mixed (swiglu-of (linear y (shared-w l)) (shared-down-w l))) mixed)))))

(entry logits [tokens positions]
  (let [turn (turning positions (/ head-width 2))
        x (fold (fn [x l] (layer x l turn)) (* embedded (rows wte tokens)) (range layers))]
    (matmul-transposed (* (/ 1.0 divided) (rms-norm (last x) normf-w epsilon)) (if tied-head wte head-w))))

(generate logits {:max-new-tokens 64 :temperature 0.8 :top-k 50})
