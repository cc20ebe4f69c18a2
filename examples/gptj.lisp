; GPT-J 6B, Wang and Komatsuzaki 2021: attention beside feed-forward behind one norm, neighbouring columns turned.
; CodeGen, Nijkamp et al. 2022, is the same with queries, values and keys in four parts.
; lispgpt run FOLDER --prompt "Once upon a time"
(require nn)

(config vocab 50400  context 2048  layers 28  heads 16  width 4096  hidden (* 4 width)  epsilon 1e-5  turned-width 64
        tied-head false  kind "gptj"  weight-type bf16
        cache-type (usual-cache-type weight-type))

(hugging-face ["gptj" "codegen"] {:prefix "transformer."  :ignored [".attn.bias" ".attn.masked_bias" ".attn.causal_mask"]
                                  :requires {"activation_function" ["gelu_new" "gelu_pytorch_tanh"]
                                             "scale_attn_weights" true}}
  (config kind (optional "model_type")  vocab "vocab_size"  context "n_positions"  layers "n_layer"  heads "n_head"
          width "n_embd"  hidden (optional "n_inner")  epsilon (optional "layer_norm_epsilon")  turned-width "rotary_dim"
          tied-head (optional "tie_word_embeddings"))
  (weights
    wte "wte.weight"  lnf-w "ln_f.weight"  lnf-b "ln_f.bias"  head-w "lm_head.weight"  head-b "lm_head.bias"
    (per "h.*."
      ln-w "ln_1.weight"  ln-b "ln_1.bias"
      parts-w "attn.qkv_proj.weight"
      qkv-w ["attn.q_proj.weight" "attn.k_proj.weight" "attn.v_proj.weight"]  proj-w "attn.out_proj.weight"
      fc-w "mlp.fc_in.weight"  fc-b "mlp.fc_in.bias"  out-w "mlp.fc_out.weight"  out-b "mlp.fc_out.bias")))

(def in-parts (= kind "codegen"))

(weights
  (wte [vocab width] weight-type)
  (per layers
    (ln-w [width] {:init 1})  (ln-b [width])
    (when in-parts (parts-w [(* 3 width) width] weight-type))
    (when (not in-parts) (qkv-w [(* 3 width) width] weight-type))
    (proj-w [width width] weight-type)
    (fc-w [hidden width] weight-type)  (fc-b [hidden])
    (out-w [width hidden] weight-type)  (out-b [width]))
  (lnf-w [width] {:init 1})  (lnf-b [width])
  (when (not tied-head) (head-w [vocab width] weight-type))  (head-b [vocab]))

(state (kv [layers batch 2 heads context (quot width heads)] cache-type))

(defn of-parts [qvk size]
  (let [[n each] [(dim qvk 0) (quot heads 4)]
        parts (reshape qvk [n 4 3 (* each size)])
        part (fn [i] (reshape (slice parts [0 0 i 0] [n 4 nil (* each size)]) [n heads size]))]
    [(part 0) (part 2) (part 1)]))

(defn layer [x l turn]
  (let [y (layer-norm x (ln-w l) (ln-b l) epsilon)
        size (quot width heads)
        [q k v] (if in-parts
                  (of-parts (matmul-transposed y (parts-w l)) size)
                  (split-heads (matmul-transposed y (qkv-w l)) size heads heads))
        attended (attend (turn (halves-first q turned-width)) (turn (halves-first k turned-width)) v (kv l))]
    (+ x (matmul-transposed attended (proj-w l)) (linear (gelu (linear y (fc-w l) (fc-b l))) (out-w l) (out-b l)))))

(entry logits [tokens positions]
  (let [turn (turning positions (quot turned-width 2))
        x (fold (fn [x l] (layer x l turn)) (rows wte tokens) (range layers))]
    (linear (layer-norm (last x) lnf-w lnf-b epsilon) (if tied-head wte head-w) head-b)))

(generate logits {:max-new-tokens 64 :temperature 0.8 :top-k 50})
