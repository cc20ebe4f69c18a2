; Qwen 1.5 and 2 with experts: "Qwen2 Technical Report", Yang et al. 2024: beside those that are chosen there is one that
; all rows go through, as much as a gate of its own says.  lispgpt run FOLDER --prompt "Once upon a time"
(require experts)
(config vocab 151936  context 8192  layers 24  heads 16  kv-heads heads  width 2048  hidden 1408  shared 5632
        experts 60  top 4  normed false  head-width (quot width heads)  epsilon 1e-6  tied-head false  weight-type bf16
        biased true  dense-layers []  sparse-step 1  dense-hidden 5632
        cache-type (usual-cache-type weight-type))
(rotary-config)  (def qkv-rows (* (+ heads (* 2 kv-heads)) head-width))
(hugging-face ["qwen2_moe"] {:prefix "model."  :usual true  :rotary ["default" "dynamic" "linear" "llama3" "yarn"]
                             :requires {"hidden_act" "silu"  "use_sliding_window" false}}
  (config hidden "moe_intermediate_size"  shared "shared_expert_intermediate_size"  dense-hidden "intermediate_size"
          experts ["num_experts" "num_local_experts"]  top "num_experts_per_tok"  normed (optional "norm_topk_prob")
          dense-layers (optional "mlp_only_layers")  sparse-step (optional "decoder_sparse_step")
          biased (optional "qkv_bias"))
  (weights
    wte "embed_tokens.weight"  normf-w "norm.weight"  head-w "lm_head.weight"
    (per "layers.*."
      norm1-w "input_layernorm.weight"  norm2-w "post_attention_layernorm.weight"  proj-w "self_attn.o_proj.weight"
      qkv-w ["self_attn.q_proj.weight" "self_attn.k_proj.weight" "self_attn.v_proj.weight"]
      qkv-b ["self_attn.q_proj.bias" "self_attn.k_proj.bias" "self_attn.v_proj.bias"])
    (some "layers.*."
      router-w "mlp.gate.weight"  gate-w "mlp.experts.*.gate_proj.weight"
      up-w "mlp.experts.*.up_proj.weight"  down-w "mlp.experts.*.down_proj.weight"
      open-w "mlp.shared_expert_gate.weight"  shared-gate-w "mlp.shared_expert.gate_proj.weight"
      shared-up-w "mlp.shared_expert.up_proj.weight"  shared-down-w "mlp.shared_expert.down_proj.weight"
      dense-gate-w "mlp.gate_proj.weight"  dense-up-w "mlp.up_proj.weight"  dense-down-w "mlp.down_proj.weight")))
(gguf ["qwen2moe"])
(defn sparse? [l] (has-experts l sparse-step dense-layers))
(weights
  (wte [vocab width] weight-type)
  (per layers
    (norm1-w [width] {:init 1})  (qkv-w [qkv-rows width] weight-type)  (when biased (qkv-b [qkv-rows]))
    (proj-w [width (* heads head-width)] weight-type)  (norm2-w [width] {:init 1}))
  (per layers :where sparse?
    (router-w [experts width] weight-type)  (open-w [1 width] weight-type)  (gate-w [experts hidden width] weight-type)
    (up-w [experts hidden width] weight-type)  (down-w [experts width hidden] weight-type)
    (shared-gate-w [shared width] weight-type)  (shared-up-w [shared width] weight-type)
    (shared-down-w [width shared] weight-type))
  (per layers :where (fn [l] (not (sparse? l)))
    (dense-gate-w [dense-hidden width] weight-type)  (dense-up-w [dense-hidden width] weight-type)
    (dense-down-w [width dense-hidden] weight-type))
  (normf-w [width] {:init 1})  (when (not tied-head) (head-w [vocab width] weight-type)))
(state (kv [layers batch 2 kv-heads context head-width] cache-type))
(defn with-experts [x y l]
  (+ x (mixture y (router-w l) (gate-w l) (up-w l) (down-w l) top normed)
     (opened (swiglu y (shared-gate-w l) (shared-up-w l) (shared-down-w l)) (linear y (open-w l)))))
(entry logits [tokens positions]
  (let [turn (turning positions (/ head-width 2))
        layer (fn [x l]
                (let [qkv (linear-if biased (rms-norm x (norm1-w l) epsilon) (qkv-w l) (qkv-b l))
                      [q k v] (split-heads qkv head-width heads kv-heads)
                      x (+ x (linear (attend (turn q) (turn k) v (kv l)) (proj-w l)))
                      y (rms-norm x (norm2-w l) epsilon)]
                  (if (sparse? l)
                    (with-experts x y l)
                    (+ x (swiglu y (dense-gate-w l) (dense-up-w l) (dense-down-w l))))))
        x (fold layer (rows wte tokens) (range layers))]
    (matmul-transposed (rms-norm (last x) normf-w epsilon) (if tied-head wte head-w))))
(generate logits {:max-new-tokens 64 :temperature 0.8 :top-k 50})
