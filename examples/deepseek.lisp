; DeepSeek 2 and 3: "DeepSeek-V2" and "DeepSeek-V3 Technical Report", 2024: compressed keys and values, experts in
; groups beside shared ones, and first layers without experts.  lispgpt run FOLDER --prompt "Once upon a time"
(require experts)  (require latent)
(config kind "deepseek_v3")  (def third (= kind "deepseek_v3"))
(config vocab 129280  context 4096  layers 61  heads 128  kv-heads heads  head-width 64  width 7168
        hidden 2048  dense-hidden 18432  dense-layers (if third 3 0)  experts 256  top 8  shared 1  q-rank 0  rank 512
        groups (if third 8 1)  top-groups (if third 4 1)  method "greedy"  normed third  gain (if third 2.5 1.0)
        plain 128  turned 64  size 128  epsilon 1e-6  tied-head false  weight-type bf16
        cache-type (usual-cache-type weight-type))  (rotary-config)
(hugging-face ["deepseek_v2" "deepseek_v3"]
  {:prefix "model."  :usual true  :rotary ["default" "linear" "yarn"]
   :requires {"hidden_act" "silu"  "attention_bias" false  "mlp_bias" false  "rope_interleave" true
              "moe_layer_freq" 1  "topk_method" ["greedy" "group_limited_greedy" "noaux_tc"]}}
  (config kind "model_type"  hidden "moe_intermediate_size"  dense-hidden "intermediate_size"  size "v_head_dim"
          dense-layers (optional "first_k_dense_replace")  top "num_experts_per_tok"  shared "n_shared_experts"
          groups (optional "n_group")  top-groups (optional "topk_group")  method (optional "topk_method")
          normed (optional "norm_topk_prob")  gain (optional "routed_scaling_factor")  experts "n_routed_experts"
          q-rank (optional "q_lora_rank")  rank "kv_lora_rank"  plain "qk_nope_head_dim"  turned "qk_rope_head_dim")
  (weights wte "embed_tokens.weight"  normf-w "norm.weight"  head-w "lm_head.weight"
    (per "layers.*."
      norm1-w "input_layernorm.weight"  norm2-w "post_attention_layernorm.weight"  q-w "self_attn.q_proj.weight"
      q-a-w "self_attn.q_a_proj.weight"  q-norm-w "self_attn.q_a_layernorm.weight"  q-b-w "self_attn.q_b_proj.weight"
      kv-a-w "self_attn.kv_a_proj_with_mqa.weight"  kv-norm-w "self_attn.kv_a_layernorm.weight"
      kv-b-w "self_attn.kv_b_proj.weight"  proj-w "self_attn.o_proj.weight")
    (some "layers.*."
      router-w "mlp.gate.weight"  router-b "mlp.gate.e_score_correction_bias"  up-w "mlp.experts.*.up_proj.weight"
      gate-w "mlp.experts.*.gate_proj.weight"  down-w "mlp.experts.*.down_proj.weight"
      shared-gate-w "mlp.shared_experts.gate_proj.weight"  shared-up-w "mlp.shared_experts.up_proj.weight"
      shared-down-w "mlp.shared_experts.down_proj.weight"  dense-gate-w "mlp.gate_proj.weight"
      dense-up-w "mlp.up_proj.weight"  dense-down-w "mlp.down_proj.weight")))
(def [q-rows common sparse?] [(* heads (+ plain turned)) (* shared hidden) (fn [l] (>= l dense-layers))])
(weights
  (wte [vocab width] weight-type)  (when (not tied-head) (head-w [vocab width] weight-type))  (normf-w [width] {:init 1})
  (per layers (norm1-w [width] {:init 1})  (norm2-w [width] {:init 1})  (proj-w [width (* heads size)] weight-type)
    (kv-a-w [(+ rank turned) width] weight-type)  (kv-norm-w [rank] {:init 1})
    (kv-b-w [(* heads (+ plain size)) rank] weight-type)  (when (= q-rank 0) (q-w [q-rows width] weight-type))
    (when (> q-rank 0) (q-a-w [q-rank width] weight-type) (q-norm-w [q-rank]) (q-b-w [q-rows q-rank] weight-type)))
  (per layers :where sparse? (router-w [experts width] weight-type)  (when third (router-b [experts]))
    (gate-w [experts hidden width] weight-type)  (shared-gate-w [common width] weight-type)
    (up-w [experts hidden width] weight-type)  (shared-up-w [common width] weight-type)
    (down-w [experts width hidden] weight-type)  (shared-down-w [width common] weight-type))
  (per layers :where (fn [l] (not (sparse? l))) (dense-gate-w [dense-hidden width] weight-type)
    (dense-up-w [dense-hidden width] weight-type)  (dense-down-w [width dense-hidden] weight-type)))
(state (latents [layers batch 1 1 context (+ rank turned)] cache-type))
(defn with-experts [y l]
  (let [[scores groups] [(linear y (router-w l)) (if (or third (= method "group_limited_greedy")) groups top-groups)]
        chosen (if third (chosen-by-sigmoid scores (router-b l) groups top-groups top normed gain)
                 (chosen-by-softmax scores groups top-groups top normed gain))]
    (+ (swiglu y (shared-gate-w l) (shared-up-w l) (shared-down-w l))
       (shared-out y chosen (gate-w l) (up-w l) (down-w l)))))
(defn layer [x l turn]
  (let [y (rms-norm x (norm1-w l) epsilon)
        q (if (= q-rank 0) (linear y (q-w l)) (low-rank y (q-a-w l) (q-norm-w l) (q-b-w l)))
        x (+ x (linear (latent-attention y q (kv-a-w l) (kv-norm-w l) (kv-b-w l) (latents l) turn heads) (proj-w l)))
        y (rms-norm x (norm2-w l) epsilon)]
    (+ x (if (sparse? l) (with-experts y l) (swiglu y (dense-gate-w l) (dense-up-w l) (dense-down-w l))))))
(entry logits [tokens positions]
  (let [turn (turning positions (quot turned 2))
        x (fold (fn [x l] (layer x l turn)) (rows wte tokens) (range layers))]
    (matmul-transposed (rms-norm (last x) normf-w epsilon) (if tied-head wte head-w))))
(generate logits {:max-new-tokens 64 :temperature 0.8 :top-k 50})
