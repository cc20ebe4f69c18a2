; Mamba 2: "Transformers are SSMs", Dao and Gu 2024: heads that keep a share of their state each, in groups.
; lispgpt run FOLDER --prompt "Once upon a time"
(require scan)

(config vocab 32768  context 1048576  layers 64  heads 128  head-width 64  width 4096  states 128  groups 8  taps 4
        biased false  conv-biased true  epsilon 1e-5  tied-head false  weight-type bf16)

(hugging-face ["mamba2"] {:prefix "backbone."
                          :requires {"hidden_act" "silu"  "time_step_limit.0" 0.0  "time_step_limit.1" inf}}
  (config vocab "vocab_size"  layers "num_hidden_layers"  heads "num_heads"  head-width "head_dim"  width "hidden_size"
          states "state_size"  groups "n_groups"  taps "conv_kernel"  biased (optional "use_bias")
          conv-biased (optional "use_conv_bias")  epsilon (optional "layer_norm_epsilon")
          tied-head (optional "tie_word_embeddings"))
  (weights
    wte "embeddings.weight"  normf-w "norm_f.weight"  head-w "lm_head.weight"
    (per "layers.*."
      norm-w "norm.weight"  in-w "mixer.in_proj.weight"  in-b "mixer.in_proj.bias"  conv-w "mixer.conv1d.weight"
      conv-b "mixer.conv1d.bias"  dt-b "mixer.dt_bias"  a-log "mixer.A_log"  skip-w "mixer.D"
      inner-w "mixer.norm.weight"  out-w "mixer.out_proj.weight"  out-b "mixer.out_proj.bias")))

(def hidden (* heads head-width))
(def mixed (+ hidden (* 2 groups states)))            ; columns that are convolved

(weights
  (wte [vocab width] weight-type)
  (per layers
    (norm-w [width] {:init 1})  (in-w [(+ hidden mixed heads) width] weight-type)  (out-w [width hidden] weight-type)
    (when biased (in-b [(+ hidden mixed heads)])  (out-b [width]))
    (conv-w [mixed 1 taps])  (when conv-biased (conv-b [mixed]))
    (dt-b [heads])  (a-log [heads])  (skip-w [heads])  (inner-w [hidden] {:init 1}))
  (normf-w [width] {:init 1})
  (when (not tied-head) (head-w [vocab width] weight-type)))

(state (before [layers batch (- taps 1) mixed])
  (memory [layers batch hidden states]))

(defn mix [y l]
  (let [given (if biased (linear y (in-w l) (in-b l)) (linear y (in-w l)))
        conv-b (if conv-biased (conv-b l) 0.0)
        found (normed-state-space given (inner-w l) (conv-w l) conv-b (dt-b l) (a-log l) (skip-w l) (before l) (memory l)
                                  groups epsilon)]
    (if biased (linear found (out-w l) (out-b l)) (linear found (out-w l)))))

(entry logits [tokens positions]
  (let [x (fold (fn [x l] (+ x (mix (rms-norm x (norm-w l) epsilon) l))) (rows wte tokens) (range layers))]
    (matmul-transposed (rms-norm (last x) normf-w epsilon) (if tied-head wte head-w))))

(generate logits {:max-new-tokens 64 :temperature 0.8 :top-k 50})
