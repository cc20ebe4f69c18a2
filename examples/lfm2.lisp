; LFM 2, Liquid AI 2025: most layers look a few positions back through a gated convolution, and some attend.
; lispgpt run FOLDER --prompt "Once upon a time"
(require scan)

(config vocab 65536  context 128000  layers 32  heads 32  kv-heads 8  width 2560  given-hidden 12288  adjusted true
        multiple 256  layer-types []  attention-layers []  taps 3  head-width (quot width heads)
        epsilon 1e-5  tied-head true  rope-theta 1000000.0  weight-type bf16
        cache-type (usual-cache-type weight-type))
(hugging-face ["lfm2"] {:prefix "model."
                        :requires {"rope_parameters.rope_type" "default"  "rope_scaling" nil  "head_dim" nil
                                   "block_ffn_dim_multiplier" 1.0  "conv_bias" false}}
  (config vocab "vocab_size"  context "max_position_embeddings"  layers "num_hidden_layers"  width "hidden_size"
          heads "num_attention_heads"  kv-heads "num_key_value_heads"  given-hidden ["block_ff_dim" "intermediate_size"]
          adjusted (optional "block_auto_adjust_ff_dim")  multiple (optional "block_multiple_of")
          layer-types (optional "layer_types")  attention-layers (optional "full_attn_idxs")
          taps (optional "conv_L_cache")  epsilon (optional "norm_eps")
          tied-head (optional "tie_embedding" "tie_word_embeddings")
          rope-theta (optional "rope_parameters.rope_theta" "rope_theta"))
  (weights
    wte "embed_tokens.weight"  normf-w "embedding_norm.weight"  head-w "lm_head.weight"
    (per "layers.*."
      norm1-w "operator_norm.weight"  norm2-w "ffn_norm.weight"  gate-w "feed_forward.w1.weight"
      up-w "feed_forward.w3.weight"  down-w "feed_forward.w2.weight")
    (some "layers.*."
      qkv-w ["self_attn.q_proj.weight" "self_attn.k_proj.weight" "self_attn.v_proj.weight"]
      q-norm-w "self_attn.q_layernorm.weight"  k-norm-w "self_attn.k_layernorm.weight"
      proj-w "self_attn.out_proj.weight"  out-w "conv.out_proj.weight"
      in-w "conv.in_proj.weight"  conv-w "conv.conv.weight")))
(def hidden (if adjusted (* multiple (ceil-div (quot (* 2 given-hidden) 3) multiple)) given-hidden))
(defn attends? [l]
  (if (> (count layer-types) 0)
    (!= (nth layer-types l) "conv")
    (fold (fn [found other] (if (= other l) true found)) (= (count attention-layers) 0) attention-layers)))
(weights
  (wte [vocab width] weight-type)  (normf-w [width] {:init 1})
  (when (not tied-head) (head-w [vocab width] weight-type))
  (per layers (norm1-w [width] {:init 1})  (norm2-w [width] {:init 1})  (gate-w [hidden width] weight-type)
    (up-w [hidden width] weight-type)  (down-w [width hidden] weight-type))
  (per layers :where attends? (qkv-w [(* (+ heads (* 2 kv-heads)) head-width) width] weight-type)
    (q-norm-w [head-width] {:init 1})  (k-norm-w [head-width] {:init 1})  (proj-w [width width] weight-type))
  (per layers :where (fn [l] (not (attends? l)))
    (in-w [(* 3 width) width] weight-type)  (conv-w [width 1 taps])  (out-w [width width] weight-type)))
(state (per layers :where attends? (kv [batch 2 kv-heads context head-width] cache-type))
  (per layers :where (fn [l] (not (attends? l))) (before [batch (- taps 1) width])))
(defn convolved [y l]
  (let [[into out-of x] (map (fn [i] (columns-of (linear y (in-w l)) (* i width) width)) (range 3))
        seen (causal-convolution (by-text (* into x)) (conv-w l) (before l))]
    (linear (* out-of (reshape seen [(dim y 0) width])) (out-w l))))
(defn attended [y l turn]
  (let [[q k v] (split-heads (linear y (qkv-w l)) head-width heads kv-heads)
        [q k] (map (fn [x w] (turn (head-norm x w epsilon))) [q k] [(q-norm-w l) (k-norm-w l)])]
    (linear (attend q k v (kv l)) (proj-w l))))
(entry logits [tokens positions]
  (let [turn (turning positions (quot head-width 2))
        layer (fn [x l]
                (let [y (rms-norm x (norm1-w l) epsilon)
                      x (+ x (if (attends? l) (attended y l turn) (convolved y l)))]
                  (+ x (swiglu (rms-norm x (norm2-w l) epsilon) (gate-w l) (up-w l) (down-w l)))))
        x (fold layer (rows wte tokens) (range layers))]
    (matmul-transposed (rms-norm (last x) normf-w epsilon) (if tied-head wte head-w))))
(generate logits {:max-new-tokens 64 :temperature 0.8 :top-k 50})
