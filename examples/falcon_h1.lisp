; "Falcon-H1: A Family of Hybrid-Head Language Models", Zuo et al. 2025: every layer adds what a Mamba 2 and what
; attention make of the same rows, each part of it scaled.  lispgpt run FOLDER --prompt "Once upon a time"
(require scan)  (rotary-config)
(config vocab 128000  context 8192  layers 32  heads 32  kv-heads heads  width 4096  hidden 14336  epsilon 1e-5
        head-width (quot width heads)  tied-head false  weight-type bf16  expand 2  inner (* expand width)  groups 1
        states 256  taps 4  mamba-heads 128  normed false  norm-first true  conv-biased true  embedded 1.0  scaled 1.0
        keys 1.0  attention-in 1.0  attention-out 1.0  mamba-in 1.0  mamba-out 1.0  gated-by 1.0  down-by 1.0
        parts [1.0 1.0 1.0 1.0 1.0]
        cache-type (usual-cache-type weight-type))
(hugging-face ["falcon_h1"]
  {:prefix "model."  :usual true  :rotary ["default" "dynamic" "linear" "llama3" "yarn"]
   :requires {"hidden_act" "silu"  "time_step_limit.0" 0.0  "time_step_limit.1" inf  "attention_bias" false
              "mlp_bias" false  "mamba_proj_bias" false  "projectors_bias" false}}
  (config expand (optional "mamba_expand")  inner (optional "mamba_d_ssm")  groups "mamba_n_groups"
          states "mamba_d_state"  taps "mamba_d_conv"  mamba-heads "mamba_n_heads"  normed (optional "mamba_rms_norm")
          norm-first (optional "mamba_norm_before_gate")  conv-biased (optional "mamba_conv_bias")
          embedded (optional "embedding_multiplier")  scaled (optional "lm_head_multiplier")
          keys (optional "key_multiplier")  attention-in (optional "attention_in_multiplier")
          attention-out (optional "attention_out_multiplier")  mamba-in (optional "ssm_in_multiplier")
          mamba-out (optional "ssm_out_multiplier")  gated-by (optional "mlp_multipliers.0")
          down-by (optional "mlp_multipliers.1")  parts (optional "ssm_multipliers"))
  (weights
    wte "embed_tokens.weight"  normf-w "final_layernorm.weight"  head-w "lm_head.weight"
    (per "layers.*." norm1-w "input_layernorm.weight"  norm2-w "pre_ff_layernorm.weight"
      gate-w "feed_forward.gate_proj.weight"  up-w "feed_forward.up_proj.weight"  down-w "feed_forward.down_proj.weight"
      qkv-w ["self_attn.q_proj.weight" "self_attn.k_proj.weight" "self_attn.v_proj.weight"]
      proj-w "self_attn.o_proj.weight"  in-w "mamba.in_proj.weight"  out-w "mamba.out_proj.weight"  dt-b "mamba.dt_bias"
      conv-w "mamba.conv1d.weight"  conv-b "mamba.conv1d.bias"  a-log "mamba.A_log"  skip-w "mamba.D"
      inner-w "mamba.norm.weight")))
(def each (* groups states))  (def mixed (+ inner (* 2 each)))  (def untied (not tied-head))
(weights (wte [vocab width] weight-type)  (normf-w [width] {:init 1})  (when untied (head-w [vocab width] weight-type))
  (per layers (norm1-w [width] {:init 1})  (norm2-w [width] {:init 1})  (gate-w [hidden width] weight-type)
    (up-w [hidden width] weight-type)  (down-w [width hidden] weight-type)
    (qkv-w [(* (+ heads (* 2 kv-heads)) head-width) width] weight-type)
    (proj-w [width (* heads head-width)] weight-type)  (in-w [(+ inner mixed mamba-heads) width] weight-type)
    (out-w [width inner] weight-type)  (conv-w [mixed 1 taps])  (when conv-biased (conv-b [mixed]))
    (dt-b [mamba-heads])  (a-log [mamba-heads])  (skip-w [mamba-heads])  (when normed (inner-w [inner] {:init 1}))))
(state (kv [layers batch 2 kv-heads context head-width] cache-type)  (before [layers batch (- taps 1) mixed])
  (memory [layers batch inner states]))
(defn attended [y l turn]
  (let [[q k v] (split-heads (linear (* attention-in y) (qkv-w l)) head-width heads kv-heads)]
    (linear (attend (turn q) (turn (* keys k)) v (kv l)) (proj-w l))))
(defn mixed-in [y l]
  (let [starts [inner (* 2 inner) (+ (* 2 inner) each) (+ inner mixed)]
        part (fn [c] (fold (fn [p i] (select (< c (nth starts i)) p (nth parts (+ i 1)))) (nth parts 0) (range 4)))
        given (linear (* mamba-in y) (in-w l))
        given (tensor [n (dim y 0) c (dim given 1)] (* (at given n c) (part (cast c i32))))
        [y gate] (state-space given inner (conv-w l) (if conv-biased (conv-b l) 0.0) (dt-b l) (a-log l) (skip-w l)
                              (before l) (memory l) groups)
        norm (fn [y] (if normed (group-norm y (inner-w l) groups epsilon) y))]
    (linear (if norm-first (* (norm y) gate) (norm (* y gate))) (out-w l))))
(entry logits [tokens positions]
  (let [turn (turning positions (quot head-width 2))
        layer (fn [x l]
                (let [y (rms-norm x (norm1-w l) epsilon)
                      x (+ x (* mamba-out (mixed-in y l)) (* attention-out (attended y l turn)))
                      y (rms-norm x (norm2-w l) epsilon)  activate (fn [v] (silu (* gated-by v)))]
                  (+ x (* down-by (gated activate y (gate-w l) (up-w l) (down-w l))))))
        x (fold layer (* embedded (rows wte tokens)) (range layers))]
    (matmul-transposed (* scaled (rms-norm (last x) normf-w epsilon)) (if tied-head wte head-w))))
(generate logits {:max-new-tokens 64 :temperature 0.8 :top-k 50})
