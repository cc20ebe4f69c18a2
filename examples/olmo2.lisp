; OLMo 2: "2 OLMo 2 Furious", 2024: norms behind each block, not before it, and over all queries and keys at once.
; lispgpt run FOLDER --prompt "Once upon a time"
(require nn)

(config vocab 100352  context 4096  layers 16  heads 16  kv-heads heads  width 2048  hidden 8192
        head-width (quot width heads)  epsilon 1e-6  tied-head false  weight-type bf16)
(rotary-config)

(hugging-face ["olmo2"] {:prefix "model."  :usual true  :rotary ["default" "linear" "llama3" "yarn"]
                         :requires {"hidden_act" "silu"  "attention_bias" false}}
  (weights
    wte "embed_tokens.weight"  normf-w "norm.weight"  head-w "lm_head.weight"
    (per "layers.*."
      qkv-w ["self_attn.q_proj.weight" "self_attn.k_proj.weight" "self_attn.v_proj.weight"]
      q-norm-w "self_attn.q_norm.weight"  k-norm-w "self_attn.k_norm.weight"
      proj-w "self_attn.o_proj.weight"
      norm1-w "post_attention_layernorm.weight"
      gate-w "mlp.gate_proj.weight"  up-w "mlp.up_proj.weight"  down-w "mlp.down_proj.weight"
      norm2-w "post_feedforward_layernorm.weight")))

(def queries (* heads head-width))
(def keys (* kv-heads head-width))

(weights
  (wte [vocab width] weight-type)
  (per layers
    (qkv-w [(+ queries (* 2 keys)) width] weight-type)
    (q-norm-w [queries] {:init 1})  (k-norm-w [keys] {:init 1})
    (proj-w [width queries] weight-type)
    (norm1-w [width] {:init 1})
    (gate-w [hidden width] weight-type)  (up-w [hidden width] weight-type)  (down-w [width hidden] weight-type)
    (norm2-w [width] {:init 1}))
  (normf-w [width] {:init 1})
  (when (not tied-head) (head-w [vocab width] weight-type)))

(state (kv [layers batch 2 kv-heads context head-width] f32))

(defn layer [x l turn]
  (let [[q k v] (split-heads (linear x (qkv-w l)) head-width heads kv-heads)
        n (dim x 0)
        normed (fn [x w] (turn (reshape (rms-norm (reshape x [n (dim w 0)]) w epsilon) (shape x))))
        y (attend (normed q (q-norm-w l)) (normed k (k-norm-w l)) v (kv l))
        x (+ x (rms-norm (linear y (proj-w l)) (norm1-w l) epsilon))]
    (+ x (rms-norm (swiglu x (gate-w l) (up-w l) (down-w l)) (norm2-w l) epsilon))))

(entry logits [tokens positions]
  (let [turn (turning positions (/ head-width 2))
        x (fold (fn [x l] (layer x l turn)) (rows wte tokens) (range layers))]
    (matmul-transposed (rms-norm (last x) normf-w epsilon) (if tied-head wte head-w))))

(generate logits {:max-new-tokens 64 :temperature 0.8 :top-k 50})
