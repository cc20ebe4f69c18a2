; GLM 4.5: "GLM-4.5", 2025: experts chosen by sigmoids beside a shared one, and first layers without experts.
; lispgpt run FOLDER --prompt "Once upon a time"
(require experts)

(config vocab 151552  context 131072  layers 46  heads 96  kv-heads heads  width 4096  hidden 1408  dense-hidden 10944
        dense-layers 1  experts 128  top 8  shared 1  groups 1  top-groups 1  normed true  gain 1.0  biased false
        qk-norms false  turned 0.5  head-width (quot width heads)  epsilon 1e-5  tied-head false  weight-type bf16
        cache-type (usual-cache-type weight-type))
(rotary-config)

(hugging-face ["glm4_moe"] {:prefix "model."  :usual true  :rotary ["default" "linear"]
                            :requires {"hidden_act" "silu"}}
  (config hidden "moe_intermediate_size"  dense-hidden "intermediate_size"  experts "n_routed_experts"
          dense-layers (optional "first_k_dense_replace")  top "num_experts_per_tok"  shared "n_shared_experts"
          groups (optional "n_group")  top-groups (optional "topk_group")  normed (optional "norm_topk_prob")
          gain (optional "routed_scaling_factor")  biased (optional "attention_bias")  qk-norms (optional "use_qk_norm")
          turned (optional "rope_parameters.partial_rotary_factor" "partial_rotary_factor"))
  (weights wte "embed_tokens.weight"  normf-w "norm.weight"  head-w "lm_head.weight"
    (per "layers.*."
      norm1-w "input_layernorm.weight"  norm2-w "post_attention_layernorm.weight"  proj-w "self_attn.o_proj.weight"
      qkv-w ["self_attn.q_proj.weight" "self_attn.k_proj.weight" "self_attn.v_proj.weight"]
      qkv-b ["self_attn.q_proj.bias" "self_attn.k_proj.bias" "self_attn.v_proj.bias"]
      q-norm-w "self_attn.q_norm.weight"  k-norm-w "self_attn.k_norm.weight")
    (some "layers.*."
      router-w "mlp.gate.weight"  router-b "mlp.gate.e_score_correction_bias"  up-w "mlp.experts.*.up_proj.weight"
      gate-w "mlp.experts.*.gate_proj.weight"  down-w "mlp.experts.*.down_proj.weight"
      shared-gate-w "mlp.shared_experts.gate_proj.weight"  shared-up-w "mlp.shared_experts.up_proj.weight"
      shared-down-w "mlp.shared_experts.down_proj.weight"  dense-gate-w "mlp.gate_proj.weight"
      dense-up-w "mlp.up_proj.weight"  dense-down-w "mlp.down_proj.weight")))
(def [qkv-rows common] [(* (+ heads (* 2 kv-heads)) head-width) (* shared hidden)])
(weights
  (wte [vocab width] weight-type)  (when (not tied-head) (head-w [vocab width] weight-type))  (normf-w [width] {:init 1})
  (per layers
    (norm1-w [width] {:init 1})  (norm2-w [width] {:init 1})  (proj-w [width (* heads head-width)] weight-type)
    (qkv-w [qkv-rows width] weight-type)  (when biased (qkv-b [qkv-rows]))
    (when qk-norms (q-norm-w [head-width] {:init 1})  (k-norm-w [head-width] {:init 1})))
  (per layers :where (fn [l] (>= l dense-layers)) (router-w [experts width] weight-type)  (router-b [experts])
    (gate-w [experts hidden width] weight-type)  (shared-gate-w [common width] weight-type)
    (up-w [experts hidden width] weight-type)  (shared-up-w [common width] weight-type)
    (down-w [experts width hidden] weight-type)  (shared-down-w [width common] weight-type))
  (per layers :where (fn [l] (< l dense-layers)) (dense-gate-w [dense-hidden width] weight-type)
    (dense-up-w [dense-hidden width] weight-type)  (dense-down-w [width dense-hidden] weight-type)))
(state (kv [layers batch 2 kv-heads context head-width] cache-type))

(defn feed-forward [y l]
  (if (< l dense-layers)
    (swiglu y (dense-gate-w l) (dense-up-w l) (dense-down-w l))
    (let [chosen (chosen-by-sigmoid (linear y (router-w l)) (router-b l) groups top-groups top normed gain)]
      (+ (swiglu y (shared-gate-w l) (shared-up-w l) (shared-down-w l))
         (shared-out y chosen (gate-w l) (up-w l) (down-w l))))))
(defn layer [x l turn]
  (let [qkv (matmul-transposed (rms-norm x (norm1-w l) epsilon) (qkv-w l))
        [q k v] (split-heads (if biased (+ qkv (qkv-b l)) qkv) head-width heads kv-heads)
        [q k] (if qk-norms [(head-norm q (q-norm-w l) epsilon) (head-norm k (k-norm-w l) epsilon)] [q k])
        x (+ x (linear (attend (turn q) (turn k) v (kv l)) (proj-w l)))]
    (+ x (feed-forward (rms-norm x (norm2-w l) epsilon) l))))
(entry logits [tokens positions]
  (let [turn (turning positions (turned-pairs turned head-width))
        x (fold (fn [x l] (layer x l turn)) (rows wte tokens) (range layers))]
    (matmul-transposed (rms-norm (last x) normf-w epsilon) (if tied-head wte head-w))))
(generate logits {:max-new-tokens 64 :temperature 0.8 :top-k 50})
