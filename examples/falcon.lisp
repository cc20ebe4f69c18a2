; Falcon, Almazrouei et al. 2023: keys and values that groups of heads share, and attention beside feed-forward.
; lispgpt run FOLDER --prompt "Once upon a time"
(require nn)

(config vocab 65024  context 2048  layers 32  heads 71  width 4544  hidden (* 4 width)  epsilon 1e-5  tied-head true
        grouped false  kv-heads heads  norms 2  weight-type bf16
        cache-type (usual-cache-type weight-type))
(rotary-config)

(def size (quot width heads))
(def groups (if grouped kv-heads 1))                  ; of heads that share keys and values
(def two-norms (if grouped (= norms 2) false))        ; one for attention and one for what is beside it

(hugging-face ["falcon"] {:prefix "transformer."  :rotary ["default" "dynamic" "linear" "llama3" "yarn"]
                          :requires {"alibi" false  "bias" false  "parallel_attn" true  "multi_query" true
                                     "activation" "gelu"}}
  (config vocab "vocab_size"  context (optional "max_position_embeddings")  layers "num_hidden_layers"
          heads "num_attention_heads"  width "hidden_size"  hidden (optional "ffn_hidden_size")
          epsilon (optional "layer_norm_epsilon")  tied-head (optional "tie_word_embeddings")
          grouped (optional "new_decoder_architecture")  kv-heads (optional "num_kv_heads")
          norms (optional "num_ln_in_parallel_attn"))
  (weights
    wte "word_embeddings.weight"  lnf-w "ln_f.weight"  lnf-b "ln_f.bias"  head-w "lm_head.weight"
    (per "h.*."
      ln-w "input_layernorm.weight"  ln-b "input_layernorm.bias"
      ln1-w "ln_attn.weight"  ln1-b "ln_attn.bias"  ln2-w "ln_mlp.weight"  ln2-b "ln_mlp.bias"
      qkv-w "self_attention.query_key_value.weight"  proj-w "self_attention.dense.weight"
      fc-w "mlp.dense_h_to_4h.weight"  out-w "mlp.dense_4h_to_h.weight")))

(weights
  (wte [vocab width] weight-type)
  (per layers
    (when (not two-norms) (ln-w [width] {:init 1}) (ln-b [width]))
    (when two-norms (ln1-w [width] {:init 1}) (ln1-b [width]) (ln2-w [width] {:init 1}) (ln2-b [width]))
    (qkv-w [(* (+ heads groups groups) size) width] weight-type)  (proj-w [width width] weight-type)
    (fc-w [hidden width] weight-type)  (out-w [width hidden] weight-type))
  (lnf-w [width] {:init 1})  (lnf-b [width])
  (when (not tied-head) (head-w [vocab width] weight-type)))

(state (kv [layers batch 2 groups context size] cache-type))

(defn attend-block [y l turn]                         ; of a group there are its queries, its key and its value
  (let [[n each] [(dim y 0) (quot heads groups)]
        qkv (reshape (linear y (qkv-w l)) [n groups (+ each 2) size])
        q (reshape (slice qkv [0 0 0 0] [n groups each size]) [n heads size])
        [k v] [(slice qkv [0 0 each 0] [n groups nil size]) (slice qkv [0 0 (+ each 1) 0] [n groups nil size])]]
    (linear (attend (turn q) (turn k) v (kv l)) (proj-w l))))

(defn layer [x l turn]
  (let [y (if two-norms (layer-norm x (ln1-w l) (ln1-b l) epsilon) (layer-norm x (ln-w l) (ln-b l) epsilon))
        z (if two-norms (layer-norm x (ln2-w l) (ln2-b l) epsilon) y)]
    (+ x (attend-block y l turn) (linear (gelu-exact (linear z (fc-w l))) (out-w l)))))

(entry logits [tokens positions]
  (let [turn (turning positions (quot size 2))
        x (fold (fn [x l] (layer x l turn)) (rows wte tokens) (range layers))]
    (matmul-transposed (layer-norm (last x) lnf-w lnf-b epsilon) (if tied-head wte head-w))))

(generate logits {:max-new-tokens 64 :temperature 0.8 :top-k 50})
