; Granite 3: a Llama with four numbers by which embeddings, scores, what layers add, and logits are scaled.
; "Granite 3.0 Language Models", 2024.  lispgpt run FOLDER --prompt "Once upon a time"
(require nn)

(config vocab 49155  context 131072  layers 40  heads 32  kv-heads heads  width 2048  hidden 8192
        head-width (quot width heads)  epsilon 1e-5  tied-head true
        embedded 1.0  scored (rsqrt (* 1.0 head-width))  added 1.0  divided 1.0  weight-type bf16)
(rotary-config)

(hugging-face ["granite"] {:prefix "model."  :usual true  :rotary ["default" "linear" "llama3" "yarn"]
                           :requires {"hidden_act" "silu"  "attention_bias" false  "mlp_bias" false}}
  (config embedded (optional "embedding_multiplier")  scored (optional "attention_multiplier")
          added (optional "residual_multiplier")  divided (optional "logits_scaling"))
  (weights
    wte "embed_tokens.weight"  normf-w "norm.weight"  head-w "lm_head.weight"
    (per "layers.*."
      norm1-w "input_layernorm.weight"
      qkv-w ["self_attn.q_proj.weight" "self_attn.k_proj.weight" "self_attn.v_proj.weight"]
      proj-w "self_attn.o_proj.weight"
      norm2-w "post_attention_layernorm.weight"
      gate-w "mlp.gate_proj.weight"  up-w "mlp.up_proj.weight"  down-w "mlp.down_proj.weight")))

(weights
  (wte [vocab width] weight-type)
  (per layers
    (norm1-w [width] {:init 1})
    (qkv-w [(* (+ heads (* 2 kv-heads)) head-width) width] weight-type)
    (proj-w [width (* heads head-width)] weight-type)
    (norm2-w [width] {:init 1})
    (gate-w [hidden width] weight-type)  (up-w [hidden width] weight-type)  (down-w [width hidden] weight-type))
  (normf-w [width] {:init 1})
  (when (not tied-head) (head-w [vocab width] weight-type)))

(state (kv [layers batch 2 kv-heads context head-width] f32))

(defn layer [x l turn]
  (let [[q k v] (split-heads (linear (rms-norm x (norm1-w l) epsilon) (qkv-w l)) head-width heads kv-heads)
        q (* (turn q) (* scored (sqrt head-width)))       ; `attend` divides scores by that root
        x (+ x (* added (linear (attend q (turn k) v (kv l)) (proj-w l))))]
    (+ x (* added (swiglu (rms-norm x (norm2-w l) epsilon) (gate-w l) (up-w l) (down-w l))))))

(entry logits [tokens positions]
  (let [turn (turning positions (/ head-width 2))
        x (fold (fn [x l] (layer x l turn)) (* embedded (rows wte tokens)) (range layers))]
    (matmul-transposed (* (/ 1.0 divided) (rms-norm (last x) normf-w epsilon)) (if tied-head wte head-w))))

(generate logits {:max-new-tokens 64 :temperature 0.8 :top-k 50})
