; OPT: "OPT: Open Pre-trained Transformer Language Models", Zhang et al. 2022: a GPT-2 with ReLU, whose table of positions
; begins with two rows that no position has; OPT 350M has its norms behind the blocks, and embeddings of half the width.
(require nn)

(config vocab 50272  context 2048  layers 12  heads 12  width 768  hidden 3072  embedded width
        before true  unnormed false  activation "relu"  tied-head true  weight-type bf16
        cache-type (usual-cache-type weight-type))

(hugging-face ["opt"] {:prefix "model.decoder."
                       :requires {"activation_function" ["relu" "gelu" "gelu_new"]  "enable_bias" true
                                  "layer_norm_elementwise_affine" true}}
  (config vocab "vocab_size"  context "max_position_embeddings"  layers "num_hidden_layers"
          heads "num_attention_heads"  width "hidden_size"  hidden "ffn_dim"  embedded (optional "word_embed_proj_dim")
          before (optional "do_layer_norm_before")  unnormed (optional "_remove_final_layer_norm")
          activation (optional "activation_function")  tied-head (optional "tie_word_embeddings"))
  (weights
    wte "embed_tokens.weight"  wpe "embed_positions.weight"  head-w "lm_head.weight"
    lnf-w "final_layer_norm.weight"  lnf-b "final_layer_norm.bias"  in-w "project_in.weight"  out-of-w "project_out.weight"
    (per "layers.*."
      ln1-w "self_attn_layer_norm.weight"  ln1-b "self_attn_layer_norm.bias"
      qkv-w ["self_attn.q_proj.weight" "self_attn.k_proj.weight" "self_attn.v_proj.weight"]
      qkv-b ["self_attn.q_proj.bias" "self_attn.k_proj.bias" "self_attn.v_proj.bias"]
      proj-w "self_attn.out_proj.weight"  proj-b "self_attn.out_proj.bias"
      ln2-w "final_layer_norm.weight"  ln2-b "final_layer_norm.bias"
      fc-w "fc1.weight"  fc-b "fc1.bias"  out-w "fc2.weight"  out-b "fc2.bias")))

(def ends-normed (if before (not unnormed) false))

(weights
  (wte [vocab embedded] weight-type)
  (when (!= embedded width) (in-w [width embedded] weight-type) (out-of-w [embedded width] weight-type))
  (wpe [(+ context 2) width] weight-type)
  (per layers
    (ln1-w [width] {:init 1})  (ln1-b [width])  (ln2-w [width] {:init 1})  (ln2-b [width])
    (qkv-w [(* 3 width) width] weight-type)  (qkv-b [(* 3 width)])
    (proj-w [width width] weight-type)       (proj-b [width])
    (fc-w [hidden width] weight-type)        (fc-b [hidden])
    (out-w [width hidden] weight-type)       (out-b [width]))
  (when ends-normed (lnf-w [width] {:init 1}) (lnf-b [width]))
  (when (not tied-head) (head-w [vocab embedded] weight-type)))

(state (kv [layers batch 2 heads context (quot width heads)] cache-type))

(def activate (cond (= activation "relu") relu  (= activation "gelu") gelu-exact  :else gelu))
; What a block makes of x is added to it, and the norm is before the block or behind all of that.
(defn normed-block [x w b block]
  (if before (+ x (block (layer-norm x w b))) (layer-norm (+ x (block x)) w b)))

(defn layer [x l]
  (let [attended (fn [x] (linear (attention (linear x (qkv-w l) (qkv-b l)) (kv l) heads) (proj-w l) (proj-b l)))
        fed (fn [x] (linear (activate (linear x (fc-w l) (fc-b l))) (out-w l) (out-b l)))]
    (normed-block (normed-block x (ln1-w l) (ln1-b l) attended) (ln2-w l) (ln2-b l) fed)))

(entry logits [tokens positions]
  (let [places (tensor [n (dim positions 0)] (+ (at positions n) 2))
        x (+ (if (= embedded width) (rows wte tokens) (linear (rows wte tokens) in-w)) (rows wpe places))
        x (last (fold layer x (range layers)))
        x (if ends-normed (layer-norm x lnf-w lnf-b) x)]
    (matmul-transposed (if (= embedded width) x (linear x out-of-w)) (if tied-head wte head-w))))

(generate logits {:max-new-tokens 64 :temperature 0.8 :top-k 50})
