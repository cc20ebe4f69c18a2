; GLM-4: "ChatGLM: A Family of Large Language Models", 2024: a Llama that turns half of each head, neighbouring columns
; together, with gate and up projection in one matrix; later ones have norms behind the blocks, too.
; lispgpt run FOLDER --prompt "Once upon a time"
(require nn)

(config vocab 151552  context 131072  layers 40  heads 32  kv-heads heads  width 4096  hidden 13696  biased true
        kind ""  head-size (if (= kind "") 0 128)  head-width (if (= head-size 0) (quot width heads) head-size)
        turned 0.5  epsilon 1.5625e-7  tied-head false  weight-type bf16
        cache-type (usual-cache-type weight-type))
(rotary-config)

(hugging-face ["glm" "glm4"] {:prefix "model."  :usual true  :rotary ["default" "dynamic" "linear" "llama3" "yarn"]
                              :requires {"hidden_act" "silu"}}
  (config kind (optional "model_type")  head-size (optional "head_dim" {:null 0})  biased (optional "attention_bias")
          turned (optional "rope_parameters.partial_rotary_factor" "partial_rotary_factor"))
  (weights
    wte "embed_tokens.weight"  normf-w "norm.weight"  head-w "lm_head.weight"
    (per "layers.*."
      norm1-w "input_layernorm.weight"  norm2-w "post_attention_layernorm.weight"
      behind1-w "post_self_attn_layernorm.weight"  behind2-w "post_mlp_layernorm.weight"
      qkv-w ["self_attn.q_proj.weight" "self_attn.k_proj.weight" "self_attn.v_proj.weight"]
      qkv-b ["self_attn.q_proj.bias" "self_attn.k_proj.bias" "self_attn.v_proj.bias"]
      proj-w "self_attn.o_proj.weight"  gate-up-w "mlp.gate_up_proj.weight"  down-w "mlp.down_proj.weight")))
(gguf ["glm4"])

(def pairs (turned-pairs turned head-width))
(def norms-behind (!= kind "glm"))

(weights
  (wte [vocab width] weight-type)
  (per layers
    (norm1-w [width] {:init 1})  (norm2-w [width] {:init 1})
    (when norms-behind (behind1-w [width] {:init 1}) (behind2-w [width] {:init 1}))
    (qkv-w [(* (+ heads (* 2 kv-heads)) head-width) width] weight-type)
    (when biased (qkv-b [(* (+ heads (* 2 kv-heads)) head-width)]))
    (proj-w [width (* heads head-width)] weight-type)
    (gate-up-w [(* 2 hidden) width] weight-type)  (down-w [width hidden] weight-type))
  (normf-w [width] {:init 1})  (when (not tied-head) (head-w [vocab width] weight-type)))

(state (kv [layers batch 2 kv-heads context head-width] cache-type))

(defn layer [x l turn]
  (let [y (rms-norm x (norm1-w l) epsilon)
        [q k v] (split-heads (linear-if biased y (qkv-w l) (qkv-b l)) head-width heads kv-heads)
        [q k] (map (fn [x] (turn (halves-first x (* 2 pairs)))) [q k])
        y (linear (attend q k v (kv l)) (proj-w l))
        x (+ x (if norms-behind (rms-norm y (behind1-w l) epsilon) y))
        y (swiglu-of (linear (rms-norm x (norm2-w l) epsilon) (gate-up-w l)) (down-w l))]
    (+ x (if norms-behind (rms-norm y (behind2-w l) epsilon) y))))

(entry logits [tokens positions]
  (let [turn (turning positions pairs)
        x (fold (fn [x l] (layer x l turn)) (rows wte tokens) (range layers))]
    (matmul-transposed (rms-norm (last x) normf-w epsilon) (if tied-head wte head-w))))

(generate logits {:max-new-tokens 64 :temperature 0.8 :top-k 50})
