; Mixtral: "Mixtral of Experts", Jiang et al. 2024: a Mistral with experts.
; lispgpt run FOLDER --prompt "Once upon a time"
(require experts)

(config vocab 32000  context 32768  layers 32  heads 32  kv-heads heads  width 4096  hidden 14336  experts 8  top 2
        head-width (quot width heads)  epsilon 1e-5  tied-head false  window 0  kind ""
        weight-type bf16
        cache-type (usual-cache-type weight-type))
(rotary-config (if (= kind "mixtral") 1000000.0 10000.0))

(hugging-face ["mixtral"] {:prefix "model."  :usual true  :rotary ["default" "dynamic" "linear" "llama3" "yarn"]
                           :requires {"hidden_act" "silu"}}
  (config kind (optional "model_type")  window (optional "sliding_window")  experts "num_local_experts"
          top "num_experts_per_tok")
  (weights
    wte "embed_tokens.weight"  normf-w "norm.weight"  head-w "lm_head.weight"
    (per "layers.*."
      norm1-w "input_layernorm.weight"
      qkv-w ["self_attn.q_proj.weight" "self_attn.k_proj.weight" "self_attn.v_proj.weight"]
      proj-w "self_attn.o_proj.weight"
      norm2-w "post_attention_layernorm.weight"
      router-w "block_sparse_moe.gate.weight"  gate-w "block_sparse_moe.experts.*.w1.weight"
      up-w "block_sparse_moe.experts.*.w3.weight"  down-w "block_sparse_moe.experts.*.w2.weight")))
(gguf ["llama with expert_count" "llama with expert_count and attention.sliding_window"]
  {:rows {"q_proj" (["num_attention_heads" 2 nil] [0 2 1])  "k_proj" (["num_key_value_heads" 2 nil] [0 2 1])}})

(weights
  (wte [vocab width] weight-type)
  (per layers
    (norm1-w [width] {:init 1})
    (qkv-w [(* (+ heads (* 2 kv-heads)) head-width) width] weight-type)
    (proj-w [width (* heads head-width)] weight-type)
    (norm2-w [width] {:init 1})
    (router-w [experts width] weight-type)
    (gate-w [experts hidden width] weight-type)
    (up-w [experts hidden width] weight-type)
    (down-w [experts width hidden] weight-type))
  (normf-w [width] {:init 1})
  (when (not tied-head) (head-w [vocab width] weight-type)))

(state (kv [layers batch 2 kv-heads context head-width] cache-type))

(defn layer [x l turn]
  (let [qkv (linear (rms-norm x (norm1-w l) epsilon) (qkv-w l))
        [q k v] (split-heads qkv head-width heads kv-heads)
        x (+ x (linear (attend (turn q) (turn k) v (kv l) (within window)) (proj-w l)))]
    (+ x (mixture (rms-norm x (norm2-w l) epsilon) (router-w l) (gate-w l) (up-w l) (down-w l) top true))))

(entry logits [tokens positions]
  (let [turn (turning positions (/ head-width 2))
        x (fold (fn [x l] (layer x l turn)) (rows wte tokens) (range layers))]
    (matmul-transposed (rms-norm (last x) normf-w epsilon) (if tied-head wte head-w))))

(generate logits {:max-new-tokens 64 :temperature 0.8 :top-k 50})
