; Nemotron: "Nemotron-4 15B Technical Report", Parmar et al. 2024: squared ReLUs, and layer norms whose weights are about
; zero.  Arcee's models of 2025 are Llamas with squared ReLUs.  lispgpt run FOLDER --prompt "Once upon a time"
(require nn)

(config vocab 256000  context 4096  layers 32  heads 48  kv-heads heads  width 6144  hidden 24576  kind "nemotron"
        head-width (quot width heads)  epsilon 1e-5  tied-head false  turned 0.5  biased (= kind "jais2")
        mlp-biased (= kind "jais2")  activation "relu2"  weight-type bf16
        cache-type (usual-cache-type weight-type))
(rotary-config)

(hugging-face ["nemotron" "arcee" "jais2"]
  {:prefix "model."  :usual true  :rotary ["default" "dynamic" "linear" "llama3" "yarn"]  :activation "hidden_act"}
  (config kind (optional "model_type")  epsilon (optional "norm_eps" "layer_norm_eps" "rms_norm_eps")
          biased (optional "attention_bias")  mlp-biased (optional "mlp_bias")
          turned (optional "rope_parameters.partial_rotary_factor" "partial_rotary_factor"))
  (weights
    wte "embed_tokens.weight"  normf-w "norm.weight"  normf-b "norm.bias"  head-w "lm_head.weight"
    (per "layers.*."
      norm1-w "input_layernorm.weight"  norm2-w "post_attention_layernorm.weight"
      norm1-b "input_layernorm.bias"  norm2-b "post_attention_layernorm.bias"
      qkv-w ["self_attn.q_proj.weight" "self_attn.k_proj.weight" "self_attn.v_proj.weight"]
      qkv-b ["self_attn.q_proj.bias" "self_attn.k_proj.bias" "self_attn.v_proj.bias"]
      proj-w "self_attn.o_proj.weight"  proj-b "self_attn.o_proj.bias"
      up-w "mlp.up_proj.weight"  up-b "mlp.up_proj.bias"  down-w "mlp.down_proj.weight"  down-b "mlp.down_proj.bias")))
(gguf ["nemotron"] {:added {"norm.weight" 1.0}})

(def centred (!= kind "arcee"))
(def pairs (turned-pairs (if (= kind "nemotron") turned 1.0) head-width))

(weights
  (wte [vocab width] weight-type)
  (per layers
    (norm1-w [width])  (norm2-w [width])  (when centred (norm1-b [width]) (norm2-b [width]))
    (qkv-w [(* (+ heads (* 2 kv-heads)) head-width) width] weight-type)
    (proj-w [width (* heads head-width)] weight-type)
    (when biased (qkv-b [(* (+ heads (* 2 kv-heads)) head-width)]) (proj-b [width]))
    (up-w [hidden width] weight-type)  (down-w [width hidden] weight-type)
    (when mlp-biased (up-b [hidden]) (down-b [width])))
  (normf-w [width])  (when centred (normf-b [width]))  (when (not tied-head) (head-w [vocab width] weight-type)))

(state (kv [layers batch 2 kv-heads context head-width] cache-type))

(defmacro norm [x w b]
  `(if centred (layer-norm ~x (if (= kind "nemotron") (+ ~w 1.0) ~w) ~b epsilon) (rms-norm ~x ~w epsilon)))

(defn layer [x l turn]
  (let [qkv (linear-if biased (norm x (norm1-w l) (norm1-b l)) (qkv-w l) (qkv-b l))
        [q k v] (split-heads qkv head-width heads kv-heads)
        x (+ x (linear-if biased (attend (turn q) (turn k) v (kv l)) (proj-w l) (proj-b l)))
        h (linear-if mlp-biased (norm x (norm2-w l) (norm2-b l)) (up-w l) (up-b l))]
    (+ x (linear-if mlp-biased ((activation-named activation) h) (down-w l) (down-b l)))))

(entry logits [tokens positions]
  (let [turn (turning positions pairs)
        x (fold (fn [x l] (layer x l turn)) (rows wte tokens) (range layers))]
    (matmul-transposed (norm (last x) normf-w normf-b) (if tied-head wte head-w))))

(generate logits {:max-new-tokens 64 :temperature 0.8 :top-k 50})
