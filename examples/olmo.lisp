; OLMo: "OLMo: Accelerating the Science of Language Models", Groeneveld et al. 2024: a Llama whose norms have no weights.
; lispgpt run FOLDER --prompt "Once upon a time"
(require nn)

(config vocab 50304  context 2048  layers 16  heads 16  kv-heads heads  width 2048  hidden 8192
        head-width (quot width heads)  epsilon 1e-5  tied-head false  most 0.0  weight-type bf16
        cache-type (usual-cache-type weight-type))
(rotary-config)

(hugging-face ["olmo"] {:prefix "model."  :usual true  :rotary ["default" "dynamic" "linear" "llama3" "yarn"]
                        :requires {"hidden_act" "silu"  "attention_bias" false}}
  (config most (optional "clip_qkv"))
  (weights
    wte "embed_tokens.weight"  head-w "lm_head.weight"
    (per "layers.*."
      qkv-w ["self_attn.q_proj.weight" "self_attn.k_proj.weight" "self_attn.v_proj.weight"]
      proj-w "self_attn.o_proj.weight"
      gate-w "mlp.gate_proj.weight"  up-w "mlp.up_proj.weight"  down-w "mlp.down_proj.weight")))
(gguf ["olmo"] {:requires {"attention.layer_norm_epsilon" 1e-5}
                :rows {"q_proj" (["num_attention_heads" 2 nil] [0 2 1])  "k_proj" (["num_key_value_heads" 2 nil] [0 2 1])}})

(weights
  (wte [vocab width] weight-type)
  (per layers
    (qkv-w [(* (+ heads (* 2 kv-heads)) head-width) width] weight-type)
    (proj-w [width (* heads head-width)] weight-type)
    (gate-w [hidden width] weight-type)  (up-w [hidden width] weight-type)  (down-w [width hidden] weight-type))
  (when (not tied-head) (head-w [vocab width] weight-type)))

(state (kv [layers batch 2 kv-heads context head-width] cache-type))

(defn layer [x l turn]
  (let [[q k v] (split-heads (clipped (linear (centred-norm x epsilon) (qkv-w l)) most) head-width heads kv-heads)
        x (+ x (linear (attend (turn q) (turn k) v (kv l)) (proj-w l)))]
    (+ x (swiglu (centred-norm x epsilon) (gate-w l) (up-w l) (down-w l)))))

(entry logits [tokens positions]
  (let [turn (turning positions (/ head-width 2))
        x (fold (fn [x l] (layer x l turn)) (rows wte tokens) (range layers))]
    (matmul-transposed (centred-norm (last x) epsilon) (if tied-head wte head-w))))

(generate logits {:max-new-tokens 64 :temperature 0.8 :top-k 50})
