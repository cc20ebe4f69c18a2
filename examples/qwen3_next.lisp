; Qwen 3 Next, 2025: three of four layers have states that learn by a gated delta rule, the others attend, through a
; gate; all have experts, and one that all rows go through.  lispgpt run FOLDER --prompt "Once upon a time"
(require experts delta)  (rotary-config)
(config vocab 151936  context 262144  layers 48  heads 16  kv-heads 2  width 2048  hidden 512  shared 512  experts 512
        top 10  normed true  head-width 256  epsilon 1e-6  tied-head false  turned 0.25  layer-types []  every 4
        key-heads 16  key-width 128  value-heads 32  value-width 128  taps 4  weight-type bf16
        cache-type (usual-cache-type weight-type))
(hugging-face ["qwen3_next"]
  {:prefix "model."  :ignored ["mtp.*"]  :usual true  :rotary ["default" "dynamic" "linear" "llama3" "yarn"]
   :requires {"hidden_act" "silu"  "attention_bias" false  "mlp_only_layers" [[] nil]  "decoder_sparse_step" 1}}
  (config hidden "moe_intermediate_size"  shared "shared_expert_intermediate_size"  experts "num_experts"
          top "num_experts_per_tok"  normed (optional "norm_topk_prob")  layer-types (optional "layer_types")
          turned (optional "rope_parameters.partial_rotary_factor" "partial_rotary_factor")
          every (optional "full_attention_interval")  key-heads "linear_num_key_heads"  taps "linear_conv_kernel_dim"
          key-width "linear_key_head_dim"  value-heads "linear_num_value_heads"  value-width "linear_value_head_dim")
  (weights
    wte "embed_tokens.weight"  normf-w "norm.weight"  head-w "lm_head.weight"
    (per "layers.*." norm1-w "input_layernorm.weight"  norm2-w "post_attention_layernorm.weight"
      router-w "mlp.gate.weight"  gate-w "mlp.experts.*.gate_proj.weight"  up-w "mlp.experts.*.up_proj.weight"
      down-w "mlp.experts.*.down_proj.weight"  open-w "mlp.shared_expert_gate.weight"
      shared-gate-w "mlp.shared_expert.gate_proj.weight"  shared-up-w "mlp.shared_expert.up_proj.weight"
      shared-down-w "mlp.shared_expert.down_proj.weight")
    (some "layers.*." qkv-w ["self_attn.q_proj.weight" "self_attn.k_proj.weight" "self_attn.v_proj.weight"]
      q-norm-w "self_attn.q_norm.weight"  k-norm-w "self_attn.k_norm.weight"  proj-w "self_attn.o_proj.weight"
      in-w "linear_attn.in_proj_qkvz.weight"  rates-w "linear_attn.in_proj_ba.weight"  a-log "linear_attn.A_log"
      conv-w "linear_attn.conv1d.weight"  dt-b "linear_attn.dt_bias"  inner-w "linear_attn.norm.weight"
      out-w "linear_attn.out_proj.weight")))
(def inner (* value-heads value-width))  (def keyed (* key-heads key-width))  (def mixed (+ inner (* 2 keyed)))
(defn attends? [l] (if (= (count layer-types) 0) (= (mod (+ l 1) every) 0) (attention-layer? layer-types l)))
(weights (wte [vocab width] weight-type)  (normf-w [width])  (when (not tied-head) (head-w [vocab width] weight-type))
  (per layers (norm1-w [width])  (norm2-w [width])  (router-w [experts width] weight-type)
    (gate-w [experts hidden width] weight-type)  (up-w [experts hidden width] weight-type)
    (down-w [experts width hidden] weight-type)  (open-w [1 width] weight-type)
    (shared-up-w [shared width] weight-type)  (shared-gate-w [shared width] weight-type)
    (shared-down-w [width shared] weight-type))
  (per layers :where attends? (qkv-w [(* 2 (+ heads kv-heads) head-width) width] weight-type)  (q-norm-w [head-width])
    (k-norm-w [head-width])  (proj-w [width (* heads head-width)] weight-type))
  (per layers :where (fn [l] (not (attends? l))) (in-w [(+ mixed inner) width] weight-type)  (conv-w [mixed 1 taps])
    (rates-w [(* 2 value-heads) width] weight-type)  (dt-b [value-heads])  (a-log [value-heads])
    (inner-w [value-width] {:init 1})  (out-w [width inner] weight-type)))
(state (per layers :where attends? (kv [batch 2 kv-heads context head-width] cache-type))
  (per layers :where (fn [l] (not (attends? l))) (before [batch (- taps 1) mixed])  (memory [batch inner key-width])))
(defn norm [x w] (rms-norm x (+ w 1.0) epsilon))
(defn attended [y l turn]
  (let [n (dim y 0)  [both k v] (split-heads (linear y (qkv-w l)) head-width (* 2 heads) kv-heads)
        half (fn [i] (slice (reshape both [n heads 2 head-width]) [0 0 i 0] [n heads nil head-width]))
        [q k] (map (fn [x w] (turn (head-norm x (+ w 1.0) epsilon))) [(half 0) k] [(q-norm-w l) (k-norm-w l)])]
    (linear (* (attend q k v (kv l)) (sigmoid (reshape (half 1) [n (* heads head-width)]))) (proj-w l))))
(defn mixed-in [y l]
  (linear (delta-layer (linear y (in-w l)) (linear y (rates-w l)) (conv-w l) (dt-b l) (a-log l) (inner-w l) (before l)
                       (memory l) key-heads key-width epsilon) (out-w l)))
(entry logits [tokens positions]
  (let [turn (turning positions (turned-pairs turned head-width))
        layer (fn [x l]
                (let [y (norm x (norm1-w l))  x (+ x (if (attends? l) (attended y l turn) (mixed-in y l)))
                      y (norm x (norm2-w l))]
                  (+ x (mixture y (router-w l) (gate-w l) (up-w l) (down-w l) top normed)
                     (opened (swiglu y (shared-gate-w l) (shared-up-w l) (shared-down-w l)) (linear y (open-w l))))))
        x (last (fold layer (rows wte tokens) (range layers)))]
    (matmul-transposed (norm x normf-w) (if tied-head wte head-w))))
(generate logits {:max-new-tokens 64 :temperature 0.8 :top-k 50})
