; Llama: "LLaMA: Open and Efficient Foundation Language Models", Touvron et al. 2023; grouped queries from Llama 2 on.
; lispgpt run examples/llama_tiny.lisp --checkpoint FOLDER --prompt "Once upon a time"
(require nn)

(config vocab 32000  context 1024  layers 12  heads 12  kv-heads 4  width 768  hidden 2048  kind "llama"
        head-size (if (or (= kind "internlm3") (= kind "seed_oss")) 128 0)  mlp-biased false  activation "silu"
        head-width (if (= head-size 0) (quot width heads) head-size)  epsilon (if (= kind "internlm3") 1e-5 1e-6)
        biased (= kind "seed_oss")  out-biased (if (= kind "seed_oss") false biased)  weight-type bf16  tied-head false
        cache-type (usual-cache-type weight-type))
(rotary-config)

(hugging-face ["llama" "seed_oss" "internlm3"]
  {:prefix "model."  :usual true  :rotary ["default" "dynamic" "linear" "llama3" "yarn" "longrope"]
   :activation "hidden_act"}
  (config head-size (optional "head_dim" {:null 0})  kind (optional "model_type")  biased (optional "attention_bias")
          mlp-biased (optional "mlp_bias")  out-biased (optional "attention_out_bias" "attention_bias"))
  (weights
    wte "embed_tokens.weight"  normf-w "norm.weight"  head-w "lm_head.weight"
    (per "layers.*."
      norm1-w "input_layernorm.weight"
      qkv-w ["self_attn.q_proj.weight" "self_attn.k_proj.weight" "self_attn.v_proj.weight"]
      qkv-b ["self_attn.q_proj.bias" "self_attn.k_proj.bias" "self_attn.v_proj.bias"]
      proj-w "self_attn.o_proj.weight"  proj-b "self_attn.o_proj.bias"
      norm2-w "post_attention_layernorm.weight"
      gate-w "mlp.gate_proj.weight"  up-w "mlp.up_proj.weight"  down-w "mlp.down_proj.weight"
      gate-b "mlp.gate_proj.bias"  up-b "mlp.up_proj.bias"  down-b "mlp.down_proj.bias")))
(gguf ["llama"] {:rows {"q_proj" (["num_attention_heads" 2 nil] [0 2 1])
                        "k_proj" (["num_key_value_heads" 2 nil] [0 2 1])}})

(weights                                        ; bound by name to the checkpoint's tensors
  (wte [vocab width] weight-type)
  (per layers
    (norm1-w [width] {:init 1})
    (qkv-w [(* (+ heads (* 2 kv-heads)) head-width) width] weight-type)
    (proj-w [width (* heads head-width)] weight-type)
    (when biased (qkv-b [(* (+ heads (* 2 kv-heads)) head-width)]))  (when out-biased (proj-b [width]))
    (norm2-w [width] {:init 1})
    (gate-w [hidden width] weight-type)  (up-w [hidden width] weight-type)  (down-w [width hidden] weight-type)
    (when mlp-biased (gate-b [hidden]) (up-b [hidden]) (down-b [width])))
  (normf-w [width] {:init 1})
  (when (not tied-head) (head-w [vocab width] weight-type)))

(state (kv [layers batch 2 kv-heads context head-width] cache-type))    ; keys and values of every position so far

(defn attend-block [x l turn]
  (let [x (rms-norm x (norm1-w l) epsilon)
        [q k v] (split-heads (linear-if biased x (qkv-w l) (qkv-b l)) head-width heads kv-heads)]
    (linear-if out-biased (attend (turn q) (turn k) v (kv l)) (proj-w l) (proj-b l))))

(defn layer [x l turn]
  (let [x (+ x (attend-block x l turn))
        y (rms-norm x (norm2-w l) epsilon)
        gate ((activation-named activation) (linear-if mlp-biased y (gate-w l) (gate-b l)))]
    (+ x (linear-if mlp-biased (* gate (linear-if mlp-biased y (up-w l) (up-b l))) (down-w l) (down-b l)))))

(entry logits [tokens positions]
  (let [turn (turning positions (/ head-width 2))
        x (fold (fn [x l] (layer x l turn)) (rows wte tokens) (range layers))]
    (matmul-transposed (rms-norm (last x) normf-w epsilon) (if tied-head wte head-w))))

(generate logits {:max-new-tokens 64 :temperature 0.8 :top-k 50})
