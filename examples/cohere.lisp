; Command R of Cohere, 2024, and its successors: attention beside feed-forward behind one norm without a bias, neighbouring
; columns turned together; Command R7B has windows, and layers that see everything and turn nothing.
; lispgpt run FOLDER --prompt "Once upon a time"
(require nn)

(config vocab 256000  context 8192  layers 40  heads 64  kv-heads heads  width 8192  hidden 22528  biased false
        head-width (quot width heads)  epsilon 1e-5  tied-head true  logit-scale 0.0625  headed false
        kind ""  window 4096  layer-types []  pattern 4  weight-type bf16
        cache-type (usual-cache-type weight-type))
(rotary-config (if (= kind "cohere") 500000.0 10000.0))

(hugging-face ["cohere" "cohere2"] {:prefix "model."  :usual true  :rotary ["default" "dynamic" "linear" "llama3" "yarn"]
                                    :requires {"hidden_act" "silu"}}
  (config kind (optional "model_type")  epsilon (optional "layer_norm_eps")  logit-scale (optional "logit_scale")
          biased (optional "attention_bias")  headed (optional "use_qk_norm")  layer-types (optional "layer_types")
          window (optional "sliding_window" {:null 0})  pattern (optional "sliding_window_pattern"))
  (weights
    wte "embed_tokens.weight"  normf-w "norm.weight"  head-w "lm_head.weight"
    (per "layers.*."
      norm-w "input_layernorm.weight"  q-norm-w "self_attn.q_norm.weight"  k-norm-w "self_attn.k_norm.weight"
      qkv-w ["self_attn.q_proj.weight" "self_attn.k_proj.weight" "self_attn.v_proj.weight"]
      qkv-b ["self_attn.q_proj.bias" "self_attn.k_proj.bias" "self_attn.v_proj.bias"]
      proj-w "self_attn.o_proj.weight"  proj-b "self_attn.o_proj.bias"
      gate-w "mlp.gate_proj.weight"  up-w "mlp.up_proj.weight"  down-w "mlp.down_proj.weight")))
(gguf ["command-r"])

(weights
  (wte [vocab width] weight-type)
  (per layers
    (norm-w [width] {:init 1})
    (when headed (q-norm-w [heads head-width] {:init 1}) (k-norm-w [kv-heads head-width] {:init 1}))
    (qkv-w [(* (+ heads (* 2 kv-heads)) head-width) width] weight-type)
    (proj-w [width (* heads head-width)] weight-type)
    (when biased (qkv-b [(* (+ heads (* 2 kv-heads)) head-width)]) (proj-b [width]))
    (gate-w [hidden width] weight-type)  (up-w [hidden width] weight-type)  (down-w [width hidden] weight-type))
  (normf-w [width] {:init 1})  (when (not tied-head) (head-w [vocab width] weight-type)))

(state (kv [layers batch 2 kv-heads context head-width] cache-type))

(defn windowed? [l] (if (!= kind "cohere2") true (sliding? layer-types l (!= (mod (+ l 1) pattern) 0))))

(defn layer [x l turn]
  (let [y (centred-norm x epsilon (norm-w l))
        [q k v] (split-heads (linear-if biased y (qkv-w l) (qkv-b l)) head-width heads kv-heads)
        [q k] (if headed [(own-norm q (q-norm-w l) epsilon) (own-norm k (k-norm-w l) epsilon)] [q k])
        [q k] (if (windowed? l) (map (fn [x] (turn (halves-first x head-width))) [q k]) [q k])
        attended (attend q k v (kv l) (within-if (and (= kind "cohere2") (windowed? l)) window))]
    (+ x (linear-if biased attended (proj-w l) (proj-b l)) (swiglu y (gate-w l) (up-w l) (down-w l)))))

(entry logits [tokens positions]
  (let [turn (turning positions (/ head-width 2))
        x (fold (fn [x l] (layer x l turn)) (rows wte tokens) (range layers))]
    (matmul-transposed (* logit-scale (centred-norm (last x) epsilon normf-w)) (if tied-head wte head-w))))

(generate logits {:max-new-tokens 64 :temperature 0.8 :top-k 50})
