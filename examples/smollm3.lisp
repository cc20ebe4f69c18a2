; SmolLM 3, 2025: a Llama of which every fourth layer does not turn its heads by their positions.
; lispgpt run FOLDER --prompt "Once upon a time"
(require nn)

(config vocab 128256  context 32768  layers 36  heads 16  kv-heads heads  width 2048  hidden 11008
        head-width (quot width heads)  epsilon 1e-6  tied-head true  turned-layers []  every 4  kind ""
        windowed false  window 0  layer-types []  weight-type bf16
        cache-type (usual-cache-type weight-type))
(rotary-config (if (= kind "smollm3") 2000000.0 10000.0))

(hugging-face ["smollm3"] {:prefix "model."  :usual true  :rotary ["default" "dynamic" "linear" "llama3" "yarn"]
                           :requires {"hidden_act" "silu"  "mlp_bias" false  "attention_bias" false}}
  (config windowed (optional "use_sliding_window")  window (optional "sliding_window")
          layer-types (optional "layer_types")  kind (optional "model_type")  every (optional "no_rope_layer_interval")
          turned-layers (optional "no_rope_layers"))       ; which says 1 where a layer turns them, and 0 where not
  (weights
    wte "embed_tokens.weight"  normf-w "norm.weight"  head-w "lm_head.weight"
    (per "layers.*."
      norm1-w "input_layernorm.weight"
      qkv-w ["self_attn.q_proj.weight" "self_attn.k_proj.weight" "self_attn.v_proj.weight"]
      proj-w "self_attn.o_proj.weight"
      norm2-w "post_attention_layernorm.weight"
      gate-w "mlp.gate_proj.weight"  up-w "mlp.up_proj.weight"  down-w "mlp.down_proj.weight")))
(gguf ["smollm3"]
  {:rows {"q_proj" (["num_attention_heads" 2 nil] [0 2 1])  "k_proj" (["num_key_value_heads" 2 nil] [0 2 1])}})

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

(state (kv [layers batch 2 kv-heads context head-width] cache-type))

(defn turned? [l] (if (= (count turned-layers) 0) (!= (mod (+ l 1) every) 0) (= (nth turned-layers l) 1)))

(defn layer [x l turn]
  (let [[q k v] (split-heads (linear (rms-norm x (norm1-w l) epsilon) (qkv-w l)) head-width heads kv-heads)
        turn (if (turned? l) turn (fn [x] x))
        seen (within-if (if windowed (sliding? layer-types l (not (turned? l))) false) window)
        x (+ x (linear (attend (turn q) (turn k) v (kv l) seen) (proj-w l)))]
    (+ x (swiglu (rms-norm x (norm2-w l) epsilon) (gate-w l) (up-w l) (down-w l)))))

(entry logits [tokens positions]
  (let [turn (turning positions (/ head-width 2))
        x (fold (fn [x l] (layer x l turn)) (rows wte tokens) (range layers))]
    (matmul-transposed (rms-norm (last x) normf-w epsilon) (if tied-head wte head-w))))

(generate logits {:max-new-tokens 64 :temperature 0.8 :top-k 50})
