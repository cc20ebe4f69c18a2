; Granite 4, IBM 2025: most layers are Mamba 2's, some attend, without positions as a rule; all have a feed-forward
; layer that all rows go through, in some models experts beside it.  lispgpt run FOLDER --prompt "Once upon a time"
(require experts scan)
(config vocab 100352  context 131072  layers 40  heads 32  kv-heads heads  width 4096  hidden 768  experts 72  top 10
        shared 1536  head-width (quot width heads)  epsilon 1e-5  tied-head true  embedded 1.0  scored 1.0
        added 1.0  divided 1.0  by-position ""  layer-types []  expand 2  groups 1  states 128  taps 4  mamba-heads 128
        biased false  conv-biased true  weight-type bf16
        cache-type (usual-cache-type weight-type))
(rotary-config)
(hugging-face ["granitemoehybrid"]
  {:prefix "model."  :usual true  :rotary ["default" "dynamic" "linear" "llama3" "yarn"]
   :requires {"hidden_act" "silu"  "attention_bias" false  "time_step_limit.0" 0.0  "time_step_limit.1" inf}}
  (config experts "num_local_experts"  top "num_experts_per_tok"  shared "shared_intermediate_size"
          embedded (optional "embedding_multiplier")  scored (optional "attention_multiplier")
          added (optional "residual_multiplier")  divided (optional "logits_scaling")  states "mamba_d_state"
          by-position (optional "position_embedding_type")  layer-types (optional "layer_types" "layers_block_type")
          groups "mamba_n_groups"  expand "mamba_expand"  taps "mamba_d_conv"  mamba-heads "mamba_n_heads"
          biased (optional "mamba_proj_bias")  conv-biased (optional "mamba_conv_bias"))
  (weights
    wte "embed_tokens.weight"  normf-w "norm.weight"  head-w "lm_head.weight"
    (per "layers.*." norm1-w "input_layernorm.weight"  norm2-w "post_attention_layernorm.weight"
      router-w "block_sparse_moe.router.layer.weight"  gate-up-w "block_sparse_moe.input_linear.weight"
      down-w "block_sparse_moe.output_linear.weight"
      shared-w "shared_mlp.input_linear.weight"  shared-down-w "shared_mlp.output_linear.weight")
    (some "layers.*." qkv-w ["self_attn.q_proj.weight" "self_attn.k_proj.weight" "self_attn.v_proj.weight"]
      proj-w "self_attn.o_proj.weight"  in-w "mamba.in_proj.weight"  in-b "mamba.in_proj.bias"  dt-b "mamba.dt_bias"
      out-w "mamba.out_proj.weight"  out-b "mamba.out_proj.bias"  conv-w "mamba.conv1d.weight"  a-log "mamba.A_log"
      conv-b "mamba.conv1d.bias"  skip-w "mamba.D"  inner-w "mamba.norm.weight")))
(def inner (* expand width))  (def mixed (+ inner (* 2 groups states)))  (def given (+ inner mixed mamba-heads))
(defn attends? [l] (attention-layer? layer-types l))  (def untied (not tied-head))
(weights (wte [vocab width] weight-type)  (normf-w [width] {:init 1})  (when untied (head-w [vocab width] weight-type))
  (per layers (norm1-w [width] {:init 1})  (norm2-w [width] {:init 1})
    (shared-w [(* 2 shared) width] weight-type)  (shared-down-w [width shared] weight-type)
    (when (> experts 0) (router-w [experts width] weight-type) (gate-up-w [experts (* 2 hidden) width] weight-type)
      (down-w [experts width hidden] weight-type)))
  (per layers :where attends? (qkv-w [(* (+ heads (* 2 kv-heads)) head-width) width] weight-type)
    (proj-w [width (* heads head-width)] weight-type))
  (per layers :where (fn [l] (not (attends? l))) (in-w [given width] weight-type)  (out-w [width inner] weight-type)
    (when biased (in-b [given]) (out-b [width]))  (conv-w [mixed 1 taps])  (when conv-biased (conv-b [mixed]))
    (dt-b [mamba-heads])  (a-log [mamba-heads])  (skip-w [mamba-heads])  (inner-w [inner] {:init 1})))
(state (per layers :where attends? (kv [batch 2 kv-heads context head-width] cache-type))
  (per layers :where (fn [l] (not (attends? l))) (before [batch (- taps 1) mixed])  (memory [batch inner states])))
(defn layer [x l turn]
  (let [y (rms-norm x (norm1-w l) epsilon)
        y (if (attends? l)
            (let [[q k v] (split-heads (linear y (qkv-w l)) head-width heads kv-heads)
                  q (* (turn q) (* scored (sqrt head-width)))]      ; `attend` divides scores by that root
              (linear (attend q (turn k) v (kv l)) (proj-w l)))
            (let [conv-b (if conv-biased (conv-b l) 0.0)
                  y (normed-state-space (linear-if biased y (in-w l) (in-b l)) (inner-w l) (conv-w l) conv-b (dt-b l)
                                        (a-log l) (skip-w l) (before l) (memory l) groups epsilon)]
              (linear-if biased y (out-w l) (out-b l))))
        x (+ x (* added y))  y (rms-norm x (norm2-w l) epsilon)
        common (swiglu-of (linear y (shared-w l)) (shared-down-w l))
        expert (fn [e] (through-joined y e (gate-up-w l) (down-w l)))]
    (+ x (* added (if (> experts 0) (+ common (mixture-of (linear y (router-w l)) top true expert)) common)))))
(entry logits [tokens positions]
  (let [turn (if (= by-position "rope") (turning positions (/ head-width 2)) identity)
        x (fold (fn [x l] (layer x l turn)) (* embedded (rows wte tokens)) (range layers))]
    (matmul-transposed (* (/ 1.0 divided) (rms-norm (last x) normf-w epsilon)) (if tied-head wte head-w))))
(generate logits {:max-new-tokens 64 :temperature 0.8 :top-k 50})
