; Ernie 4.5 of Baidu, 2025, and Helium of Kyutai, 2025: Llamas of whose heads neighbouring columns are turned together.
; lispgpt run FOLDER --prompt "Once upon a time"
(require nn)

(config vocab 103424  context 131072  layers 18  heads 16  kv-heads heads  width 1024  hidden 3072
        kind ""
        head-size (if (or (= kind "ernie4_5") (= kind "helium")) 128 0)
        head-width (if (= head-size 0) (quot width heads) head-size)
        epsilon (if (= kind "helium") 1e-8 1e-5)  tied-head (!= kind "helium")
        biased false  mlp-biased biased  activation "silu"  weight-type bf16
        cache-type (usual-cache-type weight-type))
(rotary-config (cond (= kind "ernie4_5") 500000.0  (= kind "helium") 100000.0  :else 10000.0))

(hugging-face ["ernie4_5" "helium"] {:prefix "model."  :usual true  :rotary ["default" "dynamic" "linear" "llama3" "yarn"]
                                     :activation "hidden_act"}
  (config head-size (optional "head_dim" {:null 0})
          kind (optional "model_type")  biased (optional "use_bias" "attention_bias")  mlp-biased (optional "use_bias" "mlp_bias"))
  (weights
    wte "embed_tokens.weight"  normf-w "norm.weight"  head-w "lm_head.weight"
    (per "layers.*."
      norm1-w "input_layernorm.weight"  norm2-w "post_attention_layernorm.weight"
      qkv-w ["self_attn.q_proj.weight" "self_attn.k_proj.weight" "self_attn.v_proj.weight"]
      qkv-b ["self_attn.q_proj.bias" "self_attn.k_proj.bias" "self_attn.v_proj.bias"]
      proj-w "self_attn.o_proj.weight"  proj-b "self_attn.o_proj.bias"
      gate-w "mlp.gate_proj.weight"  up-w "mlp.up_proj.weight"  down-w "mlp.down_proj.weight"
      gate-b "mlp.gate_proj.bias"  up-b "mlp.up_proj.bias"  down-b "mlp.down_proj.bias")))
(gguf ["ernie4_5"])

(def behind-biased (if (= kind "helium") false biased))

(weights
  (wte [vocab width] weight-type)
  (per layers
    (norm1-w [width] {:init 1})  (norm2-w [width] {:init 1})
    (qkv-w [(* (+ heads (* 2 kv-heads)) head-width) width] weight-type)
    (proj-w [width (* heads head-width)] weight-type)
    (when biased (qkv-b [(* (+ heads (* 2 kv-heads)) head-width)]))  (when behind-biased (proj-b [width]))
    (gate-w [hidden width] weight-type)  (up-w [hidden width] weight-type)  (down-w [width hidden] weight-type)
    (when mlp-biased (gate-b [hidden]) (up-b [hidden]) (down-b [width])))
  (normf-w [width] {:init 1})  (when (not tied-head) (head-w [vocab width] weight-type)))

(state (kv [layers batch 2 kv-heads context head-width] cache-type))

(defn layer [x l turn]
  (let [qkv (linear-if biased (rms-norm x (norm1-w l) epsilon) (qkv-w l) (qkv-b l))
        [q k v] (split-heads qkv head-width heads kv-heads)
        [q k] (map (fn [x] (turn (halves-first x head-width))) [q k])
        x (+ x (linear-if behind-biased (attend q k v (kv l)) (proj-w l) (proj-b l)))
        y (rms-norm x (norm2-w l) epsilon)
        gate ((activation-named activation) (linear-if mlp-biased y (gate-w l) (gate-b l)))]
    (+ x (linear-if mlp-biased (* gate (linear-if mlp-biased y (up-w l) (up-b l))) (down-w l) (down-b l)))))

(entry logits [tokens positions]
  (let [turn (turning positions (/ head-width 2))
        x (fold (fn [x l] (layer x l turn)) (rows wte tokens) (range layers))]
    (matmul-transposed (rms-norm (last x) normf-w epsilon) (if tied-head wte head-w))))

(generate logits {:max-new-tokens 64 :temperature 0.8 :top-k 50})
