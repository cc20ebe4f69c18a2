; OLMo 2: "2 OLMo 2 Furious", 2024: norms behind each block, not before it, and over all queries and keys at once.
; lispgpt run FOLDER --prompt "Once upon a time"
(require nn)

(config vocab 100352  context 4096  layers 16  heads 16  kv-heads heads  width 2048  hidden 8192
        head-width (quot width heads)  epsilon 1e-5  tied-head false  biased false
        kind "olmo2"  window 4096  layer-types []  rope-near (if (= kind "olmo3") 500000.0 10000.0)  weight-type bf16
        cache-type (usual-cache-type weight-type))
(rotary-config rope-near)

(hugging-face ["olmo2" "olmo3"] {:prefix "model."  :usual true  :rotary ["default" "dynamic" "linear" "llama3" "yarn"]
                                 :requires {"hidden_act" "silu"  "rope_parameters.sliding_attention.rope_type" "default"}}
  (config kind (optional "model_type")  biased (optional "attention_bias")  window (optional "sliding_window" {:null 0})
          layer-types (optional "layer_types")
          rope-near (optional "rope_parameters.sliding_attention.rope_theta" "rope_theta"))
  (weights
    wte "embed_tokens.weight"  normf-w "norm.weight"  head-w "lm_head.weight"
    (per "layers.*."
      qkv-w ["self_attn.q_proj.weight" "self_attn.k_proj.weight" "self_attn.v_proj.weight"]
      qkv-b ["self_attn.q_proj.bias" "self_attn.k_proj.bias" "self_attn.v_proj.bias"]  proj-b "self_attn.o_proj.bias"
      q-norm-w "self_attn.q_norm.weight"  k-norm-w "self_attn.k_norm.weight"
      proj-w "self_attn.o_proj.weight"
      norm1-w "post_attention_layernorm.weight"
      gate-w "mlp.gate_proj.weight"  up-w "mlp.up_proj.weight"  down-w "mlp.down_proj.weight"
      norm2-w "post_feedforward_layernorm.weight")))
(gguf ["olmo2"] {:kinds {"olmo2 with attention.sliding_window" "olmo3"}})

(def queries (* heads head-width))
(def keys (* kv-heads head-width))

(weights
  (wte [vocab width] weight-type)
  (per layers
    (qkv-w [(+ queries (* 2 keys)) width] weight-type)  (proj-w [width queries] weight-type)
    (when biased (qkv-b [(+ queries (* 2 keys))]) (proj-b [width]))
    (q-norm-w [queries] {:init 1})  (k-norm-w [keys] {:init 1})
    (norm1-w [width] {:init 1})
    (gate-w [hidden width] weight-type)  (up-w [hidden width] weight-type)  (down-w [width hidden] weight-type)
    (norm2-w [width] {:init 1}))
  (normf-w [width] {:init 1})  (when (not tied-head) (head-w [vocab width] weight-type)))

(state (kv [layers batch 2 kv-heads context head-width] cache-type))

(defn layer [x l turn near]
  (let [[q k v] (split-heads (linear-if biased x (qkv-w l) (qkv-b l)) head-width heads kv-heads)
        n (dim x 0)
        windowed (if (= kind "olmo3") (sliding? layer-types l (!= (mod (+ l 1) 4) 0)) false)
        turn (if windowed near turn)
        normed (fn [x w] (turn (reshape (rms-norm (reshape x [n (dim w 0)]) w epsilon) (shape x))))
        y (attend (normed q (q-norm-w l)) (normed k (k-norm-w l)) v (kv l) (within-if windowed window))
        x (+ x (rms-norm (linear-if biased y (proj-w l) (proj-b l)) (norm1-w l) epsilon))]
    (+ x (rms-norm (swiglu x (gate-w l) (up-w l) (down-w l)) (norm2-w l) epsilon))))

(entry logits [tokens positions]
  (let [pairs (/ head-width 2)
        turn (turning positions pairs)
        near (turning-by positions pairs (rotary-frequency rope-near pairs))
        x (fold (fn [x l] (layer x l turn near)) (rows wte tokens) (range layers))]
    (matmul-transposed (rms-norm (last x) normf-w epsilon) (if tied-head wte head-w))))

(generate logits {:max-new-tokens 64 :temperature 0.8 :top-k 50})
