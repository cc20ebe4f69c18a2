; Phi 1, 1.5 and 2: "Textbooks Are All You Need", Gunasekar et al. 2023: attention beside feed-forward behind one norm.
; lispgpt run FOLDER --prompt "Once upon a time"
(require nn)

(config vocab 51200  context 2048  layers 32  heads 32  kv-heads heads  width 2560  hidden 10240
        head-width (quot width heads)  epsilon 1e-5  tied-head false  turned 0.5  weight-type bf16
        cache-type (usual-cache-type weight-type))
(rotary-config)

(hugging-face ["phi"] {:prefix "model."  :usual true  :rotary ["default" "dynamic" "linear" "llama3" "yarn"]
                       :requires {"hidden_act" ["gelu_new" "gelu_pytorch_tanh"]  "qk_layernorm" false}}
  (config epsilon (optional "layer_norm_eps")
          turned (optional "rope_parameters.partial_rotary_factor" "partial_rotary_factor"))
  (weights
    wte "embed_tokens.weight"  lnf-w "final_layernorm.weight"  lnf-b "final_layernorm.bias"
    head-w "lm_head.weight"  head-b "lm_head.bias"
    (per "layers.*."
      ln-w "input_layernorm.weight"  ln-b "input_layernorm.bias"
      qkv-w ["self_attn.q_proj.weight" "self_attn.k_proj.weight" "self_attn.v_proj.weight"]
      qkv-b ["self_attn.q_proj.bias" "self_attn.k_proj.bias" "self_attn.v_proj.bias"]
      proj-w "self_attn.dense.weight"  proj-b "self_attn.dense.bias"
      fc-w "mlp.fc1.weight"  fc-b "mlp.fc1.bias"  out-w "mlp.fc2.weight"  out-b "mlp.fc2.bias")))
(gguf ["phi2"])

(weights
  (wte [vocab width] weight-type)
  (per layers
    (ln-w [width] {:init 1})  (ln-b [width])
    (qkv-w [(* (+ heads (* 2 kv-heads)) head-width) width] weight-type)
    (qkv-b [(* (+ heads (* 2 kv-heads)) head-width)])
    (proj-w [width (* heads head-width)] weight-type)  (proj-b [width])
    (fc-w [hidden width] weight-type)  (fc-b [hidden])
    (out-w [width hidden] weight-type)  (out-b [width]))
  (lnf-w [width] {:init 1})  (lnf-b [width])
  (when (not tied-head) (head-w [vocab width] weight-type))  (head-b [vocab]))

(state (kv [layers batch 2 kv-heads context head-width] cache-type))

(defn layer [x l turn]
  (let [y (layer-norm x (ln-w l) (ln-b l) epsilon)
        [q k v] (split-heads (linear y (qkv-w l) (qkv-b l)) head-width heads kv-heads)
        attended (linear (attend (turn q) (turn k) v (kv l)) (proj-w l) (proj-b l))]
    (+ x attended (linear (gelu (linear y (fc-w l) (fc-b l))) (out-w l) (out-b l)))))

(entry logits [tokens positions]
  (let [turn (turning positions (turned-pairs turned head-width))
        x (fold (fn [x l] (layer x l turn)) (rows wte tokens) (range layers))]
    (linear (layer-norm (last x) lnf-w lnf-b epsilon) (if tied-head wte head-w) head-b)))

(generate logits {:max-new-tokens 64 :temperature 0.8 :top-k 50})
