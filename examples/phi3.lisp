; Phi-3 and Phi-4: "Phi-3 Technical Report", Abdin et al. 2024: a Llama whose gate and up projection are one matrix.
; lispgpt run FOLDER --prompt "Once upon a time"
(require nn)

(config vocab 32000  context 32768  layers 32  heads 32  kv-heads heads  width 3072  hidden 8192
        head-width (quot width heads)  turned 1.0  epsilon 1e-5  tied-head false  window context  weight-type bf16
        cache-type (usual-cache-type weight-type))
(rotary-config)

(hugging-face ["phi3"]
  {:prefix "model."  :usual true  :rotary ["default" "dynamic" "linear" "llama3" "yarn" "longrope" "su"]
   :requires {"hidden_act" "silu"}}
  (config window (optional "sliding_window")
          turned (optional "rope_parameters.partial_rotary_factor" "partial_rotary_factor"))
  (weights
    wte "embed_tokens.weight"  normf-w "norm.weight"  head-w "lm_head.weight"
    (per "layers.*."
      norm1-w "input_layernorm.weight"
      qkv-w "self_attn.qkv_proj.weight"
      proj-w "self_attn.o_proj.weight"
      norm2-w "post_attention_layernorm.weight"
      gate-up-w "mlp.gate_up_proj.weight"  down-w "mlp.down_proj.weight")))
(gguf ["phi3"])

(weights
  (wte [vocab width] weight-type)
  (per layers
    (norm1-w [width] {:init 1})
    (qkv-w [(* (+ heads (* 2 kv-heads)) head-width) width] weight-type)
    (proj-w [width (* heads head-width)] weight-type)
    (norm2-w [width] {:init 1})
    (gate-up-w [(* 2 hidden) width] weight-type)  (down-w [width hidden] weight-type))
  (normf-w [width] {:init 1})
  (when (not tied-head) (head-w [vocab width] weight-type)))

(state (kv [layers batch 2 kv-heads context head-width] cache-type))

(defn layer [x l turn]
  (let [qkv (linear (rms-norm x (norm1-w l) epsilon) (qkv-w l))
        [q k v] (split-heads qkv head-width heads kv-heads)
        x (+ x (linear (attend (turn q) (turn k) v (kv l) (within window)) (proj-w l)))]
    (+ x (swiglu-of (linear (rms-norm x (norm2-w l) epsilon) (gate-up-w l)) (down-w l)))))

(entry logits [tokens positions]
  (let [turn (turning positions (turned-pairs turned head-width))
        x (fold (fn [x l] (layer x l turn)) (rows wte tokens) (range layers))]
    (matmul-transposed (rms-norm (last x) normf-w epsilon) (if tied-head wte head-w))))

(generate logits {:max-new-tokens 64 :temperature 0.8 :top-k 50})
