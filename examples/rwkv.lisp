; RWKV 4: "RWKV: Reinventing RNNs for the Transformer Era", Peng et al. 2023: means over what came before, whose weights
; fade, in place of attention; each row is mixed with the one before it.  lispgpt run FOLDER --prompt "Once upon a time"
(require scan)

(config vocab 50277  context 1024  layers 32  width 4096  inner width  hidden (* 4 width)  epsilon 1e-5  halved-every 6
        tied-head false  weight-type bf16)

(hugging-face ["rwkv"] {:prefix "rwkv."}
  (config vocab "vocab_size"  context (optional "context_length")  layers "num_hidden_layers"  width "hidden_size"
          inner (optional "attention_hidden_size")  hidden (optional "intermediate_size")
          epsilon (optional "layer_norm_epsilon")  halved-every (optional "rescale_every")
          tied-head (optional "tie_word_embeddings"))
  (weights
    wte "embeddings.weight"  pre-w "blocks.0.pre_ln.weight"  pre-b "blocks.0.pre_ln.bias"  lnf-w "ln_out.weight"
    lnf-b "ln_out.bias"  head-w "head.weight"
    (per "blocks.*."
      ln1-w "ln1.weight"  ln1-b "ln1.bias"  ln2-w "ln2.weight"  ln2-b "ln2.bias"
      decay-w "attention.time_decay"  first-w "attention.time_first"  key-mix "attention.time_mix_key"
      value-mix "attention.time_mix_value"  gate-mix "attention.time_mix_receptance"  key-w "attention.key.weight"
      value-w "attention.value.weight"  gate-w "attention.receptance.weight"  out-w "attention.output.weight"
      up-mix "feed_forward.time_mix_key"  open-mix "feed_forward.time_mix_receptance"  up-w "feed_forward.key.weight"
      open-w "feed_forward.receptance.weight"  down-w "feed_forward.value.weight")))

(weights
  (wte [vocab width] weight-type)  (pre-w [width] {:init 1})  (pre-b [width])
  (per layers
    (ln1-w [width] {:init 1})  (ln1-b [width])  (ln2-w [width] {:init 1})  (ln2-b [width])
    (decay-w [inner])  (first-w [inner])  (key-mix [1 1 width])  (value-mix [1 1 width])  (gate-mix [1 1 width])
    (key-w [inner width] weight-type)  (value-w [inner width] weight-type)  (gate-w [inner width] weight-type)
    (out-w [width inner] weight-type)  (up-mix [1 1 width])  (open-mix [1 1 width])
    (up-w [hidden width] weight-type)  (open-w [width width] weight-type)  (down-w [width hidden] weight-type))
  (lnf-w [width] {:init 1})  (lnf-b [width])  (when (not tied-head) (head-w [vocab width] weight-type)))
(state (before [layers 2 batch 1 width])  (memory [layers batch inner 3]))

; a function that mixes x with the rows before, by how much of x itself
(defn mixing [x state]
  (let [[n width] (shape x)
        earlier (reshape (row-before (by-text x) state) [n width])]
    (fn [share] (let [share (reshape share [width])] (+ (* x share) (* earlier (- 1.0 share)))))))

(defn layer [x l]
  (let [part (/ 1.0 (fold * 1 (map (fn [_] 2) (range (if (> halved-every 0) (quot l halved-every) 0)))))
        mix (mixing (layer-norm x (ln1-w l) (ln1-b l) epsilon) (before l 0))
        [key value] [(by-text (linear (mix (key-mix l)) (key-w l))) (by-text (linear (mix (value-mix l)) (value-w l)))]
        decay (elementwise (fn [v] (exp v)) (decay-w l))
        mean (reshape (decaying-mean key value decay (first-w l) (memory l)) [(dim x 0) inner])
        x (+ x (* part (linear (* (sigmoid (linear (mix (gate-mix l)) (gate-w l))) mean) (out-w l))))
        mix (mixing (layer-norm x (ln2-w l) (ln2-b l) epsilon) (before l 1))
        fed (linear (square (relu (linear (mix (up-mix l)) (up-w l)))) (down-w l))
        x (+ x (* part (sigmoid (linear (mix (open-mix l)) (open-w l))) fed))]
    (if (and (> halved-every 0) (= (mod (+ l 1) (max 1 halved-every)) 0)) (* 0.5 x) x)))

(entry logits [tokens positions]
  (let [x (fold layer (layer-norm (rows wte tokens) pre-w pre-b epsilon) (range layers))]
    (matmul-transposed (layer-norm (last x) lnf-w lnf-b) (if tied-head wte head-w))))
(generate logits {:max-new-tokens 64 :temperature 0.8 :top-k 50})
