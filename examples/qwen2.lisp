; Qwen 2 and 2.5: "Qwen2 Technical Report", Yang et al. 2024: a Llama whose queries, keys and values have biases.
; lispgpt run FOLDER --prompt "Once upon a time"
(require nn)

(config vocab 151936  context 32768  layers 24  heads 14  kv-heads heads  width 896  hidden 4864
        head-width (quot width heads)  epsilon 1e-6  tied-head false
        windowed false  window 4096  full-layers 28  layer-types []  weight-type bf16
        cache-type (usual-cache-type weight-type))
(rotary-config)

(hugging-face ["qwen2"] {:prefix "model."  :usual true  :rotary ["default" "dynamic" "linear" "llama3" "yarn"]
                         :requires {"hidden_act" "silu"}}
  (config windowed (optional "use_sliding_window")  window (optional "sliding_window" {:null 0})
          full-layers (optional "max_window_layers")  layer-types (optional "layer_types"))
  (weights
    wte "embed_tokens.weight"  normf-w "norm.weight"  head-w "lm_head.weight"
    (per "layers.*."
      norm1-w "input_layernorm.weight"
      qkv-w ["self_attn.q_proj.weight" "self_attn.k_proj.weight" "self_attn.v_proj.weight"]
      qkv-b ["self_attn.q_proj.bias" "self_attn.k_proj.bias" "self_attn.v_proj.bias"]
      proj-w "self_attn.o_proj.weight"
      norm2-w "post_attention_layernorm.weight"
      gate-w "mlp.gate_proj.weight"  up-w "mlp.up_proj.weight"  down-w "mlp.down_proj.weight")))
(gguf ["qwen2"])

(weights
  (wte [vocab width] weight-type)
  (per layers
    (norm1-w [width] {:init 1})
    (qkv-w [(* (+ heads (* 2 kv-heads)) head-width) width] weight-type)
    (qkv-b [(* (+ heads (* 2 kv-heads)) head-width)])
    (proj-w [width (* heads head-width)] weight-type)
    (norm2-w [width] {:init 1})
    (gate-w [hidden width] weight-type)  (up-w [hidden width] weight-type)  (down-w [width hidden] weight-type))
  (normf-w [width] {:init 1})
  (when (not tied-head) (head-w [vocab width] weight-type)))

(state (kv [layers batch 2 kv-heads context head-width] cache-type))

(defn layer [x l turn]
  (let [qkv (linear (rms-norm x (norm1-w l) epsilon) (qkv-w l) (qkv-b l))
        [q k v] (split-heads qkv head-width heads kv-heads)
        seen (within-if (if windowed (sliding? layer-types l (>= l full-layers)) false) window)
        x (+ x (linear (attend (turn q) (turn k) v (kv l) seen) (proj-w l)))]
    (+ x (swiglu (rms-norm x (norm2-w l) epsilon) (gate-w l) (up-w l) (down-w l)))))

(entry logits [tokens positions]
  (let [turn (turning positions (/ head-width 2))
        x (fold (fn [x l] (layer x l turn)) (rows wte tokens) (range layers))]
    (matmul-transposed (rms-norm (last x) normf-w epsilon) (if tied-head wte head-w))))

(generate logits {:max-new-tokens 64 :temperature 0.8 :top-k 50})
