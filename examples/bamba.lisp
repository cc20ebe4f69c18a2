; Bamba, IBM 2024: layers of Mamba 2, and a few that attend, with half of each head turned.
; lispgpt run FOLDER --prompt "Once upon a time"
(require scan)
(config vocab 128256  context 262144  layers 32  heads 32  kv-heads heads  width 4096  hidden 14336
        head-width (quot width heads)  epsilon 1e-5  tied-head false  turned 0.5  attention-layers []  expand 2
        groups 1  states 128  taps 4  mamba-heads 128  biased false  mlp-biased false  inner-biased false
        conv-biased true  weight-type bf16
        cache-type (usual-cache-type weight-type))
(rotary-config)
(hugging-face ["bamba"]
  {:prefix "model."  :usual true  :rotary ["default" "dynamic" "linear" "llama3" "yarn"]
   :requires {"hidden_act" "silu"  "time_step_limit.0" 0.0  "time_step_limit.1" inf}}
  (config attention-layers (optional "attn_layer_indices")  expand "mamba_expand"  groups "mamba_n_groups"
          states "mamba_d_state"  taps "mamba_d_conv"  mamba-heads "mamba_n_heads"
          turned (optional "rope_parameters.partial_rotary_factor")  biased (optional "attention_bias")
          mlp-biased (optional "mlp_bias")  inner-biased (optional "mamba_proj_bias")
          conv-biased (optional "mamba_conv_bias"))
  (weights
    wte "embed_tokens.weight"  normf-w "final_layernorm.weight"  head-w "lm_head.weight"
    (per "layers.*." norm1-w "input_layernorm.weight"  norm2-w "pre_ff_layernorm.weight"
      gate-w "feed_forward.gate_proj.weight"  up-w "feed_forward.up_proj.weight"  down-w "feed_forward.down_proj.weight"
      gate-b "feed_forward.gate_proj.bias"  up-b "feed_forward.up_proj.bias"  down-b "feed_forward.down_proj.bias")
    (some "layers.*." qkv-w ["self_attn.q_proj.weight" "self_attn.k_proj.weight" "self_attn.v_proj.weight"]
      qkv-b ["self_attn.q_proj.bias" "self_attn.k_proj.bias" "self_attn.v_proj.bias"]
      proj-w "self_attn.o_proj.weight"  proj-b "self_attn.o_proj.bias"  in-w "mamba.in_proj.weight"
      in-b "mamba.in_proj.bias"  out-w "mamba.out_proj.weight"  out-b "mamba.out_proj.bias"  dt-b "mamba.dt_bias"
      conv-w "mamba.conv1d.weight"  conv-b "mamba.conv1d.bias"  a-log "mamba.A_log"  skip-w "mamba.D"
      inner-w "mamba.norm.weight")))
(def inner (* expand width))  (def mixed (+ inner (* 2 groups states)))  (def given (+ inner mixed mamba-heads))
(defn attends? [l] (fold (fn [found other] (or found (= other l))) false attention-layers))
(weights (wte [vocab width] weight-type)  (normf-w [width] {:init 1})
  (when (not tied-head) (head-w [vocab width] weight-type))
  (per layers (norm1-w [width] {:init 1})  (norm2-w [width] {:init 1})  (gate-w [hidden width] weight-type)
    (up-w [hidden width] weight-type)  (down-w [width hidden] weight-type)
    (when mlp-biased (gate-b [hidden]) (up-b [hidden]) (down-b [width])))
  (per layers :where attends? (qkv-w [(* (+ heads (* 2 kv-heads)) head-width) width] weight-type)
    (proj-w [width (* heads head-width)] weight-type)
    (when biased (qkv-b [(* (+ heads (* 2 kv-heads)) head-width)]) (proj-b [width])))
  (per layers :where (fn [l] (not (attends? l))) (in-w [given width] weight-type)  (out-w [width inner] weight-type)
    (when inner-biased (in-b [given]) (out-b [width]))  (conv-w [mixed 1 taps])  (when conv-biased (conv-b [mixed]))
    (dt-b [mamba-heads])  (a-log [mamba-heads])  (skip-w [mamba-heads])  (inner-w [inner] {:init 1})))
(state (per layers :where attends? (kv [batch 2 kv-heads context head-width] cache-type))
  (per layers :where (fn [l] (not (attends? l))) (before [batch (- taps 1) mixed])  (memory [batch inner states])))
(defn layer [x l turn]
  (let [y (rms-norm x (norm1-w l) epsilon)
        y (if (attends? l)
            (let [[q k v] (split-heads (linear-if biased y (qkv-w l) (qkv-b l)) head-width heads kv-heads)]
              (linear-if biased (attend (turn q) (turn k) v (kv l)) (proj-w l) (proj-b l)))
            (let [conv-b (if conv-biased (conv-b l) 0.0)
                  y (normed-state-space (linear-if inner-biased y (in-w l) (in-b l)) (inner-w l) (conv-w l) conv-b
                                        (dt-b l) (a-log l) (skip-w l) (before l) (memory l) groups epsilon)]
              (linear-if inner-biased y (out-w l) (out-b l))))
        x (+ x y)  y (rms-norm x (norm2-w l) epsilon)
        h (* (silu (linear-if mlp-biased y (gate-w l) (gate-b l))) (linear-if mlp-biased y (up-w l) (up-b l)))]
    (+ x (linear-if mlp-biased h (down-w l) (down-b l)))))
(entry logits [tokens positions]
  (let [turn (turning positions (turned-pairs turned head-width))
        x (fold (fn [x l] (layer x l turn)) (rows wte tokens) (range layers))]
    (matmul-transposed (rms-norm (last x) normf-w epsilon) (if tied-head wte head-w))))
(generate logits {:max-new-tokens 64 :temperature 0.8 :top-k 50})
