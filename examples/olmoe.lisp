; OLMoE: "OLMoE: Open Mixture-of-Experts Language Models", Muennighoff et al. 2024.
; lispgpt run FOLDER --prompt "Once upon a time"
(require experts)

(config vocab 50304  context 4096  layers 16  heads 16  kv-heads heads  width 2048  hidden 1024  experts 64  top 8
        normed false  head-width (quot width heads)  epsilon 1e-5  tied-head false  most 0.0  weight-type bf16
        cache-type (usual-cache-type weight-type))
(rotary-config)

(hugging-face ["olmoe"] {:prefix "model."  :usual true  :rotary ["default" "dynamic" "linear" "llama3" "yarn"]
                         :requires {"hidden_act" "silu"  "attention_bias" false}}
  (config experts ["num_experts" "num_local_experts"]  top "num_experts_per_tok"  normed (optional "norm_topk_prob")
          most (optional "clip_qkv"))
  (weights
    wte "embed_tokens.weight"  normf-w "norm.weight"  head-w "lm_head.weight"
    (per "layers.*."
      norm1-w "input_layernorm.weight"  norm2-w "post_attention_layernorm.weight"
      qkv-w ["self_attn.q_proj.weight" "self_attn.k_proj.weight" "self_attn.v_proj.weight"]
      q-norm-w "self_attn.q_norm.weight"  k-norm-w "self_attn.k_norm.weight"  proj-w "self_attn.o_proj.weight"
      router-w "mlp.gate.weight"  gate-w "mlp.experts.*.gate_proj.weight"
      up-w "mlp.experts.*.up_proj.weight"  down-w "mlp.experts.*.down_proj.weight")))
(gguf ["olmoe"])

(def queries (* heads head-width))
(def keys (* kv-heads head-width))

(weights
  (wte [vocab width] weight-type)
  (per layers
    (norm1-w [width] {:init 1})  (norm2-w [width] {:init 1})
    (qkv-w [(+ queries (* 2 keys)) width] weight-type)  (proj-w [width queries] weight-type)
    (q-norm-w [queries] {:init 1})  (k-norm-w [keys] {:init 1})
    (router-w [experts width] weight-type)
    (gate-w [experts hidden width] weight-type)  (up-w [experts hidden width] weight-type)
    (down-w [experts width hidden] weight-type))
  (normf-w [width] {:init 1})  (when (not tied-head) (head-w [vocab width] weight-type)))

(state (kv [layers batch 2 kv-heads context head-width] cache-type))

(defn layer [x l turn]
  (let [[q k v] (split-heads (linear (rms-norm x (norm1-w l) epsilon) (qkv-w l)) head-width heads kv-heads)
        n (dim x 0)
        normed-all (fn [x w] (reshape (clipped (rms-norm (reshape x [n (dim w 0)]) w epsilon) most) (shape x)))
        [q k] [(turn (normed-all q (q-norm-w l))) (turn (normed-all k (k-norm-w l)))]
        x (+ x (linear (attend q k (clipped v most) (kv l)) (proj-w l)))]
    (+ x (mixture (rms-norm x (norm2-w l) epsilon) (router-w l) (gate-w l) (up-w l) (down-w l) top normed))))

(entry logits [tokens positions]
  (let [turn (turning positions (/ head-width 2))
        x (fold (fn [x l] (layer x l turn)) (rows wte tokens) (range layers))]
    (matmul-transposed (rms-norm (last x) normf-w epsilon) (if tied-head wte head-w))))

(generate logits {:max-new-tokens 64 :temperature 0.8 :top-k 50})
