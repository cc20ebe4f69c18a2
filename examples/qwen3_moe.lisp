; Qwen 3 with experts: "Qwen3 Technical Report", Yang et al. 2025.
; lispgpt run FOLDER --prompt "Once upon a time"
(require experts)

(config vocab 151936  context 40960  layers 28  heads 16  kv-heads heads  width 1024  hidden 768
        experts 128  top 8  kind ""  normed (!= kind "qwen3_moe")  biased false  head-width (quot width heads)
        epsilon 1e-6  tied-head false  dense-layers []  sparse-step 1  dense-hidden hidden  weight-type bf16
        cache-type (usual-cache-type weight-type))
(rotary-config)
(hugging-face ["qwen3_moe"] {:prefix "model."  :usual true  :rotary ["default" "dynamic" "linear" "llama3" "yarn"]
                             :requires {"hidden_act" "silu"  "use_sliding_window" false}}
  (config kind (optional "model_type")  hidden "moe_intermediate_size"  experts ["num_experts" "num_local_experts"]
          top "num_experts_per_tok"  normed (optional "norm_topk_prob")  dense-layers (optional "mlp_only_layers")
          sparse-step (optional "decoder_sparse_step")  biased (optional "attention_bias")
          dense-hidden (optional "intermediate_size"))
  (weights
    wte "embed_tokens.weight"  normf-w "norm.weight"  head-w "lm_head.weight"
    (per "layers.*."
      norm1-w "input_layernorm.weight"
      qkv-w ["self_attn.q_proj.weight" "self_attn.k_proj.weight" "self_attn.v_proj.weight"]
      q-norm-w "self_attn.q_norm.weight"  k-norm-w "self_attn.k_norm.weight"
      qkv-b ["self_attn.q_proj.bias" "self_attn.k_proj.bias" "self_attn.v_proj.bias"]
      proj-w "self_attn.o_proj.weight"  proj-b "self_attn.o_proj.bias"  norm2-w "post_attention_layernorm.weight")
    (some "layers.*."
      dense-gate-w "mlp.gate_proj.weight"  dense-up-w "mlp.up_proj.weight"  dense-down-w "mlp.down_proj.weight"
      router-w "mlp.gate.weight"  gate-w "mlp.experts.*.gate_proj.weight"
      up-w "mlp.experts.*.up_proj.weight"  down-w "mlp.experts.*.down_proj.weight")))
(gguf ["qwen3moe"] {:settings {"norm_topk_prob" true}})
(defn sparse? [l] (has-experts l sparse-step dense-layers))
(weights (wte [vocab width] weight-type)
  (per layers
    (norm1-w [width] {:init 1})  (norm2-w [width] {:init 1})
    (qkv-w [(* (+ heads (* 2 kv-heads)) head-width) width] weight-type)
    (when biased (qkv-b [(* (+ heads (* 2 kv-heads)) head-width)]) (proj-b [width]))
    (q-norm-w [head-width] {:init 1})  (k-norm-w [head-width] {:init 1})
    (proj-w [width (* heads head-width)] weight-type))
  (per layers :where (fn [l] (not (sparse? l)))
    (dense-gate-w [dense-hidden width] weight-type)  (dense-up-w [dense-hidden width] weight-type)
    (dense-down-w [width dense-hidden] weight-type))
  (per layers :where sparse?
    (router-w [experts width] weight-type)  (gate-w [experts hidden width] weight-type)
    (up-w [experts hidden width] weight-type)  (down-w [experts width hidden] weight-type))
  (normf-w [width] {:init 1})  (when (not tied-head) (head-w [vocab width] weight-type)))
(state (kv [layers batch 2 kv-heads context head-width] cache-type))

(defn layer [x l turn]
  (let [qkv (linear-if biased (rms-norm x (norm1-w l) epsilon) (qkv-w l) (qkv-b l))
        [q k v] (split-heads qkv head-width heads kv-heads)
        [q k] [(turn (head-norm q (q-norm-w l) epsilon)) (turn (head-norm k (k-norm-w l) epsilon))]
        x (+ x (linear-if biased (attend q k v (kv l)) (proj-w l) (proj-b l)))
        y (rms-norm x (norm2-w l) epsilon)]
    (+ x (if (sparse? l)
           (mixture y (router-w l) (gate-w l) (up-w l) (down-w l) top normed)
           (swiglu y (dense-gate-w l) (dense-up-w l) (dense-down-w l))))))

(entry logits [tokens positions]
  (let [turn (turning positions (/ head-width 2))
        x (fold (fn [x l] (layer x l turn)) (rows wte tokens) (range layers))]
    (matmul-transposed (rms-norm (last x) normf-w epsilon) (if tied-head wte head-w))))

(generate logits {:max-new-tokens 64 :temperature 0.8 :top-k 50})
