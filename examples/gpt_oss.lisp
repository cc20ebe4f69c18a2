; gpt-oss: "gpt-oss-120b & gpt-oss-20b Model Card", OpenAI 2025: experts with biases, attention sinks, and a window in every
; other layer.  lispgpt run FOLDER --prompt "Once upon a time"
(require experts)

(config vocab 201088  context 131072  layers 36  heads 64  kv-heads 8  width 2880  hidden 2880  head-width 64
        experts 128  top 4  epsilon 1e-5  tied-head false  biased true  window 128  layer-types []  limit 7.0
        slope 1.702  packed ""  weight-type bf16  cache-type (usual-cache-type weight-type))
(rotary-config 150000.0 "")                      ; of which the kind has to be said

(hugging-face ["gpt_oss"] {:prefix "model."  :usual true  :rotary ["default" "dynamic" "linear" "llama3" "yarn"]
                           :requires {"hidden_act" "silu"}}
  (config experts ["num_local_experts" "num_experts"]  top ["num_experts_per_tok" "experts_per_token"]
          biased (optional "attention_bias")  window (optional "sliding_window")  layer-types (optional "layer_types")
          limit (optional "swiglu_limit")  slope (optional "swiglu_alpha")
          packed (optional "quantization_config.quant_method"))
  (weights
    wte "embed_tokens.weight"  normf-w "norm.weight"  head-w "lm_head.weight"
    (per "layers.*."
      norm1-w "input_layernorm.weight"  norm2-w "post_attention_layernorm.weight"  sinks "self_attn.sinks"
      qkv-w ["self_attn.q_proj.weight" "self_attn.k_proj.weight" "self_attn.v_proj.weight"]
      qkv-b ["self_attn.q_proj.bias" "self_attn.k_proj.bias" "self_attn.v_proj.bias"]
      proj-w "self_attn.o_proj.weight"  proj-b "self_attn.o_proj.bias"
      router-w "mlp.router.weight"  router-b "mlp.router.bias"
      gate-up-w "mlp.experts.gate_up_proj"  gate-up-b "mlp.experts.gate_up_proj_bias"
      down-w "mlp.experts.down_proj"  down-b "mlp.experts.down_proj_bias")))

(weights
  (wte [vocab width] weight-type)
  (per layers
    (norm1-w [width] {:init 1})  (norm2-w [width] {:init 1})  (sinks [heads])  (router-b [experts])
    (qkv-w [(* (+ heads (* 2 kv-heads)) head-width) width] weight-type)  (proj-w [width (* heads head-width)] weight-type)
    (when biased (qkv-b [(* (+ heads (* 2 kv-heads)) head-width)]) (proj-b [width]))
    (router-w [experts width] weight-type)  (gate-up-b [experts (* 2 hidden)])  (down-b [experts width])
    (when (!= packed "mxfp4") (gate-up-w [experts width (* 2 hidden)] weight-type)  (down-w [experts hidden width] weight-type))
    (when (= packed "mxfp4") (gate-up-w [experts (* 2 hidden) width] weight-type)  (down-w [experts width hidden] weight-type)))
  (normf-w [width] {:init 1})  (when (not tied-head) (head-w [vocab width] weight-type)))

(state (kv [layers batch 2 kv-heads context head-width] cache-type))

(defn expert [x l chosen]                     ; gates and what they are times stand in turns
  (let [from (if (= packed "mxfp4") from-expert-rows from-expert)
        both (from x (gate-up-w l) (gate-up-b l) chosen)
        h (tensor [r (dim x 0) i hidden]
            (let [[gate up] [(min (at both r (* 2 i)) limit) (clipped (at both r (+ (* 2 i) 1)) limit)]]
              (* (+ up 1.0) (/ gate (+ 1.0 (exp (- (* slope gate))))))))]
    (from h (down-w l) (down-b l) chosen)))

(defn layer [x l turn]
  (let [qkv (linear-if biased (rms-norm x (norm1-w l) epsilon) (qkv-w l) (qkv-b l))
        [q k v] (split-heads qkv head-width heads kv-heads)
        seen (within-if (sliding? layer-types l (= (mod l 2) 0)) window)
        y (attend-with-sinks (turn q) (turn k) v (kv l) (sinks l) seen)
        x (+ x (linear-if biased y (proj-w l) (proj-b l)))
        y (rms-norm x (norm2-w l) epsilon)]
    (+ x (mixture-of (linear y (router-w l) (router-b l)) top true (fn [chosen] (expert y l chosen))))))

(entry logits [tokens positions]
  (let [turn (turning positions (/ head-width 2))
        x (fold (fn [x l] (layer x l turn)) (rows wte tokens) (range layers))]
    (matmul-transposed (rms-norm (last x) normf-w epsilon) (if tied-head wte head-w))))

(generate logits {:max-new-tokens 64 :temperature 0.8 :top-k 50})
