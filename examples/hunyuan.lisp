; Hunyuan of Tencent, 2025: a Llama with a norm over each head's query and key once they are turned.
; lispgpt run FOLDER --prompt "Once upon a time"
(require nn)

(config vocab 120818  context 32768  layers 32  heads 32  kv-heads heads  width 4096  hidden 14336  biased false
        head-width (quot width heads)  epsilon 1e-5  tied-head false  stretch 1.0  weight-type bf16
        cache-type (usual-cache-type weight-type))
(rotary-config)

(hugging-face ["hunyuan_v1_dense"] {:prefix "model."  :usual true  :rotary ["default" "dynamic" "linear" "llama3" "yarn"]
                                    :requires {"hidden_act" "silu"}}
  (config biased (optional "attention_bias")  stretch (optional "rope_parameters.alpha" "rope_scaling.alpha"))
  (weights
    wte "embed_tokens.weight"  normf-w "norm.weight"  head-w "lm_head.weight"
    (per "layers.*."
      norm1-w "input_layernorm.weight"  norm2-w "post_attention_layernorm.weight"
      qkv-w ["self_attn.q_proj.weight" "self_attn.k_proj.weight" "self_attn.v_proj.weight"]
      qkv-b ["self_attn.q_proj.bias" "self_attn.k_proj.bias" "self_attn.v_proj.bias"]
      q-norm-w "self_attn.query_layernorm.weight"  k-norm-w "self_attn.key_layernorm.weight"
      proj-w "self_attn.o_proj.weight"  proj-b "self_attn.o_proj.bias"
      gate-w "mlp.gate_proj.weight"  up-w "mlp.up_proj.weight"  down-w "mlp.down_proj.weight")))

(weights
  (wte [vocab width] weight-type)
  (per layers
    (norm1-w [width] {:init 1})  (norm2-w [width] {:init 1})
    (qkv-w [(* (+ heads (* 2 kv-heads)) head-width) width] weight-type)
    (q-norm-w [head-width] {:init 1})  (k-norm-w [head-width] {:init 1})
    (proj-w [width (* heads head-width)] weight-type)
    (when biased (qkv-b [(* (+ heads (* 2 kv-heads)) head-width)]) (proj-b [width]))
    (gate-w [hidden width] weight-type)  (up-w [hidden width] weight-type)  (down-w [width hidden] weight-type))
  (normf-w [width] {:init 1})  (when (not tied-head) (head-w [vocab width] weight-type)))

(state (kv [layers batch 2 kv-heads context head-width] cache-type))

(defn layer [x l turn]
  (let [qkv (linear-if biased (rms-norm x (norm1-w l) epsilon) (qkv-w l) (qkv-b l))
        [q k v] (split-heads qkv head-width heads kv-heads)
        [q k] [(head-norm (turn q) (q-norm-w l) epsilon) (head-norm (turn k) (k-norm-w l) epsilon)]
        x (+ x (linear-if biased (attend q k v (kv l)) (proj-w l) (proj-b l)))]
    (+ x (swiglu (rms-norm x (norm2-w l) epsilon) (gate-w l) (up-w l) (down-w l)))))

(entry logits [tokens positions]
  (let [pairs (/ head-width 2)
        power (/ head-width (- head-width 2))                 ; a stretched theta^power, once for all lengths
        theta (* rope-theta (exp (* power (log stretch))))
        stretched (and (= rope-type "dynamic") (!= stretch 1.0))
        turn (if stretched (turning-by positions pairs (rotary-frequency theta pairs)) (turning positions pairs))
        x (fold (fn [x l] (layer x l turn)) (rows wte tokens) (range layers))]
    (matmul-transposed (rms-norm (last x) normf-w epsilon) (if tied-head wte head-w))))

(generate logits {:max-new-tokens 64 :temperature 0.8 :top-k 50})
