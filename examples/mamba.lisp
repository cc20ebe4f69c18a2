; "Mamba: Linear-Time Sequence Modeling with Selective State Spaces", Gu and Dao 2023: no attention, but a state;
; and "Falcon Mamba", Zuo et al. 2024, which has norms within.
; lispgpt run FOLDER --prompt "Once upon a time"
(require scan)

(config vocab 50280  context 1048576  layers 32  width 768  expand 2  hidden (* expand width)  states 16  taps 4
        rank (ceil-div width 16)  kind "mamba"  inner-epsilon 1e-6  biased false  conv-biased true  epsilon 1e-5
        tied-head true  weight-type bf16)

(hugging-face ["mamba" "falcon_mamba"] {:prefix "backbone."  :requires {"hidden_act" "silu"}}
  (config vocab "vocab_size"  layers "num_hidden_layers"  width "hidden_size"  hidden (optional "intermediate_size")
          expand (optional "expand")  states "state_size"  taps "conv_kernel"  rank "time_step_rank"
          biased (optional "use_bias")  conv-biased (optional "use_conv_bias")  epsilon (optional "layer_norm_epsilon")
          tied-head (optional "tie_word_embeddings")  kind "model_type"  inner-epsilon (optional "mixer_rms_eps"))
  (weights
    wte "embeddings.weight"  normf-w "norm_f.weight"  head-w "lm_head.weight"
    (per "layers.*."
      norm-w "norm.weight"  in-w "mixer.in_proj.weight"  in-b "mixer.in_proj.bias"  out-w "mixer.out_proj.weight"
      out-b "mixer.out_proj.bias"  conv-w "mixer.conv1d.weight"  conv-b "mixer.conv1d.bias"  x-w "mixer.x_proj.weight"
      dt-w "mixer.dt_proj.weight"  dt-b "mixer.dt_proj.bias"  a-log "mixer.A_log"  d-w "mixer.D")))

(weights
  (wte [vocab width] weight-type)
  (per layers
    (norm-w [width] {:init 1})  (in-w [(* 2 hidden) width] weight-type)  (out-w [width hidden] weight-type)
    (when biased (in-b [(* 2 hidden)])  (out-b [width]))
    (conv-w [hidden 1 taps])  (when conv-biased (conv-b [hidden]))
    (x-w [(+ rank states states) hidden] weight-type)  (dt-w [hidden rank] weight-type)  (dt-b [hidden])
    (a-log [hidden states])  (d-w [hidden]))
  (normf-w [width] {:init 1})  (when (not tied-head) (head-w [vocab width] weight-type)))

(state (before [layers batch (- taps 1) hidden])  (memory [layers batch hidden states]))

; each row of its own root mean square, in Falcon Mamba
(defn even [x]
  (if (= kind "falcon_mamba") (rms-norm x (tensor [c (dim x 1)] 1.0) inner-epsilon) x))

(defn mix [y l]
  (let [both (if biased (linear y (in-w l) (in-b l)) (linear y (in-w l)))
        x (convolved (columns-of both 0 hidden) (conv-w l) (if conv-biased (conv-b l) 0.0) (before l))
        sizes (linear x (x-w l))
        dt (linear (even (columns-of sizes 0 rank)) (dt-w l) (dt-b l))
        [into out-of] (map (fn [i] (even (columns-of sizes (+ rank (* i states)) states))) (range 2))
        y (* (selective x dt into out-of (a-log l) (d-w l) (memory l)) (silu (columns-of both hidden hidden)))]
    (if biased (linear y (out-w l) (out-b l)) (linear y (out-w l)))))

(entry logits [tokens positions]
  (let [x (fold (fn [x l] (+ x (mix (rms-norm x (norm-w l) epsilon) l))) (rows wte tokens) (range layers))]
    (matmul-transposed (rms-norm (last x) normf-w epsilon) (if tied-head wte head-w))))

(generate logits {:max-new-tokens 64 :temperature 0.8 :top-k 50})
