; GPT-Neo, Black et al. 2021: a GPT-2 whose scores are not scaled, with a window in every other layer.
; lispgpt run FOLDER --prompt "Once upon a time"
(require nn)

(config vocab 50257  context 2048  layers 24  heads 16  width 2048  hidden (* 4 width)  epsilon 1e-5  tied-head true
        window 256  kinds []  activation "gelu_new"  weight-type bf16
        cache-type (usual-cache-type weight-type))

(hugging-face ["gpt_neo"] {:prefix "transformer."  :activation "activation_function"
                           :ignored [".attn.attention.bias" ".attn.attention.masked_bias"]}
  (config vocab "vocab_size"  context "max_position_embeddings"  layers "num_layers"  heads "num_heads"
          width "hidden_size"  hidden (optional "intermediate_size")  epsilon (optional "layer_norm_epsilon")
          tied-head (optional "tie_word_embeddings")  window (optional "window_size")  kinds "attention_layers")
  (weights
    wte "wte.weight"  wpe "wpe.weight"  lnf-w "ln_f.weight"  lnf-b "ln_f.bias"  head-w "lm_head.weight"
    (per "h.*."
      ln1-w "ln_1.weight"  ln1-b "ln_1.bias"  ln2-w "ln_2.weight"  ln2-b "ln_2.bias"
      qkv-w ["attn.attention.q_proj.weight" "attn.attention.k_proj.weight" "attn.attention.v_proj.weight"]
      proj-w "attn.attention.out_proj.weight"  proj-b "attn.attention.out_proj.bias"
      fc-w "mlp.c_fc.weight"  fc-b "mlp.c_fc.bias"  out-w "mlp.c_proj.weight"  out-b "mlp.c_proj.bias")))

(weights
  (wte [vocab width] weight-type)  (wpe [context width] weight-type)
  (per layers
    (ln1-w [width] {:init 1})  (ln1-b [width])  (ln2-w [width] {:init 1})  (ln2-b [width])
    (qkv-w [(* 3 width) width] weight-type)
    (proj-w [width width] weight-type)  (proj-b [width])
    (fc-w [hidden width] weight-type)   (fc-b [hidden])
    (out-w [width hidden] weight-type)  (out-b [width]))
  (lnf-w [width] {:init 1})  (lnf-b [width])
  (when (not tied-head) (head-w [vocab width] weight-type)))

(state (kv [layers batch 2 heads context (quot width heads)] cache-type))

(defn layer [x l]
  (let [size (quot width heads)
        local (if (= (count kinds) 0) (= (mod l 2) 1) (= (nth kinds l) "local"))
        [q k v] (split-heads (linear (layer-norm x (ln1-w l) (ln1-b l) epsilon) (qkv-w l)) size heads heads)
        y (attend (* q (sqrt size)) k v (kv l) (within-if local window))     ; which divides scores by that root
        x (+ x (linear y (proj-w l) (proj-b l)))
        h (linear (layer-norm x (ln2-w l) (ln2-b l) epsilon) (fc-w l) (fc-b l))]
    (+ x (linear ((activation-named activation) h) (out-w l) (out-b l)))))

(entry logits [tokens positions]
  (let [x (fold layer (+ (rows wte tokens) (rows wpe positions)) (range layers))]
    (matmul-transposed (layer-norm (last x) lnf-w lnf-b epsilon) (if tied-head wte head-w))))

(generate logits {:max-new-tokens 64 :temperature 0.8 :top-k 50})
