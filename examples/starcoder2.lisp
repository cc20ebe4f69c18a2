; StarCoder 2: "StarCoder 2 and The Stack v2", Lozhkov et al. 2024: grouped queries and rotary positions in a GPT-2 with
; biases and a window.  lispgpt run FOLDER --prompt "def "
(require nn)

(config vocab 49152  context 16384  layers 30  heads 24  kv-heads heads  width 3072  hidden 12288
        head-width (quot width heads)  epsilon 1e-5  tied-head true  biased true  window context
        activation "gelu_pytorch_tanh"  weight-type bf16
        cache-type (usual-cache-type weight-type))
(rotary-config)

(hugging-face ["starcoder2"] {:prefix "model."  :usual true  :rotary ["default" "dynamic" "linear" "llama3" "yarn"]
                              :activation "hidden_act"  :requires {"norm_type" "layer_norm"  "mlp_type" "default"}}
  (config epsilon (optional "norm_epsilon")  biased (optional "use_bias")  window (optional "sliding_window"))
  (weights
    wte "embed_tokens.weight"  lnf-w "norm.weight"  lnf-b "norm.bias"  head-w "lm_head.weight"
    (per "layers.*."
      ln1-w "input_layernorm.weight"  ln1-b "input_layernorm.bias"
      qkv-w ["self_attn.q_proj.weight" "self_attn.k_proj.weight" "self_attn.v_proj.weight"]
      qkv-b ["self_attn.q_proj.bias" "self_attn.k_proj.bias" "self_attn.v_proj.bias"]
      proj-w "self_attn.o_proj.weight"  proj-b "self_attn.o_proj.bias"
      ln2-w "post_attention_layernorm.weight"  ln2-b "post_attention_layernorm.bias"
      fc-w "mlp.c_fc.weight"  fc-b "mlp.c_fc.bias"  out-w "mlp.c_proj.weight"  out-b "mlp.c_proj.bias")))
(gguf ["starcoder2"])

(weights
  (wte [vocab width] weight-type)
  (per layers
    (ln1-w [width] {:init 1})  (ln1-b [width])  (ln2-w [width] {:init 1})  (ln2-b [width])
    (qkv-w [(* (+ heads (* 2 kv-heads)) head-width) width] weight-type)
    (proj-w [width (* heads head-width)] weight-type)
    (fc-w [hidden width] weight-type)  (out-w [width hidden] weight-type)
    (when biased (qkv-b [(* (+ heads (* 2 kv-heads)) head-width)]) (proj-b [width]) (fc-b [hidden]) (out-b [width])))
  (lnf-w [width] {:init 1})  (lnf-b [width])
  (when (not tied-head) (head-w [vocab width] weight-type)))

(state (kv [layers batch 2 kv-heads context head-width] cache-type))

(defn layer [x l turn]
  (let [y (layer-norm x (ln1-w l) (ln1-b l) epsilon)
        [q k v] (split-heads (linear-if biased y (qkv-w l) (qkv-b l)) head-width heads kv-heads)
        x (+ x (linear-if biased (attend (turn q) (turn k) v (kv l) (within window)) (proj-w l) (proj-b l)))
        h (linear-if biased (layer-norm x (ln2-w l) (ln2-b l) epsilon) (fc-w l) (fc-b l))]
    (+ x (linear-if biased ((activation-named activation) h) (out-w l) (out-b l)))))

(entry logits [tokens positions]
  (let [turn (turning positions (/ head-width 2))
        x (fold (fn [x l] (layer x l turn)) (rows wte tokens) (range layers))]
    (matmul-transposed (layer-norm (last x) lnf-w lnf-b epsilon) (if tied-head wte head-w))))

(generate logits {:max-new-tokens 64 :temperature 0.8 :top-k 50})
