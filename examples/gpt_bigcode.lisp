; GPT BigCode: "SantaCoder: don't reach for the stars!", Ben Allal et al. 2023, and StarCoder: a GPT-2 all of whose heads
; share one key and value head.  lispgpt run FOLDER --prompt "def "
(require nn)

(config vocab 49152  context 8192  layers 40  heads 48  width 6144  hidden (* 4 width)  epsilon 1e-5  tied-head true
        shared true  activation "gelu_pytorch_tanh"  weight-type bf16
        cache-type (usual-cache-type weight-type))

(hugging-face ["gpt_bigcode"] {:prefix "transformer."  :activation "activation_function"
                               :ignored [".attn.bias" ".attn.masked_bias"]
                               :requires {"scale_attn_weights" true  "add_cross_attention" false}}
  (config vocab "vocab_size"  context "n_positions"  layers "n_layer"  heads "n_head"  width "n_embd"
          hidden (optional "n_inner")  epsilon (optional "layer_norm_epsilon")  shared (optional "multi_query")
          tied-head (optional "tie_word_embeddings"))
  (weights
    wte "wte.weight"  wpe "wpe.weight"  lnf-w "ln_f.weight"  lnf-b "ln_f.bias"  head-w "lm_head.weight"
    (per "h.*."
      ln1-w "ln_1.weight"  ln1-b "ln_1.bias"  ln2-w "ln_2.weight"  ln2-b "ln_2.bias"
      qkv-w "attn.c_attn.weight"  qkv-b "attn.c_attn.bias"  proj-w "attn.c_proj.weight"  proj-b "attn.c_proj.bias"
      fc-w "mlp.c_fc.weight"  fc-b "mlp.c_fc.bias"  out-w "mlp.c_proj.weight"  out-b "mlp.c_proj.bias")))
(gguf ["starcoder"])

(def size (quot width heads))
(def groups (if shared 1 heads))

(weights
  (wte [vocab width] weight-type)  (wpe [context width] weight-type)
  (per layers
    (ln1-w [width] {:init 1})  (ln1-b [width])  (ln2-w [width] {:init 1})  (ln2-b [width])
    (qkv-w [(* (+ heads groups groups) size) width] weight-type)  (qkv-b [(* (+ heads groups groups) size)])
    (proj-w [width width] weight-type)  (proj-b [width])
    (fc-w [hidden width] weight-type)   (fc-b [hidden])
    (out-w [width hidden] weight-type)  (out-b [width]))
  (lnf-w [width] {:init 1})  (lnf-b [width])
  (when (not tied-head) (head-w [vocab width] weight-type)))

(state (kv [layers batch 2 groups context size] cache-type))

(defn of-heads [qkv]                                  ; one key and value behind the queries, or of each head all three
  (let [n (dim qkv 0)
        parts (reshape qkv (if shared [n (+ heads 2) size] [n heads (* 3 size)]))
        part (fn [i] (slice parts [0 0 (* i size)] [n heads size]))]
    (if shared (split-heads qkv size heads 1) [(part 0) (part 1) (part 2)])))

(defn layer [x l]
  (let [[q k v] (of-heads (linear (layer-norm x (ln1-w l) (ln1-b l) epsilon) (qkv-w l) (qkv-b l)))
        x (+ x (linear (attend q k v (kv l)) (proj-w l) (proj-b l)))
        h (linear (layer-norm x (ln2-w l) (ln2-b l) epsilon) (fc-w l) (fc-b l))]
    (+ x (linear ((activation-named activation) h) (out-w l) (out-b l)))))

(entry logits [tokens positions]
  (let [x (fold layer (+ (rows wte tokens) (rows wpe positions)) (range layers))]
    (matmul-transposed (layer-norm (last x) lnf-w lnf-b epsilon) (if tied-head wte head-w))))

(generate logits {:max-new-tokens 64 :temperature 0.8 :top-k 50})
