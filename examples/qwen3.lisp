; Qwen 3: "Qwen3 Technical Report", Yang et al. 2025: a Llama with a norm over each head's query and key.
; lispgpt run FOLDER --prompt "Once upon a time"
(require nn)

(config vocab 151936  context 40960  layers 28  heads 16  kv-heads heads  width 1024  hidden 3072
        kind ""
        head-size (if (= kind "qwen3") 128 0)
        head-width (if (= head-size 0) (quot width heads) head-size)
        epsilon 1e-6  tied-head false  biased false
        windowed false  window 4096  full-layers 28  layer-types []  weight-type bf16
        cache-type (usual-cache-type weight-type))
(rotary-config)

(hugging-face ["qwen3"] {:prefix "model."  :usual true  :rotary ["default" "dynamic" "linear" "llama3" "yarn"]
                         :requires {"hidden_act" "silu"}}
  (config kind (optional "model_type")  head-size (optional "head_dim" {:null 0})
          windowed (optional "use_sliding_window")  window (optional "sliding_window" {:null 0})
          biased (optional "attention_bias")  full-layers (optional "max_window_layers")
          layer-types (optional "layer_types"))
  (weights
    wte "embed_tokens.weight"  normf-w "norm.weight"  head-w "lm_head.weight"
    (per "layers.*."
      norm1-w "input_layernorm.weight"
      qkv-w ["self_attn.q_proj.weight" "self_attn.k_proj.weight" "self_attn.v_proj.weight"]
      q-norm-w "self_attn.q_norm.weight"  k-norm-w "self_attn.k_norm.weight"
      proj-w "self_attn.o_proj.weight"  proj-b "self_attn.o_proj.bias"
      qkv-b ["self_attn.q_proj.bias" "self_attn.k_proj.bias" "self_attn.v_proj.bias"]
      norm2-w "post_attention_layernorm.weight"
      gate-w "mlp.gate_proj.weight"  up-w "mlp.up_proj.weight"  down-w "mlp.down_proj.weight")))
(gguf ["qwen3"])

(weights
  (wte [vocab width] weight-type)
  (per layers
    (norm1-w [width] {:init 1})
    (qkv-w [(* (+ heads (* 2 kv-heads)) head-width) width] weight-type)
    (when biased (qkv-b [(* (+ heads (* 2 kv-heads)) head-width)]) (proj-b [width]))
    (q-norm-w [head-width] {:init 1})  (k-norm-w [head-width] {:init 1})
    (proj-w [width (* heads head-width)] weight-type)
    (norm2-w [width] {:init 1})
    (gate-w [hidden width] weight-type)  (up-w [hidden width] weight-type)  (down-w [width hidden] weight-type))
  (normf-w [width] {:init 1})
  (when (not tied-head) (head-w [vocab width] weight-type)))

(state (kv [layers batch 2 kv-heads context head-width] cache-type))

(defn layer [x l turn]
  (let [qkv (linear-if biased (rms-norm x (norm1-w l) epsilon) (qkv-w l) (qkv-b l))
        [q k v] (split-heads qkv head-width heads kv-heads)
        [q k] [(turn (head-norm q (q-norm-w l) epsilon)) (turn (head-norm k (k-norm-w l) epsilon))]
        seen (within-if (if windowed (sliding? layer-types l (>= l full-layers)) false) window)
        x (+ x (linear-if biased (attend q k v (kv l) seen) (proj-w l) (proj-b l)))]
    (+ x (swiglu (rms-norm x (norm2-w l) epsilon) (gate-w l) (up-w l) (down-w l)))))

(entry logits [tokens positions]
  (let [turn (turning positions (/ head-width 2))
        x (fold (fn [x l] (layer x l turn)) (rows wte tokens) (range layers))]
    (matmul-transposed (rms-norm (last x) normf-w epsilon) (if tied-head wte head-w))))

(generate logits {:max-new-tokens 64 :temperature 0.8 :top-k 50})
