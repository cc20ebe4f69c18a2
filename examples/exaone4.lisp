; EXAONE 4: "EXAONE 4.0: Unified Large Language Models", LG AI Research 2025: norms behind the blocks and over each head's
; query and key; where some layers have a window, those alone are turned.  lispgpt run FOLDER --prompt "Once upon a time"
(require nn)

(config vocab 102400  context 131072  layers 30  heads 32  kv-heads heads  width 2048  hidden 4096  kind ""
        head-width (quot width heads)  epsilon 1e-5  tied-head (!= kind "exaone4")  layer-types []
        window (if (= kind "exaone4") 4096 0)  weight-type bf16
        cache-type (usual-cache-type weight-type))
(rotary-config)

(hugging-face ["exaone4"] {:prefix "model."  :usual true  :rotary ["default" "dynamic" "linear" "llama3" "yarn"]
                           :requires {"hidden_act" "silu"  "sliding_window_pattern" [4 "LLLG" 0]}}
  (config kind (optional "model_type")  window (optional "sliding_window" {:null 0})
          layer-types (optional "layer_types"))
  (weights
    wte "embed_tokens.weight"  normf-w "norm.weight"  head-w "lm_head.weight"
    (per "layers.*."
      qkv-w ["self_attn.q_proj.weight" "self_attn.k_proj.weight" "self_attn.v_proj.weight"]
      q-norm-w "self_attn.q_norm.weight"  k-norm-w "self_attn.k_norm.weight"
      proj-w "self_attn.o_proj.weight"
      norm1-w "post_attention_layernorm.weight"  norm2-w "post_feedforward_layernorm.weight"
      gate-w "mlp.gate_proj.weight"  up-w "mlp.up_proj.weight"  down-w "mlp.down_proj.weight")))
(gguf ["exaone4"])

(weights
  (wte [vocab width] weight-type)
  (per layers
    (qkv-w [(* (+ heads (* 2 kv-heads)) head-width) width] weight-type)
    (q-norm-w [head-width] {:init 1})  (k-norm-w [head-width] {:init 1})
    (proj-w [width (* heads head-width)] weight-type)
    (norm1-w [width] {:init 1})  (norm2-w [width] {:init 1})
    (gate-w [hidden width] weight-type)  (up-w [hidden width] weight-type)  (down-w [width hidden] weight-type))
  (normf-w [width] {:init 1})  (when (not tied-head) (head-w [vocab width] weight-type)))

(state (kv [layers batch 2 kv-heads context head-width] cache-type))

(defn layer [x l turn]
  (let [[q k v] (split-heads (linear x (qkv-w l)) head-width heads kv-heads)
        [q k] [(head-norm q (q-norm-w l) epsilon) (head-norm k (k-norm-w l) epsilon)]
        windowed (if (= window 0) false (sliding? layer-types l (!= (mod (+ l 1) 4) 0)))
        [q k] (if (or (= window 0) windowed) [(turn q) (turn k)] [q k])
        y (attend q k v (kv l) (within-if windowed window))
        x (+ x (rms-norm (linear y (proj-w l)) (norm1-w l) epsilon))]
    (+ x (rms-norm (swiglu x (gate-w l) (up-w l) (down-w l)) (norm2-w l) epsilon))))

(entry logits [tokens positions]
  (let [turn (turning positions (/ head-width 2))
        x (fold (fn [x l] (layer x l turn)) (rows wte tokens) (range layers))]
    (matmul-transposed (rms-norm (last x) normf-w epsilon) (if tied-head wte head-w))))

(generate logits {:max-new-tokens 64 :temperature 0.8 :top-k 50})
