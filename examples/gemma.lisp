; Gemma: "Gemma: Open Models Based on Gemini Research and Technology", 2024: a Llama with GELUs, norms whose weights are
; about zero, and embeddings that are scaled.  lispgpt run FOLDER --prompt "Once upon a time"
(require nn)

(config vocab 256000  context 8192  layers 18  heads 8  kv-heads heads  width 2048  hidden 16384  head-width 256
        epsilon 1e-6  tied-head true  weight-type bf16
        cache-type (usual-cache-type weight-type))
(rotary-config)

(hugging-face ["gemma"] {:prefix "model."  :usual true  :rotary ["default" "dynamic" "linear" "llama3" "yarn"]
                         :requires {"hidden_act" ["gelu_pytorch_tanh" "gelu_new" "gelu"]  "attention_bias" false
                                    "hidden_activation" ["gelu_pytorch_tanh" "gelu_new"]
                                    "use_bidirectional_attention" false}}
  (weights
    wte "embed_tokens.weight"  normf-w "norm.weight"  head-w "lm_head.weight"
    (per "layers.*."
      norm1-w "input_layernorm.weight"  norm2-w "post_attention_layernorm.weight"
      qkv-w ["self_attn.q_proj.weight" "self_attn.k_proj.weight" "self_attn.v_proj.weight"]
      proj-w "self_attn.o_proj.weight"
      gate-w "mlp.gate_proj.weight"  up-w "mlp.up_proj.weight"  down-w "mlp.down_proj.weight")))
(gguf ["gemma"] {:added {"norm.weight" 1.0}})

(weights
  (wte [vocab width] weight-type)
  (per layers
    (norm1-w [width] {:init 0})  (norm2-w [width] {:init 0})
    (qkv-w [(* (+ heads (* 2 kv-heads)) head-width) width] weight-type)
    (proj-w [width (* heads head-width)] weight-type)
    (gate-w [hidden width] weight-type)  (up-w [hidden width] weight-type)  (down-w [width hidden] weight-type))
  (normf-w [width] {:init 0})  (when (not tied-head) (head-w [vocab width] weight-type)))

(state (kv [layers batch 2 kv-heads context head-width] cache-type))

(defn norm [x w] (rms-norm x (+ w 1.0) epsilon))

(defn layer [x l turn]
  (let [[q k v] (split-heads (linear (norm x (norm1-w l)) (qkv-w l)) head-width heads kv-heads)
        x (+ x (linear (attend (turn q) (turn k) v (kv l)) (proj-w l)))]
    (+ x (geglu (norm x (norm2-w l)) (gate-w l) (up-w l) (down-w l)))))

(entry logits [tokens positions]
  (let [turn (turning positions (/ head-width 2))
        x (fold (fn [x l] (layer x l turn)) (* (rows wte tokens) (sqrt width)) (range layers))]
    (matmul-transposed (norm (last x) normf-w) (if tied-head wte head-w))))

(generate logits {:max-new-tokens 64 :temperature 0.8 :top-k 50})
