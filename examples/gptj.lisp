; GPT-J 6B, Wang and Komatsuzaki 2021: attention beside feed-forward behind one norm, neighbouring columns turned together.
; lispgpt run FOLDER --prompt "Once upon a time"
(require nn)

(config vocab 50400  context 2048  layers 28  heads 16  width 4096  hidden (* 4 width)  epsilon 1e-5  turned-width 64
        tied-head false  weight-type bf16)

(hugging-face ["gptj"] {:prefix "transformer."  :ignored [".attn.bias" ".attn.masked_bias"]
                        :requires {"activation_function" ["gelu_new" "gelu_pytorch_tanh"]  "tie_word_embeddings" false
                                   "scale_attn_weights" true}}
  (config vocab "vocab_size"  context "n_positions"  layers "n_layer"  heads "n_head"  width "n_embd"
          hidden (optional "n_inner")  epsilon (optional "layer_norm_epsilon")  turned-width "rotary_dim")
  (weights
    wte "wte.weight"  lnf-w "ln_f.weight"  lnf-b "ln_f.bias"  head-w "lm_head.weight"  head-b "lm_head.bias"
    (per "h.*."
      ln-w "ln_1.weight"  ln-b "ln_1.bias"
      qkv-w ["attn.q_proj.weight" "attn.k_proj.weight" "attn.v_proj.weight"]  proj-w "attn.out_proj.weight"
      fc-w "mlp.fc_in.weight"  fc-b "mlp.fc_in.bias"  out-w "mlp.fc_out.weight"  out-b "mlp.fc_out.bias")))

(weights
  (wte [vocab width] weight-type)
  (per layers
    (ln-w [width] {:init 1})  (ln-b [width])
    (qkv-w [(* 3 width) width] weight-type)  (proj-w [width width] weight-type)
    (fc-w [hidden width] weight-type)  (fc-b [hidden])
    (out-w [width hidden] weight-type)  (out-b [width]))
  (lnf-w [width] {:init 1})  (lnf-b [width])
  (head-w [vocab width] weight-type)  (head-b [vocab]))

(state (kv [layers batch 2 heads context (quot width heads)] f32))

; x [rows heads size] with the columns that are turned in the order of halves, as `turning` has them: scores stay the same
(defn halves-first [x]
  (let [[n heads _] (shape x)
        pairs (quot turned-width 2)
        turned (reshape (slice x [0 0 0] [n heads turned-width]) [n heads pairs 2])]
    (insert (reshape (tensor [r n h heads p 2 i pairs] (at turned r h i p)) [n heads turned-width])
            x [0 0 0] [n heads turned-width])))

(defn layer [x l turn]
  (let [y (layer-norm x (ln-w l) (ln-b l) epsilon)
        [q k v] (split-heads (matmul-transposed y (qkv-w l)) (quot width heads) heads heads)
        attended (attend (turn (halves-first q)) (turn (halves-first k)) v (kv l))]
    (+ x (matmul-transposed attended (proj-w l)) (linear (gelu (linear y (fc-w l) (fc-b l))) (out-w l) (out-b l)))))

(entry logits [tokens positions]
  (let [turn (turning positions (quot turned-width 2))
        x (fold (fn [x l] (layer x l turn)) (rows wte tokens) (range layers))]
    (linear (layer-norm (last x) lnf-w lnf-b epsilon) head-w head-b)))

(generate logits {:max-new-tokens 64 :temperature 0.8 :top-k 50})
