; "Nemotron-H", NVIDIA 2025: each layer is one of Mamba 2's, attention without positions, or a feed-forward layer; in
; Nemotron 3 some are experts beside what all rows go through.  lispgpt run FOLDER --prompt "Once upon a time"
(require experts scan)
(config vocab 131072  context 4096  layers 52  layer-types []  pattern ""  heads 32  kv-heads heads  width 4096
        hidden 21504  head-width 128  epsilon 1e-5  tied-head false  mamba-heads 128  mamba-width 64  groups 8
        states 128  taps 4  conv-biased true  experts 8  top 2  each-hidden 7688  shared 7688  among 1
        top-groups 1  normed true  scale 1.0  weight-type bf16
        cache-type (usual-cache-type weight-type))
(hugging-face ["nemotron_h"]
  {:prefix ["backbone." "model."]  :ignored ["mtp.*"]  :usual true
   :requires {"mlp_hidden_act" "relu2"  "mamba_hidden_act" "silu"  "attention_bias" false  "mlp_bias" false
              "use_bias" false  "mamba_proj_bias" false  "moe_latent_size" nil  "time_step_limit.0" 0.0
              "time_step_limit.1" inf  "sliding_window" nil  "tie_word_embeddings" false}}
  (config layers ["layers_block_type.length" "layer_types.length" "num_hidden_layers"]
          layer-types (optional "layers_block_type" "layer_types")  pattern (optional "hybrid_override_pattern")
          head-width (optional "head_dim" "attention_head_dim")  mamba-heads "mamba_num_heads"
          epsilon (optional "layer_norm_epsilon" "norm_eps")  mamba-width "mamba_head_dim"  groups "n_groups"
          states "ssm_state_size"  taps "conv_kernel"  conv-biased (optional "use_conv_bias")
          experts (optional "n_routed_experts")  top (optional "num_experts_per_tok")
          among (optional "n_group")  top-groups (optional "topk_group")
          each-hidden (optional "moe_intermediate_size")  shared (optional "moe_shared_expert_intermediate_size")
          normed (optional "norm_topk_prob")  scale (optional "routed_scaling_factor"))
  (weights
    wte "embeddings.weight"  normf-w "norm_f.weight"  head-w "lm_head.weight"  (per "layers.*." norm-w "norm.weight")
    (some "layers.*." in-w "mixer.in_proj.weight"  conv-w "mixer.conv1d.weight"  conv-b "mixer.conv1d.bias"
      dt-b "mixer.dt_bias"  a-log "mixer.A_log"  skip-w "mixer.D"  inner-w "mixer.norm.weight"
      qkv-w ["mixer.q_proj.weight" "mixer.k_proj.weight" "mixer.v_proj.weight"]  proj-w "mixer.o_proj.weight"
      out-w "mixer.out_proj.weight"  up-w "mixer.up_proj.weight"  down-w "mixer.down_proj.weight"
      router-w "mixer.gate.weight"  router-b "mixer.gate.e_score_correction_bias"
      ups-w "mixer.experts.*.up_proj.weight"  downs-w "mixer.experts.*.down_proj.weight"
      shared-up-w "mixer.shared_experts.up_proj.weight"  shared-down-w "mixer.shared_experts.down_proj.weight")))
(def inner (* mamba-heads mamba-width))  (def mixed (+ inner (* 2 groups states)))
(def kinds (if (= pattern "") layer-types pattern))  (defn is [sign] (fn [l] (= (layer-sign kinds l) sign)))
(weights (wte [vocab width] weight-type)  (head-w [vocab width] weight-type)
  (normf-w [width] {:init 1})  (per layers (norm-w [width] {:init 1}))
  (per layers :where (is "M") (in-w [(+ inner mixed mamba-heads) width] weight-type)  (conv-w [mixed 1 taps])
    (when conv-biased (conv-b [mixed]))  (dt-b [mamba-heads])  (a-log [mamba-heads])  (skip-w [mamba-heads])
    (inner-w [inner] {:init 1})  (out-w [width inner] weight-type))
  (per layers :where (is "*") (qkv-w [(* (+ heads (* 2 kv-heads)) head-width) width] weight-type)
    (proj-w [width (* heads head-width)] weight-type))
  (per layers :where (is "-") (up-w [hidden width] weight-type)  (down-w [width hidden] weight-type))
  (per layers :where (is "E") (router-w [experts width] weight-type)  (router-b [experts])
    (ups-w [experts each-hidden width] weight-type)  (downs-w [experts width each-hidden] weight-type)
    (shared-up-w [shared width] weight-type)  (shared-down-w [width shared] weight-type)))
(state (per layers :where (is "*") (kv [batch 2 kv-heads context head-width] cache-type))
  (per layers :where (is "M") (before [batch (- taps 1) mixed])  (memory [batch inner states])))
(defn mix [y l]
  (let [sign (layer-sign kinds l)  feed (fn [up down] (linear (squared-relu (linear y up)) down))
        bias (if (and conv-biased (= sign "M")) (conv-b l) 0.0)]
    (cond (= sign "M") (linear (normed-state-space (linear y (in-w l)) (inner-w l) (conv-w l) bias (dt-b l) (a-log l)
                                                   (skip-w l) (before l) (memory l) groups epsilon) (out-w l))
          (= sign "*") (let [[q k v] (split-heads (linear y (qkv-w l)) head-width heads kv-heads)]
                         (linear (attend q k v (kv l)) (proj-w l)))
          (= sign "-") (feed (up-w l) (down-w l))
          :else (let [expert (fn [e] (by-expert (squared-relu (by-expert y (ups-w l) e)) (downs-w l) e))
                      best (chosen-by-sigmoid (linear y (router-w l)) (router-b l) among top-groups top normed scale)]
                  (+ (feed (shared-up-w l) (shared-down-w l)) (shared-among best expert))))))
(defn layer [x l] (+ x (mix (rms-norm x (norm-w l) epsilon) l)))
(entry logits [tokens positions]
  (matmul-transposed (rms-norm (last (fold layer (rows wte tokens) (range layers))) normf-w epsilon) head-w))
(generate logits {:max-new-tokens 64 :temperature 0.8 :top-k 50})
