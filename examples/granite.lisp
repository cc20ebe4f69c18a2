; Granite 3: a Llama with four numbers by which embeddings, scores, what layers add, and logits are scaled.
; "Granite 3.0 Language Models", 2024.  lispgpt run FOLDER --prompt "Once upon a time"
(require nn)

(config kind ""  vocab 49155  context 131072  layers 40  heads 32  kv-heads heads  width 2048  hidden 8192
        head-width (quot width heads)  epsilon 1e-6  tied-head (= kind "")
        embedded 1.0  scored (if (= kind "granite") 1.0 (rsqrt (* 1.0 head-width)))  added 1.0  divided 1.0
        biased false  mlp-biased false  behind (= kind "hyperclovax")  weight-type bf16
        cache-type (usual-cache-type weight-type))
(rotary-config)

(hugging-face ["granite" "hyperclovax"] {:prefix "model."  :usual true  :rotary ["default" "dynamic" "linear" "llama3" "yarn"]
                                         :requires {"hidden_act" "silu"}}
  (config kind (optional "model_type")  embedded (optional "embedding_multiplier")
          scored (optional "attention_multiplier")  added (optional "residual_multiplier")
          divided (optional "logits_scaling")  biased (optional "attention_bias")
          mlp-biased (optional "mlp_bias")  behind (optional "use_post_norm"))
  (weights
    wte "embed_tokens.weight"  normf-w "norm.weight"  head-w "lm_head.weight"
    (per "layers.*."
      norm1-w "input_layernorm.weight"
      qkv-w ["self_attn.q_proj.weight" "self_attn.k_proj.weight" "self_attn.v_proj.weight"]
      qkv-b ["self_attn.q_proj.bias" "self_attn.k_proj.bias" "self_attn.v_proj.bias"]
      proj-w "self_attn.o_proj.weight"  proj-b "self_attn.o_proj.bias"
      norm2-w "post_attention_layernorm.weight"  behind1-w "post_norm1.weight"  behind2-w "post_norm2.weight"
      gate-b "mlp.gate_proj.bias"  up-b "mlp.up_proj.bias"  down-b "mlp.down_proj.bias"
      gate-w "mlp.gate_proj.weight"  up-w "mlp.up_proj.weight"  down-w "mlp.down_proj.weight")))
(gguf ["granite"]
  {:rows {"q_proj" (["num_attention_heads" 2 nil] [0 2 1])  "k_proj" (["num_key_value_heads" 2 nil] [0 2 1])}})

(weights
  (wte [vocab width] weight-type)
  (per layers
    (norm1-w [width] {:init 1})
    (qkv-w [(* (+ heads (* 2 kv-heads)) head-width) width] weight-type)
    (proj-w [width (* heads head-width)] weight-type)
    (norm2-w [width] {:init 1})  (when behind (behind1-w [width] {:init 1}) (behind2-w [width] {:init 1}))
    (when biased (qkv-b [(* (+ heads (* 2 kv-heads)) head-width)]) (proj-b [width]))
    (when mlp-biased (gate-b [hidden]) (up-b [hidden]) (down-b [width]))
    (gate-w [hidden width] weight-type)  (up-w [hidden width] weight-type)  (down-w [width hidden] weight-type))
  (normf-w [width] {:init 1})  (when (not tied-head) (head-w [vocab width] weight-type)))

(state (kv [layers batch 2 kv-heads context head-width] cache-type))

(defn layer [x l turn]
  (let [qkv (linear-if biased (rms-norm x (norm1-w l) epsilon) (qkv-w l) (qkv-b l))
        [q k v] (split-heads qkv head-width heads kv-heads)
        q (* (turn q) (* scored (sqrt head-width)))       ; `attend` divides scores by that root
        y (linear-if biased (attend q (turn k) v (kv l)) (proj-w l) (proj-b l))
        x (+ x (* added (if behind (rms-norm y (behind1-w l) epsilon) y)))
        y (rms-norm x (norm2-w l) epsilon)
        h (* (silu (linear-if mlp-biased y (gate-w l) (gate-b l))) (linear-if mlp-biased y (up-w l) (up-b l)))
        y (linear-if mlp-biased h (down-w l) (down-b l))]
    (+ x (* added (if behind (rms-norm y (behind2-w l) epsilon) y)))))

(entry logits [tokens positions]
  (let [turn (turning positions (/ head-width 2))
        x (fold (fn [x l] (layer x l turn)) (* embedded (rows wte tokens)) (range layers))]
    (matmul-transposed (* (/ 1.0 divided) (rms-norm (last x) normf-w epsilon)) (if tied-head wte head-w))))

(generate logits {:max-new-tokens 64 :temperature 0.8 :top-k 50})
